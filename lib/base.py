"""Hold what every room stands on: where things are, bad input refused at the door, files written whole or not at
all.
"""

from __future__ import annotations

import fcntl
import itertools
import math
import os
import secrets
import signal
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields, is_dataclass
from numbers import Integral, Real
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, BinaryIO, TypeVar, Union, get_args, get_origin, get_type_hints

# Every path of the project starts here, so that nothing depends on the folder a program runs in.
ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "data"
DOWNLOADS = ROOT / ".downloads"
NOTEBOOKS = ROOT / "notebooks"
PAPERS = ROOT / "lib" / "papers"
PARAMS = ROOT / "params.yaml"
README = ROOT / "README.md"
RESULTS = ROOT / "results"
STORE = ROOT / ".sweep"

PART = ".part"  # how an unfinished file's name ends; DVC ignores these (.dvcignore)
T = TypeVar("T")


class BadInput(ValueError):
    """Bad input is refused at the door.

    The message is one line that names what was wrong and what would be right. Programs print it and exit with
    status 2; it is never caught to be ignored.

    Args:
        messages: one for each fault. What they quote may be written on several lines, as a tensor is; they stay one.
    """

    def __init__(self, *messages: str):
        super().__init__(*(" ".join(message.split()) for message in messages))

    def __str__(self) -> str:
        return "\n".join(self.args)


@contextmanager
def program(name: str, stopped: str = "stopped; files are whole, the same command starts again") -> Iterator[None]:
    """Do the work of a command line: bad input, training that diverges, a full disk, Ctrl-C and SIGTERM end it with a
    line on stderr, no traceback.

    Args:
        name: how the line begins, such as "lib.sweep".
        stopped: what is said after Ctrl-C, and after SIGTERM, by which batch systems and `timeout` stop a program.

    Raises:
        SystemExit: status 2 for bad input, training that has diverged and what the disk refuses, 130 for Ctrl-C,
            141 for a closed pipe, 143 for SIGTERM.
    """
    main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGTERM, _terminated) if main else None
    try:
        yield
    except (BadInput, FloatingPointError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        print(f"{name}: {stopped}", file=sys.stderr)
        sys.exit(143 if isinstance(stop, Terminated) else 130)
    except BrokenPipeError:  # who reads what is printed, such as `head`, has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still to be flushed
        sys.exit(141)
    except OSError as error:  # no permission, a full disk
        where = f"{error.filename}: " if error.filename else ""
        after = "" if isinstance(error, FileNotFoundError) else "; files are whole, the same command goes on"
        print(f"{name}: {where}{error.strerror or error}{after}", file=sys.stderr)
        sys.exit(2)
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)


class Terminated(KeyboardInterrupt):
    """SIGTERM has come: whoever tidies up after Ctrl-C does so now, too.

    It is a class of its own also because CPython ends the process by SIGINT where a bare KeyboardInterrupt leaves an
    `exec`, such as that of a dataclass.
    """


def _terminated(number: int, frame: object) -> None:
    raise Terminated


@contextmanager
def extra(name: str, package: str = "companion") -> Iterator[None]:
    """Import what a program stands on, or say in a line which of this project's extras brings it.

    Raises:
        SystemExit: status 2 if a package is not installed or a program of the companion is asked for outside a
            checkout, 130 for Ctrl-C while packages are being loaded.
    """
    if package == "companion" and not PARAMS.exists():
        print(f"{name}: works in a checkout of the repository, where params.yaml lies, and not alone", file=sys.stderr)
        sys.exit(2)
    try:
        yield
    except ModuleNotFoundError as error:
        print(f"{name}: {error.name} is not installed: pip install '.[{package}]' in the checkout", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print(f"{name}: stopped before it began", file=sys.stderr)
        sys.exit(130)


@dataclass(frozen=True)
class Range:
    """Say between which numbers a setting lies, both included: `share: Annotated[float, Range(0, 1)]`, see `build`."""

    low: float = -math.inf
    high: float = math.inf

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"at least {self.low:g}"
        return f"a number from {self.low:g} to {self.high:g}"


Count = Annotated[int, Range(1)]  # how many of something, at least one


@contextmanager
def atomic(path: Path) -> Iterator[BinaryIO]:
    """Open a new binary file (readable too) that appears under its name when the block ends well, complete and on disk.

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


def aside(path: Path) -> Path:
    """Move a damaged file (or a folder in its place) to `<name>.damaged`, and return that path.

    What was set aside under that name before is kept too, under a number.
    """
    names = (path.with_name(f"{path.name}.damaged{number or ''}") for number in itertools.count())
    return path.replace(next(name for name in names if not name.exists()))


def writable(folder: Path) -> None:
    """Refuse a folder that takes no files, before hours of work are spent on what would go there.

    Raises:
        BadInput: it cannot be made or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".", suffix=PART):
            pass
    except OSError as error:
        raise BadInput(f"{folder} cannot be written to: {error.strerror}") from error


def to_write(path: str | Path) -> Path:
    """Return the path of a file that is about to be written, refused before the work is done if it cannot be.

    Raises:
        BadInput: it is no path, a folder, or lies where nothing can be written.
    """
    if not isinstance(path, (str, os.PathLike)) or not Path(path).name:
        raise BadInput(f"{path!r:.60} is no path of a file to write")
    path = Path(path)
    if path.is_dir():
        raise BadInput(f"{path} is a folder: give the name of a file in it")
    writable(path.parent)
    return path


@contextmanager
def locked(path: Path, work: str) -> Iterator[None]:
    """Let only one process at a time work on a path: the second is refused while the block of the first lasts.

    The lock is held on `.<name>.lock` beside the path, which stays there and is empty. It goes with its process, so
    one that was killed leaves nothing behind.

    Args:
        work: what goes on there, such as "a sweep of two_four_workflow", for the error.

    Raises:
        BadInput: another process works on it, or the folder that it lies in takes no files.
    """
    path = path.absolute()  # "." has no name
    writable(path.parent)
    with path.with_name(f".{path.name}.lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput(f"{work} is at work in {path} already: wait for its end, or use another folder") from error
        yield


def build(cls: type[T], content: Any, where: str) -> T:
    """Build a dataclass from a mapping, nested ones and tuples of them too; names and kinds of values are checked.

    Numbers must be finite. A list must hold something, unless it is empty by default. What is annotated with a
    `Range`, such as `seeds: Count`, must lie in it.

    Args:
        where: how an error names the place, such as "quick.two_four_workflow".

    Raises:
        BadInput: no mapping, a setting unknown, missing, of another kind or out of its range, a list that is empty, or
            what the dataclass itself refuses.
    """
    if not isinstance(content, Mapping):
        raise BadInput(f"{where}: expected settings by name, found {content!r}")
    known = {field.name: field for field in fields(cls)}
    unknown = [name for name in content if name not in known]
    if unknown:
        raise BadInput(f"{where}: unknown setting {unknown[0]!r}; known are {', '.join(known)}")
    required = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in required if name not in content]
    if missing:
        raise BadInput(f"{where}: setting {missing[0]!r} is missing")
    kinds = get_type_hints(cls, include_extras=True)
    values = {name: _value(kinds[name], value, f"{where}.{name}") for name, value in content.items()}
    empty = [name for name, value in values.items() if value == () and known[name].default != ()]
    if empty:
        raise BadInput(f"{where}.{empty[0]}: expected at least one value, found []")
    try:
        return cls(**values)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def type_of(value: Any) -> str:
    """Say what a value is, with its article: "a list", "an int", and "None" without one."""
    if value is None:
        return "None"
    name = type(value).__name__
    spelt = name[:2].isupper()  # an LSTM, an MLP
    return f"{'an' if name[0] in ('AEFHILMNORSX' if spelt else 'aeioAEIO') else 'a'} {name}"


def refuse_unknown(task: Any, **known: Collection[str]) -> None:
    """Refuse names that nobody knows: `refuse_unknown(self, data=vision.names(), network=NETWORKS)`.

    Raises:
        BadInput: what the task has under one of these names is not among those known.
    """
    for field, names in known.items():
        if (value := getattr(task, field)) not in names:
            raise BadInput(f"{field} {value!r}: known are {', '.join(names)}")


@contextmanager
def naming(what: str) -> Iterator[None]:
    """Say first what it is about, such as a layer's name, in the line that refuses something within.

    Raises:
        BadInput: what was refused within, with the name in front.
    """
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{what}: {error}") from error


def refuse_uncounted(least: int = 1, **counts: Any) -> None:
    """Refuse what is no whole number of something, or fewer than the least: `refuse_uncounted(every=self.every)`.

    Raises:
        BadInput: the name, the value and what is expected.
    """
    for name, value in counts.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise BadInput(f"{name}={value!r}: expected a whole number, at least {least}")


def refuse_outside(interval: str, **values: Any) -> None:
    """Refuse what is no number of an interval, which is written as in print: `refuse_outside("[0, 1)", momentum=...)`.

    Args:
        interval: such as "(0, 1]": a round bracket leaves its end out. "[0, inf)" has every finite number from 0 on.

    Raises:
        BadInput: the name, the value and the interval.
    """
    low, high = map(float, interval[1:-1].split(","))
    for name, value in values.items():
        number = isinstance(value, Real) and not isinstance(value, bool) and low <= value <= high  # NaN is not
        if not number or (value == low and interval[0] == "(") or (value == high and interval[-1] == ")"):
            raise BadInput(f"{name}={value!r:.40} is not in {interval}")


def refuse_twice(**lists: Sequence) -> None:
    """Refuse lists with a value twice, which would be trained twice for one row: `refuse_twice(kept=self.kept)`.

    Raises:
        BadInput: the setting and the value.
    """
    for name, values in lists.items():
        if twice := [value for place, value in enumerate(values) if value in values[:place]]:
            raise BadInput(f"{name}={list(values)}: {twice[0]!r} stands there twice, expected each value once")


def _value(kind: Any, value: Any, where: str) -> Any:
    if get_origin(kind) is Annotated:
        kind, *marks = get_args(kind)
        found = _value(kind, value, where)
        for mark in marks:
            if isinstance(mark, Range) and not (mark.low <= found <= mark.high):
                raise BadInput(f"{where}: expected {mark}, found {value!r}")
        return found
    if is_dataclass(kind):
        return build(kind, value, where)
    if get_origin(kind) in (Union, UnionType):  # of one kind and None
        return None if value is None else _value(next(k for k in get_args(kind) if k is not NoneType), value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise BadInput(f"{where}: expected a list, found {value!r}")
        return tuple(_value(get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise BadInput(f"{where}: expected a finite number, found {str(value)[:20]}...") from None
    if kind is float and isinstance(value, float) and not math.isfinite(value):
        raise BadInput(f"{where}: expected a finite number, found {value!r}")
    if isinstance(kind, type) and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise BadInput(f"{where}: expected {kind.__name__}, found {value!r}")
    return value
