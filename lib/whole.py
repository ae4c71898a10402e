"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

PART = ".part"  # how an unfinished file's name ends; DVC ignores these (.dvcignore)


@contextmanager
def whole(path: Path) -> Iterator[BinaryIO]:
    """A new binary file (readable too) that appears under its name when the block ends well, complete and on disk.

    If the block raises, nothing remains; if the process is killed, a `.<name>.<random>.part` remains that nobody reads
    and anybody may delete. Two processes may write the same file at once: each writes its own part, the last stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{PART}")
    try:
        with part.open("x+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
