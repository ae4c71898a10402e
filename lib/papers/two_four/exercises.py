"""Exercises of paper 2: notebooks 20 to 25."""

from __future__ import annotations

import math

import torch
from scipy import stats

from lib import pruners
from lib.companion.exercises.checkers import Checker, checking, function, number
from lib.companion.statistics import interval, verdict
from lib.kernels import int8, products, storage
from lib.pruners import permutation
from lib.pruners.transposable import dual, patterns


def _one_of_two(row: list[float]) -> list[bool]:
    return pruners.n_of_m({"w": torch.tensor([row]).abs()}, 1, 2)["w"][0].tolist()


def _judge(differences: list[float], margin: float) -> str:
    return verdict(interval(differences), {"at_least": -margin})


def _saved(value_bits: int) -> float:
    dense = storage.bits("dense", 1, 4, 2, value_bits)
    return 100 * (1 - storage.bits("two_four", 1, 4, 2, value_bits) / dense)


def _padded(size: int, multiple: int) -> int:
    return products.padded(torch.zeros(size, 1), multiple, 1).shape[0]


def _memory_limit() -> float:
    """By the roofline of notebook 21, for one example: everything that is moved, dense over 2:4, at 16 bit."""
    side = 4096
    weight = storage.bits("dense", side, side, side**2, 16), storage.bits("two_four", side, side, side**2 // 2, 16)
    return (weight[0] + 2 * side * 16) / (weight[1] + 2 * side * 16)


def _to_codes(values: list[float], amax: float) -> list[int]:
    return int8.quantise(
        torch.tensor(values, dtype=torch.float64), torch.tensor(amax / int8.LARGEST, dtype=torch.float64)
    ).tolist()


def _magnitude_kept(rows: list[list[float]]) -> float:
    return permutation.kept_magnitude(torch.tensor(rows))


def _may_read(places: int) -> list[list[bool]]:
    return torch.ones(places, places, dtype=torch.bool).tril().tolist()


def _dual(block: list[list[float]], n: int, rows: list[float], columns: list[float]) -> float:
    scores, u, v = (torch.tensor([values], dtype=torch.float64) for values in (block, rows, columns))
    return float(dual(scores, n, u, v))


EXERCISES: dict[str, Checker] = {
    "20.1": number(
        _saved(32),
        "Do for 32 bits what the text does for 16: one group of four dense, and the same group compressed.",
        tolerance=1e-3,
    ),
    "20.2": function(
        _one_of_two,
        [([3.0, -4.0, 1.0, 0.5],), ([-1.0, 1.0],), ([0.0, 0.1, -7.0, 2.0, 5.0, -6.0],)],
        "Go through the row in pairs and keep the larger magnitude of each; of two equal ones keep the first.",
    ),
    "20.3": number(
        math.ceil(4 * math.log2(math.comb(4, 2))),
        "Count the patterns of a row first (how many groups, how many ways in each?); n bits tell 2^n things apart.",
    ),
    "21.1": number(
        2 * 1024**3 / 2 / 1e9,
        "Count the operations of the dense product, 2 M N K; the pattern lets half of them be skipped.",
        tolerance=0.005,
    ),
    "21.2": function(
        _padded,
        [(1, 16), (16, 16), (17, 16), (100, 32), (128, 64)],
        "Round size / multiple up to a whole number, then multiply.",
    ),
    "21.3": number(
        _memory_limit(),
        "With one example memory is the limit: bytes moved by the dense product over bytes moved by the sparse one.",
        tolerance=0.005,
    ),
    "22.1": number(
        math.factorial(16) / (math.factorial(4) ** 4 * math.factorial(4)),
        "The formula for C = 16: four groups, and neither the order in a group nor the order of groups matters.",
    ),
    "22.2": function(
        _magnitude_kept,
        [
            ([[4.0, -3.0, 2.0, 1.0]],),
            ([[0.0, 1.0, 0.0, -5.0], [2.0, 2.0, 2.0, 2.0]],),
            ([[5.0, 3.0, -2.0, 2.0, 0.0, 0.0, 1.0, 0.0]],),
        ],
        "In each row and each group of four add up the two largest |w|.",
    ),
    "22.3": number(
        100 * (8 - 7) / (10 - 7),
        "First what the new order keeps by 2:4; then how much more than before, of how much more there could be.",
        tolerance=0.05,
    ),
    "23.1": function(
        _judge,
        [([-0.2, 0.1, 0.0], 1.0), ([-3.0, -2.8, -3.2], 1.0), ([-2.0, 0.5, 0.1], 1.0), ([0.4, 0.6], 0.0)],
        "Take the 95 % interval of the mean by Student's t (n - 1 degrees of freedom); look at where -margin lies.",
    ),
    "23.2": number(
        0.5 * math.sqrt(5) / float(stats.t.ppf(0.975, 4)),
        "Half the interval is t x sd / sqrt(5) with the t of four degrees of freedom; it has to fit into the margin.",
        tolerance=0.005,
    ),
    "24.1": number(6.35 / 127, "A step is amax / 127.", tolerance=1e-4),
    "24.2": function(
        _to_codes,
        [([0.0, 0.25, -1.0], 1.0), ([10.0, -10.0, 0.01], 2.0), ([2.5, 3.5, -0.5], 127.0)],
        "Divide by amax / 127, round, and clip to -127 ... 127.",
    ),
    "24.3": number(
        2 * round(0.02 / (2.0 / 127)) + 1,
        "How wide is a step when amax is 2.0? How many steps fit into 0.02, rounded? Count both signs and zero.",
    ),
    "25.1": function(
        _may_read,
        [(1,), (2,), (5,)],
        "Row t is the place that reads, column s the place that is read: true where s is at most t.",
    ),
    "25.2": number(math.log2(65), "Each character gets a share of 1/65; take minus its logarithm to base 2.", 0.005),
    "25.3": number(
        12 * math.ceil(100 / 16),
        "An epoch has ceil(labels / batch) updates, because the last batch of an epoch may be smaller.",
    ),
    "27.1": number(
        math.ceil(math.log2(len(patterns()))),
        "Count the patterns of the block; n bits tell 2^n things apart.",
    ),
    "27.2": function(
        _dual,
        [
            ([[3.0, 1.0], [2.0, 2.0]], 1, [2.0, 1.0], [1.0, 1.0]),
            ([[4.0, 1.0], [1.0, 4.0]], 1, [0.0, 0.0], [0.0, 0.0]),
            ([[1.0, 0.0, 2.0], [0.0, 5.0, 1.0], [3.0, 3.0, -1.0]], 2, [1.0, -1.0, 0.5], [0.0, 0.5, 2.0]),
        ],
        "n times all prices together, and of each place what its score exceeds the two prices by, if it does.",
    ),
    "27.3": number(
        100 * (33 - 30) / 33,
        "The bound is on or above the optimum: the loss is largest if a mask reaches it.",
        tolerance=0.05,
    ),
}

check = checking(EXERCISES)
