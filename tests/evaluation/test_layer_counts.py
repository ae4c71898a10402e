"""Measures on networks as they are: what the rule leaves, by the shapes the papers' networks have; permutation."""

import pandas as pd
import pytest

from lib.errors import BadInput
from lib.evaluation import layers
from lib.evaluation.layers import changed_by_permutation, left_dense


@pytest.mark.parametrize("network", ["resnet34", "resnet50"])
def test_only_the_first_convolution_of_an_imagenet_resnet_is_left(network: str):
    """Its inner dimension is 7 x 7 x 3 = 147; all others are multiples of 64, so for 8 bits it is the same one."""
    assert left_dense(network, 16) == left_dense(network, 8) == 1


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

    layers_permute = layers.permute
    monkeypatch.setattr(layers, "permute", unfinished)
    assert changed_by_permutation("resnet20") > 1e-3


def test_a_network_without_channels_to_permute_says_nothing(monkeypatch: pytest.MonkeyPatch):
    permute = layers.permute
    monkeypatch.setattr(layers, "permute", lambda model, inputs, search: permute(model, inputs, [], search))
    with pytest.raises(BadInput, match="no channel of resnet20 can be permuted"):
        changed_by_permutation("resnet20")


def test_the_last_layer_is_held_against_the_fullest_other_and_between_pruners():
    kept = {("snip", 0): [9, 4, 20], ("snip", 1): [30, 4, 20], ("grasp", 0): [9, 4, 25], ("grasp", 1): [9, 4, 15]}
    rows = [
        ("r", "hopper", pruner, 0.95, seed, "actor", layer, share)
        for (pruner, seed), shares in kept.items()
        for layer, share in enumerate(shares, 1)
    ]
    rows.append(("r", "hopper", "snip", 0.5, 0, "actor", 1, 99))
    runs = pd.DataFrame(rows, columns=["data", "env", "pruner", "sparsity", "seed", "network", "layer", "kept"])
    assert layers.lead_of_last(runs, "snip", 0.95) == {"r/hopper/actor": {0: 11, 1: -10}}
    assert layers.spread(runs, "snip", 0.95) == {"r/hopper/actor": {0: 16, 1: 26}}
    assert layers.last_kept_more(runs, "grasp", "snip", 0.95) == {"r/hopper/actor": {0: 5, 1: -5}}


def test_patterns_are_alike_when_layers_stand_in_the_same_order():
    kept = {"snip": (9, 4, 20), "grasp": (3, 2, 1)}
    rows = [
        ("r", "hopper", pruner, 0.95, seed, "actor", layer, share if seed else 10 * layer)
        for seed in (0, 1)
        for pruner, shares in kept.items()
        for layer, share in enumerate(shares, 1)
    ]
    rows.append(("r", "hopper", "snip", 0.5, 0, "actor", 1, 99))
    runs = pd.DataFrame(rows, columns=["data", "env", "pruner", "sparsity", "seed", "network", "layer", "kept"])
    found = layers.same_pattern(runs, "snip", "grasp", 0.95)
    # ranks 2 1 3 and 3 2 1: 1 - 6 (1 + 1 + 4) / (3 (9 - 1)) = -0.5
    assert found == {"r/hopper/actor": {0: pytest.approx(1), 1: pytest.approx(-0.5)}}
    assert layers.same_pattern(runs[runs.pruner == "snip"], "snip", "grasp", 0.95) == {}
    assert layers.same_pattern(runs, "snip", "grasp", 0.5) == {}
