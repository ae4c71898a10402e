"""Laws of the detection experiment: what its variants have in common, masks that stay, and stopping without a trace."""

from dataclasses import replace

import pandas as pd
import pytest

from lib import pruners
from lib.base import BadInput
from lib.companion.sweep.context import Context, Stopped
from lib.data.canvases import CanvasLayout
from lib.models.detector import Detector, small_backbone
from lib.papers.two_four.experiments import two_four_detection as experiment
from lib.papers.two_four.experiments.two_phases import FineTuning
from lib.papers.two_four.measures import fewer_canvases, precision
from lib.training.supervised import Training
from tests.papers.two_four.quantising import watched

TASK = experiment.Task(
    data="digits",
    network="small_detector",
    layout=CanvasLayout(32, 10, 20, 1, 2),
    canvases=(4, 8),
    tested=3,
    seeds=2,
    first=Training(epochs=1, batch=256, learning_rate=0.05),
    second=FineTuning(epochs=1, batch=4, learning_rate=0.002),
)
CONFIGURATION = experiment.configurations(experiment.Settings((TASK,)))[0]
DENSE = ["dense", "dense_both", "dense_second", "dense_second_int8", "dense_second_int8_max"]
SPARSE = ["pruned_second", "sparse_both", "sparse_second", "sparse_second_int8", "sparse_second_int8_max"]


@pytest.fixture(scope="module")
def context():
    return Context()


@pytest.fixture(scope="module")
def rows(context):
    return experiment.run(CONFIGURATION, context)


@pytest.fixture(scope="module")
def runs(rows):
    return pd.DataFrame(rows, columns=experiment.COLUMNS)


@pytest.mark.parametrize("change", [{"network": "yolo"}, {"data": "coco"}, {"canvases": (3, 3)}])
def test_a_task_of_nothing_known_is_refused(change):
    with pytest.raises(BadInput, match=next(iter(change))):
        replace(TASK, **change)


def test_every_variant_has_its_rows(runs):
    assert sorted(runs[runs.phase == 1].variant) == ["dense", "dense_twice", "pruned", "sparse"]
    second = runs[runs.phase == 2]
    assert not second.duplicated(experiment.INDEX).any()
    for _, mine in second.groupby("canvases"):
        assert sorted(mine.variant) == sorted(DENSE + SPARSE)
    assert second.precision.between(0, 100).all()


def test_steps_are_of_the_canvases_there_are(runs):
    ends = runs[runs.phase == 2].set_index(["canvases", "variant"]).step
    assert (ends[4, "dense"], ends[4, "dense_second"], ends[8, "dense"], ends[8, "sparse_both"]) == (1, 2, 2, 4)


def test_all_sparse_networks_are_as_sparse(runs):
    found = runs[runs.phase == 2].groupby("variant").sparsity.agg(["min", "max"])
    assert (found.loc[DENSE] == 0).all(axis=None)
    expected = pruners.sparsity(experiment.masked_copy(Detector(small_backbone(), 16), MASKS))
    assert found.loc[SPARSE].to_numpy() == pytest.approx(expected)
    assert expected == pytest.approx(0.5, abs=0.002)


MASKS = pruners.two_four(Detector(small_backbone(), 16))


def test_masks_are_of_all_but_the_first_convolution_or_of_the_backbone_alone():
    names = [layer.name for layer in pruners.prunable(Detector(small_backbone(), 16))]
    assert list(MASKS) == names[1:]
    inside = pruners.two_four(Detector(small_backbone(), 16), "backbone")
    assert list(inside) == [name for name in names[1:] if name.startswith("backbone")]


def test_precision_is_compared_in_points_at_the_end_of_phase_2():
    key = {"data": "mnist", "network": "detector", "phase": 2, "seed": 0}
    table = pd.DataFrame(
        [
            key | {"variant": variant, "canvases": count, "step": step, "precision": value}
            for variant, step, values in (("sparse", 16, (30.0, 52.0)), ("twice", 16, (40.0, 50.0)))
            for count, value in zip((10, 90), values, strict=True)
        ]
    )
    assert precision(table, "sparse", "twice", "all") == {"mnist/detector": {0: 2.0}}
    assert precision(table, "sparse", "twice", "fewest") == {"mnist/detector": {0: -10.0}}
    assert list(precision(table, "sparse", "twice")) == ["mnist/detector/10 canvases", "mnist/detector/90 canvases"]
    assert fewer_canvases(table, "sparse", "twice") == {"mnist/detector": {0: -12.0}}
    with pytest.raises(BadInput, match="canvases='some': known are fewest, all"):
        precision(table, "sparse", "twice", "some")


def test_progress_is_reported_as_often_as_foretold(context, rows):
    assert context.done == experiment.units(CONFIGURATION)


def test_a_run_that_was_stopped_ends_with_the_same_rows(tmp_path, rows):
    class Short(Context):
        def check(self):
            if self.done in (2, 9):
                raise Stopped

    context = Short(folder=tmp_path)
    for done in (0, 4):
        context.done = done  # the second time it has been told of what was done before
        with pytest.raises(Stopped):
            experiment.run(CONFIGURATION, context)
    pd.testing.assert_frame_equal(
        pd.DataFrame(experiment.run(CONFIGURATION, Context(folder=tmp_path))), pd.DataFrame(rows)
    )


def test_int8_is_calibrated_as_its_name_says_and_the_quantised_network_is_what_is_measured():
    with watched(experiment) as made:
        rows = experiment.run(CONFIGURATION | {"canvases": (4,)}, Context())
    named = [row["variant"] for row in rows if "int8" in row["variant"]]
    assert [entry["methods"] for entry in made] == [{"max"} if name.endswith("max") else {"entropy"} for name in named]
    assert len(named) == 4
    assert all(entry["answers"] for entry in made)
