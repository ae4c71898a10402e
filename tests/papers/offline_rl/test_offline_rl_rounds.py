"""Pruning in one round and in several, on a few random transitions of Hopper and narrow networks."""

from dataclasses import replace

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion.sweep.context import Context
from lib.companion.sweep.grid import Grid
from lib.papers.offline_rl.experiments import offline_rl
from lib.papers.offline_rl.experiments import offline_rl_rounds as experiment
from lib.training.bc import BCSettings

pytestmark = pytest.mark.usefixtures("by_chance")
TASK = offline_rl.Task("hopper", "bc", (offline_rl.Pruned("snip", (0.8,)),), 1, 4, 2, 1, transitions=200)
NARROW = BCSettings(hidden=(24, 24), batch=8)


def rows_of(module, settings) -> pd.DataFrame:
    (configuration,) = module.configurations(settings)
    return Grid("offline_rl", "quick", module, {}, "").table(module.run(configuration, Context()))


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


def test_two_seeds_are_two_agents():
    """A seed that is not passed on would be the same agent twice."""
    settings = experiment.Settings((replace(TASK, seeds=2),), bc=NARROW, rounds=(1, 3))
    one, other = (experiment.run(configuration, Context()) for configuration in experiment.configurations(settings))
    assert [row["seed"] for row in one + other] == [0] * len(one) + [1] * len(other)
    assert [row["return"] for row in one] != [row["return"] for row in other]


def test_a_task_on_raw_observations_is_a_variant_of_its_own():
    raw = replace(TASK, variant="raw", change={"normalise": False})
    normalised, as_they_are = (
        rows_of(experiment, experiment.Settings((task,), bc=NARROW, rounds=(1, 3))) for task in (TASK, raw)
    )
    assert set(normalised.variant) == {"normalised"}
    assert set(as_they_are.variant) == {"raw"}
    assert normalised["return"].tolist() != as_they_are["return"].tolist()


@pytest.mark.parametrize("rounds", [(), (1,), (0, 1), (2, 5), (1, 5, 5)])
def test_rounds_that_compare_nothing_are_refused(rounds):
    with pytest.raises(BadInput, match="expected 1 and larger numbers to compare with it"):
        experiment.Settings((TASK,), rounds=rounds)
