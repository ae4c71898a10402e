"""Build a network that finds and names digits: a backbone, a pyramid of features, and one head for all scales.

One stage and no anchors: at each place of each scale the head says which class is there and how far the sides of its
box are (Tian et al. 2019, FCOS), over a pyramid as in RetinaNet (Lin et al. 2017), which paper 2 prunes in table 4.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.models.resnet import BasicBlock

RARE = 0.01  # the share of places that a new head takes for a digit (RetinaNet, section 4.1)
WIDEST = 5.0  # of the exponent of a distance, so that a new head does not overflow


class Backbone(nn.Module):
    """Stack a 3 x 3 stem, then stages of one residual block each; every stage halves the side.

    Args:
        widths: channels of the stem and of each stage.
        stride: of the stem.
    """

    def __init__(self, widths: Sequence[int], stride: int):
        super().__init__()
        conv = nn.Conv2d(1, widths[0], 3, stride, padding=1, bias=False)
        self.stem = nn.Sequential(conv, nn.BatchNorm2d(widths[0]), nn.ReLU())
        self.stages = nn.ModuleList(BasicBlock(one, other, stride=2) for one, other in pairwise(widths))
        self.widths = tuple(widths[1:])
        self.strides = tuple(stride * 2**stage for stage in range(1, len(widths)))

    def forward(self, images: Tensor) -> list[Tensor]:
        """Map images [N, 1, H, W] to maps of every stage, [N, width, H / stride, W / stride]."""
        maps = [self.stem(images)]
        for stage in self.stages:
            maps.append(stage(maps[-1]))
        return maps[1:]


class Classifier(nn.Module):
    """Join, for phase 1, a backbone, and one linear layer on the mean of its last map."""

    def __init__(self, backbone: Backbone, classes: int = 10):
        super().__init__()
        self.backbone = backbone
        self.fc = nn.Linear(backbone.widths[-1], classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, 1, H, W] to logits [N, classes]."""
        return self.fc(self.backbone(images)[-1].mean((2, 3)))


class Detector(nn.Module):
    """Join, for phase 2, a copy of a backbone, a pyramid and a head, which are new.

    Args:
        channels: of the pyramid and of the head.
        outline: side of the outline that is drawn inside each box, in cells; 0: none is drawn.
    """

    def __init__(self, backbone: Backbone, channels: int = 32, classes: int = 10, outline: int = 0):
        super().__init__()
        self.backbone = copy.deepcopy(backbone)
        self.laterals = nn.ModuleList(nn.Conv2d(width, channels, 1) for width in backbone.widths)
        self.smooth = nn.ModuleList(nn.Conv2d(channels, channels, 3, padding=1) for _ in backbone.widths)
        self.of_class = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())
        self.of_box = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())
        self.classes = nn.Conv2d(channels, classes, 3, padding=1)
        self.sides = nn.Conv2d(channels, 4, 3, padding=1)
        nn.init.constant_(self.classes.bias, -math.log((1 - RARE) / RARE))
        self.outline = outline
        if outline:
            self.of_outline = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())
            self.cells = nn.Conv2d(channels, outline**2, 3, padding=1)

    @property
    def strides(self) -> tuple[int, ...]:
        """Return pixels between two places, of each scale."""
        return self.backbone.strides

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """Say what is at each place.

        Returns:
            Logits [N, P, classes], and distances [N, P, 4] in pixels from the place to the left, upper, right and lower
            side of the box; the places are those of `places`. If outlines are drawn, then logits of ink, too, [N, P,
            outline * outline], row by row from the box's upper left cell.
        """
        maps = [lateral(found) for lateral, found in zip(self.laterals, self.backbone(images), strict=True)]
        for scale in range(len(maps) - 1, 0, -1):  # from coarse to fine
            maps[scale - 1] = maps[scale - 1] + F.interpolate(maps[scale], size=maps[scale - 1].shape[2:])
        logits, distances, inks = [], [], []
        for smooth, found, stride in zip(self.smooth, maps, self.strides, strict=True):
            found = F.relu(smooth(found))
            logits.append(self.classes(self.of_class(found)))
            distances.append(stride * self.sides(self.of_box(found)).clamp(max=WIDEST).exp())
            if self.outline:
                inks.append(self.cells(self.of_outline(found)))
        answers = (logits, distances, inks) if self.outline else (logits, distances)
        return tuple(torch.cat([one.flatten(2).mT for one in parts], 1) for parts in answers)


def places(strides: Sequence[int], side: int) -> tuple[Tensor, Tensor]:
    """List the places that a detector looks at on a square image, from the finest scale to the coarsest.

    Returns:
        Their centres [P, 2], x and y in pixels, and the stride of each one's scale [P].
    """
    centres, of_scale = [], []
    for stride in strides:
        along = (torch.arange(-(-side // stride)) + 0.5) * stride
        y, x = torch.meshgrid(along, along, indexing="ij")
        centres.append(torch.stack([x.flatten(), y.flatten()], 1))
        of_scale.append(torch.full((len(along) ** 2,), float(stride)))
    return torch.cat(centres), torch.cat(of_scale)


def backbone() -> Backbone:
    """Build a backbone for MNIST's digits and canvases of 128 x 128: scales of 4, 8 and 16 pixels."""
    return Backbone((16, 32, 64, 128), stride=2)


def small_backbone() -> Backbone:
    """Build a backbone for 8 x 8 digits and canvases of 64 x 64: scales of 4 and 8 pixels."""
    return Backbone((16, 32, 64), stride=2)
