"""Laws of `lib.pruners.gates`: gates, what they cost, how networks with them are counted, and expansion."""

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.models.alexnet import alexnet
from lib.models.lenet import LeNet, lenet5
from lib.models.plain import moons_mlp
from lib.models.resnet import small_resnet
from lib.pruners import calibration, gates
from lib.pruners.gates.gate import hard_concrete, hard_sigmoid, sigmoid, stretched
from tests.pruners.by_keyword import ByKeyword
from tests.pruners.gating import BINARY, examples, loss_on, phis, put


def mlp(inputs=4, hidden=8, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 3)).double()


# g


@pytest.mark.parametrize("k", [0, 0.5, 1, 7])
def test_g_is_written_out_and_antithetic(k):
    phi = torch.linspace(-6, 6, 25, dtype=torch.float64)
    torch.testing.assert_close(sigmoid(phi, k), 1 / (1 + (-k * phi).exp()))
    hard = torch.tensor([min(1, max(0, k * x / 7 + 0.5)) for x in phi.tolist()]).double()
    torch.testing.assert_close(hard_sigmoid(phi, k), hard)
    for g in (sigmoid, hard_sigmoid):
        torch.testing.assert_close(g(-phi, k), 1 - g(phi, k))


def test_the_hard_sigmoid_has_no_slope_at_its_ends():
    phi = torch.tensor([-3.5, 3.5, 0.0], dtype=torch.float64, requires_grad=True)  # k phi / 7 + 0.5 is 0, 1 and 0.5
    (slope,) = torch.autograd.grad(hard_sigmoid(phi, 1.0).sum(), phi)
    assert slope.tolist() == [0, 0, 1 / 7]


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("k", [0.5, 1, 7])
def test_the_chain_factor_is_the_derivative_of_gs_logit(kind, k):
    phi = torch.linspace(-0.4, 0.4, 9, dtype=torch.float64, requires_grad=True)
    g = gates.KINDS[kind]
    (slope,) = torch.autograd.grad(torch.logit(g.probability(phi, k)).sum(), phi)
    torch.testing.assert_close(g.chain(phi.detach(), k), slope)


def test_hard_concrete_gates_are_the_cut_off_stretched_distribution():
    model = gates.gated(mlp(), ["2"], k=2.0, kind="hard_concrete")
    put(model, torch.linspace(-2, 2, 8))
    (one,) = gates.gates_of(model)
    uniform = torch.rand(20_000, 8, generator=torch.Generator().manual_seed(0)).double()
    z = one.draw(uniform)
    share = (z > 0).double().mean(0)
    torch.testing.assert_close(share, hard_concrete(one.phi, 2.0).detach(), atol=0.015, rtol=0)
    assert ((z == 0).any(), (z == 1).any(), ((z > 0) & (z < 1)).any()) == (True, True, True)
    torch.testing.assert_close(one.value(), stretched(torch.sigmoid(2.0 * one.phi)).detach())


# What a gate does


def test_a_gate_at_tau_itself_is_closed_at_test_time():
    found = gates.Gates(torch.zeros(2), torch.ones(2, dtype=torch.bool), "sigmoid", 7.0, 0.5, 1)
    assert found.value().tolist() == [0, 0]


def test_gates_multiply_the_inputs_of_a_linear_and_the_channels_of_a_convolution():
    torch.manual_seed(0)
    conv, linear = nn.Conv2d(2, 3, 3), nn.Linear(48, 5)
    model = gates.gated(nn.Sequential(conv, nn.ReLU(), nn.Flatten(), linear), ["0", "3"])
    images = torch.randn(6, 2, 6, 6)
    z1, z2 = torch.tensor([1.0, 0, 1]), (torch.arange(48) % 2).float()
    with gates.holding(gates.gates_of(model), [z1, z2]):
        out = model(images)
    hidden = (conv(images) * z1[:, None, None]).clamp(min=0).flatten(1)
    torch.testing.assert_close(out, F.linear(hidden * z2, linear.weight, linear.bias))


@pytest.mark.parametrize("bias", [True, False])
def test_a_gated_convolution_is_called_with_weights_times_z_and_keeps_its_own(bias: bool):
    """The same floats, bit for bit, as torch's functional call of it, and hooks see the call."""
    torch.manual_seed(0)
    model = gates.gated(nn.Sequential(nn.Conv2d(2, 3, 3, bias=bias), nn.Flatten(), nn.Linear(48, 5)), ["0"])
    layer, images, z = model[0].layer, torch.randn(6, 2, 6, 6), torch.tensor([0.3, 0.0, 1.0])
    own, seen = dict(layer.named_parameters()), []
    layer.register_forward_hook(lambda *call: seen.append(call[2]))
    with gates.holding(gates.gates_of(model), [z]):
        model(images).sum().backward()
    scaled = {name: z.view(-1, *[1] * (one.dim() - 1)) * one.detach() for name, one in own.items()}
    assert torch.equal(seen[0], functional_call(layer, scaled, images))
    assert {name: id(one) for name, one in layer.named_parameters()} == {name: id(one) for name, one in own.items()}
    assert bool((layer.weight.grad[1] == 0).all())
    assert bool((layer.weight.grad[[0, 2]] != 0).any())
    with gates.holding(gates.gates_of(model), [z]), pytest.raises(RuntimeError):
        model(images[:, :1])
    assert dict(layer.named_parameters()).keys() == own.keys()  # after an error too
    assert layer.weight is own["weight"]


def test_the_gate_of_a_normalised_convolution_stands_behind_the_norm():
    model = gates.gated(small_resnet(), ["blocks.0.conv1"])
    assert isinstance(model.blocks[0].bn1, gates.Gated)
    assert isinstance(model.blocks[0].conv1, nn.Conv2d)
    (one,) = gates.gates_of(model)
    assert one.weights == 16 * 9  # of the convolution


def test_at_test_time_closed_gates_are_zero_and_open_ones_keep_their_probability():
    model = gates.gated(mlp(), ["2"], tau=0.6)
    put(model, torch.tensor([-1.0, 0, 0.05, 0.06, 0.1, 0.2, 0.5, 1]))
    (one,) = gates.gates_of(model)
    g = 1 / (1 + torch.exp(-7 * one.phi.detach()))
    expected = torch.where(g > 0.6, g, 0)
    torch.testing.assert_close(one.value(), expected)
    assert (expected > 0).tolist() == [False] * 3 + [True] * 5  # sigmoid(0.35) = 0.587, sigmoid(0.42) = 0.603
    inputs, _ = examples(4)
    network = mlp()
    torch.testing.assert_close(model.eval()(inputs), network[2](network[1](network[0](inputs)) * expected))


def test_k_zero_is_dropout_of_one_half():
    """Section 3.1: every setting of the gates is as likely as any other, and the test-time gate is 0.5."""
    model = gates.gated(mlp(4, 3), ["2"], k=0.0)
    put(model, [-5.0, 0.3, 9.0])  # whatever phi is
    (one,) = gates.gates_of(model)
    torch.manual_seed(0)
    draws = torch.stack([one() for _ in range(8000)])
    counts = torch.bincount((draws @ torch.tensor([1.0, 2, 4]).double()).long(), minlength=8)
    expected, deviation = 1000, math.sqrt(8000 / 8 * 7 / 8)
    assert (counts - expected).abs().max() < 4 * deviation
    inputs, _ = examples(4)
    network = mlp(4, 3)
    torch.testing.assert_close(model.eval()(inputs), network[2](0.5 * network[1](network[0](inputs))))


@pytest.mark.parametrize("kind", gates.KINDS)
def test_at_infinite_k_the_network_is_the_plain_one_and_phi_has_no_gradient(kind):
    """Sections 3.2 and 3.3, equation 16; bit for bit, in both modes, with dropout."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    model = gates.gated(network, ["3", "5"], kind=kind)
    gates.set_k(model, gates.INFINITE)
    assert gates.settled(model)
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
        value = getattr(gates, name)(model, loss_on(inputs, labels), torch.Generator().manual_seed(0))
        gates.penalty(model, [1.0, 1.0]).backward()
        assert torch.equal(value, expected.detach())
        assert torch.equal(model[0].weight.grad, network[0].weight.grad)
        assert all(torch.equal(phi.grad, torch.zeros(8)) for phi in phis(model))


def test_closed_gates_are_closed_for_certain_at_infinite_k():
    model = gates.gated(mlp(), ["2"], start=[3])
    gates.set_k(model, gates.INFINITE)
    (one,) = gates.gates_of(model)
    assert one.value().tolist() == one.awake.double().tolist()
    zeros = torch.zeros(8).double()  # u = 0 is the draw that could disagree
    assert torch.equal(one.antithetic(zeros), one.draw(zeros))


@pytest.mark.parametrize(("kind", "tau"), [("sigmoid", 0.2), ("sigmoid", 0.8), ("hard_sigmoid", 0.8)])
def test_a_fixed_architecture_is_the_one_that_was_open_whatever_tau_is(kind, tau):
    model = gates.gated(mlp(), ["2"], kind=kind, tau=tau)
    put(model, torch.linspace(-0.4, 0.4, 8))
    (one,) = gates.gates_of(model)
    was = one.is_open()
    assert not torch.equal(was, one.phi > 0)
    gates.set_k(model, 1.0)  # as a network from elsewhere may be set
    gates.fix(model, 7.0)
    assert torch.equal(one.is_open(), was)
    assert gates.settled(model)


def test_fixing_moves_no_binary_gate_at_the_papers_tau_and_keeps_open_hard_concrete_ones_open():
    phi = torch.linspace(-0.5, 0.5, 8).double()
    for kind, count in (("sigmoid", 4), ("hard_sigmoid", 4), ("hard_concrete", 6)):  # open above k phi = -2.4
        model = gates.gated(mlp(), ["2"], kind=kind)
        put(model, phi)
        (one,) = gates.gates_of(model)
        gates.fix(model, 7.0)
        assert torch.equal(one.phi, phi) is (kind != "hard_concrete")
        assert one.is_open().tolist() == [False] * (8 - count) + [True] * count


def test_draws_that_are_not_one_a_layer_are_refused_and_not_kept():
    found = gates.gates_of(gates.gated(moons_mlp(6, 5)))
    with pytest.raises(BadInput, match="1 draws for 2 gated layers"), gates.holding(found, [torch.zeros(6)]):
        pass
    assert [one.drawn for one in found] == [None, None]


# What gates cost


def test_the_penalty_is_lambda_times_the_expected_number_of_weights_and_its_gradient_that_of_g():
    model = gates.gated(lenet5(), ["conv1", "conv2", "fc1", "fc2"]).double()
    rates = [10, 0.5, -0.1, 10]
    cost = gates.penalty(model, rates)
    pi = [torch.sigmoid(7 * phi) for phi in phis(model)]
    expected = [25 * 10 * pi[0].sum(), 500 * 0.5 * pi[1].sum(), 500 * -0.1 * pi[2].sum(), 10 * 10 * pi[3].sum()]
    torch.testing.assert_close(cost, sum(expected))
    cost.backward()
    torch.testing.assert_close(phis(model)[2].grad, -50 * 7 * pi[2] * (1 - pi[2]))


class Backwards(nn.Module):
    """Its layers are registered in another order than the forward pass has."""

    def __init__(self):
        super().__init__()
        self.c, self.b, self.a = nn.Linear(5, 2), nn.Linear(4, 5), nn.Linear(3, 4)

    def forward(self, x):
        return self.c(self.b(self.a(x).relu()).relu())


def test_gates_come_in_the_order_of_the_forward_pass_however_layers_are_registered():
    both = gates.gated(Backwards(), ["b", "c"], start=(3, 1))
    one_by_one = gates.gated(gates.gated(Backwards(), ["c"], start=1), ["b"], start=3)
    for model in (both, copy.deepcopy(both), one_by_one):
        assert [len(one.phi) for one in gates.gates_of(model)] == [4, 5]
        counts = [int(one.is_open().sum()) for one in gates.gates_of(model)]
        assert "-".join(map(str, [3, *counts, 2])) == gates.architecture(gates.trace(model)) == "3-3-1-2"
        (gates.penalty(model, [1.0, 0.0]) * 1.0).backward()
        assert bool((model.b.gates.phi.grad > 0).all())
        assert bool((model.c.gates.phi.grad == 0).all())


@pytest.mark.parametrize(
    ("first", "second", "shape"),
    [(nn.Linear(4, 4), nn.Linear(4, 4), (4,)), (nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1), (4, 3, 3))],
    ids=["Linear", "Conv2d"],
)
def test_a_gated_layer_may_be_called_by_keyword(first, second, shape):
    plain = nn.Sequential(ByKeyword(first), nn.ReLU(), ByKeyword(second)).eval()
    model = gates.gated(plain).eval()
    gates.set_k(model, gates.INFINITE)
    inputs = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    assert torch.equal(model(inputs), plain(inputs))


# Sizes, at the start and after: the paper's tables


def test_the_papers_networks_have_the_papers_numbers_of_weights():
    """Section 6: as printed, but for LeNet-5, whose 4.23e5 would be 784 inputs instead of 800."""
    small = {
        "moons": (moons_mlp(), ["fc1", "fc2"], (2,), "2-100-80-2", 8160),
        "lenet": (lenet5(), ["conv1", "conv2", "fc1", "fc2"], (1, 28, 28), "20-50-800-500", 430_500),
    }
    for network, names, shape, architecture, weights in small.values():
        layers = gates.trace(gates.gated(network, names), shape)
        sizes = gates.sizes(layers)
        assert gates.architecture(layers) == architecture
        assert sizes["parameters"] == sizes["parameters_live"] == weights


@pytest.mark.parametrize(("start", "printed"), [((3, 3, 48, 3), 474), ((8, 8, 53, 8), 2304), ((7, 9, 109, 30), 5320)])
def test_lenets_of_table_1_have_the_weights_of_table_1(start, printed):
    model = gates.gated(lenet5(), ["conv1", "conv2", "fc1", "fc2"], start=start)
    layers = gates.trace(model, (1, 28, 28))
    assert gates.architecture(layers) == "-".join(map(str, start))
    assert gates.sizes(layers)["parameters"] == printed
    positions = model.fc1.gates.awake.reshape(50, 16)
    assert bool(positions[~model.conv2.gates.awake].sum() == 0)  # positions of closed channels would be of no use


def test_a_position_of_a_closed_channel_counts_in_the_papers_tables_but_does_not_live():
    model = gates.gated(LeNet((1, 2, 3), 3, 1, 8, 4, 5), ["conv2", "fc1", "fc2"])
    # open: channels 0 and 2, positions 0 to 4 (all of channel 0, one of channel 1), neurons 0 to 2
    put(model, [1.0, -1, 1], torch.where(torch.arange(12) < 5, 1.0, -1), [1.0, 1, 1, -1])
    layers = gates.trace(model, (1, 8, 8))
    assert gates.architecture(layers) == "2-5-3"
    sizes = gates.sizes(layers)
    assert sizes["parameters"] == 2 * 9 + 2 * 2 * 9 + 5 * 3 + 3 * 5
    # the fifth position's channel is closed, and nobody reads channel 2
    assert sizes["parameters_live"] == 2 * 9 + 2 * 1 * 9 + 4 * 3 + 3 * 5


def test_alexnet_has_the_papers_2_43e7_weights():
    names = [f"conv{i}" for i in range(1, 6)] + ["fc1", "fc2", "fc3"]
    layers = gates.trace(gates.gated(alexnet(), names), (3, 32, 32))
    assert gates.architecture(layers) == "96-256-384-384-256-1024-4096-4096"
    assert gates.sizes(layers)["parameters"] == 24_332_832


def test_an_architecture_that_ends_in_a_convolution_is_written_without_ends():
    decoder = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 36), nn.Unflatten(1, (4, 3, 3)), nn.Conv2d(4, 1, 3)
    )
    assert gates.architecture(gates.trace(gates.gated(decoder))) == "16"


def test_a_weight_that_a_parametrization_computes_counts_without_gradients_too():
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    nn.utils.parametrizations.weight_norm(network[2])
    layers = gates.trace(gates.gated(network))
    with torch.no_grad():
        assert gates.sizes(layers)["parameters"] == 4 * 8 + 8 * 3


# Start and expansion


@pytest.mark.parametrize(("k", "dormant", "closed"), [(7.0, 3.0, 0.047), (0.5, 3.0, 0.047), (0.5, 40.0, 0.0)])
def test_gates_start_open_in_95_percent_of_draws_or_dormant_in_as_many(k, dormant, closed):
    model = gates.gated(moons_mlp(), ["fc1", "fc2"], k=k, start=(30, 80), dormant=dormant)
    first, second = gates.gates_of(model)
    assert (int(first.awake.sum()), int(second.awake.sum())) == (30, 80)
    assert first.probability()[first.awake].mean().item() == pytest.approx(0.953, abs=0.006)
    assert first.probability()[~first.awake].mean().item() == pytest.approx(closed, abs=0.006)
    assert first.phi[first.awake].std().item() == pytest.approx(0.01, abs=0.004)
    assert first.dormant().tolist() == (~first.awake).tolist()


@pytest.mark.parametrize("k", [7.0, 20.0, 300.0, gates.INFINITE])
def test_gates_that_are_to_start_open_do_at_every_slope(k):
    wide = nn.Sequential(nn.Linear(2, 128), nn.ReLU(), nn.Linear(128, 2))
    (one,) = gates.gates_of(gates.gated(wide, k=k))
    assert int(one.is_open().sum()) == 128
    model = gates.gated(wide, k=k, start=100)
    (one,) = gates.gates_of(model)
    assert one.is_open().tolist() == one.awake.tolist()
    layers, draw = gates.trace(model), torch.Generator().manual_seed(0)
    woken = [gates.wake(layers, "2", draw) for _ in range(28)]
    assert bool(one.is_open()[woken].all())


def test_which_units_start_open_is_drawn_from_the_seed():
    started = [gates.gated(moons_mlp(), ["fc2"], start=(3,), seed=s).fc2.gates.awake.tolist() for s in (0, 0, 1)]
    assert started[0] == started[1] != started[2]
    assert gates.gated(moons_mlp(), "fc2", start=3, seed=np.int64(0)).fc2.gates.awake.tolist() == started[0]
    given = gates.gated(moons_mlp(), ["fc1", "fc2"], start=(5, torch.arange(80) % 3 == 1))
    assert given.fc2.gates.is_open().nonzero()[:, 0].tolist() == list(range(1, 80, 3))


@pytest.mark.parametrize(
    ("losses", "tolerance", "plateau"),
    [
        ([1, 1], 0, True),
        ([1, 1 - 2**-52], 0, False),
        ([1, 0.75], 0.25, True),  # a fall by the tolerance and no more
        ([1, 0.75 - 2**-52], 0.25, False),
        ([1, 1.25], 0.25, True),  # so with a rise
        ([1, 1.25 + 2**-52], 0.25, False),
    ],
)
def test_a_change_within_the_tolerance_is_a_plateau_either_way(losses, tolerance, plateau):
    assert gates.plateaus(losses, 1, tolerance) is plateau


@pytest.mark.parametrize(
    ("losses", "plateau"),
    [
        ([2, 2, 2], False),  # not longer than the patience
        ([2, 2, 2, 2], True),
        ([9, 2, 2, 2], False),  # the first of them counts
        ([9, 2, 2, 2, 2], True),
        ([4, 3, 2, 1], False),
        ([1, 2, 3, 4], False),
        ([1, 1.0625, 1.125, 1.1875], False),  # each step within the tolerance, all of them not
        ([5, 1, 1.125, 1.0625, 1], True),
        ([5, 1, 1.1875, 1, 1], False),  # up and back again
    ],
)
def test_a_loss_plateaus_when_its_last_values_lie_close_together(losses, plateau):
    assert gates.plateaus(losses, 3, 0.125) is plateau


@pytest.mark.parametrize("seed", range(5))
def test_neither_the_losss_sign_nor_its_level_nor_the_direction_of_time_makes_a_plateau(seed):
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(40):
        losses = (torch.randint(0, 9, (6,), generator=draw) / 8).tolist()  # exact, however they are shifted
        found.append(gates.plateaus(losses, 5, 0.625))
        for same in ([-loss for loss in losses], [loss + 16 for loss in losses], losses[::-1]):
            assert gates.plateaus(same, 5, 0.625) is found[-1]
    assert {True, False} == set(found)


def test_gates_of_a_linear_stay_at_its_inputs_when_another_layer_takes_its_place():
    torch.manual_seed(0)
    model, inputs = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(8, 4)
    gated = gates.gated(model).eval()
    torch.testing.assert_close(pruners.sparse(gated)(inputs), gated(inputs))
    assert (calibration.simulated(gated, [inputs])(inputs) - gated(inputs)).abs().max() < 0.05


def test_gates_put_into_a_network_in_evaluation_mode_draw_nothing():
    model, inputs = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(8, 4)
    gated = gates.gated(model.eval())
    assert not any(module.training for module in gated.modules())
    assert len({float(gated(inputs).sum()) for _ in range(20)}) == 1


@pytest.mark.parametrize("u", [1e-5, 1e-3, 1 - 1e-4])
def test_a_hard_concrete_gate_of_any_u_is_the_sample_of_louizos_et_al(u: float):
    model = gates.gated(mlp(), ["2"], k=2.0, kind="hard_concrete")
    (one,) = gates.gates_of(model)
    uniform = torch.full_like(one.phi, u)
    one.phi.data = -(uniform.double() / (1 - uniform.double())).log().float() / 2
    torch.testing.assert_close(one.draw(uniform), torch.full_like(uniform, 0.5), atol=1e-2, rtol=0)
