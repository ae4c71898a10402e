"""Learning from fixed data: a stack of runs, pruned before training, stopped and continued at any step.

A run is a seed, a pruner and a sparsity; the agents are in `bc` and `bcq`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn
from tqdm import tqdm

from lib import pruners
from lib.errors import BadInput
from lib.pruners.patterns import SCOPES
from lib.training.agents import SCORING, TRAINING, Agent, Draws, Objective, Policy, Transitions, draw_batch
from lib.training.graphs import Graphed
from lib.training.sessions import Session
from lib.training.supervised import seed_of

PRUNERS = ("dense", "snip", "grasp", "random", "magnitude")
LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """One run of a stack.

    Attributes:
        pruner: which score decides what is removed before training; "dense": nothing is.
        sparsity: share of weights to remove from each network.
        rounds: in how many steps they go, each scored anew (at other batches) without the weights that went before.
            Every round removes the same share of what is left.
    """

    seed: int
    pruner: str = "dense"
    sparsity: float = 0.0
    rounds: int = 1

    def __post_init__(self):
        if self.pruner not in PRUNERS:
            raise BadInput(f"pruner {self.pruner!r}: known are {', '.join(PRUNERS)}")
        if not 0 <= self.sparsity < 1:
            raise BadInput(f"sparsity={self.sparsity} is not in [0, 1)")
        if self.pruner == "dense" and self.sparsity:
            raise BadInput(f"a dense run has sparsity 0, this one {self.sparsity}")
        if self.rounds < 1:
            raise BadInput(f"rounds={self.rounds} must be at least 1")

    def after(self, rounds: int) -> float:
        """The sparsity after so many rounds."""
        return self.sparsity if rounds >= self.rounds else 1 - (1 - self.sparsity) ** (rounds / self.rounds)


@dataclass(frozen=True)
class Pruning:
    """How the scores before training are made and ranked (paper 1, section 4 and Algorithm 1).

    Attributes:
        snip_batch, grasp_batch: transitions a batch.
        batches: how many batches; their mean loss is scored.
        scope: what is ranked together, see `pruners.unstructured`.
        floor: share of its weights that each layer keeps at least.
    """

    snip_batch: int = 100
    grasp_batch: int = 200
    batches: int = 1
    scope: str = "network"
    floor: float = 0.0

    def __post_init__(self):
        if min(self.snip_batch, self.grasp_batch, self.batches) < 1:
            raise BadInput(f"pruning: batches must be at least 1 and hold at least 1 transition, this is {self}")
        if self.scope not in SCOPES or not 0 <= self.floor < 1:
            known = ", ".join(SCOPES)
            raise BadInput(f"pruning: scope={self.scope!r}, floor={self.floor}: expected {known}, and a share below 1")


class Along(Protocol):
    """What else happens to an agent while it learns, such as pruning; kept with the training."""

    def step(self, step: int) -> None:
        """After each update."""

    def identity(self) -> dict:
        """What must be the same when a training goes on."""

    def state_dict(self) -> dict:
        """What to keep of it."""

    def load_state_dict(self, content: dict) -> None:
        """Go on from that."""


class Progress:
    """What a training consists of besides the agent's modules: optimizers, steps, losses since the last row."""

    def __init__(self, agent: Agent, along: Along | None = None):
        self.agent, self.along, self.step = agent, along, 0
        self.totals: dict[str, Tensor] = {}

    def add(self, losses: Mapping[str, Tensor]) -> None:
        """One update's losses, [run] each."""
        for name, loss in losses.items():
            self.totals[name] = self.totals[name] + loss if name in self.totals else loss.clone()

    def state_dict(self) -> dict:
        """All of it, for a file."""
        optimizers = {name: optimizer.state_dict() for name, optimizer in self.agent.optimizers.items()}
        along = {} if self.along is None else {"along": self.along.state_dict()}
        return {"optimizers": optimizers, "step": self.step, "totals": self.totals} | along

    def load_state_dict(self, content: dict) -> None:
        """Go on from that."""
        for name, optimizer in self.agent.optimizers.items():
            optimizer.load_state_dict(content["optimizers"][name])
        self.step = content["step"]
        self.totals = {name: total.to(self.agent.device) for name, total in content["totals"].items()}
        if self.along is not None:
            self.along.load_state_dict(content["along"])


def prune(agent: Agent, data: Transitions, runs: Sequence[Run], settings: Pruning = Pruning()) -> None:
    """Remove weights before training, each run by its own pruner and sparsity (paper 1, Algorithm 1).

    The scores of a round are taken before any of its weights go, each network's from its own loss alone. Then they go
    and the agent starts anew, so that its targets lack them too. Layers of which nothing is left are reported in one
    line.
    """
    _check_seeds(agent, runs)
    for turn in range(max(run.rounds for run in runs)):
        agent.keep(_masks(agent, data, runs, settings, turn))
    agent.pruning = asdict(settings)
    if lost := _emptied(agent, runs):
        found = "; ".join(f"{', '.join(names)} ({way})" for way, names in lost.items())
        LOG.warning("no weight is left in %s: nothing passes such a layer; a floor keeps a share of each", found)


def _masks(
    agent: Agent, data: Transitions, runs: Sequence[Run], settings: Pruning, turn: int
) -> dict[nn.Parameter, Tensor]:
    """What is kept after one more round; of a stack of dense runs, which needs no masks, {}."""
    used = sorted({run.pruner for run in runs if run.rounds > turn} - {"dense"})
    masks = dict(agent.masks) if turn else {}
    for number, objective in enumerate(agent.objectives.values()):
        for pruner in used:
            scores = scored(pruner, agent, objective, data, number, settings, *([turn] if turn else []))
            rows = [place for place, run in enumerate(runs) if run.pruner == pruner and run.rounds > turn]
            own = pruners.Scores({name: score[rows] for name, score in scores.items()}, scores.layers)
            if turn:
                lowest = min(float(score.min()) for score in own.values())
                for name, score in own.items():  # what went in a former round stays behind all others
                    own[name] = score.where(masks[scores.layers[name].module.weight][rows], lowest - abs(lowest) - 1)
            shares = [runs[row].after(turn + 1) for row in rows]
            for name, mask in pruners.unstructured(own, shares, settings.scope, settings.floor).items():
                weight = scores.layers[name].module.weight
                masks.setdefault(weight, torch.ones_like(weight, dtype=torch.bool))[rows] = mask
    return masks


def _emptied(agent: Agent, runs: Sequence[Run]) -> dict[str, list[str]]:
    """The layers without any weight, {"snip at 0.99": names}."""
    empty: dict[str, list[str]] = {}
    for objective in agent.objectives.values():
        for layer in pruners.prunable(objective.ranked):
            mask = agent.masks.get(layer.module.weight)
            for row in [] if mask is None else (~mask.flatten(1).any(1)).nonzero().flatten().tolist():
                rounds = f" in {runs[row].rounds} rounds" if runs[row].rounds > 1 else ""
                names = empty.setdefault(f"{runs[row].pruner} at {runs[row].sparsity:g}{rounds}", [])
                names += [layer.name] if layer.name not in names else []
    return empty


def scored(
    pruner: str, agent: Agent, objective: Objective, data: Transitions, number: int, settings: Pruning, *when: int
) -> pruners.Scores:
    """The scores of the networks that an objective ranks, as they are now.

    Args:
        number: of the objective; random scores differ from one to the next.
        when: the step or the round, if not the first before training; batches differ from one to the next, random
            scores do not.
    """
    if pruner == "magnitude":
        return pruners.magnitude(objective.ranked)
    if pruner == "random":
        return pruners.random(objective.ranked, [seed_of(seed, SCORING, number) for seed in agent.seeds])
    size = settings.snip_batch if pruner == "snip" else settings.grasp_batch
    draws = Draws(agent.seeds, agent.device)
    drawn = [draw_batch(agent, data, draws, size, SCORING, place, *when) for place in range(settings.batches)]
    losses = [lambda model, pair=pair: objective.loss(*pair).sum() for pair in drawn]
    return {"snip": pruners.snip, "grasp": pruners.grasp}[pruner](objective.ranked, losses)


def train(
    agent: Agent,
    data: Transitions,
    runs: Sequence[Run],
    steps: int,
    every: int,
    evaluate: Callable[[Policy], Mapping[str, Sequence[float]]] = lambda policy: {},
    state: Path | None = None,
    save_seconds: float = 60.0,
    advance: Callable[[], None] = lambda: None,
    pace: int = 100,
    progress: bool = False,
    along: Along | None = None,
) -> list[dict]:
    """Train a stack of runs, pruned or not; one row a run and evaluation.

    Stopped and started again it gives the same numbers, bit for bit on a CPU with the same number of threads. A state
    may be trained further than was asked for at first.

    Args:
        runs: what the agent was made and pruned for.
        steps: updates in all, a multiple of `every`.
        every: updates from one evaluation to the next, a multiple of `pace` unless that is larger.
        evaluate: called with the policy, returns what goes into the rows, {column: one value a run}.
        state: where to keep the training. When the file is there it goes on from it, with the same `every`.
        save_seconds: save at most this often; the end always is saved, and so is a step at which `advance` raises.
        advance: called once for every `pace` updates, those of a former session too; may raise to stop.
        progress: show a progress bar of updates.
        along: what else happens after each update.

    Returns:
        Rows with run (place in the stack), seed, pruner, sparsity, step, the mean of each loss since the row before
        ("critic_loss", ...), and what `evaluate` gave.

    Raises:
        FloatingPointError: a loss is not finite.
    """
    _check_seeds(agent, runs)
    pace = min(pace, every)
    if steps < 1 or pace < 1 or steps % every or every % pace:
        raise BadInput(f"steps={steps} must be a multiple of every={every}, and that of pace={pace}, all at least 1")
    identity = {
        "agent": type(agent).__name__,
        **asdict(agent.settings),
        "pruning": agent.pruning,
        "every": every,  # a row's losses are means over so many updates
        "runs": [asdict(run) for run in runs],
        "data": [len(data.rewards), *(float(column.double().sum()) for column in data)],
    } | ({} if along is None else along.identity())
    done = Progress(agent, along)
    session = Session(state, identity, agent.modules, done, save_seconds)
    rows = session.load()
    if done.step > steps:
        raise BadInput(f"{state} has been trained for {done.step} steps already, more than the {steps} asked for")
    for _ in range(done.step // pace):
        advance()
    draws = Draws(agent.seeds, agent.device)
    update = Graphed(agent.update) if agent.device.type == "cuda" else agent.update
    for step in tqdm(range(done.step + 1, steps + 1), initial=done.step, total=steps, disable=not progress):
        done.add(update(*draw_batch(agent, data, draws, agent.settings.batch, TRAINING, step)))
        done.step = step
        if along is not None:
            along.step(step)
        if step % pace:
            continue
        _check_finite(done.totals, runs, step)
        if step % every == 0:
            values = {f"{name}_loss": (total / every).tolist() for name, total in done.totals.items()}
            values |= evaluate(agent.policy(step))
            rows += [
                {"run": place, **asdict(run), "step": step, **{name: column[place] for name, column in values.items()}}
                for place, run in enumerate(runs)
            ]
            done.totals = {}
        session.advance(rows, advance, last=step == steps)
    return rows


def _check_seeds(agent: Agent, runs: Sequence[Run]) -> None:
    if (seeds := [run.seed for run in runs]) != agent.seeds:
        raise BadInput(f"the agent has the seeds {agent.seeds}, these runs {seeds}")


def _check_finite(totals: Mapping[str, Tensor], runs: Sequence[Run], step: int) -> None:
    for name, total in totals.items():
        if not torch.isfinite(total).all():
            run = runs[int((~torch.isfinite(total)).nonzero()[0])]
            raise FloatingPointError(
                f"{run}: the {name} loss is not finite by step {step}: it diverged (lower the rate) or met NaN"
            )
