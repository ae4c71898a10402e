"""An experiment at a scale: its configurations, the keys they are stored under, and one of them run."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import pkgutil
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, ModuleType

import pandas as pd
from tqdm import tqdm

from lib import paths, settings, sources
from lib.errors import BadInput
from lib.jobs import Job, Stopped

# At the quick scale: the same instructions on every x86-64 processor with AVX2, for sweeps and notebooks alike.
PORTABLE = {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "ONEDNN_MAX_CPU_ISA": "AVX2"}

# Two runs in one process (a Dask worker with several threads) would draw from each other's random numbers.
ALONE = threading.Lock()
# A bar's own lock is a semaphore of the system, which a worker that is stopped would leave behind.
tqdm.set_lock(threading.RLock())


@dataclass(frozen=True)
class Grid:
    """An experiment at a scale.

    Attributes:
        experiment: the module in lib/experiments. It offers Settings, configurations(settings), units(configuration),
            run(configuration, job), and the names KEYS (which values of a configuration tell its rows from others'),
            INDEX (which columns tell a row from others) and COLUMNS. It may offer needs(configuration), another
            configuration of the grid, or None; then run is also given that one's rows, or none.
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

    def identity(self, values: dict) -> tuple:
        """What tells this configuration's (or this row's) configuration from the others."""
        return tuple(values[name] for name in self.experiment.KEYS)

    def needed(self, key: str, entries: Mapping[str, Mapping]) -> list[dict] | None:
        """The rows that a configuration needs: none, or another's; None while that one has no entry."""
        return entries.get(self.needs[key], {"rows": None})["rows"] if key in self.needs else []

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
    source_hash = imported_hash(name)
    configurations = {key(c, source_hash): c for c in experiment.configurations(chosen)}
    if not configurations:
        raise BadInput(f"{scale}.{name}: nothing to run; name at least one task and one seed")
    of = getattr(experiment, "needs", lambda configuration: None)
    needs = {one: key(needed, source_hash) for one, c in configurations.items() if (needed := of(c)) is not None}
    laid = Grid(name, scale, experiment, configurations, source_hash, needs)
    if not configurations.keys() >= set(needs.values()):
        raise BadInput(f"{scale}.{name}: a configuration needs another that is not in the grid")
    if len({laid.identity(c) for c in configurations.values()}) < len(experiment.configurations(chosen)):
        raise BadInput(f"{scale}.{name}: two configurations share the same {', '.join(experiment.KEYS)}")
    return laid


@functools.cache
def imported_hash(experiment: str) -> str:
    """The hash of the sources this process computes an experiment with: as they were when it first imported it."""
    module = importlib.import_module(f"lib.experiments.{experiment}")
    return sources.fingerprint(sources.closure(module.__name__))


def key(configuration: dict, source_hash: str) -> str:
    """What a configuration is stored under: its settings and the sources it is computed with."""
    return hashlib.sha256(json.dumps([configuration, source_hash], sort_keys=True).encode()).hexdigest()[:16]


def run_one(
    experiment: str,
    configuration: dict,
    job: Job,
    source_hash: str | None = None,
    environment: Mapping[str, str] = MappingProxyType({}),
    needed: Sequence[dict] = (),
) -> dict:
    """One configuration, in a worker: {status: finished | stopped | failed, rows, seconds, traceback}.

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
            job.check()
            prepare(environment)
            if source_hash is not None and source_hash != imported_hash(experiment):
                raise BadInput("the sources have changed, or this worker has other ones: start it anew from the same")
            module = importlib.import_module(f"lib.experiments.{experiment}")
            given = (needed,) if hasattr(module, "needs") else ()
            outcome["rows"] = module.run(configuration, job, *given)
        except Stopped:
            outcome["status"] = "stopped"
        except Exception:  # reported in full by the sweep; the other configurations go on
            outcome |= {"status": "failed", "traceback": traceback.format_exc()}
        return outcome | {"seconds": time.monotonic() - started}


def prepare(environment: Mapping[str, str]) -> None:
    """Set how this process computes. Torch reads its variables before its first product and never again."""
    os.environ.update(environment)
    import torch

    torch.set_num_threads(1)
    capability = torch.backends.cpu.get_cpu_capability()
    if environment.get("ATEN_CPU_CAPABILITY") == "avx2" and capability == "AVX512":
        raise BadInput("this process has computed with AVX-512 before; these results need AVX2: start it anew")
