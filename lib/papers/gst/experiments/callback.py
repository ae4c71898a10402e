"""Train agents group-sparsely on fixed data: blocks, a schedule, and any score to choose coefficients.

Paper 5 prunes by magnitude when the reward rises. Fixed data give no reward while an agent learns, so a schedule of
steps has to say how much goes; and as with paper 1, a score may ask the data what goes.

Agents with target networks, such as BCQ, are refused: targets would keep coefficients of another meaning after a shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.papers.gst.experiments.algorithm import Compression, GroupSparseTraining, begin
from lib.pruners.pruner import Score
from lib.training import offline
from lib.training.agents import Agent, Transitions
from lib.training.offline import Pruning


class GroupSparseCallback:
    """Prune a stack of agents between their updates, as a `Callback` of `offline.train`.

    Args:
        agent: as it was made; its blocks are put in place here.
        data: what scores are asked of.
        runs: each with the score that chooses its coefficients; a dense run is never pruned.
        schedules: when and how much, one a run.
        scoring: batches behind a score.

    Attributes:
        algorithm: what is removed and saved.

    Raises:
        BadInput: an agent with targets, a layer that there is not or that a run's score does not reach.
    """

    def __init__(
        self,
        agent: Agent,
        data: Transitions,
        runs: Sequence[offline.Run],
        compression: Compression,
        schedules: Sequence[pruners.Schedule],
        scoring: Pruning,
    ):
        if len(schedules) != len(runs):
            raise BadInput(f"{len(schedules)} schedules for {len(runs)} runs: each run has its own")
        if others := [name for name in agent.modules if name != "networks"]:
            raise BadInput(
                f"{type(agent).__name__} has {others[0]}, which blocks and masks would not reach: "
                "expected an agent without, such as BC or PlainBC"
            )
        begin(agent.networks, compression)
        agent.start()  # the trained parameters are others now
        self.agent, self.data, self.runs, self.schedules = agent, data, list(runs), list(schedules)
        self.compression, self.scoring = compression, scoring
        chosen = sorted({run.pruner for run in runs} - {"dense"})
        ranked = {layer.module for one in agent.objectives.values() for layer in pruners.prunable(one.ranked)}
        named = {layer.name: layer.module for layer in pruners.prunable(agent.networks)}
        if chosen and (missing := [name for name in compression.layers if named[name] not in ranked]):
            raise BadInput(f"{chosen[0]} gives {missing[0]!r} no score: no objective ranks it")
        scores = {name: self.score(name) for name in chosen}
        never = pruners.Once(0.0)
        self.algorithm = GroupSparseTraining(
            agent.networks,
            compression,
            [never if run.pruner == "dense" else own for run, own in zip(runs, schedules, strict=True)],
            [optimizer.adam for optimizer in agent.optimizers.values()],
            score=[scores.get(run.pruner) for run in runs],
        )

    def score(self, name: str) -> Score:
        """Make a score of the agent's networks of one of the registry, asked at each pruning anew."""
        own = offline.score_of(name, self.data, self.scoring)

        def score(networks: nn.ModuleDict, step: int) -> pruners.Scores:
            found = own(self.agent, step)
            return pruners.Scores(found, {layer.name: layer for layer in pruners.prunable(networks)})

        return score

    def step(self, step: int) -> None:
        """Prune and release the runs whose schedule asks for it."""
        self.algorithm.step(step)

    def identity(self) -> dict:
        """Give what must be the same when a training goes on."""
        return self.algorithm.identity() | {"scoring": asdict(self.scoring)}

    def state_dict(self) -> dict:
        """Give how far the pruning is."""
        return self.algorithm.state_dict()

    def load_state_dict(self, content: dict) -> None:
        """Go on from there."""
        self.algorithm.load_state_dict(content)
