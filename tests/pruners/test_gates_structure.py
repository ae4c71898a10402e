"""Laws of `gates.trace`: a forward pass is followed as it is written, and left as it was."""

import warnings

import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
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
