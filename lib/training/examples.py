"""Draw, augment and scale batches of examples on the device they are trained on."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lib.base import BadInput, refuse_uncounted
from lib.data.folder import Images
from lib.training.checkpoints import checksum

AUGMENTS = ("none", "crop_flip", "resized_crop_flip")
# Mean and standard deviation of ImageNet's channels, 0 to 255, that everyone uses.
IMAGENET = ((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))


class Arrays(Protocol):
    """Hold what a data set of `lib.data` holds, as far as it is learned from."""

    train_inputs: np.ndarray | Images
    train_labels: np.ndarray
    test_inputs: np.ndarray | Images
    test_labels: np.ndarray


@dataclass(frozen=True)
class Examples:
    """Hold inputs and labels, and how to scale the inputs.

    Attributes:
        train_inputs, test_inputs: [N, ...] as stored (images stay uint8, or files, until a batch is drawn).
        train_labels, test_labels: [N] int64.
        mean, std: of the training inputs, per channel (images) or feature; the batch becomes (x - mean) / std.
    """

    train_inputs: Tensor | Images
    train_labels: Tensor
    test_inputs: Tensor | Images
    test_labels: Tensor
    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, data: Arrays, device: str = "cpu") -> Examples:
        """Make them from a `lib.data` data set: train_inputs, train_labels, test_inputs, test_labels.

        Raises:
            BadInput: inputs without a label each, nothing to train on, labels that are no whole numbers from 0 on, test
                inputs of another shape, numbers that are not finite, a channel or feature that never varies.
        """
        for part in ("train", "test"):
            inputs, own = len(getattr(data, f"{part}_inputs")), len(getattr(data, f"{part}_labels"))
            if inputs != own:
                raise BadInput(f"{part}: {inputs} inputs and {own} labels: expected one label an input")
            labels = np.asarray(getattr(data, f"{part}_labels"))
            if labels.dtype.kind not in "iu" or labels.ndim != 1 or (labels < 0).any():
                raise BadInput(f"{part}_labels: expected one whole number from 0 on for each input")
        if not len(data.train_labels):
            raise BadInput("train: no inputs: expected one or more to learn from")

        def put(array: np.ndarray) -> Tensor:
            return torch.from_numpy(np.array(array)).to(device)  # np.array copies a read-only map

        labels = {f"{part}_labels": put(getattr(data, f"{part}_labels")).long() for part in ("train", "test")}
        if isinstance(data.train_inputs, Images):
            mean, std = (np.float32(values).reshape(1, 3, 1, 1) for values in IMAGENET)
            inputs = {"train_inputs": data.train_inputs, "test_inputs": data.test_inputs}
            return cls(**inputs, **labels, mean=put(mean), std=put(std))
        train, test = np.asarray(data.train_inputs), np.asarray(data.test_inputs)
        if train.shape[1:] != test.shape[1:]:
            raise BadInput(f"a test input has shape {test.shape[1:]}, one to train on has {train.shape[1:]}")
        axes = (0, *range(2, train.ndim))
        mean = train.mean(axes, dtype=np.float64, keepdims=True)
        if not np.isfinite(mean).all():
            raise BadInput("train_inputs hold numbers that are NaN or infinite")
        if not np.isfinite(test.sum(dtype=np.float64)):
            raise BadInput("test_inputs hold numbers that are NaN or infinite")
        std = train.std(axes, dtype=np.float64, keepdims=True)
        if (still := train.min(axes) == train.max(axes)).any():  # their std need not be 0: it is rounded
            raise BadInput(f"train_inputs: {still.sum()} of {still.size} channels never vary: leave them out")
        inputs = {"train_inputs": put(train), "test_inputs": put(test)}
        return cls(**inputs, **labels, mean=put(mean.astype(np.float32)), std=put(std.astype(np.float32)))

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of one input, without the batch axis."""
        return tuple(self.train_inputs.shape[1:])

    @property
    def images(self) -> bool:
        """Say whether inputs are images [channels, height, width]."""
        return len(self.shape) == 3

    def checksums(self) -> list[int]:
        """Tell these inputs and labels from others of the same shape, for a kept session: one number for each array.

        Of image files it is how many there are, because to read them takes longer than an epoch.
        """
        return [len(value) if isinstance(value, Images) else checksum(value) for value in vars(self).values()]

    def check(self, augment: str) -> None:
        """Refuse an augmentation that these inputs do not have.

        Raises:
            BadInput: they do not have it.
        """
        fits = {"none": True, "crop_flip": self.images, "resized_crop_flip": isinstance(self.train_inputs, Images)}
        if not fits[augment]:
            kind = "image files" if augment == "resized_crop_flip" else "images [N, C, H, W]"
            raise BadInput(f"training: augment={augment!r} is for {kind}, each input here has shape {self.shape}")

    def scaled(self, inputs: Tensor) -> Tensor:
        """Compute what the network sees of these inputs; images in channels-last layout, in which convolutions run
        fastest.
        """
        scaled = (inputs.float() - self.mean) / self.std
        return scaled.to(memory_format=torch.channels_last) if self.images else scaled

    def train_batches(
        self, batches: tuple[Tensor, ...], augment: str, draw: torch.Generator
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (inputs, labels) for each batch of indices, augmented and scaled."""
        if isinstance(self.train_inputs, Images):
            yield from self._decoded(self.train_inputs, self.train_labels, batches, augment, draw)
            return
        for chosen in batches:
            inputs = self.scaled(self.train_inputs[chosen])
            yield crop_flip(inputs, draw) if augment == "crop_flip" else inputs, self.train_labels[chosen]

    def sample(self, count: int = 1024, batch: int = 256, seed: int = 0) -> Iterator[Tensor]:
        """Draw batches of training inputs by the seed, such as to calibrate on: not augmented, scaled, each input once;
        all when there are fewer.

        Raises:
            BadInput: a count or a batch below 1, or a seed below 0.
        """
        refuse_uncounted(count=count, batch=batch)
        refuse_uncounted(0, seed=seed)
        draw = torch.Generator().manual_seed(seed)
        chosen = torch.randperm(len(self.train_labels), generator=draw)[:count].to(self.train_labels.device)
        return (scaled for scaled, _ in self.train_batches(chosen.split(batch), "none", draw))

    def test_batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (inputs, labels) of all test examples in their order, scaled."""
        if isinstance(self.test_inputs, Images):
            batches = torch.arange(len(self.test_inputs)).split(size)
            yield from self._decoded(self.test_inputs, self.test_labels, batches, "none", None)
            return
        for inputs, labels in zip(self.test_inputs.split(size), self.test_labels.split(size), strict=True):
            yield self.scaled(inputs), labels

    def _decoded(
        self,
        images: Images,
        labels: Tensor,
        batches: tuple[Tensor, ...],
        augment: str,
        draw: torch.Generator | None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches from files; the next one is decoded while this one is computed with."""

        def decode(chosen: Tensor) -> tuple[Tensor, Tensor]:
            random = augment == "resized_crop_flip"
            uniforms = torch.rand(len(chosen), 5, generator=draw).numpy() if random else None
            pixels = torch.from_numpy(images.decode(chosen.tolist(), uniforms)).to(self.mean.device)
            scaled = self.scaled(pixels)
            return crop_flip(scaled, draw) if augment == "crop_flip" else scaled, labels[chosen.to(labels.device)]

        with ThreadPoolExecutor(1) as ahead:  # one thread: draws are made in the order of the batches
            coming = ahead.submit(decode, batches[0])
            for following in (*batches[1:], None):
                ready = coming.result()
                if following is not None:
                    coming = ahead.submit(decode, following)
                yield ready


def in_batches(order: Tensor, size: int) -> tuple[Tensor, ...]:
    """Split the places of an epoch's examples; a single one that is left joins the last batch: of one there is no batch
    norm.
    """
    batches = order.split(size)
    if 1 == len(batches[-1]) < size and len(batches) > 1:
        return (*batches[:-2], torch.cat(batches[-2:]))
    return batches


def crop_flip(images: Tensor, draw: torch.Generator, pad: int = 4) -> Tensor:
    """Shift each image by up to `pad` pixels (zeros come in) and mirror half of them. [N, C, H, W] -> the same."""
    count, _, height, width = images.shape
    down, right = torch.randint(0, 2 * pad + 1, (2, count, 1), generator=draw).to(images.device)
    mirror = (torch.rand(count, 1, generator=draw) < 0.5).to(images.device)
    rows = down + torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device).expand(count, -1)
    columns = right + torch.where(mirror, width - 1 - columns, columns)
    padded = F.pad(images, (pad, pad, pad, pad))
    which = torch.arange(count, device=images.device)
    return padded[which[:, None, None], :, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)
