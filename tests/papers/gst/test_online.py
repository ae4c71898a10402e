"""Laws of group-sparse TD3: Algorithm 1 as settings, runs that do not know their stack, exact resumption."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant, expand, project
from lib.papers.gst.experiments.algorithm import Compression, GroupSparseTraining, share
from lib.papers.gst.experiments.compression import packed_ratio
from lib.papers.gst.experiments.online import Evaluation, Reward, start
from lib.pruners import blocks
from lib.pruners import groups as gs
from lib.training import td3

SMALL = td3.TD3Settings(hidden=(8, 8), batch=16, random_steps=10, buffer=70, learning_rate=1e-3)
LAYER = "actor.layers.1.weight"
BLOCKS = Compression((LAYER,), block=4, shift=0.5)
SOMETIMES = Evaluation(every=40, episodes=1)
RAMP = pruners.Gradual(0.8, every=10, times=8)
LATEST = Reward()


def begun(
    compression=BLOCKS, schedule=RAMP, seeds=(0,), env="InvertedPendulum-v4", settings=SMALL, reward=LATEST
) -> td3.TD3Trainer:
    return start(env, seeds, settings, compression, schedule, SOMETIMES, reward)


def trained(steps=80, every_step=lambda trainer: None, folder=None, **how) -> td3.TD3Trainer:
    trainer = begun(**how)
    td3.train(trainer, steps, every_step, folder)
    return trainer


def actor(trainer, run=0):
    return trainer.agent.networks["actor"].layers[1].weight[run].detach()


def shared(weight, table):
    return torch.equal(expand(project(weight, table), table, weight.shape), weight)


def equal(one, run, other, place):
    """Whether a run of one trainer is a run of another in all that was learned, seen, earned and saved."""
    tensors = [
        (a[run], b[place])
        for mine, theirs in ((one.agent.networks, other.agent.networks), (one.agent.targets, other.agent.targets))
        for a, b in zip(mine.state_dict().values(), theirs.state_dict().values(), strict=True)
        if a.dim() > 1  # not the bound, which all runs share
    ]
    mine, theirs = ([row for row in trainer.callback.rows if row["seed"] == one.seeds[run]] for trainer in (one, other))
    return mine == theirs and one.returns[run] == other.returns[place] and all(torch.equal(a, b) for a, b in tensors)


# Algorithm 1


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_blocks_are_held_until_the_shift_then_single_weights_are_pruned_further(precision):
    history = []

    def look(trainer):
        now = trainer.callback.algorithm
        history.append((trainer.steps, float(now.sparsity[0]), int(now.phase[0]), actor(trainer)))

    trained(every_step=look, settings=replace(SMALL, precision=precision))
    for step, sparsity, phase, weight in history:
        assert phase == (sparsity >= 0.5)
        assert weight.dtype == torch.float32
        assert float((weight == 0).float().mean()) == sparsity
        assert abs(sparsity - RAMP.target(step)) <= 1 / 32  # of 16 coefficients
        if not phase:
            assert shared(weight, circulant(4))
    assert not shared(weight, circulant(4))
    assert (sparsity, phase) == (51 / 64, 1)  # 0.8, rounded


@pytest.mark.parametrize("conversion", ["none", "block4_friendly_block2", "block2_friendly_block4"])
def test_at_the_shift_neither_weights_nor_targets_jump(conversion, monkeypatch):
    jumps = []

    def looking(self, run, shift=GroupSparseTraining._shift):
        seen = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(0))
        networks = [networks["actor"] for networks in (self.networks, *self.followers)]
        before = [network(seen) for network in networks]
        shift(self, run)
        jumps.append([torch.equal(network(seen), old) for network, old in zip(networks, before, strict=True)])

    monkeypatch.setattr(GroupSparseTraining, "_shift", looking)
    trainer = trained(compression=replace(BLOCKS, conversion=conversion, second_shift=0.7))
    assert jumps == [[True, True]] * (1 if conversion == "none" else 2)
    assert trainer.callback.algorithm.phase[0] == len(jumps)


def test_a_projection_jumps_and_its_weights_are_pruned_with_the_next_rise():
    trainer = trained(compression=replace(BLOCKS, conversion="projection"))
    assert trainer.callback.algorithm.phase[0] == 1  # blocks of two until the end
    assert shared(actor(trainer), blocks.within(4, 2))
    assert trainer.callback.algorithm.sparsity[0] == 26 / 32


@pytest.mark.parametrize("without", [{"block": 1}, {"shift": 0.0}])
def test_without_blocks_or_a_first_phase_it_is_pruning_of_single_weights(without):
    trainer = trained(20, compression=replace(BLOCKS, **without))
    other = td3.start("InvertedPendulum-v4", [0], SMALL)
    layers = pruners.prunable(other.agent.networks)
    pruners.attach(other.agent.networks, {la.name: la.weight != 0 for la in layers if la.name == LAYER})
    td3.train(other, 9)
    assert torch.equal(trainer.replay.rows[:, :9], other.replay.rows[:, :9])
    assert gs.tables(trainer.agent.networks) == {}
    assert trainer.callback.algorithm.sparsity[0] == round(64 * RAMP.target(20)) / 64


def test_in_bfloat16_the_layer_with_blocks_multiplies_in_bfloat16():
    trainer, seen = begun(settings=replace(SMALL, precision="bfloat16")), []
    layer = trainer.agent.networks["actor"].layers[1]
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    td3.train(trainer, SMALL.random_steps)  # nothing is learned before
    seen.clear()
    td3.train(trainer, SMALL.random_steps + 8)  # the actor learns every second step
    assert seen.count(torch.bfloat16) == 4
    assert set(seen) == {torch.bfloat16, torch.float32}  # an action in the environment is chosen in float32


def test_dense_training_is_td3s_own():
    trainer = trained(60, compression=Compression(), schedule=pruners.Once(0.0), seeds=(3,))
    other = td3.start("InvertedPendulum-v4", [3], SMALL)
    td3.train(other, 60)
    assert torch.equal(trainer.replay.rows, other.replay.rows)
    assert trainer.callback.rows[0]["ratio_weights"] == 0


def test_the_shift_of_1_is_never_reached():
    trainer = trained(compression=replace(BLOCKS, shift=1.0))
    assert trainer.callback.algorithm.phase[0] == 0
    assert trainer.callback.algorithm.sparsity[0] == 13 / 16


def test_targets_are_pruned_with_their_networks_or_fade():
    masked, fading = (trained(60, compression=replace(BLOCKS, mask_targets=mask)) for mask in (True, False))
    for trainer, same in ((masked, True), (fading, False)):
        target = trainer.agent.targets["actor"].layers[1].weight[0]
        assert torch.equal(target != 0, actor(trainer) != 0) == same
    gone = (actor(fading) == 0) & (fading.agent.targets["actor"].layers[1].weight[0] != 0)
    first = expand(project(actor(begun()), circulant(4)), circulant(4), (8, 8))
    assert (fading.agent.targets["actor"].layers[1].weight[0][gone].abs() < first[gone].abs()).float().mean() > 0.9


def test_the_reward_is_the_mean_of_the_last_episodes_or_the_evaluations():
    asked = []

    class Listening(pruners.Once):
        def target(self, step, reward=None):
            asked.append(reward)
            return 0.0

    trainer = trained(reward=Reward(window=3), schedule=Listening(0.0))
    assert asked[0] == -np.inf
    assert asked[-1] == pytest.approx(np.mean(trainer.returns[0][-3:]))
    asked.clear()
    trainer = trained(reward=Reward("evaluation"), schedule=Listening(0.0))
    assert asked[:39] == [-np.inf] * 39
    assert asked[39:79] == [trainer.callback.rows[0]["return"]] * 40
    assert asked[79] == trainer.callback.rows[1]["return"]


# What is saved


def test_ratios_are_those_of_equation_3_averaged_over_all_steps_and_of_packed_bytes():
    found = []

    def pack(trainer):
        algorithm = trainer.callback.algorithm
        layer = algorithm.phases[algorithm.phase[0]][0]
        table = layer if algorithm.phase[0] == 0 else blocks.single(4)
        weights = {la.name: la.weight[0] for la in pruners.prunable(trainer.agent.networks) if la.network == "actor"}
        found.append(packed_ratio(weights, {LAYER: table}, "weights"))

    rows = trained(every_step=pack).callback.rows
    assert rows[-1]["ratio_weights"] == pytest.approx(np.mean(found), abs=1e-9)
    assert rows[0]["ratio_weights"] == pytest.approx(np.mean(found[:40]), abs=1e-9)
    assert rows[-1]["ratio_weights"] < rows[-1]["ratio_coefficients"] < rows[-1]["ratio_none"]


def test_the_papers_shares():
    for sizes, layers, printed in (((17, 6), [LAYER], 0.91756), ((376, 17), ["actor.layers.0.weight", LAYER], 0.97381)):
        stack = td3.networks(sizes[0], np.ones(sizes[1], np.float32), [0, 1], td3.TD3Settings())
        assert share(stack, layers) == pytest.approx(printed, abs=1e-5)


# Stacks and sessions


def test_a_run_does_not_depend_on_its_stack_and_shifts_by_itself():
    class Own(pruners.Once):
        def target(self, step, reward=None):
            return self.sparsity * (step >= self.at)

    schedules = [Own(0.75, at=30), Own(0.25, at=20), Own(0.5, at=50)]
    stack = trained(schedule=schedules, seeds=(3, 1, 2), env="Hopper-v4")
    assert stack.callback.algorithm.phase.tolist() == [1, 0, 1]
    for place, seed in enumerate((3, 1, 2)):
        alone = trained(schedule=[schedules[place]], seeds=(seed,), env="Hopper-v4")
        assert equal(alone, 0, stack, place)


@pytest.mark.parametrize("stop", [25, 55])  # in either phase
def test_a_stopped_session_goes_on_bit_for_bit(stop, tmp_path):
    def how():
        schedules = [pruners.RewardAware(0.1, every=2, initial_reward=-1e9), RAMP]
        return {"schedule": schedules, "seeds": (0, 1), "reward": Reward(window=2)}

    whole = trained(**how())
    assert whole.callback.algorithm.sparsity[0] > 0
    assert whole.callback.algorithm.phase[1] == 1
    trained(stop, folder=tmp_path, **how())
    third = trained(folder=tmp_path, **how())
    assert third.steps == 80
    assert third.callback.rows == whole.callback.rows
    assert all(equal(whole, run, third, run) for run in (0, 1))
    mine, theirs = (one.callback.algorithm.saved for one in (whole, third))
    assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
    others = {
        "compression": {"compression": replace(BLOCKS, block=2)},
        "schedules": {"schedule": [RAMP, RAMP]},
        "reward": {"reward": Reward(window=3)},
    }
    for name, other in others.items():
        with pytest.raises(BadInput, match=rf"is a session with other .*{name}"):
            trained(folder=tmp_path, **how() | other)


# Bad input


def test_what_cannot_be_is_refused():
    for change, line in (
        ({"shift": 1.5}, r"shift=1.5 is not in \[0, 1\]"),
        ({"second_shift": -0.1}, r"second_shift=-0.1 is not in \[0, 1\]"),
        ({"start": "zzz"}, "start='zzz': known are drawn, projected"),
        ({"carry": "zzz"}, "carry='zzz': known are shared, copied"),
        ({"scope": "zzz"}, "scope='zzz': known are layer, network, global"),
        ({"block": 2.5}, "block=2.5: expected a whole number"),
        ({"block": 2, "conversion": "projection"}, "from block size 4 to 2"),
    ):
        with pytest.raises(BadInput, match=line):
            replace(BLOCKS, **change)
    for wrong, line in (
        ({"source": "hope"}, "reward='hope': known are training, evaluation"),
        ({"window": 0}, "window=0: expected a whole number, at least 1"),
    ):
        with pytest.raises(BadInput, match=line):
            Reward(**wrong)
    with pytest.raises(BadInput, match="block size 3 does not divide its 8 outputs"):
        begun(replace(BLOCKS, block=3))
    with pytest.raises(BadInput, match=r"no 'actor.layers.7.weight'; there are scores for"):
        begun(replace(BLOCKS, layers=("actor.layers.7.weight",), block=1))
    for wrong in ({"every": 0}, {"every": 5, "episodes": 0}):
        with pytest.raises(BadInput, match="must both be 1 or more"):
            Evaluation(**wrong)
    with pytest.raises(BadInput, match="1 schedules for 2 runs"):
        begun(schedule=[RAMP], seeds=(0, 1))


def test_a_shift_that_comes_below_its_sparsity_is_refused_because_no_row_would_show_it():
    begun(replace(BLOCKS, shift=0.3))  # of 16 coefficients 4.8, which masks round up
    begun(replace(BLOCKS, shift=0.1875))
    with pytest.raises(BadInput, match=r"shift=0\.2: it comes with 3 of 16 coefficients, .* give 0\.1875"):
        begun(replace(BLOCKS, shift=0.2))
