"""Check exercises of paper 2: notebooks 25 and 27."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from lib.companion.exercises.checkers import Checker, function, number
from lib.pruners.transposable import dual, patterns


def _may_read(places: int) -> list[list[bool]]:
    return torch.ones(places, places, dtype=torch.bool).tril().tolist()


def _bits(shares: list[float]) -> float:
    """What `lib.training.language.bits` measures, of a model that gave these shares to what came."""
    two = torch.tensor([[share, 1 - share] for share in shares], dtype=torch.float64)
    return round(float(F.nll_loss(two.log(), torch.zeros(len(shares), dtype=torch.long))) / math.log(2), 6)


def _bits_of_the_mean(shares: list[float]) -> float:
    """Takes the logarithm of the mean share: a typical mistake."""
    return round(-math.log2(sum(shares) / len(shares)), 6)


def _dual(block: list[list[float]], n: int, rows: list[float], columns: list[float]) -> float:
    scores, u, v = (torch.tensor([values], dtype=torch.float64) for values in (block, rows, columns))
    return float(dual(scores, n, u, v))


def _dual_unclamped(block: list[list[float]], n: int, rows: list[float], columns: list[float]) -> float:
    """Counts places whose score is below their prices as well: a typical mistake."""
    size = len(rows)
    return sum(map(sum, block)) + (n - size) * (sum(rows) + sum(columns))


EXERCISES: dict[str, Checker] = {
    "25.1": function(
        _may_read,
        [(1,), (2,), (5,)],
        "Row t is the place that reads, column s the place that is read: true where s is at most t.",
        wrong=[
            (
                lambda places: [[s >= t for s in range(places)] for t in range(places)],
                "yours reads what comes later and not what came before: rows and columns have changed places.",
            ),
            (
                lambda places: [[s < t for s in range(places)] for t in range(places)],
                "a place may read itself, too; or the first one would have nothing to read.",
            ),
            (
                lambda places: [[True] * places for _ in range(places)],
                "yours may read the future: the next character would be no question.",
            ),
        ],
        second="[[s <= t for s in range(places)] for t in range(places)]",
        learned="One pass over a window so answers as many questions as it has places, each honestly.",
    ),
    "25.2": number(
        math.log2(65),
        "Each character gets a share of 1/65; take minus its logarithm to base 2.",
        tolerance=0.005,
        wrong={
            math.log(65): "that is in nats; bits need the logarithm to base 2.",
            65: "that is the number of characters; how many bits tell so many apart?",
            7: "a code has whole bits for each character; the measure is a mean, which need not be whole.",
        },
        second="log2(65).",
        learned="Every model of this text starts near this number; what it learns shows in how far it gets below.",
    ),
    "25.3": number(
        12 * math.ceil(100 / 16),
        "An epoch has ceil(labels / batch) updates, because the last batch of an epoch may be smaller.",
        wrong={
            75: "batches do not reach from one epoch into the next: the last one of each is smaller.",
            72: "the last four labels of an epoch make a batch, too.",
            7: "that is one epoch; a session has twelve.",
        },
        second="12 x 7.",
        learned="So few updates cannot repair a network that lost half of its weights: the paper's second rule.",
    ),
    "25.4": function(
        _bits,
        [([0.5, 0.25],), ([1.0],), ([0.9, 0.05, 0.3, 0.3],), ([0.125] * 5,)],
        "The mean of minus the logarithm to base 2, over the characters that came; rounded to six digits.",
        wrong=[
            (lambda shares: round(_bits(shares) * math.log(2), 6), "that is in nats; take the logarithm to base 2."),
            (_bits_of_the_mean, "take the logarithm of each share first, the mean afterwards."),
            (lambda shares: round(_bits(shares) * len(shares), 6), "bits *a character*: divide by how many there are."),
        ],
        second="round(-sum(math.log2(share) for share in shares) / len(shares), 6)",
        learned="One character to which a model gave nothing would cost infinitely many bits: never be quite certain.",
    ),
    "25.5": number(
        32 - 10,
        "Compare the two outputs place by place: (model(tokens) != model(changed)).any(-1).sum().",
        wrong={
            32: "that would be a model that reads in both directions, as BERT does.",
            21: "the place itself reads what stands there, too.",
            1: "every later place may read it as well, by attention.",
        },
        second="Places 10 to 31 may read place 10; places 0 to 9 may not.",
        learned="That nothing changes before it is the proof that no answer is read from the future.",
    ),
    "27.1": number(
        math.ceil(math.log2(len(patterns()))),
        "Count the patterns of the block; n bits tell 2^n things apart.",
        wrong={
            11: "that is for rows alone; two in each column leaves far fewer patterns.",
            90: "that is how many patterns there are; how many bits tell them apart?",
            6: "2^6 = 64 are not enough for all patterns.",
        },
        second="There are 90 patterns, and 2^6 < 90 <= 2^7.",
        learned="Both directions take 7 bits where one takes 11: freedom that is given up costs nothing to write.",
    ),
    "27.2": function(
        _dual,
        [
            ([[3.0, 1.0], [2.0, 2.0]], 1, [2.0, 1.0], [1.0, 1.0]),
            ([[4.0, 1.0], [1.0, 4.0]], 1, [0.0, 0.0], [0.0, 0.0]),
            ([[1.0, 0.0, 2.0], [0.0, 5.0, 1.0], [3.0, 3.0, -1.0]], 2, [1.0, -1.0, 0.5], [0.0, 0.5, 2.0]),
        ],
        "n times all prices together, and of each place what its score exceeds the two prices by, if it does.",
        wrong=[
            (
                lambda block, n, rows, columns: _dual(block, 1, rows, columns),
                "each row and each column holds n kept places, so its price is paid n times.",
            ),
            (_dual_unclamped, "a place whose score is below its prices adds nothing; it takes nothing away."),
            (
                lambda block, n, rows, columns: n * (sum(rows) + sum(columns)),
                "a score above its two prices adds what is above them.",
            ),
        ],
        second="n * (sum(rows) + sum(columns)) + sum(max(0, block[i][j] - rows[i] - columns[j]) for all i and j).",
        learned="Any prices give a bound, so a mask that reaches it is proved best, whoever found it.",
    ),
    "27.3": number(
        100 * (33 - 30) / 33,
        "The bound is on or above the optimum: the loss is largest if a mask reaches it.",
        tolerance=0.05,
        wrong={
            10.0: "that is of what the rule keeps; the question is for a share of the optimum.",
            3.0: "that is the difference of the sums; the question is for percent.",
            90.9: "that is what the rule keeps at least.",
        },
        second="100 x (33 - 30) / 33.",
        learned="Nobody needs to know the optimum to know how far from it one is at most.",
    ),
}
