"""`verify` says what the weights are, whatever was promised of them."""

import pytest
import torch
from torch import nn

from lib import pruners
from lib.models.lenet import small_lenet
from lib.models.mlp import MLP, generators
from lib.pruners.verified import tightest


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([1, 1, 1, 1, 1, 1, 1, 1], (1, 1)),
        ([1, 0, 1, 0, 0, 1, 1, 0], (1, 2)),
        ([1, 1, 0, 0, 0, 1, 1, 0], (2, 4)),
        ([1, 1, 1, 0, 0, 1, 0, 0], (4, 8)),
        ([1, 1, 1, 1, 0, 1, 1, 1], (7, 8)),
        ([0, 0, 0, 0, 0, 0, 0, 0], (0, 2)),
        ([1, 0, 0, 0, 0, 0, 0, 0], (1, 8)),
    ],
)
def test_the_tightest_pattern_by_hand(row, expected):
    assert tightest(torch.tensor([row]).float()) == expected


def test_every_pattern_is_recognised_layer_by_layer():
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64) for _ in range(5)))
    scores = pruners.magnitude(model)
    masks = pruners.n_of_m(scores.only(["0.weight"]), 2, 4) | pruners.n_of_m(scores.only(["1.weight"]), 4, 8)
    masks |= pruners.transposable(scores.only(["2.weight"])) | pruners.unstructured(scores.only(["3.weight"]), 0.5)
    pruners.attach(model, masks)
    table = pruners.verify(model).set_index("layer")
    assert table.pattern.tolist() == ["2:4", "4:8", "2:4", "unstructured", "dense", ""]
    assert table.two_four.tolist() == [True, False, True, False, False, False]
    assert table.both_ways.tolist() == [False, False, True, False, False, False]
    assert table.sparsity.tolist() == pytest.approx([0.5, 0.5, 0.5, 0.5, 0, 0.4])
    assert table["mask"].tolist() == ["held"] * 4 + ["", ""]
    pruners.detach(model)
    assert pruners.verify(model)["mask"].tolist() == ["free"] * 4 + ["", ""]


def test_three_of_four_is_no_pattern_of_sparse_tensor_cores():
    model = nn.Linear(8, 8)
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model), 3, 4))
    row = pruners.verify(model).set_index("layer").loc["weight"]
    assert (row.pattern, row.two_four) == ("3:4", False)


def test_a_promise_is_not_taken_for_zeros():
    """A mask is attached, but the layer's weight is changed behind it, as a loader does that knows no masks."""
    model = small_lenet()
    pruners.attach(model, pruners.two_four(model))
    pruners.detach(model)
    assert pruners.verify(model).set_index("layer").pattern["fc1.weight"] == "2:4"
    with torch.no_grad():
        model.fc1.weight += 1
    row = pruners.verify(model).set_index("layer").loc["fc1.weight"]
    assert (row.pattern, row.two_four, row.sparsity) == ("dense", False, 0)


def test_a_convolution_is_read_along_its_input_channels_and_a_stack_run_by_run():
    model = nn.Conv2d(4, 2, 3, bias=False)
    with torch.no_grad():
        model.weight.fill_(1)[:, ::2] = 0
    assert pruners.verify(model).pattern[0] == "1:2"
    with torch.no_grad():
        model.weight.fill_(1)[..., ::2] = 0
    assert pruners.verify(model).pattern[0] == "unstructured"
    stack = MLP([8, 8, 4], generators([0, 1]))
    pruners.attach(stack, pruners.unstructured(pruners.magnitude(stack), 0.5))
    assert pruners.verify(stack).sparsity.iloc[-1] == 0.5


def test_a_pattern_with_some_more_zeros_is_still_the_pattern():
    torch.manual_seed(0)
    model = nn.Linear(64, 64)
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model)))
    pruners.detach(model)
    with torch.no_grad():
        kept = model.weight.nonzero()
        model.weight[tuple(kept[torch.randperm(len(kept))[: len(kept) // 10]].T)] = 0
    assert pruners.verify(model).pattern[0] == "2:4"


@pytest.mark.parametrize(("mask", "said"), [([1, 0, 1, 1], "free"), ([1, 0, 0, 1], "held")])
def test_zeros_are_held_only_if_the_mask_has_all_of_them(mask, said):
    model = nn.Linear(4, 1, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 0, 0, 2]]))
    pruners.attach(model, {"weight": torch.tensor([mask]).bool()})
    assert pruners.verify(model)["mask"][0] == said


def test_a_stack_is_not_asked_whether_its_patterns_hold_both_ways():
    stack = MLP([8, 8], generators([0, 1]))
    (layer,) = pruners.prunable(stack)
    masks = [pruners.transposable({"w": run})["w"] for run in layer.weight.abs()]
    pruners.attach(stack, {layer.name: torch.stack(masks)})
    row = pruners.verify(stack).iloc[0]
    assert (row.pattern, bool(row.both_ways)) == ("2:4", False)


class Own(nn.Module):
    """A layer that is known, and a matrix of the model's own."""

    def __init__(self):
        super().__init__()
        self.own, self.fc = nn.Parameter(torch.ones(64, 64)), nn.Linear(64, 16)

    def forward(self, inputs):
        return self.fc(inputs @ self.own)


@pytest.mark.parametrize("table", [pruners.report, pruners.verify])
def test_what_cannot_be_pruned_has_a_row_and_is_not_in_the_total(table):
    model = Own()
    pruners.attach(model, pruners.two_four(model))
    found = table(model).set_index("layer")
    assert found.weights.to_dict() == {"fc.weight": 1024, "not in the total: own": 4096, "total": 1024}
    assert found.kept.to_list() == [512, 4096, 512]
    assert list(table(model, "fc").layer) == ["fc.weight", "total"]
    assert list(pruners.empty_layers(model, 1.0).layer) == ["fc.weight"]
    lazy = table(nn.Sequential(nn.Linear(4, 4), nn.LazyLinear(2))).set_index("layer")
    assert lazy.weights.to_dict() == {"0.weight": 16, "not in the total: 1.weight": 0, "total": 16}


@pytest.mark.parametrize(("full", "said"), [(6, "2:4"), (5, "unstructured")])
def test_a_pattern_explains_zeros_where_it_would_keep_at_most_a_quarter_more(full: int, said: str):
    model = nn.Linear(40, 1, bias=False)
    groups = [[1.0, 1, 0, 0]] * full + [[1.0, 0, 0, 0]] * (10 - full)  # 16 of 40 are kept, or 15; the pattern keeps 20
    model.weight.data = torch.tensor(groups).reshape(1, 40)
    assert pruners.verify(model).pattern[0] == said
