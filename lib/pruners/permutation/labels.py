"""Label channels: which one each number of a network belongs to, and what is known of channels in the end.

The words say what torch's functions and layers do with numbers, see `lib.pruners.permutation.channels`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import torch
from torch import Tensor


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


MOVES = _words(
    """cat concat concatenate stack chunk split tensor_split unbind getitem narrow select reshape view flatten unflatten
    transpose permute movedim swapaxes squeeze unsqueeze expand repeat flip roll contiguous clone detach
    channel_shuffle pixel_shuffle pixel_unshuffle Flatten Unflatten ChannelShuffle PixelShuffle"""
)
ONE_BY_ONE = _words(
    """add sub mul div truediv iadd isub imul itruediv maximum minimum neg abs square sqrt rsqrt pow exp log clamp relu
    relu6 leaky_relu elu selu gelu silu mish sigmoid tanh hardswish hardsigmoid hardtanh softplus dropout float double
    half to Identity ReLU ReLU6 LeakyReLU PReLU ELU SELU GELU SiLU Mish Sigmoid Tanh Hardswish Hardsigmoid Hardtanh
    Softplus Dropout Dropout2d"""
)
POOLS = _words(
    """max_pool1d avg_pool1d adaptive_avg_pool1d adaptive_max_pool1d MaxPool1d AvgPool1d AdaptiveAvgPool1d
    AdaptiveMaxPool1d max_pool2d avg_pool2d adaptive_avg_pool2d adaptive_max_pool2d MaxPool2d AvgPool2d
    AdaptiveAvgPool2d AdaptiveMaxPool2d max_pool3d avg_pool3d adaptive_avg_pool3d adaptive_max_pool3d MaxPool3d
    AvgPool3d AdaptiveAvgPool3d AdaptiveMaxPool3d interpolate Upsample ZeroPad2d"""
)
SUMS = _words("mean sum amax amin")
CONSTANTS = _words("new_zeros new_ones new_full zeros_like ones_like full_like")
IN_PLACE = _words("iadd isub imul itruediv")
NUMBERS = _words("item tolist numpy equal allclose")  # these take numbers out of tensors
# what says how a tensor is, not what is in it
ABOUT = (torch.Size, int, bool, str, torch.dtype, torch.device, type(None))
ATTENTION = _words("matmul bmm baddbmm einsum scaled_dot_product_attention")


@dataclass(frozen=True)
class Value:
    """Hold a tensor of the network and, in its shape, which channel each number belongs to and where in it it stands.

    No two numbers of the network carry the same channel and place, unless one is a copy of the other.
    """

    numbers: Tensor
    channel: Tensor
    place: Tensor

    @property
    def varying(self) -> list[int]:
        """Find the axes, counted from the last, along which the channel changes."""
        axes = range(-self.channel.dim(), 0)
        return [axis for axis in axes if bool((self.channel != self.channel.narrow(axis, 0, 1)).any())]


@dataclass
class Axis:
    """Say what one axis of a parameter belongs to, entry by entry.

    Attributes:
        channel: [length].
        pattern: [length], a fingerprint of the places that meet the entry: after a flatten each channel has several
            entries, which differ in it.
        groups: of a grouped convolution. Its input channels are those of all groups one after the other.
    """

    channel: Tensor
    pattern: Tensor
    groups: int = 1

    def entries(self) -> list[tuple[int, int, int]]:
        """Return (channel, group, pattern) of each entry."""
        size = len(self.channel) // self.groups
        pairs = zip(self.channel.tolist(), self.pattern.tolist(), strict=True)
        return [(channel, i // size, pattern) for i, (channel, pattern) in enumerate(pairs)]


@dataclass(frozen=True)
class Ties:
    """Hold what `read` finds: {(parameter, axis): Axis}, tied channels under one number, and why some stay in order."""

    axes: dict[tuple[str, int], Axis]
    fixed: dict[int, str]

    def spaces(self) -> list[list[int]]:
        """Find the sets of at least two channels that may change places with each other in any way."""
        belongs: dict[int, list] = defaultdict(list)
        for name, axis in self.axes.items():
            for channel, *entry in axis.entries():
                belongs[channel].append((*name, *entry))
        alike: dict[tuple, list[int]] = defaultdict(list)
        for channel, entries in belongs.items():
            if channel not in self.fixed:
                alike[tuple(sorted(entries))].append(channel)
        return [channels for channels in alike.values() if len(channels) > 1]


class Channels:
    """Number the channels, and remember which of them are the same (union-find)."""

    def __init__(self):
        self.parent: list[int] = []
        self.made: list[tuple[str, Tensor]] = []
        self.reasons: dict[int, str] = {}

    def new(self, count: int, source: str) -> Tensor:
        """Make the numbers [count] of a layer's channels; the layer's name stands in what `fixed` says."""
        first = len(self.parent)
        self.parent += range(first, first + count)
        self.made.append((source, torch.arange(first, first + count)))
        return self.made[-1][1]

    def find(self, channel: int) -> int:
        """Return the number under which all channels tied with this one are known."""
        while self.parent[channel] != channel:
            self.parent[channel] = channel = self.parent[self.parent[channel]]
        return channel

    def tie(self, first: Tensor, second: Tensor) -> None:
        """Make two tensors of channels, of shapes that broadcast, the same channels place by place."""
        first, second = torch.broadcast_tensors(first, second)
        differ = first != second
        for a, b in torch.stack([first[differ], second[differ]], dim=1).unique(dim=0).tolist():
            self.parent[self.find(b)] = self.find(a)

    def fix(self, channels: Tensor, why: str) -> None:
        """Keep channels where they are; the first reason given is remembered."""
        for channel in channels.unique().tolist():
            self.reasons.setdefault(channel, why)

    def roots(self, channels: Tensor) -> Tensor:
        """Return what `find` returns for each channel [n]."""
        return torch.tensor([self.find(channel) for channel in channels.tolist()])

    def fix_all(self, why: str) -> None:
        """Keep every channel made so far where it is."""
        self.fix(torch.arange(len(self.parent)), why)

    def fixed(self) -> dict[int, str]:
        """Return {channel: why it stays}. A channel tied with another of the same layer has no room to move."""
        for source, channels in self.made:
            _, inverse, count = self.roots(channels).unique(return_inverse=True, return_counts=True)
            self.fix(channels[count[inverse] > 1], f"channels of {source} meet each other in one number")
        found: dict[int, str] = {}
        for channel, why in self.reasons.items():
            found.setdefault(self.find(channel), why)
        return found
