"""Laws of `gates.trace`: a forward pass is followed as it is written, and left as it was."""

import copy
import warnings

import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.models.lenet import lenet5
from lib.pruners import gates


class Aliased(nn.Module):
    """Its last layer has two names."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 3)])
        self.head = self.layers[-1]

    def forward(self, x):
        return self.head(self.layers[0](x).relu())


class Scaled(nn.Module):
    """What may be given besides is computed where it is left out."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x, gain=None, power=(1, 1)):
        hidden = self.a(x).relu()
        if gain is None:
            gain = hidden.mean(1, keepdim=True) ** power[0]
        return self.b(hidden) * gain


class SharedNorm(nn.Module):
    """Two convolutions have one norm."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 2, 1)
        self.bn = nn.BatchNorm2d(4)

    def forward(self, x):
        return self.c(self.bn(self.b(self.bn(self.a(x)).relu())).relu())


class Unflattened(nn.Module):
    """Behind an image that was made of flattened units a Linear reads columns."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(144, 64)
        self.image, self.columns = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(8, 3)

    def forward(self, x):
        return self.columns(self.image(self.fc(self.conv(x).relu().flatten(1)).unflatten(1, (1, 8, 8))).relu())


class Rows(nn.Module):
    """It flattens examples and channels, no positions."""

    def __init__(self):
        super().__init__()
        self.conv, self.out = nn.Conv2d(1, 4, 3), nn.Linear(6, 3)

    def forward(self, x):
        return self.out(self.conv(x).relu().flatten(end_dim=1))


@pytest.mark.parametrize(
    ("build", "shape", "named"),
    [
        (Aliased, (4,), ["layers.1"]),
        (Scaled, (4,), ["b"]),
        (SharedNorm, (1, 8, 8), []),
        (Unflattened, (1, 8, 8), ["conv", "fc"]),
        (Rows, (1, 8, 8), []),
    ],
    ids=lambda build: getattr(build, "__name__", ""),
)
def test_units_are_cut_where_the_forward_pass_has_them_and_nowhere_else(build, shape, named):
    network = build()
    assert gates.gateable(gates.trace(network)) == named
    if named:
        model = gates.gated(network).eval()
        for one in gates.gates_of(model):
            one.phi.data[::2] = -5.0
        small, inputs = gates.harden(model), torch.randn(3, *shape, generator=torch.Generator().manual_seed(0))
        assert not any(isinstance(module, gates.Gates) for module in small.modules())
        torch.testing.assert_close(small(inputs), model(inputs))


@pytest.mark.parametrize("reshape", [lambda x: x.view(-1, 144), lambda x: torch.reshape(x, (-1, 4, 36))[:, 0]])
def test_channels_that_a_reshape_hides_are_left_out_with_a_word(reshape):
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            width = reshape(torch.zeros(1, 4, 6, 6)).shape[1]
            self.conv, self.fc, self.out = nn.Conv2d(1, 4, 3), nn.Linear(width, 8), nn.Linear(8, 3)

        def forward(self, x):
            return self.out(self.fc(reshape(self.conv(x).relu())).relu())

    with pytest.warns(pruners.LeftOut, match=r"^conv is left out: .* reshapes its channels, .* torch.flatten"):
        assert len(gates.gates_of(gates.gated(Hidden()))) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # who names layers has seen it
        gates.gated(Hidden(), ["out"])


def test_what_is_called_in_training_alone_may_not_have_gates_that_are_cut():
    class Helped(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.aux = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 3)

        def forward(self, x):
            hidden = self.a(x).relu()
            return self.b(hidden) + self.aux(hidden) if self.training else self.b(hidden)

    assert [layer.positions for layer in gates.trace(Helped(), (4,)).values()] == [1, 1, 0]
    with pytest.raises(BadInput, match="aux has gates and is called in training alone"):
        gates.harden(gates.gated(Helped()))
    assert gates.harden(gates.gated(Helped(), ["b"])).aux.in_features == 8


def test_a_network_is_left_as_it_is_when_its_forward_pass_is_followed():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, inputs):
            self.steps += 1
            self.hidden = self.first(inputs)
            return self.last(self.hidden)

    network = Counting()
    layers = gates.trace(network)
    assert (network.steps, hasattr(network, "hidden")) == (0, False)
    assert layers["first"].module is network.first


class Asking(nn.Module):
    """Its forward pass asks its layers something."""

    def __init__(self, forward):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 3)])
        self.asks = forward

    def forward(self, x):
        for layer in self.layers:
            x = self.asks(layer, layer(x))
        return x


@pytest.mark.parametrize(
    ("asks", "line"),
    [
        (lambda layer, x: x.relu() if isinstance(layer, nn.Linear) else x, "Asking asks what its layers are"),
        (lambda layer, x: x * (2 if isinstance(layer, nn.Linear) else 1), "Asking asks what its layers are"),
        (lambda layer, x: x * layer.in_features**-0.5, r"cannot follow .* of Asking: 'Gated' object .*'in_features'"),
    ],
)
def test_a_network_that_gates_would_change_is_refused(asks, line):
    with pytest.raises(BadInput, match=line):
        gates.gated(Asking(asks), ["layers.1"])


class Depthwise(nn.Module):
    """As MobileNet has it: a depthwise convolution between two others, and a layer that is called twice behind them."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)
        self.deep, self.deep_norm, self.wide = nn.Conv2d(8, 8, 3, groups=4), nn.BatchNorm2d(8), nn.Conv2d(8, 6, 1)
        self.fc, self.again, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        hidden = self.deep_norm(self.deep(self.norm(self.stem(x)).relu())).relu()
        hidden = self.fc(self.wide(hidden).relu().mean((2, 3))).relu()
        return self.last(self.again(self.again(hidden).relu()).relu())


class Headed(nn.Module):
    """A head whose units can be gated, behind a body that has walls."""

    def __init__(self):
        super().__init__()
        self.body, self.hidden, self.out = Depthwise(), nn.Linear(3, 12), nn.Linear(12, 2)

    def forward(self, x):
        return self.out(self.hidden(self.body(x)).relu())


def test_layers_in_groups_or_called_twice_are_walls_and_the_rest_is_gated_and_cut():
    torch.manual_seed(0)
    model, images = Headed().eval(), torch.randn(5, 1, 9, 9)
    layers = gates.trace(model, (1, 9, 9))
    assert [name for name, layer in layers.items() if layer.wall] == ["body.deep", "body.again"]
    assert gates.gateable(layers) == ["hidden", "out"]
    assert gates.sizes(layers)["parameters"] == sum(
        layer.weight.numel() for layer in model.modules() if isinstance(layer, (nn.Conv2d, nn.Linear))
    )
    gated = gates.gated(model)
    with torch.no_grad():
        gates.gates_of(gated)[1].phi.copy_(torch.linspace(-1, 1, 12))
    gated.eval()
    small = gates.harden(gated)
    assert torch.allclose(small(images), gated(images), atol=1e-6)
    assert small.hidden.out_features == 6
    assert torch.equal(small.body.deep.weight, model.body.deep.weight)
    for name, why in {
        "body.deep": "is a convolution in 4 groups",
        "body.again": "is used twice in one forward",
    }.items():
        with pytest.raises(BadInput, match=f"gates on '{name}': it {why}"):
            gates.gated(model, name)


class Twice(nn.Module):
    """Calls a network twice, as Siamese ones are."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(self.inner(x))


def test_gates_that_are_called_twice_are_refused_and_so_is_a_hooked_weight_in_groups():
    gated = gates.gated(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)))
    with pytest.raises(BadInput, match=r"^inner\.\d is used twice in one forward pass: its units cannot be cut$"):
        gates.trace(Twice(gated))
    hooked = nn.utils.weight_norm(nn.Conv2d(8, 8, 3, groups=8))
    with pytest.raises(BadInput, match=r"^1\.weight is computed by a hook, so that its units cannot be cut"):
        gates.trace(nn.Sequential(nn.Conv2d(2, 8, 3), hooked))


def test_a_convolution_that_is_masked_under_its_gates_computes_with_both():
    model = gates.gated(lenet5(), ["conv1"]).eval()
    before, images = copy.deepcopy(model), torch.randn(2, 1, 28, 28)
    pruners.attach(model, masks := pruners.unstructured(pruners.magnitude(model), 0.5))
    before.conv1.layer.weight.data.mul_(masks["conv1.layer.weight"])
    pruners.attach(before, {name: mask for name, mask in masks.items() if name != "conv1.layer.weight"})
    torch.testing.assert_close(model(images), before(images))
    with torch.autocast("cpu", torch.bfloat16):
        assert model.conv1(images).dtype == before.conv1(images).dtype == torch.bfloat16
