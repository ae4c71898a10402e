"""The order of a pool: every experiment is tried once, then the longest configuration is always next."""

from lib.companion.sweep.order import LongestFirst

SIZES = {"a1": ("a", 1), "a3": ("a", 3), "a2": ("a", 2), "b5": ("b", 5), "b9": ("b", 9)}


def test_the_largest_of_each_experiment_comes_first_and_each_key_once():
    order = list(LongestFirst(SIZES).over(SIZES))
    assert order[:2] == ["b9", "a3"]
    assert sorted(order) == sorted(SIZES)


def test_what_will_take_longest_is_next_as_soon_as_it_is_known_how_long_units_take():
    order = LongestFirst(SIZES)
    found = order.over(SIZES)
    assert [next(found), next(found)] == ["b9", "a3"]
    order.took("b9", 9.0)  # a second a unit: b5 will take 5
    assert next(found) == "b5"  # of a nothing is known yet
    order.took("a3", 30.0)  # ten seconds a unit
    assert list(found) == ["a2", "a1"]


def test_seconds_count_for_more_than_units():
    order = LongestFirst(SIZES)
    found = order.over(SIZES)
    next(found), next(found)
    order.took("b9", 9.0)
    order.took("a3", 30.0)
    assert list(found) == ["a2", "a1", "b5"]  # 20, 10 and 5 seconds
