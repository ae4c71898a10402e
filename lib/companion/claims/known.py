"""Refuse a claim that asks for a name which is nowhere: it would select no runs, as if none had been made."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from lib import base
from lib.base import BadInput
from lib.companion.claims.papers import Claim, Paper
from lib.companion.csv_files import read_csv
from lib.companion.sweep import settings
from lib.companion.sweep.grid import grid, names


def refuse_unknown(claim: Claim, paper: Paper, function: object) -> None:
    """Refuse a claim that asks for what there is not: an experiment, an argument of its function, a text.

    Raises:
        BadInput: the first of them.
    """
    arguments = {name: value for name, value in claim.measure.items() if name not in ("function", "run", "bench")}
    run = claim.measure.get("run")
    if run is not None and run not in names():
        raise BadInput(f"claim {claim.id}: no experiment {run!r}; there are: {', '.join(names())}")
    try:
        inspect.signature(function).bind(*([None] if "run" in claim.measure else []), **arguments)
    except TypeError as error:
        raise BadInput(f"claim {claim.id}: {claim.measure['function']}: {error}") from error
    if run is None:
        return
    there = texts_of(run, paper.name)
    asked = (part for value in arguments.values() for text in texts(value) for part in text.split("/"))
    if unknown := [part for part in asked if part not in there]:  # network/teacher/loss is one text of three
        raise BadInput(
            f"claim {claim.id} asks for {unknown[0]!r}, which is in no run of {run}, in none of its settings and in no "
            f"program of its paper: is it misspelt?"
        )


def texts(value: object) -> Iterator[str]:
    """Give each text in a value, the names of mappings too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for pair in value.items() for one in pair for text in texts(one))
    elif isinstance(value, list | tuple):
        yield from (text for one in value for text in texts(one))


@cache
def texts_of(experiment: str, paper: str) -> frozenset[str]:
    """Collect the texts of an experiment: in its settings at any scale, its run files and their columns, in its paper's
    programs, whose measures have words and columns of their own, and in those that read data, some of which nobody here
    has; read once a process.
    """
    found: set[str] = set()
    for scale in settings.SCALES:
        if experiment in settings.experiments(scale):
            found |= set(texts(list(grid(experiment, scale).configurations.values())))
        if (path := base.RESULTS / scale / "runs" / f"{experiment}.csv").exists():
            rows = read_csv(path)
            found |= set(rows.columns)
            found |= {text for name in rows.select_dtypes(["object", "string"]) for text in rows[name].unique()}
    for folder in (base.ROOT / "lib" / "papers" / paper, base.ROOT / "lib" / "data"):
        for program in sorted(folder.rglob("*.py")):
            found |= _words(program)
    return frozenset(found)


def _words(program: Path) -> set[str]:
    """Collect the texts that stand in a program."""
    nodes = ast.walk(ast.parse(program.read_text()))
    return {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
