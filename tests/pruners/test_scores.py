"""Laws of `lib.pruners.scores`: what each score is, and that it belongs to its layers."""

import pytest
import torch
from torch import nn

from lib import pruners
from lib.errors import BadInput
from lib.models.lenet import small_lenet


def test_magnitude_is_the_absolute_weight_the_layer_computes_with():
    model = nn.Linear(3, 1)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-3.0, 0.5, 2.0]]))
    assert pruners.magnitude(model)["weight"].tolist() == [[3, 0.5, 2]]
    pruners.attach(model, {"weight": torch.tensor([[False, True, True]])})
    scores = pruners.magnitude(model)["weight"]
    assert scores.tolist() == [[0, 0.5, 2]]
    assert not scores.requires_grad


def test_a_score_is_a_copy():
    model = nn.Linear(2, 2)
    before = model.weight.detach().clone()
    pruners.magnitude(model)["weight"].fill_(9)
    assert torch.equal(model.weight, before)


def test_random_scores_depend_on_the_seed_alone_and_leave_the_global_generator_alone():
    torch.manual_seed(1)
    first = pruners.random(small_lenet(), seed=3)
    torch.manual_seed(2)
    again = pruners.random(small_lenet(), seed=3)
    other = pruners.random(small_lenet(), seed=4)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    pruners.random(nn.Linear(4, 4, device="meta").to_empty(device="cpu"), seed=0)
    assert torch.equal(torch.rand(3), expected)


def test_random_scores_are_uniform_between_0_and_1():
    scores = pruners.random(nn.Linear(100, 100), seed=0)["weight"]
    counts = torch.histc(scores, bins=10, min=0, max=1)
    assert counts.sum() == 10_000  # none lies outside
    assert (counts - 1000).abs().max() < 4 * 30  # four standard deviations of a share of 0.1


def test_snip_is_the_weight_times_its_gradient():
    model = nn.Linear(3, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, -2.0, 3.0]]))
    inputs = torch.tensor([10.0, 1.0, -0.5])
    # w x = 10 - 2 - 1.5 = 6.5, L = (w x)^2, dL/dw = 13 x, |w dL/dw| = 13 |w x|
    scores = pruners.snip(model, lambda model: model(inputs).square().sum())
    assert scores["weight"].tolist() == [[130, 26, 19.5]]
    assert model.weight.grad is None
    pruners.attach(model, {"weight": torch.tensor([[False, True, True]])})
    scores = pruners.snip(model, lambda model: model(inputs).square().sum())  # w x = -3.5, dL/dw = -7 x
    assert scores["weight"].tolist() == [[0, 14, 10.5]]


SCORES = {
    "magnitude": pruners.magnitude,
    "random": lambda model: pruners.random(model, seed=0),
    "snip": lambda model: pruners.snip(model, lambda model: model(torch.ones(2, 1, 8, 8)).square().sum()),
}


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_every_score_names_the_prunable_parameters_and_goes_with_every_pattern(score):
    model, other = small_lenet(), small_lenet()
    scores = score(model)
    layers = pruners.prunable(model)
    assert [(name, tensor.shape) for name, tensor in scores.items()] == [
        (layer.name, layer.weight.shape) for layer in layers
    ]
    assert all((tensor >= 0).all() for tensor in scores.values())
    pruners.attach(model, pruners.unstructured(scores, 0.75, "layer"))
    assert pruners.report(model).sparsity.tolist() == [0.75] * 5
    pruners.attach(other, pruners.n_of_m(scores.only(["fc1.weight"]), 1, 4))
    assert pruners.report(other).set_index("layer").sparsity["fc1.weight"] == 0.75


def test_a_choice_of_scores_keeps_their_networks_and_refuses_unknown_names():
    model = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2), "c": nn.Linear(2, 2)})
    chosen = pruners.magnitude(model).only(["c.weight", "a.weight"])
    assert {name: layer.network for name, layer in chosen.layers.items()} == {"c.weight": "c", "a.weight": "a"}
    assert [*chosen] == ["c.weight", "a.weight"]
    with pytest.raises(BadInput, match=r"no score for 'd\.weight'; there are scores for: a\.weight, b\.weight"):
        pruners.magnitude(model).only(["a.weight", "d.weight"])
