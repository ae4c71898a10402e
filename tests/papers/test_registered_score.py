"""A score of one's own enters the sweeps of two papers by its name alone."""

from dataclasses import asdict

import pandas as pd
import pytest
import torch

from lib import pruners
from lib.base import BadInput, build
from lib.companion.sweep.context import Context
from lib.companion.sweep.grid import Grid
from lib.papers.gst.experiments import gst_bc
from lib.papers.offline_rl.experiments import offline_rl

pytestmark = pytest.mark.usefixtures("by_chance")
NARROW = {"hidden": [16, 16], "batch": 8}
PAPER_1 = {
    "tasks": [
        {
            "env": "hopper",
            "algorithm": "plain_bc",
            "pruned": [{"pruner": "fisher", "sparsities": [0.8]}, {"pruner": "snip", "sparsities": [0.8]}],
            "seeds": 1,
            "steps": 4,
            "every": 2,
            "episodes": 1,
            "batches": 3,
            "transitions": 200,
        }
    ],
    "plain_bc": NARROW,
}
PAPER_5 = {
    "tasks": [
        {
            "env": "hopper",
            "layers": ["actor.layers.1.weight"],
            "kept": [0.25],
            "blocks": [{"block": 4, "shift": 0.5}],
            "choices": ["fisher", "snip", "magnitude"],
            "seeds": 1,
            "steps": 16,
            "every": 8,
            "episodes": 1,
            "prune_every": 2,
            "batches": 2,
            "transitions": 200,
        }
    ],
    "plain_bc": NARROW,
}


@pytest.fixture
def fisher():
    """The empirical Fisher information of each weight times its square (Theis et al. 2018); gives what it was asked."""
    asked = []

    @pruners.register(pruners.SCORES, "fisher")
    def fisher(model, loss):
        layers = {layer.name: layer for layer in pruners.prunable(model)}
        found = {name: torch.zeros_like(layer.weight) for name, layer in layers.items()}
        for one in loss:
            for name, score in pruners.snip(model, one).items():
                found[name] += score.square() / len(loss)
        asked.append(model)
        return pruners.Scores(found, layers)

    yield asked
    del pruners.SCORES["fisher"]


def table(experiment, name: str, configuration: dict) -> pd.DataFrame:
    return Grid(name, "quick", experiment, {}, "").table(experiment.run(configuration, Context()))


def test_without_it_the_name_is_refused():
    for experiment, settings, name in ((offline_rl, PAPER_1, "offline_rl"), (gst_bc, PAPER_5, "gst_bc")):
        with pytest.raises(BadInput, match="pruner 'fisher': known are dense, snip"):
            build(experiment.Settings, settings, name)


def test_it_enters_a_sweep_of_paper_1(fisher):
    (configuration,) = offline_rl.configurations(build(offline_rl.Settings, PAPER_1, "offline_rl"))
    rows = table(offline_rl, "offline_rl", configuration)
    assert set(rows.pruner) == {"dense", "fisher", "snip"}
    assert len(fisher) == 1
    end = rows[rows.step == 4].set_index("pruner")["return"]
    assert end["fisher"] != end["snip"]  # of a single batch they would rank alike
    assert end["fisher"] != end["dense"]


def test_it_enters_a_sweep_of_paper_5(fisher):
    single, blocks = gst_bc.configurations(build(gst_bc.Settings, PAPER_5, "gst_bc"))
    for configuration in (single, blocks):
        rows = table(gst_bc, "gst_bc", configuration)
        end = rows[(rows.step == 16) & (rows.choice != "none")].set_index("choice")
        assert set(end.index) == {"fisher", "snip", "magnitude"}
        assert (end.sparsity == 0.75).all()
        assert end["return"].nunique() == 3
    assert len(fisher) > 2  # scored anew at each pruning


def test_the_settings_of_a_registered_score_are_those_of_any_other(fisher):
    (configuration,) = offline_rl.configurations(build(offline_rl.Settings, PAPER_1, "offline_rl"))
    assert configuration["pruned"][0] == asdict(offline_rl.Pruned("fisher", (0.8,)))
