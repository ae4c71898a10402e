"""Laws of `lib.models`: sizes as printed, and forward passes against their layers written out."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.models.alexnet import small_alexnet
from lib.models.densenet import densenet24, small_densenet
from lib.models.lenet import lenet5, small_lenet
from lib.models.mobilenet import mobilenet_v2, small_mobilenet_v2
from lib.models.recurrent import lstm, small_lstm
from lib.models.resnet import BasicBlock, Bottleneck, ResNet, resnet20, small_resnet
from lib.models.resnext import resnext20, small_resnext
from lib.models.shufflenet import shufflenet_v2, small_shufflenet_v2
from lib.models.squeezenet import small_squeezenet, squeezenet
from lib.models.vgg import small_vgg, vgg10
from lib.models.wide_resnet import small_wide_resnet, wide_resnet

MODELS = {
    "lenet5": (lenet5, (1, 28, 28), 431_080),
    "small_lenet": (small_lenet, (1, 8, 8), 13_706),
    "resnet20": (resnet20, (3, 32, 32), 272_474),
    "small_resnet": (small_resnet, (1, 8, 8), 77_754),
    "small_alexnet": (small_alexnet, (1, 8, 8), 230_306),
    "wide_resnet": (wide_resnet, (3, 32, 32), 2_777_674),
    "small_wide_resnet": (small_wide_resnet, (1, 8, 8), 308_074),
    "resnext20": (resnext20, (3, 32, 32), 919_114),
    "small_resnext": (small_resnext, (1, 8, 8), 42_218),
    "vgg10": (vgg10, (3, 32, 32), 360_954),
    "small_vgg": (small_vgg, (1, 8, 8), 25_370),
    "densenet24": (densenet24, (3, 32, 32), 141_706),
    "small_densenet": (small_densenet, (1, 8, 8), 51_178),
    "lstm": (lstm, (3, 32, 32), 116_490),
    "small_lstm": (small_lstm, (1, 8, 8), 19_338),
    "mobilenet_v2": (mobilenet_v2, (3, 32, 32), 171_658),
    "small_mobilenet_v2": (small_mobilenet_v2, (1, 8, 8), 24_842),
    "squeezenet": (squeezenet, (3, 32, 32), 266_666),
    "small_squeezenet": (small_squeezenet, (1, 8, 8), 15_834),
    "shufflenet_v2": (shufflenet_v2, (3, 32, 32), 89_866),
    "small_shufflenet_v2": (small_shufflenet_v2, (1, 8, 8), 14_250),
}


def parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("name", MODELS)
def test_parameters_are_counted_as_the_docstring_says(name):
    build, _, count = MODELS[name]
    assert parameters(build()) == count
    assert f"{count:,} parameters" in build.__doc__


@pytest.mark.parametrize("name", MODELS)
def test_a_network_gives_one_logit_a_class_and_every_parameter_takes_part(name):
    build, shape, _ = MODELS[name]
    model = build(classes=7)
    logits = model(torch.rand(4, *shape))
    assert logits.shape == (4, 7)
    logits.square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in model.parameters())


@pytest.mark.parametrize(("build", "side", "padding"), [(lenet5, 28, 0), (small_lenet, 8, 1)])
def test_lenet_is_its_layers_written_out(build, side, padding):
    torch.manual_seed(0)
    model, images = build(), torch.rand(2, 1, side, side)
    p = model.state_dict()
    hidden = F.max_pool2d(F.conv2d(images, p["conv1.weight"], p["conv1.bias"], padding=padding).clamp(min=0), 2)
    hidden = F.max_pool2d(F.conv2d(hidden, p["conv2.weight"], p["conv2.bias"], padding=padding).clamp(min=0), 2)
    hidden = (hidden.reshape(2, -1) @ p["fc1.weight"].T + p["fc1.bias"]).clamp(min=0)
    torch.testing.assert_close(model(images), hidden @ p["fc2.weight"].T + p["fc2.bias"])


def test_lenet5_has_caffes_widths():
    shapes = [tuple(parameter.shape) for name, parameter in lenet5().named_parameters() if "weight" in name]
    assert shapes == [(20, 1, 5, 5), (50, 20, 5, 5), (500, 800), (10, 500)]


def test_resnet20_has_20_layers_and_without_its_projections_the_parameters_of_option_a():
    model = resnet20()
    shortcuts = [module for name, module in model.named_modules() if name.endswith("shortcut")]
    assert [type(module) for module in shortcuts].count(nn.Sequential) == 2
    weighted = [module for module in model.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    assert len(weighted) - 2 == 20
    assert parameters(model) - sum(map(parameters, shortcuts)) == 269_722


def test_each_stage_after_the_first_halves_the_side_and_doubles_the_channels():
    model, shapes = resnet20(), []
    for block in model.blocks:
        block.register_forward_hook(lambda module, inputs, output: shapes.append(tuple(output.shape[1:])))
    model(torch.rand(1, 3, 32, 32))
    assert shapes == [(16, 32, 32)] * 3 + [(32, 16, 16)] * 3 + [(64, 8, 8)] * 3


@pytest.mark.parametrize(("channels", "stride"), [(4, 1), (8, 1), (4, 2), (8, 2)])
def test_a_block_whose_last_norm_is_zero_is_its_shortcut(channels, stride):
    torch.manual_seed(0)
    block, x = BasicBlock(4, channels, stride).eval(), torch.randn(2, 4, 6, 6)
    nn.init.zeros_(block.bn2.weight)
    identity = (channels, stride) == (4, 1)
    shortcut = x if identity else F.conv2d(x, block.shortcut[0].weight, stride=stride) / (1 + 1e-5) ** 0.5
    torch.testing.assert_close(block(x), shortcut.clamp(min=0))


def test_a_block_is_its_layers_written_out():
    torch.manual_seed(0)
    block, x = BasicBlock(4, 4, 1), torch.randn(2, 4, 6, 6)

    def norm(hidden):  # batch norm in training mode with its initial weight and bias
        mean, variance = hidden.mean((0, 2, 3), keepdim=True), hidden.var((0, 2, 3), keepdim=True, unbiased=False)
        return (hidden - mean) / (variance + 1e-5).sqrt()

    hidden = norm(F.conv2d(x, block.conv1.weight, padding=1)).clamp(min=0)
    hidden = norm(F.conv2d(hidden, block.conv2.weight, padding=1))
    torch.testing.assert_close(block(x), (hidden + x).clamp(min=0))


def test_bottlenecks_have_no_padded_shortcuts():
    with pytest.raises(BadInput, match="padded: shortcuts without weights are those of basic blocks"):
        ResNet(3, (16, 32), (1, 1), 10, Bottleneck, padded=True)
