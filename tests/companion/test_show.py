"""A notebook shows each result under its scale, and a figure once."""

import base64
import re

import matplotlib.pyplot as plt
import pandas as pd
import pytest
from IPython.display import Markdown

from lib.companion import show


def test_a_result_stands_under_the_name_of_its_scale(monkeypatch: pytest.MonkeyPatch):
    shown: list = []
    monkeypatch.setattr(show, "display", shown.append)
    table = pd.DataFrame({"a": [1]})
    show.show_at("real", table)
    assert isinstance(shown[0], Markdown)
    assert "real" in shown[0].data
    assert shown[1] is table


def test_a_figure_that_was_shown_is_not_drawn_again_at_the_end_of_the_cell(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(show, "display", lambda found: None)
    figure, _ = plt.subplots()
    show.show_at("quick", figure)
    assert not plt.fignum_exists(figure.number)


def test_what_is_folded_opens_at_a_click_and_holds_the_same(monkeypatch: pytest.MonkeyPatch):
    shown: list = []
    monkeypatch.setattr(show, "display", shown.append)
    show.show_at("quick", pd.DataFrame({"a": [31]}), fold=True)
    figure, _ = plt.subplots()
    figure.suptitle('All is "well"')
    show.show_at("quick", figure, fold=True)
    table, picture = (one.data for one in shown)
    assert table.startswith("<details><summary>The same at the quick scale</summary>")
    assert "<td>31</td>" in table
    assert 'alt="All is &quot;well&quot;"' in picture
    assert b"<svg" in base64.b64decode(re.search('base64,([^"]+)', picture)[1])
    assert not plt.fignum_exists(figure.number)
