"""Compute intervals over seeds, and say what they mean for a criterion."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import stats

from lib.base import BadInput

VERDICTS = ("reproduced", "partly", "undecided", "differs", "moot", "not run")  # on a claim
REPRODUCED, PARTLY, UNDECIDED, DIFFERS, MOOT, NOT_RUN = VERDICTS
MOST_SEEDS = 10**9  # an interval of so many is as narrow as seeds can make it
SAME = 1e-9  # numbers that differ by less are one number: a file has six digits, and differences are rounded


@dataclass(frozen=True)
class Interval:
    """Hold a measured value with its uncertainty; low = high = value for something exact.

    Attributes:
        seeds: how many seeds it stands on; 0 for something exact.
        of_seeds: the share of its variance that is over seeds; the rest, such as that over test speakers, stays
            however many seeds there are.
        at: the ends that it would have with another number of seeds, if means and variances stayed as they are; None
            where that is not known. Intervals of more seeds lie inside those of fewer.
        sure: the ends at another confidence than its own; None where that is not known. The surer, the wider.
    """

    value: float
    low: float
    high: float
    seeds: int
    of_seeds: float = 1.0
    at: Callable[[int], tuple[float, float]] | None = field(default=None, compare=False, repr=False)
    sure: Callable[[float], tuple[float, float]] | None = field(default=None, compare=False, repr=False)

    @property
    def exact(self) -> bool:
        """Say whether the interval has no width at any confidence, as of seeds that all give the same number."""
        return self.low == self.high and (self.sure is None or len(set(self.sure(1 - 1e-9))) == 1)

    def through(self, function: Callable[[float], float]) -> Interval:
        """Return the interval of what a monotone function makes of the value."""

        def ends(low: float, high: float) -> tuple[float, float]:
            first, second = float(function(low)), float(function(high))
            return min(first, second), max(first, second)

        def others(known: Callable | None) -> Callable | None:
            return None if known is None else lambda asked: ends(*known(asked))

        value, known = float(function(self.value)), {"at": others(self.at), "sure": others(self.sure)}
        return Interval(value, *ends(self.low, self.high), self.seeds, of_seeds=self.of_seeds, **known)


def interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Compute the mean over seeds and its confidence interval, by Student's t.

    One seed has no interval: its ends are infinite. Where all seeds give the same number, low = high: the same to a
    billionth of the largest, or of 1 where that is smaller, because differences are rounded. (Drawing seeds with
    replacement, the percentile bootstrap, would give too narrow an interval: one that is called 95 % covers the mean
    in 50, 75, 83 and 90 % of all samples of 2, 3, 5 and 10 normal values.)

    It covers 95 % where seeds are about normal. Where rare ones fall far below the others, most samples hold none of
    these, and the interval lies above the mean: of five seeds that are 1 +- 0.03, but one in ten of them 0.4, it covers
    the mean of 0.94 in 46 %.

    Raises:
        BadInput: no list of finite numbers, or numbers too large to average; a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise BadInput(f"confidence={confidence} must lie between 0 and 1")
    try:
        sample = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise BadInput(f"an interval needs numbers, one a seed: {error}") from error
    if sample.ndim != 1 or len(sample) == 0:
        raise BadInput(f"an interval needs a list of values, one a seed; these have shape {sample.shape}")
    if not np.isfinite(sample).all():
        raise BadInput(f"an interval needs finite values, one a seed; these are {sample.tolist()}")
    count = len(sample)
    if count == 1:
        return Interval(float(sample[0]), -math.inf, math.inf, 1)
    with np.errstate(over="ignore"):  # said below
        if np.ptp(sample) <= SAME * max(1.0, float(np.abs(sample).max())):
            return Interval(float(sample[0]), float(sample[0]), float(sample[0]), count)
        mean, deviation = float(sample.mean()), sample.std(ddof=1)

    def ends(seeds: int = count, sure: float = confidence) -> tuple[float, float]:
        half = float(stats.t.ppf(0.5 + sure / 2, seeds - 1) * deviation / math.sqrt(seeds))
        return mean - half, mean + half

    low, high = ends()
    if not (math.isfinite(low) and math.isfinite(high)):
        raise BadInput("an interval needs values that can be averaged; these are too large")
    return Interval(mean, low, high, count, at=ends, sure=lambda sure: ends(sure=sure))


def ratio_of_means(ones: Sequence[float], others: Sequence[float], confidence: float = 0.95) -> Interval:
    """Compute the mean of the ones over the mean of the others, seed by seed in pairs, with Fieller's interval.

    A ratio r is inside where Student's t does not tell the mean of ones - r x others from 0 (Fieller 1954). Unlike the
    mean of each seed's own ratio, it is not carried away by one seed whose other is close to 0; and where the mean of
    the others itself may be 0 the set is all numbers, or all but those between two. Of these two rays one has the
    value; it is the interval if all others have one sign, such as returns above 0 have, since the other ray belongs to
    a mean of the opposite sign. So an end may be infinite. The ends are not alike on both sides.

    Raises:
        BadInput: as `interval`; no pairs, or others whose mean is 0.
    """
    if len(ones) != len(others):
        raise BadInput(f"a ratio of means needs pairs: {len(ones)} and {len(others)} values")
    one, other = interval(ones, confidence), interval(others, confidence)
    if other.value == 0:
        raise BadInput("a ratio of means needs others whose mean is not 0")
    value, count = one.value / other.value, one.seeds
    if count == 1:
        return Interval(value, -math.inf, math.inf, 1)
    if one.low == one.high and other.low == other.high:  # of two constants, whose interval would be rounding alone
        return Interval(value, value, value, count)
    (a, ab), (_, b) = np.cov(ones, others)
    one_sign = min(others) > 0 or max(others) < 0

    def ends(seeds: int = count, sure: float = confidence) -> tuple[float, float]:
        factor = float(stats.t.ppf(0.5 + sure / 2, seeds - 1)) ** 2 / seeds
        square, rest = other.value**2 - factor * b, one.value**2 - factor * a
        middle = one.value * other.value - factor * ab
        half = math.sqrt(max(middle**2 - square * rest, 0.0))
        if square > 0:
            return (middle - half) / square, (middle + half) / square
        if square == 0 or half <= SAME * abs(middle) or not one_sign:  # ones in proportion to others have no rays
            return -math.inf, math.inf
        first, second = (middle + half) / square, (middle - half) / square  # those between them are outside
        return (second, math.inf) if value > second else (-math.inf, first)

    return Interval(value, *ends(), count, at=ends, sure=lambda sure: ends(sure=sure))


def check_criterion(criterion: Mapping[str, object]) -> None:
    """Refuse a criterion that is not one of: at_least, at_most, above, below (a number), between (two numbers).

    Raises:
        BadInput: it is another, or its numbers are not finite or in the wrong order.
    """
    if len(criterion) != 1 or next(iter(criterion)) not in ("at_least", "at_most", "above", "below", "between"):
        raise BadInput(f"criterion {dict(criterion)}: expected one of at_least, at_most, above, below, between")
    kind, bound = next(iter(criterion.items()))
    numbers = bound if kind == "between" else [bound]
    right = isinstance(numbers, list) and len(numbers) == (2 if kind == "between" else 1)
    if not right or any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in numbers):
        raise BadInput(f"criterion {dict(criterion)}: between takes two numbers, the others take one")
    if not all(abs(n) <= sys.float_info.max for n in numbers):
        raise BadInput(f"criterion {dict(criterion)}: what no number or every number satisfies decides nothing")
    if kind == "between" and not numbers[0] <= numbers[1]:
        raise BadInput(f"criterion {dict(criterion)}: the lower number comes first")


def in_words(criterion: Mapping[str, object]) -> str:
    """Write a criterion in words: "at least -1", "between 43.5 and 44.5".

    Raises:
        BadInput: a criterion of no known kind, or with bounds that are no numbers.
    """
    check_criterion(criterion)
    kind, bound = next(iter(criterion.items()))
    numbers = [f"{number:g}" for number in (bound if isinstance(bound, list) else [bound])]
    return f"{kind.replace('_', ' ')} {' and '.join(numbers)}"


def verdict(measured: Interval, criterion: Mapping[str, object]) -> str:
    """Judge: reproduced when the whole interval satisfies the criterion, differs when none of it does, else undecided.

    at_least and at_most are non-inferiority: the interval's worse end is within the margin. above and below are
    strict: the interval excludes the bound. An exact value, low = high, is simply inside or outside.

    Raises:
        BadInput: an interval that is no number, or a criterion of no known kind.
    """
    check_criterion(criterion)
    if math.isnan(measured.low) or math.isnan(measured.high):
        raise BadInput(f"an interval from {measured.low} to {measured.high} decides nothing: expected numbers")
    kind, bound = next(iter(criterion.items()))
    low, high = measured.low, measured.high
    holds, fails = {
        "at_least": lambda: (low >= bound, high < bound),
        "above": lambda: (low > bound, high <= bound),
        "at_most": lambda: (high <= bound, low > bound),
        "below": lambda: (high < bound, low >= bound),
        "between": lambda: (low >= bound[0] and high <= bound[1], high < bound[0] or low > bound[1]),
    }[kind]()
    return REPRODUCED if holds else DIFFERS if fails else UNDECIDED


def seeds_to_decide(measured: Interval, criterion: Mapping[str, object]) -> int | None:
    """Estimate how many seeds would decide an undecided value, if means and variances stayed as they are.

    Returns:
        None where no number of seeds is known to do it: it is not known how seeds narrow the interval (a single one
        says nothing of it), or the value lies on the bound, or what seeds cannot narrow is too wide by itself.

    Raises:
        BadInput: a criterion of no known kind, or with bounds that are no numbers.
    """

    def decides(seeds: int) -> bool:
        return verdict(Interval(measured.value, *at(seeds), seeds), criterion) != UNDECIDED

    check_criterion(criterion)
    at = measured.at
    if at is None or not decides(MOST_SEEDS):
        return None
    few, many = measured.seeds, measured.seeds + 1
    while not decides(many):
        few, many = many, 2 * many
    while many - few > 1:  # intervals of more seeds lie inside those of fewer, so the smallest number lies between
        middle = (few + many) // 2
        few, many = (few, middle) if decides(middle) else (middle, many)
    return many


def chance(measured: Interval, criterion: Mapping[str, object]) -> float:
    """Compute how likely chance alone is to decide as clearly as this interval does: its p-value, two-sided.

    That is the risk, one less the confidence, at which the interval just touches a bound of the criterion.

    Returns:
        1.0 of what is undecided, 0.0 of an exact value, NaN where the interval is known at one confidence alone. A risk
        below 1e-9 is given as that.

    Raises:
        BadInput: a criterion of no known kind, or with bounds that are no numbers.
    """

    def decides(risk: float) -> bool:
        return verdict(Interval(measured.value, *measured.sure(1 - risk), measured.seeds), criterion) != UNDECIDED

    if verdict(measured, criterion) == UNDECIDED:
        return 1.0
    if measured.exact:
        return 0.0
    if measured.sure is None:
        return math.nan
    open_at, decided_at = 1e-9, 1.0
    if decides(open_at):
        return open_at
    while decided_at > 1.0001 * open_at:
        middle = math.sqrt(open_at * decided_at)
        open_at, decided_at = (open_at, middle) if decides(middle) else (middle, decided_at)
    return decided_at


def by_holm(chances: Sequence[float]) -> np.ndarray:
    """Adjust the chances of several tests that share one risk, in their order (Holm 1979): a test stands where its
    adjusted chance is at most that risk, and that any stands by mistake is then no likelier than it.

    The clearest has to be clear at the risk over the number of tests, the next at the risk over one less, and so on;
    those behind the first that is not do not stand.
    """
    order = np.argsort(chances, kind="stable")
    adjusted = np.empty(len(order))
    adjusted[order] = np.maximum.accumulate((len(order) - np.arange(len(order))) * np.asarray(chances, float)[order])
    return adjusted


def together(verdicts: Sequence[str]) -> str:
    """Make one verdict for a claim's cells: theirs when they agree, partly when only some are reproduced.

    Where none is reproduced and only some differ, the claim differs: it is made of all cells. Where none is decided it
    is undecided.

    Raises:
        BadInput: no verdicts.
    """
    if not verdicts:
        raise BadInput("a claim's verdict needs that of one cell or more")
    if len(set(verdicts)) == 1:
        return verdicts[0]
    return PARTLY if REPRODUCED in verdicts else DIFFERS if DIFFERS in verdicts else UNDECIDED
