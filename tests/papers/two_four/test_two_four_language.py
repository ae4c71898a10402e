"""Laws of the language experiment: what its variants have in common, masks that stay, and stopping without a trace."""

from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch

from lib import pruners
from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context, Stopped
from lib.data import text
from lib.models.transformer import small_decoder
from lib.papers.two_four.experiments import two_four_language as experiment
from lib.papers.two_four.experiments import two_phases
from lib.papers.two_four.experiments.two_phases import FineTuning, block_masks
from lib.training.steps import StepTraining
from tests.papers.stopping import StoppedAt
from tests.papers.two_four.quantising import watched

TASK = experiment.Task(
    data="grammar",
    network="small_decoder",
    window=32,
    each=20,
    seeds=2,
    first=StepTraining(steps=6, every=2, batch=4, learning_rate=0.003),
    second=FineTuning(epochs=1, batch=16, learning_rate=0.002),
    amounts=(experiment.Amount(16, draws=2), experiment.Amount(None)),
)
CONFIGURATION = experiment.configurations(experiment.Settings((TASK,)))[0]
SECOND = ["dense", "dense_first", "dense_second", "pruned_second", "sparse_first", "sparse_second"]


@pytest.fixture(scope="module")
def context():
    return Context()


@pytest.fixture(scope="module")
def rows(context):
    return experiment.run(CONFIGURATION, context)


@pytest.fixture(scope="module")
def runs(rows):
    return pd.DataFrame(rows, columns=experiment.COLUMNS)


@pytest.mark.parametrize(
    "change", [{"network": "gpt"}, {"data": "hamlet"}, {"amounts": (experiment.Amount(3), experiment.Amount(3))}]
)
def test_a_task_of_nothing_known_is_refused(change):
    with pytest.raises(BadInput, match=next(iter(change))):
        replace(TASK, **change)


def test_a_task_without_seeds_is_refused_and_not_dropped():
    (task,) = settings.read("two_four_language", "quick")["tasks"]
    with pytest.raises(BadInput, match="seeds: expected at least 1, found 0"):
        build(experiment.Settings, {"tasks": [task, task | {"seeds": 0}]}, "two_four_language")


def test_amounts_and_fine_tuning_that_cannot_be_are_refused():
    for labels, draws in ((0, 1), (5, 0)):
        with pytest.raises(BadInput, match=f"labels={labels}, draws={draws}"):
            experiment.Amount(labels, draws)
    for change in ({"epochs": 0}, {"batch": 0}, {"learning_rate": 0.0}):
        with pytest.raises(BadInput, match=next(iter(change))):
            replace(TASK.second, **change)


def test_each_row_is_told_from_the_others_and_the_job_hears_of_each_unit(runs, context):
    assert not runs.duplicated(list(experiment.INDEX)).any()
    assert context.done == experiment.units(CONFIGURATION) == 3 * 3 + 3 * 5


def test_phase_1_has_its_steps_and_bits_of_the_last_tenth_at_each_end(runs):
    first = runs[runs.phase == 1].set_index("variant")
    steps = {variant: mine.step.tolist() for variant, mine in first.groupby("variant")}
    assert steps == {"dense": [2, 4, 6], "pruned": [6], "dense_twice": [8, 10, 12], "sparse": [8, 10, 12]}
    ended = first[first.step % 6 == 0]
    assert ended.bits.notna().all()
    assert first[first.step % 6 != 0].bits.isna().all()
    assert first.accuracy.isna().all()


def test_phase_2_has_every_variant_for_every_draw_of_labels(runs):
    second = runs[runs.phase == 2]
    found = {key: sorted(mine.variant) for key, mine in second.groupby(["labels", "draw"])}
    all_of_them = len(text.passages(text.load("grammar"), 32, 20).labels["train"])
    quantised = sorted([*SECOND, "dense_first_int8", "sparse_first_int8"])
    assert found == {(16, 0): SECOND, (16, 1): SECOND, (all_of_them, 0): quantised}
    assert second.accuracy.between(0, 100).all()
    assert second.bits.isna().all()


def test_fewer_labels_are_fewer_steps(runs):
    dense = runs[(runs.phase == 2) & (runs.variant == "dense")]
    assert dict(zip(dense.labels, dense.step, strict=True)) == {16: 1, 100: 7}
    twice = runs[(runs.phase == 2) & (runs.variant == "sparse_second")]
    assert dict(zip(twice.labels, twice.step, strict=True)) == {16: 2, 100: 14}


def test_half_of_the_blocks_weights_are_gone_wherever_it_says_so(runs):
    for (phase, variant), mine in runs.groupby(["phase", "variant"]):
        pruned = variant.startswith(("pruned", "sparse"))
        head = 32 * (26 if phase == 1 else 5)  # dense, and a weight too
        expected = 0.5 * 24_576 / (24_576 + head) if pruned else 0.0
        assert mine.sparsity.tolist() == pytest.approx([expected] * len(mine)), variant


def test_a_repeated_session_keeps_the_mask_and_trains_the_rest(monkeypatch):
    trained = {}
    monkeypatch.setattr(two_phases, "share_right", lambda model, tokens, labels: 0.0)
    record = two_phases.Draws._record

    def keep(self, variant, model, *more):
        trained[variant] = {layer.name: layer.weight.clone() for layer in pruners.prunable(model)}
        record(self, variant, model, *more)

    monkeypatch.setattr(two_phases.Draws, "_record", keep)
    torch.manual_seed(0)
    dense = small_decoder(26, 32)
    sparse = small_decoder(26, 32)
    masks = block_masks(sparse)
    pruners.attach(sparse, masks)
    passages = text.passages(text.load("grammar"), 32, 20)
    phase = two_phases.SecondPhase(passages, TASK.second, 0, Context())
    phase.compare({"dense": dense, "dense_twice": dense, "sparse": sparse}, 16, 0)
    for name, mask in masks.items():
        assert torch.equal(trained["sparse_first"][name] != 0, mask)  # phase 1's pattern
        pattern = trained["pruned_second"][name] != 0
        assert torch.equal(trained["sparse_second"][name] != 0, pattern)  # phase 2's own
        assert not torch.equal(pattern, mask)
        assert not torch.equal(trained["sparse_second"][name], trained["pruned_second"][name])
        largest = trained["dense"][name].abs().reshape(-1, 4).topk(2).indices.sort().values
        assert torch.equal(pattern.reshape(-1, 4).nonzero()[:, 1].reshape(-1, 2), largest)


def test_variants_of_one_draw_see_the_same_labels_heads_and_batches(monkeypatch):
    """From equal models of phase 1, dense and dense_first are equal to the last bit."""
    torch.manual_seed(0)
    model = small_decoder(26, 32)
    phase = two_phases.SecondPhase(text.passages(text.load("grammar"), 32, 20), TASK.second, 0, Context())
    rows = phase.compare({"dense": model, "dense_twice": model, "sparse": model}, 16, 0)
    of = {row["variant"]: row["accuracy"] for row in rows}
    assert of["dense"] == of["dense_first"] == of["sparse_first"]
    draws = [two_phases.Draws(phase, 16, draw) for draw in (0, 1)]
    assert not torch.equal(draws[0].tokens, draws[1].tokens)


def test_more_labels_than_there_are_is_refused():
    phase = two_phases.SecondPhase(text.passages(text.load("grammar"), 32, 20), TASK.second, 0, Context())
    with pytest.raises(BadInput, match="labels=101: there are 100 passages to learn from"):
        phase.compare({}, 101, 0)


@pytest.mark.parametrize("units", [5, 13, 20])
def test_a_run_that_was_stopped_ends_with_the_same_rows(rows, tmp_path, units):
    with pytest.raises(Stopped):
        experiment.run(CONFIGURATION, StoppedAt(folder=tmp_path, units=units))
    again = Context(folder=tmp_path)
    found = experiment.run(CONFIGURATION, again)
    assert repr(found) == repr(rows)
    assert again.done == experiment.units(CONFIGURATION)
    assert not list(tmp_path.glob("second_*.pt"))


def test_settings_are_built_from_what_params_hold():
    content = asdict(TASK) | {"amounts": [{"labels": 16, "draws": 2}, {"labels": None}]}
    assert build(experiment.Settings, {"tasks": [content]}, "quick") == experiment.Settings((TASK,))


@pytest.mark.parametrize("damage", [b"", b"[]"])
def test_kept_rows_that_were_altered_are_computed_again(tmp_path, capsys, damage):
    context, calls = Context(folder=tmp_path), []
    compare = lambda: calls.append(1) or [{"accuracy": 71.25}]  # noqa: E731
    for _ in range(2):
        assert two_phases.kept_rows(context, "second", 1, compare) == [{"accuracy": 71.25}]
    assert len(calls) == 1
    (tmp_path / "second.rows").write_bytes(damage)
    assert two_phases.kept_rows(context, "second", 1, compare) == [{"accuracy": 71.25}]
    assert len(calls) == 2
    assert "second.rows is damaged" in capsys.readouterr().err


def test_int8_is_calibrated_by_entropy_and_the_quantised_network_is_what_is_measured():
    with watched(two_phases) as made:
        rows = experiment.run(CONFIGURATION, Context())
    assert len(made) == sum("int8" in row["variant"] for row in rows) > 0
    assert all(entry["methods"] == {"entropy"} and entry["answers"] for entry in made)
