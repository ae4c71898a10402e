"""Apply group-sparse training (paper 5, Algorithm 1) to anything trained: blocks, pruning, the shift, what is saved.

    begin(networks, compression)  # then make the optimizers
    algorithm = GroupSparseTraining(networks, compression, schedules, optimizers, reward=reward)
    algorithm.step(step)  # after each step of training: a loop calls it as its callback

The networks are one network of any layers that can be pruned, or a stack of runs. Of a stack every run has a schedule
and a phase of its own, and what it becomes does not depend on its stack; one network is treated as a stack of one. The
reward is whatever the learner reports: a return, an evaluation, the accuracy on held-out examples. Dense training and
pruning of single weights are the same without blocks (B = 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import partial

import numpy as np
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput, refuse_outside, refuse_twice
from lib.papers.gst.experiments.compression import BITMAPS, ratio
from lib.pruners import blocks, groups
from lib.pruners.layers import stacked_runs
from lib.pruners.pruner import Score


@dataclass(frozen=True)
class Compression:
    """Hold Algorithm 1's inputs besides the schedule's, and what it leaves open.

    Attributes:
        layers: weights that are compressed, such as "actor.layers.1.weight"; none: dense training.
        block: B.
        shift: S_shift, the sparsity at which the first phase ends. At 0 there is no first phase; at 1 it never ends.
        conversion: of the block size at the shift (section 3.3), see `blocks.phases`.
        second_shift: with a conversion, the sparsity at which blocks of two are released. The paper names none; by
            default 1, because its best ratio of Humanoid (66.5 %) fits blocks of two until the end if sparsity grows
            evenly.
        start: how coefficients begin, see `groups.group`.
        scope: what is ranked together: each "layer" (Algorithm 2), all of a "network", or of all networks ("global").
        carry: how Adam's state goes over at the shift, see `groups.regroup`.
        mask_targets: whether target networks are pruned and released with their networks. By default they are: what
            is removed has to be gone from all networks that are stored. Otherwise removed weights fade with tau.
        regrow: whether what is set to zero is trained on, so that it may grow again and counts anew at the next
            pruning; Algorithm 2 says "zeroize" and no more. By default it stays at zero, as the ratios count it. They
            count so with either reading, though weights that may grow are zero at the pruning alone.
    """

    layers: tuple[str, ...] = ()
    block: int = 1
    shift: float = 1.0
    conversion: str = "none"
    second_shift: float = 1.0
    start: str = "drawn"
    scope: str = "layer"
    carry: str = "shared"
    mask_targets: bool = True
    regrow: bool = False

    def __post_init__(self):
        refuse_outside("[0, 1]", shift=self.shift, second_shift=self.second_shift)
        refuse_twice(layers=self.layers)
        for name, known in (("start", groups.STARTS), ("carry", groups.CARRIES), ("scope", groups.SCOPES)):
            if getattr(self, name) not in known:
                raise BadInput(f"{name}={getattr(self, name)!r}: known are {', '.join(known)}")
        blocks.check_phases(self.block, self.conversion)

    def phases(self) -> list[tuple[torch.Tensor, float]]:
        """Give the tables in their order, each with the sparsity at which it ends."""
        tables = blocks.phases(self.block if self.shift else 1, self.conversion if self.shift else "none")
        ends = [self.shift, self.second_shift][: len(tables) - 1]
        return list(zip(tables, [*ends, np.inf], strict=True))


def begin(networks: nn.Module, compression: Compression) -> None:
    """Put blocks in place (Algorithm 1, lines 1 to 3), and masks that as yet remove nothing; without layers neither.

    Raises:
        BadInput: a layer that there is not, or whose size B does not divide.
    """
    table = compression.phases()[0][0]
    if len(table) > 1:
        chosen = dict.fromkeys(compression.layers, table)
        groups.group(networks, chosen, compression.start, releasable=True)
    if not compression.layers:  # of a dense network
        return
    weights = pruners.magnitude(networks).only(compression.layers)
    pruners.attach(networks, {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in weights.items()})


class GroupSparseTraining:
    """Do what Algorithm 1 does to a network, or a stack, between its training steps: a `callbacks.Callback`.

    Args:
        networks: one network or those of all runs, after `begin`.
        schedules: when and how much is removed, one a run; of one network one.
        optimizers: of the networks.
        followers: copies of the networks that are released, and if so set pruned, with them, such as targets.
        score: which coefficients go, of all runs or one a run, see `pruners.Pruner`; by default the smallest
            (Algorithm 2).
        reward: asked after each step what the learner reports, R_new, one number a run and -inf before there is one;
            None between two measurements. Without it the rewards are given to `step`.

    Attributes:
        pruner: which removes coefficients when a schedule asks for it.
        sparsity: share of the coefficients of the compressed layers that is removed, [run].
        phase: how many shifts there have been, [run].
        ratios: what is saved now (equations 2 and 3), {bitmap: [run]}.
        saved: the sums of them over the steps counted so far.
        steps: how many those are.
        rewards: what the learner reported last.
    """

    def __init__(
        self,
        networks: nn.Module,
        compression: Compression,
        schedules: Sequence[pruners.Schedule],
        optimizers: Iterable[torch.optim.Optimizer],
        followers: Iterable[nn.Module] = (),
        score: Score | Sequence[Score | None] = pruners.magnitude,
        reward: Callable[[int], Sequence[float] | None] | None = None,
    ):
        self.networks, self.compression, self.phases = networks, compression, compression.phases()
        self.optimizers, self.followers, self.reward = list(optimizers), list(followers), reward
        self.rewards: list[float] | None = None if reward is None else [-np.inf] * len(schedules)
        chosen = [layer for layer in pruners.prunable(networks) if layer.name in compression.layers]
        self.stacked = stacked_runs(chosen) is not None
        if not self.stacked and len(schedules) != 1 and chosen:
            raise BadInput(f"{len(schedules)} schedules for one network: give one")
        self.pools = _pools(networks, compression)
        pattern = partial(groups.whole_groups, scope=compression.scope)
        self.pruner = pruners.Pruner(score, pattern, schedules, compression.layers)
        self.sparsity, self.phase = np.zeros(len(schedules)), np.zeros(len(schedules), int)
        self.ratios, self.steps = self._ratios(), 0
        self.saved = {bitmap: np.zeros(len(schedules)) for bitmap in BITMAPS}

    def step(self, step: int, rewards: Sequence[float] | None = None) -> None:
        """Prune the runs whose target has risen and change the phase of those it is due; then count what is saved.

        Args:
            step: of the training so far; to be called once after each.
            rewards: R_new of each run, if their schedules ask for one; None: what the learner reports, if it does.
        """
        if rewards is None and self.reward is not None:
            if (found := self.reward(step)) is not None:
                self.rewards = [float(one) for one in found]  # of NumPy's a checkpoint could not be read again
            rewards = self.rewards
        if self.compression.layers:
            before = np.array(self.pruner.targets)
            if masks := self.pruner.step(self.networks, step, reward=rewards):
                self._follow(masks, np.flatnonzero(np.array(self.pruner.targets) > before).tolist())
        self.steps += 1
        for bitmap, sums in self.saved.items():
            sums += self.ratios[bitmap]

    def _follow(self, masks: Mapping[str, torch.Tensor], risen: Sequence[int]) -> None:
        """Do what comes after a pruning, and change the phase of those of the risen runs whose phase has ended."""
        for network in self.followers if self.compression.mask_targets else []:
            pruners.attach(network, masks)
        groups.forget(self.networks, self.optimizers)
        self.sparsity = self.sparsity.copy()  # a report may hold the old one
        self.sparsity[risen] = self._measure()[risen]  # where weights regrow, masks of the others are open
        for run in risen:  # others would shift when their stack is pruned
            while self._ends(run):
                self._shift(run)
        self.ratios = self._ratios()
        if self.compression.regrow:
            self._open()

    def _open(self) -> None:
        """Train on what has been set to zero: from now on masks remove nothing."""
        for network in (self.networks, *self.followers):
            masks = pruners.attached(network)
            pruners.attach(network, {name: torch.ones_like(mask) for name, mask in masks.items()})

    def report(self, run: int = 0) -> dict:
        """Give a run's phase and sparsity, and its ratios averaged over the steps so far: columns of a row."""
        averages = {f"ratio_{bitmap}": float(sums[run]) / max(self.steps, 1) for bitmap, sums in self.saved.items()}
        return {"phase": int(self.phase[run]), "sparsity": float(self.sparsity[run])} | averages

    def _ends(self, run: int) -> bool:
        """Whether a run's phase ends: as much is removed as masks of its last sparsity remove, which round."""
        table, end = self.phases[self.phase[run]]
        size = blocks.group_size(table)
        removed = round(self.sparsity[run] * sum(self.pools)) // size
        return end < 1 and removed >= sum(round(end * (weights // size)) for weights in self.pools)

    def _shift(self, run: int) -> None:
        """Algorithm 1's phase shift of one run, or a conversion of its block size."""
        self.phase[run] += 1
        tables = dict.fromkeys(self.compression.layers, self.phases[self.phase[run]][0])
        place = run if self.stacked else None
        groups.regroup(self.networks, tables, place, self.optimizers, self.compression.carry)
        for network in self.followers:
            groups.regroup(network, tables, place)
        self.sparsity[run] = self._measure()[run]

    def _measure(self) -> np.ndarray:
        """S_now of each run: every coefficient stands for as many weights, so it is the masks' share of zeros."""
        masks = pruners.attached(self.networks).values()
        masks = [mask.flatten(1) if self.stacked else mask.reshape(1, -1) for mask in masks]
        return 1 - torch.cat(masks, 1).double().mean(1).cpu().numpy()

    def _ratios(self) -> dict[str, np.ndarray]:
        """The share of the compressed networks' bits that is saved now, {bitmap: [run]}; of dense runs 0."""
        layers, sizes = self.compression.layers, np.array([blocks.group_size(table) for table, _ in self.phases])
        part = share(self.networks, layers) if layers else 0.0
        return {bitmap: ratio(self.sparsity, sizes[self.phase], part, bitmap) for bitmap in BITMAPS}

    def identity(self) -> dict:
        """Say what must be the same when a training goes on."""
        compression = {**asdict(self.compression), "layers": list(self.compression.layers)}
        return {"compression": compression, "schedules": [settings_of(one) for one in self.pruner.schedules]}

    def state_dict(self) -> dict:
        """Return everything but the networks and the optimizers."""
        return {
            "rewards": self.rewards,
            "pruner": self.pruner.state_dict(),
            "sparsity": self.sparsity.tolist(),
            "phase": self.phase.tolist(),
            "saved": {bitmap: sums.tolist() for bitmap, sums in self.saved.items()},
            "steps": self.steps,
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called, the networks already as they were."""
        self.rewards = content["rewards"]
        self.pruner.load_state_dict(content["pruner"])
        self.sparsity = np.array(content["sparsity"])
        self.phase, self.steps = np.array(content["phase"], int), content["steps"]
        self.saved = {bitmap: np.array(sums) for bitmap, sums in content["saved"].items()}
        self.ratios = self._ratios()


def settings_of(schedule: pruners.Schedule) -> dict:
    """Give what a schedule was made with, without what it has remembered since; of one of your own that is no
    dataclass, its name and what its `identity`, if it has one, adds.
    """
    if is_dataclass(schedule):
        return {field.name: getattr(schedule, field.name) for field in fields(schedule) if field.init}
    return {"schedule": type(schedule).__qualname__} | getattr(schedule, "identity", dict)()


def _pools(networks: nn.Module, compression: Compression) -> list[int]:
    """How many weights of a run are ranked together, each time."""
    pools: dict[str, int] = {}
    for layer in pruners.prunable(networks):
        if layer.name in compression.layers:
            pool = {"layer": layer.name, "network": layer.network, "global": ""}[compression.scope]
            pools[pool] = pools.get(pool, 0) + _numbers(layer)
    return list(pools.values())


def _numbers(layer: pruners.Prunable) -> int:
    """Count the weights that a layer has, of a stack each run's."""
    return layer.weight.numel() // (layer.runs or 1)


def share(networks: nn.Module, layers: Sequence[str]) -> float:
    """Compute P_comp / P_total: of the weights of the networks that hold compressed layers, biases left out.

    So the paper counts: 91.7 % of HalfCheetah's and 97.4 % of Humanoid's parameters are shares of the actor's weights.
    """
    weights = {layer.name: layer for layer in pruners.prunable(networks)}
    compressed = {weights[name].network for name in layers}
    total = sum(_numbers(layer) for layer in weights.values() if layer.network in compressed)
    return sum(_numbers(weights[name]) for name in layers) / total
