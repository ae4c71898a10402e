"""Call the one hook of every loop that trains: what else happens after each update, such as pruning."""

from __future__ import annotations

from typing import Protocol


class Callback(Protocol):
    """Do something else to what is trained after each update, such as pruning; its state is saved with the training."""

    def step(self, step: int) -> None:
        """Do what is due after this update."""

    def identity(self) -> dict:
        """Give what must be the same when a training goes on."""

    def state_dict(self) -> dict:
        """Give what must be saved."""

    def load_state_dict(self, content: dict) -> None:
        """Go on from that."""
