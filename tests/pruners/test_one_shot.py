"""Laws of `lib.pruners.one_shot`: Wanda written out, SparseGPT against least squares and against explicit inverses."""

from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import BadInput, type_of
from lib.models.mlp import StackedLinear
from lib.models.resnet import small_resnet
from lib.pruners import calibration
from lib.pruners.one_shot import columns_of, inverse_factor, second_moments

HALF = partial(pruners.unstructured, sparsity=0.5, scope="row")
TWO_FOUR = partial(pruners.n_of_m, n=2, m=4)
FOUR_EIGHT = partial(pruners.n_of_m, n=4, m=8)


def gaussian(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mixed(rows: int, columns: int) -> Tensor:
    """Inputs [rows, columns] whose columns depend on each other, as those of a trained network do."""
    return gaussian(rows, columns) @ (torch.eye(columns).double() + 0.3 * gaussian(columns, columns, seed=1))


def moments(inputs: Tensor) -> Tensor:
    return inputs.T @ inputs / len(inputs)


def given(mask: Tensor) -> pruners.SparseGPT:
    """SparseGPT with a mask that somebody else has chosen."""
    return pruners.SparseGPT(lambda scores: {"weight": mask}, width=mask.shape[1], dampening=0)


def test_wanda_as_written_out():
    """Two outputs, four inputs of norms 1, 2, 3 and 10: weight times norm decides, within each row."""
    weight = torch.tensor([[4.0, -3.0, 1.0, 0.1], [1.0, 1.0, -1.0, 1.0]])
    norms = torch.tensor([1.0, 2.0, 3.0, 10.0])
    # row 0: 4, 6, 3, 1 keeps the first two; row 1: 1, 2, 3, 10 keeps the last two; magnitude would keep 0 and 1 in both
    expected = [[True, True, False, False], [False, False, True, True]]
    for pattern in (HALF, TWO_FOUR):
        pruned, mask = pruners.Wanda(pattern)(weight, torch.diag(norms**2).double())
        assert mask.tolist() == expected
        assert torch.equal(pruned, weight * mask)  # what stays is not moved
    assert TWO_FOUR({"w": weight.abs()})["w"].tolist() == [[True, True, False, False], [True, True, False, False]]


def test_wanda_scores_of_a_network_are_weight_times_norm_of_what_enters():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 4))
    batches = gaussian(40, 8).float().split(16)  # the last one is smaller
    scores = pruners.wanda(model, batches)
    first = torch.cat(batches)
    for name, entering in (("0.weight", first), ("2.weight", model[0](first).relu().detach())):
        weight = model.get_parameter(name).detach()
        expected = torch.stack(
            [weight[:, j].abs() * entering[:, j].norm() / 40**0.5 for j in range(weight.shape[1])], 1
        )
        torch.testing.assert_close(scores[name], expected)


def test_rows_of_unstructured_are_ranked_each_by_itself():
    scores = {"w": torch.tensor([[1.0, 2.0, 3.0, 4.0], [10.0, 40.0, 30.0, 20.0]]), "v": torch.ones(2, 2, 1, 2)}
    masks = pruners.unstructured(scores, 0.5, scope="row")
    assert masks["w"].tolist() == [[False, False, True, True], [False, True, True, False]]
    assert masks["v"].sum((1, 2, 3)).tolist() == [2, 2]
    stack = torch.stack([scores["w"], -scores["w"]])
    two = pruners.unstructured({"w": stack}, [0.5, 0.25], scope="row")["w"]
    assert torch.equal(two[0], masks["w"])
    assert two[1].sum(1).tolist() == [3, 3]
    within = {"w": torch.tensor([[True, True, True, False], [True, True, True, True]])}
    again = pruners.unstructured({"w": scores["w"]}, 0.5, scope="row", within=within)["w"]
    assert again.tolist() == [[False, True, True, False], [False, True, True, False]]


def test_sparse_gpt_equals_least_squares_when_the_columns_that_go_come_first():
    """Then every column that stays may still move, so nothing can do better: the paper's exact reconstruction."""
    inputs, weight = mixed(60, 10), gaussian(3, 10, seed=2)
    mask = torch.ones(3, 10, dtype=torch.bool)
    for row, gone in enumerate((1, 4, 6)):
        mask[row, :gone] = False
    found, kept = given(mask)(weight, moments(inputs))
    assert torch.equal(kept, mask)
    for row in range(3):
        left = inputs[:, mask[row]]
        best = torch.linalg.lstsq(left, inputs @ weight[row]).solution
        torch.testing.assert_close(found[row, mask[row]], best)
        assert not found[row, ~mask[row]].any()


def by_explicit_inverses(weight: Tensor, second: Tensor, keep: int, group: int) -> tuple[Tensor, Tensor]:
    """SparseGPT for `keep` of every `group`, one row at a time, a fresh inverse at each column: no factor, no block."""
    weight, columns = weight.clone(), weight.shape[1]
    mask = torch.ones_like(weight, dtype=torch.bool)
    inverses = [torch.linalg.inv(second[j:, j:]) for j in range(columns)]
    for row in range(len(weight)):
        for j in range(columns):
            if j % group == 0:
                price = [float(weight[row, i] ** 2 / inverses[i][0, 0]) for i in range(j, j + group)]
                for i in sorted(range(group), key=price.__getitem__)[: group - keep]:
                    mask[row, j + i] = False
            if not mask[row, j]:
                weight[row, j:] -= weight[row, j] / inverses[j][0, 0] * inverses[j][0]
    return weight * mask, mask


@pytest.mark.parametrize(("n", "m", "block"), [(2, 4, 4), (2, 4, 8), (2, 4, 128), (4, 8, 8), (1, 4, 10), (1, 2, 128)])
def test_sparse_gpt_equals_the_same_with_explicit_inverses_whatever_the_block(n, m, block):
    weight, second = gaussian(5, 32, seed=3), moments(mixed(200, 32))
    expected, kept = by_explicit_inverses(weight, second, n, m)
    solver = pruners.SparseGPT(partial(pruners.n_of_m, n=n, m=m), width=m, block=block, dampening=0)
    found, mask = solver(weight, second)
    assert torch.equal(mask, kept)
    torch.testing.assert_close(found, expected)


def test_sparse_gpt_loses_less_of_the_outputs_than_wanda_and_wanda_less_than_magnitude():
    scales = torch.linspace(0.1, 3, 64)[torch.randperm(64, generator=torch.Generator().manual_seed(0))]
    inputs = mixed(400, 64) * scales
    weight, second = gaussian(32, 64, seed=4), moments(inputs)

    def lost(found: Tensor) -> float:
        return float(((found - weight) @ inputs.T).square().mean())

    for pattern, width in ((TWO_FOUR, 4), (FOUR_EIGHT, 8), (HALF, 16)):
        blind = lost(weight * pattern({"w": weight.abs()})["w"])
        seen = lost(pruners.Wanda(pattern)(weight, second)[0])
        moved = lost(pruners.SparseGPT(pattern, width)(weight, second)[0])
        assert moved < 0.95 * seen
        assert seen < 0.95 * blind


def test_any_pattern_serves_sparse_gpt_transposable_too():
    weight, second = gaussian(16, 32, seed=5), moments(mixed(200, 32))
    _, mask = pruners.SparseGPT(partial(pruners.transposable, n=2, m=4), width=4)(weight, second)
    assert (mask.reshape(-1, 4).sum(1) == 2).all()
    assert (mask.T.reshape(-1, 4).sum(1) == 2).all()
    _, mask = pruners.SparseGPT(partial(pruners.unstructured, sparsity=0.5, scope="layer"), width=16)(weight, second)
    assert mask.reshape(16, 2, 16).sum((0, 2)).tolist() == [128, 128]  # half of each block of columns, rows differ


def test_an_input_that_is_always_zero_loses_its_weights_and_harms_nothing():
    inputs = mixed(100, 16)
    inputs[:, 3] = 0
    found, _ = pruners.SparseGPT(TWO_FOUR, 4)(gaussian(4, 16), moments(inputs))
    assert not found[:, 3].any()
    assert torch.isfinite(found).all()
    with pytest.raises(BadInput, match="a larger dampening"):
        inverse_factor(torch.ones(3, 3).double())


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(8, 12, 3, padding=1, bias=False),
        nn.Conv2d(8, 12, (3, 2), stride=2, padding=(1, 0), dilation=(1, 2), groups=4, bias=False),
        nn.Conv2d(8, 4, 3, padding="same", padding_mode="circular", bias=False),
        nn.Conv1d(8, 6, 3, stride=2, dilation=2, groups=2, bias=False),
        nn.Conv3d(8, 4, (1, 2, 3), padding=1, bias=False),
        nn.ConvTranspose2d(8, 6, 1, groups=2, bias=False),
        nn.Linear(8, 5, bias=False),
    ],
    ids=str,
)
def test_the_columns_of_a_layer_times_its_matrix_are_its_outputs(layer):
    """The second moments belong to the weight as its matrix lies, whatever the convolution."""
    layer = layer.double()
    inputs = gaussian(3, 7, 8) if isinstance(layer, nn.Linear) else gaussian(3, 8, *(6, 7, 5)[: layer.weight.dim() - 2])
    (prunable,) = pruners.prunable(layer)
    columns = columns_of(prunable, inputs)
    parts = prunable.matrix().chunk(len(columns))
    found = torch.cat([part @ own for part, own in zip(parts, columns, strict=True)])
    outputs = layer(inputs).detach()
    outputs = outputs.flatten(0, 1).T if isinstance(layer, nn.Linear) else outputs.movedim(1, 0).flatten(1)
    torch.testing.assert_close(found, outputs)


def test_what_cannot_be_watched_is_left_out_by_name_and_the_rest_is_pruned():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.fc = nn.LSTM(16, 16), nn.Linear(16, 16)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.fc(self.lstm(inputs)[0])

    with pytest.warns(pruners.LeftOut, match=r"lstm\.weight_\w+ is left out: it is inside an LSTM"):
        pruned = pruners.one_shot(Recurrent(), [torch.randn(5, 2, 16)], pruners.Wanda(TWO_FOUR))
    assert list(pruners.attached(pruned)) == ["fc.weight"]


def network() -> tuple[nn.Module, list[Tensor]]:
    torch.manual_seed(0)
    return small_resnet(), list(torch.randn(48, 1, 8, 8).split(16))


@pytest.mark.parametrize(
    "solver",
    [pruners.Wanda(TWO_FOUR), pruners.SparseGPT(FOUR_EIGHT, 8), pruners.Wanda(HALF)],
    ids=["wanda", "sparsegpt", "unstructured"],
)
def test_masks_of_a_network_are_the_same_in_ten_runs_and_the_model_stays_as_it_is(solver):
    model, batches = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    runs = [pruners.one_shot(model, iter(batches), solver) for _ in range(10)]
    first = pruners.attached(runs[0])
    assert sorted(first) == sorted(pruners.eligible(model))
    assert all(float(mask.float().mean()) == 0.5 for mask in first.values())
    for other in runs[1:]:
        assert all(torch.equal(mask, first[name]) for name, mask in pruners.attached(other).items())
        assert torch.equal(other(batches[0]), runs[0](batches[0]))
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
    assert model.training
    assert not runs[0].training


def test_each_layer_is_solved_on_what_its_pruned_predecessors_give_it():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
    inputs = gaussian(64, 16).float()
    asked = []

    def solver(weight: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        asked.append(second)
        return pruners.Wanda(TWO_FOUR)(weight, second)

    pruned = pruners.one_shot(model, [inputs], solver)
    entering = pruned[:2](inputs).detach().double()
    torch.testing.assert_close(asked[1], entering.T @ entering / 64)
    dense = model[:2](inputs).detach().double()
    assert not torch.allclose(asked[1], dense.T @ dense / 64, rtol=0.01)


class Wandering(nn.Module):
    """Calls its first layer as often as the input says, and counts how often it comes to the end."""

    def __init__(self):
        super().__init__()
        self.often, self.last, self.ends = nn.Linear(16, 16), nn.Linear(16, 16), 0

    def forward(self, inputs: Tensor, times: int) -> Tensor:
        for _ in range(times):
            inputs = self.often(inputs)
        outputs = self.last(inputs)
        self.ends += 1
        return outputs


def test_a_forward_pass_ends_at_the_last_call_of_the_layer_that_is_looked_at():
    torch.manual_seed(0)
    model, inputs, asked = Wandering(), torch.randn(8, 16), []

    def solver(weight: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        asked.append(second)
        return pruners.Wanda(TWO_FOUR)(weight, second)

    pruned = pruners.one_shot(model, [(inputs, 2), (inputs, 0), (inputs, 1)], solver)
    assert pruned.ends == 3  # each batch was followed to the end once, to count the calls, and never again
    entering = torch.cat([inputs, model.often(inputs), inputs]).detach().double()
    torch.testing.assert_close(asked[0], entering.T @ entering / 24)  # both calls of the first batch, one of the last
    entering = torch.cat([pruned.often(pruned.often(inputs)), inputs, pruned.often(inputs)]).detach().double()
    torch.testing.assert_close(asked[1], entering.T @ entering / 24)


def test_batches_may_be_tensors_tuples_or_dictionaries():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(16, 16)

        def forward(self, one: Tensor, other: Tensor) -> Tensor:
            return self.fc(one + other)

    torch.manual_seed(0)
    model, one, other = Two(), torch.randn(8, 16), torch.randn(8, 16)
    found = [pruners.wanda(model, [batch])["fc.weight"] for batch in ((one, other), {"other": other, "one": one})]
    assert torch.equal(*found)


def test_what_cannot_be_pruned_in_one_shot_is_refused_in_a_line():
    model, batches = network()
    solver = pruners.Wanda(TWO_FOUR)
    with pytest.raises(BadInput, match="no 'nothing'"):
        pruners.one_shot(model, batches, solver, select=["nothing"])
    with pytest.raises(BadInput, match="no batches"):
        pruners.one_shot(model, [], solver)
    with pytest.raises(BadInput, match="not finite"):
        pruners.one_shot(model, [torch.full((1, 1, 8, 8), torch.inf)], solver)
    with pytest.raises(BadInput, match="has a mask already"):
        pruners.one_shot(pruners.one_shot(model, batches, solver), batches, solver)
    for width in (0, 4.5):
        with pytest.raises(BadInput, match=f"width={width}: expected a whole number, at least 1"):
            pruners.SparseGPT(TWO_FOUR, width)
    with pytest.raises(BadInput, match=r"^used\.weight: weight: inner dimension 18 is not a multiple of 4"):
        pruners.one_shot(Half(18), [torch.randn(4, 18)], solver, select=["used.weight"])
    with pytest.raises(BadInput, match=r"^aside\.weight: never reached"):
        pruners.one_shot(Half(), [torch.randn(4, 16)], solver, select=["used.weight", "aside.weight"])
    with pytest.raises(BadInput, match=r"^0\.weight is computed by a norm of weights"):
        pruners.one_shot(
            nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(16, 16))), [torch.randn(4, 16)], solver
        )
    stack = nn.Sequential(StackedLinear(16, 16, [torch.Generator()]))
    with pytest.warns(pruners.LeftOut), pytest.raises(BadInput, match="no layer is left whose inputs can be seen"):
        pruners.wanda(stack, [torch.randn(1, 4, 16)])


class Half(nn.Module):
    """A network that never uses one of its layers."""

    def __init__(self, width: int = 16):
        super().__init__()
        self.used, self.aside = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.used(inputs)


def test_a_layer_that_no_data_reach_is_left_out_with_a_warning():
    with pytest.warns(pruners.LeftOut, match=r"aside\.weight"):
        model = pruners.one_shot(Half(), [torch.randn(4, 16)], pruners.Wanda(TWO_FOUR))
    assert set(pruners.attached(model)) == {"used.weight"}


def test_a_weight_that_a_function_reads_is_left_out_for_that_reason():
    """Every batch multiplies by the projection of `nn.MultiheadAttention`, and yet its inputs are not seen."""
    model, batches = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), [torch.randn(2, 5, 32)]
    why = r"self_attn\.out_proj\.weight.*: a function reads its weight, as attention does, and never calls it"
    with pytest.warns(pruners.LeftOut, match=why):
        scores = pruners.wanda(model, batches)
    assert set(scores) == {"linear1.weight", "linear2.weight"}
    with pytest.raises(BadInput, match=why):
        pruners.wanda(model, batches, select="self_attn.out_proj.weight")


def test_batches_that_are_none_are_refused_in_a_line():
    model, inputs = nn.Linear(16, 4), torch.randn(8, 16)
    solver, labelled = pruners.Wanda(TWO_FOUR), [(inputs, torch.zeros(8))]
    for score in (pruners.wanda, lambda model, batches: pruners.one_shot(model, batches, solver), calibration.ranges):
        with pytest.raises(BadInput, match="no batches to calibrate on: at least one is needed"):
            score(model, iter([]))
        with pytest.raises(BadInput, match=r"^weight: never reached by the calibration data"):
            score(model, [inputs[:0]])
        for wrong in (None, {"input": inputs}, inputs, "inputs"):
            with pytest.raises(BadInput, match=rf"batches is {type_of(wrong)}: expected batches"):
                score(model, wrong)
        with pytest.raises(BadInput, match=r"Linear cannot be called with this batch \(too many .* drop labels"):
            score(model, labelled)
        with pytest.raises(BadInput, match=r"^Linear cannot compute with this batch: mat1 and mat2 shapes"):
            score(model, [inputs[:, :15]])


def test_an_error_from_within_the_model_is_left_as_it_is():
    class Wrong(nn.Linear):
        def forward(self, inputs: Tensor) -> Tensor:
            return super().forward(inputs + None)

    with pytest.raises(TypeError, match="unsupported operand"):
        pruners.wanda(nn.Sequential(nn.Linear(4, 4), Wrong(4, 4)), [torch.randn(2, 4)])


def test_where_no_layer_fits_one_shot_says_so():
    with pytest.raises(BadInput, match="no layer of Sequential has an inner dimension that fits"):
        pruners.one_shot(nn.Sequential(nn.Linear(7, 13)), [torch.randn(4, 7)], pruners.Wanda(TWO_FOUR))


@pytest.mark.parametrize("dampening", [torch.inf, torch.nan, -1, None, "a little"])
def test_a_dampening_that_is_no_share_is_refused(dampening):
    with pytest.raises(BadInput, match=f"dampening={dampening!r}: expected a share of 0 or more"):
        pruners.SparseGPT(TWO_FOUR, 4, dampening=dampening)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [(nn.Linear(16, 4), (16,)), (nn.ConvTranspose1d(16, 4, 3), (16, 9)), (nn.Conv2d(4, 8, 3), (4, 6, 5))],
)
def test_one_example_without_a_batch_axis_is_a_batch_of_one(layer, shape):
    inputs = gaussian(*shape).float()
    alone, batch = (pruners.wanda(layer, [given])["weight"] for given in (inputs, inputs[None]))
    assert torch.equal(alone, batch)


def test_scores_of_halves_are_products_of_floats():
    """Products of halves would have many ties, which fall to whatever stands first."""
    layer, inputs = nn.Linear(64, 64), gaussian(32, 64).float()
    halves = pruners.wanda(layer.bfloat16(), [inputs.bfloat16()])["weight"]
    assert halves.dtype == torch.float32
    assert len(halves.unique()) > 3000


def test_moments_are_those_of_evaluation_mode():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(16), nn.Dropout(0.5), nn.Linear(16, 16)).train()
    inputs = torch.randn(32, 16)
    with torch.no_grad():
        entering = model.eval()[:3](inputs).double()
    model.train()
    found = second_moments(model, [inputs])["3.weight"][0]
    torch.testing.assert_close(found, entering.T @ entering / 32)
    assert model.training


@pytest.mark.parametrize(("sparsity", "width", "found"), [(0.6, 1, "100.0"), (0.5, 3, "62.5"), (0.5, 1, "0.0")])
def test_a_width_at_which_a_pattern_rounds_to_another_share_is_refused(sparsity, width, found):
    inputs = torch.randn(64, 16, generator=torch.Generator().manual_seed(0)).double()
    pattern = partial(pruners.unstructured, sparsity=sparsity, scope="row")
    line = rf"removes {found}% of the weights and not {100 * sparsity:.1f}%, as it rounds for each {width} columns"
    with pytest.raises(BadInput, match=line):
        pruners.SparseGPT(pattern, width)(torch.ones(4, 16), inputs.T @ inputs)
    _, mask = pruners.SparseGPT(pattern, 16)(torch.ones(4, 16), inputs.T @ inputs)
    assert (~mask).double().mean() == round(16 * sparsity) / 16


@pytest.mark.parametrize(
    ("model", "batch", "line"),
    [
        (nn.Sequential(nn.Embedding(5, 16), nn.Linear(16, 16)), torch.tensor([[7]]), "index out of range"),
        (nn.Sequential(nn.Linear(16, 16), nn.BatchNorm2d(16)), torch.randn(4, 16), "expected 4D input"),
        (nn.Linear(16, 16), np.zeros((4, 16), np.float32), "an array of float32: torch.from_numpy"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused_with_its_reason(model, batch, line):
    with pytest.raises(BadInput, match=line):
        second_moments(model, [batch])
