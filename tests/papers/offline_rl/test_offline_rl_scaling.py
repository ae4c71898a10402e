"""Scaled observations and observations as they are, on a few random transitions of Hopper and narrow networks."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from lib.base import BadInput
from lib.companion.sweep.context import Context
from lib.companion.sweep.grid import Grid
from lib.data import offline_rl as source
from lib.papers.offline_rl.experiments import offline_rl
from lib.papers.offline_rl.experiments import offline_rl_scaling as experiment
from lib.training.agents import Scale
from lib.training.bc import BCSettings, PlainBCSettings

pytestmark = pytest.mark.usefixtures("by_chance")
NARROW = {"bc": BCSettings(hidden=(24, 24), batch=8), "plain_bc": PlainBCSettings(hidden=(24, 24), batch=8)}
PRUNED = (offline_rl.Pruned("snip", (0.8,)), offline_rl.Pruned("random", (0.8,)))


def task(algorithm: str) -> offline_rl.Task:
    return offline_rl.Task("hopper", algorithm, PRUNED, seeds=1, steps=4, every=2, episodes=1, transitions=200)


def table(configuration: dict) -> pd.DataFrame:
    return Grid("offline_rl_scaling", "quick", experiment, {}, "").table(experiment.run(configuration, Context()))


def of(algorithm: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of observations as they are, and of scaled ones."""
    raw, scaled = experiment.configurations(experiment.Settings((task(algorithm),), **NARROW))
    assert (raw["scaled"], scaled["scaled"]) == (False, True)
    return table(raw), table(scaled)


def usual(algorithm: str) -> pd.DataFrame:
    (configuration,) = offline_rl.configurations(offline_rl.Settings((task(algorithm),), **NARROW))
    rows = offline_rl.run(configuration, Context())
    return Grid("offline_rl", "quick", offline_rl, {}, "").table(rows)


def test_the_usual_sweep_is_one_of_the_two_by_its_setting():
    for algorithm in experiment.ACTING:
        number = int(NARROW[algorithm].normalise)
        found = of(algorithm)
        columns = [name for name in experiment.INDEX if name != "scaled"] + ["return"]
        returns = [rows[columns] for rows in found]
        expected = usual(algorithm)[columns]
        pd.testing.assert_frame_equal(returns[number], expected)
        assert not returns[1 - number]["return"].equals(expected["return"])


@pytest.mark.parametrize("algorithm", experiment.ACTING)
def test_a_score_does_not_see_what_is_small_and_chance_does_not_care(algorithm, monkeypatch):
    bundle = source.load("recorded", "hopper")
    large = bundle.observations * np.array([1] * 5 + [1000] * 6, np.float32)
    monkeypatch.setattr(source, "load", lambda *where: replace(bundle, observations=large))
    raw, scaled = (rows.groupby("pruner").unseen.first() for rows in of(algorithm))
    assert raw["dense"] == scaled["dense"] == 0
    assert raw["snip"] >= 4 > 1 >= scaled["snip"]
    assert raw["random"] == scaled["random"] == 0


def test_unseen_counts_observations_and_neither_latents_nor_units():
    (raw, _) = experiment.configurations(experiment.Settings((task("bc"),), **NARROW))
    data = offline_rl.transitions(raw, "cpu")
    agent = offline_rl.build("bc", "hopper", data, [0, 0], raw["settings"])
    with torch.no_grad():
        first = agent.networks["decoder"].layers[0].weight  # [run, out, 11 observations and 6 latents]
        first[0, :, [2, 7, 13]] = 0
        first[1, 3] = 0
    assert experiment.unseen(agent, "decoder", 11) == [2, 0]


def test_scaled_data_have_mean_0_and_deviation_1_and_a_policy_sees_them():
    data = offline_rl.transitions(
        {"source": "recorded", "env": "hopper", "quality": "expert", "transitions": 200}, "cpu"
    )
    scale = Scale.of(data.observations)
    scaled = scale.data(data)
    torch.testing.assert_close(scaled.observations.mean(0), torch.zeros(11), rtol=0, atol=1e-4)
    torch.testing.assert_close(scaled.observations.std(0, correction=0), torch.ones(11), rtol=0, atol=0.1)
    assert torch.equal(scaled.next_observations, scale(data.next_observations))
    seen = data.observations[:6].reshape(2, 3, 11).numpy()
    found = scale.policy(lambda observations: 2 * observations)(seen)
    np.testing.assert_allclose(found, 2 * scaled.observations[:6].reshape(2, 3, 11).numpy(), rtol=1e-6)
    assert found.dtype == np.float32


def test_an_algorithm_that_is_not_scaled_is_refused():
    with pytest.raises(BadInput, match="algorithm 'bcq': observations are scaled for bc, plain_bc"):
        experiment.Settings((task("bcq"),))
