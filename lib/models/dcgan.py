"""Build deep convolutional generative adversarial networks for small grey images (Radford, Metz, Chintala 2016)."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

NOISE = 100  # numbers that an image is made of (Radford et al., section 4)
SPREAD = 0.02  # standard deviation of all weights at first (the same section)

Step = tuple[int, int, int, int]  # channels that come out, kernel, stride, padding


class Generator(nn.Module):
    """Stack transposed convolutions from noise to an image, with batch norm and ReLU between them and tanh at the end.

    Args:
        noise: numbers that an image is made of.
        steps: one a layer, from the noise, which is an image of one pixel, to the image.
    """

    def __init__(self, noise: int, steps: Sequence[Step]):
        super().__init__()
        self.noise = noise
        layers: list[nn.Module] = []
        channels = noise
        for number, (out, kernel, stride, padding) in enumerate(steps, 1):
            last = number == len(steps)
            layers.append(nn.ConvTranspose2d(channels, out, kernel, stride, padding, bias=last))
            layers += [nn.Tanh()] if last else [nn.BatchNorm2d(out), nn.ReLU()]
            channels = out
        self.layers = nn.Sequential(*layers)
        self.apply(_begin)

    def forward(self, noise: Tensor) -> Tensor:
        """Map noise [N, noise] to images [N, 1, H, W], from -1 (black) to 1 (white)."""
        return self.layers(noise[:, :, None, None])


class Discriminator(nn.Module):
    """Stack convolutions with strides from an image to one logit, high where the image looks real.

    Batch norm between layers but not after the first, leaky ReLU with a slope of 0.2.

    Args:
        steps: one a layer; the last makes one logit of what is left of the image.
    """

    def __init__(self, steps: Sequence[Step]):
        super().__init__()
        layers: list[nn.Module] = []
        channels = 1
        for number, (out, kernel, stride, padding) in enumerate(steps, 1):
            first, last = number == 1, number == len(steps)
            layers.append(nn.Conv2d(channels, out, kernel, stride, padding, bias=first or last))
            if not last:
                layers += [nn.LeakyReLU(0.2)] if first else [nn.BatchNorm2d(out), nn.LeakyReLU(0.2)]
            channels = out
        self.layers = nn.Sequential(*layers)
        self.apply(_begin)

    def forward(self, images: Tensor) -> Tensor:
        """Map images [N, 1, H, W] to logits [N]."""
        return self.layers(images).flatten()


def dcgan(width: int = 32) -> tuple[Generator, Discriminator]:
    """Build both for 28 x 28 images: 100 - 4w - 2w - w - 1 channels, and 1 - w - 2w - 4w - 1.

    The published networks make 64 x 64 images of five layers and begin with 64 channels; these have a layer less.
    """
    generator = [(4 * width, 4, 1, 0), (2 * width, 3, 2, 1), (width, 4, 2, 1), (1, 4, 2, 1)]
    discriminator = [(width, 4, 2, 1), (2 * width, 4, 2, 1), (4 * width, 3, 2, 1), (1, 4, 1, 0)]
    return Generator(NOISE, generator), Discriminator(discriminator)


def small_dcgan(width: int = 16) -> tuple[Generator, Discriminator]:
    """Build both for 8 x 8 digits: 16 - 4w - 2w - 1 channels, from 16 numbers of noise, and 1 - 2w - 4w - 1."""
    generator = [(4 * width, 2, 1, 0), (2 * width, 4, 2, 1), (1, 4, 2, 1)]
    discriminator = [(2 * width, 4, 2, 1), (4 * width, 4, 2, 1), (1, 2, 1, 0)]
    return Generator(16, generator), Discriminator(discriminator)


def _begin(module: nn.Module) -> None:
    """Draw the first weights as published: normal, of batch norms around 1."""
    if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(module.weight, 0.0, SPREAD)
    elif isinstance(module, nn.BatchNorm2d):
        nn.init.normal_(module.weight, 1.0, SPREAD)


def noise(generator: Generator, count: int, draw: torch.Generator) -> Tensor:
    """Draw what `count` images are made of, [count, noise], standard normal as in the reference code."""
    return torch.randn(count, generator.noise, generator=draw)
