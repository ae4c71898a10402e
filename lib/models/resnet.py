"""Residual networks for small images (He et al. 2016, section 4.2)."""

from collections.abc import Sequence

from torch import Tensor, nn


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions with batch norm around a shortcut, which is a 1 x 1 convolution where sizes differ."""

    def __init__(self, channels_in: int, channels_out: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU()
        self.shortcut = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(hidden)) + self.shortcut(x))


class ResNet(nn.Module):
    """A 3 x 3 stem, then stages of basic blocks; each stage after the first halves the side.

    Args:
        image_channels: 1 or 3.
        widths: output channels of each stage.
        blocks: basic blocks in each stage; the depth is 2 * len(widths) * blocks + 2.
        classes: outputs.
    """

    def __init__(self, image_channels: int, widths: Sequence[int], blocks: int, classes: int):
        super().__init__()
        self.stem = nn.Conv2d(image_channels, widths[0], 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU()
        stages, width = [], widths[0]
        for stage, out in enumerate(widths):
            strides = [1 if stage == 0 else 2] + [1] * (blocks - 1)
            for stride in strides:
                stages.append(BasicBlock(width, out, stride))
                width = out
        self.blocks = nn.Sequential(*stages)
        self.fc = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """[N, C, H, W] -> logits [N, classes]."""
        hidden = self.blocks(self.relu(self.bn(self.stem(images))))
        return self.fc(hidden.mean((2, 3)))


def resnet20(classes: int = 10) -> ResNet:
    """ResNet-20 for 32 x 32 colour images: 272,474 parameters.

    Shortcuts that change the size are 1 x 1 convolutions (the authors' option B; their CIFAR networks pad with zeros
    instead, 269,722 parameters), so that every residual sum joins two layers that a permutation can move.
    """
    return ResNet(3, (16, 32, 64), blocks=3, classes=classes)


def small_resnet(classes: int = 10) -> ResNet:
    """ResNet-8 for 8 x 8 grey digits: 77,754 parameters."""
    return ResNet(1, (16, 32, 64), blocks=1, classes=classes)
