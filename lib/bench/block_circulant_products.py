"""Time products with block-circulant weights (paper 5): by a real transform over the block, against the dense product.

The rival is torch's dense product of the same size, [batch, size] times [size, size]. fraction_of_limit is the speed-up
relative to how many times fewer multiplications the product takes (`block_circulant.limit`). Weights are transformed
beforehand, once, as for inference; activations are transformed within what is timed. bare_ms is the time of its calls
of torch that compute alone, on operands that lie ready: for one example it is more than dense_ms where matrices are
small, so no other way to write the product could be as fast as the dense one there. Rivals take turns of one call, so
each finds in the cache what the others have left there, as a layer does among the others of a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch.nn import functional as F

from lib.kernels.block_circulant import Spectrum, limit, linear, spectrum
from lib.kernels.timing import in_turn

COLUMNS = ("dtype", "size", "batch", "block", "ms", "dense_ms", "speedup", "fraction_of_limit", "bare_ms")
THREADS = 1  # on a CPU, so that runs on machines with more cores can be compared

SIZES, BATCHES, BLOCKS = (256, 1024, 4096), (1, 100, 1024), (2, 4, 8)  # 256: TD3's layers


def run(device: str) -> list[dict]:
    """Return one row a size, batch and block."""
    return list(measured(device, SIZES, BATCHES, BLOCKS, seconds=5.0))


def measured(
    device: str, sizes: Sequence[int], batches: Sequence[int], blocks: Sequence[int], seconds: float
) -> Iterator[dict]:
    """Yield rows, each size and batch measured for so many seconds; all blocks take turns with the dense product."""
    draw = torch.Generator().manual_seed(0)
    for size in sizes:
        dense = torch.randn(size, size, generator=draw).to(device)
        weights = {
            block: spectrum(torch.randn(size // block, size // block, block, generator=draw).to(device))
            for block in blocks
        }
        for batch in batches:
            x = torch.randn(batch, size, generator=draw).to(device)
            with torch.no_grad():
                rivals = {1: partial(F.linear, x, dense)}
                rivals |= {block: partial(linear, x, weight) for block, weight in weights.items()}
                rivals |= {(block, "bare"): bare(batch, weight) for block, weight in weights.items()}
                times = in_turn(rivals, seconds)
            for block in blocks:
                speedup = times[1] / times[block]
                found = {"dtype": "float32", "size": size, "batch": batch, "block": block, "ms": times[block]}
                found |= {"dense_ms": times[1], "speedup": speedup, "fraction_of_limit": speedup / limit(block)}
                yield found | {"bare_ms": times[block, "bare"]}


def bare(batch: int, weight: Spectrum) -> Callable[[], None]:
    """Make a function of the calls that `linear` cannot do without, on operands of the shapes that they have there."""
    block, (count, rows, columns) = len(weight.transform), weight.real.shape
    like = weight.real
    activations, sums = like.new_zeros(batch * columns, block).mT, like.new_zeros(block, batch * rows)
    real, pairs = like.new_zeros(count, batch, columns), like.new_zeros(len(weight.pairs), batch, 2 * columns)
    parts = [like.new_zeros(some, batch, rows) for some in (count, block - count)]
    to, back, real_weight, pair_weight = weight.transform, weight.transform.mT, weight.real.mT, weight.pairs.mT

    def call() -> None:
        to @ activations
        real @ real_weight
        if len(pairs):
            pairs @ pair_weight
            torch.cat(parts)
        back @ sums

    return call
