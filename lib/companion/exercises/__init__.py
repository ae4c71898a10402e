"""Check answers to exercises: `check("20.1", answer)` says right, or wrong with a hint; `hint("20.1")` gives another.

An exercise's number begins with its notebook's, and that with its paper's: 20.1 is one of paper 2, whose folder has
them in exercises.py. It never says the solution. Most right answers are computed by the library; those that are
typed are kept from going stale by the tests, where worked solutions live.
"""

from __future__ import annotations

import importlib
import re
from types import ModuleType

from lib import base
from lib.base import BadInput
from lib.companion.exercises.checkers import answered, find


def check(exercise: str, answer: object) -> None:
    """Say whether an answer is right. An answer of ... (three dots) has not been given yet.

    Raises:
        BadInput: there is no such exercise.
    """
    answered(module_of(exercise).EXERCISES, exercise, answer)


def hint(exercise: str) -> None:
    """Print a further hint, for whoever is stuck after the one that a wrong answer gets.

    Raises:
        BadInput: there is no such exercise.
    """
    second = getattr(find(module_of(exercise).EXERCISES, exercise), "second", "")
    print(f"Exercise {exercise}: {second or 'there is no further hint.'}")


def module_of(exercise: str) -> ModuleType:
    """Find the module that holds an exercise: that of the paper with its first digit, or the one of notebooks 00,
    61 and 62.

    Raises:
        BadInput: a number that no notebook's exercises have.
    """
    for claims in sorted(base.PAPERS.glob("*/claims.yaml")):
        number = re.search(r"^paper: (\d+)", claims.read_text(), re.MULTILINE)
        if number and str(exercise).startswith(number[1]) and claims.with_name("exercises.py").exists():
            return importlib.import_module(f"lib.papers.{claims.parent.name}.exercises")
    if isinstance(exercise, str) and not exercise.startswith(("0", "6")):
        raise BadInput(f"no exercise {exercise!r}: its number begins with its notebook's, such as 20.1")
    return importlib.import_module("lib.companion.exercises.start_here")
