"""Check further exercises of paper 1: of notebooks 11 and 12."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable

import torch
from torch.distributions import Normal, kl_divergence

from lib.companion.exercises.checkers import Checker, function, number
from lib.training.agents import Scale
from lib.training.bc import BCSettings
from lib.training.bcq import BCQSettings

BCQ = BCQSettings()


def _of_values(value: Callable[[list[float], list[float]], float], continues: bool = True) -> Callable[..., float]:
    """A target of BCQ: reward and the discounted value of what the two critics say of the proposals."""

    def target(reward: float, ended: bool, first: list[float], second: list[float]) -> float:
        goes_on = 1 - ended if continues else 1
        return round(reward + BCQ.discount * goes_on * value(first, second), 6)

    return target


def _mixed(one: float, other: float, weight: float = BCQ.minimum_weight) -> float:
    return weight * min(one, other) + (1 - weight) * max(one, other)


def _best(first: list[float], second: list[float]) -> float:
    return max(map(_mixed, first, second))


def _divergence(mean: float, log_std: float) -> float:
    one = torch.tensor([mean, log_std], dtype=torch.float64)
    return round(float(kl_divergence(Normal(one[0], one[1].exp()), Normal(0.0, 1.0))), 6)


def _scaled(column: list[float]) -> list[float]:
    seen = torch.tensor(column, dtype=torch.float64)[:, None]
    return [round(one, 6) for one in Scale.of(seen)(seen)[:, 0].tolist()]


def _scaled_by(column: list[float], deviation: float, mean: float | None = None) -> list[float]:
    middle = statistics.fmean(column) if mean is None else mean
    return [round((one - middle) / deviation, 6) for one in column]


def _blind(observations: int, neurons: int, sparsity: float) -> float:
    """How many observations lose all their weights when chance removes so many, in the mean."""
    weights = observations * neurons
    kept = weights - round(sparsity * weights)
    return observations * math.comb(weights - neurons, kept) / math.comb(weights, kept)


EXERCISES: dict[str, Checker] = {
    "11.3": function(
        _of_values(_best),
        [
            (1.0, False, [10.0, 4.0, 7.0], [6.0, 9.0, 8.0]),
            (-2.0, True, [5.0, 1.0], [3.0, 2.0]),
            (0.0, False, [0.0, -4.0, 2.0], [8.0, -4.0, 2.5]),
            (1.0, False, [0.0, 2.0], [12.0, 2.0]),
        ],
        "Mix the critics' values of each proposal, take the best one, and discount it unless the episode ended.",
        wrong=[
            (
                _of_values(lambda first, second: _mixed(max(first), max(second))),
                "you let each critic choose its own proposal; one proposal is chosen by the mixed values.",
            ),
            (
                _of_values(lambda first, second: max(map(min, first, second))),
                "that believes the lower critic alone, as with lambda = 1.",
            ),
            (
                _of_values(_best, continues=False),
                "where the episode ended nothing follows: (1 - d) is zero there.",
            ),
            (
                _of_values(
                    lambda first, second: max(
                        _mixed(a, b, 1 - BCQ.minimum_weight) for a, b in zip(first, second, strict=True)
                    )
                ),
                "lambda weighs the lower value, 1 - lambda the higher.",
            ),
        ],
        second="max(0.75 * min(a, b) + 0.25 * max(a, b) for a, b in zip(first, second)), then 0.99 times that.",
        learned="One proposal has to please both critics, so an action that one of them overrates is seldom taken.",
    ),
    "11.4": function(
        _divergence,
        [(0.0, 0.0), (1.0, 0.0), (-0.5, -1.0), (0.3, 0.7)],
        "For one latent it is (mean^2 + std^2 - 1 - 2 ln std) / 2, with std = exp(log_std). Round to six digits.",
        wrong=[
            (
                lambda mean, log_std: round(0.5 * (mean**2 + math.exp(log_std) - 1 - log_std), 6),
                "you take log_std for the logarithm of the variance; the variance is exp(2 log_std).",
            ),
            (
                lambda mean, log_std: round(mean**2 + math.exp(2 * log_std) - 1 - 2 * log_std, 6),
                "half of that: the exponent of a normal density has a one half in it.",
            ),
            (
                lambda mean, log_std: round(0.5 * (mean**2 + math.exp(2 * log_std) - 1), 6),
                "the logarithm of the standard deviation is missing: a narrow latent costs, too.",
            ),
        ],
        second="0.5 * (mean**2 + exp(2 * log_std) - 1 - 2 * log_std).",
        learned="It is zero for a standard normal alone, so what the encoder says about an action has a price.",
    ),
    "11.5": number(
        100 * math.erfc(BCSettings().latent_limit / math.sqrt(2)),
        "Draw a million numbers and count those whose magnitude is above 0.25.",
        tolerance=0.4,
        wrong={
            19.7: "that many are left as they were drawn; how many are cut?",
            25.0: "0.25 is a place on the axis, not a share of the draws.",
            40.1: "that counts one side; draws below -0.25 are cut, too.",
            0.803: "this is the share; the question is for percent.",
        },
        second="(torch.randn(1_000_000).abs() > 0.25).double().mean()",
        learned="So a latent is nearly a coin toss between -0.25 and 0.25: the agent acts close to its middle action.",
    ),
    "12.3": number(
        100 * (1 - math.sqrt(0.05)),
        "After two rounds 5 % are left, and each leaves the same share: which number times itself is 0.05?",
        tolerance=0.06,
        wrong={
            47.5: "that is half of 95 %; the second round takes its share of what the first has left.",
            22.4: "that is what a round leaves.",
            45.1: "that is for five rounds.",
        },
        second="1 - 0.05 ** (1 / 2).",
        learned="Rounds that take the same share of what is left take ever fewer weights: 78 % first, then 17.",
    ),
    "12.4": function(
        _scaled,
        [([1.0, 3.0],), ([0.1, 0.2, 0.6],), ([-5.0, 7.0, 1.0, 1.0],), ([2.0, 2.0, 2.0],)],
        "Subtract the column's mean, and divide by its standard deviation plus 0.001. Round to six digits.",
        wrong=[
            (
                lambda column: _scaled_by(column, statistics.stdev(column) + 1e-3),
                "you divide the squares by n - 1; the code divides them by n.",
            ),
            (
                lambda column: _scaled_by(column, statistics.pstdev(column) + 1e-3, mean=0.0),
                "the mean is still in it.",
            ),
            (
                lambda column: _scaled_by(column, statistics.pstdev(column) or 1.0),
                "0.001 is added to the deviation, so that nothing is divided by zero.",
            ),
            (
                lambda column: _scaled_by(column, statistics.pvariance(column) + 1e-3),
                "you divide by the variance; the standard deviation is its root.",
            ),
        ],
        second="[(x - mean) / (std + 0.001) for x in column], with std = sqrt(mean of (x - mean) ** 2).",
        learned="It is one line, the paper does not mention it, and in our short runs its claim hangs on it.",
    ),
    "12.5": number(
        _blind(17, 32, 0.95),
        "For each seed: pruners.random scores, unstructured masks, and count the columns of the mask without a True.",
        tolerance=0.35,
        wrong={
            0: "with the paper's 750 neurons that is right; with 32 a column has only 1.6 weights left on average.",
            0.85: "that is 5 % of 17; weights are removed, not observations.",
            16.15: "that is 95 % of 17; weights are removed, not observations.",
            1.6: "so many weights an observation has left on average; how many have none?",
        },
        second="pruners.unstructured(pruners.random(nn.Linear(17, 32), seed=seed), sparsity=0.95)",
        learned="Chance blinds a narrow network, too, but never one of 750 neurons: there a score did it.",
    ),
}
