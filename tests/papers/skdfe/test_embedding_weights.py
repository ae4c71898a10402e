"""The weights of the embedding terms are chosen on held-out speakers, and params.yaml holds what was chosen."""

from dataclasses import replace

import pandas as pd
import pytest

from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.data import speech
from lib.papers.skdfe.experiments import embedding_weights, skdfe
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

    def train(learner, utterances, schedule, seed):
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
    assert tasks
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
