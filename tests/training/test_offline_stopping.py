"""Laws of `lib.training.offline`: stopping and going on, what is refused, and recorded updates."""

from types import SimpleNamespace

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from lib.base import BadInput
from lib.training import checkpoints
from lib.training.agents import Draws, Transitions, draw_batch
from lib.training.graphs import Graphed
from lib.training.offline import Pruning, prune, train
from tests.training.small_agents import DATA, RUNS, SETTINGS, agent, mean_action, same


@pytest.mark.parametrize("kind", SETTINGS)
@pytest.mark.parametrize("stop", [1, 2, 3, 5])
def test_a_stopped_training_goes_on_with_the_same_numbers(kind, stop, tmp_path):
    def on_progress():
        on_progress.calls += 1
        if on_progress.calls == stop:
            raise InterruptedError

    whole = agent(kind)
    rows = train(whole, DATA, RUNS, 12, 6, mean_action, stop_every=2)
    on_progress.calls, state = 0, tmp_path / "deep" / "state.pt"
    with pytest.raises(InterruptedError):
        train(agent(kind), DATA, RUNS, 12, 6, mean_action, state, on_progress=on_progress, stop_every=2)
    calls = []
    again = agent(kind, pruned=False)  # masks come from the pruning, which a restarted run does again
    prune(again, DATA, RUNS, Pruning(4, 8))
    assert (
        train(again, DATA, RUNS, 12, 6, mean_action, state, on_progress=lambda: calls.append(1), stop_every=2) == rows
    )
    assert same(again, whole)
    assert len(calls) == 6  # those of the first session too
    assert [path.name for path in state.parent.iterdir()] == ["state.pt"]
    finished = agent(kind)
    assert train(finished, DATA, RUNS, 12, 6, mean_action, state, stop_every=2) == rows
    assert same(finished, whole)


def test_rows_do_not_depend_on_how_often_a_training_may_be_stopped():
    often, seldom = (train(agent("bc"), DATA, RUNS, 6, 3, stop_every=stop_every) for stop_every in (1, 3))
    assert often == seldom


def test_a_state_is_not_trained_further_under_other_masks(tmp_path):
    """The same runs may be pruned otherwise, as by another machine's rounding: the weights would not fit the masks."""
    state = tmp_path / "state.pt"
    train(agent("bc"), DATA, RUNS, 2, 2, state=state)
    other = agent("bc")
    other.attach({name: mask.flip(-1) for name, mask in other.attached().items()})
    with pytest.raises(BadInput, match=r"other settings \(masks\): move it away"):
        train(other, DATA, RUNS, 4, 2, state=state)


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
        (agent(runs=RUNS[::-1]), RUNS[::-1], DATA, "runs, masks"),
        (agent(), RUNS, Transitions(*(2 * column for column in DATA)), "data"),
        (agent(), RUNS, DATA._replace(actions=DATA.actions.flip(0)), "data"),  # whose sums are the same
        (agent(pruned=False), RUNS, DATA, "pruning, masks"),
    ):
        with pytest.raises(BadInput, match=rf"other settings \({what}\)"):
            train(other, data, runs, 8, 2, state=state)
    with pytest.raises(BadInput, match=r"other settings \(every\)"):  # its first row would hold the mean of others
        train(agent(), DATA, RUNS, 8, 4, state=state)


def test_saving_takes_place_at_most_so_often(tmp_path, monkeypatch):
    state = tmp_path / "state.pt"
    seen = []
    train(agent(), DATA, RUNS, 4, 2, state=state, on_progress=lambda: seen.append(state.exists()), stop_every=1)
    assert seen == [False] * 4  # too soon for anything but the end
    state.unlink()
    seen.clear()
    monkeypatch.setattr(checkpoints, "SAVE_SECONDS", 0)
    train(agent(), DATA, RUNS, 4, 2, state=state, on_progress=lambda: seen.append(state.exists()), stop_every=1)
    assert seen == [False, True, True, True]


def test_a_diverged_run_stops_with_its_name():
    ours = agent()
    with torch.no_grad():
        ours.networks["critic"][1].layers[0].bias[2] = torch.nan
    with pytest.raises(
        FloatingPointError,
        match=r"Run\(seed=1, pruner='grasp', sparsity=0.75, rounds=1\): the critic loss is not finite by step 2",
    ):
        train(ours, DATA, RUNS, 4, 4, stop_every=2)


def test_steps_that_are_no_multiple_of_an_evaluation_are_refused():
    for steps, every, pace in ((5, 2, 1), (8, 4, 3), (4, 2, 0), (0, 1, 1)):
        with pytest.raises(
            BadInput, match=rf"steps={steps} must be a multiple of every={every}, and that of stop_every={pace}"
        ):
            train(agent(), DATA, RUNS, steps, every, stop_every=pace)


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
