"""What lies beside a run file that no gate recomputes: where its numbers come from.

`runs/EXPERIMENT.provenance.yaml` names commit, source hash, versions, device and seconds, and which configurations
are finished, so that another machine can go on from the CSV.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import joblib
import pandas as pd
import yaml

from lib import paths
from lib.errors import BadInput
from lib.results import write_text
from lib.sweep.grid import Grid


def beside(csv: Path) -> Path:
    """The provenance file of a run file."""
    return csv.with_suffix(".provenance.yaml")


def write(csv: Path, work: Grid, entries: dict[str, dict], jobs: int, device: str, commit: str) -> None:
    """Describe the run file. Seconds are summed over configurations; several may have run at the same time."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in ("torch", "numpy", "pandas")}
    content = {
        "experiment": work.name,
        "scale": work.scale,
        "configurations": f"{len(entries)} of {len(work.configurations)}",
        "commit": commit,
        "source_hash": work.source_hash,
        "versions": versions,
        "device": describe(device),
        "processes": jobs,
        "threads_a_process": 1,
        "seconds": round(sum(entry["seconds"] for entry in entries.values())),
        "sha256": hashlib.sha256(csv.read_bytes()).hexdigest(),
        "finished": sorted(entries),
    }
    write_text(yaml.safe_dump(content, sort_keys=False), beside(csv))


def resume(csv: Path, work: Grid) -> dict[str, dict]:
    """The finished configurations of an earlier, partial run file, as store entries.

    Raises:
        BadInput: the file or its provenance is missing or altered, or it was computed with other sources.
    """
    if not csv.exists() or not beside(csv).exists():
        raise BadInput(f"--resume-from: {csv} and {beside(csv).name} beside it are both needed")
    origin = _read(beside(csv))
    if origin["sha256"] != hashlib.sha256(csv.read_bytes()).hexdigest():
        raise BadInput(f"--resume-from: {csv.name} is not the file that {beside(csv).name} describes")
    if origin["source_hash"] != work.source_hash:
        raise BadInput(
            f"--resume-from: {csv.name} was computed with sources {origin['source_hash'][:12]}, these are "
            f"{work.source_hash[:12]}; check out commit {origin['commit']} to go on from it"
        )
    groups = dict(iter(pd.read_csv(csv).groupby(list(work.experiment.KEYS))))
    entries = {}
    for key, configuration in work.configurations.items():
        if key in origin["finished"]:
            rows = groups[work.identity(configuration)].to_dict("records")
            seconds = origin["seconds"] / len(origin["finished"])  # the file knows only their sum
            entries[key] = {"configuration": configuration, "rows": rows, "seconds": seconds}
    return entries


def _read(path: Path) -> dict:
    try:
        origin = yaml.safe_load(path.read_text())
        missing = {"commit", "source_hash", "seconds", "sha256", "finished"} - set(origin)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise BadInput(f"--resume-from: {path.name} is damaged: {' '.join(str(error).split())}") from error
    if missing:
        raise BadInput(f"--resume-from: {path.name} is damaged: it lacks {', '.join(sorted(missing))}")
    return origin


def commit() -> str:
    """The commit of the checkout, marked when its code differs from it; "unknown" outside git."""
    try:
        changed = _git("status", "--porcelain", "--", "lib", "params.yaml")
        return _git("rev-parse", "HEAD") + (" with changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=paths.ROOT, capture_output=True, text=True, check=True).stdout.strip()


def describe(device: str) -> str:
    """The processor or GPU by its trade name, and how many cores there are for us."""
    if device == "cuda":
        import torch

        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {joblib.cpu_count()} cores"
