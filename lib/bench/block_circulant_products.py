"""Time products with block-circulant weights (paper 5): by a real transform over the block, against the dense product.

The rival is torch's dense product of the same size, [batch, size] times [size, size]. fraction_of_limit is the speed-up
relative to how many times fewer multiplications the product takes (`block_circulant.limit`). Weights are transformed
beforehand, once, as for inference; activations are transformed within what is timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from torch.nn import functional as F

from lib.kernels.block_circulant import limit, linear, spectrum
from lib.kernels.timing import in_turn

COLUMNS = ("dtype", "size", "batch", "block", "ms", "dense_ms", "speedup", "fraction_of_limit")
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
                times = in_turn(rivals, seconds)
            for block in blocks:
                speedup = times[1] / times[block]
                found = {"dtype": "float32", "size": size, "batch": batch, "block": block, "ms": times[block]}
                found |= {"dense_ms": times[1], "speedup": speedup, "fraction_of_limit": speedup / limit(block)}
                yield found
