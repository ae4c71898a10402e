"""Build networks in which each layer sees the outputs of all before it (DenseNet: Huang et al. 2017)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class DenseLayer(nn.Module):
    """Apply batch norm, ReLU and 1 x 1 convolution, then the same with 3 x 3; its output is joined to its input."""

    def __init__(self, channels_in: int, growth: int):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(channels_in)
        self.conv1 = nn.Conv2d(channels_in, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, h, w] to [N, C + growth, h, w]."""
        hidden = self.conv1(self.relu(self.bn1(x)))
        return torch.cat([x, self.conv2(self.relu(self.bn2(hidden)))], 1)


class DenseNet(nn.Module):
    """Stack a stem and blocks of dense layers; a 1 x 1 convolution between blocks halves channels, pooling the side.

    Args:
        image_channels: 1 or 3.
        stem: channels of the first convolution.
        growth: channels that each dense layer adds.
        layers: how many dense layers each block has.
        classes: outputs.
    """

    def __init__(self, image_channels: int, stem: int, growth: int, layers: Sequence[int], classes: int):
        super().__init__()
        self.stem = nn.Conv2d(image_channels, stem, 3, padding=1, bias=False)
        blocks, width = [], stem
        for block, count in enumerate(layers):
            if block:
                blocks += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False)]
                blocks.append(nn.AvgPool2d(2))
                width //= 2
            for _ in range(count):
                blocks.append(DenseLayer(width, growth))
                width += growth
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(width)
        self.relu = nn.ReLU()
        self.fc = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, C, H, W] to logits [N, classes]."""
        hidden = self.relu(self.bn(self.blocks(self.stem(images))))
        return self.fc(hidden.mean((2, 3)))


def densenet24(classes: int = 10) -> DenseNet:
    """Build DenseNet-24 for 32 x 32 colour images: 141,706 parameters."""
    return DenseNet(3, stem=32, growth=16, layers=(2, 4, 4), classes=classes)


def small_densenet(classes: int = 10) -> DenseNet:
    """Build DenseNet-11 for 8 x 8 grey digits: 51,178 parameters."""
    return DenseNet(1, stem=32, growth=16, layers=(2, 2), classes=classes)
