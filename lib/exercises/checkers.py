"""Kinds of answers, and how each is judged."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

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
