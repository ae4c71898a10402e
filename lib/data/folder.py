"""Read images kept as files in a folder a class, decoded when they are asked for: so ImageNet comes.

FOLDER/train/CLASS/*.JPEG, FOLDER/val/CLASS/*.JPEG
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from lib.base import BadInput

SUFFIXES = (".jpeg", ".jpg", ".png")
SIDE = 224  # of the square the network sees
SHORT = 256  # the shorter side an image is resized to before its middle is cut out


@dataclass(frozen=True)
class Images:
    """Let image files look like an array uint8 [N, 3, side, side]; pixels exist only while they are used."""

    files: tuple[Path, ...]
    side: int = SIDE

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Give the shape as an array has it: [N, 3, side, side]."""
        return (len(self.files), 3, self.side, self.side)

    def __len__(self) -> int:
        return len(self.files)

    def decode(self, chosen: Sequence[int], uniforms: np.ndarray | None = None) -> np.ndarray:
        """Decode the pixels of some images, uint8 [len(chosen), 3, side, side]; decoded by several threads.

        Args:
            uniforms: [len(chosen), 5] in [0, 1) for a random resized crop and mirror image (`random_box`); None: the
                middle of the image with its shorter side resized to 256 / 224 of the side.
        """
        rows = [None] * len(chosen) if uniforms is None else list(uniforms)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return np.stack(list(pool.map(lambda i, row: one(self.files[i], self.side, row), chosen, rows)))


def one(path: Path, side: int, uniforms: np.ndarray | None) -> np.ndarray:
    """Decode one image as uint8 [3, side, side].

    Raises:
        BadInput: a file that is no image or is cut off, by its name.
    """
    try:
        with Image.open(path) as opened:
            image = opened.convert("RGB")
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, ValueError, SyntaxError) as error:
        raise BadInput(f"{path} cannot be read as an image ({error}): fetch it again") from error
    mirrored = False
    if uniforms is None:
        box = middle_box(*image.size, SHORT / SIDE)
    else:
        box, mirrored = random_box(*image.size, uniforms), uniforms[4] < 0.5
    pixels = np.asarray(image.resize((side, side), Image.Resampling.BILINEAR, box=box))
    return np.ascontiguousarray((pixels[:, ::-1] if mirrored else pixels).transpose(2, 0, 1))


def middle_box(width: int, height: int, ratio: float) -> tuple[float, float, float, float]:
    """Find the middle square whose side is the shorter side divided by the ratio: left, top, right, bottom."""
    side = min(width, height) / ratio
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def random_box(width: int, height: int, uniforms: np.ndarray) -> tuple[float, float, float, float]:
    """Draw Inception's random crop: 8 to 100 % of the area, width to height 3:4 to 4:3, anywhere.

    A side that would be longer than the image ends with it: then the area is less than was drawn, and the ratio may be
    further from 1, as it is of an image that is long itself.

    Args:
        uniforms: area, ratio, horizontal and vertical place, each in [0, 1) (and one more that is not used here).
    """
    area = width * height * (0.08 + 0.92 * uniforms[0])
    ratio = math.exp(math.log(3 / 4) + uniforms[1] * (math.log(4 / 3) - math.log(3 / 4)))
    wide, high = min(width, math.sqrt(area * ratio)), min(height, math.sqrt(area / ratio))
    left, top = uniforms[2] * (width - wide), uniforms[3] * (height - high)
    return left, top, left + wide, top + high


def read_split(folder: Path) -> tuple[Images, np.ndarray, list[str]]:
    """Read a folder of class folders: its images, their labels int64 [N] (classes in the order of their names), the
    names.

    Raises:
        BadInput: no such folder, no class folders, or a class without images.
    """
    if not folder.is_dir():
        raise BadInput(f"{folder} does not exist; expected a folder of class folders with images")
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir())
    if not classes:
        raise BadInput(f"{folder} holds no class folders; expected {folder.name}/CLASS/IMAGE.JPEG")
    files: list[Path] = []
    labels: list[int] = []
    for label, name in enumerate(classes):
        mine = sorted(path for path in (folder / name).iterdir() if path.suffix.lower() in SUFFIXES)
        if not mine:
            raise BadInput(f"{folder / name} holds no image; known endings are {', '.join(SUFFIXES)}")
        files += mine
        labels += [label] * len(mine)
    return Images(tuple(files)), np.array(labels, dtype=np.int64), classes
