"""Build the self-teacher: paths down and up again through a network's own features (paper 3, Table 2, equations 1-5).

    F4 -> L4 ------------------> T4
               \\               /
    F3 -> L3 -> P3 ----------> T3          down: each P joins its own L with the P above it
               \\               /           up: each T joins its own L and P with the T below it
    F2 -> L2 -> P2 ----------> T2
               \\               /
    F1 -> L1 ----------------> T1

Table 2 has no P1 and no P4: L4 itself is what P3 hears from above, and the first T, which has nothing below it, hears
P2 from above. Every map has the same number of channels, and the size of the student's at its stage.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.models.speaker_resnet import EMBEDDING, SpeakerResNet, halved, statistics

READINGS = ("paper", "frskd")


def separable(channels_in: int, channels: int) -> nn.Sequential:
    """Build Conv2D-Conv2D-BN-ReLU of Table 2: depth-wise 3 x 3, point-wise convolution, batch norm, ReLU."""
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_in, 3, padding=1, groups=channels_in, bias=False),
        nn.Conv2d(channels_in, channels, 1, bias=False),
        nn.BatchNorm2d(channels),
        nn.ReLU(),
    )


def pointwise(channels_in: int, channels: int) -> nn.Sequential:
    """Build a 1 x 1 convolution, batch norm, ReLU."""
    return nn.Sequential(nn.Conv2d(channels_in, channels, 1, bias=False), nn.BatchNorm2d(channels), nn.ReLU())


def resize(hidden: Tensor, like: Tensor, up: str = "bilinear") -> Tensor:
    """Resize to the map a stage above or below: interpolate to grow, take the maximum of 2 x 2 to shrink.

    Odd numbers are rounded up as strides do: 75 frames become 38, and 38 become 75.
    """
    if hidden.shape[2:].numel() > like.shape[2:].numel():  # one band stays one band
        return F.max_pool2d(hidden, 2, ceil_mode=True)
    if hidden.shape[2:] == like.shape[2:]:
        return hidden
    return F.interpolate(hidden, like.shape[2:], mode=up, align_corners=False if up == "bilinear" else None)


class Fusion(nn.Module):
    """The weighted sum of maps is convolved (equations 2-5); the first map gives the size.

    Args:
        inputs: how many maps.
        reading: "paper": the weights are a softmax, resizing is bilinear, one separable convolution; "frskd": the
            weights are ReLUs over their sum, resizing takes the nearest, two convolutions.
    """

    def __init__(self, inputs: int, channels: int, reading: str):
        super().__init__()
        self.reading = reading
        self.weights = nn.Parameter(torch.zeros(inputs) if reading == "paper" else torch.ones(inputs))
        depth = 1 if reading == "paper" else 2
        self.convolution = nn.Sequential(*(separable(channels, channels) for _ in range(depth)))

    def importance(self) -> Tensor:
        """Return the weight of each map, [inputs]; as the paper reads they sum to 1, in FRSKD nearly, or to 0."""
        if self.reading == "paper":
            return self.weights.softmax(0)
        positive = self.weights.relu()
        return positive / (positive.sum() + 1e-6)

    def forward(self, *maps: Tensor) -> Tensor:
        """Fuse maps [N, C, h, w] of several sizes into one of the first's size."""
        up = "bilinear" if self.reading == "paper" else "nearest"
        resized = [resize(hidden, maps[0], up) for hidden in maps]
        return self.convolution(sum(weight * hidden for weight, hidden in zip(self.importance(), resized, strict=True)))


class BiFPN(nn.Module):
    """The maps of a network's stages are refined into as many, T1 to T4.

    Args:
        channels: of the stages.
        width: channels of every map here.
        reading: "paper", or "frskd" for what the code of the self-teacher's origin (Ji et al. 2021) does instead:
            1 x 1 laterals, and see `Fusion`. Its widths by stage and its second set of laterals are left out, because
            Table 2 excludes them.
    """

    def __init__(self, channels: Sequence[int], width: int = 256, reading: str = "paper"):
        super().__init__()
        if reading not in READINGS:
            raise BadInput(f"self-teacher: reading={reading!r}: known are {', '.join(READINGS)}")
        lateral = separable if reading == "paper" else pointwise
        last = len(channels) - 1
        self.lateral = nn.ModuleList(lateral(count, width) for count in channels)
        self.down = nn.ModuleList(Fusion(2, width, reading) for _ in range(1, last))
        self.up = nn.ModuleList(Fusion(2 if stage in (0, last) else 3, width, reading) for stage in range(last + 1))

    def forward(self, maps: Sequence[Tensor]) -> list[Tensor]:
        """Refine maps. [N, channels, bands, frames] each -> [N, width, bands, frames] each"""
        lateral = [layer(hidden) for layer, hidden in zip(self.lateral, maps, strict=True)]
        last = len(lateral) - 1
        path = {last: lateral[last]}
        for stage in range(last - 1, 0, -1):
            path[stage] = self.down[stage - 1](lateral[stage], path[stage + 1])
        refined = [self.up[0](lateral[0], path[1])]
        for stage in range(1, last):
            refined.append(self.up[stage](lateral[stage], path[stage], refined[-1]))
        return [*refined, self.up[last](lateral[last], refined[-1])]


class SelfTeacher(nn.Module):
    """A `BiFPN` gets a head like the student's: statistics of T4, a 256-d embedding (undefined in the paper)."""

    def __init__(self, channels: Sequence[int], width: int = 256, bands: int = 40, reading: str = "paper"):
        super().__init__()
        self.bifpn = BiFPN(channels, width, reading)
        self.fc = nn.Linear(2 * width * halved(bands, len(channels) - 1), EMBEDDING)

    def forward(self, maps: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Return the refined ones of the student's maps, and embeddings [N, 256]."""
        refined = self.bifpn(maps)
        return refined, self.fc(statistics(refined[-1]))


class SelfTeacherEmbedding(nn.Module):
    """A student keeps its self-teacher, and the embedding is the self-teacher's.

    It says how well the self-teacher does by itself; nobody would use it, because it is dropped after training.
    """

    def __init__(self, student: SpeakerResNet, teacher: SelfTeacher):
        super().__init__()
        self.student, self.teacher = student, teacher

    def forward(self, features: Tensor) -> Tensor:
        """Embed features. [N, frames, bands] -> [N, 256]"""
        return self.teacher(self.student.maps(features))[1]
