"""Join the three in one loop: a score says what matters, a pattern what may go together, a schedule when and how much.

pruner = pruners.Pruner(score=pruners.snip, pattern=pruners.unstructured, schedule=pruners.Once(0.95))
pruner.step(model, step, loss=loss, reward=reward)   # after each step of training, or once before the first
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from lib.base import BadInput, refuse_outside, type_of
from lib.pruners import masks
from lib.pruners.layers import Scores
from lib.pruners.patterns import Pattern, check_pattern
from lib.pruners.schedules import Schedule
from lib.pruners.selected import Select

Score = Callable[..., Scores]


@runtime_checkable
class Holder(Protocol):
    """Hold masks by itself, such as an agent whose optimizers know the kept weights alone.

    On a module masks are held by `pruners.attach`, whatever trains it.
    """

    def attached(self) -> dict[str, Tensor]:
        """Return the masks as they are, {parameter name: bool tensor}."""

    def attach(self, masks: Mapping[str, Tensor]) -> None:
        """Hold the weights where a mask is False at zero from now on."""


class Pruner:
    """Prune a model, or each run of a stack by itself, whenever a schedule asks for more than before.

    One object a model: it remembers what was asked for last.

    Args:
        score: called with the model and, where its arguments have these names, with `loss`, `seed` and `step`; gives
            `Scores`. Of a stack one score, or one a run; None where a run is never pruned.
        pattern: called with the scores and, where its arguments have these names, with `sparsity` (of a stack one a
            run) and `within`, the masks as they are; gives masks.
        schedule: asked `target(step, reward)`. Of a stack one a run, or a single one that is asked for all, which must
            not remember rewards.
        layers: names of the parameters that may be pruned; None: all that are scored.

    Attributes:
        targets: the highest sparsity that was asked for so far, one a run; of a single network one number.

    Raises:
        BadInput: a score or a pattern that is no function, what is no schedule, or not as many scores as schedules.
    """

    def __init__(
        self,
        score: Score | Sequence[Score | None],
        pattern: Pattern,
        schedule: Schedule | Sequence[Schedule],
        layers: Select = None,
    ):
        self.schedules = list(schedule) if isinstance(schedule, Sequence) else [schedule]
        self.scores = list(score) if isinstance(score, Sequence) else [score] * len(self.schedules)
        if not all(one is None or callable(one) for one in self.scores):
            raise BadInput(f"score={score!r:.60}: expected a function of the model, such as pruners.magnitude")
        check_pattern(pattern)
        if not all(hasattr(one, "target") and not isinstance(one, type) for one in self.schedules):
            raise BadInput(f"schedule={schedule!r:.60}: expected an object with `target`, such as pruners.Once(0.5)")
        if len(self.scores) != len(self.schedules):
            raise BadInput(f"{len(self.scores)} scores and {len(self.schedules)} schedules: give each run one of both")
        self.pattern, self.layers = pattern, layers
        self.targets = [0.0] * len(self.schedules)

    def step(
        self,
        model: nn.Module | Holder,
        step: int,
        loss: object = None,
        reward: float | Sequence[float] | None = None,
        seed: int | Sequence[int] | None = None,
    ) -> dict[str, Tensor]:
        """Ask the schedule; if the target has risen score the weights, make masks within today's, and attach them.

        Runs whose target has not risen keep their masks.

        Args:
            model: a network, a stack of runs, or a `Holder` of one.
            step: of the training so far.
            loss: for scores that ask for one.
            reward: for schedules that ask for one; of several runs one a run.
            seed: for scores that draw; of a stack one a run.

        Returns:
            The masks that were attached; {} if nothing was due.

        Raises:
            BadInput: a score that needs what was not given, numbers of runs that do not fit, a reward that is no
                number, scores of the runs of a stack of which not all are of the same layers.
        """
        targets = self._asked(step, reward)
        due = [now > before for now, before in zip(targets, self.targets, strict=True)]
        if not any(due):
            return {}
        holder = model if isinstance(model, Holder) else _Parametrized(model)
        scores = self._scored(due, model, {"loss": loss, "seed": seed, "step": step})
        runs = next((layer.runs for layer in scores.layers.values()), None)
        single = len(due) == 1
        if not single and len(due) != runs:
            raise BadInput(f"{len(due)} schedules for a model of {runs or 1} runs: give one, or one a run")
        before = {name: mask for name, mask in holder.attached().items() if name in scores}
        sparsity = targets[0] if single else targets
        found = _call(self.pattern, scores, {"sparsity": sparsity, "within": before}, "pattern")
        for name, mask in found.items() if not all(due) else ():
            rest = [not one for one in due]
            mask[rest] = before[name][rest] if name in before else torch.ones_like(mask[rest])
        holder.attach(found)
        self.targets = [max(pair) for pair in zip(targets, self.targets, strict=True)]
        return found

    def state_dict(self) -> dict:
        """Say what the loop and its schedules remember."""
        remembered = [getattr(schedule, "state_dict", dict)() for schedule in self.schedules]
        return {"targets": list(self.targets), "schedules": remembered}

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called, the model's masks already as they were.

        Raises:
            BadInput: it is no such state, or that of another number of runs; nothing is changed then.
        """
        if not isinstance(content, Mapping) or not {"targets", "schedules"} <= content.keys():
            raise BadInput(f"{content!r:.60} is no state of a Pruner: expected what its state_dict() returns")
        if not all(isinstance(content[name], list) for name in ("targets", "schedules")):
            raise BadInput(f"{content!r:.60} is no state of a Pruner: targets and schedules are lists, one entry a run")
        if len(content["targets"]) != len(self.schedules) or len(content["schedules"]) != len(self.schedules):
            raise BadInput(f"this state is of {len(content['targets'])} runs, the pruner of {len(self.schedules)}")
        for target in content["targets"]:
            refuse_outside("[0, 1)", target=target)
        before = self.state_dict()["schedules"]
        try:
            self._remind(content["schedules"])
        except Exception:
            self._remind(before)
            raise
        self.targets = list(content["targets"])

    def _remind(self, states: Sequence[Mapping]) -> None:
        for schedule, state in zip(self.schedules, states, strict=True):
            if state:
                schedule.load_state_dict(state)

    def _asked(self, step: int, reward: float | Sequence[float] | None) -> list[float]:
        rewards = list(reward) if np.ndim(reward) else [reward] * len(self.schedules)
        try:
            rewards = [None if one is None else float(one) for one in rewards]
        except (TypeError, ValueError) as error:
            raise BadInput(f"reward={reward!r:.60}: expected a number, or one for each run of a stack") from error
        if len(rewards) != len(self.schedules):
            raise BadInput(f"{len(rewards)} rewards for {len(self.schedules)} schedules: give one a run")
        pairs = zip(self.schedules, rewards, strict=True)
        return [float(schedule.target(step, one)) for schedule, one in pairs]

    def _scored(self, due: Sequence[bool], model: object, offered: Mapping[str, object]) -> Scores:
        """Each due run's own scores, rows of one tensor a layer; other rows are those of some score that was asked."""
        asked: dict[int, list[int]] = {}  # by the score's id, as not every object has a hash
        for run, score in enumerate(self.scores):
            if due[run]:
                if score is None:
                    raise BadInput(f"run {run} has no score, and yet its schedule asks for sparsity")
                asked.setdefault(id(score), []).append(run)
        mixed: Scores | None = None
        for rows in asked.values():
            found = _call(self.scores[rows[0]], model, offered, "score")
            if not isinstance(found, Scores):
                raise BadInput(f"a score returned {type_of(found)}: expected Scores, such as of `magnitude`")
            if self.layers is not None:
                found = found.only(self.layers)
            if mixed is None:
                mixed = found if len(asked) == 1 else Scores({n: s.clone() for n, s in found.items()}, found.layers)
                continue
            if odd := sorted(mixed.keys() ^ found.keys()):
                why = "name the `layers` that all of them score"
                raise BadInput(f"{odd[0]} is scored for some runs and left out for others: {why}")
            for name, values in mixed.items():
                values[rows] = found[name][rows]
        return mixed


class _Parametrized:
    """Holds masks on a module where its weights are read, see `pruners.attach`."""

    def __init__(self, model: nn.Module):
        self.model = model

    def attached(self) -> dict[str, Tensor]:
        return masks.attached(self.model)

    def attach(self, found: Mapping[str, Tensor]) -> None:
        masks.attach(self.model, found)


def _call(function: Callable, first: object, offered: Mapping[str, object], what: str) -> object:
    """What a function gives for its first argument and those of the offered ones that it names.

    Raises:
        BadInput: it needs one that is not there.
    """
    named = inspect.signature(function).parameters
    given = {name: value for name, value in offered.items() if name in named and value is not None}
    required = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
    lacking = [
        name
        for name, parameter in list(named.items())[1:]
        if name not in given and parameter.default is parameter.empty and parameter.kind in required
    ]
    if lacking:
        name = getattr(function, "__name__", repr(function))
        raise BadInput(f"the {what} {name} needs {lacking[0]}: give it to `step`, or fix it with functools.partial")
    return function(first, **given)
