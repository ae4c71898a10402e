"""Register scores, patterns and schedules by their names, from which sweeps take theirs.

    @register(SCORES, "second_moment")
    def second_moment(model, loss): ...

After that every sweep that names its scores knows this one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from lib.base import BadInput
from lib.pruners import patterns, schedules, scores

Entry = TypeVar("Entry", bound=Callable)

SCORES: dict[str, Callable[..., scores.Scores]] = {
    "snip": scores.snip,
    "grasp": scores.grasp,
    "random": scores.random,
    "magnitude": scores.magnitude,
    "snip_shuffled": scores.snip_shuffled,
}
PATTERNS: dict[str, Callable[..., dict]] = {"unstructured": patterns.unstructured, "two_four": patterns.n_of_m}
SCHEDULES: dict[str, Callable[..., schedules.Schedule]] = {
    "once": schedules.Once,
    "iterative": schedules.Iterative,
    "gradual": schedules.Gradual,
    "reward_aware": schedules.RewardAware,
}


def register(registry: dict[str, Callable], name: str) -> Callable[[Entry], Entry]:
    """Make a decorator that enters what it decorates in one of the three registries under this name.

    Raises:
        BadInput: the name is taken.
    """

    def enter(entry: Entry) -> Entry:
        if name in registry:
            raise BadInput(f"{name!r} is registered already: give a new entry another name than {', '.join(registry)}")
        registry[name] = entry
        return entry

    return enter


def find(registry: Mapping[str, Callable], what: str, name: str) -> Callable:
    """Find the entry of this name.

    Args:
        what: an entry is, for the line that refuses an unknown name: "score", "pattern" or "schedule".

    Raises:
        BadInput: there is none.
    """
    if name not in registry:
        raise BadInput(f"{what} {name!r}: known are {', '.join(registry)}")
    return registry[name]
