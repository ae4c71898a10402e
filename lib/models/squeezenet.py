"""Build networks that squeeze channels before each 3 x 3 convolution (SqueezeNet: Iandola et al. 2016)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Fire(nn.Module):
    """Convolve 1 x 1 to few channels, then 1 x 1 and 3 x 3 side by side, their outputs joined; ReLU after each.

    The original has no batch norm; with it the network trains on the schedule of the others.
    """

    def __init__(self, channels_in: int, squeeze: int, expand: int):
        super().__init__()
        self.squeeze = nn.Conv2d(channels_in, squeeze, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(squeeze)
        self.expand1 = nn.Conv2d(squeeze, expand, 1, bias=False)
        self.expand3 = nn.Conv2d(squeeze, expand, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(2 * expand)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, h, w] to [N, 2 expand, h, w]."""
        hidden = self.relu(self.bn1(self.squeeze(x)))
        return self.relu(self.bn2(torch.cat([self.expand1(hidden), self.expand3(hidden)], 1)))


class SqueezeNet(nn.Module):
    """Stack a stem, then stages of fire modules with max-pooling between, and a 1 x 1 convolution to the classes.

    Args:
        image_channels: 1 or 3.
        stem: channels of the first convolution.
        stages: for each stage the (squeeze, expand) channels of its fire modules.
        classes: outputs.
    """

    def __init__(self, image_channels: int, stem: int, stages: Sequence[Sequence[tuple[int, int]]], classes: int):
        super().__init__()
        layers = [nn.Conv2d(image_channels, stem, 3, padding=1, bias=False), nn.BatchNorm2d(stem), nn.ReLU()]
        width = stem
        for number, stage in enumerate(stages):
            layers += [nn.MaxPool2d(2)] if number else []
            for squeeze, expand in stage:
                layers.append(Fire(width, squeeze, expand))
                width = 2 * expand
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Conv2d(width, classes, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, C, H, W] to logits [N, classes]."""
        return self.classifier(self.features(images)).mean((2, 3))


def squeezenet(classes: int = 10) -> SqueezeNet:
    """Build SqueezeNet-style for 32 x 32 colour images: 266,666 parameters."""
    stages = [[(16, 32), (16, 32)], [(32, 64), (32, 64)], [(48, 96), (48, 96), (64, 128)]]
    return SqueezeNet(3, 32, stages, classes)


def small_squeezenet(classes: int = 10) -> SqueezeNet:
    """Build SqueezeNet-style for 8 x 8 grey digits: 15,834 parameters."""
    return SqueezeNet(1, 16, [[(16, 16)], [(16, 32), (16, 32)]], classes)
