"""Laws of `lib.training.variants`: which rows a variant gives, and that a second session trains a copy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.jobs import Job
from lib.training.examples import Examples
from lib.training.supervised import Training, train
from lib.training.variants import Variants


@pytest.fixture
def variants():
    """20 + 12 random points of 4 features and 2 classes, two epochs a session."""
    points, labels = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32), np.arange(32) % 2
    parts = {"train_inputs": points[:20], "train_labels": labels[:20]}
    examples = Examples.of(SimpleNamespace(**parts, test_inputs=points[20:], test_labels=labels[20:]))
    return Variants({"network": "line", "seed": 5}, examples, Training(2, batch=8, learning_rate=0.1), 5, Job())


def test_each_row_has_the_key_the_epoch_the_accuracy_the_sizes_and_what_is_added(variants):
    model = nn.Linear(4, 2)
    pruners.attach(model, {"weight": torch.tensor([[True, True, False, False], [True, False, False, True]])})
    variants.record("sparse", model, [50.0, 75.0], 3, kept=80.0)
    same = {"network": "line", "seed": 5, "variant": "sparse", "sparsity": 0.5, "flops": 8, "kept": 80.0}
    assert variants.rows == [same | {"epoch": 3, "accuracy": 50.0}, same | {"epoch": 4, "accuracy": 75.0}]


def test_a_second_session_trains_a_copy_under_its_masks_on_other_batches_for_later_epochs(variants):
    first = nn.Linear(4, 2)
    before = first.weight.detach().clone()
    mask = torch.tensor([[True, True, False, False]] * 2)
    again = variants.again("sparse", first, {"weight": mask})
    assert torch.equal(first.weight, before)
    assert not pruners.attached(first)
    assert torch.equal(again.weight != 0, mask)
    assert [row["epoch"] for row in variants.rows] == [3, 4]
    assert variants.job.done == 2
    pruners.attach(first, {"weight": mask})
    train(first, variants.examples, variants.settings, seed=5, session=1)
    assert torch.equal(first.weight, again.weight)


def test_a_session_is_kept_under_the_name_of_its_variant(variants, tmp_path):
    variants.job.folder = tmp_path
    model = nn.Linear(4, 2)
    assert variants.session("dense", model, number=0, before=0) is model
    assert (tmp_path / "dense.pt").exists()
    assert [row["epoch"] for row in variants.rows] == [1, 2]
