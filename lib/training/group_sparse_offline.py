"""Group-sparse training of agents that learn from fixed data: blocks, a schedule, and any score to choose coefficients.

Paper 5 prunes by magnitude when the reward rises. Fixed data give no reward while an agent learns, so a schedule of
steps has to say how much goes; and as with paper 1, a score may ask the data what goes.

Agents with target networks, such as BCQ, are refused: targets would keep coefficients of another meaning after a shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import numpy as np
import torch

from lib import pruners
from lib.errors import BadInput
from lib.training import offline
from lib.training.agents import Agent, Transitions
from lib.training.group_sparse import Compression, Course, Schedule, begin
from lib.training.offline import Pruning


class GroupSparse:
    """What happens to a stack of agents between their updates: `offline.train`'s `along`.

    Args:
        agent: as it was made; its blocks are put in place here.
        data: what scores are asked of.
        runs: each with the score that chooses its coefficients; a dense run is never pruned.
        schedules: when and how much, one a run.
        scoring: batches behind a score.

    Attributes:
        course: what is removed and saved.

    Raises:
        BadInput: an agent with targets, a layer that there is not or that a run's score does not reach.
    """

    def __init__(
        self,
        agent: Agent,
        data: Transitions,
        runs: Sequence[offline.Run],
        compression: Compression,
        schedules: Sequence[Schedule],
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
        optimizers = [optimizer.adam for optimizer in agent.optimizers.values()]
        self.course = Course(agent.networks, len(runs), compression, optimizers)
        named = {layer.name: layer.module for layer in pruners.prunable(agent.networks)}
        self.chosen = {named[name]: name for name in compression.layers}
        ranked = {layer.module for one in agent.objectives.values() for layer in pruners.prunable(one.ranked)}
        if self._asked() and (missing := [name for layer, name in self.chosen.items() if layer not in ranked]):
            raise BadInput(f"{self._asked()[0]} gives {missing[0]!r} no score: no objective ranks it")

    def step(self, step: int) -> None:
        """Prune and release the runs whose schedule asks for it."""
        asked = zip(self.runs, self.schedules, strict=True)
        targets = np.array([0.0 if run.pruner == "dense" else schedule.target(step) for run, schedule in asked])
        if self.course.due(targets):
            self.course.prune(targets, self._scores(step))
        self.course.count()

    def _asked(self) -> list[str]:
        """The scores that ask an objective."""
        return sorted({run.pruner for run in self.runs} - {"dense", "magnitude"})

    def _scores(self, step: int) -> pruners.Scores:
        """Each run's own: rows of one tensor a layer."""
        with torch.no_grad():
            mixed = pruners.magnitude(self.agent.networks)
        for pruner in self._asked():
            rows = [place for place, run in enumerate(self.runs) if run.pruner == pruner]
            for number, objective in enumerate(self.agent.objectives.values()):
                found = offline.scored(pruner, self.agent, objective, self.data, number, self.scoring, step)
                for name, score in found.items():
                    layer = found.layers[name].module  # what is ranked together has other names than in the networks
                    if layer in self.chosen:
                        mixed[self.chosen[layer]][rows] = score[rows].detach()
        return mixed

    def identity(self) -> dict:
        """What must be the same when a training goes on."""
        compression = {**asdict(self.compression), "layers": list(self.compression.layers)}
        schedules = [asdict(schedule) for schedule in self.schedules]
        return {"compression": compression, "schedules": schedules, "scoring": asdict(self.scoring)}

    def state_dict(self) -> dict:
        """The course of the pruning so far."""
        return self.course.state_dict()

    def load_state_dict(self, content: dict) -> None:
        """Go on from such a course."""
        self.course.load_state_dict(content)
