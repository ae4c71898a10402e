"""Exercises of the notebooks. `check("20.1", answer)` says right, or wrong with a hint; never the solution.

The right answer is computed by the library, in one module a paper, so it cannot go stale; worked solutions live in the
tests.
"""

from __future__ import annotations

from types import EllipsisType

from lib.errors import BadInput
from lib.exercises import group_sparse, offline_rl, overview, plasticity, skdfe, two_four
from lib.exercises.checkers import Checker

_ALL = (
    overview.EXERCISES
    | offline_rl.EXERCISES
    | two_four.EXERCISES
    | skdfe.EXERCISES
    | plasticity.EXERCISES
    | group_sparse.EXERCISES
)
EXERCISES: dict[str, Checker] = dict(sorted(_ALL.items()))  # in reading order


def check(exercise: str, answer: object) -> None:
    """Say whether an answer is right. An answer of ... (three dots) has not been given yet."""
    if exercise not in EXERCISES:
        raise BadInput(f"no exercise {exercise!r}; there are: {', '.join(EXERCISES)}")
    if isinstance(answer, EllipsisType):
        print(f"Exercise {exercise}: not answered yet.")
        return
    try:
        hint = EXERCISES[exercise](answer)
    except Exception as error:  # a student's function may fail in any way; that is an answer too
        hint = f"your answer failed with {type(error).__name__}: {error}"
    print(f"Exercise {exercise}: right." if hint is None else f"Exercise {exercise}: not yet. Hint: {hint}")
