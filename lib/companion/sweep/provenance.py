"""Write beside a run file, which no gate recomputes, where its numbers come from.

`runs/EXPERIMENT.provenance.yaml` names commit, source hash, versions, device and seconds, and which configurations
are finished, so that another machine can go on from the CSV. What was computed elsewhere is a part of its own.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import subprocess
from collections.abc import Collection, Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import yaml

from lib import base
from lib.base import BadInput, atomic
from lib.companion.csv_files import csv_text, read_csv, write_text
from lib.companion.sweep.grid import Grid, key, upgraded
from lib.companion.sweep.settings import read_yaml

MOST_SEEDS = 20  # of a sweep that one may go on from, where its file does not show more


def beside(csv: Path) -> Path:
    """Name the provenance file of a run file."""
    return csv.with_suffix(".provenance.yaml")


def write(
    csv: Path, table: pd.DataFrame, work: Grid, own: dict[str, dict], earlier: list[dict], processes: int, source: str
) -> None:
    """Write a run file, and beside it what it was made by: its parts, each of one commit on one kind of machine.

    The rows are on disk before the provenance appears, and until they have their name it tells of the file of before
    too. So a full disk leaves the two of before, and after a kill at any moment one can go on from what is there.

    Args:
        own: the configurations finished here, {key: entry}.
        earlier: parts that came from another run file, see `resume`.
        processes: processes of this sweep; of what an interrupted one had finished, the entries tell.
        source: the commit of what runs here.
    """
    text = csv_text(table).encode()
    versions = {"python": platform.python_version()} | {name: version(name) for name in ("torch", "numpy", "pandas")}
    for name in getattr(work.experiment, "LIBRARIES", ()):
        with suppress(PackageNotFoundError):  # some of its runs do without
            versions[name] = version(name)
    here = {
        "commit": source,
        "source_hash": work.source_hash,
        "versions": versions,
        "device": "; ".join(sorted({entry["device"] for entry in own.values()})),
        "processes": max((entry.get("processes", processes) for entry in own.values()), default=processes),
        "threads_a_process": 1,
        # summed over configurations; several may have run at the same time
        "seconds": round(sum(entry["seconds"] for entry in own.values())),
        "finished": sorted(own),
    }
    parts = [*earlier, *([here] if own or not earlier else [])]
    content = {
        "experiment": work.name,
        "scale": work.scale,
        "configurations": f"{sum(len(part['finished']) for part in parts)} of {len(work.configurations)}",
        "sha256": hashlib.sha256(text).hexdigest(),
        "rows": len(table),
        "parts": parts,
    }
    with atomic(csv) as rows:
        rows.write(text)
        rows.flush()
        os.fsync(rows.fileno())
        write_text(yaml.safe_dump(content | _before(csv), sort_keys=False), beside(csv))
    write_text(yaml.safe_dump(content, sort_keys=False), beside(csv))


def _before(csv: Path) -> dict[str, Any]:
    """What the provenance tells of the file that is still there, as its part `before`; nothing where there is none."""
    try:
        origin = _origin(csv)
    except (BadInput, OSError):
        return {}
    return {"before": {name: origin[name] for name in ("sha256", "rows", "parts") if name in origin}}


def resume(
    csv: Path, work: Grid, others: bool = False, known: Collection[str] = ()
) -> tuple[dict[str, dict], list[dict]]:
    """Read the finished configurations of an earlier, partial run file as store entries, and the parts they came in.

    A configuration is known again by its settings, as they are now or in a form of the experiment's `aliases`: a
    setting that was renamed, or that was added later with a value that says what was done before. A table that lacks a
    column for it goes through the experiment's `upgrade`.

    Args:
        others: take those computed with other sources too. Their settings must be the same; that these sources would
            have given the same numbers is the caller's word, and the parts stay apart in the provenance.
        known: keys of configurations that are not wanted, because they are there already.

    Raises:
        BadInput: the file or its provenance is missing, damaged or altered, or computed with other sources.
    """
    if not csv.exists() or not beside(csv).exists():
        raise BadInput(f"cannot go on from {csv}: it and {beside(csv).name} beside it are both needed")
    try:
        origin = _origin(csv)
        groups = _groups(csv, work, origin)
    except BadInput as error:
        raise BadInput(f"cannot go on from {csv}: {error}") from error
    earlier = getattr(work.experiment, "aliases", lambda configuration: [])
    entries, parts = {}, []
    most = max(MOST_SEEDS, sum(len(part["finished"]) for part in origin["parts"]))
    for part in origin["parts"]:
        if part["source_hash"] != work.source_hash and not others:
            raise BadInput(
                f"cannot go on from {csv}: it was computed with sources {part['source_hash'][:12]}, these are "
                f"{work.source_hash[:12]}; check out commit {part['commit']} to go on from it, or add --other-sources "
                "if these compute the same"
            )
        finished, used = set(part["finished"]), set()
        for now, configuration in work.configurations.items():
            known_forms = [
                form for one in (configuration, *earlier(configuration)) for form in fewer_or_more_seeds(one, most)
            ]
            forms = [key(form, part["source_hash"]) for form in known_forms]
            if now in known or now in entries or not (then := finished.intersection(forms)):
                continue
            if (identity := work.identity(configuration)) not in groups:
                named = ", ".join(f"{name} {value}" for name, value in zip(work.keys, identity, strict=True))
                raise BadInput(f"cannot go on from {csv}: it has no rows of {named}, which its provenance names")
            entries[now] = {"configuration": configuration, "rows": groups[identity], "seconds": 0.0}
            used |= then
        if used:
            seconds = round(part["seconds"] * len(used) / len(part["finished"]))  # the file knows only their sum
            parts.append(part | {"seconds": seconds, "finished": sorted(used)})
    return entries, parts


def fewer_or_more_seeds(configuration: dict, most: int = MOST_SEEDS) -> list[dict]:
    """List a configuration as sweeps of other lengths would name it: how many seeds there are changes none of them.

    One without a seed of its own is a stack of all of them, and with other seeds another configuration.

    Args:
        most: seeds that those sweeps can have had.
    """
    if "seed" not in configuration or not isinstance(configuration.get("seeds"), int):
        return [configuration]
    counts = dict.fromkeys((configuration["seeds"], *range(1, most + 1)))
    return [configuration | {"seeds": count} for count in counts]


def read_rows(csv: Path, work: Grid) -> pd.DataFrame:
    """Read the rows of a run file in the experiment's columns of today.

    Raises:
        BadInput: no table, or as `grid.upgraded`.
    """
    return upgraded(read_csv(csv), work.experiment, work.index, csv.name)[list(work.experiment.COLUMNS)]


def _groups(csv: Path, work: Grid, origin: Mapping[str, Any]) -> dict[tuple, list[dict]]:
    """{identity of a configuration: its rows}, as many as the provenance has finished ones."""
    table = read_rows(csv, work)
    groups = {identity: rows.to_dict("records") for identity, rows in table.groupby(list(work.keys), sort=False)}
    finished = sum(len(part["finished"]) for part in origin["parts"])
    if len(groups) != finished:
        raise BadInput(f"it has {len(groups)} configurations, {beside(csv).name} names {finished}")
    if len(table) != origin.get("rows", len(table)):
        raise BadInput(f"it has {len(table)} rows, {beside(csv).name} counts {origin['rows']}")
    return groups


def _origin(csv: Path) -> dict:
    """What the provenance tells of a run file: of the one it is for, or of the one that it was to replace (`write`)."""
    path, digest = beside(csv), hashlib.sha256(csv.read_bytes()).hexdigest()
    origin = read(path)
    if origin["sha256"] != digest and "before" in origin:
        origin = _checked(path, origin["before"])
    if origin["sha256"] != digest:
        what = "check out the two that belong together, or move both away: the store keeps what it has"
        raise BadInput(f"it is not the file that {path.name} describes; {what}")
    return origin


def read(path: Path) -> dict:
    """Read a provenance file.

    Raises:
        BadInput: it is no YAML, or lacks what it takes to go on from it.
    """
    return _checked(path, read_yaml(path))


def _checked(path: Path, origin: Any) -> dict:
    """What a provenance file holds, if it is what it takes to go on from it."""
    _expect(path, origin, {"sha256": str, "parts": list})
    for part in origin["parts"]:
        _expect(path, part, {"commit": str, "source_hash": str, "seconds": int | float, "finished": list})
        if not math.isfinite(part["seconds"]):
            raise BadInput(f"{path.name} is damaged: a part took {part['seconds']} seconds")
        if not all(isinstance(one, str) for one in part["finished"]):
            raise BadInput(f"{path.name} is damaged: a part's finished are no keys of configurations")
    return origin


def _expect(path: Path, content: Any, kinds: Mapping[str, Any]) -> None:
    if not isinstance(content, dict):
        raise BadInput(f"{path.name} is damaged: expected {', '.join(kinds)}, found {content!r:.40}")
    if missing := kinds.keys() - content.keys():
        raise BadInput(f"{path.name} is damaged: it lacks {', '.join(sorted(missing))}")
    if wrong := [name for name, kind in kinds.items() if not isinstance(content[name], kind)]:
        raise BadInput(f"{path.name} is damaged: {wrong[0]} is {content[wrong[0]]!r:.40}")


def commit() -> str:
    """Name the commit of the checkout, marked when its code differs from it; "unknown" outside git."""
    try:
        changed = _git("status", "--porcelain", "--", "lib", "params.yaml")
        return _git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=base.ROOT, capture_output=True, text=True, check=True).stdout.strip()


def describe(device: str) -> str:
    """Name the processor or GPU by its trade name, and count the cores there are for us."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {joblib.cpu_count()} cores"
