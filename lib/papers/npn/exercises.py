"""Exercises of paper 4: notebooks 40 to 43."""

from __future__ import annotations

import math

import torch

from lib.companion.exercises.checkers import Checker, checking, function, number
from lib.papers.npn import measures
from lib.pruners import gates


def _gate_slope(k: float, pi: float) -> float:
    return measures.slope("sigmoid", k, math.log(pi / (1 - pi)) / k)


def _arm(losses: list[list[float]], pi: list[float], u: list[float]) -> list[float]:
    units, drawn = gates.Gates(torch.tensor(pi).logit(), torch.ones(2), "sigmoid", 1.0, 0.5, 1), torch.tensor(u)
    (first, second), (one, other) = (z.int().tolist() for z in (units.antithetic(drawn), units.draw(drawn)))
    return ((losses[first][second] - losses[one][other]) * (drawn - 0.5)).tolist()


def _may_wake(awake: list[bool], open_now: list[bool]) -> bool:
    phi = torch.where(torch.tensor(open_now), 1.0, -1.0)
    units = gates.Gates(phi, torch.tensor(awake), "sigmoid", 1.0, 0.5, 1)
    return bool(units.dormant().any()) and not bool(units.redundant().any())


def _saved(widths: list[int], layer: int) -> int:
    left = [width - (number == layer) for number, width in enumerate(widths)]
    before, after = (measures.weights("alexnet", "-".join(map(str, one))) for one in (widths, left))
    return before - after


EXERCISES: dict[str, Checker] = {
    "40.1": number(
        _gate_slope(7.0, 0.8) * (1 - 3),
        "The loss of open minus closed, times the slope of the sigmoid; the slope by phi has the factor k.",
    ),
    "40.2": function(
        _arm,
        [
            ([[3.0, 1.0], [2.0, 5.0]], [0.75, 0.25], [0.5, 0.125]),
            ([[3.0, 1.0], [2.0, 5.0]], [0.75, 0.25], [0.875, 0.5]),
            ([[0.0, 1.0], [4.0, 2.0]], [0.5, 0.5], [0.25, 0.75]),
        ],
        "First loss: gates open where u > 1 - pi; second: where u < pi; their difference times u - 1/2, gate by gate.",
    ),
    "40.3": number(0.06 / 30, "Its price is 30 lambda; when is that more than what it gains?", tolerance=1e-5),
    "41.1": number(measures.weights("moons_mlp", "64-50"), "The equation at the top: l1 (l0 + 2)."),
    "41.2": number(
        (50 - 3) * next(n for n in range(1, 99) if gates.plateaus([1.0] * n, 5, 0.0)),
        "How many neurons have to be woken, and how many epochs does each cost when nothing improves?",
    ),
    "41.3": function(
        _may_wake,
        [
            ([True, True, False], [True, True, False]),
            ([True, True, False], [True, False, False]),
            ([True, True], [True, True]),
            ([False, False, True], [True, False, True]),
        ],
        "It needs one that sleeps (never open, closed now), and none to spare (once open, closed now).",
    ),
    "42.1": function(
        lambda a, b, c, d: measures.weights("lenet5", f"{a}-{b}-{c}-{d}") + 90 * d,
        [(20, 50, 800, 500), (7, 9, 109, 30), (1, 1, 1, 1)],
        "Take the formula at the top and change what the last layer counts.",
    ),
    "42.2": number(0.5 * 20 * 5 * 5, "How many weights does the gate switch? Each costs the second lambda."),
    "42.3": number(
        53 * 8 / 50,
        "A position is live when its channel is open: which share of all positions belongs to open channels?",
        tolerance=0.05,
    ),
    "43.1": function(
        _saved,
        [([89, 161, 131, 91, 57, 92, 299, 3486], layer) for layer in range(8)],
        "A layer loses the unit's weights, and so does the layer that reads it, but where fc1 has gates of its own.",
    ),
    "43.2": number(
        0.02 * 4096 / (0.08 * 100),
        "A gate on the input of a fully connected layer pays lambda for each of its outgoing weights.",
        tolerance=0.01,
    ),
    "43.3": number(
        100 * math.sqrt(sum(p * (1 - p) for p in (0.8545, 0.8476)) / 10_000),
        "An accuracy p over n images has the variance p (1 - p) / n; variances of independent numbers add up.",
        tolerance=0.005,
    ),
}

check = checking(EXERCISES)
