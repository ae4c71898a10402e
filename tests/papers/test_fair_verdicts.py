"""What makes a verdict fair, on today's claims and ledger: each rule finds nothing, and finds what breaks it."""

import functools
import re
from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import pytest

from lib import base
from lib.companion.claims import papers
from lib.companion.claims.papers import Claim
from lib.companion.csv_files import read_csv
from lib.companion.results import read_claims, read_scorecard
from lib.companion.sweep.settings import SCALES

Claims = dict[str, Claim]
DECIDED = ("reproduced", "differs", "partly")
BY_CONSTRUCTION = (
    "skdfe-same-size",
    "two-four-permutation-keeps-magnitude",
    "gst-early-level",
    "gst-saves-more-than-rwp",
    "gst-larger-blocks-save-more",
    "gst-no-advantage-on-halfcheetah",
    "gst-friendly-as-good-as-without",
    "gst-bitmap-or-csr",
)
EXPECTED = (  # rows that a reader looks for
    "two-four-unstructured-gains-little",
    "npn-arm-low-variance",
    *(f"skdfe-{what}-{depth}-min-dcf" for what in ("label", "feature") for depth in (18, 34)),
    "skdfe-deeper-50-min-dcf",
    "skdfe-small-beats-34-min-dcf",
    "two-four-unstructured-gains-little-cpu",
)
DEPTHS = ("skdfe-34-like-50", "skdfe-narrower-gap", "skdfe-narrower-gap-50")
BEFORE_SIZES = (  # asked of no shrunk network
    "npn-cifar10-expansion-grows",
    "npn-cifar10-start-is-too-small",
    "npn-cifar10-trained-as-long",
)
ONE_SESSION = ("two-four-retraining-keeps", "two-four-networks-keep", "two-four-small-networks-lose")


@functools.cache
def today() -> Claims:
    return {claim.id: claim for paper in papers.read() for claim in paper.claims}


def without_ground(claims: Claims) -> list[str]:
    """Rows that mean nothing where something else fails, and do not say so."""
    needs = {name: ("skdfe-deeper-",) for name in claims if re.match(r"skdfe-(small-beats|over)-.*(34|50)(-|$)", name)}
    needs |= dict.fromkeys((*DEPTHS, "skdfe-stronger-teacher"), ("skdfe-deeper-",))
    needs |= {
        name: ("npn-cifar10-sparsified-size", "npn-cifar10-expanded-size")
        for name, claim in claims.items()
        if name.startswith("npn-cifar10-") and claim.kind != "number" and name not in BEFORE_SIZES
    }
    needs |= dict.fromkeys(ONE_SESSION, ("two-four-",))
    return [name for name, ones in needs.items() if not any(g.startswith(ones) for g in claims[name].presupposes)]


def without_convergence(claims: Claims) -> list[str]:
    """Relations of paper 2 to a network that had one session, of one that had two, and do not presuppose that a second
    session alone gains nothing.
    """
    asked = {name: claim.measure or {} for name, claim in claims.items() if claim.kind == "relation"}
    return [
        name
        for name, measure in asked.items()
        if str(measure.get("run")).startswith("two_four_") and measure.get("function") == "difference"
        if measure.get("against") == "dense" and measure.get("variant") in ("retrained", "sparse", "sparse_permuted")
        if not any(ground.endswith("-converged") for ground in claims[name].presupposes)
    ]


def measured_though_built(claims: Claims) -> list[str]:
    """Rows that follow from how the code is built, and are not called arithmetic."""
    return [name for name in BY_CONSTRUCTION if claims[name].kind != "arithmetic"]


def without_gain(claims: Claims) -> list[str]:
    """Rows of paper 3 that ask for an improvement, and have none beside them that asks for the printed gain."""
    improves = [name for name in claims if re.fullmatch(r"skdfe-(label|feature|both)-\d\d(-min-dcf)?", name)]
    return [
        name
        for name in improves
        if f"{name}-gain" not in claims
        or claims[f"{name}-gain"].measure != claims[name].measure
        or claims[f"{name}-gain"].holds_if.get("at_least", 0) <= 0
    ]


def not_headed_fairly(claims: Claims) -> list[str]:
    """Families of paper 2 whose first row is not judged against networks that were trained as long, within 0.3."""
    order = list(claims)
    rows = ("two-four-retraining-keeps", "two-four-networks-keep")
    return [
        name
        for name in rows
        if order.index(f"{name}-fairly") > order.index(name)
        or claims[f"{name}-fairly"].holds_if != {"at_least": -0.3}
        or claims[f"{name}-fairly"].measure.get("against") != "dense_twice"
    ]


def absent(claims: Claims) -> list[str]:
    """Rows that a reader expects, and that are not there."""
    return [name for name in EXPECTED if name not in claims]


def change(name: str, **parts: object) -> Callable[[Claims], Claims]:
    return lambda claims: claims | {name: replace(claims[name], **parts)}


def leave_out(name: str) -> Callable[[Claims], Claims]:
    return lambda claims: {other: claim for other, claim in claims.items() if other != name}


@pytest.mark.parametrize(
    ("rule", "broken", "found"),
    [
        (without_ground, change("skdfe-over-mse-50", presupposes=()), "skdfe-over-mse-50"),
        (without_ground, change("skdfe-34-like-50", presupposes=()), "skdfe-34-like-50"),
        (without_ground, change("npn-cifar10-beats-fresh", presupposes=()), "npn-cifar10-beats-fresh"),
        (without_ground, change("two-four-networks-keep", presupposes=()), "two-four-networks-keep"),
        (
            without_convergence,
            change("two-four-retraining-keeps", presupposes=("two-four-pruning-costs-a-point",)),
            "two-four-retraining-keeps",
        ),
        (measured_though_built, change("gst-bitmap-or-csr", kind="relation"), "gst-bitmap-or-csr"),
        (without_gain, leave_out("skdfe-both-18-gain"), "skdfe-both-18"),
        (without_gain, change("skdfe-label-34-min-dcf-gain", holds_if={"above": 0}), "skdfe-label-34-min-dcf"),
        (
            not_headed_fairly,
            change("two-four-networks-keep-fairly", holds_if={"at_least": -1}),
            "two-four-networks-keep",
        ),
        (absent, leave_out("npn-arm-low-variance"), "npn-arm-low-variance"),
    ],
)
def test_claims_follow_the_rules(rule: Callable, broken: Callable, found: str):
    assert rule(today()) == []
    assert found in rule(broken(today()))


def decided_by_nothing(cells: pd.DataFrame, claims: Claims) -> list[str]:
    """Cells that are decided although all seeds gave one number or one seed is all there is; arithmetic is exempt."""
    seeds = cells.seeds.astype(int)
    nothing = (seeds == 1) | ((seeds > 1) & (cells.low.astype(float) == cells.high.astype(float)))
    runs = cells.id.map(lambda name: claims[name].kind != "arithmetic")
    return cells[nothing & runs & cells.verdict.isin(DECIDED)].id.tolist()


@pytest.mark.parametrize("scale", [scale for scale in SCALES if (base.RESULTS / scale / "cells.csv").exists()])
def test_an_interval_without_width_decides_nothing(scale: str):
    cells = read_csv(base.RESULTS / scale / "cells.csv", keep_default_na=False)
    assert decided_by_nothing(cells, today()) == []
    kinds = cells.id.map(lambda name: today()[name].kind)
    some = cells[(cells.seeds.astype(int) > 1) & (kinds != "arithmetic")].head(3)
    assert len(some), "the rule has something to hold back"
    flat = some.assign(low=some.measured, high=some.measured, verdict="reproduced")
    assert decided_by_nothing(flat, today()) == flat.id.tolist()
    assert decided_by_nothing(flat.assign(verdict="undecided"), today()) == []


def on_a_stand_in(scorecard: pd.DataFrame, by_scale: dict[str, pd.DataFrame]) -> list[str]:
    """Claims that the scorecard judges on a stand-in though some scale has the paper's own data."""
    foreign = lambda data: all("(stand-in)" in part for part in data.split("; "))  # noqa: E731
    own = {
        row.id
        for table in by_scale.values()
        for row in table.itertuples()
        if row.data not in ("", "arithmetic") and not foreign(row.data)
    }
    return [row.id for row in scorecard.itertuples() if row.id in own and row.data and foreign(row.data)]


def test_the_papers_own_data_go_before_a_stand_in():
    tables = {scale: read_claims(scale) for scale in SCALES if (base.RESULTS / scale / "claims.csv").exists()}
    assert on_a_stand_in(read_scorecard(), tables) == []
    mine = tables["quick"][tables["quick"].id == "npn-mnist-expanded-is-similar"]
    assert on_a_stand_in(mine, tables) == ["npn-mnist-expanded-is-similar"]  # digits, where MNIST has one seed


def hidden(scorecard: pd.DataFrame, page: str, cells: pd.DataFrame) -> list[str]:
    """Cells of claims with several that the page of all claims does not name."""
    several = {row.id for row in scorecard.itertuples() if row.cells not in ("", 1, "1")}
    lines = {name: line for name in several for line in page.splitlines() if f"`{name}`" in line}
    return [f"{c.id}: {c.cell}" for c in cells.itertuples() if c.id in several and f"{c.cell}: " not in lines[c.id]]


def test_each_network_and_environment_is_a_cell_that_is_seen():
    scorecard = read_scorecard()
    page = (base.RESULTS / "claims.md").read_text()
    cells = read_csv(base.RESULTS / "real" / "cells.csv", keep_default_na=False)
    mine = scorecard[scorecard.scale == "real"]
    cells = cells[cells.id.isin(mine.id)]
    assert hidden(mine, page, cells) == []
    cut = page.replace("mnist/lenet5: ", "")
    assert hidden(mine, cut, cells)
