"""What the experiment of the two moons compares, on a shortened schedule."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch import nn

from lib import settings
from lib.errors import BadInput
from lib.experiments import npn_moons
from lib.jobs import Job, Stopped
from lib.sweep.grid import Grid
from lib.training.plasticity import Plasticity

SPARSIFY = Plasticity((4, 16, 4), (0.2, 8.0), 7.0, 100, learning_rate=0.01)
EXPAND = Plasticity((4, 16, 4), (0.1, 4.0), 0.5, 100, learning_rate=0.01, expand=True, patience=1, tolerance=1e9)
SHORT = npn_moons.Settings(seeds=1, every=5, start=(3, 4), sparsify=SPARSIFY, expand=EXPAND)


@pytest.fixture(scope="module")
def rows():
    (configuration,) = npn_moons.configurations(SHORT)
    table = Grid("npn_moons", "quick", npn_moons, {}, "").table(npn_moons.run(configuration, Job()))
    return table.set_index(["direction", "epoch"])


def last(rows, direction):
    return rows.loc[direction].iloc[-1]


def test_each_direction_is_trained_equally_long_and_rows_are_kept_of_stage_ends_too(rows):
    assert sorted(set(rows.index.get_level_values("direction"))) == [
        "dense",
        "expand",
        "fresh",
        "magnitude",
        "sparsify",
    ]
    assert rows.loc["sparsify"].index.tolist() == [4, 5, 10, 15, 20, 24]
    assert rows.loc["expand"].index.tolist() == [4, 5, 10, 15, 20, 24]
    assert rows.loc["dense"].index.tolist() == [4, *(4 + e for e in (5, 10, 15, 20))]
    assert rows.loc["magnitude"].index.tolist() == [4 + e for e in (5, 10, 15, 20)]
    assert rows.loc["fresh"].index.tolist() == [5, 10, 15, 20, 24]
    assert npn_moons.units(npn_moons.configurations(SHORT)[0]) == 24 * 4 + 20


def test_the_starts_are_the_papers_and_the_rivals_have_the_sparsified_size(rows):
    assert rows.loc[("sparsify", 4), "architecture"] == "2-100-80-2"
    assert rows.loc[("sparsify", 4), "parameters"] == 8160
    assert rows.loc[("expand", 4), "architecture"] == "2-3-4-2"
    end = last(rows, "sparsify")
    assert end.parameters < 8160
    assert last(rows, "expand").parameters > 3 * 4 + 4 * 2
    for rival in ("magnitude", "fresh"):
        assert set(rows.loc[rival].architecture) == {end.architecture}
        size = ["parameters", "parameters_live", "flops"]
        assert last(rows, rival)[size].tolist() == end[size].tolist()


def test_dense_is_the_sparsified_network_as_long_as_that_is_ordinary_too(rows):
    same = ["accuracy", "regularised_loss", "architecture", "k"]
    assert rows.loc[("dense", 4), same].tolist() == rows.loc[("sparsify", 4), same].tolist()
    assert set(rows.loc["dense"].k) == {5000.0}
    assert set(rows.loc["dense"].architecture) == {"2-100-80-2"}


def test_the_largest_neurons_are_those_whose_weights_weigh_most():
    network = nn.Sequential()
    network.fc1, network.fc2 = nn.Linear(3, 2), nn.Linear(2, 2)
    network.fc1.weight.data = torch.tensor([[1.0, -3, 0], [1, 0, 2.5]])
    network.fc2.weight.data = torch.tensor([[1.0, 0], [0, -2]])
    kept = npn_moons.largest(network, (2, 1))
    assert [one.tolist() for one in kept] == [[False, True, True], [False, True]]


def test_a_run_that_was_stopped_goes_on_to_the_same_rows(rows, tmp_path):
    (configuration,) = npn_moons.configurations(SHORT)

    class Impatient(Job):
        def advance(self, label):
            self.done += 1
            if self.done in self.stops:
                raise Stopped

    for stops in ((10,), (40,), (70,), (100,)):
        job = Impatient("cpu", tmp_path)
        job.stops = stops
        with pytest.raises(Stopped):
            npn_moons.run(configuration, job)
    table = Grid("npn_moons", "quick", npn_moons, {}, "").table(npn_moons.run(configuration, Job("cpu", tmp_path)))
    pd.testing.assert_frame_equal(table.set_index(["direction", "epoch"]), rows, check_exact=True)


def test_quick_has_the_papers_settings():
    """Section 6.1 and figure 3: as printed."""
    quick = settings.build(npn_moons.Settings, settings.read("npn_moons", "quick"), "quick.npn_moons")
    for direction, k, first in ((quick.sparsify, 7, 500), (quick.expand, 0.5, 100)):
        assert (sum(direction.epochs), direction.k, direction.learning_rate) == (2000, k, 0.001)
        assert direction.epochs[0] == first
    assert quick.sparsify.lambdas == quick.expand.lambdas
    assert (quick.seeds, quick.start) == (5, (3, 3))
    assert len(npn_moons.configurations(quick)) == 5


def test_settings_that_mix_the_directions_up_are_refused():
    with pytest.raises(BadInput, match="expand must be true in the settings of expand"):
        replace(SHORT, sparsify=EXPAND)
    with pytest.raises(BadInput, match="seeds=0 and every=5 must be at least 1"):
        replace(SHORT, seeds=0)
