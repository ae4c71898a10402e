"""Laws of group-sparse training whatever is trained: one network is a stack of one, convolutions, any reward."""

import copy
import itertools

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant, expand, project
from lib.models.mlp import MLP, generators, plain
from lib.papers.gst.experiments.algorithm import Compression, GroupSparseTraining, begin, share
from lib.papers.gst.experiments.compression import packed_ratio
from lib.pruners import blocks

WAYS = [
    Compression(("layers.1.weight",), block=4, shift=0.5),
    Compression(("layers.1.weight",), block=4, shift=0.25, second_shift=0.6, conversion="block4_friendly_block2"),
    Compression(("layers.1.weight", "layers.2.weight"), block=2, shift=0.5, scope="network"),
    Compression(("layers.1.weight",)),
]


def disturb(weights: dict[str, nn.Parameter], optimizer: torch.optim.Optimizer, step: int) -> None:
    """A step of the optimizer with made-up gradients, the same for one network and for a stack of one."""
    draw = torch.Generator().manual_seed(step)
    for parameter in weights.values():
        parameter.grad = torch.randn(parameter.numel(), generator=draw).reshape(parameter.shape)
    optimizer.step()


@pytest.mark.parametrize("compression", WAYS)
def test_what_happens_to_one_network_is_what_happens_to_a_stack_of_one(compression):
    stack = MLP((8, 8, 16, 8), generators([0]))
    single = plain(stack)
    names = {f"layers.{number}.weight": f"{2 * number}.weight" for number in range(3)}
    own = Compression(**{**vars(compression), "layers": tuple(names[name] for name in compression.layers)})
    sides = []
    for model, chosen in ((stack, compression), (single, own)):
        begin(model, chosen)
        weights = {
            layer.name: pruners.masks.original(layer)
            for layer in pruners.prunable(model)
            if layer.name in chosen.layers
        }
        optimizer = torch.optim.Adam(weights.values(), 0.05)
        schedule = pruners.Gradual(0.8, every=2, times=8)
        sides.append((model, weights, optimizer, GroupSparseTraining(model, chosen, [schedule], [optimizer])))
    for step in range(1, 25):
        for _, weights, optimizer, algorithm in sides:
            disturb(weights, optimizer, step)
            algorithm.step(step)
        (_, _, one, left), (_, _, other, right) = sides
        before, after = pruners.prunable(stack), pruners.prunable(single)
        assert all(torch.equal(a.weight[0], b.weight) for a, b in zip(before, after, strict=True))
        assert left.report(0) == right.report()
        for a, b in zip(one.state.values(), other.state.values(), strict=True):
            assert torch.equal(a["exp_avg"][0], b["exp_avg"])
            assert torch.equal(a["exp_avg_sq"][0], b["exp_avg_sq"])
    assert left.report(0)["sparsity"] == pytest.approx(0.8, abs=0.02)
    assert left.report(0)["phase"] == len(compression.phases()) - 1


def network() -> nn.Module:
    """Two convolutions that can be cut into blocks of four, and a last layer that cannot."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 16, 3)
    )


def learn(model: nn.Module, algorithm: GroupSparseTraining, optimizer: torch.optim.Optimizer, steps: range) -> None:
    """A few steps of learning noise."""
    for step in steps:
        draw = torch.Generator().manual_seed(step)
        inputs, labels = torch.randn(8, 1, 8, 8, generator=draw), torch.randint(3, (8,), generator=draw)
        loss = nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        algorithm.step(step)


def begun(schedule, reward=None, block=4, shift=0.5):
    model, compression = network(), Compression(("2.weight",), block=block, shift=shift)
    begin(model, compression)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, weight_decay=0.01)
    return model, optimizer, GroupSparseTraining(model, compression, [schedule], [optimizer], reward=reward)


def test_each_place_of_a_kernel_is_circulant_until_the_shift_and_what_is_removed_stays_removed():
    model, optimizer, algorithm = begun(pruners.Gradual(0.9, every=1, times=20))
    gone, packed = torch.zeros(16, 8, 3, 3, dtype=torch.bool), []
    for step in range(1, 26):
        released = algorithm.phase[0] == 1
        learn(model, algorithm, optimizer, range(step, step + 1))
        weight = model[2].weight.detach()
        assert bool((weight[gone] == 0).all())
        gone = weight == 0
        places = weight.permute(2, 3, 0, 1)
        circular = torch.equal(expand(project(places, circulant(4)), circulant(4), (16, 8)), places)
        assert circular != released  # the release itself changes no value
        weights = {layer.name: layer.weight for layer in pruners.prunable(model)}
        table = circulant(4) if algorithm.phase[0] == 0 else blocks.single(4)
        packed.append(packed_ratio(weights, {"2.weight": table}, "weights"))
    assert algorithm.phase.tolist() == [1]
    assert float(gone.float().mean()) == pytest.approx(0.9, abs=0.001)
    assert algorithm.report()["ratio_weights"] == pytest.approx(np.mean(packed), abs=1e-3)
    assert share(model, ["2.weight"]) == 16 * 8 * 9 / (8 * 9 + 16 * 8 * 9 + 256 * 3)


@pytest.mark.parametrize("regrow", [True, False])
@pytest.mark.parametrize("block", [1, 4])
def test_what_is_set_to_zero_comes_back_only_where_it_may(block, regrow):
    """So it moves between two prunings, and the second keeps some of what the first took; S is the schedule's."""
    model, compression = network(), Compression(("2.weight",), block=block, shift=0.5, regrow=regrow)
    begin(model, compression)
    weights = {layer.name: pruners.masks.original(layer) for layer in pruners.prunable(model)}
    optimizer = torch.optim.Adam(weights.values(), 0.05)
    algorithm = GroupSparseTraining(model, compression, [pruners.Gradual(0.6, every=10, times=3)], [optimizer])
    removed, moved = [], []
    for step in range(1, 36):
        disturb(weights, optimizer, step)
        algorithm.step(step)
        zero = model[2].weight.detach() == 0
        if step in (10, 20, 30):
            removed.append(zero)
            assert float(zero.float().mean()) == pytest.approx(algorithm.pruner.targets[0], abs=0.02)
        if removed:
            moved.append(bool((removed[-1] & ~zero).any()))
        share_now = float(removed[-1].float().mean()) if removed else 0.0  # until the next pruning S counts this
        assert algorithm.report()["sparsity"] == pytest.approx(share_now, abs=1e-6)
    assert len(removed) == 3
    back = [bool((before & ~after).any()) for before, after in itertools.pairwise(removed)]
    assert back == [regrow] * 2
    assert moved == [regrow and step not in (10, 20, 30) for step in range(10, 36)]


def test_of_a_stack_whose_weights_may_regrow_each_run_has_its_own_sparsity():
    """One is pruned while the other rests, whose masks are open then; what rests keeps the sparsity it had."""
    stack, names = MLP((8, 8, 16, 8), generators([0, 1])), ("layers.1.weight",)
    compression = Compression(names, regrow=True)
    begin(stack, compression)
    schedules = [pruners.Gradual(0.5, every=1, times=1), pruners.Gradual(0.75, every=1, times=2)]
    algorithm = GroupSparseTraining(stack, compression, schedules, [])
    algorithm.step(1)
    first = algorithm.sparsity[0]
    algorithm.step(2)
    assert (first, algorithm.sparsity.tolist()) == (0.5, [0.5, 0.75])


def test_the_learner_reports_a_reward_when_it_has_one_and_the_latest_counts_until_then():
    asked, reports = [], {3: [0.5], 5: [0.7]}

    class Listening(pruners.Once):
        def target(self, step, reward=None):
            asked.append(reward)
            return 0.0

    model, optimizer, algorithm = begun(Listening(0.0), reports.get)
    learn(model, algorithm, optimizer, range(1, 7))
    assert asked == [-np.inf, -np.inf, 0.5, 0.5, 0.7, 0.7]


def test_a_single_network_goes_on_bit_for_bit():
    rewards = {step: [float(step)] for step in range(1, 30)}

    def schedule():
        return pruners.RewardAware(0.1, every=2)

    whole = begun(schedule(), rewards.get)
    learn(*(whole[place] for place in (0, 2, 1)), range(1, 21))
    first = begun(schedule(), rewards.get)
    learn(*(first[place] for place in (0, 2, 1)), range(1, 13))
    kept = copy.deepcopy([part.state_dict() for part in first])
    again = begun(schedule(), rewards.get)
    for part, state in zip(again, kept, strict=True):
        part.load_state_dict(state)
    learn(*(again[place] for place in (0, 2, 1)), range(13, 21))
    assert whole[2].phase.tolist() == [1]
    for left, right in zip(pruners.prunable(whole[0]), pruners.prunable(again[0]), strict=True):
        assert torch.equal(left.weight, right.weight)
    assert whole[2].report() == again[2].report()


def test_one_network_has_one_schedule():
    model, compression = network(), Compression(("2.weight",), block=4)
    begin(model, compression)
    with pytest.raises(BadInput, match="2 schedules for one network: give one"):
        GroupSparseTraining(model, compression, [pruners.Once(0.5), pruners.Once(0.5)], [])


def test_a_schedule_of_ones_own_needs_no_more_than_a_target():
    class Mine:
        def target(self, step, reward=None):
            return 0.5

    network = nn.Sequential(nn.Linear(8, 8))
    compression = Compression(("0.weight",), block=2)
    begin(network, compression)
    optimizer = torch.optim.Adam(network.parameters())
    algorithm = GroupSparseTraining(network, compression, [Mine()], [optimizer])
    assert algorithm.report()["ratio_none"] == 0  # before the first step there is no average
    algorithm.step(1)
    assert algorithm.report()["sparsity"] == 0.5
    named = {"schedule": f"{Mine.__qualname__}"}
    assert algorithm.identity()["schedules"] == [named]
    Mine.identity = lambda self: {"share": 0.5}
    assert algorithm.identity()["schedules"] == [named | {"share": 0.5}]


def test_a_phase_that_is_released_at_1_never_ends_however_few_coefficients_there_are():
    network = nn.Sequential(nn.Linear(4, 4))  # eight coefficients of which 95 % round to all
    compression = Compression(("0.weight",), block=2, shift=1.0)
    begin(network, compression)
    optimizer = torch.optim.Adam(network.parameters())
    algorithm = GroupSparseTraining(network, compression, [pruners.Once(0.95)], [optimizer])
    with pytest.warns(pruners.Emptied):
        algorithm.step(1)
    assert (algorithm.report()["sparsity"], algorithm.report()["phase"]) == (1.0, 0)
