"""Kinds of answers, and how each is judged."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import EllipsisType

import numpy as np

from lib.errors import BadInput

Checker = Callable[[object], str | None]  # the hint, or None when the answer is right


def number(right: float, hint: str, tolerance: float = 1e-6) -> Checker:
    """An answer that is a number, right within an absolute tolerance."""

    def checker(answer: object) -> str | None:
        close = math.isclose(float(answer), right, rel_tol=0, abs_tol=tolerance)
        return None if close else hint

    return checker


def function(right: Callable, cases: list[tuple], hint: str) -> Checker:
    """An answer that is a function: it must agree with the library on every case."""

    def checker(answer: object) -> str | None:
        if not callable(answer):
            return "the answer is a function; give its name, without calling it"
        for case in cases:
            expected, found = right(*case), answer(*case)
            if not np.array_equal(np.asarray(found), np.asarray(expected)):
                return f"{hint} It differs on the input {', '.join(map(str, case))}."
        return None

    return checker


def checking(exercises: Mapping[str, Checker]) -> Callable[[str, object], None]:
    """The `check` of these exercises, for a notebook to import."""

    def check(exercise: str, answer: object) -> None:
        """Say whether an answer is right. An answer of ... (three dots) has not been given yet."""
        if exercise not in exercises:
            raise BadInput(f"no exercise {exercise!r}; there are: {', '.join(exercises)}")
        if isinstance(answer, EllipsisType):
            print(f"Exercise {exercise}: not answered yet.")
            return
        try:
            hint = exercises[exercise](answer)
        except Exception as error:  # a student's function may fail in any way; that is an answer too
            hint = f"your answer failed with {type(error).__name__}: {error}"
        print(f"Exercise {exercise}: right." if hint is None else f"Exercise {exercise}: not yet. Hint: {hint}")

    return check
