"""Keep each finished configuration of a sweep at once, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path

from lib.base import aside
from lib.companion.csv_files import write_text


class Store:
    """Keep a folder with one file for each finished configuration of one experiment at one scale.

    KEY.json holds a configuration's settings, rows, seconds, device, how many processes its sweep had, and a checksum
    over KEY and all of them. KEY/ holds the checkpoints of one that is not finished; KEY.failed.txt the traceback of
    one that failed.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def checkpoints(self, key: str) -> Path:
        """Say where the configuration may keep unfinished work."""
        return self.folder / key

    def finished(self, keys: list[str]) -> dict[str, dict]:
        """Read {key: entry} of those keys that are there and whole. A damaged entry is set aside and named."""
        entries = {}
        for key in keys:
            path = self.folder / f"{key}.json"
            if not path.exists():
                continue
            try:
                entry = json.loads(path.read_text())
                if entry.pop("checksum") != _checksum(key, entry):
                    raise ValueError("wrong checksum")
                entries[key] = entry
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                print(f"{path.name} is damaged ({error}): kept as {aside(path).name}, computed again", file=sys.stderr)
        return entries

    def add(self, key: str, configuration: dict, outcome: dict, processes: int = 1) -> dict:
        """Keep a finished configuration and return its entry; its checkpoints are no longer needed.

        Args:
            outcome: its rows, seconds and device, as a worker tells them.
        """
        entry = {"configuration": configuration, "processes": processes}
        entry |= {name: outcome[name] for name in ("rows", "seconds", "device")}
        write_text(json.dumps(entry | {"checksum": _checksum(key, entry)}), self.folder / f"{key}.json")
        shutil.rmtree(self.checkpoints(key), ignore_errors=True)
        (self.folder / f"{key}.failed.txt").unlink(missing_ok=True)
        return entry

    def keep_traceback(self, key: str, configuration: dict, traceback: str) -> Path:
        """Keep what went wrong with a configuration."""
        path = self.folder / f"{key}.failed.txt"
        write_text(f"{json.dumps(configuration, indent=2)}\n\n{traceback}", path)
        return path

    def empty(self) -> None:
        """Forget everything: the rows are in the CSV now."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _checksum(key: str, entry: dict) -> str:
    return hashlib.sha256(json.dumps([key, entry], sort_keys=True).encode()).hexdigest()
