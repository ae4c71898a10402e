"""Build residual networks for small and large images (He et al. 2016)."""

from collections.abc import Callable, Sequence

from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput


class BasicBlock(nn.Module):
    """Put two 3 x 3 convolutions with batch norm around a shortcut.

    Args:
        shortcut: from channels in and out and the stride, what stands beside the convolutions.
    """

    expansion = 1

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        stride: int,
        shortcut: Callable[[int, int, int], nn.Module] | None = None,
    ):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out)
        self.relu = nn.ReLU()
        self.shortcut = (shortcut or projected)(channels_in, channels_out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, h, w] to [N, C', h / stride, w / stride]."""
        hidden = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(hidden)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """Put 1 x 1, 3 x 3 and 1 x 1 convolutions with batch norm around a shortcut; four times as many channels come out.

    The stride is in the 3 x 3 convolution, as in every current implementation.
    """

    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        out = channels * self.expansion
        self.conv1 = nn.Conv2d(channels_in, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.relu = nn.ReLU()
        self.shortcut = projected(channels_in, out, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, h, w] to [N, 4 C', h / stride, w / stride]."""
        hidden = self.relu(self.bn1(self.conv1(x)))
        hidden = self.relu(self.bn2(self.conv2(hidden)))
        return self.relu(self.bn3(self.conv3(hidden)) + self.shortcut(x))


def projected(channels_in: int, channels_out: int, stride: int) -> nn.Module:
    """Build nothing where sizes agree, else a 1 x 1 convolution with batch norm (the authors' option B)."""
    if stride == 1 and channels_in == channels_out:
        return nn.Identity()
    projection = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
    return nn.Sequential(projection, nn.BatchNorm2d(channels_out))


class Padded(nn.Module):
    """Take every `stride`-th pixel, with channels of zeros behind: a shortcut without weights (their option A)."""

    def __init__(self, channels_in: int, channels_out: int, stride: int):
        super().__init__()
        self.stride, self.more = stride, channels_out - channels_in

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, h, w] to [N, C', h / stride, w / stride]."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.more))


class ResNet(nn.Module):
    """Stack a stem, then stages of residual blocks; each stage after the first halves the side.

    Args:
        image_channels: 1 or 3.
        widths: channels of each stage; a bottleneck puts out four times as many.
        blocks: how many blocks each stage has.
        classes: outputs.
        block: BasicBlock or Bottleneck.
        large: for images of 224 x 224, a stem of 7 x 7 with stride 2 and max-pooling; else 3 x 3 with stride 1.
        padded: whether shortcuts between stages have no weights (option A); of basic blocks.

    Raises:
        BadInput: padded shortcuts of bottlenecks.
    """

    def __init__(
        self,
        image_channels: int,
        widths: Sequence[int],
        blocks: Sequence[int],
        classes: int,
        block: type[BasicBlock] | type[Bottleneck] = BasicBlock,
        large: bool = False,
        padded: bool = False,
    ):
        if padded and block is not BasicBlock:
            raise BadInput("padded: shortcuts without weights are those of basic blocks")
        super().__init__()
        kernel, stride = (7, 2) if large else (3, 1)
        self.stem = nn.Conv2d(image_channels, widths[0], kernel, stride, padding=kernel // 2, bias=False)
        self.bn = nn.BatchNorm2d(widths[0])
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(3, 2, padding=1) if large else nn.Identity()
        stages, width = [], widths[0]
        for stage, (channels, count) in enumerate(zip(widths, blocks, strict=True)):
            for number in range(count):
                how = {"shortcut": Padded} if padded else {}
                stages.append(block(width, channels, stride=2 if stage and number == 0 else 1, **how))
                width = channels * block.expansion
        self.blocks = nn.Sequential(*stages)
        self.fc = nn.Linear(width, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, C, H, W] to logits [N, classes]."""
        hidden = self.blocks(self.pool(self.relu(self.bn(self.stem(images)))))
        return self.fc(hidden.mean((2, 3)))


def resnet20(classes: int = 10) -> ResNet:
    """Build ResNet-20 for 32 x 32 colour images: 272,474 parameters.

    The authors' CIFAR networks pad with zeros where sizes differ (option A, 269,722 parameters); with convolutions
    instead every residual sum joins two layers that a permutation can move.
    """
    return ResNet(3, (16, 32, 64), (3, 3, 3), classes)


def resnet32(classes: int = 10) -> ResNet:
    """Build ResNet-32 for 32 x 32 colour images as its authors have it, with padded shortcuts: 464,154 parameters."""
    return ResNet(3, (16, 32, 64), (5, 5, 5), classes, padded=True)


def small_resnet(classes: int = 10) -> ResNet:
    """Build ResNet-8 for 8 x 8 grey digits: 77,754 parameters."""
    return ResNet(1, (16, 32, 64), (1, 1, 1), classes)


def resnet34(classes: int = 1000) -> ResNet:
    """Build ResNet-34 for ImageNet: 21,797,672 parameters."""
    return ResNet(3, (64, 128, 256, 512), (3, 4, 6, 3), classes, large=True)


def resnet50(classes: int = 1000) -> ResNet:
    """Build ResNet-50 for ImageNet: 25,557,032 parameters."""
    return ResNet(3, (64, 128, 256, 512), (3, 4, 6, 3), classes, Bottleneck, large=True)
