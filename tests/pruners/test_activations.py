"""Laws of pruned inputs: which numbers stay, along which axis, what learns, and that a freed model is as before."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.pruners import activations


def by_sorting(x: torch.Tensor, n: int, m: int) -> torch.Tensor:
    """The same along the last axis, group by group, with Python's stable sort."""
    rows = []
    for group in x.reshape(-1, m).tolist():
        stay = sorted(range(m), key=lambda place: -abs(group[place]))[:n]
        rows.append([value if place in stay else 0.0 for place, value in enumerate(group)])
    return torch.tensor(rows).reshape(x.shape)


@pytest.mark.parametrize(("n", "m"), [(2, 4), (1, 4), (1, 2), (4, 8)])
def test_the_largest_magnitudes_of_each_group_stay_and_of_equal_ones_the_first(n, m):
    x = torch.randint(-3, 4, (5, 7, 16), generator=torch.Generator().manual_seed(n + m)).float()
    assert torch.equal(activations.largest(x, n, m), by_sorting(x, n, m))


def test_what_is_infinite_and_goes_is_zero():
    x = torch.tensor([[float("inf"), -float("inf"), float("inf"), 1.0]])
    assert activations.largest(x, 2, 4).tolist() == [[float("inf"), -float("inf"), 0.0, 0.0]]


def test_a_linear_multiplies_by_what_is_left_along_its_inputs():
    layer, x = nn.Linear(16, 3), torch.randn(5, 2, 16)
    expected = F.linear(by_sorting(x, 2, 4), layer.weight, layer.bias)
    activations.prune(layer)
    assert torch.equal(layer(x), expected)
    assert torch.equal(layer(input=x), expected)


@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_multiplies_by_what_is_left_of_the_channels_at_each_position(groups):
    layer, x = nn.Conv2d(32, 8, 3, padding=1, groups=groups), torch.randn(2, 32, 5, 6)
    left = by_sorting(x.movedim(1, -1), 2, 4).movedim(-1, 1)
    expected = F.conv2d(left, layer.weight, layer.bias, padding=1, groups=groups)
    activations.prune(layer)
    assert torch.equal(layer(x), expected)


def test_gradients_reach_what_stays_alone():
    x = torch.tensor([[1.0, -4.0, 3.0, 2.0]], requires_grad=True)
    activations.largest(x, 2, 4).sum().backward()
    assert x.grad.tolist() == [[0.0, 1.0, 1.0, 0.0]]


def network() -> nn.Sequential:
    """Of three layers the second and third fit: the first sums nine products a channel."""
    torch.manual_seed(0)
    body = nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    return nn.Sequential(*body)


def test_by_default_the_layers_of_the_workflow_are_pruned_a_copy_too_and_the_state_is_the_same():
    model, x = network(), torch.randn(4, 1, 6, 6)
    before, names = model(x), list(model.state_dict())
    hidden = model[1](model[0](x))
    hidden = model[3](model[2](by_sorting(hidden.movedim(1, -1), 2, 4).movedim(-1, 1)))
    expected = model[5](by_sorting(hidden.flatten(1), 2, 4))
    assert not torch.equal(expected, before)
    activations.prune(model)
    assert torch.allclose(model(x), expected, atol=1e-6)
    assert torch.equal(copy.deepcopy(model)(x), model(x))
    assert list(model.state_dict()) == names
    activations.release(model)
    assert torch.equal(model(x), before)


def test_a_second_call_replaces_the_first_and_masks_hold_beside_it():
    layer, x = nn.Linear(16, 3), torch.randn(5, 16)
    activations.prune(layer, 1, 4)
    activations.prune(layer, 3, 4)
    pruners.attach(layer, pruners.two_four(layer))
    assert torch.equal(layer(x), F.linear(by_sorting(x, 3, 4), layer.weight, layer.bias))
    assert ((layer.weight != 0).sum(1) == 8).all()


def test_layers_that_do_not_fit_are_left_out_with_a_word_or_refused_by_name():
    model = nn.Sequential(nn.Conv2d(2, 4, (4, 2)), nn.Conv2d(4, 4, 4))  # sums of 16 and 64, over 2 and 4 channels
    with pytest.warns(pruners.LeftOut, match=r"0\.weight.*2 channels, which 4 does not divide"):
        activations.prune(model)
    assert [len(layer._forward_pre_hooks) for layer in model] == [0, 1]
    with pytest.raises(BadInput, match=r"0\.weight cannot be pruned 2:4: a product sums over 2 channels"):
        activations.prune(model, select=["0.weight"])
    with pytest.raises(BadInput, match="inside an LSTM"):
        activations.prune(nn.LSTM(16, 16))
    with pytest.raises(BadInput, match="n must be at least 1 and smaller than m"):
        activations.prune(nn.Linear(16, 4), 4, 4)


def test_a_layer_that_shares_its_weight_is_refused():
    model = nn.ModuleList([nn.Linear(16, 16), nn.Linear(16, 16)])
    model[1].weight = model[0].weight
    with pytest.raises(BadInput, match="another layer shares its weight"):
        activations.prune(model)


def test_padded_examples_that_torchs_encoder_nests_are_pruned_one_by_one():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1).eval()
    x, filling = torch.randn(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    activations.prune(model, select=["layers.0.linear1.weight", "layers.0.linear2.weight"])
    with torch.no_grad():
        together = model(x, src_key_padding_mask=filling)
        alone = model(x[1:, :3])
    torch.testing.assert_close(together[1:, :3], alone, atol=1e-5, rtol=1e-5)


def test_an_input_is_replaced_under_the_name_that_it_came_by():
    x = torch.arange(8.0)
    args, kwargs = activations.Largest(2, 4, -1)(nn.Identity(), (), {"hidden": x, "scale": 2})
    assert (args, kwargs["scale"], list(kwargs)) == ((), 2, ["hidden", "scale"])
    assert torch.equal(kwargs["hidden"], activations.largest(x, 2, 4))


def test_a_grouped_layer_whose_products_are_too_short_is_left_out_of_both_directions():
    for layer in (nn.Conv2d(12, 8, 3, groups=2), nn.ConvTranspose2d(12, 8, 3, groups=2)):
        with pytest.raises(BadInput, match="a product sums over 6 channels, which 4 does not divide"):
            activations.prune(nn.Sequential(layer), select=["0.weight"])
