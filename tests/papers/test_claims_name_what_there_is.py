"""A misspelt value in a claim's measure selects no run, which would read as "not run": each must be known somewhere."""

from collections.abc import Iterator, Mapping

import pytest

from lib.base import ROOT
from lib.companion.claims import papers
from lib.companion.csv_files import read_csv
from lib.companion.sweep import settings
from lib.companion.sweep.grid import grid

SCALES = ("quick", "real", "paper")
WORDS = {"all", "fewest"}  # of measures, not of runs
DERIVED = {"flips", "gap"}  # columns that a measure computes
UNMEASURED = {"vox1_o", "vox1_e", "vox1_h"}  # trials of data that nobody here has


def texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for pair in value.items() for one in pair for text in texts(one))
    elif isinstance(value, list | tuple):
        yield from (text for one in value for text in texts(one))


def known(experiment: str) -> set[str]:
    """All texts of an experiment: in settings at any scale, in its run files, and their columns."""
    found = set()
    for scale in SCALES:
        if experiment in settings.experiments(scale):
            found |= set(texts(list(grid(experiment, scale).configurations.values())))
        if (path := ROOT / "results" / scale / "runs" / f"{experiment}.csv").exists():
            rows = read_csv(path)
            found |= set(rows.columns)
            found |= {text for name in rows.select_dtypes(["object", "string"]) for text in rows[name].unique()}
    return found


def asked(claims) -> dict[str, list[tuple[str, str]]]:
    found = {}
    for claim in claims:
        measure = {name: value for name, value in claim.measure.items() if name not in ("function", "run")}
        if "run" in claim.measure:
            values = [text for name, value in measure.items() for text in texts(value)]
            names = {part for text in values for part in text.split("/")}  # network/teacher/loss is one text of three
            found.setdefault(claim.measure["run"], []).extend((claim.id, name) for name in sorted(names))
    return found


ASKED = asked(claim for paper in papers.read() for claim in paper.claims)


@pytest.mark.parametrize("experiment", ASKED)
def test_every_name_that_a_claim_asks_for_is_known_to_its_experiment(experiment):
    there = known(experiment) | WORDS | DERIVED | UNMEASURED
    assert [(claim, name) for claim, name in ASKED[experiment] if name not in there] == []
