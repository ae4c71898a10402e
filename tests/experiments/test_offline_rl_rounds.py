"""Pruning in one round and in several, on a few random transitions of Hopper and narrow networks."""

import pandas as pd
import pytest

from lib.errors import BadInput
from lib.experiments import offline_rl
from lib.experiments import offline_rl_rounds as experiment
from lib.jobs import Job
from lib.sweep.grid import Grid
from lib.training.bc import BCSettings

pytestmark = pytest.mark.usefixtures("by_chance")
TASK = offline_rl.Task("hopper", "bc", (offline_rl.Pruned("snip", (0.8,)),), 1, 4, 2, 1, transitions=200)
NARROW = BCSettings(hidden=(24, 24), batch=8)


def rows_of(module, settings) -> pd.DataFrame:
    (configuration,) = module.configurations(settings)
    return Grid("offline_rl", "quick", module, {}, "").table(module.run(configuration, Job()))


def test_one_round_is_the_usual_sweep_and_several_prune_otherwise():
    found = rows_of(experiment, experiment.Settings((TASK,), bc=NARROW, rounds=(1, 3)))
    assert found[["pruner", "rounds", "step"]].to_numpy().tolist() == [
        [pruner, rounds, step] for pruner, rounds in (("dense", 1), ("snip", 1), ("snip", 3)) for step in (2, 4)
    ]
    usual = rows_of(offline_rl, offline_rl.Settings((TASK,), bc=NARROW))
    pd.testing.assert_frame_equal(
        found[found["rounds"] == 1][list(usual)].reset_index(drop=True), usual.reset_index(drop=True)
    )
    several = found[found["rounds"] == 3]["return"].tolist()
    assert several != usual[usual.pruner == "snip"]["return"].tolist()


@pytest.mark.parametrize("rounds", [(), (1,), (0, 1), (2, 5), (1, 5, 5)])
def test_rounds_that_compare_nothing_are_refused(rounds):
    with pytest.raises(BadInput, match="expected 1 and larger numbers to compare with it"):
        experiment.Settings((TASK,), rounds=rounds)
