"""Laws of pruning a stack: each run is scored, ranked, masked and counted as if it were alone."""

import warnings

import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.models.mlp import MLP, generators, plain, take
from lib.models.vae import VAE

RUNS = 4
INPUTS = torch.randn(RUNS, 12, 8, generator=torch.Generator().manual_seed(0))


def stack():
    """Two networks of four runs, the second network with two layers more."""
    draws = generators(range(RUNS))
    return nn.ModuleDict({"a": MLP((8, 16, 4), draws), "b": MLP((8, 12, 12, 4), draws)})


def single(model, run):
    return nn.ModuleDict({name: plain(model[name], run) for name in model})


def loss(model):
    """Of a stack the sum of its runs' losses; of a single network that of its run."""
    inputs = INPUTS if isinstance(model["a"], MLP) else INPUTS[model.run]
    out = torch.tanh(model["a"](inputs)) * model["b"](inputs)
    return (out - 1).square().mean((-2, -1)).sum()


SCORES = {
    "magnitude": pruners.magnitude,
    "snip": lambda model: pruners.snip(model, loss),
    "grasp": lambda model: pruners.grasp(model, loss),
    "random": lambda model: pruners.random(
        model, [5, 6, 7, 5] if isinstance(model["a"], MLP) else [5, 6, 7, 5][model.run]
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_a_run_of_a_stack_has_the_scores_of_its_network_alone(name):
    model = stack()
    scores = SCORES[name](model)
    for run in range(RUNS):
        alone = single(model, run)
        alone.run = run
        for (where, found), (_, expected) in zip(scores.items(), SCORES[name](alone).items(), strict=True):
            torch.testing.assert_close(found[run], expected, rtol=1e-4, atol=1e-6, msg=f"{where} of run {run}")


def test_the_layers_of_a_stack_know_their_runs_and_reduction():
    found = pruners.prunable(nn.ModuleDict({"vae": VAE(6, torch.ones(2), generators([0, 1, 2]), (16, 16))}))
    assert {layer.network for layer in found} == {"vae"}
    assert [(layer.runs, layer.inner) for layer in found] == [(3, 8), (3, 16), (3, 16), (3, 10), (3, 16), (3, 16)]
    apart = pruners.prunable(VAE(6, torch.ones(2), generators([0]), (16,)))
    assert [layer.network for layer in apart] == ["encoder", "encoder", "decoder", "decoder"]
    assert [layer.runs for layer in pruners.prunable(nn.Linear(2, 3))] == [None]


@pytest.mark.parametrize(
    ("scope", "floor"),
    # rows of few weights have no share of 2 % that could stay beside 95 % removed
    [(s, f) for s in pruners.patterns.SCOPES for f in (0.0, 0.02) if (s, f) != ("row", 0.02)],
)
def test_ranking_is_within_a_run_each_with_its_own_sparsity(scope, floor):
    model, shares = stack(), [0.0, 0.5, 0.95, 0.95]
    scores = SCORES["random"](model)  # the first and the last run have the same scores
    masks = pruners.unstructured(scores, shares, scope, floor)
    for run, share in enumerate(shares):
        one = pruners.Scores({name: score[run] for name, score in scores.items()}, scores.layers)
        alone = pruners.unstructured(one, share, scope, floor)
        assert all(torch.equal(mask[run], alone[name]) for name, mask in masks.items())
    same = pruners.unstructured(scores, 0.7, scope, floor)
    assert all(torch.equal(mask[0], mask[3]) for mask in same.values())
    assert not all(torch.equal(mask[0], mask[1]) for mask in same.values())


def test_masks_hold_in_a_stack_and_each_run_is_counted():
    model, shares = stack(), [0.0, 0.25, 0.5, 0.75]
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), shares, "layer"))
    optimizer = torch.optim.Adam(model.parameters(), 0.01, weight_decay=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
    assert pruners.sparsity_per_run(model) == shares
    assert pruners.sparsity(model) == sum(shares) / RUNS
    table = pruners.report(model)
    assert list(table.columns) == ["run", "layer", "shape", "weights", "kept", "sparsity"]
    assert table[table.run == 3].drop(columns="run").values.tolist() == [
        ["a.layers.0.weight", "16 x 8", 128, 32, 0.75],
        ["a.layers.1.weight", "4 x 16", 64, 16, 0.75],
        ["b.layers.0.weight", "12 x 8", 96, 24, 0.75],
        ["b.layers.1.weight", "12 x 12", 144, 36, 0.75],
        ["b.layers.2.weight", "4 x 12", 48, 12, 0.75],
        ["total", "", 480, 120, 0.75],
    ]
    assert pruners.sparsity_per_run(take(model, [2, 0])) == [0.5, 0.0]


def test_empty_layers_are_named_with_their_run():
    model = stack()
    masks = {name: torch.ones_like(score, dtype=torch.bool) for name, score in pruners.magnitude(model).items()}
    masks["b.layers.1.weight"][2] = False
    masks["a.layers.1.weight"][1].flatten()[1:] = False
    with pytest.warns(pruners.Emptied, match=r"^no weight of b\.layers\.1\.weight is left in run 2: .* floor"):
        pruners.attach(model, masks)
    with warnings.catch_warnings(action="error"):  # nothing is lost anew
        pruners.attach(model, masks)
    found = pruners.empty_layers(model)
    assert found[["run", "layer", "kept"]].values.tolist() == [[2, "b.layers.1.weight", 0]]
    found = pruners.empty_layers(model, share=1 / 64)
    assert found[["run", "layer", "kept"]].values.tolist() == [[1, "a.layers.1.weight", 1], [2, "b.layers.1.weight", 0]]
    assert pruners.empty_layers(single(model, 0)).empty


def test_what_does_not_fit_a_stack_is_refused():
    model = stack()
    scores = pruners.magnitude(model)
    with pytest.raises(BadInput, match="3 sparsities for 4 runs"):
        pruners.unstructured(scores, [0.5] * 3)
    with pytest.raises(BadInput, match=r"sparsity=1 is not in \[0, 1\)"):
        pruners.unstructured(scores, [0.5, 1, 0, 0])
    with pytest.raises(BadInput, match="2 sparsities for 1 runs"):
        pruners.unstructured({"w": torch.ones(2, 2)}, [0.5, 0.5])
    with pytest.raises(BadInput, match="1 seeds for 4 runs"):
        pruners.random(model, 0)
    with pytest.raises(BadInput, match=r"a stack \[4, 16, 8\] has a matrix for each run"):
        pruners.n_of_m(scores)
    with pytest.raises(BadInput, match=r"Linear is not a stack of runs"):
        pruners.sparsity_per_run(nn.Linear(2, 2))
    mixed = nn.ModuleDict({"stack": MLP((2, 2), generators([0, 1])), "one": nn.Linear(2, 2)})
    line = r"these differ: stack\.layers\.0\.weight \(2\), one\.weight \(not stacked\)"
    for refused in (pruners.report, lambda model: pruners.random(model, 0)):
        with pytest.raises(BadInput, match=line):
            refused(mixed)
    with pytest.raises(BadInput, match="same runs in all its layers"):
        pruners.unstructured(pruners.magnitude(mixed), 0.5)
