"""What the experiment on players compares, on a few steps of the project's own game."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context, Stopped
from lib.companion.sweep.grid import Grid
from lib.models.game_player import ActorCritic, PlayerSizes
from lib.papers.gst.experiments import gst_games as experiment
from lib.papers.gst.experiments.algorithm import share
from lib.papers.gst.experiments.gst_games import Task, begun, layers
from lib.papers.gst.experiments.methods import Blocks, RewardPruning
from lib.pruners import attached, groups, prunable
from lib.training.actor_critic import ActorCriticSettings
from lib.training.vector_games import film
from tests.papers.gst.resuming import end_of
from tests.papers.stopping import StoppedAt

TASK = Task(
    env="bricks",
    seeds=1,
    steps=480,
    every=120,
    learner=ActorCriticSettings(games=4, steps=5, frames=2, network=PlayerSizes((4, 8), (3, 3), (2, 1), 8)),
    pruning=RewardPruning(increase=0.3, every=2, initial_reward=-1.0),
    methods=("dense", "rwp"),
    blocks=(Blocks(2, 1.0), Blocks(4, 0.25)),
    window=5,
)
DENSE, RWP, HELD, RELEASED = experiment.configurations(experiment.Settings((TASK,)))


def table(configuration, context=None):
    return Grid("gst_games", "quick", experiment, {}, "").table(experiment.run(configuration, context or Context()))


def test_each_way_saves_what_it_should_and_dense_nothing():
    dense, rwp, held, released = (table(one) for one in (DENSE, RWP, HELD, RELEASED))
    assert (dense[["sparsity", "compression_ratio", "ideal_ratio"]] == 0).all(axis=None)
    part = dense.share.iloc[0]
    assert rwp.sparsity.iloc[-1] >= 0.3
    assert held.ideal_ratio.min() >= 0.5 * part
    assert (held.phase == 0).all()
    assert released.phase.iloc[-1] == 1
    assert dense.games.iloc[-1] > 0


def test_first_layer_and_heads_stay_dense():
    network = ActorCritic(4, 84, 4)
    assert layers(network) == ("convolutions.1.weight", "convolutions.2.weight", "hidden.weight")
    assert 100 * share(network, layers(network)) == pytest.approx(99, abs=0.5)  # section 4.4
    trainer, algorithm = begun(HELD)
    while trainer.updates < 8:
        trainer.update()
    assert set(groups.tables(trainer.network)) == set(attached(trainer.network)) == set(layers(trainer.network))
    gone = {layer.name: float((layer.weight == 0).float().mean()) for layer in prunable(trainer.network)}
    assert all((gone[name] > 0) == (name in layers(trainer.network)) for name in gone)
    assert algorithm.sparsity[0] > 0


def test_the_reward_is_the_mean_score_at_each_chance_to_prune():
    trainer, algorithm = begun(HELD)
    for _ in range(7):
        trainer.update()
        if trainer.updates % 2 == 0:
            measured = trainer.earned(5)
        assert trainer.updates < 2 or algorithm.rewards == [measured]


def test_the_last_row_has_a_game_of_the_trained_agent_that_can_be_played_again():
    rows = table(RELEASED)
    assert rows.buttons.iloc[:-1].isna().all()
    kept = rows.buttons.iloc[-1]
    assert set(kept) == set("abc")
    trainer, _ = begun(RELEASED)
    before = experiment.buttons(trainer)
    while trainer.steps < TASK.steps:
        trainer.update()
    state = str(trainer.state_dict())
    assert experiment.buttons(trainer) == kept != before
    assert str(trainer.state_dict()) == state  # to be watched changes nothing
    seen = []

    def act(frames: np.ndarray) -> int:
        seen.append(frames[-1].copy())
        return trainer.choose(frames, draws)

    draws = np.random.default_rng(experiment.FILM_SEED)
    _, earned = film(act, "bricks", [experiment.FILMED], experiment.FILM_SEED, 2)
    assert len(seen) == len(kept)
    steps = len(kept) - 1
    (picture,), points = experiment.replay(kept, "bricks", [steps])
    np.testing.assert_array_equal(picture, seen[steps])
    assert points == earned  # the last step loses the last ball
    with pytest.raises(BadInput, match=f"{steps + 1} buttons are kept, so times may be 0 to {steps + 1}, not 900"):
        experiment.replay(kept, "bricks", [0, 900])


@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_that_was_stopped_goes_on_to_the_same_rows(stop, tmp_path):
    with pytest.raises(Stopped):
        table(RELEASED, StoppedAt(folder=tmp_path, units=stop))
    pd.testing.assert_frame_equal(table(RELEASED, Context(folder=tmp_path)), table(RELEASED), check_exact=True)


def test_the_last_reward_is_still_there_after_a_stop_behind_it(tmp_path):
    """Chances to prune at updates 9 and 18, killed at 18: the rest of the 24 updates report no reward."""
    rarely = RELEASED | {"pruning": RELEASED["pruning"] | {"every": 9}, "prune_every": 9}
    rows, whole = end_of(experiment, experiment, rarely, tmp_path / "whole", None)
    assert whole["rewards"][0] > -np.inf
    assert end_of(experiment, experiment, rarely, tmp_path / "killed", 3) == (rows, whole)


def test_the_settings_of_all_scales_are_those_of_reference_33_as_far_as_they_can():
    def tasks(scale):
        return build(experiment.Settings, settings.read("gst_games", scale), scale).tasks

    assert {task.env for task in tasks("quick")} == {"bricks"}
    for scale in ("real", "paper"):
        breakout, *_, other = tasks(scale)
        assert (breakout.env, breakout.learner.learner, other.learner.learner) == ("breakout", "a2c", "ppo")
        assert replace(breakout.learner, precision="float32") == ActorCriticSettings()
        assert Blocks(2, 1.0) in breakout.blocks
        assert other.blocks == (Blocks(4, 1.0),)
        assert min(breakout.seeds, other.seeds) >= 3
    assert tasks("real")[0].steps == 2_500_000


def test_what_cannot_be_is_refused():
    for change, line in (
        ({"every": 110}, "bricks: every=110 must be a multiple of 20, and steps=480 of it"),
        ({"methods": ("gradual",)}, "methods: 'gradual' is unknown; known are dense, rwp"),
        ({"blocks": (Blocks(1, 1.0),)}, "blocks of one weight are trained anyway"),
        ({"blocks": (), "methods": ()}, "bricks: neither methods nor blocks are listed, so there is nothing to train"),
        ({"pruning": RewardPruning(every=25)}, "every=25 is beyond the training's 24 updates: nothing is pruned"),
    ):
        with pytest.raises(BadInput, match=line):
            replace(TASK, **change)


def test_one_dense_agent_serves_all_rhythms():
    slower = replace(TASK, methods=("rwp",), blocks=(), pruning=replace(TASK.pruning, every=3))
    found = experiment.configurations(experiment.Settings((TASK, slower)))
    assert [one["prune_every"] for one in found] == [0, 2, 2, 2, 3]
    assert found[0] == experiment.configurations(experiment.Settings((replace(TASK, pruning=slower.pruning),)))[0]
    assert set(table(DENSE).prune_every) == {0}
    assert set(table(RWP).prune_every) == {2}


def test_rows_from_before_the_rhythm_was_a_column_are_of_the_first_one():
    rows = table(RWP).drop(columns="prune_every")
    assert (experiment.upgrade(rows).prune_every == experiment.FIRST_EVERY).all()
    assert (experiment.upgrade(table(DENSE).drop(columns="prune_every")).prune_every == 0).all()
    assert experiment.upgrade(table(RWP)).equals(table(RWP))


def test_the_reward_is_over_the_latest_games_of_the_window():
    trainer, _ = begun(HELD)
    asked = []
    trainer.earned = lambda window: asked.append(window) or 1.0
    for _ in range(4):
        trainer.update()
    assert asked == [5, 5]
