"""Laws of `lib.pruners.scores`: what each score is, and that it belongs to its layers."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.models.lenet import small_lenet
from lib.pruners.one_shot import inverse_factor


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


def test_a_seed_of_numpys_is_the_same_seed():
    model, scores = nn.Linear(4, 4), pruners.magnitude(nn.Linear(4, 4))
    for seed in (np.int64(1), np.arange(3)[1]):
        assert torch.equal(pruners.random(model, seed)["weight"], pruners.random(model, 1)["weight"])
        assert torch.equal(pruners.shuffled(scores, seed)["weight"], pruners.shuffled(scores, 1)["weight"])


def test_random_scores_are_uniform_between_0_and_1():
    scores = pruners.random(nn.Linear(100, 100), seed=0)["weight"]
    counts = torch.histc(scores, bins=10, min=0, max=1)
    assert counts.sum() == 10_000  # none lies outside
    assert (counts - 1000).abs().max() < 4 * 30  # four standard deviations of a share of 0.1


@pytest.mark.parametrize("score", [pruners.snip, pruners.grasp])
def test_scores_that_are_all_zero_are_refused(score):
    """Behind a last layer that begins at zero, as in MLP-Mixer, no weight gets a gradient."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))
    nn.init.zeros_(model[2].weight)
    with pytest.raises(BadInput, match="every score is 0, so that none ranks above another"):
        score(model, lambda model: model(torch.ones(4)).square().sum())


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
    with pytest.raises(BadInput, match=r"no 'd\.weight'; there are scores for: a\.weight, b\.weight"):
        pruners.magnitude(model).only(["a.weight", "d.weight"])


# SNIP and GraSP on a network small enough for an explicit Hessian


def small(dtype=torch.float64):
    """17 weights in two layers, and biases that are not scored."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Flatten(0)).to(dtype)


def batches(dtype=torch.float64):
    draw = torch.Generator().manual_seed(1)
    return [torch.randn(5, 3, generator=draw, dtype=dtype) for _ in range(2)]


def losses():
    return [lambda model, inputs=inputs: (model(inputs) - inputs[:, 0].sin()).square().mean() for inputs in batches()]


def of_vector(model, loss):
    """The loss as a function of all prunable weights in one vector, and that vector."""
    layers = {layer.name: layer.weight for layer in pruners.prunable(model)}
    sizes = [weight.numel() for weight in layers.values()]

    def function(vector):
        parts = vector.split(sizes)
        named = {name: part.reshape(layers[name].shape) for name, part in zip(layers, parts, strict=True)}
        return torch.func.functional_call(_Loss(model, loss), {f"model.{name}": part for name, part in named.items()})

    return function, torch.cat([weight.flatten() for weight in layers.values()])


class _Loss(nn.Module):
    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self):
        return self.loss(self.model)


def vector(scores):
    return torch.cat([score.flatten() for score in scores.values()])


def test_snip_is_the_derivative_by_a_mask_of_ones():
    model, (loss, _) = small(), losses()
    function, weights = of_vector(model, loss)
    by_mask = torch.func.grad(lambda mask: function(mask * weights))(torch.ones_like(weights))
    torch.testing.assert_close(vector(pruners.snip(model, loss)), by_mask.abs(), rtol=1e-12, atol=0)


def test_grasp_is_the_weight_times_the_explicit_hessian_times_the_gradient():
    model, (loss, _) = small(), losses()
    function, weights = of_vector(model, loss)
    hessian, gradient = torch.func.hessian(function)(weights), torch.func.grad(function)(weights)
    scores = vector(pruners.grasp(model, loss))
    torch.testing.assert_close(scores, weights * (hessian @ gradient), rtol=1e-10, atol=0)
    assert (scores < 0).any()  # removing such a weight strengthens the gradient, so it goes first
    assert (scores > 0).any()


@pytest.mark.parametrize("place", [0, 7, 13])
def test_grasp_predicts_how_the_gradient_norm_changes_when_a_small_weight_goes(place):
    model, (loss, _) = small(), losses()
    layer, index = (model[0], place) if place < 12 else (model[2], place - 12)
    with torch.no_grad():
        layer.weight.view(-1)[index] = 1e-5
    function, weights = of_vector(model, loss)
    without = weights.clone()
    without[place] = 0
    before, after = (torch.func.grad(function)(at).square().sum().detach() for at in (weights, without))
    predicted = -2 * vector(pruners.grasp(model, loss))[place]  # equation 3 with delta = -w, and the score is w Hg
    assert (after - before).item() == pytest.approx(float(predicted), rel=1e-3)


@pytest.mark.parametrize("score", [pruners.snip, pruners.grasp])
def test_several_losses_count_by_their_mean(score):
    model, (first, second) = small(), losses()
    together = score(model, lambda model: (first(model) + second(model)) / 2)
    apart = score(model, [first, second])
    torch.testing.assert_close(dict(apart), dict(together))
    assert not torch.allclose(vector(apart), vector(score(model, first)))
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("score", [pruners.snip, pruners.grasp])
def test_a_removed_weight_scores_zero(score):
    model, (loss, _) = small(), losses()
    mask = torch.rand(4, 3, generator=torch.Generator().manual_seed(2)) < 0.5
    pruners.attach(model, {"0.weight": mask})
    scores = score(model, loss)
    assert torch.equal(scores["0.weight"] == 0, ~mask)


@pytest.mark.parametrize("score", [pruners.snip, pruners.grasp])
def test_what_cannot_be_scored_is_refused(score):
    model, (loss, _) = small(), losses()
    with pytest.raises(BadInput, match="no losses"):
        score(model, [])
    with pytest.raises(BadInput, match=r"a loss must be a scalar, this has the shape \[2\]: of a stack, sum its runs'"):
        score(model, lambda network: loss(network).expand(2))
    both = nn.ModuleDict({"used": model, "idle": nn.Linear(2, 2)})
    with pytest.raises(BadInput, match=r"the loss does not depend on idle\.weight"):
        score(both, lambda both: loss(both["used"]))


def test_grasp_needs_a_loss_with_a_curvature():
    with pytest.raises(BadInput, match="the loss is linear in the weights"):
        pruners.grasp(nn.Linear(2, 1), lambda model: model(torch.ones(1, 2)).sum())


class Powered(nn.Module):
    """Powerpropagation: a weight is w |w| of what is trained."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * values.abs()

    def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
        return weight.sign() * weight.abs().sqrt()


def test_snip_of_a_weight_that_is_computed_by_a_power_is_that_of_the_weight():
    torch.manual_seed(0)
    plain, inputs = nn.Linear(16, 4), torch.randn(8, 16)
    loss = lambda model: model(inputs).pow(2).mean()  # noqa: E731
    powered = copy.deepcopy(plain)
    nn.utils.parametrize.register_parametrization(powered, "weight", Powered())
    expected, found = (pruners.snip(model, loss)["weight"] for model in (plain, powered))
    assert torch.allclose(expected, found, rtol=1e-4)


def test_snip_of_halves_is_a_product_of_floats():
    torch.manual_seed(0)
    model, inputs = nn.Linear(64, 64).bfloat16(), torch.randn(8, 64).bfloat16()
    scores = pruners.snip(model, lambda model: model(inputs).float().pow(2).mean())["weight"]
    assert scores.dtype == torch.float32
    assert len(scores.unique()) > 3500


def test_a_derivative_that_is_infinite_gives_no_scores():
    model = nn.Linear(4, 4)
    with pytest.raises(BadInput, match="is not finite, so that it gives no scores"):
        pruners.snip(model, lambda m: (m.weight - m.weight.detach()).sum().sqrt())


def test_snip_is_shuffled_among_the_weights_that_are_left():
    model, x = small_lenet(), torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    masks = pruners.unstructured(pruners.magnitude(model), 0.5)
    pruners.attach(model, masks)
    mixed = pruners.snip_shuffled(model, lambda net: net(x).square().sum(), seed=1)
    for name, mask in masks.items():
        assert not mixed[name][~mask].any()


def test_masks_hold_what_has_gone_in_its_place_when_scores_are_shuffled():
    model = small_lenet()
    masks = pruners.unstructured(pruners.magnitude(model), 0.5)
    pruners.attach(model, masks)
    scores = pruners.magnitude(model)
    mixed, within = pruners.shuffled(scores, 1), pruners.shuffled(scores, 1, masks)
    for name, mask in masks.items():
        assert torch.equal(within[name] > 0, mask)
        assert not torch.equal(mixed[name] > 0, mask)
        assert torch.equal(within[name].flatten().sort().values, scores[name].flatten().sort().values)


def test_an_input_that_is_never_there_counts_as_one_in_the_mean_that_dampens():
    moments = torch.diag(torch.tensor([0.0, 3.0]))  # 1 and 3, half of their mean is 1
    expected = torch.diag(torch.tensor([2.0, 4.0], dtype=torch.float64) ** -0.5)
    torch.testing.assert_close(inverse_factor(moments, dampening=0.5), expected)


@pytest.mark.parametrize(
    ("mask", "line"),
    [
        (torch.ones(4) > 0, r"within: mask '0\.weight' has shape \[4\], its scores \[3, 4\]"),
        (3, r"within: mask '0\.weight' is 3, expected torch\.bool"),
    ],
)
def test_masks_within_which_is_scored_must_fit(mask, line):
    model = nn.Sequential(nn.Linear(4, 3))
    with pytest.raises(BadInput, match=line):
        pruners.grasp(model, lambda m: m(torch.ones(2, 4)).square().sum(), within={"0.weight": mask})
    with pytest.raises(BadInput, match=line):
        pruners.shuffled(pruners.magnitude(model), 0, within={"0.weight": mask})
