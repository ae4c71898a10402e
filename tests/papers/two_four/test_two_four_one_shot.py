"""Laws of `two_four_one_shot`: its rows, what each pruned copy keeps, and the same calibration data for all."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.companion.sweep.context import Context
from lib.data import vision
from lib.papers.two_four import measures
from lib.papers.two_four.experiments import two_four_one_shot as experiment
from lib.papers.two_four.experiments.two_four_one_shot import METHODS, Task, digest, kinds, quality
from lib.training import language
from lib.training.steps import StepTraining
from lib.training.supervised import Training

SMALL = {"seeds": 1, "calibrated": 64, "repeats": 2, "proposals": 1000}
IMAGES = Task("digits", "small_resnet", **SMALL, training=Training(1, batch=64, learning_rate=0.05))
TEXT = Task("grammar", "small_decoder", **SMALL, window=32, first=StepTraining(100, 100, 16, 0.003))


def ran(task: Task) -> tuple[pd.DataFrame, dict]:
    """The rows of the one seed, and its networks by (method, pattern, order)."""
    models, prune = {}, experiment.pruned

    def watch(model: nn.Module, method: str, pattern: str, trained: experiment.Trained) -> nn.Module:
        found = prune(model, method, pattern, trained)
        models.setdefault((method, pattern), []).append(found)
        return found

    def not_rounded(model: nn.Module, batches: list[torch.Tensor]) -> nn.Module:
        calibrated.append(batches)
        return model  # int8 itself, which takes seconds, has tests of its own

    data, context, calibrated = vision.load("digits"), Context(), []
    few = {name: getattr(data, name)[:200] for name in ("train_inputs", "train_labels", "test_inputs", "test_labels")}
    configuration = experiment.configurations(experiment.Settings((task,)))[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "pruned", watch)
        patch.setattr(experiment.calibration, "simulated", not_rounded)
        patch.setattr(vision, "load", lambda name: replace(data, **few))
        rows = experiment.run(configuration, context)
    assert experiment.units(configuration) == context.done
    assert all(batches is calibrated[0] for batches in calibrated)
    return pd.DataFrame(rows, columns=list(experiment.COLUMNS)), models


@pytest.fixture(scope="module", params=[IMAGES, TEXT], ids=["images", "text"])
def one_shot(request) -> tuple[pd.DataFrame, dict]:
    return ran(request.param)


def test_there_is_a_row_for_every_method_pattern_and_order(one_shot):
    rows, _ = one_shot
    found = list(rows[["method", "pattern", "order"]].itertuples(index=False, name=None))
    assert found == [("dense", "none", "as trained"), *kinds()]
    assert len(found) == 1 + 3 * 3 + 3 * 2
    assert rows.notna().all().all()
    assert rows.int8_bits.equals(rows.bits)  # of what `simulated` gave, here the network itself


def test_every_pruned_copy_has_half_of_the_same_layers_and_its_pattern(one_shot):
    rows, models = one_shot
    assert rows.sparsity[0] == 0
    assert rows.sparsity[1:].between(0.4, 0.55).all()  # SparseGPT also empties the columns of inputs that are always 0
    layers = {tuple(sorted(pruners.attached(model))) for found in models.values() for model in found}
    assert len(layers) == 1
    for (_, pattern), found in models.items():
        for model in found:
            for name, mask in pruners.attached(model).items():
                matrix = pruners.layers.as_matrix(mask)
                if pattern == "50 %":
                    assert float(matrix.float().mean()) == pytest.approx(0.5, abs=1e-3), name
                else:
                    n, m = map(int, pattern.split(":"))
                    assert (matrix.reshape(-1, m).sum(1) == n).all(), name


def test_repeated_pruning_gives_the_same_masks(one_shot):
    rows, models = one_shot
    assert (rows.masks == 1).all()
    assert len(models["wanda", "2:4"]) == SMALL["repeats"] + 1  # and once permuted


def test_sparsegpt_loses_fewest_bits_of_a_text(one_shot):
    """On average over patterns: a single one of such small networks may differ."""
    rows, _ = one_shot
    if rows.data[0] == "grammar":
        bits = rows.groupby("method").bits.mean()
        assert bits["dense"] < bits["sparsegpt"] < bits["magnitude"]


def test_quality_is_that_of_the_language_loop_on_whole_windows():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(7, 8), nn.Linear(8, 7))
    text = torch.randint(7, (1 + 5 * 16,))
    batches = [(text[:-1].view(5, 16), text[1:].view(5, 16))]
    found = quality(model, batches)
    assert found["bits"] == pytest.approx(language.bits(model, text, 16), rel=1e-6)
    right = (model(text[:-1]).argmax(1) == text[1:]).float().mean()
    assert found["accuracy"] == pytest.approx(100 * float(right))


def test_a_digest_tells_masks_apart():
    masks = {"a": torch.tensor([[True, False]]), "b": torch.tensor([[False, True]])}
    assert digest(masks) == digest(dict(reversed(masks.items())))
    assert digest(masks) != digest({"a": masks["b"], "b": masks["a"]})


def test_measures_pair_by_seed():
    rows = []
    for seed, extra in ((0, 0.0), (1, 0.5)):
        for method, bits in (("dense", 1.0), ("magnitude", 3.0), ("wanda", 2.0 + extra)):
            kind = {
                "data": "d",
                "network": "n",
                "seed": seed,
                "method": method,
                "pattern": "2:4",
                "order": "as trained",
            }
            rows.append({**kind, "bits": bits, "accuracy": 90.0, "int8_accuracy": 89.0 - extra, "masks": 1 + seed})
    runs = pd.DataFrame(rows)
    wanda, blind = ({"method": name, "pattern": "2:4"} for name in ("wanda", "magnitude"))
    assert measures.one_shot(runs, wanda, blind) == {"d/n": {0: -1.0, 1: -0.5}}
    assert measures.int8_after(runs, "wanda", "2:4") == {"d/n": {0: -1.0, 1: -1.5}}
    assert measures.different_masks(runs) == {"d/n": {0: 1.0, 1: 2.0}}
    runs.loc[0, "masks"] = 5  # the most of all ways
    assert measures.different_masks(runs)["d/n"][0] == 5
    epochs = pd.DataFrame({"data": "d", "network": "n", "seed": 0, "variant": "v", "epoch": [2, 1, 3]})
    assert measures.settling(epochs.assign(flips=[1.0, 4.0, 0.5]), "v") == {"d/n": {0: 0.125}}
    with pytest.raises(BadInput, match="a mask of v flips nothing in its first epoch"):
        measures.settling(epochs.assign(flips=[1.0, 0.0, 0.5]), "v")
    both = pd.concat([epochs.assign(flips=[1.0, 4.0, 1.0]), epochs.assign(variant="w", flips=[1.0, 1.0, 0.0])])
    assert measures.mean_flips(both, "v", "w")["d/n"][0] == pytest.approx(2 - 2 / 3)


def test_a_task_is_of_images_or_of_a_text():
    with pytest.raises(BadInput, match="expected training"):
        Task("digits", "small_resnet", **SMALL)
    with pytest.raises(BadInput, match="expected training"):
        replace(IMAGES, window=32)
    with pytest.raises(BadInput, match="network"):
        replace(TEXT, network="small_resnet")
    assert np.array_equal(METHODS, ["magnitude", "wanda", "sparsegpt"])


def test_rows_from_before_a_text_could_choose_its_precision_are_those_of_float32():
    now = experiment.configurations(experiment.Settings((TEXT,)))[0]
    assert "precision" in now["first"]
    earlier = {name: value for name, value in now["first"].items() if name != "precision"}
    assert experiment.aliases(now) == [now | {"first": earlier}]
    assert experiment.aliases(now | {"first": now["first"] | {"precision": "bfloat16"}}) == []
    assert experiment.aliases(experiment.configurations(experiment.Settings((IMAGES,)))[0]) == []
