"""A training session that can be stopped and goes on: its model, optimizer and rows in one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic

import torch
from torch import nn

from lib.errors import BadInput
from lib.whole import whole


class Session:
    """Keeps a session in a file; without a file nothing is kept.

    Args:
        state: the file.
        identity: settings, seed and the like, by name: a file of another session is refused.
        save_seconds: save at most this often; the last epoch always is saved, and so is one at which `advance` raises.
    """

    def __init__(
        self,
        state: Path | None,
        identity: dict,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        save_seconds: float = 20.0,
    ):
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        self.state, self.identity = state, {**identity, "network": shapes}
        self.model, self.optimizer, self.save_seconds = model, optimizer, save_seconds
        self.saved = monotonic()

    def load(self) -> list[dict]:
        """The rows so far; model and optimizer are put back to where they were.

        Raises:
            BadInput: the file is of a session with other settings.
        """
        if self.state is None or not self.state.exists():
            return []
        content = torch.load(self.state, map_location="cpu", weights_only=True)
        if content["identity"] != self.identity:
            differ = [name for name in self.identity if content["identity"].get(name) != self.identity[name]]
            what = ", ".join(differ)
            raise BadInput(f"{self.state} is a session with other settings ({what}): move it away to start anew")
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        return content["rows"]

    def advance(self, rows: list[dict], advance: Callable[[], None], last: bool) -> None:
        """After an epoch: call `advance`, which may raise to stop, and save when it is time to."""
        keep = last or monotonic() - self.saved >= self.save_seconds
        try:
            advance()
        except BaseException:
            keep = True
            raise
        finally:
            if keep and self.state is not None:
                self._save(self.state, rows)

    def _save(self, state: Path, rows: list[dict]) -> None:
        parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        with whole(state) as file:
            torch.save({"identity": self.identity, **parts, "rows": rows}, file)
        self.saved = monotonic()
