"""Check exercises of paper 5: notebooks 50 to 53, and those of `exercises_beyond`."""

from __future__ import annotations

import numpy as np
import torch

from lib import pruners
from lib.companion.exercises.checkers import Checker, function, number
from lib.kernels.block_circulant import circulant, expand
from lib.papers.gst.exercises_beyond import BEYOND
from lib.papers.gst.experiments.compression import ratio


def _circulant_block(c: list[float]) -> list[list[float]]:
    return expand(torch.tensor([[c]]), circulant(len(c)), (len(c), len(c))).tolist()


def _circulant_product(c: list[float], x: list[float]) -> list[float]:
    return (torch.tensor(_circulant_block(c)) @ torch.tensor(x)).tolist()


def _transposed_product(c: list[float], x: list[float]) -> list[float]:
    """Multiplies with the transposed block: a typical mistake."""
    return (torch.tensor(_circulant_block(c)).T @ torch.tensor(x)).tolist()


def _unwrapped_product(c: list[float], x: list[float]) -> list[float]:
    """Does not wrap the diagonals around: a typical mistake."""
    return (torch.tensor(_circulant_block(c)).tril() @ torch.tensor(x)).tolist()


def _sparsities(rewards: list[float]) -> list[int]:
    schedule = pruners.RewardAware(increase=0.05, every=1)
    return [round(100 * schedule.target(chance, reward)) for chance, reward in enumerate(rewards, start=1)]


def _pruned_by_gains(rewards: list[float]) -> list[int]:
    """Prunes whenever a reward is above the one before: a typical mistake."""
    found, before = [], 0.0
    for reward in rewards:
        found.append((found[-1] if found else 0) + 5 * (reward > before))
        before = reward
    return found


def _pruned_by_ties(rewards: list[float]) -> list[int]:
    """Prunes at a reward that equals the record too: a typical mistake."""
    found, highest = [], 0.0
    for reward in rewards:
        found.append((found[-1] if found else 0) + 5 * (reward >= highest))
        highest = max(highest, reward)
    return found


def _window(returns: list[float], size: int) -> list[float]:
    return [float(np.mean(returns[max(0, end - size) : end])) for end in range(1, len(returns) + 1)]


def _window_of_full(returns: list[float], size: int) -> list[float]:
    """Counts episodes that there are not yet as 0: a typical mistake."""
    return [float(np.sum(returns[max(0, end - size) : end]) / size) for end in range(1, len(returns) + 1)]


def _pruned_without_noise() -> float:
    """The percentage that notebook 51's made-up agent has lost in the end, without noise and two points at a time."""
    steps = np.arange(1, 1001)
    learned = 100 * (1 - np.exp(-steps / 250)) - 60 * np.exp(-(((steps - 450) / 80) ** 2))
    schedule = pruners.RewardAware(increase=0.02, every=25, reference="pruning")
    return 100 * [schedule.target(step, reward) for step, reward in enumerate(learned, start=1)][-1]


def _steady_sparsity() -> float:
    return 100 * sum(min(step // 8_000 * 0.01, 0.95) for step in range(1_000_000)) / 1_000_000


def _average_ratio(sparsities: list[float], block: int, shift: float) -> float:
    blocks = [block if sparsity < shift else 1 for sparsity in sparsities]
    return sum(ratio(s, b, bitmap="none") for s, b in zip(sparsities, blocks, strict=True)) / len(sparsities)


def _last_ratio(sparsities: list[float], block: int, shift: float) -> float:
    """Takes the end for the average: a typical mistake."""
    return _average_ratio(sparsities[-1:], block, shift)


def _released(numbers: list[float], kept: list[bool]) -> list[list[float]]:
    return _circulant_block([number * keep for number, keep in zip(numbers, kept, strict=True)])


def _added_by_blocks(final: float) -> float:
    """Points that blocks of 4 add to the average ratio while the sparsity grows evenly to `final`."""
    sparsity = final * np.linspace(0, 1, 401)
    return float(100 * (ratio(sparsity, np.full(401, 4)) - ratio(sparsity, np.full(401, 1))).mean())


def _shared_score(weights: list[float], gradients: list[float]) -> float:
    return abs(sum(weight * gradient for weight, gradient in zip(weights, gradients, strict=True)))


def _plain_correlation(a: list[float], b: list[float]) -> float:
    """Correlates values instead of ranks: a typical mistake."""
    return round(float(np.corrcoef(a, b)[0, 1]), 9)


def _rank_correlation(a: list[float], b: list[float]) -> float:
    return _plain_correlation(np.argsort(np.argsort(a)).tolist(), np.argsort(np.argsort(b)).tolist())


def _prunings_until(shift: float, final: float, times: int) -> int:
    ramp = pruners.Gradual(final, every=1, times=times)
    return next(step for step in range(times + 1) if ramp.target(step) >= shift)


EXERCISES: dict[str, Checker] = {
    "50.1": number(
        256 * 256 / 4,
        "Each block of B x B weights holds B numbers: how many times fewer is that?",
        wrong={
            65536: "that is how many weights there are.",
            4096: "that is a number a block; a block of 4 holds four.",
            1024: "64 x 64 blocks are 4,096; each holds four numbers.",
        },
        second="65,536 / 4.",
        learned="In 16 bits these are 32 kB instead of 128.",
    ),
    "50.2": number(
        100 * ratio(0.7, 4, share=0.917),
        "Of the numbers 0.3 / 4 are left, and a sixteenth is charged for the bitmap; then times the share.",
        tolerance=0.06,
        wrong={
            84.8: "that is equation 2; equation 3 charges a bitmap.",
            86.3: "only 91.7 % of the network are compressed.",
            83.4: "that charges a bit for each coefficient; equation 3 charges one for each weight.",
        },
        second="0.917 x (1 - 0.075 - 0.0625).",
        learned="The bitmap takes nearly as much as all the numbers that are left.",
    ),
    "50.3": function(
        _circulant_block,
        [([1.0, 2.0, 3.0, 4.0],), ([5.0, -1.0],), ([7.0],), ([0.0, 1.0, 0.0, 2.0, 4.0, 3.0],)],
        "The weight in row i and column j is c[(i - j) % B]; the first column is c itself.",
        wrong=[
            (
                lambda c: [[c[(j - i) % len(c)] for j in range(len(c))] for i in range(len(c))],
                "that is the transposed block: c has to be the first column, not the first row.",
            ),
            (
                lambda c: [[c[(i + j) % len(c)] for j in range(len(c))] for i in range(len(c))],
                "its diagonals run the other way; it is i - j, not i + j.",
            ),
            (lambda c: [list(c) for _ in c], "each row is shifted by one place against the row before."),
        ],
        second="[[c[(i - j) % len(c)] for j in range(len(c))] for i in range(len(c))]",
        learned="Every row is the one before it, moved by one place and wrapped around.",
    ),
    "50.4": function(
        _circulant_product,
        [([1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 0.0, 0.0]), ([1.0, 2.0, 0.0], [3.0, -1.0, 2.0]), ([5.0], [2.0])],
        "y[i] is the sum over j of c[(i - j) % B] x[j].",
        wrong=[
            (_transposed_product, "that is the product with the transposed block: (i - j), not (j - i)."),
            (
                lambda c, x: [a * b for a, b in zip(c, x, strict=True)],
                "that multiplies place by place; do so after a transform.",
            ),
            (_unwrapped_product, "the diagonals wrap around: take the index modulo B."),
        ],
        second="[sum(c[(i - j) % len(c)] * x[j] for j in range(len(x))) for i in range(len(c))]",
        learned="This is a circular convolution, which is why a Fourier transform turns it into single products.",
    ),
    "50.5": number(
        100 * (3 / 4 + (1 / 4) / 4),  # the mean's share of the energy, and a quarter of the rest
        "weight = torch.rand(64, 64); near = expand(project(weight, table), table, (64, 64)); compare sums of squares.",
        tolerance=2.0,
        wrong={
            25: "that holds for weights with a mean of 0; positive ones have a mean, which every projection keeps.",
            100: "a projection keeps all only of what is circulant already.",
            75: "the mean keeps 3/4 of the energy of such weights; a quarter of the rest is kept on top.",
        },
        second="A mean of 1/2 has 3/4 of the mean square 1/3; of the rest a projection keeps a quarter.",
        learned="A projection is a mean over each diagonal: what weights have in common survives it.",
    ),
    "51.1": number(
        _steady_sparsity(),
        "It grows evenly from 0 to 95 % during 760,000 steps and stays there; average both parts by their length.",
        tolerance=0.8,
        wrong={
            95: "that is where it ends; average over the whole training.",
            47.5: "that forgets the last 240,000 steps, in which it stays at 95 %.",
            0.585: "this is the share; the question is for percent.",
        },
        second="0.76 x 47.5 + 0.24 x 95.",
        learned="Even a steady pruning to 95 % has an average below 60 %: what is saved late is saved briefly.",
    ),
    "51.2": number(
        100 * ratio(_steady_sparsity() / 100, 1, share=0.917),
        "The ratio is linear in S, so put the average sparsity into equation 3.",
        tolerance=0.8,
        wrong={
            53.7: "the bitmap costs a sixteenth of what the weights take.",
            52.3: "only 91.7 % of the weights are compressed; the share applies to weights and bitmap.",
            58.5: "that is the sparsity; equation 3 charges a bitmap and counts only the compressed share.",
        },
        second="0.917 x (0.589 - 1/16).",
        learned="The printed 49.1 % is just out of reach at this pace: the paper pruned more often, or more at a time.",
    ),
    "51.3": function(
        _sparsities,
        [([1.0, 3.0, 2.0, 3.0, 4.0],), ([-5.0, -1.0, 0.0, 0.5],), ([],), ([9.0, 8.0, 7.0],)],
        "Five points more whenever a reward is above all before it, and above 0; otherwise as before.",
        wrong=[
            (
                lambda rewards: [5 * sum(r > 0 for r in rewards[: i + 1]) for i in range(len(rewards))],
                "you prune at every positive reward; it has to be a record.",
            ),
            (_pruned_by_gains, "you compare with the reward before; compare with the highest so far."),
            (_pruned_by_ties, "a reward that only equals the record is no new one."),
        ],
        second="Keep two numbers: the highest reward so far (0 at first) and the sparsity.",
        learned="This is algorithm 2; everything else about it is when a reward is known.",
    ),
    "51.4": function(
        _window,
        [([1.0, 3.0, 5.0], 2), ([4.0], 10), ([2.0, 4.0, 6.0, 8.0, 10.0], 3)],
        "After episode i average the last `size` of the first i + 1 returns.",
        wrong=[
            (
                lambda returns, size: _window(returns, len(returns)),
                "that is the mean of all episodes so far; take the last ones.",
            ),
            (
                _window_of_full,
                "before there are `size` episodes, average those there are; do not count missing ones as 0.",
            ),
            (lambda returns, size: list(returns), "these are the returns themselves; average them."),
        ],
        second="[sum(r) / len(r) for r in (returns[max(0, i + 1 - size) : i + 1] for i in range(len(returns)))]",
        learned="A longer window is smoother: an agent that learns sets more records, each of them known later.",
    ),
    "51.5": number(
        _pruned_without_noise(),
        "sparsity, highest = reward_aware(learned, increase=0.02); the answer is 100 * sparsity[-1].",
        tolerance=0.5,
        wrong={
            30: "that is the noisy agent; take `learned`, not `reward`.",
            80: "that would be every chance; in the bad time the reward is no record.",
            0.62: "this is the share; the question is for percent.",
        },
        second="Of 40 chances 31 come with a record, each takes two points.",
        learned="Noise makes early lucky records that block later ones; a smooth curve is nearly always a record.",
    ),
    "52.1": number(
        100 * (0.491 / 0.917 + 1 / 16),
        "Solve equation 3 for S: divide by the share, then add what the bitmap costs.",
        tolerance=0.06,
        wrong={
            53.5: "add what the bitmap costs, a sixteenth.",
            60.36: "divide by the share before you add the bitmap, which only compressed layers have.",
            55.35: "you did not divide by the share: 8.3 % of the weights are not compressed.",
            51.3: "the share divides the ratio; it does not multiply it.",
        },
        second="0.491 / 0.917 + 1/16.",
        learned="So on average nearly 60 % of the compressed weights were gone, not 49 %.",
    ),
    "52.2": number(
        100 * (ratio(0.5, 4) - ratio(0.5, 1)),
        "The bitmap costs the same before and after; what share of the numbers is kept before, what after?",
        wrong={
            75: "that is at a sparsity of 0; here half of the numbers are gone already.",
            50: "that is the share kept afterwards; what was kept before?",
            12.5: "that is the share kept before the release; what is kept after it?",
        },
        second="Before: 0.5 / 4 of the numbers. After: 0.5.",
        learned="The later the release, the smaller the fall: (1 - S)(1 - 1/B).",
    ),
    "52.3": function(
        _average_ratio,
        [([0.0, 0.25, 0.5, 0.75], 4, 0.5), ([0.0, 0.5], 2, 1.0), ([0.0, 0.25], 4, 0.0), ([0.5, 0.5], 2, 0.5)],
        "While S is below shift a step saves 1 - (1 - S) / B, afterwards S; average over the steps.",
        wrong=[
            (lambda sparsities, block, shift: _average_ratio(sparsities, block, 2.0), "you never release the blocks."),
            (lambda sparsities, block, shift: _average_ratio(sparsities, 1, shift), "you forget what blocks save."),
            (_last_ratio, "that is the ratio in the end; average over the steps."),
        ],
        second="np.mean([1 - (1 - s) / block if s < shift else s for s in sparsities])",
        learned="The average rewards whatever saves early; that is why blocks look so good in it.",
    ),
    "52.4": function(
        _released,
        [
            ([1.0, 2.0, 3.0, 4.0], [True, True, True, True]),
            ([1.0, 2.0, 3.0, 4.0], [True, False, False, True]),
            ([-1.0, 0.5, 0.0, 2.0], [False, True, True, True]),
        ],
        "Row i, column j holds c[(i - j) % 4] where that number is kept, else 0.",
        wrong=[
            (lambda numbers, kept: _released(numbers, [True] * 4), "pruned numbers are 0 at all of their four places."),
            (
                lambda numbers, kept: [list(column) for column in zip(*_released(numbers, kept), strict=True)],
                "that is the transposed block; it is (i - j), not (j - i).",
            ),
            (lambda numbers, kept: [list(numbers)] * 4, "each row is shifted by one place against the row before."),
        ],
        second="[[c[(i - j) % 4] * kept[(i - j) % 4] for j in range(4)] for i in range(4)]",
        learned="The function is the same before and after; only what may change from now on differs.",
    ),
    "52.5": number(
        _added_by_blocks(0.4),
        "100 * (ratio(sparsity, 4) - ratio(sparsity, 1)).mean()",
        tolerance=0.6,
        wrong={
            45: "that is for 80 %; put 0.4 * progress.",
            75: "that is what they add at a sparsity of 0; it falls as weights go.",
            0.6: "this is the share; the question is for points.",
        },
        second="On average (1 - S) (1 - 1/4), and S is 0.2 on average.",
        learned="Blocks add (1 - S)(1 - 1/B): most where little is pruned.",
    ),
    "53.1": number(
        60,
        "Blocks of 8 hold an eighth as many numbers as weights; a twentieth of the weights shall be left.",
        wrong={
            95: "that is for single weights; blocks of 8 hold only an eighth as many numbers.",
            40: "that is the share of the blocks' numbers that stays.",
            87.5: "that is what the blocks save by themselves.",
        },
        second="0.05 / 0.125 of the numbers stay.",
        learned="The same count is a mild pruning of blocks and a strong one of single weights.",
    ),
    "53.2": number(
        _shared_score([0.5] * 4, [1.0, -1.0, 2.0, -1.5]),
        "Add weight times gradient with signs; the absolute value comes last.",
        wrong={
            2.75: "that adds absolute values; one weight may pull the loss up and another down.",
            0.0625: "that is the mean over the weights; removing the number removes all four.",
            0.5: "that is the magnitude.",
        },
        second="0.5 x (1 - 1 + 2 - 1.5).",
        learned="Of summed scores of 2.75 only 0.25 is left: the others cancel.",
    ),
    "53.3": function(
        _shared_score,
        [([0.5, 0.5], [1.0, -1.0]), ([0.5, 0.5], [2.0, 1.0]), ([-2.0] * 4, [1.0, 0.5, 0.0, 0.25]), ([1.0], [-3.0])],
        "The loss changes by the sum of all contributions; the absolute value comes last.",
        wrong=[
            (
                lambda weights, gradients: sum(abs(w * g) for w, g in zip(weights, gradients, strict=True)),
                "contributions of different signs cancel: sum first.",
            ),
            (
                lambda weights, gradients: sum(w * g for w, g in zip(weights, gradients, strict=True)),
                "the score is how much the loss changes, up or down: take the absolute value.",
            ),
            (
                lambda weights, gradients: abs(weights[0] * sum(gradients)) / len(weights),
                "that is the mean over the weights; removing the number removes all of them.",
            ),
        ],
        second="abs(sum(w * g for w, g in zip(weights, gradients)))",
        learned="A backward pass gives that sum for free: it is the gradient by the shared number.",
    ),
    "53.4": function(
        _rank_correlation,
        [
            ([1.0, 2.0, 3.0], [10.0, 20.0, 15.0]),
            ([3.0, 1.0, 2.0], [30.0, 1.0, 2.0]),
            ([1.0, 5.0, 2.0, 9.0], [9.0, 2.0, 5.0, 1.0]),
            ([3.0, 1.0, 2.0], [10.0, 20.0, 15.0]),
        ],
        "Replace each number by its rank (how many are smaller), then correlate the ranks.",
        wrong=[
            (_plain_correlation, "that correlates the numbers; take their ranks first."),
            (
                lambda a, b: _plain_correlation(np.argsort(a).tolist(), np.argsort(b).tolist()),
                "argsort says who stands at each rank, not each one's rank: take it twice.",
            ),
            (lambda a, b: round(1 - _rank_correlation(a, b), 9), "that is one minus it."),
            (lambda a, b: -_rank_correlation(a, b), "one of your lists is ranked from the largest down."),
        ],
        second="np.argsort(np.argsort(a)) are the ranks; np.corrcoef correlates.",
        learned="Pruning needs only the order of scores, so the order is what a score is judged by.",
    ),
    "53.5": number(
        _prunings_until(0.5, 0.8, 100),
        "0.8 (1 - (1 - n / 100)^3) has to reach 0.5: solve for n and take the next whole number.",
        wrong={
            63: "that is a straight ramp; this one is cubic.",
            27: "after 27 prunings the ramp is at 0.489; one more is needed.",
            50: "the ramp is fast at first; it passes 0.5 before the middle.",
        },
        second="1 - 0.5 / 0.8 = 0.375; its cube root is 0.721.",
        learned="The ramp passes the shift in its second quarter, so released blocks save for a short time only.",
    ),
    **BEYOND,
}
