"""Load deterministic policies from small files: `load(environment, which)`; the project's own experts: `experts()`.

A policy is the actor of TD3: fully connected layers with ReLU between them and bound * tanh at the end. Its file is a
.npz of float16 arrays W0 [out, in], b0 [out], W1, ... and of bound [a], float32.

`lib/data/experts/ENVIRONMENT/` holds expert.npz, medium.npz, curve.csv (step, return: the evaluations in training) and
card.yaml; `python -m lib.papers.offline_rl.experts` makes them.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import yaml
from torch.nn import functional as F

from lib.base import BadInput, atomic, build

EXPERTS = Path(__file__).with_name("experts")
WHICH = ("expert", "medium")
FILES = ("expert.npz", "medium.npz", "card.yaml", "curve.csv")


@dataclass(frozen=True, eq=False)
class MLPPolicy:
    """Hold layers of weights [out, in] and biases [out], and the largest action [a], all float32."""

    weights: Sequence[np.ndarray]
    biases: Sequence[np.ndarray]
    bound: np.ndarray

    def __post_init__(self):
        if not len(self.weights):
            raise BadInput("a policy has one layer or more, this one has none")
        if wrong := [array.shape for array in self.weights if array.ndim != 2]:
            raise BadInput(f"a policy's weights are matrices, one of these has the shape {wrong[0]}")
        outputs = [len(weight) for weight in self.weights]
        shapes = [array.shape for array in (*self.weights, *self.biases, self.bound)]
        fit = [(out, size) for out, size in zip(outputs, [self.weights[0].shape[-1], *outputs], strict=False)]
        if shapes != [*fit, *[(out,) for out in outputs], (outputs[-1],)]:
            raise BadInput(f"a policy's layers must fit each other and its bound, these have the shapes {shapes}")
        if not all(np.isfinite(array).all() for array in (*self.weights, *self.biases, self.bound)):
            raise BadInput("a policy's numbers must be finite (float16 ends at 65,504)")
        if not (self.bound > 0).all():
            raise BadInput(f"a policy's largest actions must be above 0, these are {self.bound.tolist()}")

    def __call__(self, observations: np.ndarray) -> np.ndarray:
        """Observations [n, o] -> actions [n, a], float32."""
        values = np.asarray(observations, np.float32)
        if values.ndim != 2 or values.shape[1] != self.weights[0].shape[1]:
            wanted = f"[n, {self.weights[0].shape[1]}]"
            raise BadInput(f"the policy takes observations of shape {wanted}, not {list(values.shape)}")
        # torch's products, not NumPy's: a sweep can ask them for the same bits on every processor, and a robot's
        # episode makes much of the last bit
        flow = torch.from_numpy(values)
        layers = [(torch.from_numpy(w), torch.from_numpy(b)) for w, b in zip(self.weights, self.biases, strict=True)]
        for weight, bias in layers[:-1]:
            flow = F.relu(F.linear(flow, weight, bias))
        return self.bound * torch.tanh(F.linear(flow, *layers[-1])).numpy()


def save(policy: MLPPolicy, path: Path) -> None:
    """Write a policy, weights and biases as float16; atomically, and with the same bytes for the same numbers.

    Raises:
        BadInput: rounded so it is no policy, because a number is too large or a bound too small.
    """
    with np.errstate(over="ignore"):  # what becomes infinite is refused in the next line but one
        weights, biases = ([array.astype(np.float16) for array in part] for part in (policy.weights, policy.biases))
        rounded = MLPPolicy(weights, biases, policy.bound.astype(np.float32))
    arrays = {"bound": rounded.bound}
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        arrays |= {f"W{i}": weight, f"b{i}": bias}
    with atomic(path) as file:
        np.savez_compressed(file, **arrays)


def read(path: Path) -> MLPPolicy:
    """Read the policy in a file that `save` wrote.

    BadInput: no such file, not such a file, or layers that do not fit each other.
    """
    if not path.is_file():
        raise BadInput(f"no policy at {path}")
    try:
        with zipfile.ZipFile(path) as file:  # which compares the checksum of each array
            read = {name.removesuffix(".npy"): np.load(io.BytesIO(file.read(name))) for name in file.namelist()}
        arrays = {name: array.astype(np.float32, casting="same_kind") for name, array in read.items()}
    except (ValueError, TypeError, OSError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{path} is not a policy's .npz file: {error}") from error
    layers = (len(arrays) - 1) // 2
    names = {"bound", *(f"{kind}{i}" for kind in "Wb" for i in range(layers))}
    if not layers or set(arrays) != names:
        raise BadInput(f"{path} holds {', '.join(arrays)}; a policy's file holds W0, b0, W1, b1, ... and bound")
    try:
        return MLPPolicy(*[[arrays[f"{kind}{i}"] for i in range(layers)] for kind in "Wb"], arrays["bound"])
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from error


def load(env: str, which: str = "expert", folder: Path = EXPERTS) -> MLPPolicy:
    """Load a policy of the project's own.

    Args:
        env: the environment with or without version, such as "Hopper-v4" or "hopper".
        which: "expert" or "medium".

    Raises:
        BadInput: another kind, an environment without policies, or as `read`.
    """
    if which not in WHICH:
        raise BadInput(f"no {which!r} policy; there are: {', '.join(WHICH)}")
    trained = {name.split("-")[0].lower(): name for name in experts(folder)}
    kind = env.split("-")[0].lower()
    if kind not in trained:
        raise BadInput(f"no policy of the project's own for {env!r}; there are for: {', '.join(trained) or 'none yet'}")
    return read(folder / trained[kind] / f"{which}.npz")


@dataclass(frozen=True)
class Snapshot:
    """Describe one policy of a training session: its step, and its returns over the card's fresh episodes."""

    step: int
    mean_return: float
    sd: float
    normalised_return: float


@dataclass(frozen=True)
class Card:
    """Hold what is known of the two policies of an environment.

    Attributes:
        environment: Gymnasium's id.
        steps: how long the session was when the card was written.
        seed: of the session.
        episodes: how many fresh episodes, seen by no selection, are behind each snapshot's numbers.
        target: the mean return that was hoped for.
        expert: the best snapshot.
        medium: the first snapshot from a third to a half of the target, on D4RL's normalised scale.
        versions: of the packages, by name.
        settings: of TD3.
    """

    environment: str
    steps: int
    seed: int
    episodes: int
    target: float
    expert: Snapshot
    medium: Snapshot
    versions: Mapping
    settings: Mapping


def read_card(path: Path) -> Card:
    """Read the card in a card.yaml. BadInput: no such file, no YAML, settings missing, unknown or of another kind."""
    if not path.is_file():
        raise BadInput(f"no card at {path}")
    try:
        content = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, ValueError) as error:  # UnicodeDecodeError is such
        raise BadInput(f"{path} is not YAML: {str(error).splitlines()[0]}") from error
    return build(Card, content, str(path))


def experts(folder: Path = EXPERTS) -> dict[str, Card]:
    """Read the cards of all environments that there are policies for, {Gymnasium's id: Card}.

    BadInput: a folder that lacks one of its files, or whose card is of another environment.
    """
    cards = {}
    for place in sorted(path for path in folder.glob("*") if path.is_dir()):
        absent = [name for name in FILES if not (place / name).is_file()]
        if absent:
            raise BadInput(f"{place} lacks {absent[0]}; python -m lib.papers.offline_rl.experts {place.name} --keep")
        card = read_card(place / "card.yaml")
        if card.environment != place.name:
            raise BadInput(f"{place / 'card.yaml'} is of {card.environment}, not of {place.name}")
        cards[card.environment] = card
    return cards
