"""Laws of stacked networks: a run is what it would be alone, whatever else is in its stack."""

import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.models.mlp import MLP, Bounded, generators, join, plain, take

SEEDS = list(range(64))
SIZES = [(17, 64, 64, 6), (14, 33, 300, 1), (3, 5, 2)]  # one output, and sizes that fill no vector register


def data(sizes, seeds, batch=20, step=0):
    """Inputs and goals that each seed draws for itself."""
    draws = generators([seed + 1000 * (step + 1) for seed in seeds])
    parts = [(torch.randn(batch, sizes[0], generator=d), torch.randn(batch, sizes[-1], generator=d)) for d in draws]
    return tuple(torch.stack(part) for part in zip(*parts, strict=True))


def trained(sizes, seeds, steps=4, rough=False):
    """A stack after some steps of Adam, with its last outputs and gradients; rough: products in bfloat16."""
    model = MLP(sizes, generators(seeds))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(steps):
        inputs, goals = data(sizes, seeds, step=step)
        with torch.autocast("cpu", torch.bfloat16, enabled=rough):
            outputs = model(inputs)
        optimizer.zero_grad()
        (outputs - goals).square().mean((1, 2)).sum().backward()
        optimizer.step()
    return [outputs, *(p.grad for p in model.parameters()), *model.parameters()]


@pytest.mark.parametrize(("sizes", "rough"), [*((sizes, False) for sizes in SIZES), ((17, 64, 64, 8), True)])
def test_forward_gradients_and_adam_are_the_same_bits_in_stacks_of_1_4_and_64(sizes, rough):
    whole, four, one = (trained(sizes, seeds, rough=rough) for seeds in (SEEDS, SEEDS[8:12], SEEDS[9:10]))
    assert all(torch.equal(a[8:12], b) for a, b in zip(whole, four, strict=True))
    assert all(torch.equal(a[9:10], b) for a, b in zip(whole, one, strict=True))


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_run_is_the_plain_network_within_rounding_in_float64(sizes, activation):
    model = MLP(sizes, generators([3, 4, 5]), activation, Bounded(torch.full((sizes[-1],), 2.0))).double()
    inputs, goals = (tensor.double() for tensor in data(sizes, [3, 4, 5]))
    (model(inputs) - goals).square().mean((1, 2)).sum().backward()
    for run in range(3):
        before = torch.get_rng_state()
        alone = plain(model, run)
        assert torch.equal(torch.get_rng_state(), before)
        kinds = {"relu": nn.ReLU, "tanh": nn.Tanh}
        assert [type(m) for m in alone] == [nn.Linear, kinds[activation]] * (len(sizes) - 2) + [nn.Linear, Bounded]
        (alone(inputs[run]) - goals[run]).square().mean().backward()
        torch.testing.assert_close(alone(inputs[run]), model(inputs)[run], rtol=0, atol=1e-10)
        # a Linear names weight and bias in the same order as a stacked layer
        for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
            torch.testing.assert_close(ours.grad[run], theirs.grad, rtol=0, atol=1e-10)


@pytest.mark.parametrize("sizes", SIZES)
def test_bfloat16_is_near_float32_forwards_and_backwards(sizes):
    inputs, goals = data(sizes, [3, 4])
    found = []
    for rough in (False, True):
        model = MLP(sizes, generators([3, 4]), "tanh")  # a rounding may open a ReLU
        with torch.autocast("cpu", torch.bfloat16, enabled=rough):
            outputs = model(inputs)
        assert outputs.dtype == (torch.bfloat16 if rough and sizes[-1] > 1 else torch.float32)
        (outputs - goals).square().mean((1, 2)).sum().backward()
        assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}
        found.append([outputs.float(), *(parameter.grad for parameter in model.parameters())])
    for exact, near in zip(*found, strict=True):
        assert 0 < (near - exact).norm() < 0.02 * exact.norm()  # roundings are of up to 0.4 %


def test_a_layer_is_written_out():
    model = MLP((2, 1, 2), generators([0, 1]), output=Bounded(torch.tensor([1.0, 10.0])))
    weights = [[[[1.0, -1.0]], [[2.0, 0.0]]], [[[1.0], [0.5]], [[1.0], [0.0]]]]
    biases = [[[0.0], [1.0]], [[0.0, 0.0], [0.0, 1.0]]]
    for layer, weight, bias in zip(model.layers, weights, biases, strict=True):
        layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
    # run 0: relu(3 - 1) = 2 -> (2, 1); run 1: relu(2 * -1 + 1) = 0 -> (0, 1)
    outputs = model(torch.tensor([[[3.0, 1.0]], [[-1.0, 7.0]]]))
    before = torch.tensor([[[2.0, 1.0]], [[0.0, 1.0]]])
    torch.testing.assert_close(outputs, torch.tensor([1.0, 10.0]) * torch.tanh(before))


def test_a_run_starts_as_pytorchs_own_layers_do_from_its_seed():
    model = MLP((5, 8, 3), generators([11, 7]))
    for run, seed in enumerate([11, 7]):
        torch.manual_seed(seed)
        torchs = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3), nn.Identity())
        found, expected = plain(model, run).state_dict(), torchs.state_dict()
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found)


def test_take_and_join_are_each_others_inverse_with_masks_too():
    model = nn.ModuleDict({"actor": MLP((3, 4, 2), generators([0, 1, 2]), output=Bounded(torch.ones(2)))})
    keep = torch.rand(3, 4, 3, generator=torch.Generator().manual_seed(0)) > 0.5
    pruners.attach(model, {"actor.layers.0.weight": keep})
    parts = [take(model, [2]), take(model, [0, 1])]
    assert [part["actor"].runs for part in parts] == [1, 2]
    again = take(join(parts), [1, 2, 0])
    inputs = torch.randn(3, 6, 3, generator=torch.Generator().manual_seed(1))
    assert torch.equal(again["actor"](inputs), model["actor"](inputs))
    assert torch.equal(pruners.attached(again)["actor.layers.0.weight"], keep)
    torch.testing.assert_close(plain(parts[0]["actor"])(inputs[2]), model["actor"](inputs)[2])
    with torch.no_grad():
        parts[1]["actor"].layers[1].bias.zero_()
    assert model["actor"].layers[1].bias.abs().min() > 0  # a copy


def test_bad_input_is_refused_in_a_line():
    model = MLP((3, 2), generators([0]))
    with pytest.raises(BadInput, match=r"expected inputs of shape \[run, batch, 3\], found \[5, 3\]"):
        model(torch.zeros(5, 3))
    with pytest.raises(BadInput, match="activation 'selu': known are relu, tanh"):
        MLP((3, 2), generators([0]), activation="selu")
    with pytest.raises(BadInput, match=r"not \(3,\) and 1 runs"):
        MLP((3,), generators([0]))
    with pytest.raises(BadInput, match="must have the same layers"):
        join([model, MLP((3, 4), generators([0]))])
    with pytest.raises(BadInput, match="no networks to join"):
        join([])
    with pytest.raises(BadInput, match="no runs to take"):
        take(model, [])
    with pytest.raises(BadInput, match="run 5 of a stack of 1: expected 0 to 0"):
        take(model, [0, 5])
    with pytest.raises(BadInput, match="run 5 of a stack of 1: expected 0 to 0"):
        plain(model, 5)
    for sizes in ((3, 1), (3, 4, 2)):  # of one output, runs would be broadcast
        with pytest.raises(BadInput, match=r"^expected inputs of 2 runs, as many as the stack has, found \[1, 5, 3\]"):
            MLP(sizes, generators([0, 1]))(torch.zeros(1, 5, 3))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"activation": "relu"}, {"activation": "tanh"}),
        ({"output": nn.Identity()}, {"output": nn.Tanh()}),
        ({"output": Bounded(torch.ones(2))}, {"output": Bounded(torch.tensor([1.0, 2.0]))}),
    ],
    ids=["activation", "output", "bound"],
)
def test_networks_that_answer_otherwise_are_not_joined(one, other):
    networks = [MLP((3, 4, 2), generators([0]), **how) for how in (one, other)]
    with pytest.raises(BadInput, match="must have the same activations, and outputs with the same bounds"):
        join(networks)
    assert join([networks[0], networks[0]]).runs == 2
