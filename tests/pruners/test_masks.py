"""Laws of `lib.pruners.masks`: what is removed stays zero, whatever is done with the model."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant
from lib.pruners import groups

OPTIMIZERS = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=0.1),
    "Nesterov": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9, weight_decay=0.1, nesterov=True),
    "Adam": lambda parameters: torch.optim.Adam(parameters, 0.01, weight_decay=0.1),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, 0.01, weight_decay=0.1),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, 0.01, momentum=0.9, weight_decay=0.1),
}


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def half(model, seed=0):
    return pruners.unstructured(pruners.random(model, seed), 0.5)


def masked(seed=0):
    model = network(seed)
    pruners.attach(model, half(model))
    return model


def images():
    return torch.randn(8, 2, 4, 4, generator=torch.Generator().manual_seed(1))


def steps(model, optimizer, count):
    model.train()
    for _ in range(count):
        optimizer.zero_grad()
        F.cross_entropy(model(images()), torch.arange(8) % 3).backward()
        optimizer.step()


def weights(model):
    return {layer.name: layer.weight.clone() for layer in pruners.prunable(model)}


def function(model):
    return model.eval()(images()).detach()


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("made", ["before", "after"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_removed_weights_stay_zero_and_kept_ones_train(name, made):
    model = network()
    optimizer = OPTIMIZERS[name](model.parameters())
    steps(model, optimizer, 3)  # momentum now pushes every weight, those to be removed too
    masks = half(model)
    pruners.attach(model, masks)
    if made == "after":
        optimizer = OPTIMIZERS[name](model.parameters())
    start = weights(model)
    for _ in range(4):
        steps(model, optimizer, 1)
        now = weights(model)
        assert all((now[key][~mask] == 0).all() for key, mask in masks.items())
        assert pruners.sparsity(model) == 0.5
    assert all((now[key][mask] != start[key][mask]).all() for key, mask in masks.items())
    pruners.detach(model)  # what was hidden behind the mask does not come back
    assert same(weights(model), now)


def test_a_removed_weight_has_no_gradient_and_a_kept_one_that_of_the_dense_product():
    model = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0, 3.0]]))
    pruners.attach(model, {"weight": torch.tensor([[True, False, True]])})
    output = model(torch.tensor([10.0, 20.0, 30.0]))
    output.backward()
    assert output.item() == 10 + 90
    assert model.parametrizations.weight.original.grad.tolist() == [[10, 0, 30]]


def test_a_state_dict_goes_round_with_its_masks():
    model = masked()
    state = copy.deepcopy(model.state_dict())
    assert {"4.parametrizations.weight.original", "4.parametrizations.weight.0.mask"} <= state.keys()
    other = network(seed=5)
    pruners.attach(other, half(other, seed=6))
    assert not same(pruners.attached(other), pruners.attached(model))
    other.load_state_dict(state)
    assert same(pruners.attached(other), pruners.attached(model))
    assert torch.equal(function(other), function(model))
    steps(other, OPTIMIZERS["SGD"](other.parameters()), 2)
    assert pruners.sparsity(other) == 0.5
    assert same(model.state_dict(), state)


def test_a_copy_trained_pruned_or_detached_leaves_the_original_alone_and_the_other_way_round():
    model = masked()
    state, output = copy.deepcopy(model.state_dict()), function(model)
    copies = [copy.deepcopy(model) for _ in range(3)]
    assert all(torch.equal(function(other), output) for other in copies)
    steps(copies[0], OPTIMIZERS["SGD"](copies[0].parameters()), 2)
    pruners.attach(copies[1], pruners.unstructured(pruners.magnitude(copies[1]), 0.9))
    pruners.detach(copies[2])
    assert same(model.state_dict(), state)
    assert torch.equal(function(model), output)
    assert [round(pruners.sparsity(other), 2) for other in (model, *copies)] == [0.5, 0.5, 0.9, 0.5]
    pruners.detach(model)
    assert torch.equal(function(model), output)
    assert torch.equal(function(copies[2]), output)
    assert pruners.attached(copies[0]).keys() == {"0.weight", "4.weight"}
    assert pruners.sparsity(copies[0]) == 0.5
    pruners.attach(copies[2], half(model, seed=3))  # a detached copy may be masked again
    assert pruners.attached(model) == {}


def test_detach_leaves_plain_layers_with_the_zeros_baked_in_and_the_same_function():
    plain, model = network(), masked()
    masks, output = pruners.attached(model), function(model)
    pruners.detach(model)
    assert [type(module) for module in model] == [type(module) for module in plain]
    assert model.state_dict().keys() == plain.state_dict().keys()
    assert isinstance(model[4].weight, nn.Parameter)
    assert pruners.attached(model) == {}
    assert torch.equal(function(model), output)
    assert all((weights(model)[name] == 0).equal(~mask) for name, mask in masks.items())


def test_an_optimizer_made_before_attach_still_trains_the_detached_weights_removed_ones_too():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    pruners.attach(model, half(model))
    pruners.detach(model)
    assert pruners.sparsity(model) == 0.5
    before = weights(model)
    steps(model, optimizer, 1)
    assert all((after != before[name]).all() for name, after in weights(model).items())


def test_a_second_attach_replaces_only_the_masks_it_names():
    model = masked()
    before = {name: mask.clone() for name, mask in pruners.attached(model).items()}
    first = torch.zeros(3, 16, dtype=torch.bool)
    first[0] = True
    pruners.attach(model, {"4.weight": first})
    assert torch.equal(pruners.attached(model)["0.weight"], before["0.weight"])
    assert torch.equal(pruners.attached(model)["4.weight"], first)
    assert (weights(model)["4.weight"][1:] == 0).all()


def test_a_weight_that_comes_back_starts_from_zero_even_if_an_optimizer_pushed_it_meanwhile():
    model = network()
    optimizer = OPTIMIZERS["SGD"](model.parameters())
    steps(model, optimizer, 3)
    pruners.attach(model, half(model))
    steps(model, optimizer, 3)
    output = function(model)
    pruners.attach(model, {name: torch.ones_like(mask) for name, mask in pruners.attached(model).items()})
    assert torch.equal(function(model), output)
    steps(model, optimizer, 1)
    assert pruners.sparsity(model) == 0


def test_later_changes_of_a_given_mask_or_model_dtype_do_not_reach_the_mask():
    model, mask = nn.Linear(2, 1), torch.tensor([[True, False]])
    pruners.attach(model, {"weight": mask})
    mask.fill_(True)
    model.to(torch.bfloat16)
    assert pruners.attached(model)["weight"].tolist() == [[True, False]]
    assert pruners.attached(model)["weight"].dtype == torch.bool
    assert (model.weight == 0).tolist() == [[False, True]]
    assert model(torch.ones(2, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_only_the_named_network_of_a_module_dict_is_masked():
    model = nn.ModuleDict({"actor": nn.Linear(4, 4), "critic": nn.Linear(4, 4)})
    pruners.attach(model, {"actor.weight": torch.eye(4).bool()})
    assert pruners.attached(model).keys() == {"actor.weight"}
    assert pruners.sparsity(model) == 12 / 32
    assert pruners.sparsity(model["actor"]) == 12 / 16


def test_sparsity_counts_the_zeros_the_forward_pass_uses_masked_or_not():
    model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 1))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[0.0, 1, 2, 3], [4, 5, 6, 7]]))
        model[0].bias.zero_()  # biases do not count
        model[1].weight.copy_(torch.tensor([[0.0, 1]]))
    pruners.attach(model, {"0.weight": torch.tensor([[False, False, True, True], [True] * 4])})
    assert pruners.sparsity(model) == 3 / 10
    with torch.no_grad():
        model[0].parametrizations.weight.original.fill_(1)  # behind the mask nothing is used, so nothing counts
    assert pruners.sparsity(model) == 3 / 10


def test_the_report_has_a_row_a_layer_and_the_total():
    model = nn.Sequential(nn.Conv2d(1, 2, (1, 2)), nn.Linear(3, 2))
    pruners.attach(model, {"1.weight": torch.tensor([[True, False, False], [True, True, True]])})
    table = pruners.report(model)
    assert table.drop(columns="sparsity").values.tolist() == [
        ["0.weight", "2 x 1 x 1 x 2", 4, 4],
        ["1.weight", "2 x 3", 6, 4],
        ["total", "", 10, 8],
    ]
    assert table.sparsity.tolist() == pytest.approx([0, 1 / 3, 0.2])
    assert table.sparsity.iloc[-1] == pytest.approx(pruners.sparsity(model))


GOOD = {"0.weight": torch.ones(4, 2, 3, 3, dtype=torch.bool)}


@pytest.mark.parametrize(
    ("name", "mask", "line"),
    [
        ("fc.weight", torch.ones(3, 16).bool(), r"'fc\.weight': the model's .* 0\.weight, 4\.weight$"),
        ("4.bias", torch.ones(3).bool(), r"mask '4\.bias': the model's prunable parameters"),
        ("4.weight", torch.ones(16, 3).bool(), r"'4\.weight' has shape \(16, 3\), its parameter \(3, 16\)"),
        ("4.weight", torch.ones(3, 1).bool(), r"'4\.weight' has shape \(3, 1\)"),  # it would broadcast
        ("4.weight", torch.ones(3, 16), r"'4\.weight' is torch\.float32, expected torch\.bool"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused_by_name_and_nothing_is_attached(name, mask, line):
    model = network()
    with pytest.raises(BadInput, match=line):
        pruners.attach(model, GOOD | {name: mask})
    assert pruners.attached(model) == {}


class Symmetric(nn.Module):
    """A square weight that is its own transpose; the trained numbers are those of its upper half."""

    def forward(self, upper):
        return upper.triu() + upper.triu(1).mT

    def right_inverse(self, weight):
        return weight.triu()


class Scaled(nn.Module):
    """A weight that is twice the trained tensor."""

    def forward(self, values):
        return 2 * values

    def right_inverse(self, weight):
        return weight / 2


def test_a_mask_composes_with_any_parametrization_that_can_be_inverted():
    for form in (Symmetric(), Scaled()):
        torch.manual_seed(0)
        model = nn.Linear(6, 6)
        nn.utils.parametrize.register_parametrization(model, "weight", form)
        before, trained = model.weight.detach(), model.parametrizations.weight.original
        mask = torch.rand(6, 6) < 0.5
        mask = mask & mask.mT
        pruners.attach(model, {"weight": mask})
        torch.testing.assert_close(model.weight, before * mask)
        assert model.parametrizations.weight.original is trained
        optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 6)).square().sum().backward()
            optimizer.step()
        assert torch.equal(model.weight != 0, mask)
        assert torch.equal(model.weight, form(trained) * mask)
        assert pruners.attached(model)["weight"].equal(mask)
        function = model.weight.detach()
        pruners.detach(model)
        assert type(model.weight) is nn.Parameter
        assert torch.equal(model.weight, function)


class Rotated(nn.Module):
    """A weight that is the trained tensor in other coordinates, which rounds both ways."""

    def __init__(self, dtype):
        super().__init__()
        self.turn = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(0)))[0].to(dtype)

    def forward(self, values):
        return self.turn @ values

    def right_inverse(self, weight):
        return self.turn.mT @ weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_rounding_cuts_no_group(dtype):
    model, mask = nn.Linear(4, 4, dtype=dtype), torch.eye(4).bool()
    nn.utils.parametrize.register_parametrization(model, "weight", Rotated(dtype))
    pruners.attach(model, {"weight": mask})
    assert torch.equal(model.weight != 0, mask)


def test_a_mask_may_not_cut_what_shares_a_trained_number():
    model = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(model, "weight", Symmetric())
    with pytest.raises(BadInput, match="mask 'weight' cuts groups of weights that share a coefficient"):
        pruners.attach(model, {"weight": torch.ones(3, 3).bool().triu()})
    assert pruners.attached(model) == {}


def test_a_mask_may_not_cut_a_group_of_two():
    model = nn.Linear(4, 4)
    groups.group(model, {"weight": circulant(2)})
    cut = torch.ones(4, 4).bool()
    cut[0, 0] = False  # its partner at (1, 1) stays
    with pytest.raises(BadInput, match="mask 'weight' cuts groups of weights that share a coefficient"):
        pruners.attach(model, {"weight": cut})


def test_scores_by_gradients_know_what_shares_a_number_and_what_is_no_copy():
    torch.manual_seed(0)
    model = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(model, "weight", Symmetric())
    inputs = torch.randn(5, 4)
    loss = lambda model: model(inputs).square().sum()  # noqa: E731
    scores = pruners.snip(model, loss)["weight"]
    weight = model.weight.detach().clone().requires_grad_()
    by_place = torch.autograd.grad(((inputs @ weight.T + model.bias).square()).sum(), weight)[0]
    shared = by_place + by_place.mT - by_place.diag().diag()  # both places of a number go together
    torch.testing.assert_close(scores, (weight * shared).abs().detach())
    other = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(other, "weight", Scaled())
    weight = other.weight.detach().clone().requires_grad_()  # no number of the parameter: by the weight itself
    slope = torch.autograd.grad((inputs @ weight.T + other.bias).square().sum(), weight)[0]
    torch.testing.assert_close(pruners.snip(other, loss)["weight"], (weight * slope).abs().detach())


def test_the_core_knows_no_groups():
    source = Path(pruners.__file__).parent
    for name in ("layers", "masks", "scores", "patterns", "schedules", "pruner", "registry"):
        assert "lib.pruners.group" not in (source / f"{name}.py").read_text(), name


def test_a_parametrized_bias_does_not_stand_in_the_way():
    model = nn.Linear(2, 2)
    nn.utils.parametrize.register_parametrization(model, "bias", nn.Softplus())
    bias = model.bias.detach()
    pruners.attach(model, {"weight": torch.eye(2).bool()})
    pruners.detach(model)
    assert (model.weight == 0).tolist() == [[False, True], [True, False]]
    assert torch.equal(model.bias, bias)


def test_another_mask_takes_the_place_of_the_first_in_memory_as_a_recorded_cuda_graph_needs():
    model = nn.Linear(3, 2)
    pruners.attach(model, {"weight": torch.ones(2, 3, dtype=torch.bool)})
    before = model.parametrizations.weight[0].mask.data_ptr()
    taken = pruners.attached(model)
    pruners.attach(model, {"weight": torch.eye(2, 3, dtype=torch.bool)})
    assert model.parametrizations.weight[0].mask.data_ptr() == before
    assert taken["weight"].all()  # what was asked for earlier is not changed behind the caller's back


def test_what_detach_bakes_in_has_no_negative_zeros():
    """Which would be values to `kernels.packed` and cost as much as a kept weight."""
    model = nn.Linear(64, 64)
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.9))
    with torch.no_grad():
        pruners.masks.original(pruners.prunable(model)[0]).sub_(1.0)  # what an optimizer may do to removed weights
    assert (model.weight[model.weight == 0]).signbit().any()
    before = model.weight.detach().clone()
    pruners.detach(model)
    assert not model.weight[model.weight == 0].signbit().any()
    assert torch.equal(model.weight, before)


@pytest.mark.parametrize("odd", [torch.nan, torch.inf])
def test_a_removed_weight_is_zero_whatever_it_was(odd):
    model = nn.Linear(8, 4)
    model.weight.data[0, 0] = odd
    pruners.attach(model, {"weight": torch.isfinite(model.weight)})
    assert float(model.weight[0, 0]) == 0


def test_a_second_mask_takes_the_place_of_the_first_beneath_what_was_registered_on_it():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8))
    pruners.attach(model, half(model))
    nn.utils.parametrize.register_parametrization(model[0], "weight", Scaled())
    nn.utils.parametrizations.spectral_norm(model[1])
    before, masks = weights(model), pruners.unstructured(pruners.random(model, 1), 0.75, within=pruners.attached(model))
    pruners.attach(model, masks)
    assert same(pruners.attached(model), masks)
    assert torch.equal(model[0].weight, before["0.weight"] * masks["0.weight"])
    assert all(torch.equal(layer.weight != 0, masks[layer.name]) for layer in pruners.prunable(model))


@pytest.mark.parametrize("frozen", [False, True])
def test_what_norms_compute_is_baked_without_gradients_too_and_what_is_frozen_stays_so(frozen):
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.Linear(4, 4))
    pruners.attach(model.requires_grad_(not frozen), half(model))
    before = weights(model)
    with torch.no_grad():
        pruners.detach(model)
    assert pruners.attached(model) == {}
    assert same(weights(model), before)
    assert [type(layer.weight) for layer in model] == [nn.Parameter] * 2
    assert [parameter.requires_grad for parameter in model.parameters()] == [not frozen] * 4


def test_a_mask_that_is_attached_in_inference_mode_can_be_replaced_outside_of_it():
    model = network()
    with torch.inference_mode():
        pruners.attach(model, half(model))
    masks = half(model, seed=1)
    pruners.attach(model, masks)
    assert same(pruners.attached(model), masks)
