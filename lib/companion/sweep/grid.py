"""List the configurations of an experiment at a scale and the keys they are stored under, and run one of them."""

from __future__ import annotations

import functools
import hashlib
import importlib
import io
import json
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pandas as pd
from tqdm import tqdm

from lib import base
from lib.base import BadInput, build, type_of
from lib.companion.csv_files import csv_text, refuse_lacking
from lib.companion.sweep import imports, portable, settings
from lib.companion.sweep.context import Context, Stopped

NEEDED = {  # of an experiment's module
    "Settings": "a dataclass of what params.yaml sets",
    "configurations": "configurations(settings) lists what is run, a dictionary each",
    "run": "run(configuration, context) gives the rows of one configuration, a dictionary each",
    "COLUMNS": "a tuple of the names of a row's values",
}

CLOCKS = ("epoch", "step")  # columns that say how far a run is, and so tell its rows apart where INDEX does not

# Two runs in one process (a Dask worker with several threads) would draw from each other's random numbers.
ALONE = threading.Lock()
# A bar's own lock is a semaphore of the system, which a worker that is stopped would leave behind.
tqdm.set_lock(threading.RLock())


@dataclass(frozen=True)
class Grid:
    """Hold an experiment at a scale.

    Attributes:
        experiment: the module in lib/papers/PAPER/experiments. It offers Settings, a dataclass;
            configurations(settings), a list of dictionaries; run(configuration, context), a list of rows; and COLUMNS,
            the names of the rows' values.
            It may offer
            KEYS: which values of a configuration tell its rows from others' (else those that are columns too);
            INDEX: which columns tell a row from others (else KEYS, and epoch or step where they are columns);
            LIBRARIES: packages, besides torch, NumPy and pandas, on whose version its numbers depend;
            units(configuration): how often it calls `context.report_progress` (else one);
            needs(configuration): another configuration of the grid, or None; then run is also given that one's rows,
            or none;
            aliases(configuration): the forms in which earlier sources keyed it, and upgrade(rows): a table that
            earlier sources wrote, with the columns that it lacks; see `provenance.resume`.
        configurations: {key: configuration}.
        needs: {key: key of the configuration whose rows it needs}, of those that need any.
        source_hash: over every file the experiment imports.
    """

    name: str
    scale: str
    experiment: ModuleType
    configurations: dict[str, dict]
    source_hash: str
    needs: dict[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the values of a configuration that tell it from the others, all of them columns of its rows."""
        return keys_of(self.experiment, self.configurations.values())

    @property
    def index(self) -> tuple[str, ...]:
        """Return the columns that tell a row from the others."""
        return index_of(self.experiment, self.keys)

    def units(self, configuration: dict) -> int:
        """Count how many units of work the configuration is, of those that the bar counts."""
        return getattr(self.experiment, "units", lambda _: 1)(configuration)

    def identity(self, values: Mapping[str, Any]) -> tuple:
        """Say what tells this configuration's (or this row's) configuration from the others."""
        return tuple(values[name] for name in self.keys)

    def needed(self, key: str, entries: Mapping[str, Mapping]) -> list[dict] | None:
        """Return the rows that a configuration needs: none, or another's; None while that one has no entry."""
        return entries.get(self.needs[key], {"rows": None})["rows"] if key in self.needs else []

    def table(self, rows: list[dict]) -> pd.DataFrame:
        """Put rows into the experiment's columns, sorted by its index.

        Raises:
            BadInput: two rows have the same index.
        """
        index = list(self.index)
        table = pd.DataFrame(rows, columns=list(self.experiment.COLUMNS))
        twice = table[table.duplicated(index)]
        if len(twice):
            which = twice.iloc[0][index].to_dict()
            derived = "" if hasattr(self.experiment, "INDEX") else "; INDEX = (...) would name what tells them apart"
            raise BadInput(f"{self.name} gives two rows for {which}{derived}")
        return table.sort_values(index, kind="stable", ignore_index=True)


def names() -> list[str]:
    """List the experiments."""
    return sorted(path.stem for path in base.PAPERS.glob("*/experiments/*.py") if path.stem.startswith(paper_of(path)))


def paper_of(path: Path) -> str:
    """Return the short name of the paper in whose folder an experiment's file lies."""
    return path.parent.parent.name


def module_of(name: str) -> str:
    """Name the module of an experiment: lib/papers/PAPER/experiments/NAME.py, where NAME begins with the paper's.

    Raises:
        BadInput: there is no such experiment.
    """
    if name not in names():
        rule = "a file lib/papers/PAPER/experiments/PAPER_*.py is one"
        raise BadInput(f"no experiment {name!r}; there are: {', '.join(names())} ({rule})")
    path = next(base.PAPERS.glob(f"*/experiments/{name}.py"))
    return f"lib.papers.{paper_of(path)}.experiments.{name}"


def grid(name: str, scale: str, params: Path = base.PARAMS) -> Grid:
    """Read the settings and lay out the configurations.

    Raises:
        BadInput: no such experiment, scale or settings, settings that do not fit, nothing to run, or configurations
            that nothing tells apart or that need one which is not among them.
    """
    experiment = load(name)
    chosen = build(experiment.Settings, settings.read(name, scale, params), f"{scale}.{name}")
    source_hash = imported_hash(name)
    listed = experiment.configurations(chosen)
    if not isinstance(listed, list) or not all(isinstance(c, dict) for c in listed):
        raise BadInput(f"{name}: configurations gives {type_of(listed)}: expected a list of dictionaries")
    try:
        configurations = {key(c, source_hash): c for c in listed}
    except TypeError as error:
        raise BadInput(f"{name}: a configuration holds what is no plain value: {error}; int(...) makes one") from error
    if not configurations:
        raise BadInput(f"{scale}.{name}: nothing to run; name at least one task and one seed")
    if len(configurations) > 1 and not keys_of(experiment, configurations.values()):
        has = ", ".join(next(iter(configurations.values())))
        raise BadInput(f"{name}: COLUMNS has nothing that tells its configurations apart; a configuration has {has}")
    of = getattr(experiment, "needs", lambda configuration: None)
    needs = {one: key(needed, source_hash) for one, c in configurations.items() if (needed := of(c)) is not None}
    laid = Grid(name, scale, experiment, configurations, source_hash, needs)
    if not configurations.keys() >= set(needs.values()):
        raise BadInput(f"{scale}.{name}: a configuration needs another that is not in the grid")
    refuse_other_in_a_file(laid)
    if len({laid.identity(c) for c in configurations.values()}) < len(listed):
        raise BadInput(f"{scale}.{name}: two configurations share the same {', '.join(laid.keys)}")
    return laid


def refuse_other_in_a_file(laid: Grid) -> None:
    """Refuse what tells configurations apart where a run file would give it back as something else.

    Raises:
        BadInput: a number of more digits than a file keeps, or a text that reads as a number or as nothing.
    """
    identities = [laid.identity(configuration) for configuration in laid.configurations.values()]
    for name, values in zip(laid.keys, zip(*identities, strict=True), strict=True):
        other = changed_by_a_file(name, values)
        if other is None and len({isinstance(value, str) for value in values}) > 1:  # a column of numbers and texts
            other = next(value for value in values if not isinstance(value, str))
        if other is not None:
            can = "six digits, no texts that read as a number or as nothing, and no texts beside numbers"
            raise BadInput(f"{laid.scale}.{laid.name}: {name} {other!r} would be another in a run file: {can}")


def changed_by_a_file(name: str, values: Iterable[Any]) -> Any:
    """Return the first of a column's values that a run file would give back as something else; None: there is none."""
    for value in values:
        again = pd.read_csv(io.StringIO(csv_text(pd.DataFrame({name: [value]}))))[name]
        if len(again) != 1 or again[0] != value:
            return value
    return None


def load(name: str) -> ModuleType:
    """Import the module of an experiment.

    Raises:
        BadInput: there is no such experiment, or it lacks what each must have.
    """
    module = importlib.import_module(module_of(name))
    for needed, what in NEEDED.items():
        if not hasattr(module, needed):
            raise BadInput(f"the experiment {name} has no {needed}: {what}")
    if not is_dataclass(module.Settings):
        raise BadInput(f"Settings of the experiment {name} is no dataclass: put @dataclass(frozen=True) above it")
    if isinstance(module.COLUMNS, str):
        raise BadInput(
            f"COLUMNS of the experiment {name} is one text: expected a tuple of names, ({module.COLUMNS!r},)"
        )
    return module


def keys_of(experiment: ModuleType, configurations: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the experiment's KEYS, or else those of its COLUMNS that every configuration has as a text or a number."""
    if hasattr(experiment, "KEYS"):
        return tuple(experiment.KEYS)
    configurations = list(configurations)
    return tuple(
        name for name in experiment.COLUMNS if all(isinstance(c.get(name), str | int | float) for c in configurations)
    )


def index_of(experiment: ModuleType, keys: Sequence[str]) -> tuple[str, ...]:
    """Return the experiment's INDEX, or else KEYS and what a training counts, in the order of COLUMNS."""
    if hasattr(experiment, "INDEX"):
        return tuple(experiment.INDEX)
    return tuple(name for name in experiment.COLUMNS if name in (*keys, *CLOCKS))


def check_rows(experiment: ModuleType, configuration: Mapping[str, Any], rows: Any) -> list[dict]:
    """Return the rows of a run, if they can become a table.

    Raises:
        BadInput: no list of dictionaries, none at all, a column that no row has, a row without what tells it from
            others or with another configuration's, a value that is no text or plain number, or a text that a run file
            would give back as something else.
    """
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadInput(f"run gives {type_of(rows)}: expected a list of dictionaries, one a row")
    if not rows:  # the run file, from which a later sweep goes on, would not have this configuration
        raise BadInput("run gives no rows: expected one or more for each configuration")
    keys = keys_of(experiment, [configuration])
    index = index_of(experiment, keys)
    for name in experiment.COLUMNS:
        without = [row for row in rows if name not in row]
        if len(without) == len(rows) or (without and name in index):
            raise BadInput(f"run gives a row without {name!r}, which is one of COLUMNS; it has {', '.join(without[0])}")
    for row in rows:
        for name, value in row.items():
            if value is not None and not isinstance(value, str | int | float):
                found = f"{name}={value!r:.40}, {type_of(value)}"
                raise BadInput(f"run gives {found}: expected texts and plain numbers; float(...) makes one")
    for name in experiment.COLUMNS:
        texts = {row[name] for row in rows if isinstance(row.get(name), str)}
        if (other := changed_by_a_file(name, texts)) is not None:
            raise BadInput(f"run gives {name}={other!r}, which a run file gives back as a number or as nothing")
    for name in keys:
        if odd := [row[name] for row in rows if row[name] != configuration[name]]:
            raise BadInput(f"run gives rows of {name} {odd[0]!r}: the configuration has {configuration[name]!r}")
    return rows


@functools.cache
def imported_hash(experiment: str) -> str:
    """Hash the sources this process computes an experiment with, as they were when it first imported it."""
    module = importlib.import_module(module_of(experiment))
    return imports.fingerprint(imports.closure(module.__name__))


def key(configuration: dict, source_hash: str) -> str:
    """Compute what a configuration is stored under: its settings and the sources it is computed with."""
    return hashlib.sha256(json.dumps([configuration, source_hash], sort_keys=True).encode()).hexdigest()[:16]


def run_one(
    experiment: str,
    configuration: dict,
    context: Context,
    source_hash: str | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    needed: Sequence[dict] = (),
) -> dict:
    """Run one configuration, in a worker: {status: finished | stopped | failed, rows, seconds, traceback}.

    One thread, always: the rounding of a product depends on how many threads share it, and results must not depend
    on how many configurations run side by side.

    Args:
        source_hash: what the worker must compute with; None: whatever it has.
        environment: variables that say how torch computes.
        needed: rows of the configuration that this one needs, for an experiment whose configurations need others.
    """
    with ALONE:
        started = time.monotonic()
        outcome = {"status": "finished", "rows": [], "traceback": ""}
        try:
            context.check()
            portable.prepare(environment)
            if source_hash is not None and source_hash != imported_hash(experiment):
                raise BadInput("the sources have changed, or this worker has other ones: start it anew from the same")
            module = load(experiment)
            given = (needed,) if hasattr(module, "needs") else ()
            outcome["rows"] = check_rows(module, configuration, module.run(configuration, context, *given))
        except Stopped:
            outcome["status"] = "stopped"
        except Exception:  # reported in full by the sweep; the other configurations go on
            outcome |= {"status": "failed", "traceback": traceback.format_exc()}
        return outcome | {"seconds": time.monotonic() - started}


def upgraded(rows: pd.DataFrame, experiment: ModuleType, index: Sequence[str], called: str) -> pd.DataFrame:
    """Bring the rows of a run file to the experiment's columns of today; a file may have been written before these.

    Args:
        index: the columns that tell a row from others.
        called: how errors name the file.

    Raises:
        BadInput: a column is missing, a row lacks what tells it from others, or stands there twice.
    """
    before = rows
    try:
        rows = experiment.upgrade(rows) if hasattr(experiment, "upgrade") else rows
    except (KeyError, AttributeError) as error:  # what pandas raises of a column that is not there
        refuse_lacking(before, experiment.COLUMNS, called)
        raise BadInput(f"{called} cannot be brought up to date: {error}") from error
    refuse_lacking(rows, experiment.COLUMNS, called)
    if (absent := rows[list(index)].isna()).any(axis=None):
        name = absent.any().idxmax()
        raise BadInput(f"{called} says no {name} in line {int(absent[name].argmax()) + 2}")
    if (twice := rows.duplicated(list(index) or None)).any():
        raise BadInput(f"{called} has a row twice, in line {int(twice.argmax()) + 2}")
    return rows
