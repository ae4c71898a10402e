"""Laws of `gates.harden`: the cut network computes the same function, and is as small as counted."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.models.alexnet import AlexNet
from lib.models.lenet import LeNet, lenet5, small_lenet
from lib.models.plain import moons_mlp
from lib.models.resnet import small_resnet
from lib.pruners import gates, prunable
from lib.pruners.sizes import flops

LENET = ["conv1", "conv2", "fc1", "fc2"]
NETWORKS = {
    "moons": (moons_mlp, ["fc1", "fc2"], (2,)),
    "lenet5": (lenet5, LENET, (1, 28, 28)),
    "channels only": (small_lenet, ["conv1", "conv2"], (1, 8, 8)),
    "positions only": (small_lenet, ["fc1"], (1, 8, 8)),
    "one channel layer": (small_lenet, ["conv2", "fc2"], (1, 8, 8)),
    "alexnet": (
        lambda: AlexNet((3, 6, 7, 8, 9, 10), (12, 11), 5),
        [f"conv{i}" for i in range(1, 6)] + ["fc1", "fc2", "fc3"],
        (3, 32, 32),
    ),
    "residual": (small_resnet, ["blocks.0.conv1", "blocks.1.conv1", "blocks.2.conv1", "fc"], (1, 8, 8)),
    "normalised": (
        lambda: nn.Sequential(
            nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6, affine=False), nn.ReLU(), nn.AvgPool2d(2),
            nn.Conv2d(6, 5, 3, stride=2, padding=1, dilation=2, padding_mode="reflect"), nn.BatchNorm2d(5), nn.Tanh(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Dropout(), nn.Linear(20, 4, bias=False),
        ),
        ["0", "4", "10"],
        (2, 12, 12),
    ),
}  # fmt: skip


def half_closed(name, kind="sigmoid", seed=0):
    """A gated network with about half of its gates closed, and norms that have seen something."""
    build, layers, shape = NETWORKS[name]
    torch.manual_seed(seed)
    model = gates.gated(build(), layers, kind=kind).double()
    draw = torch.Generator().manual_seed(seed)
    for one in gates.gates_of(model):
        one.phi.data = torch.randn(one.phi.shape, generator=draw).double() * 0.3
        one.phi.data[0], one.phi.data[1] = 0.3, -1.0
    for norm in (module for module in model.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.running_mean.normal_(generator=draw)
        norm.running_var.uniform_(0.5, 2, generator=draw)
        if norm.affine:
            norm.bias.data.normal_(generator=draw)
    return model, shape


@pytest.mark.parametrize("kind", gates.KINDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_a_hardened_network_computes_what_the_gated_one_computes_at_test_time(name, kind):
    model, shape = half_closed(name, kind)
    examples = torch.randn(7, *shape, generator=torch.Generator().manual_seed(1)).double()
    closed = [bool((~one.is_open()).any()) for one in gates.gates_of(model)]
    assert all(closed)
    model.train()
    small = gates.harden(model)
    assert not small.training
    expected = model.eval()(examples).detach()
    torch.testing.assert_close(small(examples), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("name", NETWORKS)
def test_a_hardened_network_has_the_live_weights_and_no_others(name):
    model, shape = half_closed(name)
    counted = gates.sizes(gates.trace(model, shape))
    small = gates.harden(model)
    weights = [layer.module.weight for layer in prunable(small)]
    assert sum(weight.numel() for weight in weights if weight.requires_grad) == counted["parameters_live"]
    assert flops(small.float(), shape) == counted["flops"]
    assert not any(isinstance(module, (gates.Gated, gates.Gates)) for module in small.modules())


def test_what_is_cut_is_cut_at_both_ends_with_its_positions_and_its_norm():
    model = gates.gated(LeNet((1, 2, 3), 3, 1, 8, 4, 5), LENET)
    open_units = ([1, 0], [1, 0, 1], [1, 1, 0, 1, 1, 0, 0, 0, 1, 1, 1, 1], [0, 1, 1, 0])
    for one, units in zip(gates.gates_of(model), open_units, strict=True):
        one.phi.data = torch.tensor(units) * 20.0 - 10
    small = gates.harden(model)
    assert small.conv1.weight.shape == (1, 1, 3, 3)
    assert small.conv2.weight.shape == (2, 1, 3, 3)
    # channels 0 and 2 arrive with four positions each; of the first channel's the third is closed
    assert small.fc1[0].indices.tolist() == [0, 1, 3, 4, 5, 6, 7]
    assert torch.equal(small.fc1[1].weight, model.fc1.layer.weight[1:3][:, [0, 1, 3, 8, 9, 10, 11]])
    assert small.fc2.weight.shape == (5, 2)
    assert torch.equal(small.fc2.bias, model.fc2.layer.bias)
    names = NETWORKS["residual"][1]
    normed = gates.gated(small_resnet(), names[:1])
    normed.blocks[0].bn1.gates.phi.data[3:] = -1.0
    cut = gates.harden(normed).blocks[0]
    assert (cut.conv1.out_channels, cut.bn1.num_features, cut.conv2.in_channels) == (3, 3, 3)


def test_a_channel_nobody_reads_goes_too():
    model = gates.gated(LeNet((1, 2, 3), 3, 1, 8, 4, 5), ["fc1"])
    model.fc1.gates.phi.data[4:8] = -1.0  # all four positions of channel 1
    small = gates.harden(model)
    assert small.conv2.weight.shape == (2, 2, 3, 3)
    assert isinstance(small.fc1, nn.Linear)


def test_hardening_leaves_the_model_and_torchs_random_numbers_alone_and_shares_nothing():
    model, _ = half_closed("lenet5")
    model.train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    small = gates.harden(model)
    assert torch.equal(torch.get_rng_state(), state)
    for parameter in small.parameters():
        parameter.data.zero_()
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_the_hardened_network_trains_and_keeps_what_was_fixed_fixed():
    model, _ = half_closed("moons")
    small = gates.harden(model)
    assert [parameter.requires_grad for parameter in small.parameters()] == [False, True, True, True, True]
    assert all(parameter.is_leaf for parameter in small.parameters())
    small(torch.randn(3, 2).double()).sum().backward()


def test_functions_and_methods_between_layers_are_followed_too():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.c = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Linear(4, 2)

        def forward(self, images):
            hidden = nn.functional.max_pool2d(torch.relu(self.a(images)), 2)
            return self.c(nn.functional.relu(self.b(hidden)).tanh().flatten(1))

    layers = gates.trace(gates.gated(Net(), ["a", "b", "c"]), (1, 8, 8))
    assert {name: layer.source for name, layer in layers.items()} == {"a": None, "b": "a", "c": "b"}
    assert [layer.positions for layer in layers.values()] == [36, 1, 1]


def test_positions_that_are_mixed_otherwise_are_not_taken_for_channels():
    """Flattened from another axis on, a channel is no block of the next layer's inputs."""
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(2), nn.Linear(36, 4))
    with pytest.raises(BadInput, match="gates on '0': its channels meet others"):
        gates.gated(network, ["0"])
    model = gates.gated(network, ["2"])
    model[2].gates.phi.data[::3] = -1.0
    images = torch.randn(2, 1, 8, 8)
    torch.testing.assert_close(gates.harden(model)(images), model.eval()(images))


def test_a_flatten_that_ends_before_the_last_axis_makes_no_positions_of_channels():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(1, 2), nn.Linear(4, 3))
    with pytest.raises(BadInput, match="gates on '0': its channels meet others"):
        gates.gated(network, ["0"])


def test_a_norm_without_running_statistics_cannot_be_cut():
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    model = gates.gated(nn.Sequential(nn.Conv2d(1, 4, 3), norm, nn.Conv2d(4, 2, 3)), ["0"])
    with pytest.raises(BadInput, match="1 has no running statistics, so it cannot be cut"):
        gates.harden(model)


def test_what_cannot_be_hardened_is_refused():
    model, _ = half_closed("lenet5")
    model.conv2.gates.phi.data[:] = -1.0
    with pytest.raises(BadInput, match="all 50 gates of conv2 are closed, nothing passes it"):
        gates.harden(model)
    model = gates.gated(small_lenet(), ["conv2", "fc1"])
    model.conv2.gates.phi.data[1:] = -1.0
    model.fc1.gates.phi.data[:4] = -1.0  # the positions of the only open channel
    with pytest.raises(BadInput, match=r"no open gates lead through (conv2|fc1), nothing passes it"):
        gates.harden(model)
    with pytest.raises(BadInput, match="LeNet has no gates"):
        gates.harden(lenet5())

    class Branching(nn.Module):
        def forward(self, inputs):
            return inputs if inputs.sum() > 0 else -inputs

    with pytest.raises(BadInput, match=r"torch\.fx cannot follow the forward pass of Branching"):
        gates.trace(Branching())


@pytest.mark.parametrize(
    ("model", "shape", "layers"),
    [
        (nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Flatten(), nn.Linear(20, 3)), (5, 8), ["3"]),
        (nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)), (3, 8, 8), None),
        (nn.Sequential(nn.Linear(8, 8), nn.AvgPool2d((1, 2)), nn.Linear(4, 3), nn.Linear(3, 2)), (3, 8), None),
    ],
)
def test_features_that_a_layer_reads_otherwise_are_no_units(model, shape, layers):
    """Steps of a sequence, columns of an image: they stay, and what comes out is the same."""
    gated = gates.gated(model, layers).eval()
    inputs = torch.randn(6, *shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        phi = gates.gates_of(gated)[0].phi
        phi[: max(1, len(phi) // 4)] = -5
        assert torch.allclose(gates.harden(gated)(inputs), gated(inputs), atol=1e-6)


def test_a_cut_batch_norm_stays_frozen_and_remembers_its_batches():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 2, 3))
    model[1].num_batches_tracked.fill_(100)
    model[1].requires_grad_(False)
    small = gates.harden(gates.gated(model))
    assert [one.requires_grad for one in small[1].parameters()] == [False, False]
    assert int(small[1].num_batches_tracked) == 100


def test_channels_are_followed_through_every_spelling_of_a_flatten():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.fc, self.out = nn.Conv2d(1, 4, 3), nn.Linear(16, 8), nn.Linear(8, 2)

        def forward(self, images):
            return self.out(self.fc(torch.flatten(self.conv(images), 1, -1)))

    assert gates.gateable(gates.trace(Net())) == ["conv", "fc", "out"]


def test_a_network_with_masks_gets_no_gates():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.5))
    with pytest.raises(BadInput, match=r"^0\.weight has a mask, which cutting units would lose"):
        gates.gated(model)
    pruners.detach(model)
    gated = gates.gated(model)
    pruners.attach(gated, {"2.layer.weight": torch.eye(2, 4, dtype=torch.bool)})  # later
    with pytest.raises(BadInput, match=r"^2\.layer\.weight has a mask, which cutting units would lose"):
        gates.harden(gated)


def test_units_are_traced_before_a_layer_holds_only_what_is_left_of_it():
    model = gates.gated(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    with pytest.raises(BadInput, match=r"holds only what is left of it: count and cut units before pruners\.sparse$"):
        gates.trace(pruners.sparse(model))


@pytest.mark.parametrize(
    "between",
    [nn.AvgPool2d(3, 1, 1), nn.MaxPool2d(3, 1, 1), nn.AdaptiveAvgPool2d(8), nn.BatchNorm2d(3)],
    ids=lambda between: type(between).__name__,
)
def test_what_mixes_the_units_of_a_linear_is_not_followed(between):
    """Pools and norms of images: the units of a Linear lie along the last axis, channels along the second."""
    model = nn.Sequential(nn.Linear(8, 8), between, nn.ReLU(), nn.Linear(8, 4)).eval()
    gated = gates.gated(model, ["3"]).eval()
    assert gates.trace(gated)["3"].source is None
    with torch.no_grad():
        gates.gates_of(gated)[0].phi[:3] = -5
    inputs = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(gates.harden(gated)(inputs), gated(inputs), atol=1e-6)


def test_the_units_of_a_linear_are_not_followed_through_the_function_of_a_pool():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            return self.b(nn.functional.avg_pool2d(nn.functional.max_pool2d(self.a(x), 3, 1, 1), 3, 1, 1))

    assert gates.gateable(gates.trace(Net())) == []


def test_a_norm_called_by_keyword_and_a_parameter_named_as_a_method_are_followed():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.bn, self.out = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3)
            self.relu = nn.Parameter(torch.ones(2, 1, 1))

        def forward(self, tanh):
            return self.out(self.bn(input=self.conv(tanh))) * self.relu

    model = gates.gated(Net()).eval()
    assert isinstance(model.bn, gates.Gated)
    with torch.no_grad():
        model.bn.gates.phi[:2] = -5
    images = torch.randn(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    small = gates.harden(model)
    assert small.conv.out_channels == 2
    assert torch.allclose(small(images), model(images), atol=1e-6)


def test_a_norm_without_weights_is_cut_with_its_ungated_convolution():
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4, affine=False), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)
    )
    model, images = gates.gated(network, ["4"]).eval(), torch.randn(2, 1, 8, 8)
    model[4].gates.phi.data[:36] = -1.0
    small = gates.harden(model)
    assert small[1].num_features == 3
    torch.testing.assert_close(small(images), model(images))


def test_a_weight_that_a_parametrization_computes_is_trained_on():
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.utils.parametrizations.weight_norm(network[2])
    assert gates.harden(gates.gated(network))[2].weight.requires_grad


def test_a_forward_hook_is_not_lost_without_a_word():
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    hook = network[0].register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    with pytest.raises(BadInput, match="0 has a forward hook, which cutting it would lose"):
        gates.harden(gates.gated(network))
    hook.remove()
    assert not any(module.training for module in gates.harden(gates.gated(network)).modules())


def is_cut_exactly(gated, inputs):
    """Close a third of the units of each layer; the network without them computes the same."""
    for one in gates.gates_of(gated):
        one.phi.data[: len(one.phi) // 3] *= -1
    expected = gated.eval()(inputs)
    torch.testing.assert_close(gates.harden(gated)(inputs), expected)


class Tied(nn.Module):
    """An autoencoder whose decoder is a function that reads the encoder's weight."""

    def __init__(self):
        super().__init__()
        self.encode, self.middle, self.last = nn.Linear(20, 16), nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, inputs):
        hidden = F.relu(self.middle(F.relu(self.encode(inputs))))
        return F.linear(F.relu(self.last(hidden)), self.encode.weight.t())


def test_a_layer_whose_weight_a_function_reads_keeps_its_units():
    is_cut_exactly(gates.gated(Tied()), torch.randn(3, 20))


class Viewed(nn.Module):
    """A small LeNet that flattens in one of the ways people write it."""

    def __init__(self, flatten):
        super().__init__()
        self.flatten = flatten
        self.first, self.second = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 6, 3)
        self.third, self.last = nn.Linear(6 * 16, 10), nn.Linear(10, 3)

    def forward(self, images):
        hidden = F.relu(self.second(F.relu(self.first(images))))
        return self.last(F.relu(self.third(self.flatten(hidden))))


@pytest.mark.parametrize(
    "flatten",
    [
        lambda x: x.flatten(1),
        lambda x: x.view(x.size(0), -1),
        lambda x: x.reshape(x.shape[0], -1),
        lambda x: torch.reshape(x, (x.size(0), -1)),
        lambda x: x.view((x.size(0), -1)),
    ],
)
def test_however_a_network_flattens_all_its_layers_have_gates_and_are_cut_exactly(flatten):
    gated = gates.gated(Viewed(flatten))
    assert len(gates.gates_of(gated)) == 4
    is_cut_exactly(gated, torch.randn(5, 1, 8, 8))


@pytest.mark.parametrize("count", [lambda x: x.size(1), lambda x: x.shape[1], lambda x: x.size()[1]])
def test_a_layer_whose_width_is_asked_for_keeps_its_units(count):
    class Averaged(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, inputs):
            hidden = F.relu(self.second(F.relu(self.first(inputs))))
            return self.last(hidden) / count(hidden)

    is_cut_exactly(gates.gated(Averaged()), torch.randn(5, 8))


class TwoReaders(nn.Module):
    """A layer whose units two gated layers read."""

    def __init__(self):
        super().__init__()
        self.first, self.one, self.other = nn.Linear(5, 6), nn.Linear(6, 4), nn.Linear(6, 4)
        self.of_one, self.of_other = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x):
        hidden = torch.relu(self.first(x))
        return self.of_one(torch.relu(self.one(hidden))) + self.of_other(torch.tanh(self.other(hidden)))


def test_a_unit_stays_that_only_one_of_two_layers_reads():
    torch.manual_seed(0)
    x = torch.randn(7, 5)
    for _ in range(20):
        model = gates.gated(TwoReaders(), k=7).eval()
        with torch.no_grad():
            for own in gates.gates_of(model):
                closed = torch.rand(own.phi.shape) < 0.4
                closed[torch.randint(len(closed), ())] = False
                own.phi.copy_(torch.where(closed, -own.phi, own.phi))
            torch.testing.assert_close(gates.harden(model)(x), model(x), atol=1e-6, rtol=0)
