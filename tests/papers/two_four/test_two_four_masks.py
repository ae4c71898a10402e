"""Laws of the experiment with outlines: its variants, what is pruned in them, how far it has come."""

import pandas as pd
import pytest

from lib.companion.sweep.context import Context
from lib.data.canvases import CanvasLayout
from lib.papers.two_four.experiments import two_four_detection
from lib.papers.two_four.experiments import two_four_masks as experiment
from lib.papers.two_four.experiments.two_four_detection import Task
from lib.papers.two_four.experiments.two_phases import FineTuning
from lib.papers.two_four.measures import precision
from lib.training.supervised import Training
from tests.papers.two_four.quantising import watched

TASK = Task(
    data="digits",
    network="small_detector",
    layout=CanvasLayout(32, 10, 20, 1, 2),
    canvases=(4,),
    tested=3,
    seeds=1,
    first=Training(epochs=1, batch=256, learning_rate=0.05),
    second=FineTuning(epochs=2, batch=4, learning_rate=0.002),
)
CONFIGURATION = experiment.configurations(experiment.Settings((TASK,)))[0]


@pytest.fixture(scope="module")
def context():
    return Context()


@pytest.fixture(scope="module")
def runs(context):
    return pd.DataFrame(experiment.run(CONFIGURATION, context), columns=experiment.COLUMNS)


def test_the_variants_are_those_that_repeat_phase_2_and_each_has_both_precisions(runs):
    assert not runs.duplicated(experiment.INDEX).any()
    second = runs[runs.phase == 2]
    of_both = ["", "_int8", "_int8_max"]
    expected = {"dense", "pruned_second", *(f"{one}_second{int8}" for one in ("dense", "sparse") for int8 in of_both)}
    assert set(second.variant) == expected
    assert second[["mask_precision", "precision"]].notna().all(axis=None)
    assert runs[runs.phase == 1].accuracy.notna().all()


def test_the_head_that_draws_is_pruned_too(runs):
    second = runs[runs.phase == 2].set_index("variant").sparsity
    pruned = second.index.str.startswith(("pruned", "sparse"))
    assert (second[~pruned] == 0).all()
    assert second[pruned].between(0.49, 0.5).all()


def test_progress_is_reported_as_often_as_foretold(context, runs):
    assert context.done == experiment.units(CONFIGURATION)


def test_a_measure_reads_the_precision_of_outlines(runs):
    ends = runs[(runs.phase == 2) & (runs.step == 4)].set_index("variant").mask_precision
    found = precision(runs, "sparse_second", "dense_second", "all", "mask_precision")
    assert found == {"digits/small_detector": {0: pytest.approx(ends["sparse_second"] - ends["dense_second"])}}


def test_int8_is_calibrated_as_its_name_says_and_the_quantised_network_is_what_is_measured():
    with watched(two_four_detection) as made:
        rows = experiment.run(CONFIGURATION, Context())
    named = [row["variant"] for row in rows if "int8" in row["variant"]]
    assert [entry["methods"] for entry in made] == [{"max"} if name.endswith("max") else {"entropy"} for name in named]
    assert len(named) == 4
    assert all(entry["answers"] for entry in made)
