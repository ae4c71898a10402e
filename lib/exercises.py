"""Exercises of the notebooks. `check("20.1", answer)` says right, or wrong with a hint; never the solution.

The right answer is computed here by the library, so it cannot go stale; worked solutions live in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from types import EllipsisType

import numpy as np
import torch
from scipy import stats
from torch import nn

from lib import pruners
from lib.data.offline_rl import normalised
from lib.errors import BadInput
from lib.evaluation import architectures, gates
from lib.evaluation.compression import ratio
from lib.evaluation.returns import interquartile_mean
from lib.evaluation.statistics import interval, verdict
from lib.kernels import int8, products, storage
from lib.kernels.block_circulant import circulant, expand
from lib.pruners import permutation, plasticity
from lib.training.bcq import BCQSettings

Checker = Callable[[object], str | None]  # the hint, or None when the answer is right


def check(exercise: str, answer: object) -> None:
    """Say whether an answer is right. An answer of ... (three dots) has not been given yet."""
    if exercise not in EXERCISES:
        raise BadInput(f"no exercise {exercise!r}; there are: {', '.join(EXERCISES)}")
    if isinstance(answer, EllipsisType):
        print(f"Exercise {exercise}: not answered yet.")
        return
    try:
        hint = EXERCISES[exercise](answer)
    except Exception as error:  # a student's function may fail in any way; that is an answer too
        hint = f"your answer failed with {type(error).__name__}: {error}"
    print(f"Exercise {exercise}: right." if hint is None else f"Exercise {exercise}: not yet. Hint: {hint}")


def number(right: float, hint: str, tolerance: float = 1e-6) -> Checker:
    """An answer that is a number, right within an absolute tolerance."""

    def checker(answer: object) -> str | None:
        close = math.isclose(float(answer), right, rel_tol=0, abs_tol=tolerance)
        return None if close else hint

    return checker


def function(right: Callable, cases: list[tuple], hint: str) -> Checker:
    """An answer that is a function: it must agree with the library on every case."""

    def checker(answer: object) -> str | None:
        if not callable(answer):
            return "the answer is a function; give its name, without calling it"
        for case in cases:
            expected, found = right(*case), answer(*case)
            if not np.array_equal(np.asarray(found), np.asarray(expected)):
                return f"{hint} It differs on the input {', '.join(map(str, case))}."
        return None

    return checker


def _snip(weight: float, gradient: float) -> float:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, weight)
    return float(pruners.snip(model, lambda found: gradient * found.weight.sum())["weight"])


def _grasp_of_a_bowl(theta: list[float], h: list[float]) -> list[float]:
    return [-t * curvature**2 * t for t, curvature in zip(theta, h, strict=True)]


def _interquartile_mean(scores: list[float]) -> float:
    return interquartile_mean({"all": scores}).value


def _coo_bytes(weights: int, sparsity: float) -> int:
    return round((1 - sparsity) * weights) * (4 + 8 + 8)


def _entropy(share: float) -> float:
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)


def _kept(weights: list[float], sparsity: float) -> list[bool]:
    return pruners.unstructured({"w": torch.tensor([weights]).abs()}, sparsity)["w"][0].tolist()


def _one_of_two(row: list[float]) -> list[bool]:
    return pruners.n_of_m({"w": torch.tensor([row]).abs()}, 1, 2)["w"][0].tolist()


def _judge(differences: list[float], margin: float) -> str:
    return verdict(interval(differences), {"at_least": -margin})


def _saved(value_bits: int) -> float:
    dense = storage.bits("dense", 1, 4, 2, value_bits)
    return 100 * (1 - storage.bits("two_four", 1, 4, 2, value_bits) / dense)


def _padded(size: int, multiple: int) -> int:
    return products.padded(torch.zeros(size, 1), multiple, 1).shape[0]


def _memory_limit() -> float:
    """By the roofline of notebook 21, for one example: everything that is moved, dense over 2:4, at 16 bit."""
    side = 4096
    weight = storage.bits("dense", side, side, side**2, 16), storage.bits("two_four", side, side, side**2 // 2, 16)
    return (weight[0] + 2 * side * 16) / (weight[1] + 2 * side * 16)


def _to_codes(values: list[float], amax: float) -> list[int]:
    return int8.quantise(
        torch.tensor(values, dtype=torch.float64), torch.tensor(amax / int8.LARGEST, dtype=torch.float64)
    ).tolist()


def _gate_slope(k: float, pi: float) -> float:
    return gates.slope("sigmoid", k, math.log(pi / (1 - pi)) / k)


def _arm(losses: list[list[float]], pi: list[float], u: list[float]) -> list[float]:
    units, drawn = plasticity.Gates(torch.tensor(pi).logit(), torch.ones(2), "sigmoid", 1.0, 0.5, 1), torch.tensor(u)
    (first, second), (one, other) = (z.int().tolist() for z in (units.antithetic(drawn), units.draw(drawn)))
    return ((losses[first][second] - losses[one][other]) * (drawn - 0.5)).tolist()


def _may_wake(awake: list[bool], open_now: list[bool]) -> bool:
    phi = torch.where(torch.tensor(open_now), 1.0, -1.0)
    units = plasticity.Gates(phi, torch.tensor(awake), "sigmoid", 1.0, 0.5, 1)
    return bool(units.dormant().any()) and not bool(units.redundant().any())


def _magnitude_kept(rows: list[list[float]]) -> float:
    return permutation.kept(torch.tensor(rows))


def _circulant_block(c: list[float]) -> list[list[float]]:
    return expand(torch.tensor([[c]]), circulant(len(c)), (len(c), len(c))).tolist()


def _sparsities(rewards: list[float]) -> list[int]:
    schedule = pruners.RewardAware(increase=0.05, every=1)
    return [round(100 * schedule.target(chance, reward)) for chance, reward in enumerate(rewards, start=1)]


def _steady_sparsity() -> float:
    return 100 * sum(min(step // 10_000 * 0.01, 0.95) for step in range(1_000_000)) / 1_000_000


def _average_ratio(sparsities: list[float], block: int, shift: float) -> float:
    blocks = [block if sparsity < shift else 1 for sparsity in sparsities]
    return sum(ratio(s, b, bitmap="none") for s, b in zip(sparsities, blocks, strict=True)) / len(sparsities)


EXERCISES: dict[str, Checker] = {
    "00.1": function(
        _kept,
        [([0.3, -2.0, 0.1, 1.0], 0.5), ([4.0, 3.0, -2.0, -1.0, 0.5], 0.55), ([1.0, -5.0], 0.0), ([2.0, -2.0], 0.5)],
        "Remove round(sparsity x number of weights) of them, those nearest to zero; of equal ones the first.",
    ),
    "00.2": number(
        pruners.Gradual(final=0.8, every=100, times=4).target(200),
        "Two of four prunings are done, so (1 - t/(n D)) is one half; cube it and put it into the equation.",
    ),
    "10.1": number(_snip(0.5, -0.2), "The magnitude of weight times gradient."),
    "10.2": function(
        _grasp_of_a_bowl,
        [([1.0, 2.0, 0.5], [1.0, 0.5, 3.0]), ([-2.0], [2.0]), ([0.0, 1.0], [4.0, -1.0])],
        "H is diagonal, so (Hg)_q = h_q g_q; then multiply by -theta_q.",
    ),
    "10.3": number(
        1 + int(np.argmax(_grasp_of_a_bowl([1.0, 2.0, 0.5], [1.0, 0.4, 3.0]))),
        "Compute the three scores; the largest goes first, which of negative numbers is the one nearest to zero.",
    ),
    "11.1": number(
        float(normalised("hopper", 1607)),
        "100 x (return - random) / (expert - random).",
        tolerance=0.06,
    ),
    "11.2": function(
        _interquartile_mean,
        [([0.0, 1.0, 2.0, 100.0],), ([5.0, -3.0, 1.0],), ([7.0],), ([3.0, 9.0, 1.0, 2.0, 8.0, 4.0, 1.0, 50.0, 6.0],)],
        "Sort; drop len // 4 from the start and as many from the end; average the rest.",
    ),
    "11.3": number(
        BCQSettings().minimum_weight * 6 + (1 - BCQSettings().minimum_weight) * 10,
        "Three quarters of the lower, one quarter of the higher.",
    ),
    "12.1": number(
        100 * (1 - 2 / (2 + 4 + 4)),
        "A kept weight costs its value and two indices, a dense one its value alone: when are both files equal?",
        tolerance=0.05,
    ),
    "12.2": function(
        _coo_bytes,
        [(100, 0.95), (1000, 0.0), (7, 0.5), (562_500, 0.99)],
        "How many are kept? Each has 4 bytes of value and twice 8 bytes of index.",
    ),
    "12.3": number(
        32 / (0.01 * 32 + _entropy(0.01)),
        "Bits a weight: 32 for each kept one, plus H(0.99) for saying which; compare with 32.",
        tolerance=0.06,
    ),
    "20.1": number(
        _saved(32),
        "Do for 32 bits what the text does for 16: one group of four dense, and the same group compressed.",
        tolerance=1e-3,
    ),
    "20.2": function(
        _one_of_two,
        [([3.0, -4.0, 1.0, 0.5],), ([-1.0, 1.0],), ([0.0, 0.1, -7.0, 2.0, 5.0, -6.0],)],
        "Go through the row in pairs and keep the larger magnitude of each; of two equal ones keep the first.",
    ),
    "20.3": number(
        math.ceil(4 * math.log2(math.comb(4, 2))),
        "Count the patterns of a row first (how many groups, how many ways in each?); n bits tell 2^n things apart.",
    ),
    "21.1": number(
        2 * 1024**3 / 2 / 1e9,
        "Count the operations of the dense product, 2 M N K; the pattern lets half of them be skipped.",
        tolerance=0.005,
    ),
    "21.2": function(
        _padded,
        [(1, 16), (16, 16), (17, 16), (100, 32), (128, 64)],
        "Round size / multiple up to a whole number, then multiply.",
    ),
    "21.3": number(
        _memory_limit(),
        "With one example memory is the limit: bytes moved by the dense product over bytes moved by the sparse one.",
        tolerance=0.005,
    ),
    "22.1": number(
        math.factorial(16) / (math.factorial(4) ** 4 * math.factorial(4)),
        "The formula for C = 16: four groups, and neither the order in a group nor the order of groups matters.",
    ),
    "22.2": function(
        _magnitude_kept,
        [
            ([[4.0, -3.0, 2.0, 1.0]],),
            ([[0.0, 1.0, 0.0, -5.0], [2.0, 2.0, 2.0, 2.0]],),
            ([[5.0, 3.0, -2.0, 2.0, 0.0, 0.0, 1.0, 0.0]],),
        ],
        "In each row and each group of four add up the two largest |w|.",
    ),
    "22.3": number(
        100 * (8 - 7) / (10 - 7),
        "First what the new order keeps by 2:4; then how much more than before, of how much more there could be.",
        tolerance=0.05,
    ),
    "23.1": function(
        _judge,
        [([-0.2, 0.1, 0.0], 1.0), ([-3.0, -2.8, -3.2], 1.0), ([-2.0, 0.5, 0.1], 1.0), ([0.4, 0.6], 0.0)],
        "Take the 95 % interval of the mean by Student's t (n - 1 degrees of freedom); look at where -margin lies.",
    ),
    "23.2": number(
        0.5 * math.sqrt(5) / float(stats.t.ppf(0.975, 4)),
        "Half the interval is t x sd / sqrt(5) with the t of four degrees of freedom; it has to fit into the margin.",
        tolerance=0.005,
    ),
    "24.1": number(6.35 / 127, "A step is amax / 127.", tolerance=1e-4),
    "24.2": function(
        _to_codes,
        [([0.0, 0.25, -1.0], 1.0), ([10.0, -10.0, 0.01], 2.0), ([2.5, 3.5, -0.5], 127.0)],
        "Divide by amax / 127, round, and clip to -127 ... 127.",
    ),
    "24.3": number(
        2 * round(0.02 / (2.0 / 127)) + 1,
        "How wide is a step when amax is 2.0? How many steps fit into 0.02, rounded? Count both signs and zero.",
    ),
    "50.1": number(
        256 * 256 / 4,
        "Each block of B x B weights holds B numbers: how many times fewer is that?",
    ),
    "50.2": function(
        _circulant_block,
        [([1.0, 2.0, 3.0, 4.0],), ([5.0, -1.0],), ([7.0],), ([0.0, 1.0, 0.0, 2.0, 4.0, 3.0],)],
        "The weight in row i and column j is c[(i - j) % B]; the first column is c itself.",
    ),
    "50.3": number(
        100 * ratio(0.5, 4, share=0.917),
        "An eighth of the numbers is left, and a sixteenth is charged for the bitmap; then times the share.",
        tolerance=0.06,
    ),
    "51.1": function(
        _sparsities,
        [([1.0, 3.0, 2.0, 3.0, 4.0],), ([-5.0, -1.0, 0.0, 0.5],), ([],), ([9.0, 8.0, 7.0],)],
        "Five points more whenever a reward is above all before it, and above 0; otherwise as before.",
    ),
    "51.2": number(
        _steady_sparsity(),
        "It grows evenly from 0 to 95 % during 950,000 steps and stays there; average both parts by their length.",
        tolerance=0.8,
    ),
    "51.3": number(
        100 * ratio(_steady_sparsity() / 100, 1, share=0.917),
        "The ratio is linear in S, so put the average sparsity into equation 3.",
        tolerance=0.8,
    ),
    "52.1": number(
        100 * (0.491 / 0.917 + 1 / 16),
        "Solve equation 3 for S: divide by the share, then add what the bitmap costs.",
        tolerance=0.06,
    ),
    "52.2": function(
        _average_ratio,
        [([0.0, 0.25, 0.5, 0.75], 4, 0.5), ([0.0, 0.5], 2, 1.0), ([0.0, 0.25], 4, 0.0), ([0.5, 0.5], 2, 0.5)],
        "While S is below shift a step saves 1 - (1 - S) / B, afterwards S; average over the steps.",
    ),
    "52.3": number(
        100 * (ratio(0.5, 4) - ratio(0.5, 1)),
        "The bitmap costs the same before and after; what share of the numbers is kept before, what after?",
    ),
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
    "41.1": number(architectures.weights("moons_mlp", "64-50"), "The equation at the top: l1 (l0 + 2)."),
    "41.2": number(
        (50 - 3) * next(n for n in range(1, 99) if plasticity.plateaus(range(n), 5, 0.0)),
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
        lambda a, b, c, d: architectures.weights("lenet5", f"{a}-{b}-{c}-{d}") + 90 * d,
        [(20, 50, 800, 500), (7, 9, 109, 30), (1, 1, 1, 1)],
        "Take the formula at the top and change what the last layer counts.",
    ),
    "42.2": number(0.5 * 20 * 5 * 5, "How many weights does the gate switch? Each costs the second lambda."),
    "42.3": number(
        53 * 8 / 50,
        "A position is live when its channel is open: which share of all positions belongs to open channels?",
        tolerance=0.05,
    ),
    "61.1": number(
        math.ceil(-100 * interval([-0.5, -0.7, -0.6]).low) / 100,
        "The lower end of the interval has to be at or above -m; round up. Student's t for three seeds is 4.303.",
        tolerance=0.004,
    ),
}
