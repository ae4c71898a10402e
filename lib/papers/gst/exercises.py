"""Exercises of paper 5: notebooks 50 to 53."""

from __future__ import annotations

import torch

from lib import pruners
from lib.companion.exercises.checkers import Checker, checking, function, number
from lib.kernels.block_circulant import circulant, expand
from lib.papers.gst.experiments.compression import ratio


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


def _shared_score(weights: list[float], gradients: list[float]) -> float:
    return abs(sum(weight * gradient for weight, gradient in zip(weights, gradients, strict=True)))


def _prunings_until(shift: float, final: float, times: int) -> int:
    ramp = pruners.Gradual(final, every=1, times=times)
    return next(step for step in range(times + 1) if ramp.target(step) >= shift)


EXERCISES: dict[str, Checker] = {
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
    "53.1": number(
        80,
        "Blocks of 4 hold a quarter as many numbers as weights; a twentieth shall be left.",
    ),
    "53.2": function(
        _shared_score,
        [([0.5, 0.5], [1.0, -1.0]), ([0.5, 0.5], [2.0, 1.0]), ([-2.0] * 4, [1.0, 0.5, 0.0, 0.25]), ([1.0], [-3.0])],
        "The loss changes by the sum of all contributions; the absolute value comes last.",
    ),
    "53.3": number(
        _prunings_until(0.5, 0.8, 100),
        "0.8 (1 - (1 - n / 100)^3) has to reach 0.5: solve for n and take the next whole number.",
    ),
}

check = checking(EXERCISES)
