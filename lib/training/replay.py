"""Keep what agents have lived through, and draw batches of it: a replay buffer, stacked over runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor


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
