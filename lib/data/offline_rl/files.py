"""Read offline data of others: D4RL's files, and Minari's where that package is installed."""

from __future__ import annotations

import importlib
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np

from lib.base import BadInput
from lib.data import sources
from lib.data.offline_rl.bundle import Bundle
from lib.data.offline_rl.names import Environment, environment

DEFLATED = 1100  # no more bytes than so many come out of one: 1,032 by HDF5's usual compression
KEYS = ("observations", "actions", "rewards", "terminals", "timeouts")


def d4rl(name: str, path: Path | None = None, places: sources.Places = sources.PROJECT) -> Bundle:
    """Read data of D4RL (Fu et al. 2020), as its own `qlearning_dataset` makes transitions of them.

    A file holds what was seen step after step, so the next observation of a step is the observation of the next row.
    At a timeout that row belongs to another episode: such steps are dropped, and so is the last of the file. The step
    before a dropped timeout becomes the timeout. At a terminal step the next observation is another episode's too,
    where nothing may be read from it.

    Args:
        name: such as "hopper-expert-v2", which says the environment and, without a path, the file.
        path: an HDF5 file of one's own in that format, of which no checksum is known: its numbers and shapes alone are
            checked. None: the official one, from data/, from COMPANION_DATA or downloaded (150 to 240 MB).

    Raises:
        BadInput: no such data, an absent file, one that is no HDF5 file, lacks a key, or holds other shapes or NaNs.
    """
    known = environment(name)
    if path is not None:
        return transitions(read_hdf5(path, str(path)), known.name, str(path))
    files, _ = prepare(name, places)
    return transitions({key: sources.open_array(file) for key, file in files.items()}, known.name, f"d4rl/{name}")


def prepare(name: str, places: sources.Places = sources.PROJECT) -> tuple[dict[str, Path], str]:
    """Prepare the checked arrays of D4RL's data, {array: file}, and where they came from; see `sources.prepare`.

    Raises:
        BadInput: as `sources.prepare` and `read_hdf5`.
    """
    return sources.prepare(name, read_publisher, places)


def read_publisher(files: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """Read the arrays of the one file of D4RL's that a set consists of."""
    [(name, content)] = files.items()
    return read_hdf5(io.BytesIO(content), name)


def read_hdf5(file: Path | BinaryIO, name: str) -> dict[str, np.ndarray]:
    """Read the arrays KEYS of a D4RL file, with as many rows each; `name` is what errors call it.

    Raises:
        BadInput: no whole HDF5 file, an absent array, other shapes or kinds, numbers that the file does not hold
            itself, or an end that is neither 0 nor 1.
    """
    if isinstance(file, Path) and file.is_dir():
        raise BadInput(f"{name} is a folder; name a D4RL file in HDF5 format")
    try:
        with h5py.File(file, "r") as opened:
            own = [key for key in KEYS if isinstance(opened.get(key, getlink=True), h5py.HardLink)]  # in no other file
            sets = {key: opened[key] for key in own if isinstance(opened[key], h5py.Dataset)}
            if absent := [key for key in KEYS if key not in sets]:
                raise BadInput(f"{name} lacks {', '.join(absent)}; a file of D4RL's version 2 has {', '.join(KEYS)}")
            for key, one in sets.items():
                _refuse_empty_promises(name, key, one)
            shapes = {key: one.shape for key, one in sets.items()}
            axes = [len(shape) for shape in shapes.values()]
            if axes != [2, 2, 1, 1, 1] or len({shape[0] for shape in shapes.values()}) > 1 or shapes["rewards"][0] < 2:
                found = ", ".join(f"{key} {list(shape)}" for key, shape in shapes.items())
                raise BadInput(f"{name} has {found}; expected [n, numbers] twice, then [n], with one n of 2 or more")
            arrays = {key: np.asarray(one) for key, one in sets.items()}
    except FileNotFoundError as error:
        raise BadInput(f"{name} does not exist; name a D4RL file in HDF5 format") from error
    except (OSError, RuntimeError, KeyError) as error:  # RuntimeError: links that go in a circle; KeyError: damaged
        raise BadInput(f"{name} is no whole HDF5 file ({' '.join(str(error).split())})") from error
    for key in ("terminals", "timeouts"):  # or a NaN would count as true
        if (other := ~np.isin(arrays[key], (0, 1))).any():
            place = int(np.flatnonzero(other)[0])
            raise BadInput(f"{name}: {key} of transition {place} is {arrays[key][place]}; expected 0 or 1")
    return arrays


def _refuse_empty_promises(name: str, key: str, one: h5py.Dataset) -> None:
    """Refuse a data set of an HDF5 file before it is read, by what the file says of it.

    Raises:
        BadInput: no numbers, numbers that lie in another file, or more of them than the file can hold.
    """
    if one.shape is None or one.dtype.kind not in "biuf":
        raise BadInput(f"{name}: {key} is {'empty' if one.shape is None else one.dtype}; expected numbers")
    if one.external or one.is_virtual:
        raise BadInput(f"{name}: {key} lies in another file; expected a file that holds all of its numbers")
    if one.nbytes > DEFLATED * (held := one.id.get_storage_size()):
        raise BadInput(f"{name}: {key} announces {list(one.shape)} numbers and holds {held:,} bytes")


def transitions(arrays: Mapping[str, np.ndarray], env: str, source: str) -> Bundle:
    """Make what D4RL's `qlearning_dataset` makes of the arrays KEYS, and where episodes were cut."""
    observations = np.asarray(arrays["observations"], np.float32)
    terminals, timeouts = (np.asarray(arrays[key]).astype(bool) for key in ("terminals", "timeouts"))
    rows = np.flatnonzero(~timeouts[:-1])
    return Bundle(
        source=source,
        env=env,
        observations=observations[rows],
        actions=np.asarray(arrays["actions"], np.float32)[rows],
        rewards=np.asarray(arrays["rewards"], np.float32)[rows],
        next_observations=observations[rows + 1],
        terminals=terminals[rows],
        timeouts=(timeouts[rows + 1] & ~terminals[rows]),
    )


def minari(name: str) -> Bundle:
    """Read data of Minari, such as "mujoco/hopper/expert-v0"; downloaded by that package, which is not part of the
    lock.

    No checksum is known of them: they are used as they come, with every number and shape checked. They are of
    Gymnasium's -v5 environments (see `names`), so their returns and D4RL's references do not quite belong together.

    Raises:
        BadInput: a name that is not of this form, or no package minari (or not all that it needs to download).
    """
    found = re.fullmatch(r"mujoco/(\w+)/[\w-]+-v\d+", name)
    if not found:
        raise BadInput(f"Minari data {name!r}: expected a name such as mujoco/hopper/expert-v0")
    known = environment(found[1])
    try:
        episodes = importlib.import_module("minari").load_dataset(name, download=True)
    except ImportError as error:
        raise BadInput(f"{name} needs the package minari ({error}): pip install 'minari[hdf5,hf]'") from error
    return from_episodes(episodes, known.name, f"minari/{name}")


def from_episodes(episodes: Iterable[Any], env: str, source: str) -> Bundle:
    """Join episodes as Minari has them: observations [t + 1, o], actions [t, a], rewards, terminations, truncations
    [t].

    The last observation of an episode is there, so its last transition stays, cut or not.

    Raises:
        BadInput: no episode, or one with other shapes, without numbers, or that ends anywhere but at its last step.
    """
    found = [_checked(episode, environment(env), f"{source}, episode {i}") for i, episode in enumerate(episodes)]
    if not found:
        raise BadInput(f"{source} holds no episode")

    def joined(part: str, kind: type, rows: slice = slice(None)) -> np.ndarray:
        return np.concatenate([episode[part][rows] for episode in found]).astype(kind)

    return Bundle(
        source=source,
        env=env,
        observations=joined("observations", np.float32, slice(None, -1)),
        actions=joined("actions", np.float32),
        rewards=joined("rewards", np.float32),
        next_observations=joined("observations", np.float32, slice(1, None)),
        terminals=joined("terminations", bool),
        timeouts=joined("truncations", bool),
    )


def _checked(episode: Any, known: Environment, name: str) -> dict[str, np.ndarray]:
    """The arrays of one episode by their names."""
    parts = ("observations", "actions", "rewards", "terminations", "truncations")
    arrays = {part: np.asarray(getattr(episode, part, None)) for part in parts}
    steps = arrays["rewards"].size
    shapes = [(steps + 1, known.observations), (steps, known.actions), (steps,), (steps,), (steps,)]
    for (part, array), shape in zip(arrays.items(), shapes, strict=True):
        if array.dtype.kind not in "biuf" or array.shape != shape:
            found = f"{list(array.shape)} of {array.dtype}"
            raise BadInput(f"{name}: {part} is {found}; {known.name} and {steps} rewards need numbers {list(shape)}")
    ends = np.stack([arrays["terminations"], arrays["truncations"]])
    if not np.isin(ends, (0, 1)).all() or ends[:, :-1].any() or (steps and not ends[:, -1].any()):
        raise BadInput(f"{name}: terminations and truncations must be 0 or 1, 1 at its last step and nowhere else")
    return arrays
