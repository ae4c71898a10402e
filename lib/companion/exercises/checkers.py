"""Judge answers to exercises, a class for each kind of exercise."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from types import EllipsisType

import numpy as np

from lib.base import BadInput, type_of


@dataclass(frozen=True)
class Exercise:
    """Describe one exercise.

    Attributes:
        judge: takes an answer and returns a hint, or None when the answer is right.
        second: a further hint, for whoever asks with `hint`.
        learned: a sentence worth knowing, told to whoever was right.
        wrong: typical wrong answers, each with the reason why it is wrong.
    """

    judge: Callable[[object], str | None]
    second: str = ""
    learned: str = ""
    wrong: tuple[tuple[object, str], ...] = ()

    def __call__(self, answer: object) -> str | None:
        return self.judge(answer)


Checker = Callable[[object], str | None]  # an Exercise, or any function that judges as one


SHARE = "a hundred times that would be right: the question is for percent or points, and not for a share."
PERCENT = "a hundredth of that would be right: the question is for a share, and not for percent."


def number(
    right: float,
    hint: str,
    tolerance: float = 1e-6,
    wrong: Mapping[float, str] | None = None,
    second: str = "",
    learned: str = "",
) -> Exercise:
    """Judge an answer that is a number, right within an absolute tolerance.

    Args:
        wrong: typical wrong answers, and why each is wrong; they are recognised within the same tolerance.
        second, learned: as in `Exercise`.
    """

    def judge(answer: object) -> str | None:
        if _close(answer, right, tolerance):
            return None
        near = {other: min(tolerance, (abs(other) or tolerance) / 5) for other in wrong or {}}  # small ones lie close
        if found := [wrong[other] for other, within in near.items() if _close(answer, other, within)]:
            return found[0]
        counted = float(right).is_integer() and tolerance < 0.5  # of something, and then no share of it
        if 0 < right < 1 and _close(answer, 100 * right, 100 * max(tolerance, 1e-6)):
            return PERCENT
        return SHARE if not counted and _close(answer, right / 100, max(tolerance, 1e-6) / 100) else hint

    return Exercise(judge, second, learned, tuple((wrong or {}).items()))


def function(
    right: Callable,
    cases: Sequence[tuple],
    hint: str,
    wrong: Sequence[tuple[Callable, str]] = (),
    second: str = "",
    learned: str = "",
) -> Exercise:
    """Judge an answer that is a function: it must agree with the library on every case.

    Args:
        wrong: typical wrong functions, and why each is wrong; one is recognised when it gives what the answer gives.
        second, learned: as in `Exercise`.
    """

    def judge(answer: object) -> str | None:
        if not callable(answer):
            return "the answer is a function; give its name, without calling it"
        # a function may change what it is given, so every call has a copy of its own
        expected, found = ([of(*copy.deepcopy(case)) for case in cases] for of in (right, answer))
        differs = [(case, b) for case, a, b in zip(cases, expected, found, strict=True) if not _same(a, b)]
        if not differs:
            return None
        (case, gave), *_ = differs
        if gave is None:
            return "your function gives None: it needs a return."
        for other, why in wrong:
            if all(_same(other(*copy.deepcopy(case)), one) for case, one in zip(cases, found, strict=True)):
                return why
        given = f"On the input {', '.join(map(str, case))} yours" if case else "Yours"
        return f"{hint} {given} gives {gave!s:.80}."

    return Exercise(judge, second, learned, tuple(wrong))


def answered(exercises: Mapping[str, Checker], exercise: str, answer: object) -> None:
    """Say whether an answer to one of these exercises is right; one of ... (three dots) has not been given yet."""
    one = find(exercises, exercise)
    if isinstance(answer, EllipsisType):
        print(f"Exercise {exercise}: not answered yet.")
        return
    try:
        found = one(answer)
    except BadInput as error:  # our own line
        found = str(error)
    except Exception as error:  # a student's function may fail in any way; that is an answer too
        found = f"your answer failed with {type(error).__name__}: {error}"
    learned = getattr(one, "learned", "")
    right = f"Exercise {exercise}: right." + (f" {learned}" if learned else "")
    print(right if found is None else f"Exercise {exercise}: not yet. Hint: {found}")


def find(exercises: Mapping[str, Checker], exercise: str) -> Checker:
    """Find the exercise of this name.

    Raises:
        BadInput: there is none.
    """
    if not isinstance(exercise, str):
        raise BadInput(f'the number of an exercise is a text such as "20.1", not {exercise!r}')
    if exercise not in exercises:
        raise BadInput(f"no exercise {exercise!r}; there are: {', '.join(exercises)}")
    return exercises[exercise]


def _close(answer: object, right: float, tolerance: float) -> bool:
    """Whether an answer is the right number; a text may hold it, and so may an array or a tensor of one element."""
    plain = answer
    if hasattr(answer, "item"):
        with suppress(ValueError, RuntimeError):  # NumPy's and torch's words for more than one element
            plain = answer.item()
    if not isinstance(plain, (Real, Decimal, str)) or isinstance(plain, bool):
        raise BadInput(f"the answer is a number, this is {type_of(answer)}")
    try:
        return math.isclose(float(plain), right, rel_tol=0, abs_tol=tolerance)
    except OverflowError:  # a number beyond all others
        return False
    except ValueError as error:
        raise BadInput(f"{plain!r:.40} is no number: write digits and a point, such as 31415 or 0.31") from error


def _same(one: object, other: object) -> bool:
    """Whether a second result is the first one in shape and, but for rounding, in every number.

    A number is no list of one. The parts of a tuple may differ in shape, so they are compared one by one, and a list of
    as many parts will do.
    """
    if isinstance(one, tuple) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    try:
        one, other = (
            np.asarray(each.detach().cpu().resolve_conj() if hasattr(each, "detach") else each) for each in (one, other)
        )
    except ValueError:  # parts of different shapes are no array
        return False
    if one.shape != other.shape:
        return False
    kinds = [each.dtype.kind for each in (one, other)]
    if set(kinds) & set("fc") and set(kinds) <= set("fiuc"):  # a transform leaves an imaginary part of zero
        return bool(np.allclose(one, other, rtol=1e-5, atol=1e-6))  # one formula in two ways, in float32 say
    return bool(np.array_equal(one, other))
