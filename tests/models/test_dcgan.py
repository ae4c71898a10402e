"""Laws of `lib.models.dcgan`: shapes, ranges, the published start."""

import pytest
import torch
from torch import nn

from lib.models.dcgan import dcgan, noise, small_dcgan


@pytest.mark.parametrize(("build", "side"), [(dcgan, 28), (small_dcgan, 8)])
def test_the_generator_makes_images_that_the_discriminator_takes(build, side):
    torch.manual_seed(0)
    generator, discriminator = build()
    images = generator(noise(generator, 3, torch.Generator().manual_seed(0)))
    assert images.shape == (3, 1, side, side)
    assert images.abs().max() <= 1
    assert discriminator(images).shape == (3,)


def test_weights_begin_as_published():
    torch.manual_seed(0)
    generator, discriminator = dcgan()
    for module in [*generator.modules(), *discriminator.modules()]:
        if isinstance(module, (nn.Conv2d, nn.ConvTranspose2d)) and module.weight.numel() > 10_000:
            assert float(module.weight.std()) == pytest.approx(0.02, rel=0.05)
            assert float(module.weight.mean()) == pytest.approx(0, abs=1e-3)
        if isinstance(module, nn.BatchNorm2d) and module.weight.numel() > 100:
            assert float(module.weight.std()) == pytest.approx(0.02, rel=0.3)
            assert float(module.weight.mean()) == pytest.approx(1, abs=0.01)


def test_batch_norm_stands_where_the_reference_code_has_it():
    generator, discriminator = dcgan()
    kinds = [type(module).__name__ for module in generator.layers]
    assert kinds == ["ConvTranspose2d", "BatchNorm2d", "ReLU"] * 3 + ["ConvTranspose2d", "Tanh"]
    kinds = [type(module).__name__ for module in discriminator.layers]
    assert kinds == ["Conv2d", "LeakyReLU", *["Conv2d", "BatchNorm2d", "LeakyReLU"] * 2, "Conv2d"]
    slopes = [module.negative_slope for module in discriminator.modules() if isinstance(module, nn.LeakyReLU)]
    assert slopes == [0.2] * 3  # Radford et al. 2016, section 3


def test_noise_is_drawn_by_its_generator():
    generator, _ = dcgan()
    one, same = (noise(generator, 5, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, same)
    assert one.shape == (5, 100)
