"""Answers to experiments whose numbers come from a run: each is computed again as its notebook asks for it.

Other experiments are checked by a law, which the checker computes; these would go stale unseen when a network, a data
set or a random draw changes.
"""

import ast
import copy
from collections.abc import Callable

import nbformat
import numpy as np
import pytest
import torch

from lib import base, pruners
from lib.kernels import block_circulant
from lib.models.lenet import small_lenet
from lib.models.speaker_resnet import NETWORKS
from lib.papers.skdfe.experiments.distillation import label_loss
from lib.pruners import gates, groups, permutation
from lib.pruners.sizes import sizes
from lib.training import actor_critic
from lib.training.gated import train as train_gated
from lib.training.supervised import accuracy, train
from tests.companion.solutions import EXERCISES, SOLUTIONS


def live(notebook: str, *names: str) -> dict:
    """Run those statements of a notebook that import or that give one of these names its value, in their order."""
    there, found = nbformat.read(base.NOTEBOOKS / f"{notebook}.ipynb", as_version=4), {}
    for cell in (cell for cell in there.cells if cell.cell_type == "code"):
        for one in ast.parse(cell.source).body:
            text = ast.unparse(one)
            given = [
                name.id for name in ast.walk(one) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
            ]
            given += [one.name] if isinstance(one, ast.FunctionDef | ast.ClassDef) else []
            wanted = isinstance(one, ast.Import | ast.ImportFrom) or (set(given) & set(names) - set(found))
            if wanted or any(text.startswith(name) for name in names if "(" in name):
                exec(compile(ast.Module([one], []), notebook, "exec"), found)
    return found


def chance_on_the_moons() -> float:
    """00.5: half of the network on top removed by chance, five seeds."""
    there = live("00_start_here", "moons", "schedule")
    torch.manual_seed(0)
    network = torch.nn.Sequential(
        torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2)
    )
    train(network, there["moons"], there["schedule"], seed=0)
    found = []
    for seed in range(5):
        model = copy.deepcopy(network)
        pruners.attach(model, pruners.unstructured(pruners.random(model, seed=seed), sparsity=0.5))
        found.append(accuracy(model, there["moons"]))
    return sum(found) / 5


def alike_columns() -> float:
    """22.5: what annealing gains where columns are of one size, twenty matrices."""
    gains = []
    for seed in range(20):
        matrix = torch.randn(8, 16, generator=torch.Generator().manual_seed(seed))
        order = permutation.anneal(matrix, 10_000)
        gains.append(100 * (permutation.kept_magnitude(matrix[:, order]) / permutation.kept_magnitude(matrix) - 1))
    return sum(gains) / 20


def fresh_under_the_mask() -> float:
    """23.5: what the masks of the trained network cost three new ones, each against the same start without them."""
    there = live("23_train_prune_retrain", "digits", "settings")
    torch.manual_seed(1)
    network = small_lenet()
    train(network, there["digits"], there["settings"], seed=1)
    masks, costs = pruners.two_four(network), []
    for start in (2, 3, 4):
        ends = []
        for held in ({}, masks):
            torch.manual_seed(start)
            fresh = small_lenet()
            pruners.attach(fresh, held)
            ends.append(train(fresh, there["digits"], there["settings"], seed=1)[-1]["accuracy"])
        costs.append(ends[0] - ends[1])
    return sum(costs) / 3


def at_a_third_of_the_price() -> float:
    """42.5: by what factor the live weights of the live network grow when each price is 0.3 of what it was."""
    there, live_weights = live("42_mnist", "digits", "prices", "speed"), []
    for part in (1, 0.3):
        torch.manual_seed(0)
        model = gates.gated(small_lenet(), k=7)
        prices = tuple(part * price for price in there["prices"])
        settings = there["GatedTraining"](epochs=(4, 14, 4), lambdas=prices, k=7, **there["speed"])
        live_weights.append(train_gated(model, there["digits"], settings, seed=0)[-1]["parameters_live"])
    return live_weights[1] / live_weights[0]


def projected() -> float:
    """50.5: what a projection keeps of the energy of positive weights."""
    weight = torch.rand(64, 64, generator=torch.Generator().manual_seed(0))
    table = block_circulant.circulant(4)
    near = block_circulant.expand(block_circulant.project(weight, table), table, weight.shape)
    return 100 * float(near.square().sum() / weight.square().sum())


def bytes_of_a_narrow_network() -> float:
    """33.5: what the 2:4 pattern leaves of a speaker network of width 8, in percent of its bytes."""
    network = NETWORKS["resnet18"](width=8)
    pruners.attach(network, pruners.two_four(network))
    found = sizes(network, (300, 40), value_bits=32)
    return 100 * found["bytes_two_four"] / found["bytes_dense"]


def returned_where_the_critic_is_right() -> float:
    """54.5: the return of the first of twenty steps that pay 1 each, with 10 expected everywhere."""
    settings = actor_critic.ActorCriticSettings(discount=0.9, trace=0.5)
    return float(actor_critic.returns(torch.ones(20, 1), torch.zeros(20, 1), torch.full((21, 1), 10.0), settings)[0])


def step_of_a_shared_weight() -> float:
    """55.5: how far a weight in a block of 4 moves when each weight has a gradient of 1, at a rate of 0.1."""
    layer = torch.nn.Linear(4, 4, bias=False)
    groups.group(layer, {"weight": block_circulant.circulant(4)})
    optimizer, before = torch.optim.SGD(layer.parameters(), 0.1), layer.weight.detach().clone()
    layer.weight.sum().backward()
    optimizer.step()
    return float((layer.weight.detach() - before)[0, 0])


def last_label_loss() -> float:
    """31.5: where the label loss of a student with free logits ends."""
    teacher, logits = torch.tensor([[0.5, 0.3, 0.2]]).log(), torch.zeros(1, 3, requires_grad=True)
    optimizer = torch.optim.SGD([logits], 0.1)
    for _ in range(2000):
        optimizer.zero_grad()
        loss = label_loss(logits, teacher)
        loss.backward()
        optimizer.step()
    return float(loss.detach())


def one_of_four() -> float:
    """62.5: a network for digits with one of every four weights, not trained again."""
    names = ("Network", "train", "accuracy", "digits", "seen", "labels")
    there = live("62_your_network", *names)
    torch.manual_seed(0)
    model = there["train"](there["Network"](), epochs=4)
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model).only(pruners.eligible(model)), 1, 4))
    return there["accuracy"](model)


def places_that_see_a_change() -> float:
    """25.5: at how many of 32 places a model of characters answers otherwise when place 10 holds another character."""
    from lib.models.transformer import small_decoder

    torch.manual_seed(0)
    model = small_decoder(26, window=32).eval()
    tokens = torch.randint(26, (1, 32))
    changed = tokens.clone()
    changed[0, 10] = (changed[0, 10] + 1) % 26
    with torch.no_grad():
        return int((model(tokens) != model(changed)).any(-1).sum())


RUNS: dict[str, tuple[Callable[[], float], float]] = {  # how to run it, and how far the written solution may be off
    "00.5": (chance_on_the_moons, 0.1),
    "22.5": (alike_columns, 0.05),
    "23.5": (fresh_under_the_mask, 0.05),
    "25.5": (places_that_see_a_change, 0),
    "31.5": (last_label_loss, 1e-3),
    "33.5": (bytes_of_a_narrow_network, 0.05),
    "42.5": (at_a_third_of_the_price, 0.75),
    "50.5": (projected, 1.0),
    "54.5": (returned_where_the_critic_is_right, 1e-3),
    "55.5": (step_of_a_shared_weight, 1e-5),
    "62.5": (one_of_four, 1.0),
}


@pytest.mark.parametrize("exercise", RUNS)
def test_a_run_gives_the_number_that_the_checker_takes_for_right(exercise: str):
    run, off = RUNS[exercise]
    found = run()
    assert EXERCISES[exercise](found) is None
    assert SOLUTIONS[exercise] == pytest.approx(found, abs=off)


def test_random_draws_bear_out_the_law_of_two_equal_networks():
    """43.5: the share of pairs that are 0.69 points apart or more, which the checker computes from a normal one."""
    draws = torch.distributions.Binomial(10_000, torch.tensor(0.85))
    torch.manual_seed(0)
    apart = (draws.sample((100_000,)) - draws.sample((100_000,))).abs()
    assert EXERCISES["43.5"](100 * float((apart >= 69).double().mean())) is None


def test_random_draws_bear_out_what_is_left_of_the_spread_of_speakers():
    """30.5: squares of posterior means alone, for B = 1, W = 4 and two utterances."""
    draw = np.random.default_rng(0)
    y = draw.normal(0, 1, 100_000)
    spoken = y[:, None] + draw.normal(0, 2, (100_000, 2))
    known = spoken.sum(1) / 4 / (1 / 1 + 2 / 4)
    assert EXERCISES["30.5"](float(np.square(known).mean())) is None


def test_random_draws_bear_out_that_two_seeds_drawn_again_promise_too_much():
    """32.5: the error of a mean of two by the bootstrap, in percent of the truth."""
    pairs = np.random.default_rng(0).normal(size=(10_000, 2))
    drawn = pairs[:, [[0, 0], [0, 1], [1, 0], [1, 1]]].mean(2)  # all four draws, equally likely
    assert EXERCISES["32.5"](100 * float(np.sqrt(drawn.var(1).mean()) / np.sqrt(1 / 2))) is None


def test_random_draws_bear_out_how_often_three_seeds_surround_the_truth():
    """61.5."""
    triples = np.random.default_rng(0).normal(size=(10_000, 3))
    assert EXERCISES["61.5"](100 * float(((triples.min(1) < 0) & (triples.max(1) > 0)).mean())) is None
