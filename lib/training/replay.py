"""Keep what agents have lived through, and draw batches of it: a replay buffer, stacked over runs, and its file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lib.base import aside


class Batch(NamedTuple):
    """Hold transitions, each [run, batch, width]; `terminated` is 1.0 where no return follows, timeouts are 0.0."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    following: Tensor
    terminated: Tensor


class Replay:
    """Keep the latest transitions of each run, one row each: [run, capacity, columns].

    Args:
        widths: columns of observations, actions, rewards, next observations, terminated.
    """

    def __init__(self, runs: int, capacity: int, widths: Sequence[int], device: str = "cpu"):
        self.rows = torch.zeros(runs, capacity, sum(widths), device=device)
        self.widths = list(widths)
        self.runs = torch.arange(runs, device=device).unsqueeze(1)
        self.added = 0  # a run

    def __len__(self) -> int:
        """How many transitions of each run there are."""
        return min(self.added, self.rows.shape[1])

    def add(self, rows: Tensor) -> None:
        """Keep one more transition of each run, [run, columns]; the oldest goes when all places are taken."""
        self.rows[:, self.added % self.rows.shape[1]] = rows
        self.added += 1

    def batch(self, places: Tensor) -> Batch:
        """Return the transitions at these places, [run, batch] of int64 below `len`."""
        return Batch(*self.rows[self.runs, places].split(self.widths, 2))

    def since(self, first: int) -> Tensor:
        """Return the transitions added from the `first` on (from 0), [added - first, run, columns]."""
        places = torch.arange(first, self.added, device=self.rows.device) % self.rows.shape[1]
        return self.rows[:, places].transpose(0, 1).cpu()

    def load(self, rows: Tensor, added: int) -> None:
        """Put the latest transitions of `added`, [number, run, columns], at the places where `add` had put them."""
        places = torch.arange(added - len(rows), added) % self.rows.shape[1]
        self.rows[:, places.to(self.rows.device)] = rows.transpose(0, 1).to(self.rows.device)
        self.added = added


class ReplayLog:
    """Keep a replay's transitions in a file that only grows, piece by piece, each with a checksum.

    It keeps all transitions, also those that the buffer has no place for any more. What the file holds beyond the
    pieces is ignored, so whoever writes it may be killed at any moment.

    Attributes:
        pieces: of each its first transition, the one after its last, and its checksum.
    """

    def __init__(self, replay: Replay):
        self.replay = replay
        self.pieces: list[tuple[int, int, str]] = []
        self.path: Path | None = None  # of the file that the pieces are in

    def save(self, path: Path) -> None:
        """Add the transitions that are new.

        In another file than before, or where it is gone, a new one begins with what the buffer holds.
        """
        if path.is_dir():
            aside(path)
        if path.resolve() != self.path or not path.is_file():
            self.pieces, self.path = [], path.resolve()
        end = self.replay.added
        first = max(self.pieces[-1][1] if self.pieces else 0, end - len(self.replay))
        rows = self.replay.since(first).contiguous().numpy().tobytes()
        with path.open("r+b" if self.pieces else "wb") as file:
            file.seek(first * self._row_bytes())
            file.write(rows)
            file.flush()
            os.fsync(file.fileno())
        if rows:
            self.pieces.append((first, end, hashlib.sha256(rows).hexdigest()))

    def load(self, path: Path, pieces: Sequence[tuple[int, int, str]], added: int) -> str:
        """Fill the buffer with the latest of `added` transitions, or say what is wrong with the file.

        Returns:
            What is wrong as far as the pieces tell, and nothing has changed then; "" if nothing is.
        """
        if damage := self._damage(path, pieces):
            return damage
        runs, capacity, columns = self.replay.rows.shape
        stored = min(added, capacity)
        rows = np.fromfile(path, np.float32, stored * runs * columns, offset=(added - stored) * self._row_bytes())
        self.replay.load(torch.from_numpy(rows.reshape(stored, runs, columns)), added)
        self.pieces, self.path = list(pieces), path.resolve()
        return ""

    def _damage(self, path: Path, pieces: Sequence[tuple[int, int, str]]) -> str:
        if not path.is_file():
            return "it is no file" if path.exists() else "it is gone"
        with path.open("rb") as file:
            for first, end, digest in pieces:
                file.seek(first * self._row_bytes())
                rows = file.read((end - first) * self._row_bytes())
                if len(rows) < (end - first) * self._row_bytes():
                    return f"it ends before step {end}"
                if hashlib.sha256(rows).hexdigest() != digest:
                    return f"wrong checksum of steps {first + 1} to {end}"
        return ""

    def _row_bytes(self) -> int:
        runs, _, columns = self.replay.rows.shape
        return 4 * runs * columns
