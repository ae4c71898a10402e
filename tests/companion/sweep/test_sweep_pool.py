"""Several experiments in one pool: each has its own CSV and store, and the bytes it has alone."""

import argparse

import pytest
import yaml

from lib.base import BadInput
from lib.companion.sweep import grid
from lib.companion.sweep import program as sweep


@pytest.fixture
def twins(toys, monkeypatch: pytest.MonkeyPatch):
    """The toy, and beside it another experiment of the same code with settings and sources of its own."""
    block = {"toy": {"names": ["d", "b", "a", "c"]}, "twin": {"names": ["e", "f"], "steps": 5}}
    toys.toy.params.write_text(yaml.safe_dump({"quick": block}, sort_keys=False))
    module_of, hashed = grid.module_of, grid.imported_hash
    monkeypatch.setattr(grid, "module_of", lambda name: module_of("toy" if name == "twin" else name))
    monkeypatch.setattr(grid, "imported_hash", lambda name: hashed(name)[::-1] if name == "twin" else hashed(name))
    return toys


def words(twins, *more: str) -> list[str]:
    places = ["--results", str(twins.folder / "results"), "--store", str(twins.folder / "store")]
    return ["--jobs", "1", "--params", str(twins.toy.params), *places, *more]


def csv(twins, name: str) -> str:
    return (twins.folder / "results" / "quick" / "runs" / f"{name}.csv").read_text()


def test_experiments_share_a_pool_and_each_writes_what_it_writes_alone(twins):
    sweep.main(words(twins, "twin"))
    alone = csv(twins, "twin")
    twins.toy.steps.clear()
    sweep.main(words(twins, "--all"))
    began = [name for name, step in twins.toy.steps if step == 0]
    assert began[:2] == ["e", "d"]  # the largest of each; then whichever takes longest, as measured
    assert sorted(began[2:]) == ["a", "b", "c", "f"]
    assert (csv(twins, "toy"), csv(twins, "twin")) == (twins.TABLE, alone)
    assert not list((twins.folder / "store" / "quick").glob("*/*.json"))


def test_one_that_fails_leaves_the_others_written(twins, capsys: pytest.CaptureFixture):
    twins.toy.before = twins.fail_at("f")
    with pytest.raises(SystemExit):
        sweep.main(words(twins, "toy", "twin"))
    assert csv(twins, "toy") == twins.TABLE
    assert "1 of 2 configurations failed, 1 are finished and kept" in capsys.readouterr().err
    twins.toy.before = lambda name, step: None
    twins.toy.steps.clear()
    sweep.main(words(twins, "twin"))
    assert {name for name, _ in twins.toy.steps} == {"f"}


def test_a_pool_that_was_interrupted_goes_on(twins):
    twins.toy.before = twins.interrupt_at(("f", 2))
    with pytest.raises(SystemExit):
        sweep.main(words(twins, "--all"))
    twins.toy.before = lambda name, step: None
    done = {name for name, step in twins.toy.steps if step == 4 or (name in "dbac" and step == 2)}
    twins.toy.steps.clear()
    sweep.main(words(twins, "--all"))
    assert not done & {name for name, _ in twins.toy.steps}
    assert csv(twins, "toy") == twins.TABLE


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ([], "name one experiment or more, or say --all for every one of the scale: one of the two"),
        (["toy", "--all"], "name one experiment or more, or say --all for every one of the scale: one of the two"),
        (["toy", "toy"], "'toy' stands there twice"),
        (["toy", "twin", "--resume-from", "x.csv"], "--resume-from FILE is for one experiment at a time"),
    ],
)
def test_what_cannot_be_meant_is_refused(twins, asked: list[str], line: str):
    with pytest.raises(BadInput, match=line):
        sweep.sweep(sweep.arguments().parse_args(words(twins, *asked)))


def test_all_are_those_of_the_scale(twins):
    asked = sweep.arguments().parse_args(words(twins, "--all"))
    assert isinstance(asked, argparse.Namespace)
    assert sweep.experiments(asked) == ["toy", "twin"]
