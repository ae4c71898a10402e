"""What the experiment on images compares, on a shortened schedule."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context
from lib.companion.sweep.grid import Grid
from lib.papers.npn.experiments import npn_images
from lib.papers.npn.experiments.directions import Directions
from lib.training.gated import GatedTraining

SPARSIFY = GatedTraining((1, 3, 1), (9.0, 0.9, 2.0, 13.0), 7.0, 64, learning_rate=0.005, gate_speed=10.0)
EXPAND = replace(SPARSIFY, k=0.5, expand=True, patience=1, tolerance=1e9)
TASK = npn_images.Task("digits", "small_lenet", Directions((0, 1), 1, (3, 3, 12, 3), SPARSIFY, EXPAND))


@pytest.fixture(scope="module")
def rows():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = []
    for configuration in npn_images.configurations(npn_images.Settings((TASK,)))[1::2]:  # all of seed 1
        needed = [row for row in found if row["direction"] == "sparsify"] if npn_images.needs(configuration) else []
        found += npn_images.run(configuration, Context(), needed)
    table = Grid("npn_images", "quick", npn_images, {}, "").table(found)
    torch.set_num_threads(threads)
    return table.set_index(["direction", "epoch"])


def test_a_configuration_is_a_direction_and_seed_of_a_task():
    configurations = npn_images.configurations(npn_images.Settings((TASK,)))
    assert [(c["data"], c["network"], c["direction"], c["seed"]) for c in configurations[:3]] == [
        ("digits", "small_lenet", "sparsify", 0),
        ("digits", "small_lenet", "sparsify", 1),
        ("digits", "small_lenet", "expand", 0),
    ]
    assert [npn_images.units(c) for c in configurations] == [5] * 10


def test_both_directions_start_where_they_are_told_to_and_move(rows):
    assert set(rows.seed) == {1}
    assert rows.loc[("sparsify", 1), "architecture"] == "16-32-128-64"
    assert rows.loc[("expand", 1), "architecture"] == "3-3-12-3"
    assert rows.loc[("sparsify", 5), "parameters"] < 0.9 * 13584  # 9 x 16 + 144 x 32 + 128 x 64 + 640
    assert rows.loc[("dense", 5), "parameters"] == 13584
    assert rows.loc[("expand", 5), "architecture"] == "4-4-13-4"  # one a layer after two losses


def test_the_rivals_have_the_sparsified_networks_live_weights(rows):
    end = rows.loc[("sparsify", 5)]
    for rival in ("magnitude", "fresh"):
        assert set(rows.loc[rival].parameters_live) == {end.parameters_live}
        assert set(rows.loc[rival].flops) == {end.flops}
        assert set(rows.loc[rival].architecture_live) == {end.architecture_live}


def test_what_a_task_does_not_know_is_refused():
    for change, line in (({"network": "lenet"}, "known are small_lenet, lenet5"), ({"data": "digit"}, "known are")):
        with pytest.raises(BadInput, match=line):
            replace(TASK, **change)


def of(scale):
    built = build(npn_images.Settings, settings.read("npn_images", scale), f"{scale}.npn_images")
    return {(task.data, task.network): task.directions for task in built.tasks}


@pytest.mark.parametrize("scale", ["real", "paper"])
def test_mnist_has_the_papers_settings(scale):
    """Section 6.2."""
    mnist = of(scale)["mnist", "lenet5"]
    for training, k in ((mnist.sparsify, 7), (mnist.expand, 0.5)):
        assert (training.epochs, training.lambdas) == ((100, 250, 150), (10, 0.5, 0.1, 10))
        assert (training.k, training.learning_rate, training.gate_speed, training.batch) == (k, 0.001, 1, 128)
    assert mnist.start == (3, 3, 48, 3)


def test_cifar_has_the_papers_settings_at_the_paper_scale():
    """Section 6.3; the ends of stages that last until the loss plateaus are ours."""
    paper = of("paper")
    ten, hundred = paper["cifar10", "alexnet"], paper["cifar100", "alexnet"]
    assert ten.sparsify.lambdas == (0.02,) * 8
    assert hundred.sparsify.lambdas == (0.01,) * 6 + (0.02, 0.08)
    for task in (ten, hundred):
        assert task.start == (48, 63, 128, 120, 120, 120, 120, 1500)
        assert task.expand.lambdas == (-0.01,) * 8
        assert task.sparsify.epochs[:2] == (80, 420)
        assert task.expand.epochs[0] == 80


def test_quick_is_trained_on_digits_alone():
    assert list(of("quick")) == [("digits", "small_lenet")]
    assert pd.Series(of("quick")["digits", "small_lenet"].seeds).is_unique
