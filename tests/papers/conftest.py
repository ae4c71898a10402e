"""Data that are made in no time, for experiments with short schedules."""

from functools import cache

import numpy as np
import pytest

from lib.data import offline_rl, speech
from lib.data.speech import voices


@pytest.fixture(scope="session")
def few():
    return voices.synthetic(voices.Sizes(8, 5, 2, 2, 0.6))


@pytest.fixture
def on_few_voices(few, monkeypatch):
    """Every corpus is these few made voices."""
    monkeypatch.setattr(speech, "load", lambda name: few)


@cache
def chance(transitions: int):
    draw = np.random.default_rng(0)
    return offline_rl.recorded("hopper", lambda seen: draw.uniform(-1, 1, (len(seen), 3)), transitions)


@pytest.fixture
def by_chance(monkeypatch):
    """All data are of a random policy on Hopper: experiments ask for an expert's, which takes longer to play."""
    load = lambda source, env, quality="expert", transitions=200, seed=0: chance(transitions)  # noqa: E731
    monkeypatch.setattr(offline_rl, "load", load)
