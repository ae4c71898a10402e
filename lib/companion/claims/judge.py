"""Compute verdicts from runs. This reads run files only and trains nothing."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import pandas as pd

from lib import base
from lib.base import BadInput
from lib.companion.claims.known import refuse_unknown
from lib.companion.claims.papers import Claim, Paper, grounds_first
from lib.companion.csv_files import read_csv
from lib.companion.pairs import WentWrong
from lib.companion.results import CELLS, CLAIMS, read_runs
from lib.companion.statistics import (
    DIFFERS,
    MOOT,
    NOT_RUN,
    REPRODUCED,
    UNDECIDED,
    VERDICTS,
    Interval,
    chance,
    interval,
    seeds_to_decide,
    together,
    verdict,
)

Measured = float | Mapping[str, float | Mapping[int, float] | Interval]


class Unmeasurable(BadInput):
    """The runs that are there do not hold what a claim is measured on."""


@dataclass(frozen=True)
class Cell:
    """Hold one network, environment or device that a claim is judged on, with its own verdict.

    Attributes:
        reason: why it is undecided or moot, as far as that is known, or which of its grounds is open.
        plainly: of a number that decides nothing by itself, the verdict that it would have; "" of others.
        seeds: how many would decide it (`seeds_to_decide`), infinite where none would; None where that is not asked.
    """

    name: str
    measured: Interval
    verdict: str
    reason: str = ""
    plainly: str = ""
    seeds: float | None = None

    def __str__(self):
        text = f"{text_of(self.measured)}, {self.verdict}" + (f" ({self.reason})" if self.reason else "")
        return f"{self.name}: {text}" if self.name else text


@dataclass(frozen=True)
class Judged:
    """Hold a claim as judged at one scale: its cells, or why there are none."""

    cells: tuple[Cell, ...] = ()
    data: str = ""
    why: str = ""

    @property
    def verdict(self) -> str:
        """Make one verdict from those of the cells; cells that are moot count only where all are."""
        found = [cell.verdict for cell in self.cells]
        return together([one for one in found if one != MOOT] or found) if found else NOT_RUN


MISSING = "no runs of"  # how the reason of a claim begins whose experiment has no runs at a scale


def judge(papers: list[Paper], scale: str, results: Path = base.RESULTS) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Judge all claims on the runs of a scale.

    Returns:
        One row a claim, in the order of the papers, columns CLAIMS; nothing measured is empty. And one row a cell of
        a claim that was measured, columns CELLS.
    """
    rows, cells = [], []
    read = cache(partial(read_runs, scale=scale, results=results))  # many claims stand on the same runs
    for paper in papers:
        found = {claim.id: _judged(claim, paper, scale, results, read) for claim in paper.claims}
        says = {claim.id: claim.says.replace(";", ",") for claim in paper.claims}
        for claim in grounds_first(paper):
            grounds = {f'presupposes "{says[ground]}"': found[ground] for ground in claim.presupposes}
            found[claim.id] = _upon(found[claim.id], grounds)
        for claim in paper.claims:
            judged = found[claim.id]
            head = {"id": claim.id, "paper": paper.paper, "where": claim.where, "says": claim.says}
            tail = {"note": _note(claim, paper, scale), "runs": _checksum(claim, scale, results)}
            rows.append(head | {"printed": claim.printed} | _row(judged, claim) | tail)
            for cell in judged.cells:
                about = {"chance": _chance(cell, claim), "verdict": cell.verdict, "reason": cell.reason}
                cells.append({"id": claim.id, "cell": cell.name} | _numbers(cell.measured) | about)
    return pd.DataFrame(rows, columns=list(CLAIMS)), pd.DataFrame(cells, columns=list(CELLS))


def measure(claim: Claim, paper: Paper, runs: pd.DataFrame | None) -> Measured:
    """Say what the claim's function says: one exact number, or for each cell one (benchmark) or one a seed (runs).

    From runs a cell may be an interval already, where there is more to it than seeds. The function is the one of this
    name in the paper's measures.py, which is found by the name of its folder.

    Raises:
        Unmeasurable: the function refuses these runs, such as for want of a seed.
        BadInput: the function is missing, does not take these arguments, asks for a column that the table lacks, or
            stops with a ValueError.
        WentWrong: it says that something went wrong.
    """
    function = measure_of(claim, paper)
    arguments = {k: v for k, v in claim.measure.items() if k not in ("function", "run", "bench")}
    try:
        return function(**arguments) if runs is None else function(runs, **arguments)
    except TypeError as error:
        raise BadInput(f"claim {claim.id}: {error}") from error
    except WentWrong:
        raise
    except BadInput as error:
        raise Unmeasurable(str(error)) from error
    except ValueError as error:
        raise BadInput(f"claim {claim.id}: {claim.measure['function']} fails: {error}") from error
    except (AttributeError, KeyError) as error:
        lacking = error.name if isinstance(error, AttributeError) else error.args[0]
        if runs is None or lacking in runs:
            raise
        raise BadInput(f"claim {claim.id}: the table that it is measured on has no column {lacking!r}") from error


def measure_of(claim: Claim, paper: Paper) -> Callable[..., Measured]:
    """Find the function that a claim names in the paper's measures.py.

    Raises:
        BadInput: there is none.
    """
    module = f"lib.papers.{paper.name}.measures"
    there = paper.name and importlib.util.find_spec(f"lib.papers.{paper.name}") and importlib.util.find_spec(module)
    function = getattr(importlib.import_module(module), str(claim.measure["function"]), None) if there else None
    if function is None:
        where = f"lib/papers/{paper.name}/measures.py" + ("" if there else ", a file that is not there")
        raise BadInput(f"claim {claim.id}: no measure {claim.measure['function']!r} in {where}")
    return function


def refuse_misspelt(paper: Paper, ids: Collection[str]) -> None:
    """Refuse claims that ask for what there is not, before their criteria are written for good.

    Raises:
        BadInput: one of these claims is measured by an unknown function, or as `refuse_unknown`.
    """
    for claim in paper.claims:
        if claim.id in ids and claim.measure:
            refuse_unknown(claim, paper, measure_of(claim, paper))


_exact_numbers: dict[str, float] = {}  # of definitions, which are the same at every scale


def _definition(claim: Claim, paper: Paper) -> Interval:
    key = json.dumps([paper.name, claim.measure], sort_keys=True)
    if key not in _exact_numbers:
        _exact_numbers[key] = measure(claim, paper, None)
    return _exact(_exact_numbers[key])


def _judged(claim: Claim, paper: Paper, scale: str, results: Path, read: Callable[[str], pd.DataFrame]) -> Judged:
    """A claim as its own runs, which `read` gives by their experiment, judge it, whatever it presupposes."""
    if claim.not_run:
        return Judged(why=claim.not_run)
    if "bench" in claim.measure:
        return _judged_by_bench(claim, paper, results)
    experiment = claim.measure.get("run")
    if experiment is None:
        exact = _definition(claim, paper)
        return Judged((Cell("", exact, verdict(exact, claim.holds_if)),), "arithmetic")
    if not (results / scale / "runs" / f"{experiment}.csv").exists():
        return Judged(why=f"{MISSING} {experiment} at the {scale} scale")
    runs = read(experiment)
    if runs.empty:
        return Judged(why=f"no run of {experiment} is finished at the {scale} scale")
    place = next((name for name in ("data", "env") if name in runs), None)  # whoever learns online has data from there
    if place is None:
        raise BadInput(f"claim {claim.id}: {experiment}.csv has neither data nor env: one of them must be in COLUMNS")
    if odd := [name for name in set(runs[place]) if not isinstance(name, str)]:
        raise BadInput(f"claim {claim.id}: {experiment}.csv: {place} {odd[0]} is no name of data")
    used = sorted(set(runs[place]))
    known = claim.data or paper.data
    foreign, own = [name for name in used if name not in known], claim.measure.get("data", known)
    lacking = f"needs {' or '.join(own)}, the {scale} scale has {', '.join(used)}"
    if claim.kind == "number":  # measured on the paper's own data alone, whatever else there is
        runs, used, foreign = runs[runs[place].isin(known)], [name for name in used if name in known], []
        if runs.empty:
            return Judged(why=f"an absolute number {lacking}")
    if "data" in claim.measure and not set(own) & set(used):
        return Judged(why=lacking)
    try:
        found = measure(claim, paper, runs.copy())  # a measure may add columns
    except WentWrong as error:
        raise BadInput(f"claim {claim.id}, {experiment}.csv at the {scale} scale: {error}") from error
    except Unmeasurable as error:  # a partial sweep may lack what a claim compares
        return Judged(why=f"the runs of {experiment} at the {scale} scale: {error}")
    if not isinstance(found, Mapping) or not all(isinstance(one, Mapping | Interval) for one in found.values()):
        given = f"{claim.measure['function']} gives {found!r:.60}"
        raise BadInput(f"claim {claim.id}: {given}: expected {{cell: {{seed: number}}}}")
    try:
        cells = tuple(_cell(name, values, claim) for name, values in found.items())
    except BadInput as error:
        raise BadInput(f"claim {claim.id}, {experiment}.csv: {error}") from error
    if not cells:
        lacking = f"the runs of {experiment} at the {scale} scale do not have it"
        return Judged(why=f"needs {_asked(claim.measure)}; {lacking}")
    return Judged(cells, _described((cell.name for cell in cells), used, foreign))


def _cell(name: str, values: Mapping[int, float] | Interval, claim: Claim) -> Cell:
    """One cell's verdict from its seeds, and why it is none."""
    measured = values if isinstance(values, Interval) else interval(list(values.values()))
    if void := _void(claim, measured, [measured.value] if isinstance(values, Interval) else list(values.values())):
        return Cell(name, measured, UNDECIDED, void, verdict(measured, claim.holds_if))
    found = verdict(measured, claim.holds_if)
    if found != UNDECIDED or measured.at is None:
        return Cell(name, measured, found)
    seeds = seeds_to_decide(measured, claim.holds_if) or math.inf
    return Cell(name, measured, found, _would_decide(seeds, seeds), seeds=seeds)


def _would_decide(one: float, every: float) -> str:
    """Say how many seeds would decide: the cell of a claim that needs the fewest, and every one of its cells."""
    if one > 1000:
        return "more seeds alone would not decide" if one == math.inf else "more than 1,000 seeds would decide"
    text = f"about {one:,} seeds would decide"
    if every == one:
        return text
    many = "more seeds alone would not decide" if every == math.inf else "more than 1,000"
    return f"{text} one cell, {f'about {every:,}' if every <= 1000 else many} every one"


def _void(claim: Claim, measured: Interval, values: list[float]) -> str:
    """Why a number decides nothing, though it lies clear of the bound; "" where it may decide.

    What follows by construction is exempt: there it is no wonder that all seeds agree.
    """
    if claim.kind == "arithmetic":
        return ""
    if claim.caps and all(value in claim.caps for value in values):
        return f"at the cap of the schedule, {' or '.join(f'{cap:g}' for cap in claim.caps)}"
    if claim.ceiling is not None and all(value >= claim.ceiling for value in values):
        return f"at the ceiling, {claim.ceiling:g}"
    if measured.seeds > 1 and measured.exact:
        return "all seeds give the same number, so the interval has no width"
    return ""


def _upon(judged: Judged, grounds: Mapping[str, Judged]) -> Judged:
    """A claim whose grounds are judged: moot in each cell in which one of them does not hold.

    A ground that has a cell of the same name, or of what the name begins with, speaks for that cell, any other with its
    verdict as a whole. One that is open itself makes nothing moot: a verdict that was reached stands, and says that it
    is open.
    """
    cells = []
    for cell in judged.cells:
        found = {text: _verdict_on(ground, cell.name) for text, ground in grounds.items()}
        failing = {DIFFERS: "which does not hold here", MOOT: "which is moot here"}
        failed = [f"{text}, {failing[one]}" for text, one in found.items() if one in failing]
        still_open = [f"{text}, which is {_said(one)} here" for text, one in found.items() if one != REPRODUCED]
        if failed:
            cell = replace(cell, verdict=MOOT, reason=", and it ".join(failed))
        elif still_open and cell.verdict in (REPRODUCED, DIFFERS):
            cell = replace(cell, reason=", and it ".join(still_open))
        cells.append(cell)
    return replace(judged, cells=tuple(cells))


def _said(verdict: str) -> str:
    """A verdict as a sentence has it."""
    return "partly reproduced" if verdict == "partly" else verdict


def _verdict_on(ground: Judged, cell: str) -> str:
    """What a ground says of a cell: the verdict of its own of that name, or else its verdict as a whole.

    Its cells may be named less closely: what it says of "Humanoid-v4" holds for "Humanoid-v4, block 2" as well.
    A ground that fails by the same number in every seed, or at a cap, decides nothing for itself; but it does not hold.
    """
    own = tuple(one for one in ground.cells if cell == one.name or cell.startswith(f"{one.name}, "))
    speaks = replace(ground, cells=own or ground.cells)
    fails = [one.plainly == DIFFERS for one in speaks.cells]
    return DIFFERS if fails and all(fails) else speaks.verdict


def _asked(measure: Mapping[str, object]) -> str:
    """What a measure asks the runs for: "env Humanoid-v4, method gst, steps 1000000"."""
    asked = {**measure.get("chosen", {}), **measure}
    for name in ("function", "run", "chosen"):
        asked.pop(name, None)
    if isinstance(asked.get("against"), Mapping):
        asked |= {f"against {k}": v for k, v in asked.pop("against").items()}
    return ", ".join(f"{k} {' or '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in asked.items())


def _described(cells: Iterable[str], used: list[str], foreign: list[str]) -> str:
    """On what a claim was judged: "cifar10 (stand-in): resnet20, vgg10". Cells are named "data/what", as most are."""
    parts = [cell.split("/") for cell in cells]
    on = {name: dict.fromkeys(what[0] for data, *what in parts if data == name and what) for name in used}
    texts = []
    for name in [name for name in used if on[name]] or used:
        text = f"{name} (stand-in)" if name in foreign else name
        texts.append(f"{text}: {', '.join(on[name])}" if on[name] else text)
    return "; ".join(texts)


def _judged_by_bench(claim: Claim, paper: Paper, results: Path) -> Judged:
    """Timings belong to no scale. A cell, named "device/...", is a median of many and taken as exact."""
    name, device = claim.measure["bench"], claim.measure["device"]
    path = results / "bench" / f"{name}.csv"
    found = measure(claim, paper, read_csv(path)) if path.exists() else {}
    if not found:
        needs = "needs a GPU with sparse tensor cores" if device == "cuda" else "not measured yet"
        return Judged(why=f"{needs}; python -m lib.bench {name} --device {device}")
    cells = [(cell, _exact(value)) for cell, value in found.items()]
    devices = ", ".join(sorted({cell.split("/")[0] for cell, _ in cells}))
    return Judged(tuple(Cell(cell, exact, verdict(exact, claim.holds_if)) for cell, exact in cells), devices)


def _row(judged: Judged, claim: Claim) -> dict:
    """The numbers and words of a claim's row; of several cells the numbers of the one that is worst for the claim.

    That is the one with the worst mean of those with the worst verdict. `why` has all of them, and so has cells.csv.
    """
    if not judged.cells:
        empty = dict.fromkeys(("measured", "low", "high", "seeds", "cells", "data"), "")
        return empty | {"verdict": NOT_RUN, "needs": claim.needs, "why": judged.why}
    counting = [cell for cell in judged.cells if cell.verdict != MOOT] or judged.cells
    worst = min(counting, key=lambda cell: (-VERDICTS.index(cell.verdict), _margin(cell.measured, claim.holds_if)))
    why = "; ".join(map(str, judged.cells))
    about = {"cells": len(judged.cells), "data": judged.data, "verdict": judged.verdict, "needs": worst.reason}
    seeds = [cell.seeds for cell in counting if cell.verdict == UNDECIDED]
    if judged.verdict == UNDECIDED and None not in seeds:
        about["needs"] = _would_decide(min(seeds), max(seeds))
    return _numbers(worst.measured) | about | {"why": why}


def _chance(cell: Cell, claim: Claim) -> float:
    """How likely chance alone decides as clearly, to three digits; 1 of what is undecided, for any reason."""
    return float(f"{1.0 if cell.verdict == UNDECIDED else chance(cell.measured, claim.holds_if):.3g}")


def _margin(measured: Interval, criterion: Mapping[str, object]) -> float:
    """How far the mean is inside the criterion; of cells with one verdict the smallest is shown."""
    kind, bound = next(iter(criterion.items()))
    if kind == "between":
        return min(measured.value - bound[0], bound[1] - measured.value)
    return measured.value - bound if kind in ("at_least", "above") else bound - measured.value


def _note(claim: Claim, paper: Paper, scale: str) -> str:
    """What a reader of the verdict must know: a change of its criterion too, and seeds that came after a look."""
    why = claim.criterion.because if claim.criterion is not None else ""
    added = [one.note for one in paper.added if (one.run, one.scale) == (claim.measure.get("run"), scale)]
    return "; ".join(part for part in (claim.note, f"the criterion was changed: {why}" if why else "", *added) if part)


def _checksum(claim: Claim, scale: str, results: Path) -> str:
    """The run file that a claim was judged on and the beginning of its sha256, so that a verdict names its runs."""
    path = results / scale / "runs" / f"{claim.measure.get('run')}.csv"
    return f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}" if path.exists() else ""


def _exact(value: float) -> Interval:
    return Interval(value, value, value, 0)


def _numbers(measured: Interval) -> dict:
    # ten decimals are finer than any criterion and take away rounding errors; adding 0.0 turns -0.0 into 0.0
    value, low, high = (round(x, 10) + 0.0 for x in (measured.value, measured.low, measured.high))
    return {"measured": value, "low": low, "high": high, "seeds": measured.seeds}


def text_of(measured: Interval) -> str:
    """Write a number with its interval: "-0.08 [-0.36, 0.2], 5 seeds"."""
    numbers = _numbers(measured)
    if measured.seeds == 0:
        return f"{numbers['measured']:.4g}"
    if measured.seeds == 1 and math.isinf(measured.low) and math.isinf(measured.high):
        return f"{numbers['measured']:.4g} (one seed: no interval)"
    seeds = "1 seed" if measured.seeds == 1 else f"{measured.seeds} seeds"  # one: a share, which has an interval
    return f"{numbers['measured']:.4g} [{numbers['low']:.4g}, {numbers['high']:.4g}], {seeds}"
