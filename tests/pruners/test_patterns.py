"""Laws of `lib.pruners.patterns`: how many go, which ones, and that they follow the reduction axis."""

from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant
from lib.models.lenet import small_lenet
from lib.pruners import groups
from lib.pruners.layers import as_matrix

KEPT, GONE = True, False
TWO_NETWORKS = {"a.0": torch.tensor([[1.0, 8, 2, 7]]), "a.1": torch.tensor([[3.0, 4]]), "b": torch.tensor([[5.0, 6]])}


def two_networks():
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(4, 1), nn.Linear(2, 1)), "b": nn.Linear(2, 1)})
    with torch.no_grad():
        for name, values in TWO_NETWORKS.items():
            model.get_submodule(name).weight.copy_(values)
    return pruners.magnitude(model)


@pytest.mark.parametrize(
    ("scope", "first", "second", "third"),
    [
        ("layer", [GONE, KEPT, GONE, KEPT], [GONE, KEPT], [GONE, KEPT]),
        ("network", [GONE, KEPT, GONE, KEPT], [GONE, KEPT], [GONE, KEPT]),
        ("global", [GONE, KEPT, GONE, KEPT], [GONE, GONE], [KEPT, KEPT]),
    ],
)
def test_what_is_ranked_together_is_the_scope(scope, first, second, third):
    masks = pruners.unstructured(two_networks(), 0.5, scope)
    assert {name: mask.tolist() for name, mask in masks.items()} == {
        "a.0.weight": [first],
        "a.1.weight": [second],
        "b.weight": [third],
    }


def test_a_network_is_ranked_across_its_layers_and_not_across_networks():
    scores = two_networks()
    removed = {scope: [int((~mask).sum()) for mask in pruners.unstructured(scores, 2 / 3, scope).values()]
               for scope in ("layer", "network", "global")}  # fmt: skip
    assert removed == {"layer": [3, 1, 1], "network": [2, 2, 1], "global": [2, 2, 1]}
    removed = {scope: [int((~mask).sum()) for mask in pruners.unstructured(scores, 1 / 3, scope).values()]
               for scope in ("layer", "network", "global")}  # fmt: skip
    assert removed == {"layer": [1, 1, 1], "network": [2, 0, 1], "global": [2, 1, 0]}


def test_scores_in_a_plain_dict_are_one_network():
    scores = two_networks()
    masks = pruners.unstructured(dict(scores), 0.5, "network")
    assert all(torch.equal(mask, pruners.unstructured(scores, 0.5, "global")[name]) for name, mask in masks.items())


@pytest.mark.parametrize("scope", ["layer", "network", "global"])
@pytest.mark.parametrize("sparsity", [0, 0.1, 1 / 3, 0.5, 0.55, 0.95, 0.999])
@pytest.mark.parametrize("values", ["equal", "few", "many"])
def test_the_count_is_exact_whatever_the_ties(scope, sparsity, values):
    model = nn.ModuleDict({"a": nn.Sequential(nn.Conv2d(3, 5, 3), nn.Linear(7, 11)), "b": nn.Linear(13, 3)})
    scores = pruners.random(model, seed=0)
    for name, score in scores.items():
        scores[name] = {"equal": torch.zeros_like(score), "few": (score * 3).floor(), "many": score}[values]
    masks = pruners.unstructured(scores, sparsity, scope)
    assert [*masks] == [*scores]
    sizes = {name: mask.numel() for name, mask in masks.items()}
    pools = {
        "layer": [[name] for name in sizes],
        "network": [["a.0.weight", "a.1.weight"], ["b.weight"]],
        "global": [[*sizes]],
    }[scope]
    for pool in pools:
        removed = sum(int((~masks[name]).sum()) for name in pool)
        assert removed == round(sparsity * sum(sizes[name] for name in pool))
        lowest_kept = min((scores[name][masks[name]].min() for name in pool if masks[name].any()), default=3)
        highest_gone = max((scores[name][~masks[name]].max() for name in pool if not masks[name].all()), default=-1)
        assert highest_gone <= lowest_kept


def test_among_equal_scores_the_first_go():
    masks = pruners.unstructured({"w": torch.tensor([[1.0, 0], [1, 1]]), "v": torch.tensor([[1.0, 1]])}, 0.5)
    assert masks["w"].tolist() == [[GONE, GONE], [GONE, KEPT]]
    assert masks["v"].tolist() == [[KEPT, KEPT]]


@pytest.mark.parametrize("scope", ["layer", "network", "global"])
def test_masks_only_shrink_as_sparsity_grows(scope):
    scores = pruners.magnitude(small_lenet())
    before = pruners.unstructured(scores, 0, scope)
    assert all(mask.all() for mask in before.values())
    for sparsity in (0.2, 0.5, 0.8, 0.95, 0.99):
        masks = pruners.unstructured(scores, sparsity, scope)
        assert all((mask <= before[name]).all() for name, mask in masks.items())
        assert any((mask != before[name]).any() for name, mask in masks.items())
        before = masks


def test_only_the_order_of_scores_matters():
    scores = pruners.random(small_lenet(), seed=1)
    monotone = {name: 3 * score**2 - 1 for name, score in scores.items()}
    for pattern in (pruners.n_of_m, lambda scores: pruners.unstructured(scores, 0.7)):
        fit = scores.only(["conv2.weight", "fc1.weight"])
        masks, again = pattern(fit), pattern({name: monotone[name] for name in fit})
        assert all(torch.equal(masks[name], again[name]) for name in fit)


@pytest.mark.parametrize("sparsity", [-0.1, 1, 1.0, 1.5, float("nan"), float("inf")])
def test_a_sparsity_outside_0_to_1_is_refused(sparsity):
    with pytest.raises(BadInput, match=rf"sparsity={sparsity} is not in \[0, 1\)"):
        pruners.unstructured(two_networks(), sparsity)


def test_an_unknown_scope_is_refused():
    with pytest.raises(BadInput, match="scope='model': known are row, layer, network, global"):
        pruners.unstructured(two_networks(), 0.5, "model")


def test_a_floor_keeps_the_best_of_each_layer_and_the_count_stays_exact():
    scores = {"low": torch.tensor([[1.0, 3, 2, 4]]), "high": torch.tensor([[15.0, 16, 11, 12], [13, 14, 17, 18]])}
    free = pruners.unstructured(scores, 0.5)
    assert free["low"].tolist() == [[GONE, GONE, GONE, GONE]]
    masks = pruners.unstructured(scores, 0.5, floor=0.3)  # two of four, three of eight
    assert masks["low"].tolist() == [[GONE, KEPT, GONE, KEPT]]
    assert masks["high"].tolist() == [[KEPT, KEPT, GONE, GONE], [GONE, GONE, KEPT, KEPT]]
    least = pruners.unstructured(scores, 0.5, floor=1e-9)  # rounded up: one
    assert least["low"].tolist() == [[GONE, GONE, GONE, KEPT]]
    assert sum(int(mask.sum()) for mask in least.values()) == 6


def test_a_floor_that_the_layers_reach_anyway_changes_nothing():
    scores = pruners.random(small_lenet(), seed=1)
    free = pruners.unstructured(scores, 0.5)
    assert all(torch.equal(mask, free[name]) for name, mask in pruners.unstructured(scores, 0.5, floor=0.3).items())


@pytest.mark.parametrize("scope", ["layer", "network", "global"])
def test_a_floor_above_what_is_kept_is_refused(scope):
    with pytest.raises(BadInput, match=r"^floor=0\.6 keeps more of a\.0\.weight.* than sparsity=0\.5 leaves$"):
        pruners.unstructured(two_networks(), 0.5, scope, floor=0.6)
    for floor in (-0.1, 1.1, float("nan")):
        with pytest.raises(BadInput, match=rf"floor={floor} is not in \[0, 1\]"):
            pruners.unstructured(two_networks(), 0.5, scope, floor)


PATTERNS = {"unstructured": lambda scores: pruners.unstructured(scores, 0.5), "n_of_m": pruners.n_of_m}


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_scores_that_cannot_be_ranked_are_refused_by_name(pattern):
    for bad in (float("nan"), float("inf"), -float("inf")):
        with pytest.raises(BadInput, match=r"^fc: 2 of 4 scores are not finite"):
            pattern({"fine": torch.ones(1, 4), "fc": torch.tensor([[1.0, bad, 2.0, bad]])})
    with pytest.raises(BadInput, match=r"^bias: .* these have 1$"):
        pattern({"bias": torch.ones(4)})
    with pytest.raises(BadInput, match="no scores"):
        pattern({})


def test_2_of_4_keeps_the_two_highest_of_each_four_inputs():
    scores = torch.tensor([[1.0, 4, 3, 2, 9, 8, 7, 6], [0, 0, 0, 1, 5, 5, 5, 5]])
    assert pruners.n_of_m({"w": scores})["w"].int().tolist() == [[0, 1, 1, 0, 1, 1, 0, 0], [1, 0, 0, 1, 1, 1, 0, 0]]


@pytest.mark.parametrize(("n", "m"), [(1, 2), (1, 4), (2, 4), (3, 4), (4, 8), (5, 8), (1, 16)])
def test_every_group_keeps_exactly_n_even_with_ties_and_none_that_is_lower(n, m):
    scores = torch.randint(0, 4, (6, 48), generator=torch.Generator().manual_seed(0)).float()
    mask = pruners.n_of_m({"w": scores}, n, m)["w"]
    for row, start in product(range(6), range(0, 48, m)):
        values, kept = scores[row, start : start + m], mask[row, start : start + m]
        assert kept.sum() == n
        assert values[kept].min() >= values[~kept].max()


def test_no_other_2_4_pattern_keeps_more_magnitude():
    scores = torch.rand(16, 8, 3, 3, generator=torch.Generator().manual_seed(2))
    mask = pruners.n_of_m({"w": scores})["w"]
    six = torch.tensor([[i in pair for i in range(4)] for pair in combinations(range(4), 2)])
    best = 0.0
    for out, r, s, start in product(range(16), range(3), range(3), (0, 4)):
        best += max(float(scores[out, start : start + 4, r, s] @ pattern.float()) for pattern in six)
    assert float(scores[mask].sum()) == pytest.approx(best)


def test_on_a_convolution_groups_run_over_input_channels_at_each_kernel_position():
    scores = torch.rand(3, 8, 3, 2, generator=torch.Generator().manual_seed(3))
    mask = pruners.n_of_m({"w": scores})["w"]
    assert mask.shape == scores.shape
    for out, r, s, start in product(range(3), range(3), range(2), (0, 4)):
        group = scores[out, start : start + 4, r, s].tolist()
        kept = [value in sorted(group)[2:] for value in group]
        assert mask[out, start : start + 4, r, s].tolist() == kept


@pytest.mark.parametrize("shape", [(2, 3, 2, 2), (2, 2, 2, 3), (3, 6, 2, 2), (4, 1, 2, 4), (2, 5, 4, 4)])
def test_groups_run_on_into_the_next_kernel_position_where_4_does_not_divide_the_channels(shape):
    scores = torch.rand(shape, generator=torch.Generator().manual_seed(4))
    mask = pruners.n_of_m({"w": scores})["w"]
    outputs, channels, height, width = shape
    for out in range(outputs):
        line = [(out, c, r, s) for r in range(height) for s in range(width) for c in range(channels)]
        for start in range(0, len(line), 4):
            group = sorted(line[start : start + 4], key=lambda place: float(scores[place]))
            assert [bool(mask[place]) for place in group] == [GONE, GONE, KEPT, KEPT]


def test_the_workflow_keeps_the_two_largest_of_every_four_weights_in_the_layers_that_fit_and_all_in_others():
    model = small_lenet()
    masks = pruners.two_four(model)
    assert list(masks) == pruners.eligible(model)
    for name, mask in masks.items():
        sizes, kept = (as_matrix(one).reshape(-1, 4) for one in (model.get_parameter(name).detach().abs(), mask))
        assert (kept.sum(1) == 2).all()
        assert (sizes[kept].reshape(-1, 2).amin(1) >= sizes[~kept].reshape(-1, 2).amax(1)).all()
    pruners.attach(model, masks)
    assert pruners.report(model).set_index("layer").kept.to_dict() == {
        "conv1.weight": 144,
        "conv2.weight": 32 * 16 * 9 // 2,
        "fc1.weight": 64 * 128 // 2,
        "fc2.weight": 10 * 64 // 2,
        "total": 144 + (32 * 16 * 9 + 64 * 128 + 10 * 64) // 2,
    }


def test_a_layer_that_does_not_fit_and_an_impossible_pattern_are_refused():
    with pytest.raises(BadInput, match=r"has an inner dimension that fits: a multiple of 16 is needed"):
        pruners.two_four(nn.Linear(12, 2))
    with pytest.raises(BadInput, match="no scores"):
        pruners.n_of_m({})
    with pytest.raises(BadInput, match=r"^conv: inner dimension 9 is not a multiple of 4, so 2:4 does not fit"):
        pruners.n_of_m({"conv": torch.ones(2, 1, 3, 3)})
    for n, m in ((0, 4), (4, 4), (5, 4), (-1, 4)):
        with pytest.raises(BadInput, match=rf"n_of_m\({n}, {m}\)"):
            pruners.n_of_m({"w": torch.ones(1, 4)}, n, m)


def test_what_is_gone_goes_first_whatever_its_score_and_exactly_as_many_go():
    scores = {"a": torch.tensor([[9.0, 1.0, -5.0, 2.0]]), "b": torch.tensor([[-7.0, 8.0, 3.0, 4.0]])}
    within = {"a": torch.tensor([[False, True, True, True]]), "b": torch.tensor([[True, False, True, True]])}
    found = pruners.unstructured(scores, 0.5, within=within)
    assert found["a"].tolist() == [[False, True, False, True]]
    assert found["b"].tolist() == [[False, False, True, True]]
    assert pruners.unstructured(scores, 0.5)["a"].tolist() == [[True, False, False, False]]
    some = pruners.unstructured(scores, 0.25, within={"b": within["b"]})  # nothing of a is gone yet
    assert [some["a"].tolist(), some["b"].tolist()] == [[[True] * 4], [[False, False, True, True]]]
    by_layer = pruners.unstructured(scores, 0.5, scope="layer", within=within)
    assert by_layer["a"].tolist() == [[False, True, False, True]]


@pytest.mark.parametrize("settings", [{"scope": "layer"}, {"scope": "row"}, {"floor": 0.3}])
def test_what_is_gone_stays_gone_where_it_is_more_than_is_asked_for(settings):
    """Nine of ten are gone and half are asked for, or a floor of three of ten would stay."""
    scores, within = {"a": torch.arange(10.0)[None]}, {"a": torch.arange(10)[None] == 2}
    found = pruners.unstructured(scores, 0.5, within=within, **settings)["a"]
    assert (found <= within["a"]).all()


def test_a_floor_is_no_weight_higher_by_rounding():
    """Seven hundredths of 100 are seven, though 0.07 * 100 is a little more."""
    scores = {"a": torch.arange(100.0)[None], "b": torch.arange(100.0)[None] + 100}
    assert [int(mask.sum()) for mask in pruners.unstructured(scores, 0.93, floor=0.07).values()] == [7, 7]


def test_scores_in_whole_numbers_are_ranked_as_others_are():
    scores = torch.tensor([[5, 1, 4, 2, 8, 3, 7, 6]])
    settings = {"within": {"w": scores != 8}, "floor": 0.25}
    found = pruners.unstructured({"w": scores}, 0.5, **settings)["w"]
    assert torch.equal(found, pruners.unstructured({"w": scores.float()}, 0.5, **settings)["w"])
    assert scores[found].tolist() == [5, 4, 7, 6]
    kept = pruners.n_of_m({"w": scores}, within={"w": scores != 8})["w"]
    assert scores[kept].tolist() == [5, 4, 7, 6]


def test_of_every_four_what_is_gone_stays_gone():
    scores = {"a": torch.tensor([[9.0, 1.0, 5.0, 2.0, 4.0, 3.0, 2.0, 1.0]])}
    within = {"a": torch.tensor([[False, True, True, True, False, False, False, True]])}
    found = pruners.n_of_m(scores, within=within)["a"]
    assert found.tolist() == [[False, False, True, True, False, False, False, True]]


def test_masks_of_other_shapes_are_refused():
    with pytest.raises(BadInput, match=r"within: mask 'a' has shape \[1, 4\], its scores \[2, 4\]"):
        pruners.unstructured({"a": torch.ones(2, 4)}, 0.5, within={"a": torch.ones(1, 4).bool()})


@pytest.mark.parametrize("pattern", [partial(pruners.unstructured, sparsity=0.5), pruners.n_of_m, pruners.transposable])
def test_masks_that_are_not_of_bools_are_refused(pattern):
    with pytest.raises(BadInput, match=r"within: mask 'a' is \[4, 4\] of torch.float32, expected torch.bool"):
        pattern({"a": torch.ones(4, 4)}, within={"a": torch.ones(4, 4)})


def test_a_pattern_of_one_sparsity_refuses_another():
    with pytest.raises(BadInput, match=r"sparsity=0.25: 2 of 4 leaves 0.5, so its sparsity is 0.5"):
        pruners.n_of_m({"a": torch.ones(2, 4)}, sparsity=0.25)


@pytest.mark.parametrize(("n", "m", "sparsity"), [(7, 10, 0.3), (7, 10, 1 - 7 / 10), (1, 3, 2 / 3), (1, 3, 1 - 1 / 3)])
def test_a_pattern_takes_its_own_sparsity_however_it_is_rounded(n, m, sparsity):
    assert int(pruners.n_of_m({"a": torch.rand(1, m)}, n, m, sparsity)["a"].sum()) == n


def test_a_floor_is_not_spent_on_what_is_gone_already():
    scores = {"a": torch.arange(1.0, 11)[None], "b": torch.arange(101.0, 111)[None]}
    left = torch.ones(1, 10, dtype=torch.bool)
    left[0, :8] = False
    masks = pruners.unstructured(scores, 0.5, floor=0.5, within={"a": left})
    assert [int((~mask).sum()) for mask in masks.values()] == [8, 2]  # 10 of 20, as asked


def test_a_floor_above_what_sparsity_leaves_is_refused_row_by_row_too():
    scores = {"w": torch.rand(4, 8)}
    with pytest.raises(BadInput, match=r"floor=0\.75 keeps more of w"):
        pruners.unstructured(scores, 0.5, "row", floor=0.75)


def test_sparsities_may_be_an_array_and_a_leave_must_be_a_mapping():
    scores = pruners.magnitude(nn.Linear(8, 8))
    assert pruners.unstructured(scores, np.array([0.5]))["weight"].sum() == 32
    for odd in (np.array(0.5), (share for share in (0.5,)), [], "0.5"):
        with pytest.raises(BadInput, match=r"is no number in \[0, 1\)"):
            pruners.unstructured(scores, odd)
    with pytest.raises(BadInput, match=r"leave=\['head'\]: expected {module name: reason}"):
        pruners.layer_rule(nn.Linear(8, 8), leave=["head"])
    with pytest.raises(BadInput, match="expected Scores, such as of `magnitude`, found a dict"):
        pruners.shuffled({"a": torch.ones(2, 2)}, 0)


def test_groups_of_whole_numbers_are_ranked_as_the_same_fractions_are():
    scores = torch.tensor([[1, 2, 1, 1], [2, 2, 2, 1]])  # means of 1.5 and 2, and of 1 and 1.5
    whole, fractions = (
        groups.whole_groups({"w": scores.to(kind)}, 0.25, {"w": circulant(2)})["w"]
        for kind in (torch.int64, torch.float32)
    )
    assert torch.equal(whole, fractions)
    assert whole.tolist() == [[True, True, False, True], [True, True, True, False]]
