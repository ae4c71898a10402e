"""The benchmark of block-circulant products: rows that say what they are. No time is asserted."""

import pandas as pd
import pytest

from lib.bench.block_circulant_products import COLUMNS, measured


def test_each_row_has_its_speedup_and_its_share_of_the_limit():
    table = pd.DataFrame(measured("cpu", (16, 32), (1, 3), (2, 4, 8), seconds=0))
    assert tuple(table) == COLUMNS
    keys = list(zip(table["size"], table.batch, table.block, strict=True))
    assert keys == [(size, batch, block) for size in (16, 32) for batch in (1, 3) for block in (2, 4, 8)]
    assert table.speedup.tolist() == pytest.approx((table.dense_ms / table.ms).tolist())
    limits = (table.speedup / table.fraction_of_limit).groupby(table.block).unique()
    for block, expected in {2: 2, 4: 16 / 6, 8: 64 / 14}.items():
        assert limits[block].tolist() == pytest.approx([expected] * len(limits[block]))
