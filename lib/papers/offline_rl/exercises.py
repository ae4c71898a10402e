"""Check exercises of paper 1: notebooks 10 to 13."""

from __future__ import annotations

import math

import numpy as np
from torch import nn

from lib import pruners
from lib.companion.exercises.checkers import Checker, checking, function, number
from lib.data.offline_rl import normalised
from lib.papers.offline_rl.measures import interquartile_mean
from lib.training.bcq import BCQSettings


def _snip(weight: float, gradient: float) -> float:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return float(pruners.snip(model, lambda found: gradient * found.weight.sum())["weight"])


def _grasp_of_a_bowl(theta: list[float], h: list[float]) -> list[float]:
    return [-t * curvature**2 * t for t, curvature in zip(theta, h, strict=True)]


def _interquartile_mean(scores: list[float]) -> float:
    return interquartile_mean({"all": scores}).value


def _coo_bytes(weights: int, sparsity: float) -> int:
    return round((1 - sparsity) * weights) * (4 + 8 + 8)


def _entropy(share: float) -> float:
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)


EXERCISES: dict[str, Checker] = {
    "10.1": number(_snip(0.5, -0.2), "The magnitude of weight times gradient."),
    "10.2": function(
        _grasp_of_a_bowl,
        [([1.0, 2.0, 0.5], [1.0, 0.5, 3.0]), ([-2.0], [2.0]), ([0.0, 1.0], [4.0, -1.0])],
        "H is diagonal, so (Hg)_q = h_q g_q; then multiply by -theta_q.",
    ),
    "10.3": number(
        1 + int(np.argmax(_grasp_of_a_bowl([1.0, 2.0, 0.5], [1.0, 0.4, 3.0]))),
        "Compute the three scores; the largest goes first, which of negative numbers is the one nearest to zero.",
    ),
    "11.1": number(
        float(normalised("hopper", 1607)),
        "100 x (return - random) / (expert - random).",
        tolerance=0.06,
    ),
    "11.2": number(
        BCQSettings().minimum_weight * 6 + (1 - BCQSettings().minimum_weight) * 10,
        "Three quarters of the lower, one quarter of the higher.",
    ),
    "12.1": function(
        _interquartile_mean,
        [([0.0, 1.0, 2.0, 100.0],), ([5.0, -3.0, 1.0],), ([7.0],), ([3.0, 9.0, 1.0, 2.0, 8.0, 4.0, 1.0, 50.0, 6.0],)],
        "Sort; drop len // 4 from the start and as many from the end; average the rest.",
    ),
    "12.2": number(
        _snip(0.1, 10 * 0.3) / _snip(1.0, 0.3),
        "The gradient is proportional to what enters the weight. What becomes of weight times gradient?",
    ),
    "13.1": number(
        100 * (1 - 2 / (2 + 4 + 4)),
        "A kept weight costs its value and two indices, a dense one its value alone: when are both files equal?",
        tolerance=0.05,
    ),
    "13.2": function(
        _coo_bytes,
        [(100, 0.95), (1000, 0.0), (7, 0.5), (562_500, 0.99)],
        "How many are kept? Each has 4 bytes of value and twice 8 bytes of index.",
    ),
    "13.3": number(
        32 / (0.01 * 32 + _entropy(0.01)),
        "Bits a weight: 32 for each kept one, plus H(0.99) for saying which; compare with 32.",
        tolerance=0.06,
    ),
    "13.4": number(
        100 * (1 - (1 - 0.5) / 2.1),
        "With half of the weights it takes 2.1; with which share of them would it take 1?",
        tolerance=0.06,
    ),
}

check = checking(EXERCISES)
