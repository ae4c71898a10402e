"""Laws of `lib.pruners.straight_through`: SR-STE's update written out, masks that follow the weights, and flips."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import BadInput
from lib.models.plain import digits_mlp
from lib.pruners.straight_through import learning

TWO_FOUR = partial(pruners.n_of_m, n=2, m=4)
ROW = [[4.0, -3.0, 2.0, 0.5] * 4]  # 16 inputs, the least that the rule prunes


def layer(decay: float) -> nn.Linear:
    """One output of 16 inputs: the mask keeps the first two of every four."""
    found = nn.Linear(16, 1, bias=False)
    with torch.no_grad():
        found.weight.copy_(torch.tensor(ROW))
    pruners.learn(found, TWO_FOUR, decay)
    return found


def gradient(found: nn.Linear, inputs: Tensor) -> Tensor:
    """Of half the squared output."""
    (found(inputs).square().sum() / 2).backward()
    return found.parametrizations.weight.original.grad


def test_one_step_is_the_papers_equation_8():
    """W - rate (g(mask W) + decay (1 - mask) W): the output is that of the masked weight, all weights move."""
    inputs = torch.arange(1.0, 17.0)
    kept = torch.tensor([[1.0, 1, 0, 0] * 4])
    weight = torch.tensor(ROW)
    output = (weight * kept) @ inputs
    for decay in (0.0, 0.5):
        found = layer(decay)
        assert torch.equal(found(inputs), output)
        expected = output * inputs + decay * (1 - kept) * weight
        torch.testing.assert_close(gradient(found, inputs), expected)
        torch.optim.SGD(found.parameters(), lr=0.01).step()
        torch.testing.assert_close(found.parametrizations.weight.original.detach(), weight - 0.01 * expected)


def test_a_masked_weight_comes_back_when_it_has_grown():
    found = layer(0.0)
    with torch.no_grad():
        found.parametrizations.weight.original[0, 3] = 10.0
    assert found.weight[0, :4].tolist() == [4.0, 0.0, 0.0, 10.0]


def test_a_weight_that_diverged_computes_what_is_no_number_and_lets_the_loop_say_so():
    found = layer(0.0)
    with torch.no_grad():
        found.parametrizations.weight.original[0, 0] = math.nan
    assert found(torch.ones(16)).isnan().all()


def test_flips_are_counted_by_step_and_only_while_learning():
    found = layer(0.0)
    inputs = torch.ones(16)
    gradient(found, inputs)  # the mask as it was: nothing flips
    with torch.no_grad():
        found.parametrizations.weight.original[0, 3] = 10.0
    found(inputs)
    pruners.sparsity(found)  # looks at the weight
    gradient(found, inputs)  # -3 goes and 10 comes: two of 16 entries
    assert pruners.flip_rate(found) == pytest.approx(100 * 2 / (2 * 16))
    gradient(found, inputs)
    assert pruners.flip_rate(found) == 0
    assert math.isnan(pruners.flip_rate(found))  # there was no step in between
    assert math.isnan(pruners.flip_rate(nn.Linear(16, 16)))


@pytest.mark.parametrize("pattern", [TWO_FOUR, partial(pruners.transposable, n=2, m=4)])
def test_training_ends_in_an_ordinary_mask_that_computes_the_same(pattern):
    torch.manual_seed(0)
    model = digits_mlp()
    inputs, labels = torch.randn(32, 1, 8, 8), torch.randint(10, (32,))
    pruners.learn(model, pattern, select=pruners.eligible_both_ways(model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    before = {name: one.mask.clone() for name, one in learning(model).items()}
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert pruners.flip_rate(model) > 0
    twin = copy.deepcopy(model)  # shares its layers' classes with the model
    expected = model.eval()(inputs)
    masks = pruners.settle(model)
    assert torch.equal(model(inputs), expected)
    assert torch.equal(twin.eval()(inputs), expected)
    assert not learning(model)
    assert learning(twin)
    attached = pruners.attached(model)
    assert attached.keys() == masks.keys() == {"fc1.weight", "fc2.weight"}
    assert not all(torch.equal(attached[name], before[name]) for name in masks)
    for mask in attached.values():
        assert (mask.reshape(-1, 4).sum(1) == 2).all()
        if pattern is not TWO_FOUR:
            assert (mask.T.reshape(-1, 4).sum(1) == 2).all()
    assert pruners.sparsity(model) == pytest.approx((64 * 128 + 128 * 128) / 2 / (64 * 128 + 128 * 128 + 1280))


def test_more_decay_means_fewer_flips_and_smaller_masked_weights():
    """What the term is for (Zhou et al. 2021, section 4.2)."""

    def trained(decay: float) -> tuple[float, float]:
        torch.manual_seed(0)
        model = digits_mlp()
        pruners.learn(model, TWO_FOUR, decay, pruners.eligible_both_ways(model))
        inputs, labels = torch.randn(64, 1, 8, 8), torch.randint(10, (64,))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(40):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), labels).backward()
            optimizer.step()
        one = model.fc1.parametrizations.weight
        return pruners.flip_rate(model), float(one.original.detach()[~one[0].mask].abs().mean())

    (flips, left), (fewer, smaller) = trained(0.0), trained(0.2)
    assert fewer < 0.8 * flips
    assert smaller < 0.8 * left


def test_a_saved_state_goes_on_with_its_mask_and_its_counts():
    found = layer(0.1)
    with torch.no_grad():
        found.parametrizations.weight.original[0, 3] = 10.0
    gradient(found, torch.ones(16))
    other = layer(0.1)
    other.load_state_dict(found.state_dict())
    assert torch.equal(other.parametrizations.weight[0].mask, found.parametrizations.weight[0].mask)
    assert pruners.flip_rate(other) == pytest.approx(100 * 2 / 16)


class Tied(nn.Module):
    """An embedding whose weight the last layer shares, and a layer of its own between them."""

    def __init__(self):
        super().__init__()
        self.embedding, self.body, self.out = nn.Embedding(32, 16), nn.Linear(16, 16), nn.Linear(16, 32, bias=False)
        self.out.weight = self.embedding.weight


def test_a_shared_weight_is_left_out_with_a_warning_and_refused_where_it_is_named():
    model = Tied()
    with pytest.warns(pruners.LeftOut, match=r"^out\.weight is left out: it is shared with another layer"):
        pruners.learn(model, TWO_FOUR)
    assert list(learning(model)) == ["body.weight"]
    for names in (["out.weight", "body"], ["out"]):  # by its name, or alone
        model = Tied()
        with pytest.raises(BadInput, match=r"^out\.weight is shared with another layer"):
            pruners.learn(model, TWO_FOUR, select=names)
        assert not learning(model)


def test_a_network_of_which_no_layer_fits_learns_no_mask_and_is_told_so():
    odd = nn.Sequential(nn.Linear(7, 13), nn.ReLU(), nn.Linear(13, 3))
    for call in (lambda: pruners.learn(odd, TWO_FOUR), lambda: pruners.two_four(odd)):
        with pytest.raises(BadInput, match=r"^no layer of Sequential has an inner dimension that fits"):
            call()


def test_what_cannot_learn_its_mask_is_refused_in_a_line():
    model = digits_mlp()
    with pytest.raises(BadInput, match="decay=-1"):
        pruners.learn(model, TWO_FOUR, -1.0)
    with pytest.raises(BadInput, match="no 'fc9"):
        pruners.learn(model, TWO_FOUR, select=["fc9.weight"])
    pruners.attach(model, TWO_FOUR(pruners.magnitude(model).only(["fc2.weight"])))
    with pytest.raises(BadInput, match=r"fc2\.weight has a mask"):
        pruners.learn(model, TWO_FOUR, select=["fc1.weight", "fc2.weight"])
    assert not learning(model)  # refused before any was set
    odd = nn.Sequential(nn.Linear(16, 16), nn.Linear(18, 4))
    with pytest.raises(BadInput, match=r"^1\.weight: weight: inner dimension 18 is not a multiple of 4"):
        pruners.learn(odd, TWO_FOUR, select=["0", "1"])
    assert not learning(odd)


def test_a_weight_that_learns_its_mask_takes_no_other_until_that_is_settled():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    pruners.learn(model, TWO_FOUR, select="1")
    before = copy.deepcopy(model.state_dict())
    solver, calibration = pruners.Wanda(TWO_FOUR), [torch.randn(40, 16)]
    for call in (
        lambda: pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.75)),
        lambda: pruners.Pruner(pruners.magnitude, pruners.unstructured, pruners.Once(0.75)).step(model, 0),
    ):
        with pytest.raises(BadInput, match=r"^mask '1\.weight': the weight learns its mask: pruners\.settle first$"):
            call()
    with pytest.raises(BadInput, match=r"^1\.weight learns its mask: one-shot pruning begins with a dense network$"):
        pruners.one_shot(model, calibration, solver)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    assert list(pruners.attached(pruners.one_shot(model, calibration, solver, select="0"))) == ["0.weight"]
    pruners.settle(model)
    pruners.Pruner(pruners.magnitude, pruners.unstructured, pruners.Once(0.75)).step(model, 0)
    assert pruners.sparsity(model) == 0.75


def test_the_decay_is_the_papers():
    assert pruners.DECAY == 2e-4


def test_what_is_no_pattern_and_a_decay_without_end_are_refused():
    with pytest.raises(BadInput, match="pattern='n_of_m': expected a function of scores"):
        pruners.learn(nn.Linear(16, 16), "n_of_m")
    with pytest.raises(BadInput, match="decay=inf: expected 0"):
        pruners.learn(nn.Linear(16, 16), partial(pruners.n_of_m, n=2, m=4), float("inf"))


def test_a_mask_that_has_learned_to_keep_nothing_is_told_of_when_it_is_held():
    model = nn.Sequential(nn.Linear(16, 4))
    pruners.learn(model, lambda scores: {name: torch.zeros_like(one, dtype=torch.bool) for name, one in scores.items()})
    with pytest.warns(pruners.Emptied, match=r"^no weight of 0\.weight is left: what comes before it is cut off"):
        pruners.settle(model)
    solver = lambda weight, moments: (0 * weight, torch.zeros_like(weight, dtype=torch.bool))  # noqa: E731
    with pytest.warns(pruners.Emptied, match=r"^no weight of 0\.weight is left"):
        pruners.one_shot(nn.Sequential(nn.Linear(16, 4)), [torch.randn(3, 16)], solver)


def test_a_layer_that_is_asked_for_and_cannot_be_pruned_is_refused_with_the_reason():
    model = nn.ModuleDict({"bi": nn.Bilinear(4, 4, 4), "fc": nn.Linear(16, 16)})
    for prune in (
        lambda: pruners.one_shot(model, [torch.zeros(2, 16)], pruners.Wanda(pruners.n_of_m), select="bi"),
        lambda: pruners.learn(model, pruners.n_of_m, select="bi"),
    ):
        with pytest.raises(BadInput, match=r"^bi\.weight cannot be pruned: there is no rule for what Bilinear does"):
            prune()
