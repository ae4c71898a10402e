"""The bar of a sweep: units of work done, in all configurations together, with the remaining time."""

from __future__ import annotations

import threading
from pathlib import Path

from tqdm import tqdm


class Bar:
    """Reads what each running configuration says of itself (`Job.advance`) and shows the sum.

    On machines that share no folder with this one the bar moves when a configuration is finished.
    """

    def __init__(self, units: dict[str, int], folder: Path, finished: set[str], every: float = 0.5):
        self.units, self.folder, self.finished, self.every = units, folder, set(finished), every
        self.bar = tqdm(total=sum(units.values()), unit="unit", smoothing=0.05, dynamic_ncols=True)
        self.bar.initial = self.bar.n = self._count()[0]
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
        count, labels = self._count()
        self.bar.set_postfix_str(", ".join(labels), refresh=False)
        self.bar.n = count
        self.bar.refresh()

    def _count(self) -> tuple[int, list[str]]:
        count, labels = 0, []
        for key, units in self.units.items():
            if key in self.finished:
                count += units
                continue
            try:
                done, label = (self.folder / key / "progress").read_text().split(maxsplit=1)
                count += min(int(done), units)
                labels.append(label)
            except (OSError, ValueError):  # not begun, or being written this moment
                continue
        return count, labels
