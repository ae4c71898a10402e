"""Build a network that plays from pixels: convolutions, one hidden layer, and two heads (Mnih et al. 2015, 2016)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lib.base import BadInput, naming, refuse_uncounted


@dataclass(frozen=True)
class PlayerSizes:
    """Hold the sizes of the network; the defaults are those of paper 5's reference 33.

    Attributes:
        channels, kernels, strides: of the convolutions, which have no padding.
        hidden: units of the fully connected layer.
    """

    channels: tuple[int, ...] = (32, 64, 32)
    kernels: tuple[int, ...] = (8, 4, 3)
    strides: tuple[int, ...] = (4, 2, 1)
    hidden: int = 512

    def __post_init__(self):
        if not len(self.channels) == len(self.kernels) == len(self.strides) >= 1:
            raise BadInput("network: channels, kernels and strides must be as many as the convolutions, at least 1")
        with naming("network"):
            for name in ("channels", "kernels", "strides"):
                refuse_uncounted(**{f"{name}[{place}]": count for place, count in enumerate(getattr(self, name))})
            refuse_uncounted(hidden=self.hidden)


class ActorCritic(nn.Module):
    """Compute from the last frames how good each button is, and the return that is expected.

    Weights begin orthogonal, scaled by the square root of two, by 1 in the head of values and by 0.01 in that of
    actions; biases begin at zero.

    Args:
        frames: how many are seen at once.
        side: height and width of a frame.
        actions: how many buttons there are.
    """

    def __init__(self, frames: int, side: int, actions: int, sizes: PlayerSizes = PlayerSizes()):
        super().__init__()
        self.convolutions, before = nn.ModuleList(), frames
        for channels, kernel, stride in zip(sizes.channels, sizes.kernels, sizes.strides, strict=True):
            self.convolutions.append(nn.Conv2d(before, channels, kernel, stride))
            side, before = (side - kernel) // stride + 1, channels
        if side < 1:
            raise BadInput("network: kernels and strides leave no pixel of the frames")
        self.hidden = nn.Linear(before * side**2, sizes.hidden)
        self.actor = nn.Linear(sizes.hidden, actions)
        self.critic = nn.Linear(sizes.hidden, 1)
        self.relu = nn.ReLU()
        gains: Sequence[tuple[nn.Module, float]] = [(layer, 2**0.5) for layer in (*self.convolutions, self.hidden)]
        for layer, gain in (*gains, (self.critic, 1.0), (self.actor, 0.01)):
            nn.init.orthogonal_(layer.weight, gain)
            nn.init.zeros_(layer.bias)

    def forward(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        """Map frames, uint8 [n, frames, side, side] -> logits [n, actions], values [n], in float32 or wider."""
        x = frames.to(next(self.parameters()).dtype) / 255
        for convolution in self.convolutions:
            x = self.relu(convolution(x))
        x = self.relu(self.hidden(x.flatten(1)))
        logits, values = self.actor(x), self.critic(x)
        wide = torch.promote_types(logits.dtype, torch.float32)
        return logits.to(wide), values.to(wide)[:, 0]
