"""Laws of the families of networks in tables 2 and 3 of paper 2: sizes as published, and what makes each family."""

import pytest
import torch
from torch import fx, nn
from torch.nn import functional as F

from lib.models.densenet import DenseLayer, DenseNet, densenet24, small_densenet
from lib.models.mobilenet import InvertedResidual, MobileNetV2, mobilenet_v2, small_mobilenet_v2
from lib.models.recurrent import LSTM, lstm, small_lstm
from lib.models.resnet import resnet34
from lib.models.resnext import GroupedBottleneck, resnext20, small_resnext
from lib.models.shufflenet import DownUnit, ShuffleNetV2, ShuffleUnit, shufflenet_v2, small_shufflenet_v2
from lib.models.squeezenet import Fire, SqueezeNet, small_squeezenet, squeezenet
from lib.models.vgg import small_vgg, vgg10
from lib.models.wide_resnet import small_wide_resnet, wide_resnet
from lib.pruners import layer_rule, prunable

COLOUR, GREY = (3, 32, 32), (1, 8, 8)
# builder: (shape of an image, share of the weights that the layer rule prunes)
MODELS = {
    wide_resnet: (COLOUR, 0.999),
    small_wide_resnet: (GREY, 0.999),
    resnext20: (COLOUR, 0.998),
    small_resnext: (GREY, 0.993),
    vgg10: (COLOUR, 0.999),
    small_vgg: (GREY, 0.994),
    densenet24: (COLOUR, 0.994),
    small_densenet: (GREY, 0.994),
    lstm: (COLOUR, 1.0),
    small_lstm: (GREY, 0.893),
    mobilenet_v2: (COLOUR, 0.925),
    small_mobilenet_v2: (GREY, 0.864),
    squeezenet: (COLOUR, 0.997),
    small_squeezenet: (GREY, 0.991),
    shufflenet_v2: (COLOUR, 0.940),
    small_shufflenet_v2: (GREY, 0.892),
}
every_model = pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@every_model
def test_fx_traces_a_network_exactly(build):
    torch.manual_seed(0)
    model, images = build().eval(), torch.rand(2, *MODELS[build][0])
    assert torch.equal(fx.symbolic_trace(model)(images), model(images))


@every_model
def test_the_layer_rule_leaves_what_reads_the_image_and_depth_wise_convolutions_alone(build):
    model = build()
    rules, layers = layer_rule(model), {layer.name: layer for layer in prunable(model)}
    pruned = sum(layers[rule.name].weight.numel() for rule in rules if rule.pruned)
    assert pruned / sum(layer.weight.numel() for layer in layers.values()) == pytest.approx(MODELS[build][1], abs=6e-4)
    left = [layers[rule.name] for rule in rules if not rule.pruned]
    first = next(iter(layers))
    assert all(layer.name == first or (layer.inner == 9 and layer.module.groups > 1) for layer in left)


def test_the_families_have_the_published_sizes_at_the_published_widths():
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    assert parameters(MobileNetV2(3, (32, 2), stages, last=1280, classes=1000)) == 3_504_872
    assert parameters(ShuffleNetV2(3, 24, [(116, 3), (232, 7), (464, 3)], last=1024, classes=1000)) == 2_278_604
    # DenseNet-121; its stem is 7 x 7 and has a batch norm
    model = DenseNet(3, stem=64, growth=32, layers=(6, 12, 24, 16), classes=1000)
    assert parameters(model) + 3 * 64 * (49 - 9) + 2 * 64 == 7_978_856
    # SqueezeNet v1.1; its convolutions have a bias where these have the two numbers of a batch norm
    fires = [[(16, 64)] * 2, [(32, 128)] * 2, [(48, 192)] * 2 + [(64, 256)] * 2]
    model = SqueezeNet(3, 64, fires, classes=1000)
    norms = sum(module.num_features for module in model.modules() if isinstance(module, nn.BatchNorm2d))
    assert parameters(model) - norms == 1_235_496


def test_grouped_channels_do_not_see_each_other():
    block, x = GroupedBottleneck(64, 48, 1).eval(), torch.randn(1, 48, 5, 5)
    other = x.clone()
    other[:, 16:32] = 0
    same = (block.conv2(x) == block.conv2(other)).flatten(2).all(2)[0]
    assert same.tolist() == [True] * 16 + [False] * 16 + [True] * 16
    assert block(torch.randn(1, 64, 5, 5)).shape == (1, 96, 5, 5)


def test_vgg_is_its_layers_written_out():
    torch.manual_seed(0)
    model, images = small_vgg().eval(), torch.rand(2, *GREY)
    hidden, p = images, model.state_dict()
    for first in (0, 7):  # a stage: (convolution, norm, ReLU) twice, pooling
        for number in (first, first + 3):
            hidden = F.conv2d(hidden, p[f"features.{number}.weight"], padding=1) / (1 + 1e-5) ** 0.5
            hidden = hidden.clamp(min=0)
        hidden = F.max_pool2d(hidden, 2)
    hidden = (hidden.reshape(2, -1) @ p["fc1.weight"].T + p["fc1.bias"]).clamp(min=0)
    torch.testing.assert_close(model(images), hidden @ p["fc2.weight"].T + p["fc2.bias"])


def test_a_dense_layer_passes_its_input_on_and_adds_its_own_channels():
    torch.manual_seed(0)
    layer, x = DenseLayer(8, 4).eval(), torch.randn(2, 8, 5, 5)
    y = layer(x)
    assert torch.equal(y[:, :8], x)
    scale = (1 + 1e-5) ** 0.5
    hidden = F.conv2d((x / scale).clamp(min=0), layer.conv1.weight)
    torch.testing.assert_close(y[:, 8:], F.conv2d((hidden / scale).clamp(min=0), layer.conv2.weight, padding=1))


def test_the_lstm_is_torchs_over_the_rows_of_the_image():
    torch.manual_seed(0)
    model, images = LSTM(2, side=5, hidden=6, classes=3), torch.randn(4, 2, 5, 5)
    theirs = nn.LSTM(10, 6, batch_first=True)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(model.input.weight)
        theirs.bias_ih_l0.copy_(model.input.bias)
        theirs.weight_hh_l0.copy_(model.recurrent.weight)
        theirs.bias_hh_l0.zero_()
    rows = torch.stack([images[:, :, row].flatten(1) for row in range(5)], 1)
    torch.testing.assert_close(model(images), model.fc(theirs(rows)[0][:, -1]))


@pytest.mark.parametrize(("out", "stride", "shortcut"), [(4, 1, True), (8, 1, False), (4, 2, False)])
def test_an_inverted_residual_adds_its_input_where_sizes_agree_and_has_no_last_activation(out, stride, shortcut):
    torch.manual_seed(0)
    block, x = InvertedResidual(4, out, stride, expansion=3).eval(), torch.randn(2, 4, 6, 6)
    assert (block(x) < 0).any()
    nn.init.zeros_(block.layers[-1].weight)
    assert torch.equal(block(x), x if shortcut else torch.zeros(2, out, 6 // stride, 6 // stride))


def test_a_depth_wise_convolution_keeps_channels_apart_and_relu6_ends_at_six():
    block, x = InvertedResidual(4, 4, 1, expansion=2).eval(), torch.full((1, 4, 6, 6), 1e4)
    depth_wise = block.layers[3]
    assert depth_wise.groups == depth_wise.in_channels == depth_wise.out_channels == 8
    assert block.layers[:3](x).max() == 6


def test_a_fire_module_is_its_layers_written_out():
    torch.manual_seed(0)
    fire, x, scale = Fire(8, 4, 6).eval(), torch.randn(2, 8, 5, 5), (1 + 1e-5) ** 0.5
    hidden = (F.conv2d(x, fire.squeeze.weight) / scale).clamp(min=0)
    one, three = F.conv2d(hidden, fire.expand1.weight), F.conv2d(hidden, fire.expand3.weight, padding=1)
    torch.testing.assert_close(fire(x), (torch.cat([one, three], 1) / scale).clamp(min=0))


@pytest.mark.parametrize(
    ("build", "kind"), [(small_densenet, nn.AvgPool2d), (small_squeezenet, nn.MaxPool2d), (resnet34, nn.MaxPool2d)]
)
def test_sides_are_pooled_as_published(build, kind):
    with torch.device("meta"):
        pools = {type(part) for part in build().modules() if "Pool" in type(part).__name__}
    assert pools == {kind}


def test_a_shuffle_unit_deals_what_passes_and_what_is_worked_on_alternately():
    torch.manual_seed(0)
    unit, x = ShuffleUnit(8).eval(), torch.randn(2, 8, 5, 5)
    y = unit(x)
    assert torch.equal(y[:, 0::2], x[:, :4])
    assert torch.equal(y[:, 1::2], unit.branch(x[:, 4:]))


def test_a_down_unit_halves_the_side_and_both_branches_see_all_channels():
    torch.manual_seed(0)
    unit, x = DownUnit(4, 16).eval(), torch.randn(1, 4, 6, 6, requires_grad=True)
    y = unit(x)
    assert y.shape == (1, 16, 3, 3)
    for half in (y[:, 0::2], y[:, 1::2]):
        (gradient,) = torch.autograd.grad(half.sum(), x, retain_graph=True)
        assert (gradient.abs().sum((0, 2, 3)) > 0).all()


def test_activations_of_a_block_stand_where_the_papers_have_them():
    """MobileNet v2, table 1: ReLU6 after widening and after depth-wise; ShuffleNet v2, figure 3 c: none after that."""

    def order(layers):
        names = {nn.Conv2d: "conv", nn.BatchNorm2d: "norm", nn.ReLU: "relu", nn.ReLU6: "relu6"}
        return " ".join(names[type(layer)] for layer in layers)

    wide = "conv norm relu6 conv norm relu6 conv norm"
    assert order(InvertedResidual(4, 4, 1, expansion=2).layers) == wide
    assert order(InvertedResidual(4, 4, 1, expansion=1).layers) == wide.removeprefix("conv norm relu6 ")
    assert order(ShuffleUnit(8).branch) == "conv norm relu conv norm conv norm relu"
