"""Check exercises of paper 2: notebooks 23 and 24."""

from __future__ import annotations

import math

import torch
from scipy import stats

from lib.companion.exercises.checkers import Checker, function, number
from lib.companion.statistics import interval, verdict
from lib.kernels import int8


def _judge(differences: list[float], margin: float) -> str:
    return verdict(interval(differences), {"at_least": -margin})


def _judge_by_the_mean(differences: list[float], margin: float) -> str:
    """Judges without an interval: a typical mistake."""
    return "reproduced" if sum(differences) / len(differences) >= -margin else "differs"


def _judge_by_normal(differences: list[float], margin: float) -> str:
    """Judges with the factor for many seeds: a typical mistake."""
    mean, spread = torch.tensor(differences).mean(), torch.tensor(differences).std()
    half = 1.96 * spread / math.sqrt(len(differences))
    return "reproduced" if mean - half >= -margin else "differs" if mean + half < -margin else "undecided"


def _masked_step(weights: list[float], gradients: list[float], mask: list[bool], rate: float) -> list[float]:
    return [(w - rate * g) * keep for w, g, keep in zip(weights, gradients, mask, strict=True)]


def _to_codes(values: list[float], amax: float) -> list[int]:
    return int8.quantise(
        torch.tensor(values, dtype=torch.float64), torch.tensor(amax / int8.LARGEST, dtype=torch.float64)
    ).tolist()


def _codes_without_clip(values: list[float], amax: float) -> list[int]:
    """Forgets the range: a typical mistake."""
    return [round(value / (amax / 127)) for value in values]


def _codes_of_255(values: list[float], amax: float) -> list[int]:
    """Takes 255 steps: a typical mistake."""
    return [max(-127, min(127, round(value / (amax / 255)))) for value in values]


def _codes_cut_off(values: list[float], amax: float) -> list[int]:
    """Cuts digits off instead of rounding: a typical mistake."""
    return [max(-127, min(127, int(value / (amax / 127)))) for value in values]


def _divergence_unscaled(p: list[float], q: list[float]) -> float:
    """Takes counts for shares: a typical mistake."""
    return round(sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a), 9)


def _divergence(p: list[float], q: list[float]) -> float:
    return _divergence_unscaled([a / sum(p) for a in p], [b / sum(q) for b in q])


def _divergence_in_bits(p: list[float], q: list[float]) -> float:
    """Takes the logarithm to base two: a typical mistake."""
    return round(_divergence(p, q) / math.log(2), 9)


EXERCISES: dict[str, Checker] = {
    "23.1": number(
        0.5 * math.sqrt(5) / float(stats.t.ppf(0.975, 4)),
        "Half the interval is t x sd / sqrt(5) with the t of four degrees of freedom; it has to fit into the margin.",
        tolerance=0.005,
        wrong={
            0.5: "that is the margin; the interval is wider than one standard deviation.",
            0.57: "1.96 is for many seeds; for five the factor is Student's, 2.78.",
            0.18: "divide by the root of five first: a mean varies less than a single difference.",
        },
        second="0.5 = 2.776 x sd / 2.236.",
        learned="Five seeds that scatter by half a point cannot even show that no more than half a point was lost.",
    ),
    "23.2": number(
        100 * math.sqrt(0.98 * 0.02 / 500),
        "Each image is right with probability p = 0.98; the share of right ones among n scatters by the binomial law.",
        tolerance=0.01,
        wrong={
            0.0063: "that is the share; a point is a percent.",
            0.2: "that is what one image is worth; how many of them does chance move?",
            14.0: "that is the standard deviation of a single image; the mean of 500 scatters less.",
            3.13: "that is how many images; how many points are they?",
        },
        second="100 x sqrt(p (1 - p) / n) with p = 0.98 and n = 500.",
        learned="An interval over seeds says nothing about which 500 images were drawn; this comes on top of it.",
    ),
    "23.3": function(
        _judge,
        [
            ([-0.2, 0.1, 0.0], 1.0),
            ([-3.0, -2.8, -3.2], 1.0),
            ([-2.0, 0.5, 0.1], 1.0),
            ([0.4, 0.6], 0.0),
            ([-0.5, -0.7, -0.6], 0.82),
            ([-0.5, -0.7, -0.6], 0.9),
            ([2.0, 2.2, 2.1], 0.5),
        ],
        "Take the 95 % interval of the mean by Student's t (n - 1 degrees of freedom); look at where -margin lies.",
        wrong=[
            (_judge_by_the_mean, "you judge the mean alone; how sure is it?"),
            (_judge_by_normal, "1.96 is the factor for many seeds; for few take Student's t."),
            (
                lambda differences, margin: "reproduced" if min(differences) >= -margin else "differs",
                "you judge the worst seed; the question is about the mean of all seeds there could be.",
            ),
        ],
        second="half = stats.t.ppf(0.975, n - 1) * np.std(differences, ddof=1) / np.sqrt(n)",
        learned="This is how this book computes the verdict on a mean over seeds, however many there are.",
    ),
    "23.4": function(
        _masked_step,
        [
            ([1.0, -2.0, 0.5], [0.5, 1.0, -1.0], [True, False, True], 0.5),
            ([0.0, 3.0], [1.0, 1.0], [False, True], 1.0),
            ([2.0, 4.0], [8.0, 16.0], [True, True], 0.25),
        ],
        "Take the step for every weight, then put a zero where the mask is False.",
        wrong=[
            (
                lambda weights, gradients, mask, rate: [
                    w - rate * g if keep else w for w, g, keep in zip(weights, gradients, mask, strict=True)
                ],
                "you only mask the gradient; a removed weight stays what it was.",
            ),
            (
                lambda weights, gradients, mask, rate: [w - rate * g for w, g in zip(weights, gradients, strict=True)],
                "you do not use the mask; removed weights come back.",
            ),
            (
                lambda weights, gradients, mask, rate: _masked_step(weights, [-g for g in gradients], mask, rate),
                "you climb; descent subtracts the gradient.",
            ),
        ],
        second="[(w - rate * g) * keep for w, g, keep in zip(weights, gradients, mask)]",
        learned="`attach` applies the mask whenever the weight is read, so that momentum cannot bring it back either.",
    ),
    "23.5": number(
        1.6,
        "Train each start twice, with the masks and without; take the accuracy without them minus that with them.",
        tolerance=0.1,
        wrong={
            -1.6: "you have subtracted the other way round: how much lower does the mask let it end?",
            0.4: "that is the first start alone; the answer is the mean of three.",
            2.4: "that is against the network above, which had another start; each start is its own rival.",
            95.3: "that is the mean accuracy with the masks; the answer is how far it lies below that without.",
            0.016: "this is the share; the question is for points, that is percent.",
        },
        second="The three differences are between 0 and 3 points.",
        learned="A fair rival has the same start. The mask costs points here because it was chosen for other weights.",
    ),
    "24.1": number(
        6.35 / 127,
        "A step is amax / 127.",
        tolerance=1e-4,
        wrong={
            6.35 / 128: "the codes go from -127 to 127, so the largest magnitude is code 127.",
            6.35 / 255: "the sign is one of the eight bits: 127 steps lead from 0 to the largest magnitude.",
            6.35 / 256: "the sign is one of the eight bits: 127 steps lead from 0 to the largest magnitude.",
        },
        second="6.35 / 127.",
        learned="Leaving out -128 keeps the codes symmetric, so that zero is code 0 and minus is minus.",
    ),
    "24.2": number(
        len(set(_to_codes(torch.linspace(-0.02, 0.02, 10_001, dtype=torch.float64).tolist(), 2.0))),
        "The step is 2.0 / 127; how many steps is 0.02?",
        wrong={
            255: "that is with a scale of its own; here the other channel's weight sets the step.",
            1: "0.02 is more than one step; it rounds to a code other than 0.",
            2: "count 0 too, and both signs.",
        },
        second="0.02 / (2.0 / 127) = 1.27, which rounds to 1.",
        learned="That is why every output channel of a weight has a scale of its own.",
    ),
    "24.3": function(
        _to_codes,
        [([0.0, 0.05, -6.35, 7.0], 6.35), ([0.5, 1.5, -2.5], 127.0), ([1.0, -1.0], 0.5)],
        "Divide by amax / 127, round, and clip to -127 and 127.",
        wrong=[
            (_codes_without_clip, "a code beyond 127 does not fit into eight bits: clip."),
            (_codes_of_255, "255 steps do not fit: the codes go from -127 to 127, a step is amax / 127."),
            (_codes_cut_off, "you cut digits off; round to the nearest."),
        ],
        second="max(-127, min(127, round(value / (amax / 127))))",
        learned="Rounding loses at most half a step; clipping loses all that lies beyond amax.",
    ),
    "24.4": function(
        _divergence,
        [([1.0, 1.0], [1.0, 3.0]), ([2.0, 0.0, 6.0], [4.0, 2.0, 2.0]), ([5.0, 5.0], [1.0, 1.0])],
        "Scale both to a sum of 1; add up p ln(p / q) over the bins where p is not 0. Round to nine digits.",
        wrong=[
            (lambda p, q: _divergence(q, [x or 1e-300 for x in p]), "that is D(Q || P); the two are not the same."),
            (_divergence_unscaled, "scale both lists to a sum of 1 first."),
            (_divergence_in_bits, "in nats the logarithm is the natural one."),
        ],
        second="P = [x / sum(p) for x in p], Q likewise; sum(a * log(a / b) for a, b in zip(P, Q) if a).",
        learned="It is never negative, and zero only if both are the same.",
    ),
    "24.5": number(
        30,
        "Set x[:100] = 30.0, make the table again, and look for the smallest error.",
        wrong={
            5: "that is the best with one outlier; a hundred weigh more in a mean of squares.",
            4: "with a hundred outliers clipped at 4, their error alone is 0.26.",
            2: "a smaller amax clips the outliers even more.",
        },
        second="Clipping 100 of a million numbers by 26 gives a root mean square of 0.26; a coarse step gives 0.07.",
        learned="A mean of squares forgives no outlier. The divergence does; whether a network does must be measured.",
    ),
}
