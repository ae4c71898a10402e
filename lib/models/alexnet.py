"""Build AlexNet for 32 x 32 images, as paper 4, section 6.3, modifies it, and a small one for digits."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


class AlexNet(nn.Module):
    """Stack five 3 x 3 convolutions, the first with stride 2, then three fully connected layers.

    The paper gives kernels, strides and widths. Its 1,024 neurons of the first fully connected layer are its inputs,
    256 channels of 2 x 2, so the image is halved three times after the first stride; max-pooling stands where AlexNet
    has it, after the first, second and fifth convolution, here with 2 x 2 windows. Padding 1; dropout 0.5 before the
    first two fully connected layers, as in AlexNet; there is no normalisation.

    Args:
        channels: image channels, then the output channels of the five convolutions.
        hidden: neurons of the first two fully connected layers.
        classes: outputs.
        dropout: share of the inputs of the first two fully connected layers that is dropped in training.
    """

    def __init__(self, channels: Sequence[int], hidden: Sequence[int], classes: int, dropout: float = 0.5):
        super().__init__()
        self.conv1 = nn.Conv2d(channels[0], channels[1], 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(channels[1], channels[2], 3, padding=1)
        self.conv3 = nn.Conv2d(channels[2], channels[3], 3, padding=1)
        self.conv4 = nn.Conv2d(channels[3], channels[4], 3, padding=1)
        self.conv5 = nn.Conv2d(channels[4], channels[5], 3, padding=1)
        self.fc1 = nn.Linear(4 * channels[5], hidden[0])
        self.fc2 = nn.Linear(hidden[0], hidden[1])
        self.fc3 = nn.Linear(hidden[1], classes)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()
        self.dropout = nn.Dropout(dropout)

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, C, 32, 32] to logits [N, classes]."""
        hidden = self.pool(self.relu(self.conv1(images)))
        hidden = self.pool(self.relu(self.conv2(hidden)))
        hidden = self.relu(self.conv4(self.relu(self.conv3(hidden))))
        hidden = self.pool(self.relu(self.conv5(hidden))).flatten(1)
        hidden = self.relu(self.fc1(self.dropout(hidden)))
        return self.fc3(self.relu(self.fc2(self.dropout(hidden))))


def alexnet(classes: int = 10) -> AlexNet:
    """Build 96-256-384-384-256-1024-4096-4096 for 32 x 32 colour images: 24,342,410 parameters."""
    return AlexNet((3, 96, 256, 384, 384, 256), (4096, 4096), classes)


def small_alexnet(classes: int = 10) -> nn.Sequential:
    """Build 16-24-32-32-32-128-384-384 for 8 x 8 grey images: 230,306 parameters.

    Each pixel becomes 4 x 4. As in `alexnet` most weights are fully connected; less is dropped, so that it learns soon.
    """
    return nn.Sequential(nn.Upsample(scale_factor=4), AlexNet((1, 16, 24, 32, 32, 32), (384, 384), classes, 0.2))
