"""A corpus of speech that is made in no time, for experiments with short schedules."""

import pytest
import torch

from lib.data import speech
from lib.data.speech import voices


@pytest.fixture(scope="session")
def few():
    return voices.synthetic(voices.Sizes(8, 5, 2, 2, 0.6))


@pytest.fixture
def on_few_voices(few, monkeypatch):
    """Every corpus is these few made voices, and torch has one thread, as in a sweep."""
    monkeypatch.setattr(speech, "load", lambda name: few)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
