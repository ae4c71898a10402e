"""Learn from fixed data: a stack of runs, pruned before training, stopped and continued at any step.

A run is a seed, a pruner and a sparsity; the agents are in `bc` and `bcq`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from lib import pruners
from lib.base import BadInput, naming, refuse_outside, refuse_uncounted, type_of
from lib.pruners.patterns import SCOPES
from lib.training.agents import SCORING, SHUFFLING, TRAINING, Agent, Draws, Objective, Policy, Transitions, draw_batch
from lib.training.callbacks import Callback
from lib.training.checkpoints import Session, Together, checksum
from lib.training.graphs import Graphed
from lib.training.seeds import seed_of

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """Describe one run of a stack.

    Attributes:
        pruner: which score of `pruners.SCORES` decides what is removed before training; "dense": nothing is.
        sparsity: share of weights to remove from each network.
        rounds: in how many steps they go, each scored anew (at other batches) without the weights that went before.
            Every round removes the same share of what is left.
    """

    seed: int
    pruner: str = "dense"
    sparsity: float = 0.0
    rounds: int = 1

    def __post_init__(self):
        if self.pruner not in (known := ("dense", *pruners.SCORES)):
            raise BadInput(f"pruner {self.pruner!r}: known are {', '.join(known)}")
        refuse_outside("[0, 1)", sparsity=self.sparsity)
        if self.pruner == "dense" and self.sparsity:
            raise BadInput(f"a dense run has sparsity 0, this one {self.sparsity}")
        refuse_uncounted(rounds=self.rounds)

    def schedule(self) -> pruners.Schedule:
        """Say when its weights go: all at step 0, or in rounds from step 0 on; the first update comes after them."""
        return pruners.Once(self.sparsity) if self.rounds == 1 else pruners.Iterative(self.sparsity, self.rounds)


@dataclass(frozen=True)
class Pruning:
    """Say how the scores before training are made and ranked (paper 1, section 4 and Algorithm 1).

    Attributes:
        snip_batch: transitions a batch, for every score that asks the data but GraSP.
        grasp_batch: those for GraSP.
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
        with naming("pruning"):
            refuse_uncounted(snip_batch=self.snip_batch, grasp_batch=self.grasp_batch, batches=self.batches)
        if self.scope not in SCOPES or not 0 <= self.floor < 1:
            known = ", ".join(SCOPES)
            raise BadInput(f"pruning: scope={self.scope!r}, floor={self.floor}: expected {known}, and a share below 1")


class Progress:
    """Hold what a training consists of besides the agent's modules: optimizers, steps, losses since the last row."""

    def __init__(self, agent: Agent, callback: Callback | None = None):
        self.optimizers, self.device, self.callback, self.step = Together(**agent.optimizers), agent.device, callback, 0
        self.totals: dict[str, Tensor] = {}

    def add(self, losses: Mapping[str, Tensor]) -> None:
        """Add one update's losses, [run] each."""
        for name, loss in losses.items():
            self.totals[name] = self.totals[name] + loss if name in self.totals else loss.clone()

    def state_dict(self) -> dict:
        """Return all of it, for a file."""
        more = {} if self.callback is None else {"callback": self.callback.state_dict()}
        return {"optimizers": self.optimizers.state_dict(), "step": self.step, "totals": self.totals} | more

    def load_state_dict(self, content: dict) -> None:
        """Go on from that."""
        self.optimizers.load_state_dict(content["optimizers"])
        self.step = content["step"]
        self.totals = {name: total.to(self.device) for name, total in content["totals"].items()}
        if self.callback is not None:
            self.callback.load_state_dict(content["callback"])


def prune(agent: Agent, data: Transitions, runs: Sequence[Run], settings: Pruning = Pruning()) -> None:
    """Remove weights before training, each run by its own pruner and sparsity (paper 1, Algorithm 1).

    The scores of a round are taken before any of its weights go, each network's from its own loss alone. Then they go
    and the agent starts anew, so that its targets lack them too. Layers of which nothing is left are reported in one
    line.

    Raises:
        BadInput: runs of other seeds than the agent's.
    """
    _check_seeds(agent, runs)
    scores = {name: score_of(name, data, settings) for name in {run.pruner for run in runs} - {"dense"}}
    pattern = partial(pruners.unstructured, scope=settings.scope, floor=settings.floor)
    schedules = [run.schedule() for run in runs]
    pruner = pruners.Pruner([scores.get(run.pruner) for run in runs], pattern, schedules)
    for step in range(max(run.rounds for run in runs)):
        pruner.step(agent, step)
    agent.pruning = asdict(settings)
    if lost := _emptied(agent, runs):
        found = "; ".join(f"{', '.join(names)} ({run})" for run, names in lost.items())
        LOG.warning("no weight is left in %s: nothing passes such a layer; a floor keeps a share of each", found)


def score_of(name: str, data: Transitions, settings: Pruning) -> Callable[[Agent, int], pruners.Scores]:
    """Turn a score of the registry as one of agents, which `pruners.Pruner` calls with the agent and the step.

    It asks each objective for the weights that it ranks: with its own loss of batches of the data, which differ from
    step to step, and with a seed a run, which differs from objective to objective.

    Returns:
        Scores by the parameters' names in `agent.networks`; a layer's network is the one it is ranked with.

    Raises:
        BadInput: raised by the function that is returned: the score is no `pruners.Scores`, or has nothing for a layer.
    """

    def score(agent: Agent, step: int) -> pruners.Scores:
        names = {layer.module: layer.name for layer in pruners.prunable(agent.networks)}
        tensors, layers = {}, {}
        for number, objective in enumerate(agent.objectives.values()):
            found = _scored(name, agent, objective, data, number, settings, step)
            if not isinstance(found, pruners.Scores):
                raise BadInput(f"score {name!r} gives {type_of(found)}: expected pruners.Scores(tensors, layers)")
            if left := {layer.name for layer in pruners.prunable(objective.ranked)} - found.keys():
                raise BadInput(f"score {name!r} has nothing for {min(left)}: it would stay dense at any sparsity")
            for ranked, values in found.items():
                layer = found.layers[ranked]
                tensors[names[layer.module]] = values
                layers[names[layer.module]] = replace(layer, name=names[layer.module])
        return pruners.Scores(tensors, layers)

    return score


def _scored(
    name: str, agent: Agent, objective: Objective, data: Transitions, number: int, settings: Pruning, step: int
) -> pruners.Scores:
    """The scores of the networks that an objective ranks, as they are now.

    A score that asks the data draws its seed from another stream than its batches.
    """
    score = pruners.find(pruners.SCORES, "score", name)
    wanted, given = inspect.signature(score).parameters, {}
    if "seed" in wanted:
        stream = SHUFFLING if "loss" in wanted else SCORING
        given["seed"] = [seed_of(seed, stream, number) for seed in agent.seeds]
    if "loss" in wanted:
        size = settings.grasp_batch if name == "grasp" else settings.snip_batch
        draws, when = Draws(agent.seeds, agent.device), [step] if step else []
        drawn = [draw_batch(agent, data, draws, size, SCORING, place, *when) for place in range(settings.batches)]
        given["loss"] = [lambda model, pair=pair: objective.loss(*pair).sum() for pair in drawn]
    if "within" in wanted:
        layers = pruners.prunable(objective.ranked)
        given["within"] = {la.name: agent.masks[w] for la in layers if (w := la.module.weight) in agent.masks}
    if not objective.alone or "loss" not in wanted:
        return score(objective.ranked, **given)
    tensors, layers = {}, {}
    for child, network in objective.ranked.items():
        found = score(nn.ModuleDict({child: network}), **given)
        tensors, layers = tensors | found, layers | found.layers
    return pruners.Scores(tensors, layers)


def _emptied(agent: Agent, runs: Sequence[Run]) -> dict[str, list[str]]:
    """Find the layers without any weight, {"snip at 0.99": names}."""
    empty: dict[str, list[str]] = {}
    for objective in agent.objectives.values():
        for layer in pruners.prunable(objective.ranked):
            mask = agent.masks.get(layer.module.weight)
            for row in [] if mask is None else (~mask.flatten(1).any(1)).nonzero().flatten().tolist():
                rounds = f" in {runs[row].rounds} rounds" if runs[row].rounds > 1 else ""
                names = empty.setdefault(f"{runs[row].pruner} at {runs[row].sparsity:g}{rounds}", [])
                names += [layer.name] if layer.name not in names else []
    return empty


def train(
    agent: Agent,
    data: Transitions,
    runs: Sequence[Run],
    steps: int,
    every: int,
    evaluate: Callable[[Policy], Mapping[str, Sequence[float]]] = lambda policy: {},
    state: Path | None = None,
    on_progress: Callable[[], None] = lambda: None,
    stop_every: int = 100,
    progress: bool = False,
    callback: Callback | None = None,
) -> list[dict]:
    """Train a stack of runs, pruned or not; one row a run and evaluation.

    Stopped and started again it gives the same numbers, bit for bit on a CPU with the same number of threads. A state
    may be trained further than was asked for at first.

    Args:
        runs: what the agent was made and pruned for.
        steps: updates in all, a multiple of `every`.
        every: updates from one evaluation to the next, a multiple of `stop_every` unless that is larger.
        evaluate: called with the policy, returns what goes into the rows, {column: one value a run}.
        state: where to keep the training. When the file is there it goes on from it, with the same `every`.
        on_progress: called once for every `stop_every` updates, those of a former session too; may raise to stop, and
            what is done is saved then.
        progress: show a progress bar of updates.
        callback: what else happens after each update.

    Returns:
        Rows with run (place in the stack), seed, pruner, sparsity, rounds, step, the mean of each loss since the row
        before ("critic_loss", ...), and what `evaluate` gave.

    Raises:
        BadInput: steps that do not divide, an agent of other seeds than the runs', or a file of another session or of
            more steps.
        FloatingPointError: a loss is not finite.
    """
    _check_seeds(agent, runs)
    stop_every = min(stop_every, every)
    if steps < 1 or stop_every < 1 or steps % every or every % stop_every:
        given = f"steps={steps} must be a multiple of every={every}, and that of stop_every={stop_every}"
        raise BadInput(f"{given}, all at least 1")
    identity = {
        "agent": type(agent).__name__,
        **asdict(agent.settings),
        "pruning": agent.pruning,
        "every": every,  # a row's losses are means over so many updates
        "runs": [asdict(run) for run in runs],
        "data": [len(data.rewards), *map(checksum, data)],
        "masks": {name: checksum(mask) for name, mask in agent.attached().items()},
        **({} if callback is None else callback.identity()),
    }
    done = Progress(agent, callback)
    session = Session(state, identity, agent.modules, done)
    rows = session.load()
    if done.step > steps:
        raise BadInput(f"{state} has been trained for {done.step} steps already, more than the {steps} asked for")
    for _ in range(done.step // stop_every):
        on_progress()
    draws = Draws(agent.seeds, agent.device)
    update = Graphed(agent.update) if agent.device.type == "cuda" else agent.update
    for step in tqdm(range(done.step + 1, steps + 1), initial=done.step, total=steps, disable=not progress):
        done.add(update(*draw_batch(agent, data, draws, agent.settings.batch, TRAINING, step)))
        done.step = step
        if callback is not None:
            callback.step(step)
        if step % stop_every:
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
        session.save_when_due(rows, on_progress, last=step == steps)
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
