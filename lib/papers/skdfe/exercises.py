"""Check exercises of paper 3: notebooks 30 to 33."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np
import torch
from scipy import stats

from lib.companion.exercises.checkers import Checker, function, number
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


def _errors_of_all(scores: list[float], same: list[bool], threshold: float) -> tuple[float, float]:
    """Divides by all trials instead of those of a kind: a typical mistake."""
    miss, false_alarm = _errors(scores, same, threshold)
    return miss * sum(same) / len(same), false_alarm * (len(same) - sum(same)) / len(same)


def _errors_above(scores: list[float], same: list[bool], threshold: float) -> tuple[float, float]:
    """Rejects a score equal to the threshold: a typical mistake."""
    return _errors(scores, same, math.nextafter(threshold, math.inf))


def _importance(weights: list[float]) -> list[float]:
    fusion = Fusion(len(weights), 1, "paper")
    fusion.weights.data = torch.tensor(weights)
    return fusion.importance().tolist()


def _soft_cross_entropy(student: list[float], teacher: list[float]) -> float:
    logits, targets = (torch.tensor([shares], dtype=torch.float64).log() for shares in (student, teacher))
    return round(float(label_loss(logits, targets)), 4)


def _entropy_left_out(student: list[float], teacher: list[float]) -> float:
    """Takes the divergence for the cross-entropy: a typical mistake."""
    return round(_soft_cross_entropy(student, teacher) - _soft_cross_entropy(teacher, teacher), 4)


def _norm_over_mean(cosine: float, positions: int) -> float:
    squared = 2 - 2 * cosine
    return math.sqrt(squared) / (squared / positions)


def _speaker(values: list[float], between: float, within: float) -> tuple[float, float]:
    """Mean and variance of what is known of a speaker's y, in one dimension."""
    variance = 1 / (1 / between + len(values) / within)
    return round(variance * sum(values) / within, 6), round(variance, 6)


def _saved(own: list[float], rival: list[float]) -> float:
    return round(float(np.mean(100 * (1 - np.array(own) / np.array(rival)))), 6)


def _bytes(
    layers: list[tuple[int, int]], metadata: int = 2, packed: Callable = lambda _, inner: inner % 16 == 0
) -> float:
    """Bytes of layers, (outputs, inner) each; one that `packed` takes keeps half, with bits of place for each."""
    bits = (out * inner * ((32 + metadata) / 2 if packed(out, inner) else 32) for out, inner in layers)
    return sum(bits) / 8


def _cost_of_pattern(errors: Mapping[str, float]) -> float:
    return 100 * (errors["retrained"] / errors["dense_twice"] - 1)


EXERCISES: dict[str, Checker] = {
    "30.1": number(
        frames(2 * RATE),
        "The first window ends after 25 ms; how many more steps of 10 ms fit into the rest?",
        wrong={
            200: "the last windows would reach beyond the end; only whole ones count.",
            197: "197 steps fit into the rest; the window before the first step is a frame, too.",
            80: "windows overlap: one starts every 10 ms, not every 25.",
        },
        second="1 + the whole part of (2000 - 25) / 10.",
        learned="A hundred frames a second, less two at the end; stage 1 keeps them, each later stage halves them.",
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
        wrong=[
            (_errors_above, "a score equal to the threshold is accepted."),
            (
                lambda scores, same, threshold: _errors(scores, same, threshold)[::-1],
                "the pair is (misses, false alarms), in this order.",
            ),
            (_errors_of_all, "each share is of the trials of its kind, not of all."),
        ],
        second="ones = the scores of one speaker; misses = sum(s < threshold for s in ones) / len(ones).",
        learned="Each share is of its own kind, so it does not matter how many trials of a kind there are.",
    ),
    "30.3": number(
        min_dcf(np.array([0.4]), np.array([0.002])),
        "0.01 times the misses plus 0.99 times the false alarms, divided by 0.01.",
        tolerance=1e-3,
        wrong={
            0.402: "the two errors are weighed: 0.01 and 0.99.",
            0.00598: "the cost is divided by that of the better blind decision, which is 0.01.",
            0.198: "that is the part of the false alarms; misses cost, too.",
        },
        second="(0.01 x 0.4 + 0.99 x 0.002) / 0.01.",
        learned="A fifth of a percent of false alarms costs half as much as 40 % of misses: minDCF is strict.",
    ),
    "30.4": function(
        _speaker,
        [([1.0, 3.0], 1.0, 4.0), ([2.0], 3.0, 1.0), ([0.5, -0.5, 1.5, 0.5], 2.0, 0.5), ([4.0, 4.0, 1.0], 1.0, 1.0)],
        "Precisions add up: 1/B of the speakers, and 1/W of each utterance.",
        wrong=[
            (
                lambda values, b, w: (round(sum(values) / len(values), 6), round(w / len(values), 6)),
                "that is the plain mean of the utterances; B says how far a speaker can be from zero at all.",
            ),
            (
                lambda values, b, w: _speaker([sum(values) / len(values)], b, w),
                "you count the utterances as one: each of them brings a precision of 1/W.",
            ),
            (
                lambda values, b, w: (_speaker(values, b, w)[0], round(1 / b + len(values) / w, 6)),
                "that is the precision; the variance is one over it.",
            ),
        ],
        second="variance = 1 / (1 / between + len(values) / within); mean = variance * sum(values) / within.",
        learned="Few utterances pull a speaker towards zero: EM trusts a mean the less the fewer numbers made it.",
    ),
    "30.5": number(
        1 / 3,
        "The mean of what is known of y is a share of the utterances' mean; which share, by exercise 30.4?",
        tolerance=0.02,
        wrong={
            1.0: "that is B itself, or the squares with the posterior variance added; leave it out.",
            3.0: "those are the squares of the plain means of two utterances, B + W/2; each has to be shrunk first.",
            0.667: "that is the posterior variance, which is what is missing.",
        },
        second="The posterior mean is a third of the utterances' mean, whose square is 3 on average: 3 / 9.",
        learned="Without the posterior variance EM would find a third of B here, and less at each further step.",
    ),
    "31.1": number(
        _importance([0.0, 0.0, math.log(3)])[2],
        "Take e to the power of each weight, then its share of the sum.",
        tolerance=1e-3,
        wrong={
            1 / 3: "that would be so if all three weights were equal.",
            1.0: "e to the power of 0 is 1, so the other two maps count as well.",
            3.0: "that is e to the power of the weight; divide by the sum of all three.",
        },
        second="3 / (1 + 1 + 3).",
        learned="The shares add up to one and none is ever zero, so no map can be lost for good.",
    ),
    "31.2": function(
        _soft_cross_entropy,
        [([0.75, 0.25], [0.5, 0.5]), ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]), ([0.1, 0.9], [0.9, 0.1])],
        "Minus the sum of the teacher's probabilities times the logarithms of the student's.",
        wrong=[
            (
                lambda student, teacher: _soft_cross_entropy(teacher, student),
                "the two have changed places: the logarithm is of the student's probabilities.",
            ),
            (lambda student, teacher: -_soft_cross_entropy(student, teacher), "the sign: a loss is not negative."),
            (_entropy_left_out, "that is the divergence; the cross-entropy has the teacher's entropy on top."),
        ],
        second="round(-sum(q * math.log(p) for p, q in zip(student, teacher)), 4).",
        learned="It is smallest where both agree, and even there not zero: a teacher in doubt leaves its entropy.",
    ),
    "31.3": number(
        _norm_over_mean(0.98, 5 * 38),
        "The squared length is 0.04. Its root is the norm; divided by the number of positions it is the mean.",
        tolerance=1.0,
        wrong={
            190: "that is the squared norm over the mean; the printed norm is its root.",
            5: "the mean divides the squared length by the number of positions, 5 x 38.",
            38: "0.2 x 190 is only the numerator; the squared length 0.04 divides it.",
        },
        second="0.2 / (0.04 / 190).",
        learned="A factor of nearly a thousand hides in one pair of bars: a weight of 100 fits only one reading.",
    ),
    "31.4": number(
        3.0,
        "Attention is of squares, and only proportions count: 1 : s^2 : 4 for the student, 4 : 36 : 16.",
        wrong={
            9: "the attention has the square of the channel: take the root.",
            6: "both are scaled to length 1: only proportions count, and the student's first channel is half as large.",
            36: "that is the self-teacher's energy there; compare proportions, and take the root.",
        },
        second="s^2 / 1 = 36 / 4.",
        learned="Signs, a common factor and the number of channels leave an attention as it is: it says only where.",
    ),
    "31.5": number(
        -sum(share * math.log(share) for share in (0.5, 0.3, 0.2)),
        "At the end the student says what the self-teacher says. What is the cross-entropy of shares with themselves?",
        tolerance=2e-3,
        wrong={
            0.0: "that would be the divergence; the loss keeps the self-teacher's own entropy.",
            math.log(3): "that is where it starts: three equal shares.",
            math.log(2): "that would be the loss for a hard label on the first speaker at these shares.",
        },
        second="-(0.5 ln 0.5 + 0.3 ln 0.3 + 0.2 ln 0.2).",
        learned="A label loss that stops far above zero has not failed: it stops at the teacher's own doubt.",
    ),
    "32.1": number(
        measures.worst_percentage([(0.2453, 0.1873, 0.0)]),
        "What is gone, as a share of what there was before.",
        tolerance=0.06,
        wrong={
            20.4: "that is what the text prints; compute it from the two numbers of the table.",
            5.8: "that is the difference in hundredths; the question is for a share of what was before.",
            31.0: "that is relative to the value after; an improvement is of what was before.",
        },
        second="100 x (0.2453 - 0.1873) / 0.2453.",
        learned="Two numbers of the same paper differ by three points: recompute what a text says of its table.",
    ),
    "32.2": number(
        float(embedding_mse(torch.tensor([[4.0, 0.0]]), torch.tensor([[8.0, 0.0]]))),
        "The difference of the two is as long as what is missing; its length is squared.",
        wrong={
            4: "that is the length of the difference; the term is its square.",
            0.0625: "squares are added up over the 256 numbers, not averaged.",
            8: "that is the teacher's length; the term is the squared length of the difference.",
            48: "that is the difference of the squares; the term is the square of the difference.",
        },
        second="(8 - 4)^2.",
        learned="The cosine does not see length at all, so the two terms teach different things.",
    ),
    "32.3": function(
        measures.all_training,
        [(10, 20, True), (10, 20, False), (7, 0, False), (1, 3, True)],
        "Three passes for each network that is trained, and one where it only teaches.",
        wrong=[
            (
                lambda student, teacher, pretrained: 3 * student + (teacher if pretrained else 3 * teacher),
                "a pretrained teacher was trained before, and that counts, too.",
            ),
            (
                lambda student, teacher, pretrained: 3 * (student + teacher),
                "a pretrained teacher is run once more for every crop that the student learns from.",
            ),
            (
                lambda student, teacher, pretrained: student + teacher + (teacher if pretrained else 0),
                "training costs three passes: one forward and about two backward.",
            ),
        ],
        second="3 * (student + teacher), and teacher once more if it is pretrained.",
        learned="Three quarters of what a teacher costs is its own training, one quarter its teaching.",
    ),
    "32.4": function(
        _saved,
        [([4.0, 6.0], [5.0, 8.0]), ([10.0], [5.0]), ([3.0, 2.0, 9.0], [3.0, 4.0, 6.0])],
        "For each draw take 100 (1 - own / rival); the answer is their mean.",
        wrong=[
            (
                lambda own, rival: round(100 * (1 - sum(own) / sum(rival)), 6),
                "you compare the means of all draws; pairs belong together, so each draw is compared by itself.",
            ),
            (lambda own, rival: -_saved(rival, own), "percent are of the rival's errors, not of one's own."),
            (lambda own, rival: -_saved(own, rival), "fewer errors count as positive."),
        ],
        second="sum(100 * (1 - a / b) for a, b in zip(own, rival)) / len(own), rounded.",
        learned="Draw by draw a difficult list of speakers is difficult for both, and drops out of the comparison.",
    ),
    "32.5": number(
        100 / math.sqrt(2),
        "Both draws are the same seed in half of the cases, and then their mean does not vary at all.",
        tolerance=2.0,
        wrong={
            100: "that would be an honest bootstrap; with two seeds half of the draws take one of them twice.",
            50: "that is the root of the mean variance against the spread of one seed; the true value is 1/sqrt(2).",
            81.6: "you divide by 3; the four draws are all there are, so divide by 4.",
            141: "turn the quotient round: what the bootstrap gives, in percent of the truth.",
        },
        second="The drawn mean has variance (a - b)^2 / 8, 1/4 on average; the truth is 1/2.",
        learned="Two seeds drawn again promise too much, by a factor of root two; hence the pooled spread.",
    ),
    "33.1": number(
        100 * 3.45 / 5.98 * storage.bits("two_four", 1, 4, 2, 32) / storage.bits("dense", 1, 4, 4, 32),
        "Of four weights two are left, 32 bits each, with 2 bits of place for each; then times the share of weights.",
        tolerance=0.06,
        wrong={
            28.8: "each kept weight has two bits for its place.",
            57.7: "that is the smaller network without the pattern.",
            53.1: "that is the pattern alone; the network has fewer weights as well.",
        },
        second="3.45 / 5.98 x (2 x 32 + 2 x 2) / (4 x 32).",
        learned="A smaller network and a pattern multiply: together they leave less than a third.",
    ),
    "33.2": function(
        _cost_of_pattern,
        [
            ({"dense": 8.0, "pruned": 20.0, "retrained": 6.0, "dense_twice": 4.0},),
            ({"dense": 4.0, "pruned": 9.0, "retrained": 3.0, "dense_twice": 4.0},),
        ],
        "The fair rival had as much training: divide by its errors and take 1 away.",
        wrong=[
            (
                lambda errors: 100 * (errors["retrained"] / errors["dense"] - 1),
                "the retrained network had two trainings; its rival has to have had two as well.",
            ),
            (
                lambda errors: 100 * (errors["pruned"] / errors["dense_twice"] - 1),
                "that is the network before it was trained again.",
            ),
            (
                lambda errors: errors["retrained"] - errors["dense_twice"],
                "that is in points; the question is for percent of the rival's errors.",
            ),
        ],
        second='100 * (errors["retrained"] / errors["dense_twice"] - 1).',
        learned="Against one training of the dense network the pattern would be praised for the second training.",
    ),
    "33.3": function(
        _bytes,
        [([(4, 9), (8, 16)],), ([(64, 288), (10, 64)],), ([(16, 24)],), ([(9, 32), (32, 9)],)],
        "A layer whose inner dimension is a multiple of 16 keeps half of its values, each with two bits of place.",
        wrong=[
            (lambda layers: _bytes(layers, packed=lambda *_: True), "a layer that does not fit stays dense."),
            (lambda layers: _bytes(layers, metadata=0), "each kept value has two bits of place."),
            (
                lambda layers: _bytes(layers, packed=lambda out, _: out % 16 == 0),
                "it is the inner dimension that has to fit, the length of the sums, not the number of outputs.",
            ),
        ],
        second="out * inner * (17 if inner % 16 == 0 else 32) bits each; divide by 8.",
        learned="The small layers that do not fit hold so little that the whole stays within two points of 17/32.",
    ),
    "33.4": number(
        float(5 * stats.t.ppf(0.975, 1)),
        "The standard deviation of two numbers is their distance over root two; the mean's error is half the distance.",
        tolerance=0.6,
        wrong={
            9.8: "1.96 is for many seeds; for two the factor is 12.7.",
            89.8: "that is for a single seed; the mean of two has a smaller error, by root two.",
            5.0: "that is the standard error of the mean; Student's t multiplies it.",
        },
        second="12.706 x 5.",
        learned="Two seeds by themselves say hardly anything, so notebook 32 pools the spread of all systems.",
    ),
    "33.5": number(
        53.83,
        "Take the loop that made the table of fits, with width 8 and values of 32 bits.",
        tolerance=0.02,
        wrong={
            54.9: "that is the width of 4.",
            54: "near, but it can be had exactly: two decimals.",
            53.125: "that would be so if every layer fitted; some do not.",
            56.9: "that is with values of 16 bits.",
        },
        second='stored = left_by_pattern(8)[2][0], then 100 * stored["bytes_two_four"] / stored["bytes_dense"].',
        learned="Width is what decides whether a layer fits, and only the narrowest networks feel it.",
    ),
}
