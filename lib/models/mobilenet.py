"""Build networks of depth-wise convolutions (MobileNet v2: Sandler et al. 2018)."""

from collections.abc import Sequence

from torch import Tensor, nn


def convolution(channels_in: int, channels_out: int, kernel: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Build a convolution with batch norm that keeps the side (times 1 / stride)."""
    layer = nn.Conv2d(channels_in, channels_out, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [layer, nn.BatchNorm2d(channels_out)]


class InvertedResidual(nn.Module):
    """Convolve 1 x 1 to more channels, 3 x 3 depth-wise, 1 x 1 to few channels again without activation, and a
    shortcut.

    The shortcut joins the few channels, where sizes agree; elsewhere there is none.

    Args:
        expansion: how many times more channels there are inside; at 1 the first convolution is left out.
    """

    def __init__(self, channels_in: int, channels_out: int, stride: int, expansion: int):
        super().__init__()
        hidden = channels_in * expansion
        widen = [*convolution(channels_in, hidden, 1), nn.ReLU6()] if expansion > 1 else []
        self.layers = nn.Sequential(
            *widen,
            *convolution(hidden, hidden, 3, stride, groups=hidden),
            nn.ReLU6(),
            *convolution(hidden, channels_out, 1),
        )
        self.shortcut = stride == 1 and channels_in == channels_out

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, h, w] to [N, C', h / stride, w / stride]."""
        return x + self.layers(x) if self.shortcut else self.layers(x)


class MobileNetV2(nn.Module):
    """Stack a stem, stages of inverted residuals, a last 1 x 1 convolution, and a Linear layer.

    Args:
        image_channels: 1 or 3.
        stem: channels and stride of the first convolution.
        stages: (expansion, channels, blocks, stride of the first block) of each stage.
        last: channels before the Linear layer.
        classes: outputs.
    """

    def __init__(
        self,
        image_channels: int,
        stem: tuple[int, int],
        stages: Sequence[tuple[int, int, int, int]],
        last: int,
        classes: int,
    ):
        super().__init__()
        width, stride = stem
        layers = [*convolution(image_channels, width, 3, stride), nn.ReLU6()]
        for expansion, channels, blocks, stride in stages:
            for block in range(blocks):
                layers.append(InvertedResidual(width, channels, 1 if block else stride, expansion))
                width = channels
        self.features = nn.Sequential(*layers, *convolution(width, last, 1), nn.ReLU6())
        self.fc = nn.Linear(last, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, C, H, W] to logits [N, classes]."""
        return self.fc(self.features(images).mean((2, 3)))


def mobilenet_v2(classes: int = 10) -> MobileNetV2:
    """Build MobileNet-v2-style for 32 x 32 colour images, with half of its stages: 171,658 parameters."""
    return MobileNetV2(3, (32, 2), [(1, 16, 1, 1), (6, 32, 2, 2), (6, 64, 3, 2)], last=256, classes=classes)


def small_mobilenet_v2(classes: int = 10) -> MobileNetV2:
    """Build MobileNet-v2-style for 8 x 8 grey digits: 24,842 parameters."""
    return MobileNetV2(1, (32, 1), [(1, 16, 1, 1), (6, 32, 2, 2)], last=64, classes=classes)
