"""Words for a difference say more or fewer, whatever its sign."""

import math

import pytest

from lib.base import BadInput
from lib.companion.statistics import Interval
from lib.papers.skdfe.figures import errors_in_words, system


def test_an_interval_around_zero_names_both_sides():
    assert errors_in_words(Interval(-2.8, -13.0, 6.5, 2)) == "3 % more errors [6 % fewer to 13 % more]"


def test_an_interval_on_one_side_has_plain_ends():
    assert errors_in_words(Interval(-19.4, -30.2, -9.6, 2)) == "19 % more errors [10, 30]"
    assert errors_in_words(Interval(26.0, 22.0, 31.0, 2)) == "26 % fewer errors [22, 31]"


def test_a_row_of_the_ledger_is_read_from_its_text():
    row = {"measured": "10.2", "low": "-3", "high": "17", "seeds": "2", "verdict": "undecided"}
    assert errors_in_words(row) == "10 % fewer errors [17 % fewer to 3 % more]"


def test_one_seed_has_no_interval():
    assert errors_in_words(Interval(10.0, -math.inf, math.inf, 1)) == "10 % fewer errors (one seed)"
    assert errors_in_words(Interval(2.0, 0.0, 4.0, 3)) == "2 % fewer errors [0, 4]"


def test_a_system_without_a_name_is_refused_in_a_line():
    with pytest.raises(BadInput, match=r"'my_net' has no name and look in plots\.NETWORKS"):
        system("resnet18/my_net/mse")
    with pytest.raises(BadInput, match="'kl' has no name and look in DISTILLATIONS"):
        system("resnet18/resnet34/kl")
