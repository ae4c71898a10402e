"""Laws of the one loop: a score, a pattern and a schedule meet, on networks, stacks and holders of masks."""

import copy
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant
from lib.models.mlp import MLP, generators, plain
from lib.pruners import groups
from lib.pruners.registry import PATTERNS, SCHEDULES, SCORES

INPUTS = torch.randn(12, 16, generator=torch.Generator().manual_seed(0))
RUNS = 3


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 4))


def stack(runs=range(RUNS)) -> nn.ModuleDict:
    return nn.ModuleDict({"a": MLP((16, 16, 4), generators(runs))})


def loss(model):
    if isinstance(model, nn.ModuleDict):
        model = model["a"]
    inputs = INPUTS.expand(len(model.layers[0].weight), -1, -1) if isinstance(model, MLP) else INPUTS
    return (model(inputs) - 1).square().mean((-2, -1)).sum()


class Steps:
    """A schedule with these targets, one a step from 0 on; it writes down what it is asked."""

    def __init__(self, *targets):
        self.targets, self.asked = targets, []

    def target(self, step, reward=None):
        self.asked.append((step, reward))
        return self.targets[step]


def test_it_scores_makes_masks_and_attaches_them_when_the_target_rises_and_only_then():
    model, calls = network(), []

    def score(model, loss):
        calls.append(len(calls))
        return pruners.snip(model, loss)

    pruner = pruners.Pruner(score, pruners.unstructured, Steps(0.0, 0.5, 0.5, 0.4, 0.75))
    shares = []
    for step in range(5):
        expected = pruners.unstructured(pruners.snip(model, loss), 0.5)
        masks = pruner.step(model, step, loss=loss)
        assert bool(masks) == (step in (1, 4))
        if step == 1:
            assert all(torch.equal(masks[name], mask) for name, mask in expected.items())
        shares.append(pruners.sparsity(model))
        train(model)
    assert shares == [0, 0.5, 0.5, 0.5, 0.75]
    assert len(calls) == 2


def train(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loss(model).backward()
    optimizer.step()


@pytest.mark.parametrize("name", SCORES)
def test_what_is_gone_stays_gone_whatever_the_score_says_later(name):
    """The score is turned round at each step, so it would have back what it gave away."""
    model, sign, gone = network(), [1], set()

    def score(model, loss, seed):
        found = pruners.Pruner(SCORES[name], lambda scores: scores, pruners.Once(0.5))._scored(
            [True], model, {"loss": loss, "seed": seed}
        )
        sign[0] = -sign[0]
        return pruners.Scores({where: sign[0] * values for where, values in found.items()}, found.layers)

    pruner = pruners.Pruner(score, pruners.unstructured, pruners.Iterative(0.8, 4))
    for step in range(4):
        masks = pruner.step(model, step, loss=loss, seed=5)
        now = {(where, *place) for where, mask in masks.items() for place in (~mask).nonzero().tolist()}
        assert len(gone) < len(now)
        assert gone <= now
        gone = now
    assert pruners.sparsity(model) == pytest.approx(0.8, abs=0.002)


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_any_score_goes_with_any_pattern_and_any_schedule(score, pattern, schedule):
    given = {
        "once": {"sparsity": 0.5},
        "iterative": {"sparsity": 0.5, "rounds": 1 if pattern == "two_four" else 3},
        "gradual": {"final": 0.5, "every": 1, "times": 1 if pattern == "two_four" else 3},
        "reward_aware": {"increase": 0.5, "every": 1, "limit": 0.5},
    }[schedule]
    model = network()
    pruner = pruners.Pruner(SCORES[score], PATTERNS[pattern], SCHEDULES[schedule](**given))
    for step in range(4):
        pruner.step(model, step, loss=loss, reward=1.0 + step, seed=3)
    assert pruners.sparsity(model) == 0.5
    assert all(layer.weight.abs().sum() > 0 for layer in pruners.prunable(model))


def test_each_run_of_a_stack_is_pruned_as_it_would_be_alone():
    """Each by its own score and its own schedule, some of which rise while others rest."""
    scores = [pruners.snip, pruners.magnitude, partial(pruners.grasp)]
    targets = [(0.25, 0.5, 0.4), (0.5, 0.5, 0.9), (0.0, 0.1, 0.6)]
    whole = stack()
    together = pruners.Pruner(scores, pruners.unstructured, [Steps(*each) for each in targets])
    alone = [stack([run]) for run in range(RUNS)]
    single = [pruners.Pruner(scores[run], pruners.unstructured, Steps(*targets[run])) for run in range(RUNS)]
    for step in range(3):
        together.step(whole, step, loss=loss)
        for run in range(RUNS):
            single[run].step(alone[run], step, loss=loss)
        found = pruners.attached(whole)
        for run in range(RUNS):
            for name, mask in found.items():
                own = pruners.attached(alone[run]).get(name, torch.ones_like(mask[:1]))
                assert torch.equal(mask[run], own[0])
    assert pruners.sparsity_per_run(whole) == pytest.approx([0.5, 0.9, 0.6], abs=0.01)


def test_one_schedule_of_a_stack_prunes_all_its_runs_and_a_run_without_score_is_left():
    whole = stack()
    pruners.Pruner(pruners.magnitude, pruners.unstructured, pruners.Once(0.5)).step(whole, 0)
    assert pruners.sparsity_per_run(whole) == [0.5] * RUNS
    some = stack()
    scores, schedules = [None, pruners.magnitude, pruners.magnitude], [pruners.Once(s) for s in (0.0, 0.5, 0.25)]
    pruners.Pruner(scores, pruners.unstructured, schedules).step(some, 0)
    assert pruners.sparsity_per_run(some) == [0, 0.5, 0.25]
    dense = plain(some["a"], 0)
    assert torch.equal(dense[0].weight, plain(stack()["a"], 0)[0].weight)


def test_what_a_run_was_asked_for_last_is_the_highest_so_far():
    pruner = pruners.Pruner(pruners.magnitude, pruners.unstructured, [Steps(0.5, 0.4, 0.45), Steps(0.2, 0.3, 0.3)])
    model = stack([0, 1])
    for step in range(3):
        pruner.step(model, step)
    assert pruner.targets == [0.5, 0.3]


def test_every_run_has_its_own_reward_and_the_step_is_handed_on():
    schedules = [Steps(0.0, 0.0), Steps(0.0, 0.0)]
    pruner = pruners.Pruner(pruners.magnitude, pruners.unstructured, schedules)
    pruner.step(stack([0, 1]), 0, reward=[1.5, -2.0])
    pruner.step(stack([0, 1]), 1)
    assert [schedule.asked for schedule in schedules] == [[(0, 1.5), (1, None)], [(0, -2.0), (1, None)]]


def test_layers_that_are_not_named_are_left_and_groups_go_whole():
    model = network()
    groups.group(model, {"0.weight": circulant(4)})
    pruners.Pruner(pruners.snip, groups.whole_groups, pruners.Once(0.5), ["0.weight"]).step(model, 0, loss=loss)
    mask = pruners.attached(model)["0.weight"]
    assert list(pruners.attached(model)) == ["0.weight"]
    assert float(mask.float().mean()) == 0.5
    blocks = mask.reshape(4, 4, 4, 4).movedim(2, 1).reshape(16, 16)
    for coefficient in range(4):
        places = circulant(4).flatten() == coefficient
        assert (blocks[:, places] == blocks[:, places][:, :1]).all()


def test_what_holds_masks_by_itself_is_pruned_by_the_same_loop():
    class Held:
        """A network that multiplies its weights by masks once, as an agent does."""

        def __init__(self):
            self.model, self.masks = network(), {}

        def attached(self):
            return self.masks

        def attach(self, masks):
            self.masks = self.masks | dict(masks)

    held, attached = Held(), network()
    pair = [
        pruners.Pruner(lambda held: pruners.magnitude(held.model), pruners.unstructured, pruners.Iterative(0.7, 3)),
        pruners.Pruner(pruners.magnitude, pruners.unstructured, pruners.Iterative(0.7, 3)),
    ]
    for step in range(3):
        for pruner, model in zip(pair, (held, attached), strict=True):
            pruner.step(model, step)
    assert all(torch.equal(held.masks[name], mask) for name, mask in pruners.attached(attached).items())


def test_it_goes_on_from_what_it_remembered():
    def begun():
        schedules = [pruners.RewardAware(0.1, every=1), pruners.Gradual(0.8, 1, 8)]
        return stack([0, 1]), pruners.Pruner(pruners.magnitude, pruners.unstructured, schedules)

    rewards = [1.0, 3.0, 2.0, 4.0, 5.0, 1.0]
    model, pruner = begun()
    other, again = begun()
    for step, reward in enumerate(rewards):
        pruner.step(model, step, reward=[reward, 0.0])
        if step == 2:
            pruners.attach(other, pruners.attached(model))
            again.load_state_dict(pruner.state_dict())
        if step > 2:
            again.step(other, step, reward=[reward, 0.0])
    assert again.state_dict() == pruner.state_dict()
    assert pruners.sparsity_per_run(other) == pruners.sparsity_per_run(model) == pytest.approx([0.3, 0.75], abs=0.1)


@pytest.mark.parametrize("made", [list, np.array, torch.tensor])
def test_rewards_of_runs_come_in_any_list(made):
    schedules = [pruners.RewardAware(0.5, every=1), pruners.RewardAware(0.25, every=1, initial_reward=9.0)]
    pruner, model = pruners.Pruner(pruners.magnitude, pruners.unstructured, schedules), stack([0, 1])
    pruner.step(model, 1, reward=made([3.0, 4.0]))
    assert pruner.targets == [0.5, 0.0]
    assert [(type(one.newest), one.newest) for one in schedules] == [(float, 3.0), (float, 4.0)]
    pruner.step(model, 2, reward=torch.tensor(10.0))  # one number is that of every run
    assert pruner.targets == [0.5 + 0.45, 0.25]


def test_what_another_number_of_runs_remembered_is_refused_and_changes_nothing():
    pruner, other = (pruners.Pruner(pruners.magnitude, pruners.unstructured, [pruners.Once(0.5)] * n) for n in (2, 3))
    before = pruner.state_dict()
    with pytest.raises(BadInput, match=r"^this state is of 3 runs, the pruner of 2$"):
        pruner.load_state_dict(other.state_dict())
    assert pruner.state_dict() == before


def test_a_damaged_state_is_refused_and_changes_nothing():
    schedules = [pruners.RewardAware(0.5, every=1), pruners.RewardAware(0.25, every=1)]
    pruner, model = pruners.Pruner(pruners.magnitude, pruners.unstructured, schedules), stack([0, 1])
    pruner.step(model, 1, reward=[3.0, 4.0])
    before = copy.deepcopy(pruner.state_dict())
    whole = {"highest": 1.0, "newest": 1.0, "times": 3}
    for damaged, line in (
        (
            {"targets": [0.5, 0.5], "schedules": [whole, {"highest": 1.0}]},
            "is no state of reward-aware pruning",
        ),
        ({"targets": 0.5, "schedules": [whole, whole]}, "is no state of a Pruner: targets and schedules are lists"),
        ({"targets": [0.5, float("nan")], "schedules": [whole, whole]}, r"target=nan .*\[0, 1\)"),
        ({"targets": ["a", 0.5], "schedules": [whole, whole]}, "target='a'"),
        ({"targets": [0.5, 0.5], "schedules": [whole, 3]}, "^3 is no state of reward-aware pruning"),
    ):
        with pytest.raises(BadInput, match=line):
            pruner.load_state_dict(damaged)
        assert pruner.state_dict() == before


def test_what_cannot_be_is_refused_in_one_line():
    for arguments, given, line in (
        ((pruners.snip, pruners.unstructured, pruners.Once(0.5)), {}, "the score snip needs loss: give it to `step`"),
        ((pruners.random, pruners.unstructured, pruners.Once(0.5)), {}, "the score random needs seed"),
        ((pruners.magnitude, pruners.n_of_m, pruners.Once(0.7)), {}, "sparsity=0.7: 2 of 4 leaves 0.5"),
        (([None], pruners.unstructured, [pruners.Once(0.5)]), {}, "run 0 has no score"),
        (
            (pruners.magnitude, pruners.unstructured, [pruners.Once(0.5)] * 2),
            {},
            "2 schedules for a model of 1 runs",
        ),
        ((pruners.magnitude, pruners.unstructured, pruners.Once(0.5)), {"reward": [1, 2]}, "2 rewards for 1 schedules"),
        ((pruners.magnitude, pruners.unstructured, pruners.Once(0.5)), {"reward": "high"}, "reward='high': expected a"),
        ((pruners.magnitude, pruners.unstructured, pruners.Once(0.5), ["9.weight"]), {}, "no '9.weight'"),
    ):
        model = network()
        with pytest.raises(BadInput, match=line):
            pruners.Pruner(*arguments).step(model, 0, **given)
        assert pruners.attached(model) == {}
    with pytest.raises(BadInput, match="2 scores and 1 schedules"):
        pruners.Pruner([pruners.snip] * 2, pruners.unstructured, pruners.Once(0.5))


@pytest.mark.parametrize(
    ("score", "pattern", "schedule", "line"),
    [
        (pruners.magnitude, pruners.unstructured, "once", "^schedule='once': expected an object with `target`"),
        (pruners.magnitude, pruners.unstructured, 0.5, "^schedule=0.5: expected .*, such as pruners.Once"),
        (pruners.magnitude, pruners.unstructured, None, "^schedule=None: expected"),
        (pruners.magnitude, pruners.unstructured, pruners.Once, "^schedule=<class '.*Once'>: expected an object"),
        (pruners.magnitude, "unstructured", pruners.Once(0.5), "^pattern='unstructured': expected a function"),
        ("magnitude", "unstructured", "once", "^score='magnitude': expected a function of the model"),
    ],
)
def test_what_is_no_score_no_pattern_and_no_schedule_is_refused_by_its_name(score, pattern, schedule, line):
    with pytest.raises(BadInput, match=line):
        pruners.Pruner(score, pattern, schedule)


def test_a_name_is_registered_once_and_an_unknown_one_refused():
    own = dict(SCORES)
    pruners.register(own, "mine")(pruners.magnitude)
    assert pruners.find(own, "score", "mine") is pruners.magnitude
    with pytest.raises(BadInput, match="'mine' is registered already"):
        pruners.register(own, "mine")(pruners.snip)
    with pytest.raises(BadInput, match="score 'mien': known are snip, grasp, random, magnitude"):
        pruners.find(SCORES, "score", "mien")


def test_a_score_that_is_no_scores_is_refused():
    model = nn.Linear(4, 4)
    pruner = pruners.Pruner(lambda model: {"weight": model.weight}, pruners.unstructured, pruners.Once(0.5))
    with pytest.raises(BadInput, match=r"^a score returned a dict: expected Scores"):
        pruner.step(model, 0)


def test_scores_of_runs_that_know_other_layers_are_refused_in_any_order_unless_layers_that_all_know_are_named():
    class Idle(nn.Module):
        """A stack with a layer on which the loss does not depend, so that SNIP leaves it out."""

        def __init__(self):
            super().__init__()
            self.used, self.idle = (MLP((4, 4), generators([0, 1])) for _ in range(2))

    loss = lambda model: model.used(torch.ones(2, 3, 4)).square().mean((-2, -1)).sum()  # noqa: E731
    for scores in ([pruners.magnitude, pruners.snip], [pruners.snip, pruners.magnitude]):
        model, schedules = Idle(), [pruners.Once(0.5)] * 2
        line = r"^idle\.layers\.0\.weight is scored for some runs and left out for others: name the `layers`"
        with pytest.warns(pruners.LeftOut), pytest.raises(BadInput, match=line):
            pruners.Pruner(scores, pruners.unstructured, schedules).step(model, 0, loss=loss)
        assert pruners.attached(model) == {}
        with pytest.warns(pruners.LeftOut):
            pruners.Pruner(scores, pruners.unstructured, schedules, ["used.layers.0.weight"]).step(model, 0, loss=loss)
        assert pruners.attached(model)["used.layers.0.weight"].float().mean((1, 2)).tolist() == [0.5, 0.5]


def test_scores_of_several_runs_are_put_together_in_a_copy():

    model = MLP((4, 4, 2), generators([0, 1]))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def signed(model):  # the weights themselves, in their own memory
        layers = {layer.name: layer for layer in pruners.prunable(model)}
        return pruners.Scores({name: layer.weight for name, layer in layers.items()}, layers)

    pruner = pruners.Pruner([signed, pruners.magnitude], pruners.unstructured, [pruners.Once(0.5)] * 2)
    masks = pruner.step(model, 0)
    for name, mask in masks.items():
        layer = {layer.name: layer for layer in pruners.prunable(model)}[name]
        assert torch.equal(layer.weight, before[name] * mask)


def test_a_score_without_a_hash_and_one_name_for_layers_will_do():
    @dataclass
    class Magnitude:
        def __call__(self, model):
            return pruners.magnitude(model)

    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 2))
    pruner = pruners.Pruner(Magnitude(), pruners.unstructured, pruners.Once(0.5), "0.weight")
    assert set(pruner.step(model, 0)) == {"0.weight"}
