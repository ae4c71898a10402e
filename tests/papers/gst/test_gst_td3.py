"""What the experiment of group-sparse training compares, on a few steps of tiny networks."""

from dataclasses import replace

import pandas as pd
import pytest

from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context, Stopped
from lib.companion.sweep.grid import Grid
from lib.papers.gst.experiments import gst_td3, online
from lib.papers.gst.experiments.gst_td3 import Blocks, Task, WindowedPruning, ramp
from lib.papers.gst.experiments.online import Evaluation
from lib.pruners.blocks import CONVERSIONS
from lib.training import td3
from tests.papers.gst.resuming import end_of

TASK = Task(
    env="InvertedPendulum-v4",
    layers=("actor.layers.1.weight",),
    seeds=2,
    steps=120,
    evaluation=Evaluation(every=40, episodes=1),
    td3=td3.TD3Settings(hidden=(8, 8), batch=16, random_steps=10, buffer=200),
    pruning=WindowedPruning(increase=0.1, every=10, initial_reward=-1.0, window=3),
    blocks=(Blocks(4, 0.25), Blocks(4, 0.25, "block4_friendly_block2")),
    starts=(0, 20),
    rewards=("training", "evaluation"),
)
*CONTROLS, BLOCKS, FRIENDLY = gst_td3.configurations(gst_td3.Settings((TASK,)))


def table(*configurations, context=None):
    rows = [row for configuration in configurations for row in gst_td3.run(configuration, context or Context())]
    return Grid("gst_td3", "quick", gst_td3, {}, "").table(rows)


@pytest.fixture(scope="module")
def controls():
    return table(*CONTROLS)


def test_single_weights_have_all_controls_and_each_gradual_run_its_rivals_average_ratio(controls):
    ways = controls.groupby(["method", "start", "reward"]).size()
    pruned = [(0, "evaluation"), (0, "training"), (20, "training")]
    assert ways.index.tolist() == [
        ("dense", 0, "none"),
        *(("gradual", *p) for p in pruned[1:]),  # the rival of pruning by training returns, as in the paper
        *(("rwp", *p) for p in pruned),
    ]
    assert (ways == 2 * 3).all()
    assert (controls[["block", "shift", "conversion"]].drop_duplicates() == [1, 0.0, "none"]).all(axis=None)
    end = controls[controls.step == 120].set_index(["method", "start", "reward", "seed"])
    assert (end.loc["dense"][["sparsity", "compression_ratio"]] == 0).all(axis=None)
    assert (end.loc["rwp"].sparsity > 0).any()
    rivals = end.loc["rwp"].drop(index="evaluation", level="reward")
    assert end.loc["gradual"].ideal_ratio.tolist() == pytest.approx(rivals.ideal_ratio.tolist(), abs=0.01)
    assert end.loc["gradual"].compression_ratio.to_numpy() == pytest.approx(
        end.loc["gradual"].ideal_ratio.to_numpy() - 64 / 104 / 16
    )  # 64 of 104 weights, a bit for each


def test_a_stack_of_later_seeds_adds_to_the_one_that_there_is():
    later = BLOCKS | {"seeds": 1, "first_seed": 1}
    mine, both = table(later).drop(columns="first_seed"), table(BLOCKS)
    both = both[both.seed == 1].drop(columns="first_seed").reset_index(drop=True)
    pd.testing.assert_frame_equal(mine, both, check_exact=True)
    earlier = {name: value for name, value in BLOCKS.items() if name != "first_seed"}
    assert (gst_td3.aliases(BLOCKS), gst_td3.aliases(later)) == ([earlier], [])
    assert gst_td3.upgrade(both).first_seed.tolist() == [0] * len(both)


def test_blocks_save_from_the_first_step():
    rows = table(BLOCKS)
    assert set(rows.method) == {"gst"}
    assert rows[["block", "shift", "conversion"]].drop_duplicates().to_numpy().tolist() == [[4, 0.25, "none"]]
    assert set(rows.reward) == {"training"}
    assert rows.ideal_ratio.min() > 64 / 104 * 0.25
    assert (rows.coefficient_ratio > rows.compression_ratio).all()
    friendly = table(FRIENDLY)
    assert set(friendly.conversion) == {"block4_friendly_block2"}
    assert friendly.ideal_ratio.min() >= 64 / 104 * 0.5  # never below what blocks of two save


def test_a_run_that_was_stopped_goes_on_to_the_same_rows(controls, tmp_path):
    done = []

    class Impatient(Context):
        def report_progress(self, label):
            self.done += 1
            done.append(self.done)
            if self.done in self.stops:
                raise Stopped

    late = CONTROLS[2]
    for stops in ((1,), (2,), (5,)):
        context = Impatient("cpu", tmp_path)
        context.stops = stops
        with pytest.raises(Stopped):
            gst_td3.run(late, context)
    context.done, context.stops = 0, ()
    mine = controls[(controls.start == 20)].reset_index(drop=True)
    pd.testing.assert_frame_equal(table(late, context=context), mine, check_exact=True)
    assert gst_td3.units(late) == done[-1] == 2 * 3
    assert gst_td3.units(CONTROLS[0]) == gst_td3.units(BLOCKS) == 3


def test_the_last_evaluation_is_still_there_after_a_stop_behind_it(tmp_path):
    """Killed at step 40, where it was measured; the chance to prune that asks for it is at step 60."""
    judged = BLOCKS | {"reward": "evaluation", "pruning": BLOCKS["pruning"] | {"every": 30}}
    rows, whole = end_of(gst_td3, online, judged, tmp_path / "whole", None)
    assert max(row["sparsity"] for row in rows) > 0
    assert end_of(gst_td3, online, judged, tmp_path / "killed", 1) == (rows, whole)


def test_each_reward_is_tried_from_the_first_start_and_each_start_with_the_first_reward():
    asked = [(one["start"], one["reward"]) for one in (*CONTROLS, BLOCKS, FRIENDLY)]
    pruned = [(0, "training"), (20, "training"), (0, "evaluation")]
    assert asked == [(0, "none"), *pruned, (0, "training"), (0, "training")]


def test_a_ramp_has_the_average_it_was_made_for():
    schedule = ramp(0.3, begin=100, steps=1000, end=0.5, pruning=WindowedPruning(every=50))
    assert sum(schedule.target(step) for step in range(1, 1001)) / 1000 == pytest.approx(0.3)
    assert schedule.target(499) < schedule.target(500) == schedule.target(1000)
    assert schedule.target(99) == 0
    assert ramp(0.9, 0, 1000, 0.5, WindowedPruning(every=50, limit=0.9)).final == 0.9


def test_the_settings_of_all_scales_are_as_the_issue_asks():
    scales = {
        scale: build(gst_td3.Settings, settings.read("gst_td3", scale), f"{scale}.gst_td3").tasks
        for scale in ("quick", "real", "paper")
    }
    (quick,), (real, later) = scales["quick"], scales["real"]
    assert [(one.block, one.conversion) for one in quick.blocks] == [(2, "none"), (4, "none")]
    assert (real.env, real.layers) == ("HalfCheetah-v4", ("actor.layers.1.weight",))
    assert real.seeds == 3
    assert real.steps >= 150_000
    assert {(one.block, one.shift) for one in real.blocks if one.conversion == "none"} == {(2, 0.5), (4, 0.5), (4, 1.0)}
    changed = [one for one in real.blocks if one.conversion != "none"]
    assert [(one.block, one.shift) for one in changed] == [(4, 0.5)] * 3
    assert {"none", *(one.conversion for one in changed)} == set(CONVERSIONS)
    assert real.rewards == quick.rewards == ("training", "evaluation")
    plain = tuple(one for one in real.blocks if one.conversion == "none")
    others = {"seeds": 7, "first_seed": 3, "rewards": ("training",), "blocks": later.blocks}
    assert later == replace(real, **others)
    assert set(later.blocks) == set(plain)
    half, humanoid = scales["paper"]
    assert (half.env, humanoid.env) == ("HalfCheetah-v4", "Humanoid-v4")
    assert humanoid.layers == ("actor.layers.0.weight", "actor.layers.1.weight")
    for task in scales["paper"]:
        assert (task.seeds, task.steps, task.td3, task.starts) == (5, 1_000_000, td3.TD3Settings(), (0, 200_000))
        plain = {(one.block, one.shift) for one in task.blocks if one.conversion == "none"}
        assert plain == {(block, shift) for block in (2, 4) for shift in (0.25, 0.5, 0.75, 1.0)}
        assert {one.conversion for one in task.blocks} == set(CONVERSIONS)


def test_settings_that_cannot_be_are_refused():
    for change, line in (
        ({"steps": 100}, "steps=100 must be a multiple of every=40"),
        ({"starts": (60,)}, "a ramp that ends at 0.5 of 120 steps has no pruning"),
        ({"seeds": 0}, "at least one seed"),
        ({"env": "HalfCheetah-v9"}, "environment 'HalfCheetah-v9': expected Gymnasium's name and version, such as"),
        ({"env": "HalfCheetah"}, "environment 'HalfCheetah': expected Gymnasium's name and version, such as"),
        ({"env": "CartPole-v1"}, "CartPole-v1: observations and actions must be vectors of numbers"),
        ({"layers": TASK.layers * 2}, "layers=.*: 'actor.layers.1.weight' stands there twice"),
        ({"blocks": (Blocks(1, 0.5),)}, "blocks of one weight are trained anyway"),
        ({"blocks": (Blocks(4, 1.5),)}, r"shift=1.5 is not in \[0, 1\]"),
    ):
        with pytest.raises(BadInput, match=line):
            replace(TASK, **change)


def test_pruning_begins_at_its_start():
    now, late = (CONTROLS[1] | {"start": start, "ramp": 1.0} for start in (0, 60))
    pruned = [
        max(row["sparsity"] for row in gst_td3.run(one, Context()) if row["method"] == "rwp" and row["step"] == 40)
        for one in (now, late)
    ]
    assert pruned[0] > 0 == pruned[1]


def test_what_would_train_or_prune_nothing_is_refused_before_anything_runs():
    with pytest.raises(BadInput, match="an agent that only acts by chance learns nothing"):
        replace(TASK, td3=replace(TASK.td3, random_steps=TASK.steps))
    with pytest.raises(BadInput, match="reward='x': known are training, evaluation"):
        replace(TASK, rewards=("x",))
    for change, words in (({"every": 0}, "every=0"), ({"increase": 5.0}, r"increase=5\.0")):
        with pytest.raises(BadInput, match=words):
            replace(TASK.pruning, **change)
