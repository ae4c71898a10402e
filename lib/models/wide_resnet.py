"""Build wide residual networks: fewer layers with more channels (after Zagoruyko and Komodakis 2016).

The blocks are those of `lib.models.resnet`, with norm and activation behind each convolution, and the stem is as wide
as the first stage. Theirs have them before each convolution and a stem of 16 channels (WRN-16-4: 2,748,890 parameters).
"""

from lib.models.resnet import ResNet


def wide_resnet(classes: int = 10) -> ResNet:
    """Build ResNet-14, four times as wide, for 32 x 32 colour images: 2,777,674 parameters."""
    return ResNet(3, (64, 128, 256), (2, 2, 2), classes)


def small_wide_resnet(classes: int = 10) -> ResNet:
    """Build ResNet-8, twice as wide, for 8 x 8 grey digits: 308,074 parameters."""
    return ResNet(1, (32, 64, 128), (1, 1, 1), classes)
