"""Laws of `lib.pruners.plasticity`: gates, what they cost, how networks with them are counted, and expansion."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib.errors import BadInput
from lib.models.alexnet import alexnet
from lib.models.lenet import LeNet, lenet5
from lib.models.plain import moons_mlp
from lib.models.resnet import small_resnet
from lib.pruners import plasticity
from lib.pruners.plasticity.gates import hard_concrete, hard_sigmoid, sigmoid, stretched

BINARY = ("sigmoid", "hard_sigmoid")


def mlp(inputs=4, hidden=8, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 3)).double()


def examples(features, seed=1):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(20, features, generator=draw).double(), torch.randint(3, (20,), generator=draw)


def loss_on(inputs, labels):
    return lambda model: F.cross_entropy(model(inputs), labels)


def phis(model):
    return [gates.phi for gates in plasticity.gates_of(model)]


def put(model, *values):
    """These phi."""
    for phi, value in zip(phis(model), values, strict=True):
        phi.data = torch.as_tensor(value, dtype=phi.dtype).expand(phi.shape).clone()


# g


@pytest.mark.parametrize("k", [0, 0.5, 1, 7])
def test_g_is_written_out_and_antithetic(k):
    phi = torch.linspace(-6, 6, 25, dtype=torch.float64)
    torch.testing.assert_close(sigmoid(phi, k), 1 / (1 + (-k * phi).exp()))
    hard = torch.tensor([min(1, max(0, k * x / 7 + 0.5)) for x in phi.tolist()]).double()
    torch.testing.assert_close(hard_sigmoid(phi, k), hard)
    for g in (sigmoid, hard_sigmoid):
        torch.testing.assert_close(g(-phi, k), 1 - g(phi, k))


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("k", [0.5, 1, 7])
def test_the_chain_factor_is_the_derivative_of_gs_logit(kind, k):
    phi = torch.linspace(-0.4, 0.4, 9, dtype=torch.float64, requires_grad=True)
    g = plasticity.KINDS[kind]
    (slope,) = torch.autograd.grad(torch.logit(g.probability(phi, k)).sum(), phi)
    torch.testing.assert_close(g.chain(phi.detach(), k), slope)


def test_hard_concrete_gates_are_the_cut_off_stretched_distribution():
    model = plasticity.gated(mlp(), ["2"], k=2.0, kind="hard_concrete")
    put(model, torch.linspace(-2, 2, 8))
    (gates,) = plasticity.gates_of(model)
    uniform = torch.rand(20_000, 8, generator=torch.Generator().manual_seed(0)).double()
    z = gates.draw(uniform)
    share = (z > 0).double().mean(0)
    torch.testing.assert_close(share, hard_concrete(gates.phi, 2.0).detach(), atol=0.015, rtol=0)
    assert ((z == 0).any(), (z == 1).any(), ((z > 0) & (z < 1)).any()) == (True, True, True)
    torch.testing.assert_close(gates.value(), stretched(torch.sigmoid(2.0 * gates.phi)).detach())


# What a gate does


def test_gates_multiply_the_inputs_of_a_linear_and_the_channels_of_a_convolution():
    torch.manual_seed(0)
    conv, linear = nn.Conv2d(2, 3, 3), nn.Linear(48, 5)
    model = plasticity.gated(nn.Sequential(conv, nn.ReLU(), nn.Flatten(), linear), ["0", "3"])
    images = torch.randn(6, 2, 6, 6)
    z1, z2 = torch.tensor([1.0, 0, 1]), (torch.arange(48) % 2).float()
    with plasticity.holding(plasticity.gates_of(model), [z1, z2]):
        out = model(images)
    hidden = (conv(images) * z1[:, None, None]).clamp(min=0).flatten(1)
    torch.testing.assert_close(out, F.linear(hidden * z2, linear.weight, linear.bias))


def test_the_gate_of_a_normalised_convolution_stands_behind_the_norm():
    model = plasticity.gated(small_resnet(), ["blocks.0.conv1"])
    assert isinstance(model.blocks[0].bn1, plasticity.Gated)
    assert isinstance(model.blocks[0].conv1, nn.Conv2d)
    (gates,) = plasticity.gates_of(model)
    assert gates.weights == 16 * 9  # of the convolution


def test_at_test_time_closed_gates_are_zero_and_open_ones_keep_their_probability():
    model = plasticity.gated(mlp(), ["2"], tau=0.6)
    put(model, torch.tensor([-1.0, 0, 0.05, 0.06, 0.1, 0.2, 0.5, 1]))
    (gates,) = plasticity.gates_of(model)
    g = 1 / (1 + torch.exp(-7 * gates.phi.detach()))
    expected = torch.where(g > 0.6, g, 0)
    torch.testing.assert_close(gates.value(), expected)
    assert (expected > 0).tolist() == [False] * 3 + [True] * 5  # sigmoid(0.35) = 0.587, sigmoid(0.42) = 0.603
    inputs, _ = examples(4)
    network = mlp()
    torch.testing.assert_close(model.eval()(inputs), network[2](network[1](network[0](inputs)) * expected))


def test_k_zero_is_dropout_of_one_half():
    """Section 3.1: every setting of the gates is as likely as any other, and the test-time gate is 0.5."""
    model = plasticity.gated(mlp(4, 3), ["2"], k=0.0)
    put(model, [-5.0, 0.3, 9.0])  # whatever phi is
    (gates,) = plasticity.gates_of(model)
    torch.manual_seed(0)
    draws = torch.stack([gates() for _ in range(8000)])
    counts = torch.bincount((draws @ torch.tensor([1.0, 2, 4]).double()).long(), minlength=8)
    expected, deviation = 1000, math.sqrt(8000 / 8 * 7 / 8)
    assert (counts - expected).abs().max() < 4 * deviation
    inputs, _ = examples(4)
    network = mlp(4, 3)
    torch.testing.assert_close(model.eval()(inputs), network[2](0.5 * network[1](network[0](inputs))))


@pytest.mark.parametrize("kind", plasticity.KINDS)
def test_at_infinite_k_the_network_is_the_plain_one_and_phi_has_no_gradient(kind):
    """Sections 3.2 and 3.3, equation 16; bit for bit, in both modes, with dropout."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model = plasticity.gated(network, ["3", "5"], kind=kind)
    plasticity.set_k(model, plasticity.INFINITE)
    assert plasticity.settled(model)
    inputs, labels = torch.randn(20, 4), torch.randint(3, (20,))
    assert torch.equal(model.eval()(inputs), network.eval()(inputs))
    names = ["plain", "pathwise"] if kind == "hard_concrete" else ["plain", "arm", "ar"]
    for name in names:
        for one in (model, network):
            one.train().zero_grad()
        torch.manual_seed(5)
        expected = F.cross_entropy(network(inputs), labels)
        expected.backward()
        torch.manual_seed(5)
        value = getattr(plasticity, name)(model, loss_on(inputs, labels), torch.Generator().manual_seed(0))
        plasticity.penalty(model, [1.0, 1.0]).backward()
        assert torch.equal(value, expected.detach())
        assert torch.equal(model[0].weight.grad, network[0].weight.grad)
        assert all(torch.equal(phi.grad, torch.zeros(8)) for phi in phis(model))


def test_closed_gates_are_closed_for_certain_at_infinite_k():
    model = plasticity.gated(mlp(), ["2"], start=[3])
    plasticity.set_k(model, plasticity.INFINITE)
    (gates,) = plasticity.gates_of(model)
    assert gates.value().tolist() == gates.awake.double().tolist()
    zeros = torch.zeros(8).double()  # u = 0 is the draw that could disagree
    assert torch.equal(gates.antithetic(zeros), gates.draw(zeros))


# What gates cost


def test_the_penalty_is_lambda_times_the_expected_number_of_weights_and_its_gradient_that_of_g():
    model = plasticity.gated(lenet5(), ["conv1", "conv2", "fc1", "fc2"]).double()
    rates = [10, 0.5, -0.1, 10]
    cost = plasticity.penalty(model, rates)
    pi = [torch.sigmoid(7 * phi) for phi in phis(model)]
    expected = [25 * 10 * pi[0].sum(), 500 * 0.5 * pi[1].sum(), 500 * -0.1 * pi[2].sum(), 10 * 10 * pi[3].sum()]
    torch.testing.assert_close(cost, sum(expected))
    cost.backward()
    torch.testing.assert_close(phis(model)[2].grad, -50 * 7 * pi[2] * (1 - pi[2]))


# Sizes, at the start and after: the paper's tables


def test_the_papers_networks_have_the_papers_numbers_of_weights():
    """Section 6: as printed, but for LeNet-5, whose 4.23e5 would be 784 inputs instead of 800."""
    small = {
        "moons": (moons_mlp(), ["fc1", "fc2"], (2,), "2-100-80-2", 8160),
        "lenet": (lenet5(), ["conv1", "conv2", "fc1", "fc2"], (1, 28, 28), "20-50-800-500", 430_500),
    }
    for network, names, shape, architecture, weights in small.values():
        layers = plasticity.trace(plasticity.gated(network, names), shape)
        sizes = plasticity.sizes(layers)
        assert plasticity.architecture(layers) == architecture
        assert sizes["parameters"] == sizes["parameters_live"] == weights


@pytest.mark.parametrize(("start", "printed"), [((3, 3, 48, 3), 474), ((8, 8, 53, 8), 2304), ((7, 9, 109, 30), 5320)])
def test_lenets_of_table_1_have_the_weights_of_table_1(start, printed):
    model = plasticity.gated(lenet5(), ["conv1", "conv2", "fc1", "fc2"], start=start)
    layers = plasticity.trace(model, (1, 28, 28))
    assert plasticity.architecture(layers) == "-".join(map(str, start))
    assert plasticity.sizes(layers)["parameters"] == printed
    positions = model.fc1.gates.awake.reshape(50, 16)
    assert bool(positions[~model.conv2.gates.awake].sum() == 0)  # positions of closed channels would be of no use


def test_a_position_of_a_closed_channel_counts_in_the_papers_tables_but_does_not_live():
    model = plasticity.gated(LeNet((1, 2, 3), 3, 1, 8, 4, 5), ["conv2", "fc1", "fc2"])
    # open: channels 0 and 2, positions 0 to 4 (all of channel 0, one of channel 1), neurons 0 to 2
    put(model, [1.0, -1, 1], torch.where(torch.arange(12) < 5, 1.0, -1), [1.0, 1, 1, -1])
    layers = plasticity.trace(model, (1, 8, 8))
    assert plasticity.architecture(layers) == "2-5-3"
    sizes = plasticity.sizes(layers)
    assert sizes["parameters"] == 2 * 9 + 2 * 2 * 9 + 5 * 3 + 3 * 5
    # the fifth position's channel is closed, and nobody reads channel 2
    assert sizes["parameters_live"] == 2 * 9 + 2 * 1 * 9 + 4 * 3 + 3 * 5


def test_alexnet_has_the_papers_2_43e7_weights():
    names = [f"conv{i}" for i in range(1, 6)] + ["fc1", "fc2", "fc3"]
    layers = plasticity.trace(plasticity.gated(alexnet(), names), (3, 32, 32))
    assert plasticity.architecture(layers) == "96-256-384-384-256-1024-4096-4096"
    assert plasticity.sizes(layers)["parameters"] == 24_332_832


# Start and expansion


@pytest.mark.parametrize(("k", "dormant", "closed"), [(7.0, 3.0, 0.047), (0.5, 3.0, 0.047), (0.5, 40.0, 0.0)])
def test_gates_start_open_in_95_percent_of_draws_or_dormant_in_as_many(k, dormant, closed):
    model = plasticity.gated(moons_mlp(), ["fc1", "fc2"], k=k, start=(30, 80), dormant=dormant)
    first, second = plasticity.gates_of(model)
    assert (int(first.awake.sum()), int(second.awake.sum())) == (30, 80)
    assert first.probability()[first.awake].mean().item() == pytest.approx(0.953, abs=0.006)
    assert first.probability()[~first.awake].mean().item() == pytest.approx(closed, abs=0.006)
    assert first.phi[first.awake].std().item() == pytest.approx(0.01, abs=0.004)
    assert first.dormant().tolist() == (~first.awake).tolist()


def test_which_units_start_open_is_drawn_from_the_seed():
    started = [plasticity.gated(moons_mlp(), ["fc2"], start=(3,), seed=s).fc2.gates.awake.tolist() for s in (0, 0, 1)]
    assert started[0] == started[1] != started[2]
    given = plasticity.gated(moons_mlp(), ["fc1", "fc2"], start=(5, torch.arange(80) % 3 == 1))
    assert given.fc2.gates.is_open().nonzero()[:, 0].tolist() == list(range(1, 80, 3))


@pytest.mark.parametrize(
    ("losses", "tolerance", "plateau"),
    [
        ([1, 1], 0, True),  # as good as before is no new best
        ([1, 1 - 2**-52], 0, False),
        ([1, 0.75], 0.25, True),  # better by the tolerance and no more
        ([1, 0.75 - 2**-52], 0.25, False),
    ],
)
def test_what_is_better_by_no_more_than_the_tolerance_is_no_new_best(losses, tolerance, plateau):
    assert plasticity.plateaus(losses, 1, tolerance) is plateau


@pytest.mark.parametrize(
    ("losses", "plateau"),
    [
        ([3, 2, 1], False),  # not longer than the patience
        ([3, 2, 1, 1], False),
        ([4, 3, 2, 1, 1.1, 1, 1.2], True),
        ([4, 3, 2, 1, 1.1, 1, 0.9], False),
        ([4, 3, 2, 1, 1.1, 1, 0.95], True),  # better, but by less than 0.08
    ],
)
def test_a_loss_plateaus_when_its_last_values_bring_no_new_best(losses, plateau):
    assert plasticity.plateaus(losses, 3, 0.08) is plateau


def test_expansion_wakes_one_unit_in_each_layer_that_has_dormant_and_no_redundant_ones():
    model = plasticity.gated(moons_mlp(6, 5), ["fc1", "fc2"], k=0.5, start=(3, 2))
    layers, draw = plasticity.trace(model), torch.Generator().manual_seed(0)
    first, _ = plasticity.gates_of(model)
    assert plasticity.expand(layers, draw) == ["fc1", "fc2"]
    assert plasticity.architecture(layers) == "2-4-3-2"
    assert first.probability()[first.awake].min().item() == pytest.approx(0.953, abs=0.01)
    redundant = int(first.awake.nonzero()[0])
    first.phi.data[redundant] = -1.0  # closes: fc1 has enough
    assert plasticity.expand(layers, draw) == ["fc2"]
    assert plasticity.expand(layers, draw) == ["fc2"]
    assert plasticity.architecture(layers) == "2-3-5-2"
    assert plasticity.expand(layers, draw) == []  # fc2 has no dormant units left: the end
    first.phi.data[redundant] = 1.0
    assert plasticity.expand(layers, draw) == ["fc1"]


def test_a_unit_that_opened_by_itself_is_awake_and_redundant_when_it_closes():
    model = plasticity.gated(moons_mlp(6, 5), ["fc1"], k=0.5, start=(3,))
    layers, draw = plasticity.trace(model), torch.Generator().manual_seed(0)
    (gates,) = plasticity.gates_of(model)
    unit = int((~gates.awake).nonzero()[0])
    gates.phi.data[unit] = 1.0
    plasticity.expand(layers, draw)
    assert bool(gates.awake[unit])
    gates.phi.data[unit] = -1.0
    assert plasticity.expand(layers, draw) == []


def test_a_woken_unit_is_awake_at_once_and_redundant_if_it_closes_before_anyone_looks():
    model = plasticity.gated(moons_mlp(6, 5), ["fc1"], k=0.5, start=(3,))
    layers, draw = plasticity.trace(model), torch.Generator().manual_seed(0)
    (gates,) = plasticity.gates_of(model)
    gates.phi.data[plasticity.wake(layers, "fc1", draw, level=0.1)] = -1.0
    assert int(gates.redundant().sum()) == 1
    assert plasticity.expand(layers, draw) == []


def test_positions_of_open_channels_wake_first():
    model = plasticity.gated(LeNet((1, 2, 4), 3, 1, 8, 4, 5), ["conv2", "fc1"], start=(2, 2))
    layers, draw = plasticity.trace(model), torch.Generator().manual_seed(0)
    fed = model.conv2.gates.awake.repeat_interleave(4)
    for _ in range(6):
        assert bool(fed[plasticity.wake(layers, "fc1", draw)])
    assert not bool(fed[plasticity.wake(layers, "fc1", draw)])


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
        ("fc3", {}, "gates on 'fc3': the network"),
        (["fc1"], {"kind": "tanh"}, "kind='tanh': known are sigmoid, hard_sigmoid, hard_concrete"),
        (["fc1"], {"tau": 1.0}, r"tau=1.0 is not in \[0, 1\)"),
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
        plasticity.gated(lenet5(), names, **more)


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
    assert plasticity.gateable(plasticity.trace(network)) == names
    layers = plasticity.trace(plasticity.gated(network))
    assert [name for name, layer in layers.items() if layer.gates] == names


def test_a_network_without_units_to_cut_is_refused():
    with pytest.raises(BadInput, match=r"gates on \[\]"):
        plasticity.gated(nn.Sequential(nn.Linear(3, 2)))


def test_channels_of_a_residual_sum_are_refused():
    for name in ("stem", "blocks.1.conv2"):
        with pytest.raises(BadInput, match=f"gates on '{name}': its channels meet others in a sum"):
            plasticity.gated(small_resnet(), [name])


def test_a_convolution_in_groups_is_refused():
    with pytest.raises(BadInput, match="0 is a convolution in 2 groups"):
        plasticity.gated(nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.Conv2d(4, 1, 1)), ["0"])


def test_a_gated_layer_is_not_gated_again():
    model = plasticity.gated(moons_mlp(), ["fc1"])
    with pytest.raises(BadInput, match="gates on 'fc1': it has gates already"):
        plasticity.gated(model, ["fc1"])


def test_other_bad_input_is_refused_in_one_line():
    model = plasticity.gated(moons_mlp(), ["fc1", "fc2"])
    layers, draw = plasticity.trace(model), torch.Generator()
    with pytest.raises(BadInput, match="1 lambdas for 2 gated layers: one a layer is needed"):
        plasticity.penalty(model, [0.1])
    with pytest.raises(BadInput, match="k=-7: the slope"):
        plasticity.set_k(model, -7)
    with pytest.raises(BadInput, match="fc1 has no dormant units: all 100 have been open, so it cannot be expanded"):
        plasticity.wake(layers, "fc1", draw)
    with pytest.raises(BadInput, match="'map' has no gates; with gates: fc1, fc2"):
        plasticity.wake(layers, "map", draw)
    with pytest.raises(BadInput, match="Sequential has no gates"):
        plasticity.gates_of(moons_mlp())
    with pytest.raises(BadInput, match="gates of kind 'sigmoid' have another estimator: arm or ar"):
        plasticity.pathwise(model, lambda model: model(torch.zeros(1, 2)).sum(), draw)
    put(model, 1.0, -1.0)
    with pytest.raises(BadInput, match="all 80 gates of fc2 are closed, nothing passes it: lower its lambda"):
        plasticity.sizes(layers)


def test_columns_of_an_image_are_not_channels_so_they_carry_no_gates():
    """A Linear without a flatten before it reads an image's last axis."""
    conv, linear = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(8, 3)
    network = nn.Sequential(conv, nn.ReLU(), linear)
    assert plasticity.gateable(plasticity.trace(network)) == []
    flat = nn.Sequential(conv, nn.ReLU(), nn.Flatten(), nn.ReLU(), nn.Linear(256, 3))
    assert plasticity.gateable(plasticity.trace(flat)) == ["0", "4"]
