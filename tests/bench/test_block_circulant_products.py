"""The benchmark of block-circulant products: rows that say what they are. No time is asserted."""

import pandas as pd
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from lib.bench.block_circulant_products import COLUMNS, bare, measured
from lib.kernels.block_circulant import linear, spectrum


class Products(TorchDispatchMode):
    """Notes the shapes of all that is multiplied or put together."""

    def __init__(self):
        super().__init__()
        self.shapes: list[tuple] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if (name := func.overloadpacket.__name__) in ("mm", "bmm"):
            self.shapes.append((name, *(tuple(factor.shape) for factor in args)))
        elif name == "cat":
            self.shapes.append((name, *(tuple(part.shape) for part in args[0])))
        return func(*args, **(kwargs or {}))


def test_each_row_has_its_speedup_and_its_share_of_the_limit():
    table = pd.DataFrame(measured("cpu", (16, 32), (1, 3), (2, 4, 8), seconds=0))
    assert tuple(table) == COLUMNS
    keys = list(zip(table["size"], table.batch, table.block, strict=True))
    assert keys == [(size, batch, block) for size in (16, 32) for batch in (1, 3) for block in (2, 4, 8)]
    assert table.speedup.tolist() == pytest.approx((table.dense_ms / table.ms).tolist())
    limits = (table.speedup / table.fraction_of_limit).groupby(table.block).unique()
    for block, expected in {2: 2, 4: 16 / 6, 8: 64 / 14}.items():
        assert limits[block].tolist() == pytest.approx([expected] * len(limits[block]))


@pytest.mark.parametrize("block", [2, 4, 8])
def test_the_bare_calls_are_those_of_the_product(block: int):
    weight = spectrum(torch.randn(3, 5, block))
    with Products() as whole:
        linear(torch.randn(7, 5 * block), weight)
    with Products() as alone:
        bare(7, weight)()
    assert alone.shapes == whole.shapes
    assert len(alone.shapes) == (3 if block == 2 else 5)
