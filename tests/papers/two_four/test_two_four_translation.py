"""Laws of the translation experiment: what is pruned in which variant, its rows, stopping without a trace."""

from dataclasses import replace

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion.sweep.context import Context, Stopped
from lib.papers.two_four.experiments import two_four_translation as experiment
from lib.papers.two_four.measures import difference
from lib.training.steps import StepTraining
from tests.papers.stopping import StoppedAt
from tests.papers.two_four.quantising import watched

TASK = experiment.Task(
    data="numbers",
    network="small_transformer",
    pieces=120,
    longest=10,
    seeds=2,
    training=StepTraining(steps=4, every=2, batch=4, learning_rate=0.003),
)
CONFIGURATION = experiment.configurations(experiment.Settings((TASK,)))[0]


@pytest.fixture(scope="module")
def context():
    return Context()


@pytest.fixture(scope="module")
def runs(context):
    return pd.DataFrame(experiment.run(CONFIGURATION, context), columns=experiment.COLUMNS)


@pytest.mark.parametrize("change", [{"network": "gnmt"}, {"data": "wmt14"}])
def test_a_task_of_nothing_known_is_refused(change):
    with pytest.raises(BadInput, match=next(iter(change))):
        replace(TASK, **change)


def test_each_variant_has_its_rows_and_bleu_at_the_end_of_its_session(runs):
    assert not runs.duplicated(experiment.INDEX).any()
    steps = runs.groupby("variant").step.agg(list).to_dict()
    ends = {"dense_twice_int8": [8], "sparse_int8": [8], "sparse_int8_entropy": [8]}
    assert steps == {"dense": [2, 4], "dense_twice": [6, 8], "pruned": [4], "sparse": [6, 8]} | ends
    told = runs.step.isin([4, 8])
    assert runs.bleu[told].between(0, 100).all()
    assert runs.bleu[~told].isna().all()
    assert runs.nats.gt(0).all()


def test_what_is_pruned_stays_so_and_the_table_of_embeddings_is_dense(runs):
    found = runs.groupby("variant").sparsity.agg(["min", "max"])
    pruned = found.index.str.startswith(("pruned", "sparse"))
    assert (found[~pruned] == 0).all(axis=None)
    blocks, table = 28672, 120 * 32
    assert found[pruned].to_numpy() == pytest.approx(blocks / 2 / (blocks + table))


def test_progress_is_reported_as_often_as_foretold(context, runs):
    assert context.done == experiment.units(CONFIGURATION)


def test_a_run_that_was_stopped_ends_with_the_same_rows(tmp_path, runs):
    with pytest.raises(Stopped):
        experiment.run(CONFIGURATION, StoppedAt(folder=tmp_path, units=3))
    again = pd.DataFrame(experiment.run(CONFIGURATION, Context(folder=tmp_path)), columns=experiment.COLUMNS)
    pd.testing.assert_frame_equal(again, runs)


def test_the_recurrent_translator_goes_through_it_too():
    short = replace(TASK, network="small_recurrent", training=replace(TASK.training, steps=1, every=1))
    rows = experiment.run(experiment.configurations(experiment.Settings((short,)))[0], Context())
    assert len(rows) == 7


def test_difference_of_bleu_is_between_ends_of_sessions(runs):
    ends = runs[runs.step == 8].set_index("variant").bleu
    expected = ends["sparse"] - ends["dense_twice"]
    found = difference(runs, "sparse", "dense_twice", "bleu")
    assert found == {"numbers/small_transformer": {0: pytest.approx(expected)}}


def test_int8_is_calibrated_as_its_name_says_and_the_quantised_network_is_what_is_measured():
    with watched(experiment) as made:
        rows = experiment.run(CONFIGURATION, Context())
    named = [row["variant"] for row in rows if "int8" in row["variant"]]
    assert named == ["dense_twice_int8", "sparse_int8", "sparse_int8_entropy"]
    assert [entry["methods"] for entry in made] == [{"max"}, {"max"}, {"entropy"}]
    assert all(entry["answers"] for entry in made)
