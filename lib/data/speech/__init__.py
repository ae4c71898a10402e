"""Load speech to tell speakers by: `load(name)`, whatever the corpus, as one `SpeechData`.

synthetic        speakers that nobody recorded, made in seconds and kept below .sweep/
speechocean762   250 people who read English; those of one part to learn from, those of the other to be judged on
voxceleb         VoxCeleb2's development set to learn from, VoxCeleb1's three lists of trials to be judged on
"""

from __future__ import annotations

from lib.base import BadInput
from lib.data.speech.cache import cached
from lib.data.speech.prepared import FORMS, prepare
from lib.data.speech.prepared import load as recorded
from lib.data.speech.utterances import SpeechData, Trials, Utterances, hold_out
from lib.data.speech.voices import synthetic

__all__ = ["NAMES", "SpeechData", "Trials", "Utterances", "hold_out", "load", "prepare", "synthetic"]

NAMES = ("synthetic", *FORMS)


def load(name: str) -> SpeechData:
    """Load the corpus called `name`, one of NAMES; the features of a recorded one are computed at its first use.

    Raises:
        BadInput: no such corpus.
    """
    if name not in NAMES:
        raise BadInput(f"no corpus called {name!r}; there are: {', '.join(NAMES)}")
    return cached() if name == "synthetic" else recorded(name)
