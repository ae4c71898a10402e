"""Build residual networks with grouped convolutions, ResNeXt (Xie et al. 2017)."""

from torch import nn

from lib.models.resnet import Bottleneck, ResNet

GROUP = 16  # channels of a group: its inner dimension 16 x 3 x 3 fits the layer rule of paper 2, section 4.2


class GroupedBottleneck(Bottleneck):
    """In this bottleneck the 3 x 3 convolution is split into groups of channels that do not see each other.

    Twice as many channels come out, as in ResNeXt-50.
    """

    expansion = 2

    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__(channels_in, channels, stride)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, groups=channels // GROUP, bias=False)


def resnext20(classes: int = 10) -> ResNet:
    """Build ResNeXt-20 for 32 x 32 colour images: 919,114 parameters."""
    return ResNet(3, (64, 128, 256), (2, 2, 2), classes, GroupedBottleneck)


def small_resnext(classes: int = 10) -> ResNet:
    """Build ResNeXt-8 for 8 x 8 grey digits: 42,218 parameters."""
    return ResNet(1, (32, 64), (1, 1), classes, GroupedBottleneck)
