"""Group-sparse training (paper 5, Algorithm 1) of a stack of TD3 runs: blocks, pruning, the phase shift, what is saved.

Every run has a schedule, a sparsity and a phase of its own, and what it becomes does not depend on its stack. Dense
training, gradual and reward-aware pruning are the same training without blocks (B = 1).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from typing import Protocol

import numpy as np
import torch
from torch import nn

from lib import pruners
from lib.errors import BadInput
from lib.evaluation.compression import BITMAPS, ratio
from lib.evaluation.rollouts import rollouts
from lib.pruners import group_sparse
from lib.training import td3
from lib.training.environments import Environments
from lib.training.supervised import seed_of

REWARDS = ("training", "evaluation")
EVALUATION = 3  # a stream of random numbers of its own: TD3 has 0 to 2


class Schedule(Protocol):
    """`pruners.Gradual`, `pruners.RewardAware` or another, a dataclass."""

    def target(self, step: int, reward: float | None = None) -> float: ...


@dataclass(frozen=True)
class Compression:
    """Algorithm 1's inputs besides the schedule's, and what it leaves open.

    Attributes:
        layers: weights that are compressed, such as "actor.layers.1.weight"; none: dense training.
        block: B.
        shift: S_shift, the sparsity at which the first phase ends. At 0 there is no first phase, 1 is never reached.
        conversion: of the block size at the shift (section 3.3), see `group_sparse.phases`.
        second_shift: with a conversion, the sparsity at which blocks of two are released. The paper names none; by
            default 1, because its best ratio of Humanoid (66.5 %) fits only blocks of two until the end.
        start: how coefficients begin, see `group_sparse.group`.
        pad: whether blocks may reach over the end of a weight.
        scope: what is ranked together: each "layer" (Algorithm 2), or all of a "network".
        carry: how Adam's state goes over at the shift, see `group_sparse.regroup`.
        mask_targets: whether target networks are pruned and released with their networks. By default they are: what
            is removed has to be gone from all networks that are stored. Otherwise removed weights fade with tau.
        reward: R_new, the mean return of the latest "training" episodes, with their noise, which costs nothing, or of
            the latest "evaluation". The paper has whatever generating experience gives, so training is the default.
        window: of training episodes.
    """

    layers: tuple[str, ...] = ()
    block: int = 1
    shift: float = 1.0
    conversion: str = "none"
    second_shift: float = 1.0
    start: str = "drawn"
    pad: bool = False
    scope: str = "layer"
    carry: str = "shared"
    mask_targets: bool = True
    reward: str = "training"
    window: int = 10

    def __post_init__(self):
        for name in ("shift", "second_shift"):
            if not 0 <= getattr(self, name) <= 1:
                raise BadInput(f"{name}={getattr(self, name)} is not in [0, 1]")
        if self.reward not in REWARDS:
            raise BadInput(f"reward={self.reward!r}: known are {', '.join(REWARDS)}")
        if self.window < 1:
            raise BadInput(f"window={self.window} must be at least 1")
        group_sparse.check_phases(self.block, self.conversion)

    def phases(self) -> list[tuple[torch.Tensor, float]]:
        """Tables, and the sparsity at which each ends."""
        tables = group_sparse.phases(self.block if self.shift else 1, self.conversion if self.shift else "none")
        ends = [self.shift, self.second_shift][: len(tables) - 1]
        return list(zip(tables, [*ends, np.inf], strict=True))


@dataclass(frozen=True)
class Evaluation:
    """When and how long the agents play.

    Attributes:
        every: steps from one evaluation to the next.
        episodes: of each.
    """

    every: int
    episodes: int = 10


class Trainer(td3.Trainer):
    """A stack of TD3 runs that are compressed while they learn.

    Attributes:
        targets: the sparsity that the schedule asked for last, [run].
        sparsity: share of the coefficients of the compressed layers that is removed, [run].
        phase: how many shifts there have been, [run].
        ratios: what is saved now (equations 2 and 3), {bitmap: [run]}.
        saved: the sums of them over the steps so far.
        rows: one an evaluation and run.
    """

    def __init__(
        self,
        agent: td3.Agent,
        environments: Environments,
        seeds: Sequence[int],
        compression: Compression,
        schedules: Sequence[Schedule],
        evaluation: Evaluation,
    ):
        super().__init__(agent, environments, seeds)
        if len(schedules) != len(self.seeds):
            raise BadInput(f"{len(schedules)} schedules for {len(self.seeds)} runs: each run has its own")
        self.compression, self.schedules, self.evaluation = compression, list(schedules), evaluation
        self.phases = compression.phases()
        self.targets, self.sparsity, self.phase = np.zeros(len(seeds)), np.zeros(len(seeds)), np.zeros(len(seeds), int)
        self.measured = np.full(len(seeds), -np.inf)  # the returns of the latest evaluation
        self.ratios, self.saved = self._ratios(), {bitmap: np.zeros(len(seeds)) for bitmap in BITMAPS}
        self.rows: list[dict] = []

    def step(self) -> None:
        """One step of TD3; then, where a run's schedule asks for it, pruning and the shift."""
        super().step()
        if self.steps % self.evaluation.every == 0:
            streams = [seed_of(seed, EVALUATION, self.steps) for seed in self.seeds]
            played = rollouts(self.agent.act, self.environments.name, streams, self.evaluation.episodes)
            self.measured = played.mean(1)
        rewards = self._rewards()
        targets = np.array([s.target(self.steps, reward) for s, reward in zip(self.schedules, rewards, strict=True)])
        if self.compression.layers and (targets > self.targets).any():
            self._prune(targets)
        for bitmap, sums in self.saved.items():
            sums += self.ratios[bitmap]
        if self.steps % self.evaluation.every == 0:
            self._record()

    def _rewards(self) -> list[float]:
        """R_new of each run, -inf before the first episode has ended."""
        if self.compression.reward == "evaluation":
            return self.measured.tolist()
        latest = [returns[-self.compression.window :] for returns in self.returns]
        return [float(np.mean(returns)) if returns else -np.inf for returns in latest]

    def _prune(self, targets: np.ndarray) -> None:
        """Remove the smallest coefficients of runs whose target has risen, then change the phase of those it is due."""
        networks, followers, rest = self.agent.networks, self.agent.targets, targets <= self.targets
        scores, groups = pruners.magnitude(networks).only(self.compression.layers), group_sparse.tables(networks)
        masks = group_sparse.whole_groups(scores, targets.tolist(), groups, self.compression.scope)
        for name, mask in pruners.attached(networks).items():
            masks[name][rest] = mask[rest]
        for network in [networks, followers] if self.compression.mask_targets else [networks]:
            pruners.attach(network, masks)
        group_sparse.forget(networks, self.agent.optimizers)
        self.targets, self.sparsity = targets, self._measure()
        for run in range(len(self.seeds)):
            while self.sparsity[run] >= self.phases[self.phase[run]][1]:
                self._shift(run)
        self.ratios = self._ratios()

    def _shift(self, run: int) -> None:
        """Algorithm 1's phase shift of one run, or a conversion of its block size."""
        self.phase[run] += 1
        tables = dict.fromkeys(self.compression.layers, self.phases[self.phase[run]][0])
        group_sparse.regroup(self.agent.networks, tables, run, self.agent.optimizers, self.compression.carry)
        group_sparse.regroup(self.agent.targets, tables, run)
        self.sparsity[run] = self._measure()[run]

    def _measure(self) -> np.ndarray:
        """S_now of each run: every coefficient stands for as many weights, so it is the masks' share of zeros."""
        masks = [mask.flatten(1) for mask in pruners.attached(self.agent.networks).values()]
        return 1 - torch.cat(masks, 1).double().mean(1).cpu().numpy()

    def _ratios(self) -> dict[str, np.ndarray]:
        """The share of the compressed networks' bits that is saved now, {bitmap: [run]}; of dense runs 0."""
        layers, sizes = self.compression.layers, np.array([group_sparse.group_size(table) for table, _ in self.phases])
        part = share(self.agent.networks, layers) if layers else 0.0
        return {bitmap: ratio(self.sparsity, sizes[self.phase], part, bitmap) for bitmap in BITMAPS}

    def _record(self) -> None:
        """One row a run, ratios averaged over the steps so far."""
        for run, seed in enumerate(self.seeds):
            averages = {f"ratio_{bitmap}": float(sums[run]) / self.steps for bitmap, sums in self.saved.items()}
            found = {
                "seed": seed,
                "step": self.steps,
                "return": float(self.measured[run]),
                "phase": int(self.phase[run]),
            }
            self.rows.append(found | {"sparsity": float(self.sparsity[run])} | averages)

    def identity(self) -> dict:
        """What must be the same when a session goes on."""
        schedules = [
            {field.name: getattr(schedule, field.name) for field in fields(schedule) if field.init}
            for schedule in self.schedules
        ]
        compression = {**asdict(self.compression), "layers": list(self.compression.layers)}
        own = {"compression": compression, "schedules": schedules, "evaluation": asdict(self.evaluation)}
        return super().identity() | own

    def state_dict(self) -> dict:
        """Everything but the transitions."""
        return super().state_dict() | {
            "schedules": [getattr(schedule, "state_dict", dict)() for schedule in self.schedules],
            "targets": self.targets.tolist(),
            "sparsity": self.sparsity.tolist(),
            "phase": self.phase.tolist(),
            "measured": self.measured.tolist(),
            "saved": {bitmap: sums.tolist() for bitmap, sums in self.saved.items()},
            "rows": self.rows,
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""
        super().load_state_dict(content)
        for schedule, state in zip(self.schedules, content["schedules"], strict=True):
            if state:
                schedule.load_state_dict(state)
        self.targets, self.sparsity = np.array(content["targets"]), np.array(content["sparsity"])
        self.phase, self.measured = np.array(content["phase"], int), np.array(content["measured"])
        self.rows, self.ratios = content["rows"], self._ratios()
        self.saved = {bitmap: np.array(sums) for bitmap, sums in content["saved"].items()}


def share(networks: nn.ModuleDict, layers: Sequence[str]) -> float:
    """P_comp / P_total: of the weights of the networks that hold compressed layers, biases left out.

    So the paper counts: 91.7 % of HalfCheetah's and 97.4 % of Humanoid's parameters are shares of the actor's weights.
    """
    weights = {layer.name: layer for layer in pruners.prunable(networks)}
    compressed = {weights[name].network for name in layers}
    total = sum(layer.weight[0].numel() for layer in weights.values() if layer.network in compressed)
    return sum(weights[name].weight[0].numel() for name in layers) / total


def start(
    env: str,
    seeds: Sequence[int],
    settings: td3.Settings,
    compression: Compression,
    schedule: Schedule | Sequence[Schedule],
    evaluation: Evaluation,
    device: str = "cpu",
) -> Trainer:
    """A stack of runs at its beginning, blocks in place (Algorithm 1, lines 1 to 3); `td3.train` trains it.

    Args:
        schedule: of each run a copy of this one, or one a run.

    Raises:
        BadInput: a layer that there is not, or whose size B does not divide.
    """
    stack, environments = td3.begin(env, seeds, settings, device)
    table = compression.phases()[0][0]
    if len(table) > 1:
        group_sparse.group(
            stack, dict.fromkeys(compression.layers, table), compression.start, compression.pad, releasable=True
        )
    weights = pruners.magnitude(stack).only(compression.layers)
    pruners.attach(stack, {name: torch.ones_like(weight, dtype=torch.bool) for name, weight in weights.items()})
    each = list(schedule) if isinstance(schedule, Sequence) else [copy.deepcopy(schedule) for _ in seeds]
    return Trainer(td3.Agent(stack, settings), environments, seeds, compression, each, evaluation)
