"""Check exercises that belong to no paper: notebooks 00, 61 and 62."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from scipy import stats

from lib import pruners
from lib.companion.exercises.checkers import Checker, function, number
from lib.companion.statistics import REPRODUCED, Interval, interval, together, verdict
from lib.kernels import storage


def _kept(weights: list[float], sparsity: float) -> list[bool]:
    return pruners.unstructured({"w": torch.tensor([weights]).abs()}, sparsity)["w"][0].tolist()


def _kept_too_many(weights: list[float], sparsity: float) -> list[bool]:
    return _kept(weights, int(sparsity * len(weights)) / len(weights))


def _ramp(step: int, final: float, start: int, every: int, times: int) -> float:
    return pruners.Gradual(final=final, every=every, times=times, start=start).target(step)


def _without_stairs(step: int, final: float, start: int, every: int, times: int) -> float:
    return final * (1 - (1 - min(max((step - start) / (times * every), 0), 1)) ** 3)


def _first(decides: Callable[[int], bool]) -> int:
    """The least number of seeds, from two on, that decides."""
    return next(seeds for seeds in itertools.count(2) if decides(seeds))


def _half(sd: float, seeds: int) -> float:
    """Half of the width of Student's interval."""
    return float(stats.t.ppf(0.975, seeds - 1)) * sd / math.sqrt(seeds)


def _seeds_needed(mean: float, sd: float, margin: float) -> int:
    def measured(seeds: int) -> Interval:
        return Interval(mean, mean - _half(sd, seeds), mean + _half(sd, seeds), seeds)

    return _first(lambda seeds: verdict(measured(seeds), {"at_least": -margin}) == REPRODUCED)


def _holds(row: list[float], n: int, m: int) -> bool:
    return all(sum(one != 0 for one in row[start : start + m]) <= n for start in range(0, len(row), m))


def _unpacked(values: list[float], bitmap: list[int]) -> list[float]:
    places = [place for place, bit in enumerate(bitmap) if bit]
    row = [0.0] * len(bitmap)
    for place, value in zip(places, values, strict=True):
        row[place] = value
    return row


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
        pruners.Gradual(final=0.9, every=100, times=5).target(200),
        "Two of five prunings are done, so (1 - t/(n D)) is 0.6; cube it and put it into the equation.",
        tolerance=0.002,
        wrong={
            0.36: "that is a straight ramp; this one is cubic, so it is faster at first.",
            0.194: "0.9 x 0.6^3 is what is still missing; the sparsity is the rest of 0.9.",
            0.576: "this is a square; the ramp has a cube.",
        },
        second="s = 0.9 + (0 - 0.9) x 0.6^3.",
        learned="Two fifths of the prunings remove nearly four fifths of all that will go.",
    ),
    "00.3": function(
        _kept,
        [
            ([0.3, -2.0, 0.1, 1.0], 0.5),
            ([4.0, 3.0, -2.0, -1.0, 0.5], 0.55),
            ([1.0, -5.0], 0.0),
            ([2.0, -2.0], 0.5),
            ([1.0, 2.0, 3.0], 0.4),
        ],
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
        learned="The ramp is steep at first: as long as few weights have gone, many are left that nobody misses.",
    ),
    "00.5": number(
        67.84,
        "Make a copy of the network for each seed, attach unstructured masks of 50 % by pruners.random, and average.",
        tolerance=0.4,
        wrong={
            99.6: "that is the accuracy with magnitude; use pruners.random.",
            0.678: "this is the share; the answer is in percent, as the accuracies above.",
            62.4: "that is seed 0 alone; the answer is the mean of five.",
            50.8: "that is what is left at 95 %: a guess; here half of the weights go.",
            98.6: "that is the best of the five; the answer is their mean.",
        },
        second="The masks of one seed are pruners.unstructured(pruners.random(model, seed=seed), sparsity=0.5).",
        learned="Half by chance costs a third of the points and another seed other points: a score has to beat that.",
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
            19: "those are the intervals that hold the truth.",
        },
        second="20 x 0.05.",
        learned="Half of the misses lie on the harmless side: were all twenty false, half a one would seem reproduced.",
    ),
    "61.3": function(
        together,
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
    "61.4": function(
        _seeds_needed,
        [(-0.44, 0.6, 1.0), (0.2, 1.5, 0.5), (-0.6, 0.1, 0.85), (0.5, 0.01, 1.0), (-0.5, 2.0, 1.0)],
        "Count up from two seeds until mean - t x sd / sqrt(n), the lower end, is at or above -margin.",
        wrong=[
            (
                lambda mean, sd, margin: _first(lambda n: mean - 1.96 * sd / math.sqrt(n) >= -margin),
                "1.96 is for many seeds; with few the factor of Student's t is larger.",
            ),
            (
                lambda mean, sd, margin: _first(lambda n: _half(sd, n) <= margin),
                "you leave out the mean: a mean that has already lost something leaves less of the margin.",
            ),
            (
                lambda mean, sd, margin: _first(lambda n: mean - _half(sd, n) / math.sqrt(n) >= -margin),
                "the mean of n seeds scatters by sd / sqrt(n); you divide by n.",
            ),
        ],
        second="next(n for n in itertools.count(2) if mean - t.ppf(0.975, n - 1) * sd / n**0.5 >= -margin)",
        learned="Halving what is left of the margin asks for four times the seeds, so a margin is chosen with care.",
    ),
    "61.5": number(
        75,
        "The truth is missed when all three seeds lie on the same side of it.",
        tolerance=1.5,
        wrong={
            95: "so the interval is called; count how often it holds 0.",
            50: "that is for two seeds.",
            87.5: "they may all lie above or all below; both count.",
        },
        second="100 x (1 - 2 x (1/2)^3).",
        learned="So this project takes Student's t, which is wider for three seeds and keeps what it promises.",
    ),
    "62.1": number(
        128 * 64 // 2 * 4 + storage.metadata_bits("two_four", 128, 64, 128 * 32) // 8,
        "Half of the values with four bytes each, and two bits of metadata for each value that is stored.",
        wrong={
            128 * 64 // 2 * 4: "these are the values alone; where they stood is stored too.",
            128 * 64 * 4: "this is the dense weight; half of its values are not stored.",
            128 * 64 // 2 * 4 + 128 * 64 // 4: "metadata are two bits for each *stored* value, and half of them are.",
        },
        second="4,096 values x 4 bytes, and 4,096 x 2 bits / 8.",
        learned="In float32 metadata add a sixteenth to the values, in float16 an eighth.",
    ),
    "62.2": number(
        100 * (1 - 7 / 16),
        "A weight takes 16 (1 - s) + 1 bits on average; that has to be 8.",
        tolerance=0.006,
        wrong={
            50.0: "that would do without a bitmap; it takes one bit a place, whatever is kept.",
            53.125: "this is right for 32 bits; values of 16 bits pay more for the same bitmap.",
            43.75: "this is the share that is kept.",
        },
        second="16 (1 - s) + 1 = 8, so 1 - s = 7/16.",
        learned="The narrower the values, the more a mask weighs: beyond pruning, coding the mask pays.",
    ),
    "62.3": function(
        _holds,
        [
            ([1.0, 0.0, 2.0, 0.0], 2, 4),
            ([1.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0], 2, 4),
            ([0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0], 2, 4),
            ([0.0, -1.0, 0.0, 0.0], 2, 4),
            ([0.0, -1.0, 2.0, 0.0], 1, 2),
            ([-1.0, -2.0], 1, 2),
        ],
        "Go through the groups from place 0, m, 2 m, ... and count what is not zero in each.",
        wrong=[
            (
                lambda row, n, m: sum(one != 0 for one in row) <= n * len(row) / m,
                "you count over the whole row; each group by itself must hold the pattern.",
            ),
            (
                lambda row, n, m: all(sum(one != 0 for one in row[i : i + m]) <= n for i in range(len(row) - m + 1)),
                "your windows overlap; groups begin at places 0, m, 2 m and so on.",
            ),
            (
                lambda row, n, m: all(
                    sum(one != 0 for one in row[start : start + m]) == n for start in range(0, len(row), m)
                ),
                "at most n: a group with fewer left holds the pattern too.",
            ),
        ],
        second="all(... <= n for start in range(0, len(row), m))",
        learned="That is all `verify` asks of a matrix, row by row along the reduction axis.",
    ),
    "62.4": function(
        _unpacked,
        [([5.5, -1.25], [0, 1, 0, 1]), ([], [0, 0]), ([1.0, 2.0, 3.0], [1, 1, 0, 1]), ([0.0, 4.0], [1, 0, 0, 1])],
        "Go through the bitmap; at each 1 take the next value, at each 0 put a zero.",
        wrong=[
            (
                lambda values, bitmap: list(values) + [0.0] * (len(bitmap) - len(values)),
                "you put all values in front; the bitmap says where each of them stands.",
            ),
            (
                lambda values, bitmap: _unpacked(list(values)[::-1], bitmap),
                "you take the values from behind; the first 1 belongs to the first value.",
            ),
            (
                lambda values, bitmap: (
                    _unpacked(values, [1 - bit for bit in bitmap])
                    if len(values) * 2 == len(bitmap)
                    else [0.0] * len(bitmap)
                ),
                "1 means kept; you put values where the bitmap has a 0.",
            ),
        ],
        second="values = iter(values); [next(values) if bit else 0.0 for bit in bitmap]",
        learned="With `numpy.packbits` eight such bits are one byte, and this is the file that pruners.save writes.",
    ),
    "62.5": number(
        48.0,
        "Make the network after torch.manual_seed(0), train(model, epochs=4), and attach the masks before you measure.",
        tolerance=3,
        wrong={
            97.2: "that is about what two of four leave, or the dense network: keep one of four.",
            0.48: "this is the share; the answer is in percent, as the accuracies above.",
            52.0: "these are the errors; how many are right?",
        },
        second="pruners.attach(model, pruners.n_of_m(scores, 1, 4)), then accuracy(model).",
        learned="Without training again a pattern is paid for in full; with it most comes back.",
    ),
}
