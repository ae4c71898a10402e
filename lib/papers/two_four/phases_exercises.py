"""Check exercises of paper 2: notebooks 25 and 27."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

from lib.companion.exercises.checkers import Checker, function, number
from lib.pruners.block_rules import by_rule, greedy
from lib.pruners.transposable import dual, patterns


def _may_read(places: int) -> list[list[bool]]:
    return torch.ones(places, places, dtype=torch.bool).tril().tolist()


def _bits(probabilities: list[float]) -> float:
    """What `lib.training.language.bits` measures, of a model that gave these probabilities to what came."""
    two = torch.tensor([[p, 1 - p] for p in probabilities], dtype=torch.float64)
    return round(float(F.nll_loss(two.log(), torch.zeros(len(probabilities), dtype=torch.long))) / math.log(2), 6)


def _bits_of_the_mean(probabilities: list[float]) -> float:
    """Takes the logarithm of the mean probability: a typical mistake."""
    return round(-math.log2(sum(probabilities) / len(probabilities)), 6)


def _dual(block: list[list[float]], n: int, rows: list[float], columns: list[float]) -> float:
    scores, u, v = (torch.tensor([values], dtype=torch.float64) for values in (block, rows, columns))
    return float(dual(scores, n, u, v))


def _dual_unclamped(block: list[list[float]], n: int, rows: list[float], columns: list[float]) -> float:
    """Counts places whose score is below their prices as well: a typical mistake."""
    size = len(rows)
    return sum(map(sum, block)) + (n - size) * (sum(rows) + sum(columns))


def _kept(block: list[list[float]], mask: list[list[bool]]) -> float:
    return sum(
        score for line, keeps in zip(block, mask, strict=True) for score, kept in zip(line, keeps, strict=True) if kept
    )


def _certifies(bound: Callable[..., float] = _dual) -> Callable[..., bool]:
    """A judge of certificates by a bound: whether the mask reaches it."""
    return lambda block, mask, rows, columns: abs(bound(block, sum(mask[0]), rows, columns) - _kept(block, mask)) < 1e-9


def _bounds(block: list[list[float]], mask: list[list[bool]], rows: list[float], columns: list[float]) -> bool:
    """Is content with any bound: a typical mistake."""
    return _dual(block, sum(mask[0]), rows, columns) >= _kept(block, mask)


def _greedy(block: list[list[float]], n: int) -> list[list[bool]]:
    return by_rule(torch.tensor(block, dtype=torch.float64), n, len(block), greedy).tolist()


def _taking(
    fits: Callable[[int, int, int], bool], reverse: bool = True, stops: bool = False
) -> Callable[[list[list[float]], int], list[list[bool]]]:
    """A rule that takes entries in order of their size, as long as one fits: typical mistakes."""

    def rule(block: list[list[float]], n: int) -> list[list[bool]]:
        side = range(len(block))
        mask = [[False for _ in side] for _ in side]
        for i, j in sorted(((i, j) for i in side for j in side), key=lambda at: block[at[0]][at[1]], reverse=reverse):
            if fits(sum(mask[i]), sum(row[j] for row in mask), n):
                mask[i][j] = True
            elif stops:
                break
        return mask

    return rule


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
        "Each character gets a probability of 1/65; take minus its logarithm to base 2.",
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
        12 * math.ceil(300 / 16),
        "An epoch counts as ceil(labels / batch) updates.",
        wrong={
            225: "round up in each epoch, not once in the end: an epoch counts as ceil(labels / batch) updates.",
            216: "300 / 16 is rounded up, not down.",
            19: "that is one epoch; a session has twelve.",
        },
        second="12 x 19.",
        learned="By the paper's second rule so few updates cannot repair a pruned network; ours repaired most of it.",
    ),
    "25.4": function(
        _bits,
        [([0.5, 0.25],), ([1.0],), ([0.9, 0.05, 0.3, 0.3],), ([0.125] * 5,)],
        "The mean of minus the logarithm to base 2, over the characters that came; rounded to six digits.",
        wrong=[
            (
                lambda probabilities: round(_bits(probabilities) * math.log(2), 6),
                "that is in nats; take the logarithm to base 2.",
            ),
            (_bits_of_the_mean, "take the logarithm of each probability first, the mean afterwards."),
            (
                lambda probabilities: round(_bits(probabilities) * len(probabilities), 6),
                "bits *a character*: divide by how many there are.",
            ),
        ],
        second="round(-sum(math.log2(p) for p in probabilities) / len(probabilities), 6)",
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
            math.log2(90): "bits are whole: round up.",
        },
        second="There are 90 patterns, and 2^6 < 90 <= 2^7.",
        learned="Both directions take 7 bits where one takes 11: freedom that is given up costs nothing to write.",
    ),
    "27.2": function(
        _certifies(),
        [
            ([[3.0, 1.0], [2.0, 2.0]], [[True, False], [False, True]], [2.0, 1.0], [1.0, 1.0]),
            ([[3.0, 1.0], [2.0, 2.0]], [[False, True], [True, False]], [2.0, 1.0], [1.0, 1.0]),
            ([[3.0, 1.0], [2.0, 2.0]], [[True, False], [False, True]], [0.0, 0.0], [0.0, 0.0]),
            (
                [[2.0, 2.0, 0.0], [2.0, 0.0, 2.0], [0.0, 2.0, 2.0]],
                [[True, True, False], [True, False, True], [False, True, True]],
                [1.0, 1.0, 1.0],
                [0.0, 0.0, 0.0],
            ),
        ],
        "Compute the bound of these prices, with as many kept in a row as the mask has, and what the mask keeps.",
        wrong=[
            (
                _certifies(lambda block, n, rows, columns: _dual(block, 1, rows, columns)),
                "each row and each column holds n kept places, so its price is paid n times.",
            ),
            (
                _certifies(_dual_unclamped),
                "a place whose score is below its prices adds nothing to the bound; it takes nothing away.",
            ),
            (
                _bounds,
                "all prices bound all masks; they prove that a mask is the best only where it reaches the bound.",
            ),
        ],
        second="n * (sum(rows) + sum(columns)) + sum(max(0, block[i][j] - rows[i] - columns[j])) against the sum kept.",
        learned="Whoever doubts a mask needs no search: one sum over the block settles it.",
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
    "27.4": function(
        _greedy,
        [
            ([[9.0, 8.0, 3.0, 1.0], [7.0, 2.0, 1.5, 6.0], [1.2, 5.0, 2.5, 6.5], [4.0, 1.1, 3.5, 2.2]], 2),
            ([[1.0, 2.0], [3.0, 5.0]], 1),
            ([[9.0, 8.0, 7.0], [6.0, 1.0, 2.0], [5.0, 3.0, 4.0]], 1),
        ],
        "Sort the places by their scores, highest first; take one if its row and its column hold fewer than n so far.",
        wrong=[
            (
                _taking(lambda in_row, in_column, n: in_row < n),
                "columns are full, too: that mask is n:m along rows alone.",
            ),
            (
                _taking(lambda in_row, in_column, n: in_row < n and in_column < n, reverse=False),
                "you begin with the smallest; the largest come first.",
            ),
            (
                _taking(lambda in_row, in_column, n: in_row < n and in_column < n, stops=True),
                "you stop at the first entry that finds no room; smaller ones elsewhere may still fit.",
            ),
        ],
        second="Count what each row and each column holds already, and go through sorted(places, reverse=True).",
        learned="The first choices shut the last ones in: in one block of six a row and a column end one short.",
    ),
    "27.5": number(
        50.3,
        "Make both masks of 256 x 512 weights, cut them into blocks with to_blocks(mask, 4), and count equal blocks.",
        tolerance=2.5,
        wrong={
            0.503: "this is the share; the question is for percent.",
            98.5: "that compares magnitudes that are kept; a block counts only if its two masks are the same.",
            84.0: "those are the blocks in which greedy keeps eight weights; they need not be the best eight.",
        },
        second="(to_blocks(exact, 4) == to_blocks(fast, 4)).flatten(1).all(1).float().mean()",
        learned="Greedy errs in half of the blocks and loses one point of the magnitude: often wrong, but by little.",
    ),
}
