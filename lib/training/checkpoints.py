"""Stop a training session and go on: its model, optimizer and rows in one file.

Every checkpoint is written by `write` and read by `read`, with a checksum: where a file is damaged the session starts
anew and says so, instead of going on from other numbers. Every loop saves when `Rhythm` says.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from lib.base import BadInput, aside, atomic
from lib.pruners.masks import Masked
from lib.pruners.straight_through import StraightThrough

MARK = b"\nsha256 "  # between what torch saved and its checksum, which ends the file
SAVE_SECONDS = 60.0  # a kill loses so much work, and what follows until a step, row or epoch ends


class Kept(Protocol):
    """Be put in a checkpoint and taken out again, as an optimizer or a network can."""

    def state_dict(self) -> dict:
        """Give what must be saved."""

    def load_state_dict(self, content: dict) -> None:
        """Go on from that."""


class Together:
    """Keep several things as one in a checkpoint, such as an optimizer and a callback."""

    def __init__(self, **parts: Kept):
        self.parts = parts

    def state_dict(self) -> dict:
        """Give what each must save, by the parts' names."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, content: Mapping[str, dict]) -> None:
        """Let each go on from its own."""
        for name, part in self.parts.items():
            part.load_state_dict(content[name])


class Rhythm:
    """Decide when a training is saved: every `SAVE_SECONDS`, after its last step, and wherever it is stopped."""

    def __init__(self):
        self.saved = monotonic()

    @contextmanager
    def after_step(self, save: Callable[[], None], last: bool) -> Iterator[None]:
        """Enclose what is done after a step and may raise to stop; the step counts as done, and is saved then too."""
        keep = last or monotonic() - self.saved >= SAVE_SECONDS
        try:
            yield
        except BaseException:
            keep = True
            raise
        finally:
            if keep:
                save()
                self.saved = monotonic()


def python(rows: Any) -> Any:
    """Return rows with Python's numbers in the place of NumPy's, such as a mean over measurements is, at any depth."""
    if isinstance(rows, dict):
        return {name: python(value) for name, value in rows.items()}
    if isinstance(rows, (list, tuple)):
        return type(rows)(python(value) for value in rows)
    return rows.item() if isinstance(rows, np.generic) else rows


def write(content: Any, path: Path) -> None:
    """Keep tensors and plain values in a file, whole or not at all.

    Raises:
        BadInput: something else is among them, such as a NumPy number, which `read` would refuse.
    """
    with atomic(path) as file:
        torch.save(content, file)
        file.seek(0)
        if odd := torch.serialization.get_unsafe_globals_in_checkpoint(file):
            raise BadInput(f"{path} could not be read again: {', '.join(odd)}: keep tensors and plain values alone")
        file.seek(0)
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0, io.SEEK_END)
        file.write(MARK + digest.encode())


def read(path: Path) -> Any | None:
    """Read what `write` has kept, on the CPU; None where there is no file.

    A damaged one is set aside under another name and named on stderr; then too there is nothing to go on from.
    """
    if not path.exists():
        return None
    try:
        content, mark, digest = path.read_bytes().rpartition(MARK)
        if not mark or hashlib.sha256(content).hexdigest() != digest.decode(errors="replace"):
            raise ValueError("wrong checksum")
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (IsADirectoryError, ValueError) as error:  # not what the system refuses for now, such as one file more
        discard(path, str(error))
    except pickle.UnpicklingError:  # its message takes many lines
        discard(path, "it holds more than tensors and plain values")
    return None


def discard(path: Path, why: str) -> None:
    """Set a damaged file of a session aside, and say so: the session starts anew."""
    kept = f"kept as {aside(path).name}, " if path.exists() else ""
    print(f"{path} is damaged ({why}): {kept}its run starts anew", file=sys.stderr)


def refuse_another(place: Path, kept: Mapping[str, object], own: Mapping[str, object]) -> None:
    """Refuse to go on from a session of other settings, and name those that differ or that one of the two lacks.

    Args:
        place: the session's file or folder.
        kept, own: settings, seed and the like, by name: those that were kept, and those of now.

    Raises:
        BadInput: they are not the same.
    """
    names = [name for name in {**own, **kept} if name not in kept or name not in own or kept[name] != own[name]]
    if names:
        raise BadInput(f"{place} is a session with other settings ({', '.join(names)}): move it away to start anew")


def checksum(tensor: Tensor, before: int = 0) -> int:
    """Tell a tensor's numbers from others of the same shape, for an identity; `before` is that of those before it."""
    return zlib.crc32(tensor.cpu().contiguous().numpy(), before)


class Session:
    """Keep a session in a file; without a file nothing is kept.

    Args:
        state: the file.
        identity: settings, seed and the like, by name: a file of another session is refused. So is one in which masks
            keep more or fewer weights in all, or are learned at another decay; which ones they keep comes from the
            file, as the weights do.
        optimizer: or several things `Together`.
    """

    def __init__(self, state: Path | None, identity: dict, model: nn.Module, optimizer: Kept):
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        kept = sum(int(part.mask.sum()) for part in model.modules() if isinstance(part, Masked))
        self.state, self.identity = state, {**identity, "network": shapes}
        self.identity.setdefault("masks", kept)  # whoever keeps masks elsewhere has named them
        if learned := [[int(one.mask.sum()), one.decay] for one in model.modules() if isinstance(one, StraightThrough)]:
            self.identity.setdefault("learned", learned)
        self.model, self.optimizer, self.rhythm = model, optimizer, Rhythm()

    def load(self, on_progress: Callable[[], None] = lambda: None) -> list[dict]:
        """Return the rows so far; model and optimizer are put back to where they were.

        Args:
            on_progress: called once for each of the rows.

        Raises:
            BadInput: the file is of a session with other settings.
        """
        content = None if self.state is None else read(self.state)
        if content is None:
            return []
        refuse_another(self.state, content["identity"], self.identity)
        self.model.load_state_dict(content["model"])
        self.optimizer.load_state_dict(content["optimizer"])
        for _ in content["rows"]:
            on_progress()
        return content["rows"]

    def save_when_due(self, rows: list[dict], on_progress: Callable[[], None], last: bool) -> None:
        """Call `on_progress` after an epoch, which may raise to stop, and save when it is time to."""
        with self.rhythm.after_step(partial(self._save, rows), last):
            on_progress()

    def _save(self, rows: list[dict]) -> None:
        if self.state is not None:
            parts = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
            write({"identity": self.identity, **parts, "rows": python(rows)}, self.state)
