"""The benchmark of formats: its rivals find what ours finds, and each row says what was timed. No time is asserted."""

import torch

from lib.bench import formats
from lib.kernels.two_four import decompress


def test_rivals_find_the_same():
    for (operation, _), rivals in formats.rivals_of(64).items():
        ours, *others = (call() for call in rivals.values())
        if operation == "n_of_m":
            assert all(torch.equal(ours["w"], other) for other in others)
        elif operation == "unpack":
            assert all(torch.equal(ours.flatten(), other) for other in others)
        else:
            by_torch, by_numpy = others
            assert torch.equal(ours[0], by_torch[0])
            for mine, other in zip(ours, by_numpy, strict=True):
                assert mine.numpy().tobytes() == other.tobytes()
            assert int((decompress(*ours) != 0).sum()) > 0.4 * 64 * 64  # a whole weight, not a corner of it


def test_a_row_names_its_operation_and_a_ratio_that_belongs_to_its_time():
    rows = list(formats.measured(64, seconds=0))
    assert all(tuple(row) == formats.COLUMNS for row in rows)
    keys = {(row["operation"], row["kind"]): row["ms"] for row in rows if row["method"] == "ours"}
    assert len(keys) == len(formats.TYPES) + len(formats.PATTERNS) + len(formats.SPARSITIES)
    for row in rows:
        assert row["ratio_to_ours"] == row["ms"] / keys[row["operation"], row["kind"]]
        assert row["weights"] == 64 * 64
    assert {row["method"] for row in rows} == {"ours", "torch", "NumPy", "topk", "zlib"}
