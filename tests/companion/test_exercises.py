"""Worked solutions of every exercise, and wrong answers that must not pass."""

import pytest

from lib.base import BadInput
from lib.companion.exercises import checkers
from lib.exercises import check, hint
from tests.companion.solutions import EXERCISES, MODULE, SOLUTIONS


def test_every_exercise_has_a_solution():
    assert list(SOLUTIONS) == sorted(MODULE)


def test_every_exercise_knows_three_wrong_answers():
    """And has a second hint, and something to tell whoever was right."""
    assert [name for name, exercise in EXERCISES.items() if len(exercise.wrong) < 3] == []
    assert [name for name, exercise in EXERCISES.items() if not exercise.second or not exercise.learned] == []


WHY = [(name, *pair) for name, exercise in EXERCISES.items() for pair in getattr(exercise, "wrong", ())]


@pytest.mark.parametrize(("exercise", "answer", "why"), WHY, ids=[f"{name}-{why[:20]}" for name, _, why in WHY])
def test_a_typical_wrong_answer_is_told_why(exercise: str, answer: object, why: str):
    """And no other reason: two wrong answers that look alike to the checker would get the first one's."""
    assert EXERCISES[exercise](answer) == why


@pytest.mark.parametrize("exercise", SOLUTIONS)
def test_the_solution_is_right(exercise: str, capsys: pytest.CaptureFixture):
    check(exercise, SOLUTIONS[exercise])
    assert capsys.readouterr().out == f"Exercise {exercise}: right. {EXERCISES[exercise].learned}\n"


def test_three_dots_are_no_answer_yet(capsys: pytest.CaptureFixture):
    check("20.1", ...)
    assert capsys.readouterr().out == "Exercise 20.1: not answered yet.\n"


def test_an_answer_of_the_wrong_kind_gets_a_hint_not_a_traceback(capsys: pytest.CaptureFixture):
    check("20.1", "many")
    check("20.3", 3)
    check("20.3", lambda row: row[10])
    lines = capsys.readouterr().out.splitlines()
    assert "ValueError" in lines[0]
    assert "the answer is a function" in lines[1]
    assert "IndexError" in lines[2]


def test_an_unknown_exercise_is_refused():
    with pytest.raises(BadInput, match=r"no exercise '99\.9'; there are: 00\.1, 00\.2"):
        check("99.9", 1)


def test_a_scalar_or_nothing_is_no_list():
    right = checkers.function(lambda: [0.0], [()], "A list of one.")
    assert right(lambda: [0.0]) is None
    assert right(lambda: 0.0) is not None
    assert right(lambda: []) is not None


def test_an_answer_that_changes_its_input_stays_wrong():
    judge = checkers.function(sum, [([1, 2, 3],)], "Add all of them.")

    def popped(values):
        values.pop()
        return sum(values)

    assert judge(popped) == judge(popped) == "Add all of them. It differs on the input [1, 2, 3]."


def test_typical_wrong_answers_are_told_why(capsys: pytest.CaptureFixture):
    exercise = checkers.number(
        0.2, "Multiply.", wrong={-0.2: "The sign goes."}, second="0.5 x 0.4", learned="So it is."
    )
    assert exercise(-0.2) == "The sign goes."
    assert exercise(7) == "Multiply."
    checkers.checking({"1": exercise})("1", 0.2)
    assert capsys.readouterr().out == "Exercise 1: right. So it is.\n"
    judge = checkers.function(
        lambda x: x * x, [(2,), (3,)], "Square it.", wrong=[(lambda x: 2 * x, "That is twice it.")]
    )
    assert judge(lambda x: x + x) == "That is twice it."
    assert judge(lambda x: x) == "Square it. It differs on the input 2."


def test_who_asks_gets_a_further_hint(capsys: pytest.CaptureFixture):
    hint("20.1")
    assert capsys.readouterr().out == "Exercise 20.1: Dense: 4 x 32 bits. Compressed: 2 x 32 + 2 x 2 bits.\n"
