"""What cannot be pruned, scored, scheduled or permuted is refused in one line, and a model is left as it was."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant
from lib.models.mlp import MLP, generators
from lib.pruners import blocks, gates, groups, sizes
from lib.pruners.permutation.network import permute
from lib.pruners.permutation.search import efficacy, greedy

INPUTS = torch.randn(3, 16, generator=torch.Generator().manual_seed(0))
SCORES = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))


def loss(model: nn.Module) -> torch.Tensor:
    return model(INPUTS).square().mean()


def hooked(place: int = 2) -> nn.Module:
    """With a weight that is computed before each call, as torch did it before parametrizations."""
    model = net()
    nn.utils.spectral_norm(model[place])
    return model


def made_without_gradients() -> nn.Module:
    with torch.inference_mode():
        return net()


def normed() -> nn.Module:
    """With torch's old norm of a weight, which a hook computes."""
    model = net()
    nn.utils.weight_norm(model[0])
    return model


def masked_by_torch() -> nn.Module:
    model = net()
    nn.utils.prune.l1_unstructured(model[0], "weight", 0.5)
    return model


def tied_to_a_normed_table() -> nn.Module:
    """A head that shares the table of a look-up, which shortens what it reads in place."""
    model = nn.Sequential(nn.Embedding(8, 4, max_norm=1.0), nn.Linear(4, 8, bias=False))
    model[1].weight = model[0].weight
    return model


def regrouped(table: torch.Tensor) -> None:
    model = net()
    groups.group(model, {"0.weight": circulant(4)}, releasable=True)
    groups.regroup(model, {"0.weight": table})


class After(nn.Module):
    """Two layers, and something done with what they give."""

    def __init__(self, last):
        super().__init__()
        self.layers, self.last = net(), last

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.layers(x))


def changed(layer: int, name: str, value: float) -> nn.Module:
    model = net()
    with torch.no_grad():
        getattr(model[layer], name).view(-1)[0] = value
    return model


def search(model: nn.Module, inputs: object = INPUTS) -> None:
    permute(model, inputs, search=greedy)


MASK = {"0.weight": torch.ones(16, 16, dtype=torch.bool)}
META, NOTHING = net().to("meta"), MASK["0.weight"].to("meta")
BLOCKS = {"0.weight": circulant(4)}

REFUSED = {
    # masks
    "a mask on a weight with a hook": (lambda: pruners.attach(hooked(0), MASK), r"0\.weight': it is no parameter"),
    "a mask that is a list": (lambda: pruners.attach(net(), {"0.weight": [True]}), r"is list, expected torch.bool"),
    "a mask without values": (lambda: pruners.attach(net(), {"0.weight": NOTHING}), "'0.weight' is on the meta device"),
    "a mask on weights made without gradients": (
        lambda: pruners.attach(made_without_gradients(), MASK),
        r"0\.weight was made under torch.inference_mode, .*: make it outside",
    ),
    "a mask that they learn": (lambda: pruners.learn(made_without_gradients(), pruners.n_of_m), "torch.inference_mode"),
    "a verification of nothing": (lambda: pruners.verify(META), r"0\.weight is on the meta device"),
    "a report of nothing": (lambda: pruners.report(META), r"0\.weight is on the meta device, where it has no values"),
    "the sparsity of nothing": (lambda: pruners.sparsity(META), "on the meta device"),
    "a sparse copy of nothing": (lambda: pruners.sparse(META), "on the meta device"),
    "a sparse copy in half precision": (lambda: pruners.sparse(net().half()), r"is \[16, 16\] of torch.float16$"),
    "more than all of a layer": (lambda: pruners.empty_layers(net(), share=5), r"^share=5 is not in \[0, 1\]$"),
    "a layer in place of its type": (
        lambda: pruners.kinds.register(nn.Linear(2, 2), {"weight": "oi"}),
        r"expected a type of layers, or its name",
    ),
    "a type without weights": (
        lambda: pruners.kinds.register(nn.Bilinear, {}),
        r"Bilinear\): kind=\{\}: expected a Kind, or \{attribute: letters\}$",
    ),
    "bits that are none": (lambda: sizes.sizes(net(), (16,), value_bits=-4), "value_bits=-4"),
    "a batch of nothing": (lambda: sizes.operations_per_byte(net(), (16,), batch=0), "batch=0"),
    "an order that is none": (
        lambda: efficacy(torch.ones(4, 8), torch.zeros(8, dtype=torch.long)),
        "^order: expected each of the weight's 8 columns once$",
    ),
    "groups ranked within rows": (
        lambda: groups.whole_groups({"w": torch.ones(4, 4)}, 0.5, scope="row"),
        "^scope='row': a group lies in several rows; known are layer, network, global$",
    ),
    "more of a layer than words say": (lambda: pruners.empty_layers(net(), "a"), r"^share='a' is not in \[0, 1\]$"),
    "a mask on a table that look-ups change": (
        lambda: pruners.attach(tied_to_a_normed_table(), {"1.weight": torch.ones(8, 4) > 0}),
        r"1\.weight: it is shared with 0, an embedding whose max_norm changes it in place",
    ),
    "no model to detach": (lambda: pruners.detach({}), "^expected a model, a torch.nn.Module, found a dict$"),
    "a class to detach": (lambda: pruners.detach(nn.Linear), "^Linear is a class: expected a model of it"),
    # masks that follow
    "a decay in words": (lambda: pruners.learn(net(), pruners.n_of_m, decay="a"), r"^decay='a': expected 0"),
    "a pattern that gives scores": (
        lambda: pruners.learn(net(), lambda scores: scores),
        r"^0\.weight: the pattern gives \[16, 16\] of torch\.float32: expected .* a bool mask like it",
    ),
    "a pattern that gives nothing": (lambda: pruners.learn(net(), lambda scores: {}), "pattern gives None: expected"),
    "a pattern that wants more": (
        lambda: pruners.learn(net(), pruners.unstructured),
        r"^the pattern unstructured: missing a required argument: 'sparsity'; functools\.partial gives it",
    ),
    "a pattern of models": (
        lambda: pruners.Pruner(pruners.magnitude, pruners.two_four, pruners.Once(0.5)),
        r"^two_four is a score and a pattern in one, a function of a model: give pruners\.n_of_m$",
    ),
    # one shot
    "a share for a pattern": (lambda: pruners.Wanda(0.5), r"^pattern=0\.5: expected a function of scores"),
    "a class of solvers": (
        lambda: pruners.one_shot(net(), [INPUTS], pruners.Wanda),
        r"expected an object such as pruners\.Wanda\(pattern\)$",
    ),
    "a pattern of models at once": (lambda: pruners.Wanda(pruners.two_four), "^two_four is a score and a pattern"),
    "a pattern at once that wants more": (
        lambda: pruners.SparseGPT(pruners.unstructured, width=4),
        r"^the pattern unstructured: missing a required argument: 'sparsity'",
    ),
    "no batch": (lambda: pruners.one_shot(net(), [None], pruners.Wanda(pruners.n_of_m)), "^a batch is None: expected"),
    "a solver that gives a weight alone": (
        lambda: pruners.one_shot(net(), [INPUTS], lambda weight, moments: weight),
        r"^0\.weight: the solver gives tensor\(.*: expected \(weight, bool mask\), each \[16, 16\]$",
    ),
    # scores
    "a loss that is a number": (lambda: pruners.snip(net(), lambda model: 3.0), "one real number, this is 3.0"),
    "a loss that is nothing": (lambda: pruners.grasp(net(), lambda model: None), "one real number, this is None"),
    "no loss": (lambda: pruners.snip(net(), None), "loss=None: expected a function of the model, or several"),
    "a computed loss": (lambda: pruners.snip(net(), loss(net())), r"^loss=tensor\(.*: expected a function"),
    "losses of which one is none": (lambda: pruners.grasp(net(), [loss, 3]), "loss=3: expected a function"),
    "a complex loss": (lambda: pruners.snip(net(), lambda model: loss(model) * 1j), "a tensor with one real number"),
    "a constant loss": (lambda: pruners.snip(net(), lambda model: torch.ones(())), r"does not depend on 0\.weight"),
    "a loss that is NaN": (lambda: pruners.snip(net(), lambda model: loss(model) * math.nan), "^the loss is nan"),
    "a bent loss that is NaN": (lambda: pruners.grasp(net(), lambda model: loss(model) * math.nan), "^the loss is nan"),
    "an endless slope": (
        lambda: pruners.snip(net(), lambda model: (loss(model) * 0).sqrt()),
        r"the derivative of the loss by 0\.weight is not finite",
    ),
    "weights without gradients": (lambda: pruners.snip(made_without_gradients(), loss), "under torch.inference_mode"),
    "a score of a hook": (
        lambda: pruners.snip(hooked(), loss, "2"),
        r"2\.weight cannot be pruned: it is no parameter: a hook computes it",
    ),
    "half a seed": (lambda: pruners.random(net(), 2.5), "seed=2.5: expected a whole number"),
    "a seed in words": (lambda: pruners.random(net(), "x"), "seed='x': expected a whole number"),
    "a seed in a word's digits": (lambda: pruners.random(nn.Linear(4, 4), "7"), "seed='7': expected a whole number"),
    "half a seed of a run": (lambda: pruners.random(nn.Linear(4, 4), [1.9]), r"seed=\[1.9\]: expected a whole number"),
    "a seed that is too long": (
        lambda: pruners.random(nn.Linear(4, 4), 2**64),
        r"^seed=18446744073709551616: expected a whole number from -2\^63 to 2\^64 - 1$",
    ),
    # patterns
    "scores without values": (lambda: pruners.n_of_m({"w": NOTHING}), r"\[16, 16\] of torch.bool on the meta device"),
    "complex scores": (lambda: pruners.unstructured({"w": SCORES * 1j}, 0.5), "complex64"),
    "complex scores, 2:4": (lambda: pruners.n_of_m({"w": SCORES * 1j}), "complex64"),
    "complex scores, both ways": (lambda: pruners.transposable({"w": SCORES * 1j}), "complex64"),
    "scores in words": (lambda: pruners.unstructured({"w": "abc"}, 0.5), "w: scores must be a tensor .* are 'abc'"),
    "scores of no weight": (lambda: pruners.unstructured({"w": SCORES[:0]}, 0.5), r"these are \[0, 4\]"),
    "no sparsity": (lambda: pruners.unstructured({"w": SCORES}, None), r"sparsity=None is no number in \[0, 1\)"),
    "a sparsity in words": (lambda: pruners.unstructured({"w": SCORES}, "half"), "sparsity='half' is no number"),
    "a sparsity in a tensor": (lambda: pruners.unstructured({"w": SCORES}, torch.tensor(0.5)), "is no number in"),
    "a list of words": (lambda: pruners.unstructured({"w": SCORES}, ["a"]), r"sparsity=\['a'\] is no number in"),
    "no floor": (lambda: pruners.unstructured({"w": SCORES}, 0.5, floor=None), r"floor=None is not in \[0, 1\]"),
    "a number within": (lambda: pruners.unstructured({"w": SCORES}, 0.5, within=3), "within=3: expected {parameter"),
    "2.5 of 4": (lambda: pruners.n_of_m({"w": SCORES}, 2.5, 4), r"n_of_m\(2.5, 4\): .* both whole numbers"),
    "2.5 of 4 both ways": (lambda: pruners.transposable({"w": SCORES}, 2.5, 4), "both whole numbers"),
    # groups
    "whole groups of nothing": (lambda: groups.whole_groups(None, 0.5), "scores are None: expected {parameter"),
    "whole groups within a number": (lambda: groups.whole_groups({"w": SCORES}, 0.5, within=3), "within=3: expected"),
    "whole groups of a number": (lambda: groups.whole_groups({"w": SCORES}, 0.5, 3), "groups are 3: expected"),
    "groups of a number": (lambda: groups.group(net(), 3), "groups are 3: expected {parameter name: table}"),
    "a table that is no square": (
        lambda: groups.group(net(), {"0.weight": circulant(3)[:2]}),
        r"0\.weight: \[2, 3\] of torch.int64 is no table of int64 \[B, B\]",
    ),
    "a table of floats": (lambda: groups.group(net(), {"0.weight": SCORES}), r"\[4, 4\] of torch.float32 is no table"),
    "another table of floats": (lambda: regrouped(SCORES), r"\[4, 4\] of torch.float32 is no table"),
    "a table below 0": (lambda: groups.whole_groups({"w": SCORES}, 0.5, {"w": -circulant(4)}), "from 0 on"),
    "blocks of words": (lambda: blocks.single("x"), "block='x': expected a whole number, at least 1"),
    "blocks in words": (lambda: blocks.within("x", 2), "block='x': expected a whole number, at least 1"),
    "blocks under an old norm": (lambda: groups.group(normed(), BLOCKS), r"0\.weight has groups, a mask or another"),
    "blocks under torch's mask": (lambda: groups.group(masked_by_torch(), BLOCKS), r"0\.weight has groups, a mask or"),
    "blocks made without gradients": (lambda: groups.group(made_without_gradients(), BLOCKS), "torch.inference_mode"),
    # schedules
    "a final that is NaN": (lambda: pruners.Gradual(math.nan, 1, 1), r"final=nan is not in \[0, 1\)"),
    "an initial that is NaN": (lambda: pruners.Gradual(0.5, 1, 1, 0, math.nan), r"initial=nan is not in \[0, 1\)"),
    "every NaN steps": (lambda: pruners.Gradual(0.5, math.nan, 1), "every=nan: expected a whole number, at least 1"),
    "every inf steps": (lambda: pruners.Gradual(0.5, math.inf, 1), "every=inf: expected a whole number, at least 1"),
    "NaN times": (lambda: pruners.Gradual(0.5, 1, math.nan), "times=nan: expected a whole number, at least 1"),
    "a start that is NaN": (lambda: pruners.Gradual(0.5, 1, 1, math.nan), "start=nan: .* at least 0"),
    "once at NaN": (lambda: pruners.Once(0.5, math.nan), "at=nan: expected a whole number, at least 0"),
    "a sparsity that is text": (lambda: pruners.Once("x"), "sparsity='x' is not in"),
    "NaN rounds": (lambda: pruners.Iterative(0.5, math.nan), "rounds=nan: expected a whole number, at least 1"),
    "rewards every NaN steps": (lambda: pruners.RewardAware(every=math.nan), "every=nan: expected a whole number"),
    "rewards from NaN on": (lambda: pruners.RewardAware(start=math.nan), "start=nan: expected a whole number"),
    "an increase in words": (lambda: pruners.RewardAware(increase="0.1"), r"^increase='0.1' is not in \(0, 1\)"),
    "a first reward in words": (lambda: pruners.RewardAware(initial_reward="0"), "^initial_reward is not a number"),
    "no step": (lambda: pruners.Once(0.5).target(None), "^step=None: expected how many steps training has had so far$"),
    "a step in words": (lambda: pruners.Gradual(0.5, 1, 1).target("a"), "^step='a': expected how many steps"),
    "a step before the first": (lambda: pruners.Iterative(0.9, 4).target(-3), "^step=-3: expected how many steps"),
    "a step that is NaN": (lambda: pruners.Once(0.5).target(math.nan), "^step=nan: expected how many steps"),
    "no round": (lambda: pruners.Iterative(0.5, 2).target(None), "^step=None: expected how many steps"),
    "a state of nothing": (
        lambda: pruners.Pruner(pruners.magnitude, pruners.n_of_m, pruners.Once(0.5)).load_state_dict({}),
        r"^\{\} is no state of a Pruner: expected what its state_dict\(\) returns$",
    ),
    "a reward in words": (lambda: pruners.RewardAware().target(0, "high"), "needs a reward .*, not 'high'$"),
    # permutations
    "inputs that are NaN": (lambda: search(net(), INPUTS * math.nan), "outputs are not finite on these inputs"),
    "a bias that is NaN": (lambda: search(changed(0, "bias", math.nan)), "outputs are not finite on these inputs"),
    "a weight that is inf": (lambda: search(changed(2, "weight", math.inf)), "outputs are not finite on these inputs"),
    "a random forward": (lambda: search(After(lambda x: F.dropout(x, 0.5))), r"gives other numbers \(by .*\)"),
    "no tensor": (lambda: search(After(lambda x: 3)), "gives no number on these inputs"),
    "no inputs": (lambda: search(net(), ()), r"cannot take these inputs \(TypeError: "),
    "no rows": (lambda: search(net(), INPUTS[:0]), "gives no number on these inputs"),
    "too wide": (lambda: search(net(), torch.ones(3, 17)), r"cannot take these inputs \(RuntimeError: .*3x17"),
    "whole numbers": (lambda: search(net(), INPUTS.long()), "cannot take these inputs"),
    "a list": (lambda: search(net(), [1, 2]), "cannot take these inputs"),
    "a search that is none": (lambda: permute(net(), INPUTS, search=5), r"^search=5: expected a function such as"),
    "a search without an order": (
        lambda: permute(net(), INPUTS, search=lambda matrix, movable: torch.zeros(16)),
        r"^search gives tensor\(.*: expected each of 0 to 15 once, a tensor$",
    ),
    "a network without values": (lambda: search(META), "on the meta device"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_pruned_is_refused_in_one_line(case: str):
    call, line = REFUSED[case]
    with pytest.raises(BadInput, match=line) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_mask_that_is_refused_leaves_no_layer_masked():
    model = hooked()
    masks = {f"{place}.weight": MASK["0.weight"] for place in (0, 2)}
    with pytest.raises(BadInput, match=r"mask '2\.weight': it is no parameter"):
        pruners.attach(model, masks)
    assert not nn.utils.parametrize.is_parametrized(model[0])


@pytest.mark.parametrize("score", [pruners.snip, pruners.grasp])
def test_a_frozen_layer_is_scored_as_any_other_and_stays_frozen(score):
    expected, model = score(net(), loss), net()
    model[2].weight.requires_grad_(False)
    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode():
            found = score(model, loss)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert [parameter.requires_grad for parameter in model.parameters()] == [True, True, False, True, True, True]


def test_a_network_that_answers_yes_or_no_is_permuted():
    permuted, report = permute(After(lambda x: x > 0), INPUTS, search=greedy)
    assert report.permuted.any()
    assert permuted(INPUTS).dtype == torch.bool


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda model: pruners.attach(model, [torch.ones(4, 4) > 0]), "masks are a list"),
        (lambda model: pruners.unstructured([torch.ones(4, 4)], 0.5), "scores are a list"),
        (lambda model: pruners.unstructured({"w": torch.ones(4, 4)}, torch.ones(3)), r"sparsity=.*\[3\]"),
        (lambda model: pruners.n_of_m({"w": torch.ones(4, 4)}, torch.ones(64, 64), 4), r"n_of_m\(.*\[64, 64\]"),
        (lambda model: groups.group(model, {"weight": 4}), "weight: 4 is no table"),
        (
            lambda model: gates.penalty(gates.gated(nn.Sequential(model, nn.Linear(4, 2))), 0.1),
            r"lambdas=0\.1: expected",
        ),
    ],
)
def test_what_is_of_the_wrong_kind_is_named_in_one_line(call, line):
    with pytest.raises(BadInput, match=line) as error:
        call(nn.Linear(4, 4))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 160


# Groups


@pytest.mark.parametrize(
    ("second", "run", "line"),
    [
        (blocks.single(2), None, r"2\.weight has no groups in blocks of 2 with room for 4"),
        (blocks.single(4), 7, r"run=7: 0\.weight is of one network, no stack of runs"),
        (blocks.single(4), None, r"2\.weight holds numbers that are not finite"),
    ],
)
def test_where_a_change_of_groups_is_refused_nothing_is_changed(second, run, line):
    model = net()
    groups.group(model, {"0.weight": circulant(4), "2.weight": circulant(4)}, releasable=True)
    if "finite" in line:
        with torch.no_grad():
            model[2].parametrizations.weight.original[0, 0, 0] = float("nan")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(BadInput, match=line):
        groups.regroup(model, {"0.weight": blocks.single(4), "2.weight": second}, run)
    for name, value in model.state_dict().items():
        assert torch.equal(value.nan_to_num(), before[name].nan_to_num()), name


def test_a_run_that_the_stack_does_not_have_is_refused_and_one_that_diverged_stops_no_other():
    name, model = "layers.1.weight", MLP((4, 8, 8, 2), generators([0, 1]))
    groups.group(model, {name: circulant(4)}, releasable=True)
    with pytest.raises(BadInput, match=r"run=2: layers\.1\.weight is of 2 runs, which are counted from 0"):
        groups.regroup(model, {name: blocks.single(4)}, 2)
    with pytest.raises(BadInput, match="run=-1: expected a whole number, at least 0"):
        groups.regroup(model, {name: blocks.single(4)}, -1)
    with torch.no_grad():
        model.layers[1].parametrizations.weight.original[1] = float("nan")
    groups.regroup(model, {name: blocks.single(4)}, 0)
    assert groups.tables(model)[name].tolist() == [blocks.single(4).tolist(), circulant(4).tolist()]


def test_tables_that_leave_a_number_out_are_refused():
    gap, line = torch.tensor([[0, 5], [5, 0]]), "the table leaves out some of 0 to 5, expected each at a place"
    with pytest.raises(BadInput, match=f"weight: {line}"):
        groups.group(nn.Linear(4, 4), {"weight": gap})
    with pytest.raises(BadInput, match=line):
        groups.whole_groups({"weight": torch.rand(4, 4)}, 0.5, {"weight": gap})


@pytest.mark.parametrize("table", [blocks.single(1), blocks.single(2), blocks.within(4, 2)])
def test_groups_that_lie_in_one_half_of_a_block_cannot_be_cut_in_two(table):
    with pytest.raises(BadInput, match=f"a group of blocks of {len(table)} lies in one half alone"):
        blocks.halved(table)
