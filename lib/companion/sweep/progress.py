"""Draw the bar of a sweep: units of work done, in all configurations together, with the remaining time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from tqdm import tqdm


class Bar:
    """Read what each running configuration reports (`Context.report_progress`) and show the sum and who is at work.

    It never goes back: a configuration that a stopped sweep had begun counts as far as it was, and stays there until
    it has got beyond. On machines that share no folder with this one the bar moves when a configuration is finished.
    A terminal sees it twice a second, a log file a line a minute.
    """

    def __init__(
        self, units: Mapping[str, int], folders: Mapping[str, Path], finished: Iterable[str], every: float | None = None
    ):
        self.units, self.folders, self.finished = units, folders, set(finished)
        self.every = every or (0.5 if sys.stderr.isatty() else 60.0)
        self.before = {key: self._read(key) for key in units}
        self.done = {key: done for key, (done, _) in self.before.items()}
        self.bar = tqdm(total=sum(units.values()), initial=sum(self.done.values()), unit="unit", dynamic_ncols=True)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Bar:
        self.thread.start()
        return self

    def __exit__(self, *error) -> None:
        self.stop.set()
        self.thread.join()
        self._show()
        self.bar.close()

    def _watch(self) -> None:
        while not self.stop.wait(self.every):
            self._show()

    def _show(self) -> None:
        now = {key: self._read(key) for key in self.units}
        self.done = {key: max(self.done[key], done) for key, (done, _) in now.items()}
        labels = [label for key, (done, label) in now.items() if label and (done, label) != self.before[key]]
        self.bar.set_postfix_str(", ".join(labels), refresh=False)
        self.bar.n = sum(self.done.values())
        self.bar.refresh()

    def _read(self, key: str) -> tuple[int, str]:
        """Units done in a configuration, and what it is at."""
        if key in self.finished:
            return self.units[key], ""
        try:
            done, label = (self.folders[key] / "progress").read_text().split(maxsplit=1)
            return min(int(done), self.units[key]), label
        except (OSError, ValueError):  # not begun, or being written this moment
            return 0, ""
