"""Laws of `lib.training.examples` that need no network: how inputs are scaled, and what is no example."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib.base import BadInput
from lib.training.examples import IMAGENET, Examples


def test_what_no_network_can_learn_from_is_refused_by_name():
    rows, labels = np.array([[0.0, 1], [2, 0], [1, 3]], np.float32), np.arange(3)

    def of(**others):
        whole = {"train_inputs": rows, "train_labels": labels, "test_inputs": rows, "test_labels": labels}
        return Examples.of(SimpleNamespace(**whole | others))

    for bad in (np.nan, np.inf):
        with pytest.raises(BadInput, match="train_inputs hold numbers that are NaN or infinite"):
            of(train_inputs=np.where(rows == 3, bad, rows).astype(np.float32))
        with pytest.raises(BadInput, match="test_inputs hold numbers that are NaN or infinite"):
            of(test_inputs=np.where(rows == 3, bad, rows).astype(np.float32))
    for wrong in (labels - 1, labels + 0.5, labels[:, None]):
        with pytest.raises(BadInput, match="test_labels: expected one whole number from 0 on for each input"):
            of(test_labels=wrong)
    with pytest.raises(BadInput, match=r"a test input has shape \(3,\), one to train on has \(2,\)"):
        of(test_inputs=np.zeros((3, 3), np.float32))
    assert of(train_labels=labels.astype(np.int32)).train_labels.dtype == torch.int64


def test_images_are_scaled_by_the_means_and_deviations_that_everyone_uses():
    """As fractions of white they are printed in every training script for ImageNet."""
    shares = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    np.testing.assert_allclose(IMAGENET, 255 * np.array(shares))
