"""Turn public data from its publisher, or from a folder, into checked arrays: what every kind of data shares.

`registry.toml` says for each set where it comes from, on what terms, and the checksum of every file. A kind of data
(`lib.data.vision`, ...) brings only the function that turns the publisher's bytes into arrays; `prepare` does the rest:
look in data/, else in COMPANION_DATA, else download; check; convert; write.

Nothing is converted unchecked. The publisher's files are checked in memory, so the bytes that were checked are the
bytes that are read; an array whose checksum the registry knows is hashed before its first use in a process, and again
if its file changes. Of the sets that nobody has converted here yet (CIFAR-100, D4RL's) it knows none.
Nothing half-written is ever found under its own name (`whole`), and nothing that was found is deleted or overwritten.
"""

import hashlib
import io
import os
import tarfile
import tokenize
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pooch

from lib import base
from lib.base import BadInput, atomic

REGISTRY = Path(__file__).with_name("registry.toml")
VARIABLE = "COMPANION_DATA"

Reader = Callable[[Mapping[str, bytes]], Mapping[str, np.ndarray]]


def download(address: str, file: BinaryIO) -> None:
    """Write what `address` holds to `file`, with a progress bar. OSError when there is no way to get it."""
    # requests gives up on a silent host after 10 s, on a stalled transfer after 60 s
    pooch.HTTPDownloader(progressbar=True, chunk_size=1 << 16, timeout=(10, 60))(address, file, None)


@dataclass(frozen=True)
class Places:
    """Say where things are read and written; the defaults are the project's own."""

    data: Path = base.DATA
    downloads: Path = base.DOWNLOADS
    registry: Path = REGISTRY
    download: Callable[[str, BinaryIO], None] = download


PROJECT = Places()


@dataclass(frozen=True)
class Source:
    """Describe one set of the registry; registry.toml says what each field means."""

    name: str
    title: str
    kind: str
    address: str
    terms: str
    cite: str
    bytes: int
    locked: bool
    files: Mapping[str, list[str]]
    arrays: Mapping[str, str]
    archive: str = ""
    archive_hash: str = ""
    also: Mapping[str, str] = field(default_factory=dict)

    def remote(self) -> dict[str, list[str]]:
        """List what is downloaded, {name below .downloads/: accepted checksums}: the archive, or else each file."""
        return {self.archive: [self.archive_hash]} if self.archive else dict(self.files)

    def lacking(self, folder: Path) -> list[str]:
        """List the files of the set that `folder` lacks; none if it holds them all, loose or as the archive."""
        if self.archive and (folder / self.archive).is_file():
            return []
        return [name for name in self.files if not self.place(name, folder).is_file()]

    def place(self, name: str, folder: Path) -> Path:
        """Find a file of the publisher below `folder`: under its name, or else under the other one it has."""
        other = folder / self.also.get(name, name)
        return folder / name if (folder / name).is_file() or not other.is_file() else other


def registry(path: Path = REGISTRY) -> dict[str, Source]:
    """Read the sets of the registry, {name: Source}."""
    entries = tomllib.loads(path.read_text(encoding="utf-8"))
    for entry in entries.values():
        entry["files"] = {name: [h] if isinstance(h, str) else h for name, h in entry["files"].items()}
    return {name: Source(name=name, **entry) for name, entry in entries.items()}


def pick(name: str, path: Path = REGISTRY) -> Source:
    """Find the set called `name`. BadInput, with the names there are, when there is none."""
    known = registry(path)
    if name not in known:
        raise BadInput(f"no public data set called {name!r}; there are: {', '.join(known)}")
    return known[name]


def check(what: str, accepted: list[str], digest: Callable[[str], str], remedy: str) -> None:
    """Pass if one of the `accepted` checksums ("<sha256>" or "<algorithm>:<hex>") is what `digest(algorithm)` gives.

    BadInput otherwise; the line names `what`, both checksums and the `remedy`.
    """
    pairs = [("sha256", h) if ":" not in h else tuple(h.split(":", 1)) for h in accepted]
    found = {algorithm: digest(algorithm) for algorithm, _ in pairs}
    if all(found[algorithm] != wanted for algorithm, wanted in pairs):
        expected = " or ".join(f"{algorithm} {wanted}" for algorithm, wanted in pairs)
        actual = ", ".join(f"{algorithm} {value}" for algorithm, value in found.items())
        raise BadInput(f"{what} is altered or truncated: expected {expected}, found {actual}; {remedy}")


MOVE_AWAY = "move it away and run `make data`"


def check_bytes(path: Path, content: bytes, accepted: list[str]) -> None:
    """Call `check` for a file of the publisher that is in memory; `path` only names it."""
    check(str(path), accepted, lambda algorithm: hashlib.new(algorithm, content).hexdigest(), MOVE_AWAY)


@lru_cache(maxsize=256)
def _file_digest(path: Path, algorithm: str, size: int, modified: int, inode: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def file_digest(path: Path, algorithm: str) -> str:
    """Compute the checksum of a file in hexadecimal, computed once a process unless size, time or inode of the file
    change.
    """
    stat = path.stat()
    return _file_digest(path, algorithm, stat.st_size, stat.st_mtime_ns, stat.st_ino)


def open_digest(file: BinaryIO, algorithm: str) -> str:
    """Compute the checksum in hexadecimal of a file that is open for reading and writing."""
    file.seek(0)
    return hashlib.file_digest(file, algorithm).hexdigest()


def companion() -> Path | None:
    """Find the folder that COMPANION_DATA names, None when it is not set. BadInput when there is no such folder."""
    value = os.environ.get(VARIABLE)
    if not value:
        return None
    if not Path(value).is_dir():
        raise BadInput(f"{VARIABLE} names {value}, which is not a folder; name one that exists, or unset it")
    return Path(value)


def read_files(source: Source, folder: Path) -> dict[str, bytes]:
    """Read the publisher's files of a set from a folder that lacks none, {name: content}, each checked.

    Loose files are taken before the archive. BadInput names the file that is altered, or missing in the archive.
    """
    loose = {name: source.place(name, folder) for name in source.files}
    if all(path.is_file() for path in loose.values()):
        contents = {name: path.read_bytes() for name, path in loose.items()}
    else:
        packed = folder / source.archive
        content = packed.read_bytes()
        check_bytes(packed, content, [source.archive_hash])
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            contents = {member.name: tar.extractfile(member).read() for member in tar if member.name in loose}
    for name, accepted in source.files.items():
        if name not in contents:
            raise BadInput(f"{packed} does not hold {name}; {MOVE_AWAY}")
        check_bytes(loose[name], contents[name], accepted)
    return contents


def fetch(source: Source, places: Places, tried: str) -> None:
    """Download what .downloads/ lacks of a set, each file whole and checked or not at all.

    BadInput, one line with the file, its address and COMPANION_DATA (`tried` says what became of that), without a
    network; and when the publisher sends something else than the registry expects.
    """
    for name, accepted in source.remote().items():
        target = places.downloads / name
        if target.exists():
            continue  # checked when it is read
        address = source.address + Path(name).name
        try:
            with atomic(target) as file:
                places.download(address, file)
                check(f"what {address} sent", accepted, partial(open_digest, file), "nothing was kept")
        except OSError as error:
            # the text of a failed connection is a page of wrapped errors: its type says as much
            reason = type(error).__name__ if len(str(error)) > 80 else " ".join(str(error).split())
            raise BadInput(
                f"{name} could not be downloaded from {address} ({reason}) and {tried}; "
                f"set {VARIABLE} to a folder that holds the publisher's files"
            ) from error


def publisher_files(source: Source, places: Places = PROJECT) -> tuple[dict[str, bytes], str]:
    """Find the publisher's files of a set, checked, {name: content}, and a few words on where they came from."""
    folder, tried = companion(), f"{VARIABLE} is not set"
    if folder:
        lacking = source.lacking(folder)
        if not lacking:
            return read_files(source, folder), VARIABLE
        more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
        tried = f"{VARIABLE}={folder} lacks {lacking[0]}{more}"
    if source.lacking(places.downloads):
        fetch(source, places, tried)
    return read_files(source, places.downloads), source.address + (f" ({tried})" if folder else "")


def prepare(name: str, read: Reader, places: Places = PROJECT) -> tuple[dict[str, Path], str]:
    """Prepare the arrays of a set as checked files, {array: data/<name>/<array>.npy}, and where they came from.

    `read` turns the publisher's files {name: content} into the arrays the registry lists; it is called only when one
    is missing. Arrays whose checksum the registry does not know are not checked.
    BadInput: no such set, an altered or truncated file, COMPANION_DATA that is no folder, no network.
    """
    source = pick(name, places.registry)
    files = {array: places.data / name / f"{array}.npy" for array in source.arrays}
    known = {array: [digest] for array, digest in source.arrays.items() if digest != "unknown"}
    missing = [array for array, path in files.items() if not path.exists()]
    for array in known:
        if array not in missing:
            check(str(files[array]), known[array], partial(file_digest, files[array]), MOVE_AWAY)
    if not missing:
        return files, "data/"
    contents, origin = publisher_files(source, places)
    arrays = read(contents)
    for array in missing:
        with atomic(files[array]) as file:
            np.lib.format.write_array(file, np.ascontiguousarray(arrays[array]), version=(1, 0), allow_pickle=False)
            if array in known:
                what = f"the conversion to {files[array]}"
                check(what, known[array], partial(open_digest, file), "nothing was kept")
    return files, origin


def open_array(path: Path) -> np.ndarray:
    """Open a .npy file as a read-only memory map. BadInput when it is no whole array."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:  # by numpy's look at the header
        raise BadInput(f"{path} is no whole .npy array ({error}); {MOVE_AWAY}") from error
