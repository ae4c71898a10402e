"""Every kind of operation that quick results are made of gives the same bits on every processor."""

import pandas as pd
import pytest

from lib.bench import same_bits


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    return pd.read_csv(same_bits.TABLE)


def test_the_processors_in_the_table_agree_kind_by_kind(table: pd.DataFrame):
    assert table.device.nunique() > 1
    counts = table.groupby("kind").hash.nunique()
    assert counts[counts > 1].index.tolist() == []


def test_this_processor_computes_each_kind_as_the_table_has_it(table: pd.DataFrame):
    found = {row["kind"]: row["hash"] for row in same_bits.run("cpu")}
    assert set(found) == set(table.kind)
    assert same_bits.differing(found, table) == []


def test_a_kind_that_differs_is_named(table: pd.DataFrame):
    found = dict(zip(table.kind, table.hash, strict=True))
    assert same_bits.differing(found | {"torch sqrt": "000000000000"}, table) == ["torch sqrt"]
    assert same_bits.differing(found, table) == []


def test_a_hash_tells_the_last_bit():
    values = same_bits.numbers(4, 3)
    other = values.copy()
    other[3, 2] = same_bits.np.nextafter(other[3, 2], same_bits.np.float32(2))
    assert same_bits.digest([values]) != same_bits.digest([other])
    assert (values >= -1).all()
    assert (values < 1).all()
    assert abs(same_bits.numbers(10_000).mean()) < 0.02
