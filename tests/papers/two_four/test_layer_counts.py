"""Measures on networks as they are: what the rule leaves, by the shapes the papers' networks have; permutation."""

import pytest

from lib.base import BadInput
from lib.papers.two_four import measures
from lib.papers.two_four.measures import changed_by_permutation, left_dense, parameters_left


@pytest.mark.parametrize("network", ["resnet34", "resnet50"])
def test_only_the_first_convolution_of_an_imagenet_resnet_is_left(network: str):
    """Its inner dimension is 7 x 7 x 3 = 147; all others are multiples of 64, so for 8 bits it is the same one."""
    assert left_dense(network, 16) == left_dense(network, 8) == 1


def test_half_of_all_but_the_first_layer_and_the_vectors_is_left():
    """ResNet-50 has 25,557,032 parameters, 9,408 in its first convolution, 53,120 in norms and 1,000 biases."""
    assert parameters_left("resnet50") == pytest.approx(100 * (1 - (25557032 - 9408 - 53120 - 1000) / 2 / 25557032))


def test_an_unknown_network_is_refused():
    with pytest.raises(BadInput, match="known are resnet20, resnet34, resnet50"):
        left_dense("resnet7")


def test_a_permutation_changes_nothing_but_an_unfinished_one_would(monkeypatch: pytest.MonkeyPatch):
    assert changed_by_permutation("resnet20") < 1e-12

    def unfinished(model, inputs, search):
        """Columns of one layer move, what arrives there does not."""
        permuted, report = layers_permute(model, inputs, search=search)
        permuted.load_state_dict(model.state_dict())
        weight = permuted.blocks[0].conv2.weight
        weight.data = weight.data.flip(1)
        return permuted, report

    layers_permute = measures.permute
    monkeypatch.setattr(measures, "permute", unfinished)
    assert changed_by_permutation("resnet20") > 1e-3


def test_a_network_without_channels_to_permute_says_nothing(monkeypatch: pytest.MonkeyPatch):
    permute = measures.permute

    def nothing_moved(*given, **named):
        permuted, report = permute(*given, **named)
        return permuted, report.assign(permuted=False)

    monkeypatch.setattr(measures, "permute", nothing_moved)
    with pytest.raises(BadInput, match="no channel of resnet20 can be permuted"):
        changed_by_permutation("resnet20")
