"""Build wide residual networks: fewer layers with more channels (Zagoruyko and Komodakis 2016)."""

from lib.models.resnet import ResNet


def wide_resnet(classes: int = 10) -> ResNet:
    """Build ResNet-14, four times as wide, for 32 x 32 colour images: 2,777,674 parameters."""
    return ResNet(3, (64, 128, 256), (2, 2, 2), classes)


def small_wide_resnet(classes: int = 10) -> ResNet:
    """Build ResNet-8, twice as wide, for 8 x 8 grey digits: 308,074 parameters."""
    return ResNet(1, (32, 64, 128), (1, 1, 1), classes)
