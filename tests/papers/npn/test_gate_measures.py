"""Measures on gates, against the same integrals done by hand."""

import math

import pytest

from lib.base import BadInput
from lib.companion.claims import papers
from lib.papers.npn import measures


def test_probabilities_and_slopes_are_those_of_the_equations():
    assert measures.probability("sigmoid", 2.0, 0.5) == pytest.approx(1 / (1 + math.exp(-1)))
    assert measures.probability("hard_sigmoid", 1.0, 2.1) == pytest.approx(0.8)
    assert measures.probability("sigmoid", 0.0, 7.0) == 0.5
    g = 1 / (1 + math.exp(-1))
    assert measures.slope("sigmoid", 2.0, 0.5) == pytest.approx(2 * g * (1 - g))
    assert measures.slope("hard_sigmoid", 2.0, 0.5) == pytest.approx(2 / 7)
    assert measures.slope("hard_sigmoid", 2.0, 5.0) == 0


def test_a_closed_gate_learns_where_its_draws_say_so():
    pi = 1 / (1 + math.exp(4))
    assert measures.learning_draws("sigmoid", 1.0, -4.0) == pytest.approx(200 * pi, rel=1e-3)  # u < pi or u >= 1 - pi
    assert measures.learning_draws("hard_sigmoid", 1.0, -4.0) == 0
    assert measures.learning_draws("hard_sigmoid", 1.0, -2.8) == pytest.approx(20, rel=1e-3)  # g = 0.1
    # hard concrete: z > 0 with probability sigmoid(log alpha - 2/3 log(0.1 / 1.1)), and z < 1 in all but few of those
    logit = [-4.0 - 2 / 3 * math.log(0.1 / 1.1), -4.0 - 2 / 3 * math.log(1.1 / 0.1)]
    above, one = (1 / (1 + math.exp(-value)) for value in logit)
    assert measures.learning_draws("hard_concrete", 1.0, -4.0) == pytest.approx(100 * (above - one), rel=1e-2)
    with pytest.raises(BadInput, match="a gate of kind sigmoid is open at k=7, phi=1"):
        measures.learning_draws("sigmoid", 7.0, 1.0)


def test_arm_as_printed_is_right_for_the_sigmoid_only_and_with_the_factor_for_every_g():
    assert measures.estimate_over_gradient("sigmoid", 1.0, 0.5, factor=False) == pytest.approx(1, abs=1e-4)
    assert measures.estimate_over_gradient("sigmoid", 7.0, 0.1, factor=False) == pytest.approx(1 / 7, rel=1e-4)
    # pi (1 - pi) instead of k / 7
    assert measures.estimate_over_gradient("hard_sigmoid", 1.0, 2.1, factor=False) == pytest.approx(7 * 0.16, rel=1e-4)
    for kind, k, phi in (("sigmoid", 7.0, 0.1), ("hard_sigmoid", 1.0, 2.1), ("hard_sigmoid", 7.0, -0.3)):
        assert measures.estimate_over_gradient(kind, k, phi, factor=True) == pytest.approx(1, abs=1e-4)


def test_arm_varies_less_than_ar_where_its_two_draws_agree():
    """Of f(z) = z and a gate that is open with probability p: ARM is u - 1/2 where one of u and 1 - u is below p, or
    minus that, and AR is 1 - 2 u where u is below p; their variances are those integrals.
    """
    p = 1 / (1 + math.exp(-0.5))
    arm = 2 * (0.5**3 - (p - 0.5) ** 3) / 3 - (p * (1 - p)) ** 2
    ar = (1 - (1 - 2 * p) ** 3) / 6 - (p * (1 - p)) ** 2
    assert measures.variance_against_ar("sigmoid", 1.0, 0.5) == pytest.approx(100 * arm / ar, rel=1e-3)


def test_an_unknown_kind_is_refused():
    with pytest.raises(BadInput, match="known are sigmoid, hard_sigmoid"):
        measures.probability("tanh", 1.0, 0.0)


def test_what_is_said_of_the_authors_gates_follows_from_their_levels():
    """They set phi = -40/7 and 3/7 while k is 7, and k = 1 in stage 2."""
    slips = next(paper for paper in papers.read() if paper.paper == 4).slips
    (said,) = (slip.found for slip in slips if "was set to 3/7" in slip.found)
    asleep, awake = (100 * measures.probability("sigmoid", 1, level / 7) for level in (-40, 3))
    assert f"open in {asleep:.1f} % of all draws" in said
    assert f"3/7 in {awake:.0f} %" in said
    assert measures.probability("sigmoid", 7, -40 / 7) < 1e-15  # "none ever opens"
