"""The benchmark of one-shot pruning gives a row a pattern and method, and ratios that belong to its times."""

from lib.bench import one_shot_layers as one_shot


def test_a_small_weight_gives_a_row_for_each_method_and_pattern():
    rows = one_shot.measured(side=128, inputs=64, seconds=0.0)
    assert [(row["pattern"], row["method"]) for row in rows] == [
        (pattern, method)
        for pattern in ("2:4", "4:8", "50 %")
        for method in ("magnitude", "Wanda", "SparseGPT", "moments")
    ]
    for row in rows:
        assert set(row) == set(one_shot.COLUMNS)
        assert row["ms"] > 0
    for first in range(0, len(rows), 4):
        assert rows[first]["ratio_to_magnitude"] == 1
        assert rows[first + 2]["ratio_to_magnitude"] == rows[first + 2]["ms"] / rows[first]["ms"]
