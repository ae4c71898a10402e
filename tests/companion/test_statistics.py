"""Intervals against numbers worked out by hand, how often they cover the truth, and what a verdict needs."""

import math

import numpy as np
import pytest
from scipy import stats

from lib.base import BadInput
from lib.companion.statistics import (
    Interval,
    by_holm,
    chance,
    check_criterion,
    interval,
    ratio_of_means,
    seeds_to_decide,
    together,
    verdict,
)


def test_the_interval_is_students_t():
    # mean 2.5, standard deviation sqrt(5 / 3), 3 degrees of freedom: t = 3.182446
    half = 3.182446 * math.sqrt(5 / 3) / math.sqrt(4)
    found = interval([1, 2, 3, 4])
    assert (found.value, found.seeds) == (2.5, 4)
    assert (found.low, found.high) == pytest.approx((2.5 - half, 2.5 + half), abs=1e-6)


def test_two_seeds_have_the_widest_interval_of_all():
    # 1 degree of freedom: t = 12.706205, standard error 0.5
    assert interval([0, 1]).high == pytest.approx(0.5 + 12.706205 * 0.5, abs=1e-6)


def test_a_lower_confidence_gives_a_narrower_interval():
    # 80 %, 1 degree of freedom: t = tan(0.4 pi) = 3.077684
    assert interval([0, 1], confidence=0.8).high == pytest.approx(0.5 + 3.077684 * 0.5, abs=1e-6)


def test_one_seed_has_no_interval():
    assert interval([3.5]) == Interval(3.5, -math.inf, math.inf, 1)


@pytest.mark.parametrize("count", [2, 3, 7, 10, 12])
def test_the_same_value_in_every_seed_is_measured_exactly(count: int):
    # numpy's mean of 0.1 three times is 0.10000000000000002, which is not at most 0.1
    assert interval([0.1] * count) == Interval(0.1, 0.1, 0.1, count)
    assert verdict(interval([0.1] * count), {"at_most": 0.1}) == "reproduced"


def test_the_same_value_but_for_the_rounding_of_a_difference_has_no_width():
    values = [0.95 - 0.90, 0.85 - 0.80, 0.75 - 0.70]
    assert len(set(values)) > 1
    found = interval(values)
    assert found.low == found.high == pytest.approx(0.05)
    assert interval([1.0, 1.000001]).low < interval([1.0, 1.000001]).high  # a last digit of a file


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_the_interval_covers_the_truth_as_often_as_it_says(count: int):
    draws = np.random.default_rng(count).normal(loc=7.0, scale=2.0, size=(1500, count))
    found = [interval(draw) for draw in draws]
    covered = np.mean([i.low <= 7.0 <= i.high for i in found])
    assert abs(covered - 0.95) < 0.02  # 3.5 standard errors; a percentile bootstrap would cover 0.51 to 0.91


@pytest.mark.parametrize("values", [[], [[1.0, 2.0]], [1.0, math.nan], [1.0, math.inf], ["a"], [1e308, 1e308, -1e308]])
def test_what_is_not_a_list_of_finite_values_is_refused(values: list):
    with pytest.raises(BadInput, match="an interval needs"):
        interval(values)


@pytest.mark.parametrize("confidence", [0, 1, 1.5, -1, math.nan])
def test_a_confidence_is_a_share(confidence: float):
    with pytest.raises(BadInput, match="must lie between 0 and 1"):
        interval([1, 2, 3], confidence)


def test_a_ratio_of_means_is_inside_where_students_t_does_not_tell_the_difference_from_zero():
    """Fieller's definition, checked at both ends: the interval of ones - end x others ends at 0."""
    ones, others = np.array([9.0, 12.0, 7.0, 11.0]), np.array([10.0, 11.0, 9.0, 12.0])
    ratio = ratio_of_means(ones, others)
    assert ratio.value == pytest.approx(39 / 42)
    assert ratio.seeds == 4
    assert interval(ones - ratio.low * others).low == pytest.approx(0, abs=1e-9)
    assert interval(ones - ratio.high * others).high == pytest.approx(0, abs=1e-9)
    exact, plain = ratio_of_means(ones, np.full(4, 10.0)), interval(ones / 10)
    assert (exact.low, exact.high) == pytest.approx((plain.low, plain.high))


def test_a_ratio_of_means_covers_the_truth_as_often_as_it_says():
    draw = np.random.default_rng(0)
    ones, others = draw.normal(3, 1, (4000, 5)), draw.normal(4, 1, (4000, 5))
    inside = [found.low <= 0.75 <= found.high for found in map(ratio_of_means, ones, others)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.01)


def test_of_two_rays_a_ratio_of_positive_returns_has_the_one_with_its_value():
    begin, end = np.array([712.7, 1119.2, 2114.2]), np.array([2719.2, 3684.8, 3843.4])
    found = ratio_of_means(end, begin)
    assert interval(begin).low < 0  # so that the mean may be 0
    assert (found.low, found.high) == (pytest.approx(1.403, abs=1e-3), math.inf)
    assert interval(end - found.low * begin).low == pytest.approx(0, abs=1e-6)
    below = ratio_of_means(-end, begin)
    assert (below.low, below.high) == (-math.inf, pytest.approx(-found.low))
    others = np.array([2.9946, 1.8939, 1.0987])  # in proportion there are no rays, whatever rounding says
    assert (ratio_of_means(0.664911 * others, others).low, ratio_of_means(0.664911 * others, others).high) == (
        -math.inf,
        math.inf,
    )
    assert found.low < found.at(4)[0] < found.value
    assert found.sure(0.9)[0] > found.low > found.sure(0.96)[0]


def test_the_chances_of_tests_that_share_a_risk():
    assert by_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    draw = np.random.default_rng(0)
    chances = draw.random((2000, 8)) * np.array([1e-9] * 3 + [1] * 5)  # three clear ones, of five nothing is true
    by_mistake = [(by_holm(one)[3:] <= 0.05).any() for one in chances]
    assert 0.035 < np.mean(by_mistake) < 0.065
    assert all((by_holm(one)[:3] <= 0.05).all() for one in chances)


def test_a_ratio_to_what_may_be_zero_may_be_any_number():
    found = ratio_of_means([1.0, 2.0, 3.0], [1.0, -2.0, 2.0])
    assert (found.value, found.low, found.high) == (6.0, -math.inf, math.inf)
    assert ratio_of_means([1.0], [2.0]) == Interval(0.5, -math.inf, math.inf, 1)
    assert ratio_of_means([1.0, 1.0], [2.0, 2.0]) == Interval(0.5, 0.5, 0.5, 2)
    for ones, others in (([1.0, 2.0], [1.0]), ([1.0, 2.0], [1.0, -1.0])):
        with pytest.raises(BadInput, match="a ratio of means needs"):
            ratio_of_means(ones, others)


def test_what_is_no_number_decides_nothing():
    with pytest.raises(BadInput, match="decides nothing"):
        verdict(Interval(math.nan, math.nan, math.nan, 3), {"at_least": 0})


R, D, U = "reproduced", "differs", "undecided"
VERDICTS = [
    # the whole interval on the right side, none of it, some of it
    ({"at_least": -1}, (-0.9, 0.2), R),
    ({"at_least": -1}, (-3.0, -1.1), D),
    ({"at_least": -1}, (-1.1, 0.2), U),
    ({"at_most": 2}, (0.5, 1.5), R),
    ({"at_most": 2}, (2.5, 3.5), D),
    ({"at_most": 2}, (1.5, 2.5), U),
    ({"above": 0}, (0.1, 0.9), R),
    ({"above": 0}, (-0.9, -0.1), D),
    ({"above": 0}, (-0.1, 0.9), U),
    ({"below": 0}, (-0.9, -0.1), R),
    ({"below": 0}, (0.1, 0.9), D),
    ({"below": 0}, (-0.1, 0.9), U),
    ({"between": [1, 2]}, (1.2, 1.8), R),
    ({"between": [1, 2]}, (0.2, 0.8), D),
    ({"between": [1, 2]}, (2.2, 2.8), D),
    ({"between": [1, 2]}, (0.8, 1.2), U),
    ({"between": [1, 2]}, (1.8, 2.2), U),
    ({"between": [1, 2]}, (0.5, 2.5), U),
    # the interval touches the bound: at_least and at_most include it, above and below do not
    ({"at_least": -1}, (-1.0, 0.2), R),
    ({"at_least": -1}, (-3.0, -1.0), U),
    ({"at_most": 2}, (0.5, 2.0), R),
    ({"at_most": 2}, (2.0, 3.5), U),
    ({"above": 0}, (0.0, 0.9), U),
    ({"above": 0}, (-0.9, 0.0), D),
    ({"below": 0}, (-0.9, 0.0), U),
    ({"below": 0}, (0.0, 0.9), D),
    ({"between": [1, 2]}, (1.0, 2.0), R),
    ({"between": [1, 2]}, (0.5, 1.0), U),
    ({"between": [1, 2]}, (2.0, 2.5), U),
    # something exact is inside or outside
    ({"at_least": 1}, (1.0, 1.0), R),
    ({"at_most": 1}, (1.0, 1.0), R),
    ({"above": 1}, (1.0, 1.0), D),
    ({"below": 1}, (1.0, 1.0), D),
    ({"between": [1, 2]}, (2.0, 2.0), R),
    ({"between": [1, 2]}, (2.1, 2.1), D),
]


@pytest.mark.parametrize(("criterion", "ends", "expected"), VERDICTS)
def test_a_verdict_follows_from_the_whole_interval(criterion: dict, ends: tuple[float, float], expected: str):
    assert verdict(Interval(sum(ends) / 2, *ends, seeds=5), criterion) == expected


@pytest.mark.parametrize(
    "criterion", [{"at_least": 0}, {"at_most": 9}, {"above": 0}, {"below": 9}, {"between": [0, 9]}]
)
def test_one_seed_decides_nothing(criterion: dict):
    assert verdict(interval([5.0]), criterion) == "undecided"


@pytest.mark.parametrize(
    ("criterion", "why"),
    [
        ({}, "expected one of"),
        ({"at_leats": 1}, "expected one of"),
        ({"at_least": 1, "at_most": 2}, "expected one of"),
        ({"at_least": "1"}, "the others take one"),
        ({"at_least": True}, "the others take one"),
        ({"at_least": [1, 2]}, "the others take one"),
        ({"between": 1}, "between takes two"),
        ({"between": [1]}, "between takes two"),
        ({"between": [2, 1]}, "the lower number comes first"),
    ],
)
def test_a_criterion_that_cannot_be_judged_is_refused(criterion: dict, why: str):
    with pytest.raises(BadInput, match=why):
        check_criterion(criterion)


def test_cells_that_agree_give_their_verdict_and_cells_that_split_give_partly():
    assert together([R]) == R
    assert together([D, D]) == D
    assert together([U, U, U]) == U
    assert together([R, R, D]) == "partly"
    assert together([R, U]) == "partly"
    assert together([U, D]) == D  # nothing is reproduced
    assert together([U, "moot"]) == together([U, "not run"]) == U  # nothing is decided
    with pytest.raises(BadInput, match="one cell or more"):
        together([])


@pytest.mark.parametrize("bound", [0.4, 0.05])
def test_the_seeds_that_would_decide_are_the_fewest_whose_interval_is_narrow_enough(bound: float):
    values = np.array([0.0, 1.0, 2.0])
    measured, distance = interval(values), 1 - bound
    seeds = seeds_to_decide(measured, {"above": bound})

    def half(count: int) -> float:
        return stats.t.ppf(0.975, count - 1) * values.std(ddof=1) / math.sqrt(count)

    assert half(seeds) < distance <= half(seeds - 1)
    assert seeds_to_decide(measured, {"between": [bound, 9]}) == seeds  # the nearer bound
    assert seeds_to_decide(measured, {"at_most": bound}) == seeds


def test_what_seeds_cannot_decide_has_no_number_of_them():
    assert seeds_to_decide(interval([1.0]), {"above": 0}) is None
    assert seeds_to_decide(interval([0.0, 2.0]), {"above": 1}) is None
    assert seeds_to_decide(Interval(1, -1, 3, 2), {"above": 0}) is None  # how seeds narrow it is not known
    stays = Interval(1, -1, 3, 2, at=lambda seeds: (-0.1 - 2 / seeds, 2.1 + 2 / seeds))  # however many there are
    assert seeds_to_decide(stays, {"above": 0}) is None
    assert seeds_to_decide(stays, {"at_least": -0.2}) == 20


def test_a_ratio_needs_the_fewest_seeds_whose_own_interval_decides():
    """Fieller's interval is wider above than below, and of two values without bounds: half its width says nothing."""
    ones, others = [9.0, 10.0, 12.0, 14.0], [12.0, 4.0, 16.0, 6.0]
    measured = ratio_of_means(ones, others)
    seeds = seeds_to_decide(measured, {"above": 0.9})

    def lowest(count: int) -> float:  # of samples with the same means and variances
        zeros = np.zeros(count - 4)
        scale = math.sqrt((count - 1) / 3)
        samples = [np.mean(one) + np.r_[scale * (np.array(one) - np.mean(one)), zeros] for one in (ones, others)]
        return ratio_of_means(*samples).low

    assert measured.low < 0.9
    assert seeds > 5
    assert lowest(seeds) > 0.9 >= lowest(seeds - 1)
    unbounded = ratio_of_means([2.0, 4.0], [1.0, 3.0])
    assert math.isinf(unbounded.high)
    assert seeds_to_decide(unbounded, {"above": 1}) is not None


@pytest.mark.parametrize("criterion", [{"above": 0.5}, {"at_least": 0.5}, {"between": [-9, 9]}, {"below": 0.5}])
def test_the_chance_is_the_p_value_of_students_test(criterion):
    values = np.array([1.0, 2.0, 4.0, 3.0, 2.5])
    bounds = next(iter(criterion.values()))
    tests = [stats.ttest_1samp(values, bound).pvalue for bound in (bounds if isinstance(bounds, list) else [bounds])]
    assert chance(interval(values), criterion) == pytest.approx(max(tests), rel=1e-3)


def test_the_chance_of_a_ratio_is_that_of_its_differences_and_goes_through_functions():
    ones, others = np.array([1.0, 1.6, 0.9, 1.4]), np.array([2.0, 2.4, 1.9, 2.1])
    exact = stats.ttest_1samp(ones - 0.9 * others, 0).pvalue
    measured = ratio_of_means(ones, others)
    assert chance(measured, {"below": 0.9}) == pytest.approx(exact, rel=1e-3)
    assert chance(measured.through(lambda ratio: 100 * (1 - ratio)), {"above": 10}) == pytest.approx(exact, rel=1e-3)


def test_what_is_undecided_exact_or_known_at_one_confidence_has_its_own_chance():
    assert chance(interval([1.0, -1.0]), {"above": 0}) == 1
    assert chance(interval([1.0]), {"above": 0}) == 1
    assert chance(Interval(1, 1, 1, 0), {"above": 0}) == 0
    assert math.isnan(chance(Interval(2, 1, 3, 4), {"above": 0}))
    assert chance(interval([1.0, 1.0 + 1e-7] * 9), {"above": 0}) == 1e-9  # as small as it is said


def test_a_monotone_function_takes_the_ends_and_those_of_other_seeds_along():
    measured = interval([1.0, 2.0, 4.0])
    fewer = measured.through(lambda value: -2 * value)
    assert (fewer.value, fewer.low, fewer.high) == (-2 * measured.value, -2 * measured.high, -2 * measured.low)
    assert fewer.at(9) == pytest.approx([-2 * end for end in reversed(measured.at(9))])
    assert seeds_to_decide(fewer, {"below": -4}) == seeds_to_decide(measured, {"above": 2})


def test_the_ratio_of_two_constants_has_no_width_whatever_its_rounding():
    draw = np.random.default_rng(0)
    for one, other in draw.uniform(1, 5000, (300, 2)).round(3):
        assert ratio_of_means([one] * 3, [other] * 3) == Interval(one / other, one / other, one / other, 3)


def test_a_bound_beyond_all_numbers_is_refused():
    with pytest.raises(BadInput, match="decides nothing"):
        check_criterion({"above": 10**400})


def test_what_is_over_seeds_stays_so_through_a_function():
    assert Interval(1.0, 0.0, 2.0, 2, of_seeds=0.25).through(math.exp).of_seeds == 0.25


def test_rounding_about_zero_has_no_width():
    found = interval([0.3 - 0.1 - 0.2, 0.0, 0.0])
    assert found.low == found.high
