"""An experiment at a scale: its configurations, the keys they are stored under, and one of them run."""

from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pandas as pd

from lib import paths, settings, sources
from lib.errors import BadInput
from lib.jobs import Job, Stopped


@dataclass(frozen=True)
class Grid:
    """An experiment at a scale.

    Attributes:
        experiment: the module in lib/experiments. It offers Settings, configurations(settings), units(configuration),
            run(configuration, job), and the names KEYS (which values of a configuration tell its rows from others'),
            INDEX (which columns tell a row from others) and COLUMNS.
        configurations: {key: configuration}.
        source_hash: over every file the experiment imports.
    """

    name: str
    scale: str
    experiment: ModuleType
    configurations: dict[str, dict]
    source_hash: str

    def identity(self, values: dict) -> tuple:
        """What tells this configuration's (or this row's) configuration from the others."""
        return tuple(values[name] for name in self.experiment.KEYS)

    def table(self, rows: list[dict]) -> pd.DataFrame:
        """Rows in the experiment's columns, sorted by its index."""
        index = list(self.experiment.INDEX)
        table = pd.DataFrame(rows, columns=list(self.experiment.COLUMNS))
        twice = table[table.duplicated(index)]
        if len(twice):
            raise BadInput(f"{self.name} gives two rows for {twice.iloc[0][index].to_dict()}")
        return table.sort_values(index, kind="stable", ignore_index=True)


def names() -> list[str]:
    """The experiments there are."""
    return [found.name for found in pkgutil.iter_modules([str(paths.ROOT / "lib" / "experiments")])]


def grid(name: str, scale: str, params: Path = paths.PARAMS) -> Grid:
    """Read the settings and lay out the configurations."""
    if name not in names():
        raise BadInput(f"no experiment {name!r}; there are: {', '.join(names())}")
    experiment = importlib.import_module(f"lib.experiments.{name}")
    chosen = settings.build(experiment.Settings, settings.read(name, scale, params), f"{scale}.{name}")
    source_hash = sources.fingerprint(sources.closure(experiment.__name__))
    configurations = {key(c, source_hash): c for c in experiment.configurations(chosen)}
    laid = Grid(name, scale, experiment, configurations, source_hash)
    if len({laid.identity(c) for c in configurations.values()}) < len(experiment.configurations(chosen)):
        raise BadInput(f"{scale}.{name}: two configurations share the same {', '.join(experiment.KEYS)}")
    return laid


def key(configuration: dict, source_hash: str) -> str:
    """What a configuration is stored under: its settings and the sources it is computed with."""
    return hashlib.sha256(json.dumps([configuration, source_hash], sort_keys=True).encode()).hexdigest()[:16]


def run_one(experiment: str, configuration: dict, job: Job) -> dict:
    """One configuration, in a worker: {status: finished | stopped | failed, rows, seconds, traceback}.

    One thread, always: the rounding of a product depends on how many threads share it, and results must not depend
    on how many configurations run side by side.
    """
    import torch

    torch.set_num_threads(1)
    started = time.monotonic()
    outcome = {"status": "finished", "rows": [], "traceback": ""}
    try:
        job.check()
        outcome["rows"] = importlib.import_module(f"lib.experiments.{experiment}").run(configuration, job)
    except Stopped:
        outcome["status"] = "stopped"
    except Exception:  # reported in full by the sweep; the other configurations go on
        outcome |= {"status": "failed", "traceback": traceback.format_exc()}
    return outcome | {"seconds": time.monotonic() - started}
