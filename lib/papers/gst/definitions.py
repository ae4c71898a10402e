"""Compute what paper 5's definitions say of traffic, storage and conversions: numbers that no training decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import nn

from lib.base import BadInput
from lib.kernels import storage
from lib.kernels.block_circulant import circulant, expand, number, project
from lib.models.mlp import MLP, generators, plain
from lib.models.resnet import resnet34
from lib.papers.gst.experiments.compression import packed_ratio, ratio
from lib.pruners import blocks, groups, sizes
from lib.pruners.layers import prunable
from lib.pruners.masks import attach
from lib.pruners.scores import magnitude

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {  # with the shape of one example
    "actor of HalfCheetah": (lambda: plain(MLP((17, 256, 256, 6), generators([0]))), (17,)),
    "critic of HalfCheetah": (lambda: plain(MLP((23, 256, 256, 1), generators([0]))), (23,)),
    "actor of Humanoid": (lambda: plain(MLP((376, 256, 256, 17), generators([0]))), (376,)),
    "critic of Humanoid": (lambda: plain(MLP((393, 256, 256, 1), generators([0]))), (393,)),
    "ResNet-34": (resnet34, (3, 224, 224)),
}


def operations_per_byte(network: str, batch: int, value_bits: int = 16) -> float:
    """Compute how many operations a network does in a forward pass with each byte it moves (figure 1).

    It limits how fast a network can be trained; counted as in `sizes.operations_per_byte`.

    Raises:
        BadInput: an unknown network.
    """
    if network not in NETWORKS:
        raise BadInput(f"network {network!r}: known are {', '.join(NETWORKS)}")
    build, shape = NETWORKS[network]
    return sizes.operations_per_byte(build(), shape, batch, value_bits)


def packed_gap(block: int, sparsity: float, bitmap: str = "weights") -> float:
    """Compute the saving of HalfCheetah's actor in really packed bytes minus that of `ratio`, its second layer in
    blocks of B.

    Returns:
        percentage points; not exactly 0, because bits and coefficients are whole.
    """
    actor, name = plain(MLP((17, 256, 256, 6), generators([0]))), "2.weight"
    groups.group(actor, {name: circulant(block)})
    scores = magnitude(actor).only([name])
    attach(actor, groups.whole_groups(scores, sparsity, groups.tables(actor)))
    weights = {layer.name: layer.weight for layer in prunable(actor)}
    share = weights[name].numel() / sum(weight.numel() for weight in weights.values())
    return 100 * (packed_ratio(weights, {name: circulant(block)}, bitmap) - ratio(sparsity, block, share, bitmap))


def weight_share(layers: Sequence[Sequence[int]], compressed: Sequence[int]) -> float:
    """Compute P_comp / P_total of a network in percent, weights only.

    Args:
        layers: the sizes of each layer's weight, such as [256, 17]; of several alike their number besides.
        compressed: which of them, from 0.
    """
    weights = [math.prod(sizes) for sizes in layers]
    return 100 * sum(weights[layer] for layer in compressed) / sum(weights)


def changed_by_conversion(conversion: str, size: int = 64) -> float:
    """Find the largest change of a weight when blocks of 4 become blocks of 2, in standard deviations (section 3.3)."""
    before, after, _ = blocks.phases(4, conversion)
    draw = torch.Generator().manual_seed(0)
    weight = expand(torch.randn(size // 4, size // 4, number(before), generator=draw), before, (size, size))
    return float((expand(project(weight, after), after, (size, size)) - weight).abs().max())


def csr_crossover(rows: int, columns: int, index_bits: int = 16, pointer_bits: int = 32) -> float:
    """Find the sparsity above which CSR says in fewer bits than a bitmap where the values are (section 3.4).

    Both store the same values, so only metadata counts: an index a value and a pointer a row against a bit a place.
    """
    fixed = storage.metadata_bits("csr", rows, columns, 0, index_bits, pointer_bits)
    bitmap = storage.metadata_bits("bitmap", rows, columns, 0)
    return 1 - (bitmap - fixed) / (index_bits * rows * columns)
