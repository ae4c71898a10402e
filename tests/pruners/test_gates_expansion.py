"""Laws of `lib.pruners.gates`: when sizes rest, which units wake, and what cannot be gated."""

import math

import pytest
import torch
from torch import nn

from lib.base import BadInput
from lib.models.alexnet import alexnet
from lib.models.lenet import LeNet, lenet5
from lib.models.plain import moons_mlp
from lib.models.resnet import small_resnet
from lib.pruners import gates
from tests.pruners.gating import put


def test_sizes_rest_when_they_have_changed_and_then_not_for_so_many_epochs():
    counts = [[5, 5], [5, 5], [5, 5], [5, 5], [4, 5], [4, 5], [4, 5]]
    assert not gates.at_rest([], 1)
    assert not gates.at_rest(counts[:4], 2)  # they have not begun to move
    assert [gates.at_rest(counts[:epochs], 2) for epochs in range(4, 8)] == [False, False, False, True]
    assert not gates.at_rest(counts, 3)
    assert not gates.at_rest([*counts, [5, 4]], 2)  # as many gates in all, but others
    assert not gates.at_rest([*counts, [5, 4], [4, 5]], 2)  # as before, but not all the time


def test_expansion_wakes_one_unit_in_each_layer_that_has_dormant_and_no_redundant_ones():
    model = gates.gated(moons_mlp(6, 5), ["fc1", "fc2"], k=0.5, start=(3, 2))
    layers, draw = gates.trace(model), torch.Generator().manual_seed(0)
    first, _ = gates.gates_of(model)
    assert gates.expand(layers, draw) == ["fc1", "fc2"]
    assert gates.architecture(layers) == "2-4-3-2"
    assert first.probability()[first.awake].min().item() == pytest.approx(0.953, abs=0.01)
    redundant = int(first.awake.nonzero()[0])
    first.phi.data[redundant] = -1.0  # closes: fc1 has enough
    assert gates.expand(layers, draw) == ["fc2"]
    assert gates.expand(layers, draw) == ["fc2"]
    assert gates.architecture(layers) == "2-3-5-2"
    assert gates.expand(layers, draw) == []  # fc2 has no dormant units left: the end
    first.phi.data[redundant] = 1.0
    assert gates.expand(layers, draw) == ["fc1"]


def test_a_unit_that_opened_by_itself_is_awake_and_redundant_when_it_closes():
    model = gates.gated(moons_mlp(6, 5), ["fc1"], k=0.5, start=(3,))
    layers, draw = gates.trace(model), torch.Generator().manual_seed(0)
    (one,) = gates.gates_of(model)
    unit = int((~one.awake).nonzero()[0])
    one.phi.data[unit] = 1.0
    gates.expand(layers, draw)
    assert bool(one.awake[unit])
    one.phi.data[unit] = -1.0
    assert gates.expand(layers, draw) == []


def test_a_woken_unit_is_awake_at_once_and_redundant_if_it_closes_before_anyone_looks():
    model = gates.gated(moons_mlp(6, 5), ["fc1"], k=0.5, start=(3,))
    layers, draw = gates.trace(model), torch.Generator().manual_seed(0)
    (one,) = gates.gates_of(model)
    one.phi.data[gates.wake(layers, "fc1", draw, level=0.1)] = -1.0
    assert int(one.redundant().sum()) == 1
    assert gates.expand(layers, draw) == []


def test_positions_of_open_channels_wake_first():
    model = gates.gated(LeNet((1, 2, 4), 3, 1, 8, 4, 5), ["conv2", "fc1"], start=(2, 2))
    layers, draw = gates.trace(model), torch.Generator().manual_seed(0)
    fed = model.conv2.gates.awake.repeat_interleave(4)
    for _ in range(6):
        assert bool(fed[gates.wake(layers, "fc1", draw)])
    assert not bool(fed[gates.wake(layers, "fc1", draw)])


def test_positions_are_chosen_among_those_of_channels_that_another_call_left_open():
    for seed in range(5):
        channels = gates.gated(LeNet((1, 2, 4), 3, 1, 8, 4, 5), ["conv2"], start=1, seed=seed)
        model = gates.gated(channels, ["fc1"], start=2, seed=seed)
        fed = model.conv2.gates.awake.repeat_interleave(4)
        assert not bool((model.fc1.gates.awake & ~fed).any())


# Bad input


@pytest.mark.parametrize(
    ("names", "more", "line"),
    [
        (["fc3"], {}, "gates on 'fc3': the network's Linear and Conv2d layers are conv1, conv2, fc1, fc2"),
        (["relu"], {}, "gates on 'relu': the network's"),
        ([], {}, r"gates on \[\]: name some of conv1"),
        (["fc1", "fc1"], {}, "each once and in this order"),
        (["fc1", "conv1"], {}, "each once and in this order"),
        (["fc1"], {"k": -1.0}, "k=-1.0: the slope is at least 0"),
        (["fc1"], {"k": math.nan}, "k=nan"),
        (["fc1"], {"k": math.inf}, "k=inf: the slope .* 5000 stands for infinity"),
        (["fc1"], {"k": "7"}, "k='7': the slope is at least 0"),
        ("fc3", {}, "gates on 'fc3': the network"),
        (3, {}, "gates on 3: the network"),
        (["fc1"], {"kind": "tanh"}, "kind='tanh': known are sigmoid, hard_sigmoid, hard_concrete"),
        (["fc1"], {"tau": 1.0}, r"tau=1.0 is not in \[0, 1\)"),
        (["fc1"], {"tau": None}, r"tau=None is not in \[0, 1\)"),
        (["fc1"], {"tau": 0.96}, "tau=0.96, dormant=3.0: other units of fc1 would start open"),
        (["fc1"], {"tau": 0.04, "start": 3}, "expected a tau between the probabilities"),
        (["fc1"], {"dormant": -1.0, "start": 3}, "dormant=-1.0: other units of fc1"),
        (["fc1"], {"dormant": None}, "dormant=None: expected a finite number"),
        (["fc1"], {"seed": "x"}, "seed='x': expected a whole number"),
        (None, {"start": 3}, r"start=\[3\]: expected one number a layer"),
        (["conv1", "fc2"], {"start": (3,)}, r"start=\[3\]: expected one number a layer"),
        (["conv1", "fc2"], {"start": (3, 501)}, r"from 1 to the layer's units \[20, 500\]"),
        (["conv1"], {"start": (0,)}, "from 1 to the layer's units"),
        (["conv1"], {"start": (2.5,)}, r"start=\[2.5\]: expected one number a layer"),
        (
            ["conv1"],
            {"start": (torch.ones(3, dtype=torch.bool),)},
            r"start=\['torch.bool \[3\]'\]: expected .* bool tensors",
        ),
    ],
)
def test_gates_that_cannot_be_are_refused(names, more, line):
    with pytest.raises(BadInput, match=line):
        gates.gated(lenet5(), names, **more)


@pytest.mark.parametrize(
    ("network", "names"),
    [
        (lenet5(), ["conv1", "conv2", "fc1", "fc2"]),
        (alexnet(), ["conv1", "conv2", "conv3", "conv4", "conv5", "fc1", "fc2", "fc3"]),
        (moons_mlp(), ["fc1", "fc2"]),  # the map's inputs are the coordinates
        (small_resnet(), [f"blocks.{number}.conv1" for number in range(3)]),  # the others meet in sums
    ],
)
def test_gates_stand_wherever_units_can_be_cut_unless_layers_are_named(network, names):
    assert gates.gateable(gates.trace(network)) == names
    layers = gates.trace(gates.gated(network))
    assert [name for name, layer in layers.items() if layer.gates] == names


def test_a_network_without_units_to_cut_is_refused():
    with pytest.raises(BadInput, match=r"^Sequential has no units to gate: no Linear reads another .*; name a Linear"):
        gates.gated(nn.Sequential(nn.Linear(3, 2)))
    with pytest.raises(BadInput, match=r"^Sequential calls no Linear and no Conv2d"):
        gates.gated(nn.Sequential(nn.Conv1d(3, 2, 3), nn.Conv1d(2, 2, 3)))


@pytest.mark.parametrize("hook", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_a_weight_that_a_hook_computes_is_refused(hook):
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    hook(network[2])
    with pytest.raises(BadInput, match=r"^2\.weight is computed by a hook, so that its units cannot be cut"):
        gates.gated(network)


def test_a_network_that_remembers_what_it_computed_is_gated_and_hardened():
    class Remembering(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, inputs):
            self.hidden = self.first(inputs)
            return self.last(self.hidden)

    network, inputs = Remembering(), torch.ones(1, 4)
    network(inputs)
    model = gates.gated(network)
    expected = model.eval()(inputs)
    torch.testing.assert_close(gates.harden(model)(inputs), expected)


def test_a_convolution_whose_weight_a_parametrization_computes_is_refused_unless_a_norm_follows():
    convolution = nn.utils.parametrizations.weight_norm(nn.Conv2d(1, 4, 3))
    with pytest.raises(BadInput, match=r"gates on '0': .* with torch\.nn\.utils\.parametrize\.remove_parametrizations"):
        gates.gated(nn.Sequential(convolution, nn.ReLU(), nn.Conv2d(4, 2, 3)))
    gates.gated(nn.Sequential(convolution, nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3)))(torch.ones(1, 1, 8, 8))


def test_a_layer_without_a_shape_is_refused():
    with pytest.raises(BadInput, match="2 has no shape yet: run the model once"):
        gates.gated(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Flatten(), nn.LazyLinear(3)))


def test_channels_of_a_residual_sum_are_refused():
    for name in ("stem", "blocks.1.conv2"):
        with pytest.raises(BadInput, match=f"gates on '{name}': its channels meet others in a sum"):
            gates.gated(small_resnet(), [name])


def test_a_gated_layer_is_not_gated_again():
    model = gates.gated(moons_mlp(), ["fc1"])
    with pytest.raises(BadInput, match="gates on 'fc1': it has gates already"):
        gates.gated(model, ["fc1"])


def test_other_bad_input_is_refused_in_one_line():
    model = gates.gated(moons_mlp(), ["fc1", "fc2"])
    layers, draw = gates.trace(model), torch.Generator()
    with pytest.raises(BadInput, match="1 lambdas for 2 gated layers: one a layer is needed"):
        gates.penalty(model, [0.1])
    with pytest.raises(BadInput, match="k=-7: the slope"):
        gates.set_k(model, -7)
    with pytest.raises(BadInput, match="fc1 has no dormant units: all 100 have been open, so it cannot be expanded"):
        gates.wake(layers, "fc1", draw)
    with pytest.raises(BadInput, match="'map' has no gates; with gates: fc1, fc2"):
        gates.wake(layers, "map", draw)
    with pytest.raises(BadInput, match="Sequential has no gates"):
        gates.gates_of(moons_mlp())
    with pytest.raises(BadInput, match="gates of kind 'sigmoid' have another estimator: arm or ar"):
        gates.pathwise(model, lambda model: model(torch.zeros(1, 2)).sum(), draw)
    put(model, 1.0, -1.0)
    with pytest.raises(BadInput, match="all 80 gates of fc2 are closed, nothing passes it: lower its lambda"):
        gates.sizes(layers)


def test_columns_of_an_image_are_not_channels_so_they_carry_no_gates():
    """A Linear without a flatten before it reads an image's last axis."""
    conv, linear = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(8, 3)
    network = nn.Sequential(conv, nn.ReLU(), linear)
    assert gates.gateable(gates.trace(network)) == []
    flat = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.ReLU(), nn.Linear(256, 3))
    assert gates.gateable(gates.trace(flat)) == ["0", "4"]
