"""Check exercises of paper 3: notebooks 30 to 33."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from lib.companion.exercises.checkers import Checker, checking, function, number
from lib.data.speech.filterbank import RATE, frames
from lib.kernels import storage
from lib.models.bifpn import Fusion
from lib.papers.skdfe import measures
from lib.papers.skdfe.experiments.distillation import embedding_mse, label_loss
from lib.papers.skdfe.experiments.scoring import det_curve, min_dcf


def _errors(scores: list[float], same: list[bool], threshold: float) -> tuple[float, float]:
    miss, false_alarm = det_curve(np.array(scores), np.array(same))
    at = int((np.unique(scores) < threshold).sum())
    return float(miss[at]), float(false_alarm[at])


def _importance(weights: list[float]) -> list[float]:
    fusion = Fusion(len(weights), 1, "paper")
    fusion.weights.data = torch.tensor(weights)
    return fusion.importance().tolist()


def _soft_cross_entropy(student: list[float], teacher: list[float]) -> float:
    logits, targets = (torch.tensor([shares], dtype=torch.float64).log() for shares in (student, teacher))
    return round(float(label_loss(logits, targets)), 4)


def _norm_over_mean(cosine: float, positions: int) -> float:
    squared = 2 - 2 * cosine
    return math.sqrt(squared) / (squared / positions)


def _cost_of_pattern(errors: Mapping[str, float]) -> float:
    return 100 * (errors["retrained"] / errors["dense_twice"] - 1)


EXERCISES: dict[str, Checker] = {
    "30.1": number(
        frames(2 * RATE),
        "The first window ends after 25 ms; how many more steps of 10 ms fit into the rest?",
    ),
    "30.2": function(
        _errors,
        [
            ([3.0, 1.0, 2.0, 0.0], [True, True, False, False], 1.0),
            ([3.0, 1.0, 2.0, 0.0], [True, True, False, False], 2.5),
            ([0.5, 0.5, 0.5, -1.0, 2.0, 4.0], [True, False, True, False, True, True], 0.5),
            ([1.0, 2.0], [False, True], 9.0),
        ],
        "Misses: of those of one speaker, how many are below? False alarms: of those of two, how many are not below?",
    ),
    "30.3": number(
        min_dcf(np.array([0.4]), np.array([0.002])),
        "0.01 times the misses plus 0.99 times the false alarms, divided by 0.01.",
        tolerance=1e-3,
    ),
    "31.1": number(
        _importance([0.0, 0.0, math.log(3)])[2],
        "Take e to the power of each weight, then its share of the sum.",
        tolerance=1e-3,
    ),
    "31.2": function(
        _soft_cross_entropy,
        [([0.75, 0.25], [0.5, 0.5]), ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]), ([0.1, 0.9], [0.9, 0.1])],
        "Minus the sum of the teacher's probabilities times the logarithms of the student's.",
    ),
    "31.3": number(
        _norm_over_mean(0.98, 5 * 38),
        "The squared length is 0.04. Its root is the norm; divided by the number of positions it is the mean.",
        tolerance=1.0,
    ),
    "32.1": number(
        measures.worst_percentage([(0.2453, 0.1873, 0.0)]),
        "What is gone, as a share of what there was before.",
        tolerance=0.06,
    ),
    "32.2": number(
        float(embedding_mse(torch.tensor([[4.0, 0.0]]), torch.tensor([[8.0, 0.0]]))),
        "The difference of the two is as long as what is missing; its length is squared.",
    ),
    "32.3": function(
        measures.all_training,
        [(10, 20, True), (10, 20, False), (7, 0, False), (1, 3, True)],
        "Three passes for each network that is trained, and one where it only teaches.",
    ),
    "33.1": number(
        100 * 3.45 / 5.98 * storage.bits("two_four", 1, 4, 2, 32) / storage.bits("dense", 1, 4, 4, 32),
        "Of four weights two are left, 32 bits each, with 2 bits of place for each; then times the share of weights.",
        tolerance=0.06,
    ),
    "33.2": function(
        _cost_of_pattern,
        [
            ({"dense": 8.0, "pruned": 20.0, "retrained": 6.0, "dense_twice": 4.0},),
            ({"dense": 4.0, "pruned": 9.0, "retrained": 3.0, "dense_twice": 4.0},),
        ],
        "The fair rival had as much training: divide by its errors and take 1 away.",
    ),
}

check = checking(EXERCISES)
