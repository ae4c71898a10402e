"""Laws of the variants of paper 2: which rows each gives, how masks are made, that a second session trains a copy."""

from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.companion.sweep.context import Context
from lib.papers.two_four.experiments.variants import Variants
from lib.pruners.sizes import flops
from lib.training.examples import Examples
from lib.training.supervised import Training, accuracy, train


@pytest.fixture
def variants():
    """20 + 12 random points of 4 features and 2 classes, two epochs a session."""
    points, labels = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32), np.arange(32) % 2
    parts = {"train_inputs": points[:20], "train_labels": labels[:20]}
    examples = Examples.of(SimpleNamespace(**parts, test_inputs=points[20:], test_labels=labels[20:]))
    return Variants(
        {"network": "line", "seed": 5}, examples, Training(2, batch=8, learning_rate=0.1), 5, Context(), flops
    )


def test_each_row_has_the_key_the_epoch_the_accuracy_the_sizes_and_what_is_added(variants):
    model = nn.Linear(4, 2)
    pruners.attach(model, {"weight": torch.tensor([[True, True, False, False], [True, False, False, True]])})
    variants.record("sparse", model, [50.0, 75.0], 3, kept=80.0)
    same = {"network": "line", "seed": 5, "variant": "sparse", "sparsity": 0.5, "flops": 8, "kept": 80.0}
    assert variants.rows == [same | {"epoch": 3, "accuracy": 50.0}, same | {"epoch": 4, "accuracy": 75.0}]


def test_those_of_a_configuration_have_its_data_settings_and_seed_and_count_as_they_are_told():
    training = Training(3, batch=8, learning_rate=0.1)
    configuration = {"data": "digits", "network": "line", "seed": 5, "training": asdict(training)}
    variants = Variants.of(configuration, ("data", "seed"), Context(), lambda model, shape: 7 * len(shape))
    assert (variants.key, variants.settings, variants.seed) == ({"data": "digits", "seed": 5}, training, 5)
    assert (len(variants.examples.train_labels), variants.examples.shape) == (1297, (1, 8, 8))
    variants.record("dense", nn.Linear(4, 2), [50.0], 1)
    assert variants.rows[0]["flops"] == 21


def test_what_is_pruned_is_a_copy_recorded_as_it_is_after_the_first_session(variants):
    model = nn.Linear(4, 2)
    before = model.weight.detach().clone()
    mask = torch.tensor([[True, True, False, False]] * 2)
    variants.pruned("pruned", model, {"weight": mask}, kept=60.0)
    assert torch.equal(model.weight, before)
    assert not pruners.attached(model)
    with torch.no_grad():
        model.weight.mul_(mask)
    (row,) = variants.rows
    assert row["accuracy"] == accuracy(model, variants.examples)
    assert (row["variant"], row["epoch"], row["sparsity"], row["kept"]) == ("pruned", 2, 0.5, 60.0)
    assert variants.context.done == 0


def test_a_second_session_trains_a_copy_under_its_masks_on_other_batches_for_later_epochs(variants):
    first = nn.Linear(4, 2)
    before = first.weight.detach().clone()
    mask = torch.tensor([[True, True, False, False]] * 2)
    again = variants.again("sparse", first, {"weight": mask})
    assert torch.equal(first.weight, before)
    assert not pruners.attached(first)
    assert torch.equal(again.weight != 0, mask)
    assert [row["epoch"] for row in variants.rows] == [3, 4]
    assert variants.context.done == 2
    pruners.attach(first, {"weight": mask})
    train(first, variants.examples, variants.settings, seed=5, session=1)
    assert torch.equal(first.weight, again.weight)


def test_a_session_is_kept_under_the_name_of_its_variant(variants, tmp_path):
    variants.context.folder = tmp_path
    model = nn.Linear(4, 2)
    assert variants.session("dense", model, number=0, before=0) is model
    assert (tmp_path / "dense.pt").exists()
    assert [row["epoch"] for row in variants.rows] == [1, 2]


def test_masks_are_half_of_the_layers_that_the_rule_names_by_any_score_and_pattern(variants):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4), nn.Linear(4, 16))  # the last layer does not fit
    inputs = torch.randn(5, 16)
    loss = lambda model: model(inputs).square().mean()  # noqa: E731
    expected = {
        ("magnitude", "two_four"): pruners.two_four(model),
        ("random", "two_four"): pruners.n_of_m(pruners.random(model, 7).only(["0.weight", "1.weight"])),
        ("snip", "two_four"): pruners.n_of_m(pruners.snip(model, loss).only(["0.weight", "1.weight"])),
        ("magnitude", "unstructured"): pruners.unstructured(
            pruners.magnitude(model).only(["0.weight", "1.weight"]), 0.5
        ),
    }
    for names, masks in expected.items():
        found = variants.prune(model, *names, loss, 7)
        assert list(found) == ["0.weight", "1.weight"]
        assert all(torch.equal(found[name], mask) for name, mask in masks.items())
    assert pruners.attached(model) == {}
    with pytest.raises(BadInput, match="score 'obd': known are snip"):
        variants.prune(model, "obd")
