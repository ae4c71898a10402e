"""Speech to tell speakers by: `load(name)`, whatever the corpus, as one `Speech`.

synthetic        speakers that nobody recorded, made in seconds
speechocean762   250 people who read English; those of one part to learn from, those of the other to be judged on
voxceleb         VoxCeleb2's development set to learn from, VoxCeleb1's three lists of trials to be judged on
"""

from __future__ import annotations

from lib.data.speech.store import FORMS, prepare
from lib.data.speech.store import load as recorded
from lib.data.speech.utterances import Speech, Trials, Utterances
from lib.data.speech.voices import synthetic
from lib.errors import BadInput

__all__ = ["NAMES", "Speech", "Trials", "Utterances", "load", "prepare", "synthetic"]

NAMES = ("synthetic", *FORMS)


def load(name: str) -> Speech:
    """The corpus called `name`, one of NAMES; the features of a recorded one are computed at its first use."""
    if name not in NAMES:
        raise BadInput(f"no corpus called {name!r}; there are: {', '.join(NAMES)}")
    return synthetic() if name == "synthetic" else recorded(name)
