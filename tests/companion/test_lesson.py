"""Laws of `lib.companion.lesson`: a sentence's numbers are the ledger's, and it fails when a verdict has changed."""

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion import lesson, plots
from lib.companion.lesson import ChangedFinding, sentence
from lib.companion.statistics import Interval

LEDGER = pd.DataFrame(
    [
        {"id": "a-95", "verdict": "differs", "measured": 0.1432, "low": 0.11, "high": 0.16, "seeds": 5},
        {"id": "exact", "verdict": "reproduced", "measured": 3.8246, "low": 3.8246, "high": 3.8246, "seeds": 0},
        {"id": "open", "verdict": "not run", "measured": "", "low": "", "high": "", "seeds": ""},
    ]
)


def test_numbers_come_from_the_ledger_and_from_what_is_given():
    text = "SNIP keeps {a-95} ({a-95.value:.0%} of it, {a-95.seeds} seeds), chance {chance:.1f}; {exact:.1f} times."
    found = sentence(text, {"a-95": "differs", "exact": "reproduced"}, LEDGER, chance=47.96)
    assert found == "SNIP keeps 0.14 [0.11, 0.16] (14% of it, 5 seeds), chance 48.0; 3.8 times."


def test_an_interval_is_printed_with_its_ends_and_one_seed_without():
    assert sentence("{gain:.1f}", gain=Interval(1.25, -0.5, 3.0, 3)) == "1.2 [-0.5, 3.0]"
    assert sentence("{gain:.1f}", gain=Interval(1.25, float("-inf"), float("inf"), 1)) == "1.2"


def test_a_difference_is_printed_with_its_sign_turned():
    loss = Interval(-1.25, -3.0, 0.5, 3)
    assert sentence("{loss.minus:.2f} points below", loss=loss) == "1.25 [-0.50, 3.00] points below"
    assert sentence("{a-95.minus}", {"a-95": "differs"}, LEDGER) == "-0.14 [-0.16, -0.11]"


def test_a_speed_up_is_printed_with_its_quartiles():
    row = pd.Series({"speedup": 2.62, "speedup_low": 2.39, "speedup_high": 2.7})
    assert sentence("{fast:.1f} times", fast=lesson.timed(row)) == "2.6 [2.4, 2.7] times"


def test_what_rounds_to_zero_has_no_sign():
    gain = Interval(-0.02, -0.5, 0.4, 3)
    assert sentence("{gain:.1f}, {gain:+.1f}", gain=gain) == "0.0 [-0.5, 0.4], +0.0 [-0.5, +0.4]"
    assert plots.interval_text(gain, 1) == "0.0 [-0.5, 0.4]"


def test_a_sentence_fails_when_its_verdict_has_changed_sides():
    with pytest.raises(ChangedFinding, match="claim a-95 is 'differs' now, the sentence rests on 'reproduced'"):
        sentence("It holds.", {"a-95": "reproduced"}, LEDGER)


@pytest.mark.parametrize(
    ("text", "rests_on", "what"),
    [
        ("it holds", ["a-95"], r"rests_on=\['a-95'\]: expected a verdict for each claim"),
        ("{a-95}", {}, r"\{a-95\} is neither a value that was given nor a claim named in rests_on"),
        ("{a-95}", {"exact": "reproduced"}, r"\{a-95\} is neither"),
        ("fine", {"b": "differs"}, "no claim 'b' in the ledger"),
        ("{open}", {"open": "not run"}, "claim open has no number"),
        ("Where intervals are wide, nobody knows.", {}, "instead of what happened"),
    ],
)
def test_what_would_be_no_answer_is_refused(text: str, rests_on: dict, what: str):
    with pytest.raises(BadInput, match=what):
        sentence(text, rests_on, LEDGER)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Where an interval contains 0, nothing is lost.", "Where an interval"),
        ("It is kept where it excludes 0.", "where it excludes"),
        ("Compare\nthe rows.", "Compare the rows"),
        ("It grows if the interval is clear of 0.", "if the interval"),
        ("It may have been higher.", "may have"),
        ("This may be a loss of a quarter or a gain of an eighth.", "may be a loss of a quarter or"),
        ("What it is worth? It depends.", "It depends"),
        ("Look at the table.", "Look at the table"),
        ("Either SNIP wins or chance does.", "Either SNIP wins or"),
        ("SNIP wins. You may scale first. Three seeds cannot tell either from nothing; nor can five.", ""),
        ("Arrows show where the dense network is, where it stands later, and what may go, in any order.", ""),
    ],
)
def test_words_that_leave_the_answer_to_the_reader_are_found(text: str, words: str):
    assert lesson.hedged(text) == words


def test_a_list_is_written_as_a_sentence_has_it():
    assert [lesson.listed(range(count)) for count in (1, 2, 3)] == ["0", "0 and 1", "0, 1 and 2"]
    assert lesson.listed(iter("abc"), last="or") == "a, b or c"
    assert lesson.listed((1.26, 1000), ",.1f") == "1.3 and 1,000.0"
    with pytest.raises(BadInput, match="nothing to list"):
        lesson.listed([])


def test_a_function_is_shown_as_it_stands(monkeypatch: pytest.MonkeyPatch):
    import IPython.display

    shown = []
    monkeypatch.setattr(IPython.display, "display", lambda what: shown.append(what.data))
    lesson.show(lesson.say)
    assert "lib/companion/lesson.py" in shown[0]
    assert "display(Markdown(sentence(text, rests_on, **values)))" in shown[0]
    assert '"""Show a sentence in the notebook as Markdown' in shown[0]
    with pytest.raises(BadInput, match="show takes functions and classes of the library, this is None"):
        lesson.show(None)


@pytest.mark.parametrize("text", ["a {x", "a }", "{x.foo}", "{x:zz}"])
def test_a_place_that_cannot_be_filled_is_refused(text: str):
    with pytest.raises(BadInput, match=r"a brace that is meant|cannot be filled"):
        sentence(text, claims=LEDGER, x=3.5)


def test_a_number_may_be_filled_up_to_a_width():
    assert sentence("{gain:>6.1f}", gain=Interval(1.25, -0.5, 3.0, 3)) == "   1.2 [  -0.5,    3.0]"


def test_a_number_of_several_cells_says_which(monkeypatch: pytest.MonkeyPatch):
    row = {"id": "two", "verdict": "partly", "measured": 1, "low": 0, "high": 2, "seeds": 3, "cells": 2}
    claims = pd.DataFrame([row])
    cells = pd.DataFrame(
        [
            {"id": "two", "cell": f"digits/{name}", "measured": x, "low": x - 1, "high": x + 1, "seeds": 3}
            for name, x in (("resnet", 1), ("lenet", 5))
        ]
    )
    monkeypatch.setattr(lesson, "read_cells", lambda scorecard: cells)

    def filled(place: str) -> str:
        return lesson.sentence(f"It is {place}.", {"two": "partly"}, claims)

    assert filled("{two@lenet:.0f}") == "It is 5 [4, 6]."
    assert filled("{two@worst.minus:.0f}") == "It is -1 [-2, 0]."
    with pytest.raises(BadInput, match=r"claim two has 2 cells: write which, \{two@worst\} or one of them"):
        filled("{two:.0f}")
    with pytest.raises(BadInput, match="claim two has 0 cells named 'vgg'; there are: digits/resnet, digits/lenet"):
        filled("{two@vgg:.0f}")
