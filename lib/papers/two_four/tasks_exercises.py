"""Check exercises of notebook 26: generators and detectors."""

from __future__ import annotations

import numpy as np
import torch

from lib.companion.exercises.checkers import Checker, function, number
from lib.data.canvases import overlaps
from lib.training.detection import Findings, suppress


def _overlap(one: list[float], other: list[float]) -> float:
    return round(float(overlaps(np.array(one), np.array([other]))[0]), 6)


def _sides(one: list[float], other: list[float]) -> list[float]:
    return [min(one[2 + axis], other[2 + axis]) - max(one[axis], other[axis]) for axis in (0, 1)]


def _area(box: list[float]) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _overlap_signed(one: list[float], other: list[float]) -> float:
    """Forget that boxes which do not meet share nothing."""
    width, height = _sides(one, other)
    return round(width * height / (_area(one) + _area(other) - width * height), 6)


def _overlap_of_sum(one: list[float], other: list[float]) -> float:
    """Count what is shared twice."""
    width, height = (max(0.0, side) for side in _sides(one, other))
    return round(width * height / (_area(one) + _area(other)), 6)


def _overlap_of_smaller(one: list[float], other: list[float]) -> float:
    width, height = (max(0.0, side) for side in _sides(one, other))
    return round(width * height / min(_area(one), _area(other)), 6)


def _kept(boxes: list[list[float]], scores: list[float]) -> list[int]:
    order = sorted(range(len(boxes)), key=lambda one: -scores[one])
    tensors = torch.tensor([boxes[one] for one in order]), torch.tensor([scores[one] for one in order])
    found = suppress(Findings(tensors[0], torch.zeros(len(boxes), dtype=torch.int64), tensors[1]))
    return sorted(order[tensors[1].tolist().index(score)] for score in found.scores.tolist())


def _kept_by_all(boxes: list[list[float]], scores: list[float]) -> list[int]:
    """Let a box that is gone itself remove others."""
    return [
        one
        for one in range(len(boxes))
        if all(scores[other] <= scores[one] or _overlap(boxes[one], boxes[other]) <= 0.5 for other in range(len(boxes)))
    ]


def _kept_in_order(boxes: list[list[float]], scores: list[float]) -> list[int]:
    kept: list[int] = []
    for one in range(len(boxes)):
        if all(_overlap(boxes[one], boxes[other]) <= 0.5 for other in kept):
            kept.append(one)
    return kept


def _kept_weakest(boxes: list[list[float]], scores: list[float]) -> list[int]:
    return _kept(boxes, [1 - score for score in scores])


EXERCISES: dict[str, Checker] = {
    "26.1": number(
        (4 - 1) ** 2 + (5 - 2) ** 2,
        "In one dimension the distance is (m - m')^2 + (s - s')^2.",
        wrong={
            9: "that is the means' part alone; the spreads differ, too.",
            (4 - 1) ** 2 + 25 - 4: "the trace is of C + C' - 2 (C C')^(1/2), with variances 4 and 25: 4 + 25 - 2 x 10.",
            18**0.5: "the printed scores are the squared distance; do not take the root.",
        },
        second="4 + 25 - 2 x sqrt(4 x 25) = 9, and the means add another 9.",
        learned="A generator that makes the right average image, but only that one, is far away by its spread.",
    ),
    "26.2": number(
        64,
        "Each input position is multiplied by a matrix [out x R x S, in]. Which axis is summed?",
        wrong={
            64 * 16: "an ordinary convolution sums over its kernel, too; a transposed one adds overlaps afterwards.",
            32 * 16: "those are the rows: what one input position is spread out to.",
            32: "these are the output channels; nothing is summed over them.",
        },
        second="The weight is [64, 32, 4, 4]; only the first axis is summed by the product.",
        learned="So the rule of section 4.2 asks whether the input channels alone are a multiple of 16.",
    ),
    "26.3": function(
        _overlap,
        [([0, 0, 4, 4], [2, 0, 6, 4]), ([0, 0, 2, 2], [5, 6, 8, 9]), ([1, 1, 3, 3], [0, 0, 4, 4])],
        "Shared area over the area that either covers; boxes are left, top, right, bottom. Round to six digits.",
        wrong=[
            (_overlap_signed, "boxes that do not meet share nothing: a width below 0 counts as 0."),
            (_overlap_of_sum, "the sum of both areas counts the shared part twice."),
            (_overlap_of_smaller, "divide by what either covers, not by the smaller box."),
        ],
        second="shared = max(0, width) * max(0, height); shared / (area + other area - shared).",
        learned="At an overlap of 0.5 two equal boxes are shifted by a third of their width.",
    ),
    "26.4": function(
        _kept,
        [
            ([[0, 0, 10, 10], [3, 0, 13, 10], [6, 0, 16, 10]], [0.9, 0.8, 0.7]),
            ([[0, 0, 10, 10], [1, 0, 11, 10], [30, 30, 40, 40]], [0.3, 0.6, 0.9]),
            ([[0, 0, 10, 10], [1, 0, 11, 10]], [0.9, 0.2]),
            ([[0, 0, 10, 10], [0, 5, 10, 15]], [0.9, 0.8]),  # 1/3
            ([[0, 0, 10, 10], [2, 2, 8, 8]], [0.9, 0.8]),  # 0.36, one within the other
            ([[0, 0, 10, 10], [0, 40, 10, 50]], [0.9, 0.8]),  # 0, above one another
            ([[0, 0, 10, 10], [0, 0, 10, 5]], [0.9, 0.8]),  # exactly 0.5
        ],
        "Go through the boxes from the strongest; keep one that overlaps none of those kept by more than 0.5.",
        wrong=[
            (_kept_by_all, "a box that is gone removes nobody: compare with those kept."),
            (_kept_in_order, "begin with the strongest, not with the first in the list."),
            (_kept_weakest, "the stronger of two stays."),
        ],
        second="order = sorted(range(len(boxes)), key=lambda i: -scores[i]); return sorted(kept).",
        learned="Suppression is a rule, not a layer: it has no weights, and 2:4 does not speed it up.",
    ),
    "26.5": number(
        1,
        "Make 50 images instead of 500 in the cell with the distances, a few times.",
        wrong={
            0: "the covariance of few images is too narrow in most directions, whatever the generator is.",
            -1: "few images look less varied than they are, which is farther from the real ones.",
            10: "the answer is a sign: 1, 0 or -1.",
        },
        second="Even real images are not at distance 0 from other real ones, and farther with fewer of them.",
        learned="Distances can be compared only when they are of as many images.",
    ),
}
