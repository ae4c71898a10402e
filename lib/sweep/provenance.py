"""What lies beside a run file that no gate recomputes: where its numbers come from.

`runs/EXPERIMENT.provenance.yaml` names commit, source hash, versions, device and seconds, and which configurations
are finished, so that another machine can go on from the CSV. What was computed elsewhere is a part of its own.
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
from lib.sweep.grid import Grid, key


def beside(csv: Path) -> Path:
    """The provenance file of a run file."""
    return csv.with_suffix(".provenance.yaml")


def write(csv: Path, work: Grid, own: dict[str, dict], earlier: list[dict], jobs: int, source: str) -> None:
    """Describe the run file: its parts, each computed by one commit on one kind of machine.

    Args:
        own: the configurations finished here, {key: entry}.
        earlier: parts that came from another run file, see `resume`.
        jobs: processes of this sweep; of what an interrupted one had finished, the entries tell.
        source: the commit of what runs here.
    """
    versions = {"python": platform.python_version()} | {name: version(name) for name in ("torch", "numpy", "pandas")}
    here = {
        "commit": source,
        "source_hash": work.source_hash,
        "versions": versions,
        "device": "; ".join(sorted({entry["device"] for entry in own.values()})),
        "processes": max((entry.get("processes", jobs) for entry in own.values()), default=jobs),
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
        "sha256": hashlib.sha256(csv.read_bytes()).hexdigest(),
        "parts": parts,
    }
    write_text(yaml.safe_dump(content, sort_keys=False), beside(csv))


def resume(csv: Path, work: Grid, others: bool = False) -> tuple[dict[str, dict], list[dict]]:
    """The finished configurations of an earlier, partial run file as store entries, and the parts they came in.

    Args:
        others: take those computed with other sources too. Their settings must be the same; that these sources would
            have given the same numbers is the caller's word, and the parts stay apart in the provenance.

    Raises:
        BadInput: the file or its provenance is missing or altered, or computed with other sources.
    """
    if not csv.exists() or not beside(csv).exists():
        raise BadInput(f"--resume-from: {csv} and {beside(csv).name} beside it are both needed")
    origin = _read(beside(csv))
    if origin["sha256"] != hashlib.sha256(csv.read_bytes()).hexdigest():
        raise BadInput(f"--resume-from: {csv.name} is not the file that {beside(csv).name} describes")
    groups = dict(iter(pd.read_csv(csv).groupby(list(work.experiment.KEYS))))
    entries, parts = {}, []
    for part in origin["parts"]:
        if part["source_hash"] != work.source_hash and not others:
            raise BadInput(
                f"--resume-from: {csv.name} was computed with sources {part['source_hash'][:12]}, these are "
                f"{work.source_hash[:12]}; check out commit {part['commit']} to go on from it, or add --other-sources "
                "if these compute the same"
            )
        used = {}
        for now, configuration in work.configurations.items():
            then = key(configuration, part["source_hash"])
            if then in part["finished"]:
                rows = groups[work.identity(configuration)].to_dict("records")
                used[then] = entries[now] = {"configuration": configuration, "rows": rows, "seconds": 0.0}
        if used:
            seconds = round(part["seconds"] * len(used) / len(part["finished"]))  # the file knows only their sum
            parts.append(part | {"seconds": seconds, "finished": sorted(used)})
    return entries, parts


def _read(path: Path) -> dict:
    try:
        origin = yaml.safe_load(path.read_text())
        missing = {"sha256", "parts"} - set(origin)
        for part in origin["parts"] if not missing else []:
            missing |= {"commit", "source_hash", "seconds", "finished"} - set(part)
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
