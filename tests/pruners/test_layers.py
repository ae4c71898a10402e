"""Laws of `lib.pruners.layers`: what there is to prune, the layer as a matrix product, and the rule of section 4.2."""

import math
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.models.lenet import lenet5, small_lenet
from lib.models.resnet import resnet20
from lib.pruners.kinds import layout_of
from lib.pruners.layers import as_matrix


def pruned(rules):
    return [rule.name for rule in rules if rule.pruned]


def test_weights_of_matrix_products_are_prunable_and_no_norms_biases_and_look_ups():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Sequential(nn.Linear(8, 4)))
    model.append(nn.LayerNorm((4, 4))).append(nn.Embedding(5, 4))
    found = pruners.prunable(model)
    assert [layer.name for layer in found] == ["0.weight", "3.0.weight"]
    assert [layer.inner for layer in found] == [9, 8]
    assert [layer.network for layer in found] == ["", ""]
    assert [layer.name for layer in pruners.prunable(nn.Linear(2, 3))] == ["weight"]


def test_the_keys_of_a_module_dict_are_its_networks():
    actor = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    model = nn.ModuleDict({"actor": actor, "critic": nn.Linear(3, 1)})
    found = [(layer.name, layer.network) for layer in pruners.prunable(model)]
    assert found == [("actor.0.weight", "actor"), ("actor.2.weight", "actor"), ("critic.weight", "critic")]


def test_a_conv_weight_as_a_matrix_has_its_input_channels_fastest():
    weight = torch.tensor([[[[11, 12]], [[21, 22]]]])  # one output, channels 1x and 2x, a kernel of 1 x 2
    assert as_matrix(weight).tolist() == [[11, 21, 12, 22]]


@pytest.mark.parametrize("shape", [(3, 8), (2, 3, 4, 5), (4, 1, 3, 3), (2, 6, 1, 1)])
def test_a_matrix_goes_back_into_its_tensor(shape):
    tensor = torch.randn(shape)
    matrix = as_matrix(tensor)
    assert matrix.shape == (shape[0], tensor[0].numel())
    assert torch.equal(layout_of(tensor).tensor(matrix, shape), tensor)


def test_the_matrix_times_the_unrolled_image_is_the_convolution():
    torch.manual_seed(0)
    model, images = nn.Conv2d(5, 3, (2, 3), bias=False), torch.randn(1, 5, 6, 7)
    (layer,) = pruners.prunable(model)
    patches = F.unfold(images, (2, 3)).reshape(5, 6, -1)  # [channel, kernel position, output position]
    product = as_matrix(layer.weight) @ patches.movedim(0, 1).reshape(30, -1)
    torch.testing.assert_close(product.reshape(1, 3, 5, 5), model(images))


def test_a_model_without_such_a_layer_is_refused():
    with pytest.raises(BadInput, match=r"ReLU has no layer with a matrix, so there is nothing to prune$"):
        pruners.prunable(nn.ReLU())


def test_a_weight_that_layers_share_is_one_weight_and_its_mask_acts_in_all_of_them():
    embedding, first, second = nn.Embedding(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
    first.weight = second.weight = embedding.weight
    model = nn.Sequential(embedding, first, second)
    (layer,) = pruners.prunable(model)
    assert (layer.name, [called for _, called in layer.tied]) == ("1.weight", ["weight", "weight"])
    trained = first.weight
    pruners.attach(model, {"1.weight": torch.eye(4).bool()})
    for one in (embedding, first, second):
        assert torch.equal(one.weight != 0, torch.eye(4).bool())
        assert one.parametrizations.weight.original is trained
    assert pruners.sparsity(model) == 0.75
    assert [layer.name for layer in pruners.prunable(model)] == ["1.weight"]
    pruners.detach(model)
    assert embedding.weight is first.weight is second.weight is trained
    assert torch.equal(trained != 0, torch.eye(4).bool())


def test_layers_that_share_a_weight_and_sum_along_different_axes_are_refused():
    up, down = nn.ConvTranspose1d(4, 4, 3), nn.Conv1d(4, 4, 3)
    up.weight = down.weight
    model = nn.Sequential(up, down, nn.Linear(2, 2))
    assert [layer.name for layer in pruners.prunable(model)] == ["2.weight"]
    assert pruners.refused(model) == {"0.weight": "0 and 1 share it and sum along different axes"}


def test_one_layer_used_twice_and_a_shared_bias_are_no_shared_weights():
    layer, other = nn.Linear(4, 4), nn.Linear(4, 4)
    other.bias = layer.bias
    assert [found.name for found in pruners.prunable(nn.Sequential(layer, layer, other))] == ["0.weight", "2.weight"]


@pytest.mark.parametrize("bits", [16, 8])
def test_of_lenet5_only_fc1_fits_sparse_hardware(bits):
    rules = {rule.name: rule for rule in pruners.layer_rule(lenet5(), bits)}
    multiple = {16: 16, 8: 32}[bits]
    assert [(rule.name, rule.pruned, rule.why) for rule in rules.values()] == [
        ("conv1.weight", False, f"inner dimension 25 is not a multiple of {multiple}"),
        ("conv2.weight", False, f"inner dimension 500 is not a multiple of {multiple}"),
        ("fc1.weight", True, f"inner dimension 800 is a multiple of {multiple}"),
        ("fc2.weight", False, f"inner dimension 500 is not a multiple of {multiple}"),
    ]


def test_of_small_lenet_all_but_the_first_layer_fit_and_with_8_bits_the_fully_connected_ones():
    assert pruned(pruners.layer_rule(small_lenet())) == ["conv2.weight", "fc1.weight", "fc2.weight"]
    assert pruners.eligible(small_lenet()) == ["conv2.weight", "fc1.weight", "fc2.weight"]
    assert pruned(pruners.layer_rule(small_lenet(), bits=8)) == ["fc1.weight", "fc2.weight"]


def test_of_resnet20_all_but_the_stem_fit():
    rules = pruners.layer_rule(resnet20())
    assert len(rules) == 22  # stem, 18 convolutions, 2 shortcuts, head; norms are no layers with a matrix product
    assert [(rule.name, rule.why) for rule in rules if not rule.pruned] == [
        ("stem.weight", "inner dimension 27 is not a multiple of 16")
    ]


def test_with_8_bits_the_layers_of_resnet20_that_read_16_channels_do_not_fit():
    left = [rule.name for rule in pruners.layer_rule(resnet20(), bits=8) if not rule.pruned]
    first_stage = [f"blocks.{block}.conv{conv}.weight" for block in range(3) for conv in (1, 2)]
    assert left == ["stem.weight", *first_stage, "blocks.3.conv1.weight", "blocks.3.shortcut.0.weight"]


def test_weights_that_are_not_pruned_are_listed_with_the_reason():
    model = nn.ModuleDict({"words": nn.Embedding(32, 16), "norm": nn.LayerNorm(16), "gru": nn.GRU(8, 16)})
    model["attention"], model["both"] = nn.MultiheadAttention(16, 2), nn.Bilinear(2, 3, 4)
    assert {rule.name: (rule.pruned, rule.why) for rule in pruners.layer_rule(model)} == {
        "words.weight": (False, "an embedding is a look-up, not a matrix product"),
        "gru.weight_ih_l0": (False, "inner dimension 8 is not a multiple of 16"),
        "gru.weight_hh_l0": (True, "inner dimension 16 is a multiple of 16"),
        "attention.in_proj_weight": (True, "inner dimension 16 is a multiple of 16"),
        "attention.out_proj.weight": (True, "inner dimension 16 is a multiple of 16"),
        "both.weight": (
            False,
            "there is no rule for what Bilinear does with it: give one by pruners.kinds.register",
        ),
    }


def test_layers_left_dense_take_their_sub_modules_with_them():
    model = nn.ModuleDict({"head": nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16)), "head2": nn.Linear(16, 16)})
    rules = pruners.layer_rule(model, leave={"head": "training only"})
    assert [(rule.name, rule.pruned) for rule in rules] == [
        ("head.0.weight", False),
        ("head.1.weight", False),
        ("head2.weight", True),  # another module whose name begins alike
    ]
    assert [rule.why for rule in rules][:2] == ["training only"] * 2


def test_the_rule_is_the_same_for_a_masked_model():
    model = lenet5()
    before = pruners.layer_rule(model)
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.5))
    assert pruners.layer_rule(model) == before


def test_a_rule_for_other_widths_or_an_unknown_module_is_refused():
    with pytest.raises(BadInput, match="bits=4"):
        pruners.layer_rule(lenet5(), bits=4)
    with pytest.raises(BadInput, match="leave: the model has no module 'fc3'; it has: conv1, conv2, fc1, fc2"):
        pruners.layer_rule(lenet5(), leave={"fc3": "why"})


def test_an_empty_layer_is_no_layer_to_prune():
    model = nn.Sequential(nn.Linear(0, 4), nn.Linear(4, 4))
    assert [layer.name for layer in pruners.prunable(model)] == ["1.weight"]
    assert pruners.unstructured(pruners.magnitude(model), 0.5).keys() == {"1.weight"}


def test_a_layer_without_a_shape_and_an_empty_one_are_refused_by_name():
    model = nn.Sequential(nn.Linear(16, 16), nn.LazyLinear(8), nn.Linear(0, 4))
    assert pruners.refused(model) == {"1.weight": "it has no shape yet: run the model once", "2.weight": "it is empty"}
    assert math.isnan(pruners.coverage(model))
    with pytest.warns(pruners.Partial, match=r"speaks of an unknown share .*, not of 1\.weight \(it has no shape yet"):
        assert pruners.sparsity(model) == 0
    with pytest.raises(BadInput, match="nothing to prune: weight: it has no shape yet: run the model"):
        pruners.report(nn.LazyLinear(3))
    assert pruners.coverage(nn.Sequential(nn.Linear(16, 16), nn.Linear(0, 4))) == 1


@pytest.mark.parametrize("ask", [pruners.two_four, pruners.layer_rule, pruners.eligible, pruners.sparse])
def test_what_is_no_model_is_refused(ask):
    with pytest.raises(BadInput, match=r"Linear is a class: expected a model of it, such as Linear\(\.\.\.\)"):
        ask(nn.Linear)
    with pytest.raises(BadInput, match=r"expected a model, a torch\.nn\.Module, found an OrderedDict"):
        ask(nn.Linear(16, 16).state_dict())


def test_weights_that_hooks_compute_are_refused_in_the_order_of_the_layers_names():
    """And not in that of a set, which is another in each process."""
    layer = nn.LSTM(4, 4, 4)
    names = [name for name in layer._flat_weights_names if name.startswith("weight")]
    for name in names:
        nn.utils.spectral_norm(layer, name)
    assert list(pruners.refused(nn.Sequential(layer))) == [f"0.{name}" for name in names]


def test_a_weight_that_a_layer_has_under_two_names_is_one_weight_too():
    torch.manual_seed(0)
    model = nn.GRU(4, 4, num_layers=2)
    model.weight_hh_l1 = trained = model.weight_hh_l0
    assert "weight_hh_l1" not in [layer.name for layer in pruners.prunable(model)]
    masks = pruners.unstructured(pruners.magnitude(model), 0.5)
    pruners.attach(model, masks)
    model(torch.randn(3, 4))[0].square().sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    for weight in (model.weight_hh_l0, model.weight_hh_l1):
        assert torch.equal(weight != 0, masks["weight_hh_l0"])
    assert pruners.attached(model).keys() == masks.keys()
    pruners.detach(model)
    assert model.weight_hh_l0 is model.weight_hh_l1 is trained


@pytest.mark.parametrize(("known", "warned"), [(89, True), (90, False)])
def test_what_speaks_of_less_than_nine_tenths_of_the_matrix_weights_says_so(known: int, warned: bool):
    class Own(nn.Linear):
        def forward(self, inputs):
            return super().forward(inputs)

    model = nn.ModuleList([nn.Linear(10, known), Own(10, 100 - known)])
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        pruners.sparsity(model)
    assert any(issubclass(one.category, pruners.Partial) for one in said) is warned
