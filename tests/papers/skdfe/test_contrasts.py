"""A law of contrasts between systems: averaging independent systems narrows an interval by the root of their number."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lib.base import BadInput
from lib.companion.statistics import Interval, seeds_to_decide
from lib.papers.skdfe import measures
from lib.papers.skdfe.contrasts import log_interval

NAMES = ["a", "b", "c", "d"]


def half(errors, contrast):
    found = log_interval(errors, contrast)
    return (found.high - found.low) / 2


def of(values):
    """Errors [system, seed, draw] as `log_interval` takes them."""
    index = pd.MultiIndex.from_product([NAMES, range(values.shape[1])], names=["system", "seed"])
    return pd.DataFrame(values.reshape(-1, values.shape[2]), index=index)


def test_with_equal_spread_over_seeds_two_against_two_is_narrower_by_the_root_of_two():
    seeds = np.array([9.0, 10, 11])[None, :, None] * np.array([1, 2, 3, 4])[:, None, None]
    errors = of(np.repeat(seeds, 5, axis=2))  # the same in each draw of the speakers
    one = half(errors, {"a": 1, "b": -1})
    two = half(errors, {"a": 0.5, "b": 0.5, "c": -0.5, "d": -0.5})
    assert two / one == pytest.approx(1 / math.sqrt(2))


def test_with_equal_spread_over_speakers_two_against_two_is_narrower_by_the_root_of_two():
    first, second = np.array([[0, 1, -1, 1, -1], [0, 1, -1, -1, 1]])
    patterns = np.stack([first, -first, second, -second])  # a - b and c - d do not vary together
    errors = of(np.repeat(np.exp(0.1 * patterns)[:, None], 3, axis=1))
    one = half(errors, {"a": 1, "b": -1})
    two = half(errors, {"a": 0.5, "b": -0.5, "c": 0.5, "d": -0.5})
    assert two / one == pytest.approx(1 / math.sqrt(2))


def test_seeds_that_would_decide_are_those_of_samples_with_the_same_variances():
    """Seeds narrow their part of the variance and tell it better; what speakers add stays."""
    speakers = np.exp(0.01 * np.array([[0, 1, -1, 1, -1], [0, -1, 1, 1, -1], [0, 1, 1, -1, -1], [0, -1, -1, 1, 1]]))

    def sample(number: int) -> pd.DataFrame:
        seeds = np.resize([-1.0, 1.0], number)
        seeds *= math.sqrt((number - 1) / number)  # variance 1 with any even number
        means = np.array([10.0, 10.7, 10, 10])
        spread = np.array([0.05, 0.05, 0.06, 0.06])  # a's and b's below what all have together
        return of(means[:, None, None] * (1 + spread[:, None, None] * seeds[None, :, None]) * speakers[:, None, :])

    contrast = {"a": 1, "b": -1}
    measured = log_interval(sample(2), contrast)
    again = log_interval(sample(8), contrast)
    assert measured.at(8) == pytest.approx((again.low, again.high))
    assert measured.at(2) == pytest.approx((measured.low, measured.high))
    surer = log_interval(sample(2), contrast, confidence=0.99)
    assert measured.sure(0.99) == (surer.low, surer.high)
    needed = seeds_to_decide(measured, {"below": 0})
    assert log_interval(sample(needed + needed % 2), contrast).high < 0
    assert seeds_to_decide(measured, {"below": -0.07}) is None  # nearer to the value than what the speakers add


def test_pairs_are_compared_by_student_s_t_of_their_differences():
    """Where speakers add nothing the interval is SciPy's; what the systems of a seed share is not in it."""
    shared = np.array([-0.004, 0.001, 0.003])
    own = np.array([[1, -1, 0], [-1, 1, 0], [2, -1, -1], [0, 1, -1]]) * 1e-4

    def paired(shared: np.ndarray) -> Interval:
        errors = of(np.repeat((10 * (1 + shared + own))[:, :, None], 4, axis=2))
        return log_interval(errors, {"a": 1, "b": -1}, paired=True)

    found = paired(shared)
    student = stats.ttest_1samp(own[0] - own[1], 0).confidence_interval()
    assert (found.low, found.high) == pytest.approx((student.low, student.high), rel=0.01)
    assert paired(5 * shared).high == pytest.approx(found.high, rel=0.05)
    loose = half(of(np.repeat((10 * (1 + shared + own))[:, :, None], 4, axis=2)), {"a": 1, "b": -1})
    assert loose > 10 * (found.high - found.low) / 2


def test_intervals_of_pairs_cover_the_truth_as_often_as_they_say():
    """Speakers draw all seeds of a system aside together; taken as independent, pairs would always cover."""
    random, tries = np.random.default_rng(0), 400
    covered = {True: 0, False: 0}
    for _ in range(tries):
        seeds = random.normal(0, 0.05, (1, 3, 1)) + random.normal(0, 0.01, (4, 3, 1))
        speakers = random.normal(0, 0.02, (4, 1, 1)) + random.normal(0, 0.02, (4, 1, 101)) * np.r_[0, np.ones(100)]
        for paired in covered:
            found = log_interval(of(np.exp(seeds + speakers)), {"a": 1, "b": -1}, paired=paired)
            covered[paired] += found.low <= 0 <= found.high
    assert 0.92 < covered[True] / tries < 0.98
    assert covered[False] / tries > 0.98


def test_what_seeds_do_on_single_speakers_averages_out_and_what_all_do_stays():
    """The forecast ends at what the speakers add when every seed errs on them alike, paired or not."""
    random = np.random.default_rng(0)
    alike = random.normal(0, 0.03, (4, 1, 4001))
    alone = random.normal(0, 0.05, (4, 3, 4001))
    alike[..., 0], alone[..., 0] = 0, 0  # the speakers as they are; seeds agree there
    for paired in (True, False):
        found = log_interval(of(np.exp(alike + alone)), {"a": 1, "b": -1}, paired=paired)
        ends = {number: found.at(number) for number in (3, 12, 10**6)}
        halves = {number: (high - low) / 2 / 1.96 for number, (low, high) in ends.items()}
        assert ends[3] == pytest.approx((found.low, found.high))
        assert halves[3] == pytest.approx(math.sqrt(2 * (0.03**2 + 0.05**2 / 3)), rel=0.1)
        assert halves[12] == pytest.approx(math.sqrt(2 * (0.03**2 + 0.05**2 / 12)), rel=0.1)
        assert halves[10**6] == pytest.approx(math.sqrt(2) * 0.03, rel=0.1)
        assert found.of_seeds == pytest.approx(0.05**2 / 3 / (0.03**2 + 0.05**2 / 3), rel=0.15)


def test_what_falls_with_seeds_is_how_they_differ_within_a_draw_and_never_more_than_all():
    draws = np.array([0, 1, -1, 1, -1])
    same = np.exp(0.1 * np.stack([draws, draws]))  # both seeds err on the same speakers: nothing would fall
    apart = np.exp(0.1 * np.stack([draws, -draws]))  # on opposite ones, so their mean hardly moves, but each does
    for seeds, falls in ((same, 0), (apart, 1)):
        errors = of(np.broadcast_to(seeds, (4, 2, 5)).copy() * np.array([1.0, 1.2, 1, 1])[:, None, None])
        errors.loc[("b", slice(None)), 1:] = 1.2  # of one system alone, or both would move alike
        found = log_interval(errors, {"a": 1, "b": -1})
        assert found.of_seeds == pytest.approx(falls)


def test_seeds_that_only_other_systems_have_do_not_stand_in_the_way_of_pairs():
    random = np.random.default_rng(0)
    errors = of(np.exp(random.normal(0, 0.1, (4, 3, 9))))
    lacking = errors.drop([("a", 2), ("b", 2)])
    alone = errors.loc[["a", "b"]].drop([("a", 2), ("b", 2)])
    contrast = {"a": 1, "b": -1}
    assert log_interval(lacking, contrast, paired=True) == log_interval(alone, contrast, paired=True)


def test_a_pair_of_which_one_is_missing_is_refused():
    errors = of(np.full((4, 3, 4), 10.0)).drop([("b", 2)])
    with pytest.raises(BadInput, match="a and b cannot be compared seed by seed: one lacks a seed of the other"):
        log_interval(errors, {"a": 1, "b": -1}, paired=True)


def test_what_has_no_ratio_is_refused():
    errors = of(np.ones((4, 2, 3)))
    for number in (0.0, math.inf):
        errors.loc[("a", slice(None)), 1] = number
        with pytest.raises(BadInput, match="a makes no errors"):
            log_interval(errors, {"b": 1, "c": -1})


def test_a_system_cannot_stand_on_both_sides():
    runs = pd.DataFrame({"trials": ["all"]})
    with pytest.raises(BadInput, match="'a/self/none' stands there twice"):
        measures.improvement(runs, ["a/self/none"], ["b/self/none", "a/self/none"])
    with pytest.raises(BadInput, match="one or more on each side"):
        measures.improvement(runs, [], ["a/self/none"])


def test_systems_are_compared_by_the_longest_schedule_that_has_all_of_them():
    """A cell with two names them; a single seed, which has no interval, does not push a shorter schedule out."""

    def rows(system: str, epochs: int, eers: list[float]) -> list[dict]:
        network, teacher, distillation = system.split("/")
        cell = {
            "data": "voices",
            "trials": "all",
            "width": 4,
            "epoch": epochs,
            "parameters": 1,
            "teacher_parameters": 0,
        }
        named = {"network": network, "teacher": teacher, "distillation": distillation}
        return [
            cell | named | {"seed": seed, "draw": draw, "eer": eer + 0.01 * draw * (-1) ** draw}
            for seed, eer in enumerate(eers)
            for draw in range(4)
        ]

    plain, both, deep = "resnet18/self/none", "resnet18/self/both", "resnet34/self/none"
    short = [*rows(plain, 8, [10, 10.2]), *rows(both, 8, [9, 9.1]), *rows(deep, 8, [8, 8.2])]
    compared = measures.improvement(pd.DataFrame(short), [both], [plain])
    assert list(compared) == ["voices/all, width 4"]
    pilot = pd.DataFrame([*short, *rows(plain, 25, [6]), *rows(both, 25, [3])])
    ((cell, found),) = measures.improvement(pilot, [both], [plain]).items()
    assert cell == "voices/all, width 4, 8 epochs"
    assert found.value == compared["voices/all, width 4"].value
    long = pd.DataFrame([*short, *rows(plain, 25, [6, 6.1]), *rows(both, 25, [3, 3.1])])
    ((cell, found),) = measures.improvement(long, [both], [plain]).items()
    assert (cell, round(found.value)) == ("voices/all, width 4, 25 epochs", 50)
    ((cell, found),) = measures.improvement(long, [deep], [plain]).items()  # trained by the shorter one alone
    assert (cell, round(found.value)) == ("voices/all, width 4, 8 epochs", 20)
    assert list(measures.error(long, plain)) == ["voices/all, width 4, 25 epochs"]


def test_what_seeds_do_on_single_speakers_is_never_more_than_what_speakers_do():
    """Two seeds that err on speakers in opposite ways cancel in the mean: the draws then tell less than either seed."""
    seeds = np.array([[0, 0.2, -0.2, 0.2, -0.2], [0, -0.2, 0.2, -0.2, 0.2]])
    errors = of(np.exp(seeds[None] + 0.01 * np.arange(4)[:, None, None] * np.array([0, 1, -1, -1, 1.0])))
    found = log_interval(errors + np.array([0.1, -0.1] * 4)[:, None], {"a": 1, "b": -1})
    ends = found.at(10**6)
    assert 0 <= found.of_seeds <= 1
    assert np.isfinite(ends).all()
    assert ends[0] <= found.value <= ends[1]


def test_each_system_varies_by_its_own_number_of_seeds_and_more_seeds_are_of_each():
    """Without speakers, and no other systems, an interval of uneven seeds is Welch's, which SciPy has."""
    draw = np.random.default_rng(3)
    noisy, quiet = 1 + 0.004 * draw.standard_normal(5), 1 + 0.001 * draw.standard_normal(12)
    index = pd.MultiIndex.from_tuples(
        [*(("a", seed) for seed in range(5)), *(("b", seed) for seed in range(12))], names=["system", "seed"]
    )
    errors = pd.DataFrame(np.repeat(np.concatenate([noisy, quiet])[:, None], 4, axis=1), index=index)
    found = log_interval(errors, {"a": 1, "b": -1})
    welch = stats.ttest_ind(noisy, quiet, equal_var=False).confidence_interval()
    assert (found.low, found.high) == pytest.approx((welch.low, welch.high), rel=0.01)
    assert found.at(5) == (found.low, found.high)
    spread = noisy.var(ddof=1) / 12 + quiet.var(ddof=1) / 12  # twelve of each, where only the first has fewer
    freedom = spread**2 / ((noisy.var(ddof=1) / 12) ** 2 / 11 + (quiet.var(ddof=1) / 12) ** 2 / 11)
    low, high = found.at(12)
    assert (high - low) / 2 == pytest.approx(stats.t.ppf(0.975, freedom) * math.sqrt(spread), rel=0.01)
