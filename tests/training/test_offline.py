"""Laws of `lib.training.offline`: what is drawn, how runs are pruned, and that stopping changes nothing."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from lib import pruners
from lib.errors import BadInput
from lib.training.agents import SCORING, TRAINING, Draws, Transitions, draw_batch
from lib.training.bc import BC, BCSettings, PlainBC, PlainBCSettings
from lib.training.bcq import BCQ, BCQSettings
from lib.training.graphs import Graphed
from lib.training.offline import Progress, Pruning, Run, prune, train

OBSERVATIONS, BOUND = 4, [1.0, 1.0]
RUNS = [Run(0), Run(0, "snip", 0.75), Run(1, "grasp", 0.75), Run(1, "random", 0.5)]
SETTINGS = {
    "bcq": BCQSettings(hidden=(8, 8), vae_hidden=(8, 8), batch=4, target_samples=2, acting_samples=3),
    "bc": BCSettings(hidden=(8, 8), batch=4),
    "bc_mlp": PlainBCSettings(hidden=(8, 8), batch=4),
}


def bundle(count=40):
    draw = np.random.default_rng(0)
    return SimpleNamespace(
        observations=draw.standard_normal((count, OBSERVATIONS)).astype(np.float32),
        actions=draw.uniform(-1, 1, (count, 2)).astype(np.float32),
        rewards=draw.standard_normal(count).astype(np.float32),
        next_observations=draw.standard_normal((count, OBSERVATIONS)).astype(np.float32),
        terminals=draw.random(count) < 0.1,
        timeouts=draw.random(count) < 0.1,
    )


DATA = Transitions.of(bundle())


def agent(kind="bcq", runs=RUNS, pruned=True, data=DATA, **settings):
    seeds, settings = [run.seed for run in runs], type(SETTINGS[kind])(**vars(SETTINGS[kind]) | settings)
    if kind == "bc_mlp":
        found = PlainBC(data, BOUND, seeds, settings)
    else:
        found = {"bcq": BCQ, "bc": BC}[kind](OBSERVATIONS, BOUND, seeds, settings, data.rewards.device)
    if pruned:
        prune(found, data, runs, Pruning(4, 8))
    return found


def masks_of(agent):
    """{name of a pruned weight: its mask}."""
    return {name: agent.masks[weight] for name, weight in agent.networks.named_parameters() if weight in agent.masks}


def flat(content):
    """The tensors of nested dicts and lists, and everything else, in order."""
    if isinstance(content, dict):
        return [part for key, value in content.items() for part in (key, *flat(value))]
    return [part for value in content for part in flat(value)] if isinstance(content, (list, tuple)) else [content]


def same(left, right):
    states = ((agent.modules.state_dict(), Progress(agent).state_dict()) for agent in (left, right))
    pairs = zip(*(flat(state) for state in states), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def mean_action(policy):
    observations = np.ones((len(RUNS), 2, OBSERVATIONS), np.float32)
    return {"action": policy(observations).mean((1, 2)).tolist()}


# Data and draws


def test_a_bundle_becomes_columns_in_which_a_timeout_is_no_end():
    given = bundle()
    assert [tuple(column.shape) for column in DATA] == [(40, 4), (40, 2), (40, 1), (40, 4), (40, 1)]
    assert DATA.terminals.flatten().tolist() == given.terminals.astype(float).tolist()
    assert {column.dtype for column in DATA} == {torch.float32}
    batch = DATA.batch(torch.tensor([[3, 3], [7, 0]]))
    assert torch.equal(batch.observations[0, 1], torch.from_numpy(given.observations[3]))
    assert batch.rewards[1].flatten().tolist() == given.rewards[[7, 0]].tolist()


def test_runs_of_one_seed_draw_alike_whatever_else_is_in_the_stack():
    draws, alone = Draws([5, 3, 5]), Draws([3])
    for draw in (
        lambda draws: draws.restart(1, 2).integers(1000, 50),
        lambda draws: draws.restart(1, 2).normals(50, 2, like=torch.zeros(())),
    ):
        drawn = draw(draws)
        assert torch.equal(drawn[0], drawn[2])
        assert not torch.equal(drawn[0], drawn[1])
        assert torch.equal(drawn[1], draw(alone)[0])
    again, other = draws.restart(1, 2).integers(1000, 50), draws.restart(1, 3).integers(1000, 50)
    assert torch.equal(draws.restart(1, 2).integers(1000, 50), again)
    assert not torch.equal(again, other)
    numbers = draws.restart(0).normals(5000, like=torch.zeros((), dtype=torch.float64))
    assert numbers.dtype == torch.float64
    assert abs(numbers.mean()) < 0.03
    assert abs(numbers.std() - 1) < 0.03


def test_runs_that_differ_in_sparsity_alone_see_the_same_batches_and_noise():
    ours = agent(runs=[Run(2), Run(2, "snip", 0.9), Run(3)])
    batch, noise = draw_batch(ours, DATA, Draws(ours.seeds), 4, 2, 1)
    assert [tuple(drawn.shape) for drawn in noise] == [(3, 4, 4), (3, 8, 4), (3, 4, 4)]
    for tensor in (*batch, *noise):
        assert torch.equal(tensor[0], tensor[1])
        assert not torch.equal(tensor[0], tensor[2]) or tensor is batch.terminals


# Pruning


@pytest.mark.parametrize("kind", SETTINGS)
def test_each_run_is_pruned_by_its_own_pruner_and_starts_from_its_seed(kind):
    ours, dense = agent(kind), agent(kind, pruned=False)
    assert pruners.sparsity_per_run(ours.networks) == pytest.approx([0, 0.75, 0.75, 0.5], abs=0.01)
    for kept, first in zip(pruners.prunable(ours.networks), pruners.prunable(dense.networks), strict=True):
        assert torch.equal(kept.weight, first.weight * masks_of(ours)[kept.name])
    for run, pruner in enumerate(["snip", "grasp", "random"], 1):
        alone = agent(kind, [RUNS[run]])
        masks = masks_of(alone)
        assert all(torch.equal(mask[run], masks[name][0]) for name, mask in masks_of(ours).items())
        other = agent(kind, [Run(RUNS[run].seed, "magnitude", RUNS[run].sparsity)])
        assert any(not torch.equal(mask, masks[name]) for name, mask in masks_of(other).items()), pruner


def test_scores_come_from_the_dense_networks_and_from_each_loss_alone():
    ours = agent(runs=[Run(1, "grasp", 0.75)])
    dense = agent(runs=[Run(1)])
    pair = draw_batch(dense, DATA, Draws([1]), 8, SCORING, 0)
    for objective in dense.objectives.values():
        scores = pruners.grasp(objective.ranked, lambda model, loss=objective.loss: loss(*pair).sum())
        for name, mask in pruners.unstructured(scores, 0.75).items():
            assert torch.equal(mask, masks_of(ours)[name])


def test_the_number_and_size_of_batches_the_scope_and_the_floor_are_settings():
    runs = [Run(1, "snip", 0.8)]

    def kept(settings):
        ours = agent(runs=runs, pruned=False)
        prune(ours, DATA, runs, settings)
        return masks_of(ours), pruners.report(ours.networks)

    usual, _ = kept(Pruning(4, 8))
    for settings in (Pruning(4, 8, batches=3), Pruning(8, 8)):
        assert any(not torch.equal(mask, usual[name]) for name, mask in kept(settings)[0].items())
    assert all(torch.equal(mask, usual[name]) for name, mask in kept(Pruning(4, 99))[0].items())  # GraSP's batch alone
    by_layer = kept(Pruning(4, 8, scope="layer"))[1]
    assert by_layer.sparsity.tolist() == pytest.approx([0.8] * len(by_layer), abs=0.07)
    assert kept(Pruning(4, 8))[1].sparsity.max() > 0.9
    assert kept(Pruning(4, 8, floor=0.15))[1].sparsity.max() <= 0.85


def test_in_rounds_each_takes_its_share_by_scores_of_what_is_left():
    ours = agent(runs=[Run(1, "snip", 0.75, rounds=2)])
    half = agent(runs=[Run(1, "snip", 0.5)])  # two rounds to a quarter: half of it, and half of what is left
    pair = draw_batch(half, DATA, Draws([1]), 4, SCORING, 0, 1)
    for objective in half.objectives.values():
        layers = pruners.prunable(objective.ranked)
        scores = pruners.snip(objective.ranked, lambda model, loss=objective.loss: loss(*pair).sum())
        for network in dict.fromkeys(layer.network for layer in layers):
            names = [layer.name for layer in layers if layer.network == network]
            count = sum(scores[name].numel() for name in names)
            left = torch.cat([scores[name][masks_of(half)[name]] for name in names])
            least = left.sort(descending=True).values[count - round(0.75 * count) - 1]
            for name in names:
                assert torch.equal(masks_of(ours)[name], (scores[name] >= least) & masks_of(half)[name])
    once = agent(runs=[Run(1, "snip", 0.75)])
    assert any(not torch.equal(mask, masks_of(ours)[name]) for name, mask in masks_of(once).items())


def test_rounds_change_nothing_for_scores_that_ask_no_data_and_nothing_in_other_runs():
    rounds = [Run(0), Run(0, "snip", 0.75), Run(1, "grasp", 0.75, rounds=3), Run(1, "random", 0.5, rounds=3)]
    found, usual = masks_of(agent(runs=rounds)), masks_of(agent())
    for name, mask in found.items():
        assert torch.equal(mask[[0, 1, 3]], usual[name][[0, 1, 3]])
        assert torch.equal(mask[2], masks_of(agent(runs=[rounds[2]]))[name][0])
    assert any(not torch.equal(mask[2], usual[name][2]) for name, mask in found.items())
    share = pruners.sparsity_per_run(agent(runs=rounds).networks)
    assert share == pytest.approx(pruners.sparsity_per_run(agent().networks))


def test_runs_that_make_no_sense_are_refused():
    with pytest.raises(BadInput, match="pruner 'obd': known are dense, snip, grasp, random, magnitude"):
        Run(0, "obd", 0.5)
    with pytest.raises(BadInput, match=r"sparsity=1 is not in \[0, 1\)"):
        Run(0, "snip", 1)
    with pytest.raises(BadInput, match=r"a dense run has sparsity 0, this one 0\.5"):
        Run(0, sparsity=0.5)
    with pytest.raises(BadInput, match="rounds=0 must be at least 1"):
        Run(0, "snip", 0.5, rounds=0)
    with pytest.raises(BadInput, match=r"the agent has the seeds \[0, 0, 1, 1\], these runs \[4\]"):
        prune(agent(), DATA, [Run(4)])
    with pytest.raises(BadInput, match=r"the agent has the seeds \[0, 0, 1, 1\], these runs \[4\]"):
        train(agent(), DATA, [Run(4)], 1, 1)
    with pytest.raises(BadInput, match="batches must be at least 1"):
        Pruning(batches=0)
    with pytest.raises(BadInput, match=r"scope='net', floor=0\.0: expected layer, network, global, and a share"):
        Pruning(scope="net")
    with pytest.raises(BadInput, match="scope='network', floor=2"):
        Pruning(floor=2)


def test_layers_of_which_nothing_is_left_are_reported(caplog):
    stack = [Run(0), Run(0, "magnitude", 0.5), Run(1, "magnitude", 0.99)]
    found = agent("bc_mlp", stack, pruned=False)
    with caplog.at_level("WARNING"):
        prune(found, DATA, [stack[0], Run(0, "random", 0.1), Run(1, "random", 0.1)])
        assert caplog.messages == []
        prune(found, DATA, stack, Pruning(scope="network"))
    empty = pruners.empty_layers(found.networks)
    assert set(empty.layer)
    assert all(name in caplog.text for name in empty.layer)
    assert "(magnitude at 0.99): nothing passes such a layer" in caplog.text
    assert "0.5" not in caplog.text


# Training


@pytest.mark.parametrize("kind", SETTINGS)
def test_training_is_its_updates_one_after_the_other(kind):
    ours, by_hand = agent(kind), agent(kind)
    rows = train(ours, DATA, RUNS, steps=6, every=3, evaluate=mean_action)
    draws = Draws(by_hand.seeds)
    for first in (1, 4):
        losses = [
            by_hand.update(*draw_batch(by_hand, DATA, draws, 4, TRAINING, step)) for step in range(first, first + 3)
        ]
        found = rows[:4] if first == 1 else rows[4:]
        for name in losses[0]:
            mean = sum(loss[name] for loss in losses) / 3
            assert [row[f"{name}_loss"] for row in found] == mean.tolist()
        assert [row["action"] for row in found] == mean_action(by_hand.policy(first + 2))["action"]
    assert same(ours, by_hand)
    keys = ["run", "seed", "pruner", "sparsity", "step"]
    assert [[row[key] for key in keys] for row in rows[4:]] == [
        [0, 0, "dense", 0.0, 6],
        [1, 0, "snip", 0.75, 6],
        [2, 1, "grasp", 0.75, 6],
        [3, 1, "random", 0.5, 6],
    ]


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("stop", [1, 2, 3, 5])
def test_a_stopped_training_goes_on_with_the_same_numbers(kind, stop, tmp_path):
    def advance():
        advance.calls += 1
        if advance.calls == stop:
            raise InterruptedError

    whole = agent(kind)
    rows = train(whole, DATA, RUNS, 12, 6, mean_action, pace=2)
    advance.calls, state = 0, tmp_path / "deep" / "state.pt"
    with pytest.raises(InterruptedError):
        train(agent(kind), DATA, RUNS, 12, 6, mean_action, state, advance=advance, pace=2)
    calls = []
    again = agent(kind, pruned=False)  # masks come from the pruning, which a restarted run does again
    prune(again, DATA, RUNS, Pruning(4, 8))
    assert train(again, DATA, RUNS, 12, 6, mean_action, state, advance=lambda: calls.append(1), pace=2) == rows
    assert same(again, whole)
    assert len(calls) == 6  # those of the first session too
    assert [path.name for path in state.parent.iterdir()] == ["state.pt"]
    finished = agent(kind)
    assert train(finished, DATA, RUNS, 12, 6, mean_action, state, pace=2) == rows
    assert same(finished, whole)


def test_a_state_is_trained_further_and_only_by_its_own_settings(tmp_path):
    state = tmp_path / "state.pt"
    train(agent(), DATA, RUNS, 4, 2, state=state)
    with pytest.raises(BadInput, match="trained for 4 steps already, more than the 2 asked for"):
        train(agent(), DATA, RUNS, 2, 2, state=state)
    whole, further = agent(), agent()
    rows = train(whole, DATA, RUNS, 8, 2)
    assert train(further, DATA, RUNS, 8, 2, state=state) == rows
    assert same(further, whole)
    for other, runs, data, what in (
        (agent(tau=0.5), RUNS, DATA, "tau"),
        (agent(runs=RUNS[::-1]), RUNS[::-1], DATA, "runs"),
        (agent(), RUNS, Transitions(*(2 * column for column in DATA)), "data"),
        (agent(pruned=False), RUNS, DATA, "pruning"),
    ):
        with pytest.raises(BadInput, match=rf"other settings \({what}\)"):
            train(other, data, runs, 8, 2, state=state)
    with pytest.raises(BadInput, match=r"other settings \(every\)"):  # its first row would hold the mean of others
        train(agent(), DATA, RUNS, 8, 4, state=state)


def test_saving_takes_place_at_most_so_often(tmp_path):
    state = tmp_path / "state.pt"
    seen = []
    train(agent(), DATA, RUNS, 4, 2, state=state, advance=lambda: seen.append(state.exists()), pace=1)
    assert seen == [False] * 4  # too soon for anything but the end
    state.unlink()
    seen.clear()
    train(agent(), DATA, RUNS, 4, 2, state=state, save_seconds=0, advance=lambda: seen.append(state.exists()), pace=1)
    assert seen == [False, True, True, True]


def test_a_diverged_run_stops_with_its_name():
    ours = agent()
    with torch.no_grad():
        ours.networks["critic"][1].layers[0].bias[2] = torch.nan
    with pytest.raises(
        FloatingPointError,
        match=r"Run\(seed=1, pruner='grasp', sparsity=0.75, rounds=1\): the critic loss is not finite by step 2",
    ):
        train(ours, DATA, RUNS, 4, 4, pace=2)


def test_steps_that_are_no_multiple_of_an_evaluation_are_refused():
    for steps, every, pace in ((5, 2, 1), (8, 4, 3), (4, 2, 0), (0, 1, 1)):
        with pytest.raises(
            BadInput, match=rf"steps={steps} must be a multiple of every={every}, and that of pace={pace}"
        ):
            train(agent(), DATA, RUNS, steps, every, pace=pace)


# What a recording as a CUDA graph needs


class NothingReadByPython(TorchDispatchMode):
    """Refuses what a recording cannot hold: a value of a tensor that Python reads, and shapes that depend on values."""

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        assert operation.overloadpacket.__name__ not in ("_local_scalar_dense", "nonzero", "equal"), operation
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", SETTINGS)
def test_the_losses_and_gradients_of_an_update_can_be_recorded(kind):
    ours = agent(kind)
    batch, noise = draw_batch(ours, DATA, Draws(ours.seeds), 4, 2, 1)
    for optimizer in ours.optimizers.values():
        optimizer.step = lambda: None  # Adam has its own form for recordings, which needs a GPU
    with NothingReadByPython():
        ours.update(batch, noise)
    with pytest.raises(AssertionError), NothingReadByPython():
        float(batch.rewards.sum())


class OnCPU(Graphed):
    """All of `Graphed` but the recording: a replay calls the function on the arguments that were kept."""

    def _aside(self, arguments):
        return self.function(*arguments)

    def _record(self, arguments):
        self.arguments = pytree.tree_map(torch.clone, arguments)
        self.graph = SimpleNamespace(replay=self._replay)

    def _replay(self):
        self.returned = self.function(*self.arguments)


@pytest.mark.parametrize("kind", SETTINGS)
def test_updates_on_arguments_kept_in_one_place_are_the_updates(kind):
    usual, replayed = agent(kind), agent(kind)
    update, draws = OnCPU(replayed.update), Draws(usual.seeds)
    for step in range(7):
        arguments = draw_batch(usual, DATA, draws, 4, 2, step)
        expected, found = usual.update(*arguments), update(*arguments)
        assert all(torch.equal(found[name], loss) for name, loss in expected.items())
    assert same(usual, replayed)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="recording a CUDA graph needs a GPU")
@pytest.mark.parametrize("kind", SETTINGS)
def test_replayed_updates_are_the_updates(kind):
    data = Transitions(*(column.cuda() for column in DATA))

    eager, replayed = agent(kind, data=data), agent(kind, data=data)
    update, draws = Graphed(replayed.update), Draws(eager.seeds, "cuda")
    for step in range(8):
        arguments = draw_batch(eager, data, draws, 4, 2, step)
        expected, found = eager.update(*arguments), update(*arguments)
        for name, loss in expected.items():
            torch.testing.assert_close(found[name], loss)
