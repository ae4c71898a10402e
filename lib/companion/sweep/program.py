"""Run the grids of experiments and write results/SCALE/runs/EXPERIMENT.csv.

Each finished configuration is kept at once; a sweep that was stopped or killed and is started again redoes only what
is missing and ends with the same bytes.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import joblib
import pandas as pd
from tqdm import tqdm

from lib import base
from lib.base import BadInput
from lib.companion.csv_files import write_csv, write_text
from lib.companion.sweep import portable, provenance, settings
from lib.companion.sweep.backend import backend
from lib.companion.sweep.context import Context
from lib.companion.sweep.grid import Grid, grid, names, run_one
from lib.companion.sweep.order import LongestFirst
from lib.companion.sweep.progress import Bar
from lib.companion.sweep.store import Store

# Memory that was freed is kept, not given back and asked for again a step later: large arrays come back page by page,
# which took a third of a step's time on one machine. glibc reads this when a worker starts.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**33)}
KEEP_SECONDS = 60  # from one writing of a CSV to the next while a sweep goes on


def main(words: list[str] | None = None) -> None:
    """Run the command line; a message of one line and status 2 for what cannot be."""
    asked = arguments().parse_args(words)
    os.environ.update(KEEP_MEMORY)
    for said in (r"\d+ tasks ", "A worker stopped "):  # joblib: we left before the end; a worker grew and is made anew
        warnings.filterwarnings("ignore", said, UserWarning)
    with base.program("lib.sweep", "stopped; what is finished is kept, the same command goes on"):
        sweep(asked)


def arguments() -> argparse.ArgumentParser:
    """Declare what the command line may ask for."""
    parser = argparse.ArgumentParser("python -m lib.sweep", description=__doc__)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT", help=f"of: {', '.join(names())}")
    parser.add_argument("--all", action="store_true", help="every experiment that the scale has settings for")
    parser.add_argument("--scale", default="quick", help="which settings of params.yaml (default: quick)")
    parser.add_argument("--jobs", type=int, default=0, help="processes, one thread each (default: one a core)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: cuda if there is one; quick is cpu")
    parser.add_argument("--budget", help="stop cleanly after this time (90s, 25m, 2h) and write what is finished")
    parser.add_argument("--scheduler", help="address of a Dask scheduler; its workers (--nthreads 1) do the runs")
    parser.add_argument(
        "--resume-from", type=Path, nargs="+", default=[], metavar="FILE", help="take what these CSVs have"
    )
    parser.add_argument("--other-sources", action="store_true", help="with --resume-from: that of other sources too")
    parser.add_argument(
        "--again",
        action="store_true",
        help="real and paper: train anew what the CSV has; what an unfinished sweep has is kept",
    )
    parser.add_argument("--params", type=Path, default=base.PARAMS, help="settings (default: params.yaml)")
    parser.add_argument("--results", type=Path, default=base.RESULTS, help="where results go (default: results/)")
    parser.add_argument("--store", type=Path, default=base.STORE, help="unfinished sweeps (default: .sweep/)")
    return parser


@dataclass
class Sweep:
    """Hold one experiment's grid, where its results are kept, and what of it is finished.

    Attributes:
        entries: the finished configurations, {key: entry}.
        resumed: those of them that came from earlier run files.
        earlier: the parts of the provenance in which they came.
    """

    work: Grid
    store: Store
    csv: Path
    entries: dict[str, dict] = field(default_factory=dict)
    resumed: dict[str, dict] = field(default_factory=dict)
    earlier: list[dict] = field(default_factory=list)

    def needed(self, key: str) -> list[dict] | None:
        """Return the rows that a configuration needs; None while they are not there."""
        return self.work.needed(key, self.entries)

    def table(self) -> pd.DataFrame:
        """Return the rows of what is finished as a table."""
        return self.work.table([row for entry in self.entries.values() for row in entry["rows"]])

    @property
    def complete(self) -> bool:
        """Say whether all configurations are finished."""
        return len(self.entries) == len(self.work.configurations)


def sweep(asked: argparse.Namespace) -> None:
    """Run what is missing of each experiment, then write its CSV: all of it, or with a budget what is finished.

    All experiments share one pool of processes. Beyond the quick scale what a CSV has already, and fits, is not trained
    again, whatever sources computed it.

    Raises:
        BadInput: options that do not go together or cannot be, as `begin` and `run_missing`, or a line for each
            experiment that `finish` refuses; the others are written all the same.
    """
    chosen = experiments(asked)
    commit = provenance.commit()  # of the sources that run, not of what the checkout may hold at the end
    device = choose_device(asked.device, asked.scale) if asked.scheduler is None else asked.device
    if asked.jobs < 0:
        raise BadInput(f"--jobs {asked.jobs}: expected a number of processes, or 0 for one a core")
    if asked.again and asked.scale == "quick":
        raise BadInput("--again is for the scales real and paper: quick is computed anew by every sweep")
    if asked.other_sources and not asked.resume_from:
        raise BadInput("--other-sources says what may be resumed from: it needs --resume-from FILE")
    if asked.resume_from and len(chosen) > 1:
        raise BadInput("--resume-from FILE is for one experiment at a time")
    processes = asked.jobs or (1 if device == "cuda" else joblib.cpu_count())
    deadline = None if asked.budget is None else time.time() + seconds(asked.budget)
    how = (asked, processes, commit)
    with ExitStack() as locks:
        sweeps = [begin(asked, name, locks) for name in chosen]
        try:
            failed = run_missing(sweeps, processes, device, deadline, asked.scheduler, partial(keep_partial, *how))
        except BaseException:  # Ctrl-C, a killed worker, a full disk: whatever it was
            for one in sweeps:
                keep_partial(*how, one)
            raise
        faults = []
        for one in sweeps:
            try:
                finish(*how, one, failed[one.work.name])
            except BadInput as error:  # the others are written all the same
                faults.append(str(error))
        if faults:
            raise BadInput(*faults)


def experiments(asked: argparse.Namespace) -> list[str]:
    """Name the experiments that are asked for: those on the command line, or with --all those of the scale.

    Raises:
        BadInput: neither or both are asked for, one stands there twice, or there are no settings of the scale.
    """
    if asked.all == bool(asked.experiments):
        raise BadInput("name one experiment or more, or say --all for every one of the scale: one of the two")
    base.refuse_twice(experiments=asked.experiments)
    return settings.experiments(asked.scale, asked.params) if asked.all else asked.experiments


def begin(asked: argparse.Namespace, name: str, locks: ExitStack) -> Sweep:
    """Lay out an experiment, take its store for this process alone, and read what is finished.

    Raises:
        BadInput: settings that cannot be laid out, folders that take no files, another sweep at work, or a run file
            that one cannot go on from.
    """
    work = grid(name, asked.scale, asked.params)
    store = Store(asked.store.resolve() / asked.scale / name)
    csv = asked.results / asked.scale / "runs" / f"{name}.csv"
    base.writable(csv.parent)
    base.writable(store.folder)
    locks.enter_context(base.locked(store.folder, f"a sweep of {name}"))
    one = Sweep(work, store, csv, store.finished(list(work.configurations)))
    files = [(file, asked.other_sources) for file in asked.resume_from]
    files += [(csv, True)] if asked.scale != "quick" and csv.exists() and not asked.again else []
    for file, others in files:
        found, parts = provenance.resume(file, work, others, one.entries.keys())
        old = sum(len(part["finished"]) for part in parts if part["source_hash"] != work.source_hash)
        if file == csv and old:
            told = f"{csv.name}: {old} configurations of other sources are kept; --again trains them anew"
            print(told, file=sys.stderr)
        one.entries, one.resumed, one.earlier = one.entries | found, one.resumed | found, one.earlier + parts
    return one


def finish(asked: argparse.Namespace, processes: int, commit: str, one: Sweep, failed: list[Path]) -> None:
    """Write an experiment's CSV and what lies beside it, and empty its store once all is there.

    Raises:
        BadInput: a configuration has failed, or the CSV there has others than are finished.
    """
    work, entries, csv = one.work, one.entries, one.csv
    if failed:
        keep_partial(asked, processes, commit, one)
        what = error_of(failed[0].read_text())
        raise BadInput(
            f"{len(failed)} of {len(work.configurations)} configurations failed, {len(entries)} are finished and kept; "
            f"the first: {what}; its traceback is in {os.path.relpath(failed[0])}"
        )
    if not (one.complete and (asked.again or asked.scale == "quick")):  # all that is named, by one who asked for that
        refuse_lost(one)
    if asked.scale != "quick" or not one.complete:
        write(one, processes, commit)
    else:
        write_csv(one.table(), csv)
        provenance.beside(csv).unlink(missing_ok=True)
    if one.complete:
        one.store.empty()
        print(f"{os.path.relpath(csv)}: all {len(entries)} configurations")
    else:
        print(
            f"{os.path.relpath(csv)}: {len(entries)} of {len(work.configurations)} configurations, the time is over; "
            "the same command goes on where this one stopped"
        )


def write(one: Sweep, processes: int, commit: str) -> None:
    """Write the CSV of what is finished, and its provenance."""
    own = {key: entry for key, entry in one.entries.items() if key not in one.resumed}
    provenance.write(one.csv, one.table(), one.work, own, one.earlier, processes, commit)


def error_of(report: str) -> str:
    """Find what was raised in a report that ends in a traceback; of several lines the first, which names the error."""
    lines = report.rstrip().splitlines()
    frame = max((number for number, line in enumerate(lines) if line.startswith('  File "')), default=len(lines))
    line = next((line for line in lines[frame:] if not line.startswith(" ")), lines[-1])
    return line.removeprefix("lib.base.BadInput: ")


def keep_partial(asked: argparse.Namespace, processes: int, commit: str, one: Sweep) -> None:
    """Write what is finished of a sweep that goes on, failed or was stopped, beyond the quick scale, where it has all
    that the CSV there has, and more: so it is found again when the sources, and with them the store's names, have
    changed.
    """
    if asked.scale != "quick" and len(one.entries) > len(one.resumed) and not asked.again:
        with suppress(BadInput):
            refuse_lost(one)
            write(one, processes, commit)


def refuse_lost(one: Sweep) -> None:
    """Refuse to write over configurations that are not among the finished ones; a file that cannot be read is set
    aside, never written over.

    Raises:
        BadInput: the run file has a configuration that is not finished in this sweep.
    """
    work, csv, path = one.work, one.csv, os.path.relpath(one.csv)
    if not csv.exists():
        return
    try:
        rows = provenance.read_rows(csv, work)
    except BadInput as error:  # damaged, or of other columns: hours may be in it, so somebody has to look
        kept = base.aside(csv)
        if (of := provenance.beside(csv)).exists():  # under the name that it has to have beside this file
            of.replace(provenance.beside(kept))
        print(f"lib.sweep: {error}; kept as {kept.name}", file=sys.stderr)
        return
    there = dict.fromkeys(work.identity(row) for row in rows.to_dict("records"))
    finished = {work.identity(entry["configuration"]) for entry in one.entries.values()}
    if lost := [identity for identity in there if identity not in finished]:
        total = len(work.configurations)
        what = f"only {len(finished)} of {total} are finished in this sweep; the same command goes on"
        if one.complete:  # so the others are none of its settings
            which = ", ".join(f"{name} {value}" for name, value in zip(work.keys, lost[0], strict=True))
            which += f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            keeps = f"--again --resume-from {path} --other-sources keeps what fits and drops the rest"
            what = f"the settings name {total} now, but not {which}; {keeps}"
        raise BadInput(f"{path} has {len(there)} configurations and stays as it is: {what}")


def run_missing(
    sweeps: Sequence[Sweep],
    processes: int,
    device: str,
    deadline: float | None,
    scheduler: str | None,
    keep: Callable[[Sweep], None] = lambda one: None,
) -> dict[str, list[Path]]:
    """Run the configurations that have no entry yet, all experiments' in one pool, and add their entries.

    What needs another's rows comes after all that is ready now; where that one failed or was stopped, it stays missing.

    Args:
        keep: called with an experiment that has a new entry, at most once in KEEP_SECONDS.

    Returns:
        For each experiment the tracebacks of its configurations that failed.
    """
    of = {key: one for one in sweeps for key in one.work.configurations}
    units = {key: one.work.units(one.work.configurations[key]) for key, one in of.items()}
    order = LongestFirst({key: (one.work.name, units[key]) for key, one in of.items()})
    how = {
        one.work.name: {
            "experiment": one.work.name,
            "source_hash": one.work.source_hash,
            "environment": portable.SETTINGS if one.work.scale == "quick" else {},
            "device": (device, one.work.scale),
            "folder": os.path.relpath(one.store.folder, base.ROOT),
            "deadline": deadline,
            "owner": os.getpid() if scheduler is None else None,
        }
        for one in sweeps
    }
    failed: dict[str, list[Path]] = {one.work.name: [] for one in sweeps}
    kept = {one.work.name: time.monotonic() for one in sweeps}
    missing = [key for key, one in of.items() if key not in one.entries]
    folders = {key: one.store.checkpoints(key) for key, one in of.items()}
    with backend(scheduler, processes) as side_by_side, Bar(units, folders, of.keys() - set(missing)) as bar:
        tried: set[str] = set()
        while ready := [key for key in missing if key not in tried and of[key].needed(key) is not None]:
            tried |= set(ready)
            calls = (
                joblib.delayed(call)(key, one.work.configurations[key], one.needed(key), **how[one.work.name])
                for key in order.over(ready)
                for one in (of[key],)
            )
            for key, outcome in joblib.Parallel(return_as="generator_unordered", batch_size=1)(calls):
                one = of[key]
                if outcome["status"] == "finished":
                    one.entries[key] = one.store.add(key, one.work.configurations[key], outcome, side_by_side)
                    bar.finished.add(key)
                    order.took(key, outcome["seconds"])
                    if time.monotonic() - kept[one.work.name] >= KEEP_SECONDS:
                        keep(one)
                        kept[one.work.name] = time.monotonic()
                elif outcome["status"] == "failed":
                    traceback = one.store.keep_traceback(key, one.work.configurations[key], outcome["traceback"])
                    if not failed[one.work.name]:
                        what = error_of(traceback.read_text())
                        tqdm.write(f"{one.work.name}: a configuration failed, others go on: {what}", file=sys.stderr)
                    failed[one.work.name].append(traceback)
    return failed


def call(
    key: str,
    configuration: dict,
    needed: list[dict],
    experiment: str,
    source_hash: str,
    environment: dict[str, str],
    device: tuple[str, str],
    folder: str,
    deadline: float | None,
    owner: int | None,
) -> tuple[str, dict]:
    """Do what a worker does. Its folder is told from the root: one on another machine uses its own checkout.

    Args:
        device: what `choose_device` is asked here, because the machine that asks may have another.
    """
    checkpoints = Path(os.path.normpath(base.ROOT / folder)) / key
    context = Context(choose_device(*device), checkpoints, deadline, owner=owner)
    if checkpoints.exists() and not checkpoints.is_dir():
        base.aside(checkpoints)
    clock = checkpoints / "seconds"  # of the sessions that were stopped before
    before = seconds_before(clock)
    outcome = run_one(experiment, configuration, context, source_hash, environment, needed)
    outcome |= {"seconds": before + outcome["seconds"], "device": provenance.describe(context.device)}
    if outcome["status"] == "stopped" and checkpoints.exists():
        write_text(str(outcome["seconds"]), clock)
    if context.orphan():
        os._exit(1)  # its memory is needed by the sweep that goes on, and nobody hears anything else it could raise
    if owner is None and outcome["status"] == "finished":  # the store, perhaps on another machine, cannot clear them up
        shutil.rmtree(checkpoints, ignore_errors=True)
    return key, outcome


def seconds_before(clock: Path) -> float:
    """Read the seconds that the sessions before this one took; 0 where none was, or where the file is damaged."""
    try:
        told = float(clock.read_text())
    except (OSError, ValueError):
        return 0.0
    return told if 0 <= told < math.inf else 0.0


def choose_device(asked: str, scale: str) -> str:
    """Choose "cpu" or "cuda". Quick results are gated and must be the same everywhere: they stay on the processor.

    Raises:
        BadInput: a device that there is none of, or cuda where torch finds no GPU or at the quick scale.
    """
    import torch

    if asked not in ("auto", "cpu", "cuda"):
        raise BadInput(f"--device {asked}: known are auto, cpu, cuda")
    if asked == "cuda" and not torch.cuda.is_available():
        raise BadInput("--device cuda: torch finds no GPU here; --device cpu would run on the processor")
    if asked == "cuda" and scale == "quick":
        raise BadInput("--device cuda: quick results are the same everywhere and stay on the processor; --device cpu")
    if asked == "auto":
        return "cuda" if scale != "quick" and torch.cuda.is_available() else "cpu"
    return asked


def seconds(budget: str) -> float:
    """Turn "90s", "25m" or "2h" into seconds.

    Raises:
        BadInput: no number with a unit behind it.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh])", budget)
    if match is None:
        raise BadInput(f"--budget {budget}: expected a number and a unit, such as 90s, 25m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


if __name__ == "__main__":
    main()
