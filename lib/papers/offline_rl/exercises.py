"""Check exercises of paper 1: notebooks 10 to 13. Further ones of 11 and 12 are in `sweep_exercises`."""

from __future__ import annotations

import math
import statistics

import numpy as np
import torch
from torch import nn

from lib import pruners
from lib.companion.exercises.checkers import Checker, function, number
from lib.data.offline_rl import normalised
from lib.kernels.packed import floor_bits
from lib.papers.offline_rl import sweep_exercises
from lib.papers.offline_rl.measures import interquartile_mean
from lib.training.bcq import BCQSettings


def _snip(weight: float, gradient: float) -> float:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return float(pruners.snip(model, lambda found: gradient * found.weight.sum())["weight"])


def _grasp_of_a_bowl(theta: list[float], h: list[float]) -> list[float]:
    return [-t * curvature**2 * t for t, curvature in zip(theta, h, strict=True)]


def _minus_theta_times_g(theta: list[float], h: list[float]) -> list[float]:
    """Leaves out the Hessian: a typical mistake."""
    return [-t * curvature * t for t, curvature in zip(theta, h, strict=True)]


def _kept(scores: list[float], sparsity: float) -> list[bool]:
    """Which weights stay when these are their scores."""
    return pruners.unstructured({"w": torch.tensor([scores], dtype=torch.float64)}, sparsity)["w"][0].tolist()


def _kept_by_snip(weights: list[float], gradients: list[float], sparsity: float) -> list[bool]:
    return _kept([abs(w * g) for w, g in zip(weights, gradients, strict=True)], sparsity)


def _growth_of_grasp(times: float) -> float:
    """By what factor GraSP's scores grow when the loss is multiplied, on a bowl of two curvatures."""
    torch.manual_seed(0)
    model, bend = nn.Linear(2, 1, bias=False), torch.tensor([1.0, 3.0])
    whole, grown = (
        pruners.grasp(model, lambda found, by=by: by * (bend * found.weight.square()).sum())["weight"]
        for by in (1, times)
    )
    return float(grown.sum() / whole.sum())


def _interquartile_mean(scores: list[float]) -> float:
    return interquartile_mean({"all": scores}).value


def _middle_of_unsorted(scores: list[float]) -> float:
    """Cuts both ends off without sorting: a typical mistake."""
    cut = len(scores) // 4
    return statistics.fmean(scores[cut : len(scores) - cut])


def _coo_bytes(weights: int, sparsity: float) -> int:
    return round((1 - sparsity) * weights) * (4 + 8 + 8)


def _bytes_each(weights: int, sparsity: float, each: int) -> int:
    return _coo_bytes(weights, sparsity) // 20 * each


def _entropy(share: float) -> float:
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)


def _saved_by_unevenness(places: int, *kept: float) -> float:
    """By how many percent fewer bits say which weights of equal layers are kept, if the layers differ so."""
    uneven = sum(floor_bits(places, round(share * places)) for share in kept)
    even = len(kept) * floor_bits(places, round(sum(kept) / len(kept) * places))
    return 100 * (1 - uneven / even)


EXERCISES: dict[str, Checker] = {
    "10.1": number(
        _snip(0.5, -0.2),
        "The magnitude of weight times gradient.",
        wrong={
            -0.1: "the score is a magnitude: a weight matters whether the loss would rise or fall without it.",
            0.2: "that is the gradient alone; a weight near zero changes little, however steep the loss is.",
            0.4: "that is a quotient; the score is the product of the two.",
        },
        second="|0.5 x -0.2|.",
        learned="It is, to first order, by how much the loss changes when the weight is set to zero.",
    ),
    "10.2": function(
        _grasp_of_a_bowl,
        [([1.0, 2.0, 0.5], [1.0, 0.5, 3.0]), ([-2.0], [2.0]), ([0.0, 1.0], [4.0, -1.0])],
        "H is diagonal, so (Hg)_q = h_q g_q; then multiply by -theta_q.",
        wrong=[
            (_minus_theta_times_g, "that is -theta times g; g has to be multiplied by H once more."),
            (
                lambda theta, h: [-score for score in _grasp_of_a_bowl(theta, h)],
                "the sign: GraSP's score begins with a minus.",
            ),
            (
                lambda theta, h: [curvature**2 * t for t, curvature in zip(theta, h, strict=True)],
                "that is Hg; it still has to be multiplied by -theta, weight by weight.",
            ),
        ],
        second="g = h * theta, Hg = h * g, the score is -theta * Hg: theta enters twice, and so does h.",
        learned="Curvature counts squared, so GraSP and SNIP part where directions differ in curvature.",
    ),
    "10.3": number(
        1 + int(np.argmax(_grasp_of_a_bowl([1.0, 2.0, 0.5], [1.0, 0.4, 3.0]))),
        "Compute the three scores; the largest goes first, which of negative numbers is the one nearest to zero.",
        wrong={
            3: "its score, -2.25, is the smallest of the three; the largest goes first.",
            1: "its score is -1; another is nearer to zero. (Weights are counted from 1.)",
            -0.64: "that is the largest score; which weight has it?",
        },
        second="The scores are -theta^2 h^2: -1, -0.64 and -2.25.",
        learned="The largest weight goes first here, because the bowl is flattest in its direction.",
    ),
    "10.4": function(
        _kept_by_snip,
        [
            ([2.0, -1.0, 0.5, -4.0], [0.1, -3.0, 4.0, 0.25], 0.5),
            ([1.0, 2.0, 3.0], [1.0, 0.0, 1.0], 0.33),
            ([-1.0, 3.0], [-2.0, -1.0], 0.5),
            ([1.0, -2.0, 3.0, 4.0, 5.0], [1.0, 1.0, -1.0, -2.0, 0.5], 0.8),
            ([1.0, 2.0, -1.0, 1.0], [1.0, 1.0, 1.0, -1.0], 0.5),
            ([1.0, 2.0, 3.0], [1.0, 1.0, 1.0], 0.4),
        ],
        "Rank |weight x gradient|; round(sparsity x number of weights) with the lowest scores go.",
        wrong=[
            (
                lambda weights, gradients, sparsity: _kept([abs(w) for w in weights], sparsity),
                "that is magnitude: a large weight goes, too, when the loss does not feel it.",
            ),
            (
                lambda weights, gradients, sparsity: _kept([abs(g) for g in gradients], sparsity),
                "that ranks gradients alone; a weight near zero has little to lose, however steep the loss is.",
            ),
            (
                lambda weights, gradients, sparsity: _kept(
                    [w * g for w, g in zip(weights, gradients, strict=True)], sparsity
                ),
                "the product's sign says whether the loss would rise or fall; SNIP asks how much it would move.",
            ),
            (
                lambda weights, gradients, sparsity: [not one for one in _kept_by_snip(weights, gradients, sparsity)],
                "True means kept; yours is True where a weight is removed.",
            ),
        ],
        second="Sort the places by abs(w * g); the first round(sparsity * len(weights)) of them become False.",
        learned="This is the whole method of paper 1's title: one batch, one backward pass, one ranking.",
    ),
    "10.5": number(
        _growth_of_grasp(10),
        "Take pruners.grasp(policy, lambda m: 10 * loss(m)) and divide the sum of its scores by that of the old ones.",
        tolerance=0.5,
        wrong={
            10: "that is SNIP's factor: it has one gradient in it. What has GraSP besides?",
            1: "that is true of the masks; the scores themselves grow.",
            20: "the factors of H and g do not add up.",
            1000: "H and g are two factors of ten, theta is none.",
        },
        second="Both the Hessian and the gradient of 10 L are ten times as large, and the score is -theta x Hg.",
        learned="No ranking changes, so no mask depends on the unit in which a loss is measured.",
    ),
    "11.1": number(
        float(normalised("hopper", 1607)),
        "100 x (return - random) / (expert - random).",
        tolerance=0.06,
        wrong={
            49.7: "you divide by the expert's return; the scale begins at the random agent's, not at 0.",
            49.4: "the random return is negative, so taking it away makes both differences larger.",
            0.5: "that is the share; scores are in percent of the way from random to expert.",
        },
        second="100 x (1607 + 20.3) / (3234.3 + 20.3).",
        learned="The scale has no end: an agent that beats the expert has more than 100.",
    ),
    "11.2": number(
        BCQSettings().minimum_weight * 4 + (1 - BCQSettings().minimum_weight) * 12,
        "Three quarters of the lower, one quarter of the higher.",
        wrong={
            10.0: "lambda weighs the lower value, 1 - lambda the higher.",
            8.0: "that is their mean; lambda is not one half.",
            4.0: "that is the lower value alone, as with lambda = 1.",
        },
        second="0.75 x 4 + 0.25 x 12.",
        learned="Two critics rarely err upwards together, so leaning towards the lower one keeps hopes down.",
    ),
    "12.1": function(
        _interquartile_mean,
        [([0.0, 1.0, 2.0, 100.0],), ([6.0, -3.0, 0.0],), ([7.0],), ([3.0, 9.0, 1.0, 2.0, 8.0, 4.0, 1.0, 50.0, 8.0],)],
        "Sort; drop len // 4 from the start and as many from the end; average the rest.",
        wrong=[
            (statistics.fmean, "that is the mean of all; one lucky or failed run moves it."),
            (statistics.median, "that is the median; average the whole middle half."),
            (_middle_of_unsorted, "sort first: which run came first does not matter."),
        ],
        second="cut = len(scores) // 4; average sorted(scores)[cut : len(scores) - cut].",
        learned="It forgives a failed run as the median does, and uses the middle half of them, not one or two.",
    ),
    "12.2": number(
        _snip(0.1, 10 * 0.3) / _snip(1.0, 0.3),
        "The gradient is proportional to what enters the weight. What becomes of weight times gradient?",
        wrong={
            10: "the gradient grows ten times, but the weight has become ten times smaller.",
            0.1: "the weight has become ten times smaller, but its gradient ten times larger.",
            100: "only the gradient grows; the weight shrinks.",
        },
        second="(theta / 10) x (10 g).",
        learned="SNIP does not see units that the weights know of; drawn before they see the data, they know of none.",
    ),
    "13.1": number(
        100 * (1 - 2 / (2 + 2 + 2)),
        "A kept weight costs its value and two indices, a dense one its value alone: when are both files equal?",
        tolerance=0.05,
        wrong={
            33.3: "that is the share that is kept; how much is removed?",
            50.0: "a place has two numbers, its row and its column.",
            80.0: "so it is where row and column have twice the bits of the value; here they have as many.",
            88.9: "that is with 64-bit numbers for row and column; here they have 16.",
        },
        second="6 (1 - s) = 2.",
        learned="Row and column cost twice the value here, in the lesson four times: only that ratio counts.",
    ),
    "13.2": function(
        _coo_bytes,
        [(100, 0.95), (1000, 0.0), (7, 0.6), (562_500, 0.99)],
        "How many are kept? Each has 4 bytes of value and twice 8 bytes of index.",
        wrong=[
            (
                lambda weights, sparsity: _bytes_each(weights, sparsity, 12),
                "that is one index for each weight, as in CSR; COO writes row and column.",
            ),
            (
                lambda weights, sparsity: _bytes_each(weights, sparsity, 4),
                "these are the values alone; where each one stood is stored, too.",
            ),
            (
                lambda weights, sparsity: 20 * (weights - round((1 - sparsity) * weights)),
                "you count the removed weights; those that are kept are stored.",
            ),
        ],
        second="20 * round((1 - sparsity) * weights).",
        learned="Four fifths of such a file say where the weights are, one fifth what they are.",
    ),
    "13.3": number(
        32 / (0.01 * 32 + _entropy(0.01)),
        "Bits a weight: 32 for each kept one, plus H(0.99) for saying which; compare with 32.",
        tolerance=0.06,
        wrong={
            100: "that forgets that somebody has to say which weights are kept.",
            32 / _entropy(0.01): "that counts the places alone; each kept weight has 32 bits of value, too.",
            32 / (0.32 + math.log(2) * _entropy(0.01)): "bits need the logarithm to base two.",
        },
        second="32 / (0.32 + 0.081).",
        learned="Even at best a fifth of the file says which weights are left.",
    ),
    "13.4": number(
        100 * (1 - (1 - 0.5) / 2.1),
        "With half of the weights it takes 2.1; with which share of them would it take 1?",
        tolerance=0.06,
        wrong={
            23.8: "that is the share that is kept; how much is removed?",
            52.4: "half of the weights take 2.1, not all of them.",
            88.1: "2.1 is what half of the weights take; you have halved it twice.",
        },
        second="0.5 / 2.1 = 0.238 of the weights may be kept.",
        learned="By proportion three quarters have to go; measured it is more, as a product has a fixed cost.",
    ),
    "13.5": number(
        _saved_by_unevenness(100_000, 0.09, 0.01),
        "Add up floor_bits of 9,000 and of 1,000 kept weights, and compare with twice that of 5,000.",
        tolerance=0.1,
        wrong={
            -_saved_by_unevenness(100_000, 0.09, 0.01): "the sign: uneven layers need fewer bits, so some are saved.",
            0.0: "as many weights are kept, but in fewer ways: a layer that is nearly empty leaves little to say.",
            100 - _saved_by_unevenness(100_000, 0.09, 0.01): "that is what is still needed; how much is saved?",
        },
        second="1 - (floor_bits(100_000, 9_000) + floor_bits(100_000, 1_000)) / (2 * floor_bits(100_000, 5_000)).",
        learned="The entropy is concave: scores that thin layers unevenly make smaller files at the same sparsity.",
    ),
}
EXERCISES |= sweep_exercises.EXERCISES
