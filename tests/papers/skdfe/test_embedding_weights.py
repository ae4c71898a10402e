"""The weights of the embedding terms are chosen on held-out speakers, and params.yaml holds what was chosen."""

from dataclasses import replace

import pandas as pd
import pytest

from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.data import speech
from lib.papers.skdfe.experiments import distillation, embedding_weights, skdfe
from lib.papers.skdfe.experiments.distillation import DistillationTraining

HOW = skdfe.Validation(speakers=3, seeds=2, epochs=1, mse=(0.01, 1.0), cosine=(0.1, 10.0))
TASK = skdfe.Task("synthetic", "resnet18", "resnet34", ("label", "mse"), 2, 1, DistillationTraining(9, 8, 30, 0.003))


def test_the_weight_with_the_smallest_geometric_mean_over_seeds_is_chosen():
    tried = {("mse", 0.01): (10, 20), ("mse", 0.1): (4, 40), ("cosine", 1.0): (9, 9), ("cosine", 10.0): (9, 9)}
    tried |= {("teacher", 0.0): (1, 1)}
    rows = [
        {"distillation": kind, "weight": weight, "seed": seed, "eer": eer}
        for (kind, weight), both in tried.items()
        for seed, eer in enumerate(both)
    ]
    assert embedding_weights.chosen(pd.DataFrame(rows)) == {"mse": 0.1, "cosine": 1.0}  # 12.6 against 14.1; a tie


@pytest.mark.usefixtures("on_few_voices")
def test_no_test_speaker_is_seen_and_who_is_judged_on_is_not_learned_from(monkeypatch):
    learned, judged = [], []

    def train(learner, utterances, schedule, seed, state):
        assert state is None
        learned.append({utterances[i].tobytes() for i in range(len(utterances))})
        assert schedule == replace(TASK.training, epochs=1)
        learner.eval()

    def error_rates(network, data, draws):
        judged.append({data.test[i].tobytes() for i in range(len(data.test))})
        return [{"eer": float(len(judged))}]

    monkeypatch.setattr(embedding_weights, "train", train)
    monkeypatch.setattr(embedding_weights, "error_rates", error_rates)
    found = embedding_weights.choose(skdfe.Settings(2, (TASK,), HOW))
    assert found.columns.tolist() == embedding_weights.COLUMNS
    assert found.distillation.tolist() == ["teacher", "mse", "mse", "cosine", "cosine"] * 2
    assert found[found.chosen].weight.unique().tolist() == [0.01, 0.1]  # the first tried has the smallest number here
    corpus = speech.load("synthetic")
    train_set, test_set = ({part[i].tobytes() for i in range(len(part))} for part in (corpus.train, corpus.test))
    for mine, others in zip(learned, judged, strict=True):
        assert mine | others == train_set
        assert not mine & others
        assert not others & test_set
    assert judged[0] != judged[-1]  # a seed draws the speakers too


@pytest.mark.usefixtures("on_few_voices")
def test_a_choice_that_was_stopped_goes_on_to_the_same_numbers_and_trains_nothing_twice(monkeypatch, tmp_path):
    settings = skdfe.Settings(2, (TASK,), replace(HOW, seeds=1, mse=(0.01,), cosine=(10.0,)))
    whole, trained, epochs = embedding_weights.choose(settings), distillation._epoch, []

    def epoch(learner, *others):
        if len(epochs) == 2:
            epochs.append("stopped")
            raise KeyboardInterrupt
        epochs.append(type(learner).__name__)
        return trained(learner, *others)

    monkeypatch.setattr(distillation, "_epoch", epoch)
    with pytest.raises(KeyboardInterrupt):
        embedding_weights.choose(settings, tmp_path)
    pd.testing.assert_frame_equal(embedding_weights.choose(settings, tmp_path), whole)
    assert epochs == ["Classifier", "TeacherDistilled", "stopped", "TeacherDistilled"]


@pytest.fixture
def at_the_shell(monkeypatch, tmp_path):
    """Two tasks whose sessions take no time; what is trained and written, in its order."""
    told = []
    tasks = (TASK, replace(TASK, teacher="resnet50"))
    (tmp_path / "params.yaml").write_text("{real: {skdfe: {}}}")
    monkeypatch.setattr(embedding_weights, "build", lambda *given: skdfe.Settings(2, tasks, HOW))
    monkeypatch.setattr(embedding_weights, "train", lambda *given, state: told.append(state))
    monkeypatch.setattr(embedding_weights, "error_rates", lambda *given: [{"eer": float(len(told))}])
    written = embedding_weights.write_csv
    monkeypatch.setattr(embedding_weights, "write_csv", lambda *given: (told.append(len(given[0])), written(*given)))
    words = ["--scale", "real", *(f"--{name}={tmp_path / name}" for name in ("results", "store"))]
    return told, [*words, f"--params={tmp_path / 'params.yaml'}"]


@pytest.mark.usefixtures("on_few_voices")
def test_the_table_is_written_after_each_task_and_the_store_emptied_at_the_end(at_the_shell, tmp_path):
    told, words = at_the_shell
    embedding_weights.main(words)
    assert [one for one in told if isinstance(one, int)] == [10, 20]
    assert told[10] == 10
    assert len({state for state in told if state not in (10, 20)}) == 20  # each session has a file of its own
    assert {state.parent for state in told if state not in (10, 20)} == {tmp_path / "store/real/embedding_weights"}
    assert len(pd.read_csv(embedding_weights.file_of("real", tmp_path / "results"))) == 20
    assert not (tmp_path / "store/real/embedding_weights").exists()


@pytest.mark.usefixtures("on_few_voices")
@pytest.mark.parametrize("folder", ["results", "store"])
def test_a_folder_that_takes_no_files_is_refused_before_anything_is_trained(folder, at_the_shell, tmp_path, capsys):
    told, words = at_the_shell
    (tmp_path / folder).write_text("no folder")
    with pytest.raises(SystemExit) as stop:
        embedding_weights.main(words)
    assert (stop.value.code, told) == (2, [])
    assert capsys.readouterr().err.startswith(f"embedding_weights: {tmp_path / folder}/real/")


def test_it_is_refused_when_there_is_nothing_to_choose():
    with pytest.raises(BadInput, match="the settings have no `validation`"):
        embedding_weights.choose(skdfe.Settings(2, (TASK,)))
    with pytest.raises(BadInput, match="no task distils embeddings"):
        embedding_weights.choose(skdfe.Settings(2, (replace(TASK, distillations=("label",)),), HOW))
    with pytest.raises(BadInput, match="speakers=1, seeds=2, epochs=1: expected 2 speakers"):
        replace(HOW, speakers=1)
    with pytest.raises(BadInput, match="expected weights above 0"):
        replace(HOW, mse=(0.0, 1.0))


@pytest.mark.parametrize("scale", ["quick", "real"])
def test_params_hold_what_was_chosen_with_the_settings_they_name(scale):
    path = embedding_weights.file_of(scale)
    if not path.exists():
        pytest.skip(f"nothing was chosen at scale {scale} yet")
    table = pd.read_csv(path)
    built = build(skdfe.Settings, settings.read("skdfe", scale), f"{scale}.skdfe")
    tasks = [task for task in built.tasks if task.teacher != skdfe.SELF and {"mse", "cosine"} & set(task.distillations)]
    # At the real scale nothing was chosen for eight epochs (0.1 was written before), nor for ResNet-50.
    longest = max(task.training.epochs for task in tasks)
    tasks = [task for task in tasks if task.training.epochs == longest]
    assert {task.teacher for task in tasks} == set(table.teacher) == {"resnet34"}
    for task in tasks:
        rows = table[(table.data == task.data) & (table.network == task.network) & (table.teacher == task.teacher)]
        assert embedding_weights.chosen(rows) == {"mse": task.mse, "cosine": task.cosine}
        assert rows.chosen.tolist() == [
            (kind, weight) in {("mse", task.mse), ("cosine", task.cosine)}
            for kind, weight in zip(rows.distillation, rows.weight, strict=True)
        ]
        for kind in ("mse", "cosine"):
            assert set(rows[rows.distillation == kind].weight) == set(getattr(built.validation, kind))
        assert set(rows.held_out) == {built.validation.speakers}
        assert set(rows.seed) == set(range(built.validation.seeds))


def test_tasks_that_differ_in_their_epochs_alone_are_tried_once(monkeypatch):
    asked = []

    def trials(task, how, store):
        asked.append(task)
        kinds = [("mse", weight) for weight in how.mse] + [("cosine", weight) for weight in how.cosine]
        row = {name: 0 for name in embedding_weights.COLUMNS if name != "chosen"}
        return [row | {"distillation": kind, "weight": weight, "eer": 1.0 + weight} for kind, weight in kinds]

    monkeypatch.setattr(embedding_weights, "trials_of", trials)
    longer = replace(TASK, training=replace(TASK.training, epochs=TASK.training.epochs + 5))
    embedding_weights.choose(skdfe.Settings(2, (TASK, longer), HOW))
    assert len(asked) == 1
    asked.clear()
    wider = replace(TASK, training=replace(TASK.training, frames=2 * TASK.training.frames))
    embedding_weights.choose(skdfe.Settings(2, (TASK, wider), HOW))
    assert asked == [TASK, wider]
