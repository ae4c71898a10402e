"""Layers of the weights that are left: the same function, the same derivatives, the same training as with masks."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant
from lib.kernels.sparse_linear import SparseLinear
from lib.pruners import LeftOut, groups, sparse


def pruned(sparsity: float = 0.8, sizes: tuple[int, ...] = (7, 20, 11, 3), dtype=torch.float64) -> nn.Sequential:
    """A network with masks."""
    torch.manual_seed(0)
    layers = [nn.Linear(sizes[0], sizes[1]), nn.Tanh(), nn.Linear(sizes[1], sizes[2]), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(sizes[2], sizes[3])).to(dtype)
    pruners.attach(model, pruners.unstructured(pruners.random(model, 0), sparsity, floor=0.05))
    return model


@pytest.mark.parametrize("examples", [1, 2, 9])
@pytest.mark.parametrize("sparsity", [0.0, 0.5, 0.9])
def test_it_is_the_same_function_in_fewer_numbers(examples: int, sparsity: float):
    model = pruned(sparsity)
    small = sparse(model)
    x = torch.randn(examples, 7, dtype=torch.float64)
    assert torch.allclose(small(x), model(x), atol=1e-12)
    with torch.no_grad():
        assert torch.allclose(small(x), model(x), atol=1e-12)
    weights = sum(len(layer.values) for layer in small if isinstance(layer, SparseLinear))
    assert weights == sum(int(mask.sum()) for mask in pruners.attached(model).values())


def test_a_layer_may_be_called_by_keyword_as_a_linear_layer_may():
    layer, x = SparseLinear(torch.eye(3)), torch.randn(2, 3)
    assert torch.equal(layer(input=x), x)


def test_derivatives_are_those_of_finite_differences():
    layer = SparseLinear(
        torch.tensor([[0.0, 2.0, 0.0], [1.0, 0.0, -3.0]], dtype=torch.float64), torch.zeros(2).double()
    )
    for examples in (1, 4):
        x = torch.randn(examples, 3, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradcheck(
            lambda x, values, bias: torch.func.functional_call(layer, {"values": values, "bias": bias}, (x,)),
            (x, layer.values, layer.bias),
        )


def test_training_gives_what_training_with_masks_gives():
    masked = pruned()
    small = sparse(masked)
    x, y = torch.randn(30, 7, dtype=torch.float64), torch.randn(30, 3, dtype=torch.float64)
    for model in (masked, small):
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for _ in range(20):
            optimizer.zero_grad()
            F.mse_loss(model(x), y).backward()
            optimizer.step()
    assert torch.allclose(small(x), masked(x), atol=1e-10)
    assert not torch.allclose(small(x), sparse(pruned())(x), atol=1e-3)  # it has moved


def test_frozen_inputs_and_frozen_weights_get_no_derivative():
    small = sparse(pruned())
    x = torch.randn(4, 7, dtype=torch.float64)
    small.requires_grad_(False)
    assert not small(x).requires_grad
    x.requires_grad_()
    small(x).sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is None for parameter in small.parameters())


def test_a_layer_that_is_made_of_plain_tensors_learns():
    made = SparseLinear(torch.randn(4, 6), torch.zeros(4))
    assert [parameter.requires_grad for parameter in made.parameters()] == [True, True]


def test_copies_files_and_types_keep_it(tmp_path):
    small = sparse(pruned())
    x = torch.randn(5, 7, dtype=torch.float64)
    torch.save(small.state_dict(), tmp_path / "small.pt")
    other = sparse(pruned())
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    other.load_state_dict(torch.load(tmp_path / "small.pt", weights_only=True))
    assert torch.equal(other(x), small(x))
    assert torch.equal(copy.deepcopy(small)(x), small(x))
    assert torch.allclose(copy.deepcopy(small).float()(x.float()).double(), small(x), atol=1e-5)


def test_a_layer_by_itself_without_a_bias_and_the_model_it_came_from():
    layer = nn.Linear(4, 3, bias=False)
    before = layer.weight.detach().clone()
    small = sparse(layer)
    assert isinstance(small, SparseLinear)
    assert small.bias is None
    assert repr(small) == "SparseLinear(4, 3, 12 weights)"
    with torch.no_grad():
        small.values.zero_()
    assert torch.equal(layer.weight, before)


def test_what_is_frozen_stays_frozen_and_what_a_mask_keeps_is_kept_at_zero():
    model = pruned()
    with torch.no_grad():
        kept = next(iter(pruners.attached(model).values()))
        model[0].parametrizations.weight.original[tuple(kept.nonzero()[0])] = 0.0  # as a weight that has come back
        model[2].bias.requires_grad_(False)
        small = sparse(model)
    assert len(small[0].values) == int(kept.sum())
    assert small[0].values[0] == 0
    assert [parameter.requires_grad for parameter in small.parameters()] == [True, True, True, False, True, True]
    assert not any(parameter.requires_grad for parameter in sparse(pruned().requires_grad_(False)).parameters())


def test_a_layer_used_twice_becomes_one_and_what_follows_may_work_in_place():
    layer = nn.Linear(5, 5, bias=False)
    model = nn.Sequential(layer, nn.ReLU(inplace=True), layer, nn.ReLU(inplace=True))
    small = sparse(model)
    assert small[0] is small[2]
    x = torch.randn(3, 5)
    assert torch.allclose(small(x), model(x), atol=1e-6)
    small(x).sum().backward()
    with torch.no_grad():
        assert torch.allclose(small(x), model(x), atol=1e-6)


@pytest.mark.parametrize("shape", [(7,), (1, 7), (2, 3, 7), (1, 7, 7)])
def test_leading_axes_are_examples(shape: tuple[int, ...]):
    model = pruned()
    x = torch.randn(*shape, dtype=torch.float64)
    found = sparse(model)(x)
    assert found.shape == (*shape[:-1], 3)
    assert torch.allclose(found, model(x), atol=1e-12)


def test_under_autocast_it_computes_in_its_own_type():
    small = sparse(pruned(dtype=torch.float32))
    x, calls = torch.randn(4, 7), []
    expected = small(x)
    handle = small.register_forward_hook(lambda *arguments: calls.append(arguments))
    with torch.autocast("cpu", torch.bfloat16):
        small(x)
    handle.remove()
    assert len(calls) == 1  # a hook is called once a call
    with torch.autocast("cpu", torch.bfloat16):
        found = small(x)
        assert torch.equal(small(x.bfloat16()), small(x.bfloat16().float()))
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_what_cannot_be_is_one_line():
    with pytest.raises(
        BadInput, match=r"a matrix of float32 or float64 and a mask like it, this is \[3\] of torch.float32"
    ):
        SparseLinear(torch.ones(3))
    with pytest.raises(BadInput, match=r"this is \[2, 2\] of torch.float16"):
        SparseLinear(torch.ones(2, 2).half())
    with pytest.raises(BadInput, match=r"this is \[2, 2\] of torch.float32$"):
        SparseLinear(torch.ones(2, 2), mask=torch.ones(2, 3, dtype=torch.bool))
    with pytest.raises(BadInput, match=r"needs a model with an nn\.Linear"):
        sparse(nn.Conv2d(1, 1, 1))
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    nn.init.zeros_(model[1].weight)
    with pytest.warns(LeftOut, match=r"1\.weight is left out: its weight is \[2, 2\] of torch.float32, nothing of it"):
        small = sparse(model)
    assert [type(layer) for layer in small] == [SparseLinear, nn.Linear]
    nn.init.zeros_(model[0].weight)
    with pytest.raises(BadInput, match=r"layer 0: .*\[2, 2\] of torch.float32, nothing of it is left"):
        sparse(model)
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    with pytest.raises(BadInput, match="layer 0: it shares its weight with another layer"):
        sparse(tied)
    with pytest.raises(BadInput, match=r"this layer takes activations \[\.\.\., 2\], these are \[1, 3\]"):
        sparse(nn.Linear(2, 2))(torch.ones(1, 3))


def test_tables_read_a_sparse_copy_as_the_network_that_it_was_made_of():
    model = pruned()
    small = sparse(model, "!2")
    for table in (pruners.report, pruners.verify):
        assert table(small).equals(table(model))
    assert pruners.sparsity(small) == pruners.sparsity(model)
    assert pruners.coverage(small) == 1
    assert pruners.report(sparse(model)).equals(pruners.report(model))
    pruners.detach(small)
    assert list(pruners.attached(sparse(model))) == []


def test_what_is_sparse_already_cannot_be_pruned_further():
    small, why = sparse(pruned(), "!2"), "only what is left of it: prune the model before pruners.sparse"
    assert [layer.name for layer in pruners.prunable(small)] == ["2.weight"]
    assert list(pruners.refused(small)) == ["0.weight", "4.weight"]
    assert {rule.name: rule.pruned for rule in pruners.layer_rule(small)}["0.weight"] is False
    with pytest.raises(BadInput, match=rf"mask '0\.weight': its layer holds {why}"):
        pruners.attach(small, {"0.weight": torch.ones(20, 7, dtype=torch.bool)})
    with pytest.raises(BadInput, match=rf"0\.weight cannot be pruned: its layer holds {why}"):
        pruners.magnitude(small, "0")
    with pytest.raises(BadInput, match=rf"nothing to prune: 0\.weight: its layer holds {why}"):
        pruners.magnitude(sparse(pruned()))


def test_other_programs_get_the_dense_product():
    small, x = sparse(pruned()), torch.randn(4, 7, dtype=torch.float64)
    for strict in (True, False):
        program = torch.export.export(small, (x,), strict=strict)
        assert torch.allclose(program.module()(x), small(x), atol=1e-12)


def test_second_derivatives_are_refused_of_what_is_before_a_sparse_layer_too():
    model, x = sparse(pruned(), "!0"), torch.randn(4, 7, dtype=torch.float64)
    with pytest.raises(BadInput, match=r"^SparseLinear has no second derivative: take it of the masked model,"):
        pruners.grasp(model, lambda model: model(x).square().sum(), select="0.weight")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda layer: layer.register_forward_hook(lambda layer, args, output: 2 * output), "it has hooks"),
        (lambda layer: layer.register_forward_pre_hook(lambda layer, args: (2 * args[0],)), "it has hooks"),
        (lambda layer: layer.register_full_backward_hook(lambda layer, to, by: (2 * to[0],)), "it has hooks"),
        (lambda layer: nn.utils.prune.l1_unstructured(layer, "bias", 0.4), "its bias is computed"),
        (lambda layer: nn.utils.parametrize.register_parametrization(layer, "bias", nn.Tanh()), "its bias is computed"),
    ],
)
def test_a_layer_that_does_more_than_its_product_stays_as_it_is_and_is_named(change, why: str):
    model, x = pruned(), torch.randn(4, 7, dtype=torch.float64)
    pruners.detach(model)
    nn.utils.prune.l1_unstructured(model[0], "weight", 0.5)  # a hook that a sparse layer needs no more
    change(model[2])
    with pytest.warns(LeftOut, match=rf"2\.weight is left out: {why}"):
        small = sparse(model)
    assert [type(layer) is SparseLinear for layer in small] == [True, False, False, False, True]
    assert torch.allclose(small(x), model(x), atol=1e-12)


@pytest.mark.parametrize("how", ["shared", "normed", "learning"])
def test_a_weight_that_other_numbers_compute_stays_as_it_is_with_a_warning(how: str):
    """A sparse layer would train the weight itself, which the model does not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    if how == "shared":
        groups.group(model, {"0.weight": circulant(4)})
    elif how == "normed":
        nn.utils.parametrizations.weight_norm(model[0])
    else:
        pruners.learn(model, partial(pruners.n_of_m, n=2, m=4), select=["0.weight"])
    with pytest.warns(LeftOut, match=r"0\.weight.*its weight is computed from other numbers: pruners\.detach"):
        small = sparse(model)
    assert not isinstance(small[0], SparseLinear)
    assert isinstance(small[2], SparseLinear)
    trained = [sum(p.numel() for p in one.parameters()) for one in (model[0], small[0])]
    assert trained[0] == trained[1]
