"""Laws of `lib.training.frechet`: closed forms, an independent square root of a matrix, features as they enter."""

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from torch import nn

from lib.base import BadInput
from lib.training.frechet import features, frechet, moments

DRAW = torch.Generator().manual_seed(0)


def test_moments_are_those_of_numpy():
    values = torch.randn(50, 4, generator=DRAW)
    mean, covariance = moments(values)
    assert mean.numpy() == pytest.approx(values.double().numpy().mean(0))
    assert covariance.numpy() == pytest.approx(np.cov(values.double().numpy().T))


def test_of_a_single_feature_the_covariance_is_a_matrix_too():
    values = torch.tensor([[1.0], [3.0], [8.0]])
    assert [part.tolist() for part in moments(values)] == [[4.0], [[13.0]]]
    assert frechet(moments(values), moments(values + 2)) == pytest.approx(4)


def test_of_one_dimension_it_is_the_difference_of_means_and_of_deviations_squared():
    one = (torch.tensor([1.0]).double(), torch.tensor([[4.0]]).double())
    other = (torch.tensor([4.0]).double(), torch.tensor([[25.0]]).double())
    assert frechet(one, other) == pytest.approx((4 - 1) ** 2 + (5 - 2) ** 2)


@pytest.mark.parametrize("samples", [6, 200])  # with 6 the covariances are singular
def test_it_agrees_with_the_square_root_of_the_product(samples):
    one, other = (moments(torch.randn(samples, 8, generator=DRAW) @ torch.randn(8, 8, generator=DRAW)) for _ in "ab")
    root = sqrtm((one[1] @ other[1]).numpy() + (1e-9 if samples < 8 else 0) * np.eye(8)).real
    expected = float((one[0] - other[0]).square().sum() + (one[1] + other[1]).trace()) - 2 * np.trace(root)
    assert frechet(one, other) == pytest.approx(expected, rel=1e-3 if samples < 8 else 1e-9)


def test_it_is_zero_between_equals_and_the_same_both_ways():
    one, other = (moments(torch.randn(40, 5, generator=DRAW)) for _ in "ab")
    assert frechet(one, one) == pytest.approx(0, abs=1e-10)
    assert frechet(one, other) == pytest.approx(frechet(other, one))


def test_features_are_what_enters_the_layer_whatever_the_batches():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 7), nn.ReLU(), nn.Linear(7, 2))
    images = torch.randn(10, 3, 2, 2, generator=DRAW)
    expected = network[:3](images)
    for batch in (3, 100):
        assert torch.allclose(features(network, images, "3", batch), expected, atol=1e-6)
    assert not network[3]._forward_pre_hooks


def test_bad_input_is_named():
    with pytest.raises(BadInput, match="at least two images"):
        moments(torch.zeros(1, 4))
    with pytest.raises(BadInput, match=r"features of shape \[3, 0\]"):
        moments(torch.zeros(3, 0))
    with pytest.raises(BadInput, match="not finite"):
        moments(torch.tensor([[1.0], [float("nan")]]))
    with pytest.raises(BadInput, match="no layer 'fc9'; the network has 0, 1"):
        features(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), torch.zeros(2, 1, 2, 2), "fc9")


def test_a_layer_that_is_never_called_is_refused_by_name():
    class Net(nn.Sequential):
        def forward(self, x):
            return self[0](x)

    with pytest.raises(BadInput, match="layer '1' is there and is never called"):
        features(Net(nn.Flatten(), nn.Linear(4, 2)), torch.zeros(3, 1, 2, 2), "1")
