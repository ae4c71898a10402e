"""Laws of `lib.pruners.gates.estimators`: their mean is the exact gradient, and what both passes share."""

import itertools
import math

import pytest
import torch
from torch import nn

from lib.base import BadInput
from lib.pruners import gates
from tests.pruners.gating import BINARY, examples, loss_on, phis, put


def expected(model, loss):
    """E[f(z)] by enumeration of all 2^n settings (equation 6), with its gradient."""
    found = gates.gates_of(model)
    pi = torch.cat([one.probability() for one in found])
    total = 0.0
    for setting in itertools.product([0.0, 1.0], repeat=len(pi)):
        z = torch.tensor(setting, dtype=pi.dtype)
        with torch.no_grad(), gates.holding(found, list(z.split([len(one.phi) for one in found]))):
            value = loss(model)
        total = total + value * torch.where(z == 1, pi, 1 - pi).prod()
    return total


def exact(model, loss):
    """The gradient of E[f(z)] with respect to phi."""
    return torch.cat(torch.autograd.grad(expected(model, loss), phis(model)))


def drawn(model, loss, estimator, times, seed=0):
    """[times, gates]: the estimator's gradient of phi in each draw."""
    draw = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(times):
        for phi in phis(model):
            phi.grad = None
        estimator(model, loss, draw)
        found.append(torch.cat([phi.grad for phi in phis(model)]))
    return torch.stack(found)


def two_layers(kind, k, hidden=(4, 3), seed=0):
    """Gates on two layers that have different probabilities."""
    torch.manual_seed(seed)
    sizes = zip([2, *hidden], [*hidden, 3], strict=True)
    layers = [layer for inputs, outputs in sizes for layer in (nn.Linear(inputs, outputs), nn.Tanh())][:-1]
    for layer in layers[::2]:
        layer.weight.data *= 3
    model = gates.gated(nn.Sequential(*layers).double(), ["2", "4"], k=k, kind=kind)
    draw = torch.Generator().manual_seed(seed)
    put(model, *(torch.randn(n, generator=draw) / k * (1.0 if kind == "sigmoid" else 2.0) for n in hidden))
    return model


@pytest.mark.parametrize("kind", BINARY)
@pytest.mark.parametrize("k", [0.5, 7.0])
@pytest.mark.parametrize("name", ["arm", "ar"])
def test_the_estimators_mean_is_the_exact_gradient(kind, k, name):
    model, whole = two_layers(kind, k), loss_on(*examples(2))
    middle = expected(model, whole).detach()  # without it AR's mean would drown in its variance
    loss = lambda network: whole(network) - middle  # noqa: E731
    found, truth = drawn(model, loss, getattr(gates, name), 800), exact(model, loss)
    error = found.std(0) / math.sqrt(800)
    assert ((found.mean(0) - truth).abs() <= 4 * error).all()  # 0 <= 0 in a flat tail
    assert (truth.abs() > 8 * error).any()  # half of it or twice as much would be seen


@pytest.mark.parametrize("name", ["arm", "ar"])
def test_an_estimators_passes_use_its_draws_in_evaluation_mode_too(name):
    model, loss = two_layers("sigmoid", 0.5), loss_on(*examples(2))
    found = drawn(model, loss, getattr(gates, name), 5)
    assert (found != 0).any()
    assert torch.equal(drawn(model.eval(), loss, getattr(gates, name), 5), found)


def test_equation_7_as_printed_is_biased_for_the_hard_sigmoid():
    """One gate at pi = 0.8 with f(1) - f(0) = -0.7 / g': as printed it says -0.78 for a true -0.70."""
    network = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)).double()
    model = gates.gated(network, ["1"], k=1.0, kind="hard_sigmoid")
    put(model, [7 * 0.3])
    (one,) = gates.gates_of(model)
    slope, difference = 1 / 7, -4.9  # g' and f(1) - f(0); the exact gradient is -0.7
    loss = lambda model: difference * one.drawn.sum() + 0 * one.phi.sum()  # noqa: E731
    assert float(exact(model, loss)) == pytest.approx(difference * slope)
    found = drawn(model, loss, gates.arm, 1000)
    assert abs(float(found.mean()) + 0.7) < 4 * float(found.std()) / math.sqrt(1000)
    printed = found.mean() / one.chain()  # without the chain factor
    assert float(printed) == pytest.approx(-0.784, abs=0.1)  # pi (1 - pi) x -4.9


def test_arm_varies_less_than_ar():
    model, loss = two_layers("sigmoid", 7.0), loss_on(*examples(2))
    variance = {name: drawn(model, loss, getattr(gates, name), 200).var(0).sum() for name in ("arm", "ar")}
    assert variance["arm"] < 0.5 * variance["ar"]


def test_the_hard_concrete_gradient_is_that_of_its_expectation():
    model, loss = two_layers("hard_concrete", 1.0), loss_on(*examples(2))
    found = drawn(model, loss, gates.pathwise, 1000)
    (first, _), step = phis(model), 0.05

    def mean(change):
        kept = first.data.clone()
        first.data[0] += change
        draw, values = torch.Generator().manual_seed(1), []
        with torch.no_grad():
            for _ in range(1000):
                both = gates.gates_of(model)
                uniforms = [torch.rand(len(one.phi), generator=draw).double() for one in both]
                with gates.holding(both, [one.draw(u) for one, u in zip(both, uniforms, strict=True)]):
                    values.append(float(loss(model)))
        first.data = kept
        return torch.tensor(values).double()

    slopes = (mean(step) - mean(-step)) / (2 * step)  # the same uniforms on both sides
    error = math.hypot(float(slopes.std()), float(found[:, 0].std())) / math.sqrt(1000)
    assert abs(float(slopes.mean() - found[:, 0].mean())) < 4 * error + 0.01 * abs(float(slopes.mean()))


def test_both_passes_of_arm_drop_the_same_units_and_treat_batches_alike():
    """f(z2) - f(z1) is the gates' doing alone: with gates that nothing depends on it is exactly 0."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.Flatten(), nn.Linear(64, 3)
    )
    network[5].weight.data[:, 32:] = 0
    model = gates.gated(network, ["5"], k=0.5)
    put(model, torch.where(torch.arange(64) < 32, 1e5, 0.0))  # those that matter are always open
    inputs, labels = torch.randn(8, 1, 6, 6), torch.randint(3, (8,))
    gates.arm(model, loss_on(inputs, labels), torch.Generator().manual_seed(0))
    assert torch.equal(phis(model)[0].grad, torch.zeros(64))
    # running statistics have seen one batch, not two
    mean = network[0](inputs).mean((0, 2, 3)).detach()
    torch.testing.assert_close(model[1].running_mean, 0.1 * mean)
    assert int(model[1].num_batches_tracked) == 1


def test_weights_learn_from_the_pass_of_equation_8():
    model, loss = two_layers("sigmoid", 7.0), loss_on(*examples(2))
    gates.arm(model, loss, torch.Generator().manual_seed(3))
    found = model[0].weight.grad.clone()
    model.zero_grad()
    draw, both = torch.Generator().manual_seed(3), gates.gates_of(model)
    uniforms = [torch.rand(len(one.phi), generator=draw, dtype=torch.float64) for one in both]
    z = [(u < torch.sigmoid(7 * one.phi)).double() for one, u in zip(both, uniforms, strict=True)]
    with gates.holding(both, z):
        loss(model).backward()
    assert torch.equal(model[0].weight.grad, found)


def test_in_the_hard_sigmoids_flat_tail_a_closed_unit_stays_closed_and_with_the_scaled_sigmoid_it_comes_back():
    """Section 2: after equation 11. The unit is needed: without it the loss is large."""
    last = {}
    for kind in BINARY:
        network = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1)).double()
        for parameter in network.parameters():
            parameter.data.fill_(1.0)
        model = gates.gated(network, ["1"], k=7.0, kind=kind)
        put(model, [-0.6, 0.6])  # k phi / 7 + 1/2 = -0.1 and 1.1; sigmoid(-4.2) = 0.015
        phi, draw = phis(model)[0], torch.Generator().manual_seed(0)
        optimizer = torch.optim.Adam([phi], 0.05)
        for _ in range(500):
            optimizer.zero_grad()
            gates.arm(model, lambda model: (model(torch.ones(1, 1).double()) - 5.0).square().mean(), draw)
            optimizer.step()
        last[kind] = float(phi[0].detach())
    assert last["hard_sigmoid"] == -0.6
    assert last["sigmoid"] > 0


@pytest.mark.parametrize(
    ("phi", "certain"), [(1.0, True), (-1.0, True), (-0.004, True), (-0.003, False), (0.003, False)]
)
def test_a_gate_is_settled_when_no_draw_can_tell_it_from_open_or_closed(phi, certain):
    """At -0.004 g is 2e-9: not 0, but a draw of 24 bits is 0 or at least 6e-8, so z is 0 unless u is exactly 0."""
    model = gates.gated(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), ["0"])
    gates.set_k(model, gates.INFINITE)
    put(model, [1.0, -1.0, phi, 1.0])
    assert gates.settled(model) is certain
    if certain:
        (one,) = gates.gates_of(model)
        draw = torch.Generator().manual_seed(2)
        uniforms = torch.rand(10_000, 4, generator=draw)
        assert all(torch.equal(one.draw(u), one.probability().round()) for u in uniforms[:100])
        assert float(uniforms[uniforms > 0].min()) >= 2**-24


@pytest.mark.parametrize("estimator", [gates.arm, gates.ar])
def test_frozen_gates_do_not_move(estimator):
    model = gates.gated(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), dormant=0.0, start=[4])
    (one,) = gates.gates_of(model)
    one.phi.requires_grad_(False)
    draw = torch.Generator().manual_seed(0)
    estimator(model, lambda model: model(torch.ones(3, 4)).pow(2).mean(), draw)
    assert one.phi.grad is None


@pytest.mark.parametrize("estimator", [gates.arm, gates.ar, gates.plain])
def test_a_loss_that_is_no_scalar_is_refused(estimator):
    model, draw = gates.gated(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))), torch.Generator()
    with pytest.raises(BadInput, match=r"^a loss must be a scalar, this has the shape \[3, 2\]"):
        estimator(model, lambda model: model(torch.ones(3, 4)), draw)
    with pytest.raises(BadInput, match=r"^a loss must be a tensor with one real number"):
        estimator(model, lambda model: float(model(torch.ones(3, 4)).sum().detach()), draw)
    assert all(phi.grad is None for phi in phis(model))


@pytest.mark.parametrize("name", ["arm", "ar", "pathwise", "plain"])
def test_fixed_weights_leave_the_gates_alone_to_learn_and_fixed_gates_nothing(name):
    network = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double().requires_grad_(False)
    model = gates.gated(network, kind="hard_concrete" if name == "pathwise" else "sigmoid")
    (phi,) = phis(model)
    for learns in (True, False):
        phi.grad = None
        phi.requires_grad_(learns)
        value = getattr(gates, name)(model, loss_on(*examples(2)), torch.Generator().manual_seed(0))
        assert math.isfinite(value)
        assert (phi.grad is not None) is (learns and name != "plain")


def test_what_draws_is_a_generator():
    model = gates.gated(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3)))
    with pytest.raises(BadInput, match=r"^draw=0: expected a torch\.Generator, such as torch\.Generator\(\)"):
        gates.arm(model, loss_on(*examples(4)), 0)


def test_a_loss_that_fails_in_the_second_pass_leaves_batch_statistics_as_the_first_pass_made_them():
    model = gates.gated(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1)), ["0"]).train()
    (norm,) = (module for module in model.modules() if isinstance(module, nn.BatchNorm1d))
    calls = []

    def loss(network):
        calls.append(network(torch.randn(8, 3)))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return calls[0].square().mean()

    with pytest.raises(KeyboardInterrupt):
        gates.arm(model, loss, torch.Generator().manual_seed(0))
    assert (len(calls), int(norm.num_batches_tracked)) == (2, 1)
