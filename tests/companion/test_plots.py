"""What a figure computes before it draws."""

import math
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion import plots, tables
from lib.companion.statistics import Interval, interval

SEEDS = [50.0, 50.5, 51.0, 51.5, 52.0, 52.5, 53.0, 53.5, 90.0, 95.0]
OTHERS = [10.0, 10.5, 11.0, 11.5, 12.0, 12.5, 13.0, 13.5, 40.0, 45.0]


def bars(axes) -> list[tuple[float, float, float, float]]:
    """Where the error bars that were drawn begin and end: x and y of one end, x and y of the other."""
    drawn = [bar for container in axes.containers for bar in container.lines[2]]
    return [tuple(segment.flatten()) for bar in drawn for segment in bar.get_segments()]


def skewed(values: list[float]) -> Interval:
    """An interval that is wider above than below, as no mean's is: a swapped bar shows."""
    found = interval(values)
    return replace(found, high=found.value + 2 * (found.high - found.value))


@pytest.fixture
def wider_above(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "interval", skewed)


def ends(measured: Interval) -> tuple[float, float]:
    return pytest.approx((measured.low, measured.high))


@pytest.fixture
def axes():
    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


@pytest.mark.usefixtures("wider_above")
def test_bars_of_rows_end_at_low_and_high_of_an_asymmetric_interval(axes):
    plots.differences_with_intervals(axes, {"one": SEEDS, "other": OTHERS})
    (left, row, right, _), (_, other_row, _, _) = bars(axes)
    assert (left, right) == ends(skewed(SEEDS))
    assert (row, other_row) == (0, 1)


def test_bars_of_an_interval_that_is_known_end_at_its_ends_and_one_seed_has_none(axes):
    plots.known_intervals(axes, {"a": (Interval(3.0, 2.5, 5.0, 2), [3.0]), "b": (Interval(1, 0, 2, 1), [1.0])})
    assert bars(axes) == [pytest.approx((2.5, 0, 5.0, 0))]


def test_an_interval_without_an_end_is_drawn_to_the_edge_of_the_axes(axes):
    open_, half = Interval(3.0, -math.inf, math.inf, 2), Interval(3.0, 2.0, math.inf, 2)
    plots.known_intervals(axes, {"a": (open_, [2.0, 4.0]), "b": (half, [2.0, 4.0])})
    assert bars(axes) == [pytest.approx((3, 0, 3, 0)), pytest.approx((2, 1, 3, 1))]
    axes.set_xlim(-100, 100)  # whatever comes afterwards
    axes.figure.draw_without_rendering()
    lines = [line.arrow_patch.get_window_extent() for line in axes.texts]
    middle = axes.transData.transform((3.0, 0))[0]
    left, right = (middle, axes.bbox.x0), (middle, axes.bbox.x1)
    assert [(line.x0, line.x1) for line in lines] == [pytest.approx(sorted(ends)) for ends in (left, right, right)]


@pytest.mark.usefixtures("wider_above")
def test_bars_of_errors_are_those_of_the_accuracies_turned_round(axes):
    plots.errors_with_intervals(axes, [("dense", SEEDS)])
    ((left, _, right, _),) = bars(axes)
    measured = skewed(SEEDS)
    assert (left, right) == pytest.approx((100 - measured.high, 100 - measured.low))


@pytest.mark.usefixtures("wider_above")
def test_bars_against_sparsity_end_at_low_and_high_and_the_band_is_the_dense_agents(axes):
    rows = [{"pruner": "snip", "sparsity": 0.9, "normalised_return": value} for value in SEEDS]
    rows += [{"pruner": "dense", "sparsity": 0.0, "normalised_return": value} for value in OTHERS]
    plots.against_sparsity(axes, pd.DataFrame(rows))
    ((_, low, _, high),) = bars(axes)
    assert (low, high) == ends(skewed(SEEDS))
    (band,) = axes.patches
    assert (band.get_y(), band.get_y() + band.get_height()) == ends(skewed(OTHERS))


def test_lines_between_sparsities_keep_their_marks_apart(axes):
    rows = [{"pruner": "dense", "sparsity": 0.0, "normalised_return": 1.0}]
    for pruner in ("snip", "grasp", "magnitude", "random", "snip_shuffled"):
        rows += [{"pruner": pruner, "sparsity": sparsity, "normalised_return": 1.0} for sparsity in (0.5, 0.9, 0.95)]
    plots.against_sparsity(axes, pd.DataFrame(rows))
    assert not axes.patches  # one dense agent has no interval, and so no band
    first, second = (x for (x, other) in (line.get_xdata() for line in axes.lines if line.get_color() == "0.8"))
    places = [place for line in axes.lines if len(line.get_xdata()) == 3 for place in line.get_xdata()]
    assert [round(place) for place in places if first < place < second] == [1] * 5
    assert len([place for place in places if place < first]) == len([place for place in places if place > second]) == 5


@pytest.mark.usefixtures("wider_above")
def test_bars_of_choices_end_at_low_and_high(axes):
    rows = [{"way": "blocks", "choice": "snip", "normalised_return": value} for value in SEEDS]
    plots.choices(axes, pd.DataFrame(rows), OTHERS)
    ((left, _, right, _),) = bars(axes)
    assert (left, right) == ends(skewed(SEEDS))


@pytest.mark.usefixtures("wider_above")
def test_networks_of_one_size_stand_apart_with_bars_of_their_accuracies(axes):
    rows = [
        {"direction": direction, "parameters_live": 100 * o, "accuracy": s}
        for direction in ("sparsify", "magnitude", "fresh")
        for o, s in zip(OTHERS, SEEDS, strict=True)
    ]
    plots.accuracy_against_size(axes, pd.DataFrame(rows))
    mean = 100 * sum(OTHERS) / len(OTHERS)
    assert [left for left, _, _, _ in bars(axes)] == pytest.approx([mean] * 3)  # on the axis, whose ticks say the size
    for drawn in zip(*((marker, *caps, *lines) for marker, caps, lines in axes.containers), strict=True):
        pixels = [one.get_transform().transform((mean, 1))[0] for one in drawn]
        assert np.diff(pixels) == pytest.approx([0.1 * axes.figure.dpi] * 2)
    assert all((low, high) == ends(skewed(SEEDS)) for _, low, _, high in bars(axes))


def test_one_seed_has_no_small_point_beside_its_marker(axes):
    plots.means_with_intervals(axes, {"one": [3.0], "three": [1.0, 2.0, 4.0]})
    assert [len(points.get_offsets()) for points in axes.collections if not hasattr(points, "get_segments")] == [3]


def test_a_seed_that_ended_earlier_counts_with_its_last_value_in_the_mean_over_epochs():
    sizes = {0: {10: 3, 20: 5, 30: 7}, 1: {10: 1, 20: 3, 30: 5}, 2: {10: 5, 14: 8}}  # seed 2 ended at 14 by itself
    rows = pd.DataFrame(
        [{"seed": s, "epoch": e, "parameters": p, "stage": 2} for s, one in sizes.items() for e, p in one.items()]
    )
    figure, axes = plt.subplots()
    plots.over_epochs(axes, rows, "parameters", "expand")
    (mean,) = (line for line in axes.lines if line.get_label() == "mean of 3 seeds")
    plt.close(figure)
    assert mean.get_xydata().tolist() == [[10, 3], [20, 16 / 3], [30, 20 / 3]]


@pytest.mark.parametrize("accuracies", [[100.0, 100.0, 100.0], [99.98, 99.97, 99.98]])
def test_a_variant_almost_without_errors_is_drawn_to_the_edge(axes, accuracies):
    plots.errors_with_intervals(axes, [("dense", accuracies)])
    ((left, _, right, _),) = bars(axes)
    assert left == right == 0.05


def test_one_dense_agent_has_no_band(axes):
    ends = pd.DataFrame({"way": ["a", "a"], "choice": ["snip", "snip"], "normalised_return": [1.0, 2.0]})
    plots.choices(axes, ends, [3.0])
    assert not axes.patches


def test_a_mean_of_several_seeds_keeps_its_bar_beside_one_of_a_single_seed():
    ends = pd.DataFrame(
        [("dense", 0.0, 1.0), *[("snip", 0.5, x) for x in (0.8, 0.9, 1.0)], ("snip", 0.9, 0.3)],
        columns=["pruner", "sparsity", "normalised_return"],
    )
    figure, axes = plt.subplots()
    plots.against_sparsity(axes, ends)
    (bars,) = (one for one in axes.containers if one.has_yerr)
    (several, *single) = bars[2][0].get_segments()
    assert np.ptp(several[:, 1]) > 0
    assert not any(np.isfinite(segment).all() and len(segment) for segment in single)
    plt.close(figure)


def test_what_figures_have_no_look_for_is_refused_and_not_left_out():
    ends = pd.DataFrame({"pruner": ["dense", "mine"], "sparsity": [0.0, 0.5], "normalised_return": [1.0, 2.0]})
    _, axes = plt.subplots()
    with pytest.raises(BadInput, match=r"'mine' has no name and look in plots\.PRUNERS; there are: dense, "):
        plots.against_sparsity(axes, ends)
    with pytest.raises(BadInput, match="'dens' has no name and look"):
        plots.label("dens")
    directions = pd.DataFrame({"direction": ["sparsfy"], "accuracy": [1.0], "parameters_live": [2.0]})
    with pytest.raises(BadInput, match="'sparsfy' has no name and look"):
        plots.accuracy_against_size(axes, directions)
    with pytest.raises(BadInput, match="'sparsfy' has no name and look"):
        tables.directions(directions)


def test_an_interval_of_accuracies_ends_at_100_percent():
    assert plots.percent([99.0, 100.0]) == "99.50 [93.15, 100.00]"
    assert plots.with_interval([99.0, 100.0]) == "99.50 [93.15, 105.85]"
