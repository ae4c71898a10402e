"""Make independent streams of random numbers from a few whole ones: a run, its session, its epoch."""

from __future__ import annotations

from numbers import Integral

import numpy as np

from lib.base import BadInput


def seed_of(*parts: int) -> int:
    """Make one seed from several numbers, such as (seed, session, epoch); other numbers give another stream.

    Of its 63 bits NumPy takes all, torch's generator on a CPU the lower 32: among a million of its streams about a
    hundred pairs are the same, such as two steps of two runs.

    Raises:
        BadInput: no numbers, or one that is not whole or below 0.
    """
    if not parts or not all(isinstance(part, Integral) and part >= 0 for part in parts):
        raise BadInput(f"seeds are whole numbers from 0 on, these are {', '.join(map(str, parts)) or 'none'}")
    first, *path = parts  # as a spawn key, because SeedSequence takes (1,) and (1, 0) for the same
    return int(np.random.SeedSequence(first, spawn_key=path).generate_state(1, np.uint64)[0] >> 1)
