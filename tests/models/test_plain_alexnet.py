"""The networks of paper 4: sizes as printed, and forward passes against their layers written out."""

import torch
from torch import nn
from torch.nn import functional as F

from lib.models.alexnet import AlexNet, alexnet
from lib.models.plain import moons_mlp


def test_the_moons_network_is_its_layers_written_out_and_its_map_is_fixed():
    torch.manual_seed(0)
    model, points = moons_mlp(7, 5), torch.randn(4, 2)
    p = model.state_dict()
    hidden = (points @ p["map.weight"].T @ p["fc1.weight"].T + p["fc1.bias"]).clamp(min=0)  # the features are linear
    torch.testing.assert_close(model(points), hidden @ p["fc2.weight"].T + p["fc2.bias"])
    assert {name for name, parameter in model.named_parameters() if not parameter.requires_grad} == {"map.weight"}


def test_the_moons_network_has_the_papers_trained_weights_and_features_of_variance_one():
    model = moons_mlp()
    trained = [p.numel() for name, p in model.named_parameters() if p.requires_grad and name.endswith("weight")]
    assert sum(trained) == 8160
    torch.manual_seed(0)
    variance = moons_mlp(20_000).map(torch.randn(50, 2)).var()
    assert abs(float(variance.detach()) - 1) < 0.3


def test_alexnet_has_the_papers_widths():
    with torch.device("meta"):
        model = alexnet()
    layers = [module for module in model.modules() if isinstance(module, (nn.Conv2d, nn.Linear))]
    assert [layer.weight.shape[0] for layer in layers] == [96, 256, 384, 384, 256, 4096, 4096, 10]
    assert model.fc1.in_features == 1024
    assert [layer.stride[0] for layer in layers[:5]] == [2, 1, 1, 1, 1]
    assert sum(layer.weight.numel() for layer in layers) == 24_332_832
    count = sum(parameter.numel() for parameter in model.parameters())
    assert f"{count:,} parameters" in alexnet.__doc__


def test_alexnet_is_its_layers_written_out():
    torch.manual_seed(0)
    model, images = AlexNet((3, 4, 5, 6, 7, 8), (9, 10), 3).eval(), torch.rand(2, 3, 32, 32)
    p = model.state_dict()

    def conv(number, hidden, stride=1):
        return F.conv2d(hidden, p[f"conv{number}.weight"], p[f"conv{number}.bias"], stride, 1).clamp(min=0)

    hidden = F.max_pool2d(conv(1, images, 2), 2)
    hidden = F.max_pool2d(conv(2, hidden), 2)
    hidden = F.max_pool2d(conv(5, conv(4, conv(3, hidden))), 2).reshape(2, -1)
    for number in (1, 2):
        hidden = (hidden @ p[f"fc{number}.weight"].T + p[f"fc{number}.bias"]).clamp(min=0)
    torch.testing.assert_close(model(images), hidden @ p["fc3.weight"].T + p["fc3.bias"])
    dropped = model.train()(images)
    assert not torch.equal(dropped, model(images))


def test_alexnet_drops_what_enters_its_first_two_fully_connected_layers():
    model, entered = AlexNet((3, 4, 5, 6, 7, 8), (9, 10), 3).train(), []
    model.dropout.register_forward_hook(lambda module, args, output: entered.append(output))
    reads = []
    for layer in (model.fc1, model.fc2, model.fc3):
        layer.register_forward_pre_hook(lambda module, args: reads.append(args[0]))
    model(torch.rand(2, 3, 32, 32))
    assert [any(read is output for output in entered) for read in reads] == [True, True, False]
