"""Give a run what it needs from whoever started it: a device, a folder for unfinished work, a way to report."""

from __future__ import annotations

import math
import os
import time
from dataclasses import dataclass
from pathlib import Path

SAY_SECONDS = 0.25  # between two words on progress: a file each unit would take a fifth of the time on the moons


class Stopped(Exception):
    """The time given to the sweep is over; what the run has kept in its folder lets it go on later."""


@dataclass
class Context:
    """Tell one run where it computes, where it keeps unfinished work, and when it must stop.

    Attributes:
        device: where to compute, "cpu" or "cuda".
        folder: where to keep checkpoints; None: nowhere (the run starts anew each time).
        deadline: seconds since 1970 after which `report_progress` stops the run; None: never.
        owner: id of the process that waits for the result, this one or its parent; None: nobody on this machine.
        said: when the file `progress` was last written (clock of `time.monotonic`).
    """

    device: str = "cpu"
    folder: Path | None = None
    deadline: float | None = None
    done: int = 0
    owner: int | None = None
    said: float = -math.inf

    def checkpoint(self, name: str) -> Path | None:
        """Say where to keep a checkpoint of this name; None: nowhere."""
        return None if self.folder is None else self.folder / name

    def report_progress(self, label: str) -> None:
        """Say that one more unit of work is done; call it between two units, when work can be kept.

        The file `progress` in the folder hears of the first unit, of one every SAY_SECONDS, and of the last before a
        stop.

        Raises:
            Stopped: as `check` does.
        """
        self.done += 1
        try:
            self.check()
        except BaseException:
            self.say(label)
            raise
        if time.monotonic() - self.said >= SAY_SECONDS:
            self.say(label)

    def say(self, label: str) -> None:
        """Write the file `progress`."""
        if self.folder is not None:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "progress").write_text(f"{self.done} {label}")
            self.said = time.monotonic()

    def check(self) -> None:
        """Stop here if the time is over or nobody waits for the result.

        Raises:
            Stopped: the deadline has passed, or the run is an orphan.
        """
        if (self.deadline is not None and time.time() > self.deadline) or self.orphan():
            raise Stopped

    def orphan(self) -> bool:
        """Say whether the owner is gone: this process has been given to another parent."""
        return self.owner not in (None, os.getpid(), os.getppid())
