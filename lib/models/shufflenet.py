"""Build networks that split and shuffle channels (ShuffleNet v2: Ma et al. 2018)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lib.models.mobilenet import convolution


def branch(channels_in: int, channels: int, stride: int) -> nn.Sequential:
    """Build 1 x 1, 3 x 3 depth-wise and 1 x 1 convolution with batch norm; ReLU after both of 1 x 1."""
    return nn.Sequential(
        *convolution(channels_in, channels, 1),
        nn.ReLU(),
        *convolution(channels, channels, 3, stride, groups=channels),
        *convolution(channels, channels, 1),
        nn.ReLU(),
    )


class ShuffleUnit(nn.Module):
    """Half of the channels pass, half go through a branch; then the two halves are dealt alternately."""

    def __init__(self, channels: int):
        super().__init__()
        self.branch = branch(channels // 2, channels // 2, stride=1)
        self.shuffle = nn.ChannelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, h, w] to the same shape."""
        passed, worked = x.chunk(2, 1)
        return self.shuffle(torch.cat([passed, self.branch(worked)], 1))


class DownUnit(nn.Module):
    """Halve the side: all channels go through two branches, the first without its leading 1 x 1 convolution."""

    def __init__(self, channels_in: int, channels_out: int):
        super().__init__()
        half = channels_out // 2
        self.first = nn.Sequential(
            *convolution(channels_in, channels_in, 3, 2, groups=channels_in),
            *convolution(channels_in, half, 1),
            nn.ReLU(),
        )
        self.second = branch(channels_in, half, stride=2)
        self.shuffle = nn.ChannelShuffle(2)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, h, w] to [N, C', h / 2, w / 2]."""
        return self.shuffle(torch.cat([self.first(x), self.second(x)], 1))


class ShuffleNetV2(nn.Module):
    """Stack a stem, stages that each halve the side and then keep it, a last 1 x 1 convolution, and a Linear layer.

    Args:
        image_channels: 1 or 3.
        stem: channels of the first convolution.
        stages: (channels, units after the first) of each stage.
        last: channels before the Linear layer.
        classes: outputs.
    """

    def __init__(self, image_channels: int, stem: int, stages: Sequence[tuple[int, int]], last: int, classes: int):
        super().__init__()
        layers, width = [*convolution(image_channels, stem, 3), nn.ReLU()], stem
        for channels, units in stages:
            layers += [DownUnit(width, channels), *(ShuffleUnit(channels) for _ in range(units))]
            width = channels
        self.features = nn.Sequential(*layers, *convolution(width, last, 1), nn.ReLU())
        self.fc = nn.Linear(last, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, C, H, W] to logits [N, classes]."""
        return self.fc(self.features(images).mean((2, 3)))


def shufflenet_v2(classes: int = 10) -> ShuffleNetV2:
    """Build ShuffleNet-v2-style for 32 x 32 colour images: 89,866 parameters."""
    return ShuffleNetV2(3, 32, [(64, 3), (128, 3)], last=256, classes=classes)


def small_shufflenet_v2(classes: int = 10) -> ShuffleNetV2:
    """Build ShuffleNet-v2-style for 8 x 8 grey digits: 14,250 parameters."""
    return ShuffleNetV2(1, 32, [(64, 2)], last=64, classes=classes)
