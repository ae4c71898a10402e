"""Make canvases with digits on them, to be found and named: `load(name, side, ...)`.

Digits of a data set of `lib.data.vision` are drawn at random, made larger or smaller and laid on a black canvas,
between fragments of other digits. Canvases to train on have only its training digits, those to test on only its test
digits. They are made anew each time, from a seed, and need no files of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from PIL import Image

from lib.base import BadInput, refuse_uncounted
from lib.data import sources, vision

SEEDS = {"train": 0, "test": 1}
INK = 64  # a pixel brighter than this belongs to the digit: boxes and outlines are of these
OVERLAP = 0.3  # the most that the boxes of two digits may share, as intersection over union
TRIES = 20  # places that are tried for a digit before it is left out
FRAGMENTS = 6  # pieces of other digits that lie on a canvas and are not to be found


@dataclass(frozen=True, eq=False)
class Canvases:
    """Hold canvases and what is on them.

    Attributes:
        images: uint8 [N, 1, side, side].
        boxes: of each canvas float32 [n, 4], left, top, right and bottom of each digit's ink, in pixels.
        labels: of each canvas int64 [n].
        outlines: of each canvas bool [n, side, side], the ink of each digit.
    """

    images: np.ndarray
    boxes: tuple[np.ndarray, ...]
    labels: tuple[np.ndarray, ...]
    outlines: tuple[np.ndarray, ...]

    def __len__(self) -> int:
        """Count the canvases."""
        return len(self.images)


@dataclass(frozen=True)
class CanvasLayout:
    """Say what canvases look like.

    Attributes:
        side: pixels of a canvas.
        fewest, most: digits that are tried on one; a digit that finds no place is left out, so there may be fewer.
        smallest, largest: height of a digit's image on the canvas, in pixels.
    """

    side: int
    smallest: int
    largest: int
    fewest: int = 2
    most: int = 8

    def __post_init__(self):
        if not (4 <= self.smallest <= self.largest <= self.side and 1 <= self.fewest <= self.most):
            given = f"sizes {self.smallest} to {self.largest} on {self.side}, {self.fewest} to {self.most} digits"
            raise BadInput(f"canvases: {given}: expected 4 <= smallest <= largest <= side and 1 <= fewest <= most")


def load(name: str, part: str, count: int, layout: CanvasLayout, places: sources.Places = sources.PROJECT) -> Canvases:
    """Make canvases of the training or the test digits of a data set.

    Args:
        name: one of grey digits, "mnist" or "digits".
        part: "train" or "test".
        count: how many canvases; more of them begin with the same ones.

    Raises:
        BadInput: another part, and as `make`.
    """
    if part not in SEEDS:
        raise BadInput(f"part {part!r}: known are {', '.join(SEEDS)}")
    data = vision.load(name, places)
    return make(getattr(data, f"{part}_inputs"), getattr(data, f"{part}_labels"), count, layout, SEEDS[part])


def make(images: np.ndarray, labels: np.ndarray, count: int, layout: CanvasLayout, seed: int) -> Canvases:
    """Lay digits on canvases.

    Args:
        images: uint8 [N, 1, h, w], white on black.
        labels: int64 [N].

    Raises:
        BadInput: images of colours, no images or one that is all black, no canvas asked for, or a seed below 0.
    """
    refuse_uncounted(count=count)
    refuse_uncounted(0, seed=seed)
    if images.ndim != 4 or images.shape[1] != 1:
        raise BadInput(f"canvases are made of grey images [N, 1, h, w], these have shape {list(images.shape)}")
    if not len(images) or (black := ~images.any((1, 2, 3))).any():
        none = f"image {int(black.argmax())} is all black" if len(images) else "there are none"
        raise BadInput(f"canvases are made of images with something white on them; {none}")
    pages = [_page(images, labels, layout, np.random.default_rng((seed, number))) for number in range(count)]
    canvases, boxes, names, outlines = zip(*pages, strict=True)
    return Canvases(np.stack(canvases)[:, None], boxes, names, outlines)


def _page(
    images: np.ndarray, labels: np.ndarray, layout: CanvasLayout, draw: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """One canvas: its pixels [side, side], boxes, labels and outlines."""
    canvas = np.zeros((layout.side, layout.side), np.uint8)
    boxes: list[np.ndarray] = []
    names, outlines = [], []
    for _ in range(draw.integers(layout.fewest, layout.most + 1)):
        chosen = draw.integers(len(images))
        digit = resized(images[chosen, 0], _size(layout, draw))
        for _ in range(TRIES):
            top, left = draw.integers(layout.side - len(digit) + 1, size=2)
            laid = np.zeros_like(canvas)
            laid[top : top + len(digit), left : left + len(digit)] = digit
            box = box_of(laid > INK)
            if not boxes or overlaps(box, np.stack(boxes)).max() <= OVERLAP:
                canvas = np.maximum(canvas, laid)
                boxes.append(box)
                names.append(labels[chosen])
                outlines.append(laid > INK)
                break
    for _ in range(FRAGMENTS):
        digit = resized(images[draw.integers(len(images)), 0], _size(layout, draw))
        part = len(digit) // 3
        (row, column), (top, left) = draw.integers(2 * part, size=2), draw.integers(layout.side - part + 1, size=2)
        under = canvas[top : top + part, left : left + part]
        np.maximum(under, digit[row : row + part, column : column + part], out=under)
    return canvas, np.stack(boxes), np.array(names, np.int64), np.stack(outlines)


def _size(layout: CanvasLayout, draw: np.random.Generator) -> int:
    """A size between the smallest and the largest; every doubling is as likely."""
    return round(np.exp(draw.uniform(np.log(layout.smallest), np.log(layout.largest))))


def resized(image: np.ndarray, side: int) -> np.ndarray:
    """Make an image uint8 [h, w] larger or smaller, uint8 [side, side]; its brightest pixel becomes white."""
    found = np.asarray(Image.fromarray(np.ascontiguousarray(image)).resize((side, side), Image.Resampling.BILINEAR))
    return np.rint(found * (255 / max(1, found.max()))).astype(np.uint8)


def box_of(outline: np.ndarray) -> np.ndarray:
    """Find the smallest box around the true pixels of [h, w], float32: left, top, right, bottom."""
    rows, columns = (np.flatnonzero(outline.any(axis)) for axis in (1, 0))
    return np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float32)


def overlaps(box: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Compute intersection over union of one box [4] with others [n, 4], [n]."""
    sides = np.clip(np.minimum(box[2:], boxes[:, 2:]) - np.maximum(box[:2], boxes[:, :2]), 0, None)
    shared = sides.prod(1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1) + (box[2:] - box[:2]).prod()
    return shared / (areas - shared)
