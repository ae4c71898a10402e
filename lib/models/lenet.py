"""Build LeNet-5 in Caffe's widths, and the same shape for 8 x 8 digits."""

from torch import Tensor, nn


class LeNet(nn.Module):
    """Stack two convolutions, each with ReLU and 2 x 2 max-pooling, then two fully connected layers.

    Args:
        channels: image channels, then the output channels of the two convolutions.
        kernel: side of the square kernels.
        padding: zeros added on each side before a convolution.
        side: height and width of the image.
        hidden: neurons of the first fully connected layer.
        classes: outputs.
    """

    def __init__(self, channels: tuple[int, int, int], kernel: int, padding: int, side: int, hidden: int, classes: int):
        super().__init__()
        grow = 2 * padding - kernel + 1
        side = ((side + grow) // 2 + grow) // 2
        self.conv1 = nn.Conv2d(channels[0], channels[1], kernel, padding=padding)
        self.conv2 = nn.Conv2d(channels[1], channels[2], kernel, padding=padding)
        self.fc1 = nn.Linear(channels[2] * side * side, hidden)
        self.fc2 = nn.Linear(hidden, classes)
        self.pool = nn.MaxPool2d(2)
        self.relu = nn.ReLU()

    def forward(self, images: Tensor) -> Tensor:
        """Map [N, C, side, side] to logits [N, classes]."""
        hidden = self.pool(self.relu(self.conv1(images)))
        hidden = self.pool(self.relu(self.conv2(hidden)))
        return self.fc2(self.relu(self.fc1(hidden.flatten(1))))


def lenet5(classes: int = 10) -> LeNet:
    """Build LeNet-5 in Caffe's widths, 20-50-500, for 28 x 28 grey images: 431,080 parameters (paper 4)."""
    return LeNet((1, 20, 50), kernel=5, padding=0, side=28, hidden=500, classes=classes)


def small_lenet(classes: int = 10) -> LeNet:
    """Build the same shape for 8 x 8 digits, 16-32-64 with 3 x 3 kernels: 13,706 parameters."""
    return LeNet((1, 16, 32), kernel=3, padding=1, side=8, hidden=64, classes=classes)
