"""What the experiment of group-sparse behaviour cloning compares, on a few random transitions of Hopper."""

from dataclasses import replace

import pandas as pd
import pytest

from lib import pruners
from lib.base import BadInput
from lib.companion.sweep.context import Context, Stopped
from lib.companion.sweep.grid import Grid
from lib.papers.gst.experiments import gst_bc as experiment
from lib.papers.gst.experiments.gst_bc import Grouping, Task
from lib.training.bc import PlainBCSettings

pytestmark = pytest.mark.usefixtures("by_chance")
TASK = Task(
    env="hopper",
    layers=("actor.layers.1.weight",),
    kept=(0.125,),
    blocks=(Grouping(2, 0.5), Grouping(4, 1.0)),
    seeds=2,
    steps=16,
    every=8,
    episodes=1,
    prune_every=2,
    choices=("magnitude", "snip"),
    batches=2,
    transitions=200,
)
NARROW = PlainBCSettings(hidden=(8, 8), batch=8)
SINGLE, RELEASED, HELD = experiment.configurations(experiment.Settings((TASK,), NARROW))


def table(configuration: dict, context: Context | None = None) -> pd.DataFrame:
    rows = experiment.run(configuration, context or Context())
    return Grid("gst_bc", "quick", experiment, {}, "").table(rows)


def test_all_ways_end_with_as_many_numbers():
    for configuration, block, sparsity in ((SINGLE, 1, 0.875), (RELEASED, 1, 0.875), (HELD, 4, 0.5)):
        rows = table(configuration)
        end = rows[(rows.step == 16) & (rows.choice != "none")]
        assert set(end.choice) == {"magnitude", "snip"}
        assert set(end.seed) == {0, 1}
        assert (end.sparsity == sparsity).all()
        assert ((1 - end.sparsity) / block == end.kept).all()


def test_as_many_distinct_values_are_left_as_kept_says(monkeypatch: pytest.MonkeyPatch):
    """Counted in the weights themselves: after a release each weight that is left is a number of its own."""
    agents, callback = [], experiment.GroupSparseCallback
    watched = lambda agent, *more: agents.append(agent) or callback(agent, *more)  # noqa: E731
    monkeypatch.setattr(experiment, "GroupSparseCallback", watched)
    for configuration, dense in ((SINGLE, [64, 64]), (RELEASED, []), (HELD, [16, 16])):
        experiment.run(configuration, Context())
        (weight,) = (one.weight for one in pruners.prunable(agents[-1].networks) if one.name == TASK.layers[0])
        distinct = [len(set(own[own != 0].tolist())) for own in weight.detach()]
        assert distinct == dense + [0.125 * 64] * 4, configuration


def test_pruning_ends_with_the_ramp():
    (single, *_) = experiment.configurations(experiment.Settings((replace(TASK, ramp=0.5),), NARROW))
    rows = table(single)
    assert set(rows[rows.choice != "none"].groupby("step").sparsity.min().items()) == {(8, 0.875), (16, 0.875)}


def test_two_seeds_are_two_agents():
    """A seed that is not passed on would be the same agent twice."""
    rows = table(RELEASED)
    one, other = (rows[rows.seed == seed]["return"].tolist() for seed in (0, 1))
    assert len(one) == len(other) > 0
    assert one != other


def test_dense_agents_are_with_single_weights_and_blocks_alone_with_those_held():
    dense, alone = (table(c)[lambda rows: rows.choice == "none"] for c in (SINGLE, HELD))
    assert set(dense.kept) == {1.0}
    assert set(alone.kept) == {0.25}
    assert (dense.sparsity == 0).all()
    assert (alone.sparsity == 0).all()
    share = 64 / (11 * 8 + 64 + 8 * 3)  # the middle layer of Hopper's 11-8-8-3
    assert alone.ideal_ratio.to_numpy() == pytest.approx(0.75 * share)
    assert "none" not in set(table(RELEASED).choice)


def test_a_run_that_was_stopped_goes_on_to_the_same_rows(tmp_path):
    class Impatient(Context):
        def report_progress(self, label):
            self.done += 1
            if self.done == 1 and not list(tmp_path.iterdir()):
                raise Stopped

    with pytest.raises(Stopped):
        table(HELD, Impatient(folder=tmp_path))
    pd.testing.assert_frame_equal(table(HELD, Context(folder=tmp_path)), table(HELD))


def test_what_cannot_be_is_refused():
    for change, line in (
        ({"kept": (0.3,)}, "blocks of 4 cannot be pruned to kept=0.3"),
        ({"kept": (1.0,)}, "blocks of 1 cannot be pruned to kept=1.0"),
        ({"blocks": (Grouping(1, 0.5),)}, "single weights are trained anyway"),
        ({"blocks": (Grouping(4, 1.5),)}, r"shift=1.5 is not in \[0, 1\]"),
        ({"prune_every": 9}, "a ramp that ends at 0.5 of 16 steps has no pruning"),
        ({"every": 5}, "steps=16 a multiple of every=5"),
        ({"source": "hearsay"}, "offline data 'hearsay': known are"),
        ({"batches": 0}, "at least 1"),
        ({"kept": (0.125, 0.125)}, "kept=.*: 0.125 stands there twice"),
        ({"choices": ("snip", "random", "snip")}, "choices=.*: 'snip' stands there twice"),
        ({"layers": TASK.layers * 2}, "layers=.*: 'actor.layers.1.weight' stands there twice"),
    ):
        with pytest.raises(BadInput, match=line):
            replace(TASK, **change)
