"""Exercises that belong to no paper: notebooks 00 and 61."""

from __future__ import annotations

import math

import torch

from lib import pruners
from lib.companion.exercises.checkers import Checker, checking, function, number
from lib.companion.statistics import interval


def _kept(weights: list[float], sparsity: float) -> list[bool]:
    return pruners.unstructured({"w": torch.tensor([weights]).abs()}, sparsity)["w"][0].tolist()


def _kept_too_many(weights: list[float], sparsity: float) -> list[bool]:
    return _kept(weights, int(sparsity * len(weights)) / len(weights))


def _ramp(step: int, final: float, start: int, every: int, times: int) -> float:
    return pruners.Gradual(final=final, every=every, times=times, start=start).target(step)


def _without_stairs(step: int, final: float, start: int, every: int, times: int) -> float:
    return final * (1 - (1 - min(max((step - start) / (times * every), 0), 1)) ** 3)


def _of_cells(verdicts: list[str]) -> str:
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return "partly" if "reproduced" in verdicts else "differs" if "differs" in verdicts else "undecided"


EXERCISES: dict[str, Checker] = {
    "00.1": number(
        4352 - round(0.95 * 4352),
        "The pattern removes round(0.95 x 4,352) weights.",
        wrong={
            round(0.95 * 4352): "these are the weights that are removed; how many are left?",
            4352 * 0.05: "a weight is there or not: round the number of those that are removed.",
            4352 * 0.95: "that is how many go, and not yet rounded.",
        },
        second="0.95 x 4,352 = 4,134.4. Round it, and subtract it from 4,352.",
        learned="So few numbers still decide rightly about nearly every point, as the figure on top shows.",
    ),
    "00.2": number(
        pruners.Gradual(final=0.8, every=100, times=4).target(200),
        "Two of four prunings are done, so (1 - t/(n D)) is one half; cube it and put it into the equation.",
        wrong={
            0.4: "that is a straight ramp; this one is cubic, so it is faster at first.",
            0.1: "0.8 x (1/2)^3 is what is still missing; the sparsity is the rest of 0.8.",
            0.6: "this is a square; the ramp has a cube.",
        },
        second="s = 0.8 + (0 - 0.8) x (1/2)^3.",
        learned="Half of the prunings remove seven eighths of all that will go.",
    ),
    "00.3": function(
        _kept,
        [([0.3, -2.0, 0.1, 1.0], 0.5), ([4.0, 3.0, -2.0, -1.0, 0.5], 0.55), ([1.0, -5.0], 0.0), ([2.0, -2.0], 0.5)],
        "Remove round(sparsity x number of weights) of them, those nearest to zero; of equal ones the first.",
        wrong=[
            (
                lambda weights, sparsity: _kept([w - min(weights) for w in weights], sparsity),
                "you rank the weights themselves; a weight of -5 matters more than one of 1. Rank magnitudes.",
            ),
            (_kept_too_many, "you round the number of weights down; the pattern rounds to the nearest."),
            (
                lambda weights, sparsity: [not one for one in _kept(weights, sparsity)],
                "True means kept; yours is True where a weight is removed.",
            ),
        ],
        second="Sort the places by the magnitude of their weights; the first round(sparsity * len(weights)) go.",
        learned="This is all that magnitude pruning is; the rest of this book is about scores, shapes and moments.",
    ),
    "00.4": function(
        _ramp,
        [
            (0, 0.8, 200, 50, 12),
            (249, 0.8, 200, 50, 12),
            (250, 0.8, 200, 50, 12),
            (475, 0.9, 100, 100, 5),
            (999, 0.9, 0, 9, 5),
        ],
        "Count the prunings that are done, (step - start) // every, at least 0 and at most `times`.",
        wrong=[
            (_without_stairs, "yours is the smooth ramp; between two prunings the target stays where it is."),
            (
                lambda step, final, start, every, times: final * min(max((step - start) // every, 0), times) / times,
                "yours is a straight staircase; the ramp has a cube.",
            ),
            (
                lambda step, final, start, every, times: _ramp(step + start, final, start, every, times),
                "yours begins at step 0; nothing is removed before `start`.",
            ),
        ],
        second="With n prunings done it is final * (1 - (1 - n / times) ** 3).",
        learned="The ramp is steep at first because an untrained network has many weights that nobody misses.",
    ),
    "00.5": number(
        50.8,
        "Make a copy of the network for each seed, attach unstructured masks of 95 % by pruners.random, and average.",
        tolerance=6,
        wrong={
            95.8: "that is the accuracy with magnitude; use pruners.random.",
            0.508: "this is the share; the answer is in percent, as the accuracies above.",
            76.6: "that is magnitude at 97 %; use pruners.random at 95 %.",
        },
        second="The masks of one seed are pruners.unstructured(pruners.random(model, seed=seed), sparsity=0.95).",
        learned="Chance leaves a guess: nearly every path from input to output is cut. A score has to beat that.",
    ),
    "61.1": number(
        math.ceil(-100 * interval([-0.5, -0.7, -0.6]).low) / 100,
        "The lower end of the interval has to be at or above -m; round up. Student's t for three seeds is 4.303.",
        tolerance=0.004,
        wrong={
            0.6: "that is the mean; the whole interval has to be inside.",
            0.7: "that is the worst seed; the interval reaches further.",
            0.72: "1.96 is for many seeds; for three the factor is 4.303.",
        },
        second="-0.6 - 4.303 x 0.1 / 1.732 = -0.848.",
        learned="Three seeds widen an interval so much that 0.6 points lost need a margin of 0.85.",
    ),
    "61.2": number(
        1,
        "5 % of twenty.",
        wrong={
            0: "each interval misses now and then; with twenty of them it adds up.",
            0.05: "that is the share of one; how many are there?",
            19: "those are called rightly.",
        },
        second="20 x 0.05.",
        learned="That is why a table of verdicts is read as a whole: about one in twenty is luck.",
    ),
    "61.3": function(
        _of_cells,
        [
            (["reproduced", "reproduced"],),
            (["reproduced", "differs"],),
            (["undecided", "differs"],),
            (["undecided", "reproduced"],),
            (["undecided"],),
        ],
        "First ask whether all are the same, then whether any is reproduced, then whether any differs.",
        wrong=[
            (
                lambda verdicts: "reproduced" if "reproduced" in verdicts else verdicts[0],
                "one reproduced cell is not all.",
            ),
            (lambda verdicts: max(verdicts, key=verdicts.count), "it is no vote: a single cell that differs counts."),
            (
                lambda verdicts: verdicts[0] if len(set(verdicts)) == 1 else "partly",
                "if none is reproduced and some differ, the claim differs.",
            ),
        ],
        second="set(verdicts) has one element, or holds 'reproduced', or holds 'differs'.",
        learned="The worst cell never stands for all: each is shown beside the verdict.",
    ),
}

check = checking(EXERCISES)
