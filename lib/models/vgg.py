"""Build plain stacks of 3 x 3 convolutions (VGG: Simonyan and Zisserman 2015), with batch norm."""

from collections.abc import Sequence

from torch import Tensor, nn


class VGG(nn.Module):
    """Stack stages of two 3 x 3 convolutions, each with batch norm and ReLU, and 2 x 2 max-pooling; then two Linear
    layers.

    Args:
        image_channels: 1 or 3.
        widths: channels of each stage.
        side: height and width of the image, halved once a stage.
        hidden: neurons of the first fully connected layer.
        classes: outputs.
    """

    def __init__(self, image_channels: int, widths: Sequence[int], side: int, hidden: int, classes: int):
        super().__init__()
        layers, width = [], image_channels
        for channels in widths:
            for _ in range(2):
                convolution = nn.Conv2d(width, channels, 3, padding=1, bias=False)
                layers += [convolution, nn.BatchNorm2d(channels), nn.ReLU()]
                width = channels
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.fc1 = nn.Linear(width * (side // 2 ** len(widths)) ** 2, hidden)
        self.fc2 = nn.Linear(hidden, classes)
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, C, side, side] to logits [N, classes]."""
        hidden = self.features(images).flatten(1)
        return self.fc2(self.relu(self.fc1(hidden)))


def vgg10(classes: int = 10) -> VGG:
    """Build VGG-10 for 32 x 32 colour images: 360,954 parameters."""
    return VGG(3, (16, 32, 64, 128), side=32, hidden=128, classes=classes)


def small_vgg(classes: int = 10) -> VGG:
    """Build VGG-6 for 8 x 8 grey digits: 25,370 parameters."""
    return VGG(1, (16, 32), side=8, hidden=64, classes=classes)
