"""Build residual networks that turn filter banks of any length into one embedding (paper 3, Table 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from lib.models.resnet import BasicBlock, Bottleneck

EMBEDDING = 256


class SpeakerResNet(nn.Module):
    """A stem and four stages of residual blocks are followed by statistics over time and one linear layer.

    The last three stages halve bands and frames. Table 1 prints ResNet34 and leaves open pooling and head; with the
    mean and standard deviation over time and a 256-d embedding the three networks have the sizes the paper states.

    Args:
        blocks: how many blocks each stage has.
        block: BasicBlock or Bottleneck.
        width: channels of the first stage, doubled by each later one (a bottleneck puts out four times as many).
        bands: of the filter bank.
    """

    def __init__(
        self, blocks: Sequence[int], block: type[BasicBlock] | type[Bottleneck], width: int = 32, bands: int = 40
    ):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.stages, channels = nn.ModuleList(), width
        for stage, count in enumerate(blocks):
            layers = []
            for number in range(count):
                layers.append(block(channels, width * 2**stage, stride=2 if stage and number == 0 else 1))
                channels = width * 2**stage * block.expansion
            self.stages.append(nn.Sequential(*layers))
        self.channels = [width * 2**stage * block.expansion for stage in range(len(blocks))]
        self.fc = nn.Linear(2 * channels * halved(bands, len(blocks) - 1), EMBEDDING)

    def maps(self, features: Tensor) -> list[Tensor]:
        """Return what each stage puts out, [N, channels, bands, frames], halved by each later one."""
        hidden = self.stem(features.transpose(1, 2).unsqueeze(1))
        found = []
        for stage in self.stages:
            hidden = stage(hidden)
            found.append(hidden)
        return found

    def embed(self, maps: Sequence[Tensor]) -> Tensor:
        """Turn the stages' maps into embeddings [N, 256]."""
        return self.fc(statistics(maps[-1]))

    def forward(self, features: Tensor) -> Tensor:
        """Embed features. [N, frames, bands] -> [N, 256]"""
        return self.embed(self.maps(features))


def statistics(hidden: Tensor) -> Tensor:
    """Compute mean and standard deviation over time of each channel and band. [N, C, F, T] -> [N, 2 C F]

    The variance divides by T, where wespeaker's divides by T - 1, so that a map of one frame has a deviation too.
    """
    # at least float32, within autocast too: differences of rounded numbers would be noise
    rows = hidden.flatten(1, 2).to(torch.promote_types(hidden.dtype, torch.float32))
    mean = rows.mean(2)
    deviation = torch.sqrt(rows.var(2, correction=0) + 1e-7)  # differentiable where nothing varies
    return torch.cat([mean, deviation], 1)


def halved(size: int, times: int) -> int:
    """Halve a size so many times as strides of 2 do, rounding up each time."""
    return -(-size // 2**times)


NETWORKS: dict[str, Callable[..., SpeakerResNet]] = {
    "resnet18": partial(SpeakerResNet, (2, 2, 2, 2), BasicBlock),
    "resnet34": partial(SpeakerResNet, (3, 4, 6, 3), BasicBlock),
    "resnet50": partial(SpeakerResNet, (3, 4, 6, 3), Bottleneck),
}
