"""Exercises that belong to no paper: notebooks 00 and 61."""

from __future__ import annotations

import math

import torch

from lib import pruners
from lib.companion.exercises.checkers import Checker, checking, function, number
from lib.companion.statistics import interval


def _kept(weights: list[float], sparsity: float) -> list[bool]:
    return pruners.unstructured({"w": torch.tensor([weights]).abs()}, sparsity)["w"][0].tolist()


EXERCISES: dict[str, Checker] = {
    "00.1": function(
        _kept,
        [([0.3, -2.0, 0.1, 1.0], 0.5), ([4.0, 3.0, -2.0, -1.0, 0.5], 0.55), ([1.0, -5.0], 0.0), ([2.0, -2.0], 0.5)],
        "Remove round(sparsity x number of weights) of them, those nearest to zero; of equal ones the first.",
    ),
    "00.2": number(
        pruners.Gradual(final=0.8, every=100, times=4).target(200),
        "Two of four prunings are done, so (1 - t/(n D)) is one half; cube it and put it into the equation.",
    ),
    "61.1": number(
        math.ceil(-100 * interval([-0.5, -0.7, -0.6]).low) / 100,
        "The lower end of the interval has to be at or above -m; round up. Student's t for three seeds is 4.303.",
        tolerance=0.004,
    ),
}

check = checking(EXERCISES)
