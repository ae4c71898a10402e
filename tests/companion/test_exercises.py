"""Worked solutions of every exercise, and wrong answers that must not pass."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

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
    assert "Error" not in lines[0]  # a text that is no number is a wrong one
    assert "the answer is a function" in lines[1]
    assert "IndexError" in lines[2]


def test_an_unknown_exercise_is_refused():
    with pytest.raises(BadInput, match=r"no exercise '99\.9': its number begins"):
        check("99.9", 1)


def test_a_scalar_or_nothing_is_no_list():
    right = checkers.function(lambda: [0.0], [()], "A list of one.")
    assert right(lambda: [0.0]) is None
    assert right(lambda: 0.0) is not None
    assert right(lambda: []) is not None


def test_the_formula_of_the_hint_is_right_though_it_rounds_elsewhere():
    def as_hinted(step, final, start, every, times):
        n = min(max((step - start) // every, 0), times)
        return final * (1 - (1 - n / times) ** 3)

    assert "final * (1 - (1 - n / times) ** 3)" in EXERCISES["00.4"].second
    assert as_hinted(250, 0.8, 200, 50, 12) != SOLUTIONS["00.4"](250, 0.8, 200, 50, 12)
    assert EXERCISES["00.4"](as_hinted) is None


def test_numbers_may_differ_by_rounding_and_by_no_more():
    right = checkers.function(lambda: [0.3, 0.0], [()], "Add.")
    assert right(lambda: [0.1 + 0.2, 1e-16]) is None
    assert right(lambda: [0.3 + 1e-7, 1e-7]) is None  # float32 has some seven digits
    assert right(lambda: [0.3 + 1e-4, 0.0]) is not None
    assert right(lambda: [0.3, 1e-5]) is not None
    whole = checkers.function(lambda: 10**12, [()], "Count.")
    assert whole(lambda: 10**12 + 1) is not None
    assert whole(lambda: 1e12) is None


def test_two_matrices_may_come_as_a_list():
    def as_list(*case):
        return list(SOLUTIONS["42.4"](*case))

    assert EXERCISES["42.4"](as_list) is None
    right = checkers.function(lambda: ([1.0], [[2.0, 3.0]]), [()], "Give both.")
    assert right(lambda: [np.ones(1), [[2.0, 3.0]]]) is None
    assert right(lambda: [[1.0], [[2.0, 4.0]]]) is not None
    assert right(lambda: [[1.0]]) is not None


def test_parts_of_different_shapes_are_wrong_without_the_name_of_an_error():
    right = checkers.function(lambda: [[1.0, 2.0], [3.0, 4.0]], [()], "Two rows of two.")
    assert right(lambda: [[1.0], [3.0, 4.0]]) == "Two rows of two. Yours gives [[1.0], [3.0, 4.0]]."
    both = checkers.function(lambda: ([1.0], [2.0, 3.0]), [()], "Give both.")
    assert both(lambda: np.ones(2)) == "Give both. Yours gives [1. 1.]."


def test_an_answer_that_changes_its_input_stays_wrong():
    judge = checkers.function(sum, [([1, 2, 3],)], "Add all of them.")

    def popped(values):
        values.pop()
        return sum(values)

    assert judge(popped) == judge(popped) == "Add all of them. On the input [1, 2, 3] yours gives 3."


def test_typical_wrong_answers_are_told_why(capsys: pytest.CaptureFixture):
    exercise = checkers.number(
        0.2, "Multiply.", wrong={-0.2: "The sign goes."}, second="0.5 x 0.4", learned="So it is."
    )
    assert exercise(-0.2) == "The sign goes."
    assert exercise(7) == "Multiply."
    checkers.answered({"1": exercise}, "1", 0.2)
    assert capsys.readouterr().out == "Exercise 1: right. So it is.\n"
    judge = checkers.function(
        lambda x: x * x, [(2,), (3,)], "Square it.", wrong=[(lambda x: 2 * x, "That is twice it.")]
    )
    assert judge(lambda x: x + x) == "That is twice it."
    assert judge(lambda x: x) == "Square it. On the input 2 yours gives 2."
    assert judge(lambda x: None) == "your function gives None: it needs a return."


def test_a_share_for_percent_is_told_so_and_what_is_no_number_too():
    exercise = checkers.number(75, "Count.", tolerance=1.5, wrong={50: "that is for two seeds."})
    assert exercise(0.75) == exercise("0.75") == checkers.SHARE
    assert checkers.number(75, "hint", tolerance=0.1)(0.75) == "hint"  # 75 of something, and no percent
    assert exercise(0.5) == "Count."  # a wrong answer as a share is another thing
    assert exercise(Fraction(75)) is exercise(Decimal("75.5")) is None
    with pytest.raises(BadInput, match=r"'75 %' is no number: write digits and a point, such as 31415 or 0\.31"):
        exercise("75 %")


def test_percent_for_a_share_is_told_so():
    exercise = checkers.number(0.6, "Take its part.", tolerance=1e-3, wrong={3.0: "divide it."})
    assert exercise(60) == exercise("60.05") == checkers.PERCENT
    assert exercise(61) == "Take its part."
    assert checkers.number(3, "Count.")(300) == "Count."


def test_a_small_wrong_answer_is_recognised_near_itself_and_not_within_a_wide_tolerance():
    exercise = checkers.number(2.0, "Count.", tolerance=0.4, wrong={0.36: "that is a share of the rest."})
    assert exercise.judge(0.4) == "that is a share of the rest."
    assert exercise.judge(0.7) == "Count."


def test_a_right_function_in_float32_is_right():
    judge = checkers.function(lambda values: [value / 3 for value in values], [([1.0, 2.0],)], "A third.")
    assert judge(lambda values: torch.tensor(values) / 3) is None
    assert judge(lambda values: [value / 3.001 for value in values]) is not None


def test_who_asks_gets_a_further_hint(capsys: pytest.CaptureFixture):
    hint("20.1")
    assert capsys.readouterr().out == "Exercise 20.1: Dense: 4 x 32 bits. Compressed: 2 x 32 + 2 x 2 bits.\n"


@pytest.mark.parametrize(
    "answer", [0.2, "0.2", np.float32(0.2), np.array([0.2]), torch.tensor([[0.2]]).requires_grad_()]
)
def test_a_number_may_come_as_a_text_an_array_or_a_tensor(answer: object):
    assert checkers.number(0.2, "Multiply.", tolerance=1e-3)(answer) is None


@pytest.mark.parametrize("answer", [True, np.True_, torch.ones(2), np.ones(2), [1.0], 1j])
def test_what_is_no_number_is_told_so_without_the_name_of_an_error(answer: object, capsys: pytest.CaptureFixture):
    checkers.answered({"1": checkers.number(1, "Add.")}, "1", answer)
    kind = type(answer).__name__
    assert capsys.readouterr().out == f"Exercise 1: not yet. Hint: the answer is a number, this is a {kind}\n"


def test_what_is_far_from_the_answer_gets_the_hint():
    assert checkers.number(1, "Add.")(10**400) == "Add."


def test_a_tensor_with_a_gradient_is_an_answer():
    right = checkers.function(lambda: torch.ones(2), [()], "Ones.")
    assert right(lambda: torch.ones(2, requires_grad=True)) is None
    assert right(lambda: torch.zeros(2, requires_grad=True)) is not None


def test_a_list_for_the_number_of_an_exercise_is_refused_in_one_line():
    with pytest.raises(BadInput, match=r"^the number of an exercise is a text such as \"20\.1\", not \['20\.1'\]$"):
        check(["20.1"], 1)
    with pytest.raises(BadInput, match=r'^the number of an exercise is a text such as "20\.1", not 20\.1$'):
        check(20.1, 1)


def test_a_product_by_a_transform_may_keep_its_imaginary_part_of_zero(capsys: pytest.CaptureFixture):
    check("50.4", lambda c, x: np.fft.ifft(np.fft.fft(c) * np.fft.fft(x)))
    check("50.4", lambda c, x: np.fft.ifft(np.fft.fft(c) * np.fft.fft(x)) + 1j)
    check("50.4", lambda c, x: torch.fft.ifft(torch.fft.fft(torch.tensor(c)) * torch.fft.fft(torch.tensor(x))).conj())
    right, wrong, conjugate = capsys.readouterr().out.splitlines()
    assert right.startswith("Exercise 50.4: right.")
    assert conjugate.startswith("Exercise 50.4: right.")
    assert wrong.startswith("Exercise 50.4: not yet.")
