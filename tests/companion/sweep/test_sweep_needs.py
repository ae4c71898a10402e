"""Configurations that need the rows of another one: when they run, and what they are given."""

from types import SimpleNamespace

import pytest

from lib.companion.sweep.grid import grid


@pytest.fixture
def given(toys, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[dict]]:
    """d and b need a's rows; which rows each run was given."""
    found, experiment = {}, grid("toy", "quick", toys.toy.params).experiment

    def run(configuration: dict, context, needed: list[dict]) -> list[dict]:
        found[configuration["name"]] = needed
        return toys.toy.run(configuration, context)

    needs = lambda configuration: configuration | {"name": "a"} if configuration["name"] in "db" else None  # noqa: E731
    monkeypatch.setattr(experiment, "needs", needs, raising=False)
    monkeypatch.setattr(experiment, "run", run)
    return found


NEEDED = [{"value": value, "step": step, "name": "a"} for step, value in enumerate([1 / 3, 1.0, 2.0])]


def test_what_needs_anothers_rows_comes_after_it_and_is_given_them(toys, given: dict):
    assert toys() == 0
    assert [name for name, step in toys.toy.steps if step == 0] == list("acdb")
    assert given == {"a": [], "c": [], "d": NEEDED, "b": NEEDED}
    assert toys.csv().read_text() == toys.TABLE


def test_the_rows_of_a_configuration_that_was_finished_before_are_given_too(toys, given: dict):
    toys.toy.before = toys.interrupt_at(("b", 1))
    assert toys() == 130
    given.clear()
    toys.toy.before = lambda name, step: None
    assert toys() == 0
    assert given == {"b": NEEDED}
    assert toys.csv().read_text() == toys.TABLE


def test_what_needs_the_rows_of_one_that_failed_stays_missing(toys, given: dict):
    toys.toy.before = toys.fail_at("a")
    assert toys() == 2
    assert "lib.sweep: 1 of 4 configurations failed, 1 are finished and kept; the first: " in toys.err
    assert set(given) == {"a", "c"}


def test_what_needs_the_rows_of_one_that_was_stopped_stays_missing(toys, given: dict, clock: SimpleNamespace):
    toys.toy.before = toys.over_at(clock, ("a", 1))
    assert toys("--budget", "25m") == 0
    assert "toy.csv: 0 of 4 configurations, the time is over" in toys.out
    assert set(given) == {"a"}


def test_a_grid_that_lacks_what_is_needed_is_refused(toys, given: dict):
    toys.toy.params.write_text("quick: {toy: {names: [d, c]}}")
    assert toys() == 2
    assert toys.err == "lib.sweep: quick.toy: a configuration needs another that is not in the grid"
