"""The bar: right at the start, right at the end, and never back in between."""

import re
from pathlib import Path

import pytest

from lib.companion.sweep.progress import Bar


class Screen:
    """A folder of progress files and what the bar makes of them."""

    units = {"a": 10, "b": 10, "c": 4}  # noqa: RUF012

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture):
        self.folder, self.capsys = folder, capsys

    def say(self, key: str, text: str) -> None:
        (self.folder / key).mkdir(exist_ok=True)
        (self.folder / key / "progress").write_text(text)

    def bar(self, *finished: str) -> Bar:
        return Bar(self.units, {key: self.folder / key for key in self.units}, finished, every=1e6)

    def last(self) -> str:
        return self.capsys.readouterr().err.replace("\r", "\n").strip().split("\n")[-1].strip()


@pytest.fixture
def screen(tmp_path: Path, capsys: pytest.CaptureFixture) -> Screen:
    return Screen(tmp_path, capsys)


def test_the_bar_adds_up_what_all_processes_say_and_shows_what_they_are_at_and_the_time_left(screen: Screen):
    with screen.bar("c"):
        screen.say("a", "3 dense")
        screen.say("b", "1 retrained")
    assert re.match(r"33%\|\S+\s*\| 8/24 \[\d\d:\d\d<[\d:]+, .*dense, retrained\]", screen.last())


def test_the_bar_of_a_sweep_that_goes_on_starts_where_it_was_and_never_goes_back(screen: Screen):
    screen.say("a", "6 dense")
    screen.say("b", "2 dense")
    bar = screen.bar("c")
    assert (bar.bar.initial, bar.bar.n) == (12, 12)  # time left is reckoned from what is done from here on
    seen = []
    for text in ("1 dense", "", "5 dense", "6", "7 retrained", "10 fresh"):  # it counts up from its checkpoint
        screen.say("a", text)
        bar._show()
        seen.append(bar.bar.n)
    assert seen == [12, 12, 12, 12, 13, 16]
    with bar:
        pass
    assert screen.last().endswith("fresh]")  # b has not moved, nobody is at it


def test_the_last_state_of_the_bar_is_right(screen: Screen):
    with screen.bar() as bar:
        screen.say("a", "10 gradient")
        bar.finished |= {"a", "b", "c"}
    assert re.match(r"100%\|\S+\| 24/24 ", screen.last())
    with screen.bar("a") as bar:  # c failed
        screen.say("c", "3 dense")
        bar.finished.add("b")
    assert " 23/24 " in screen.last()


def test_a_configuration_counts_no_more_than_it_has(screen: Screen):
    screen.say("c", "9 dense")  # of 4
    assert screen.bar().bar.n == 4
