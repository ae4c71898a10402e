"""The benchmark of products: rows that say what they are, limits by hand, failures told. No time is asserted."""

import pandas as pd
import pytest
import torch

from lib.bench import two_four_gemm as gemm
from lib.bench.two_four_gemm import COLUMNS, SPARSITIES, compare, gpu_rivals, half_of, limit, on_cpu
from lib.kernels.two_four import has_pattern


def test_a_processors_rows_hold_every_rival_and_the_dense_product_is_its_own():
    table = pd.DataFrame(on_cpu(((16, 32),), (1, 3), seconds=0))
    assert sorted(table) == sorted(COLUMNS)
    for n in (1, 3):
        rows = table[table.n == n]
        ways = list(zip(rows.backend, rows["dtype"], rows.pattern, strict=True))
        assert ways[:3] == [("dense", dtype, "dense") for dtype in ("float32", "bfloat16", "int8")]
        assert ways[3:5] == [("select", "float32", "2:4"), ("dense", "float32", "2:4")]
        assert ways[5:] == [("csr", "float32", "unstructured")] * len(SPARSITIES)
        assert rows.sparsity.tolist() == [0, 0, 0, 0.5, 0.5, *SPARSITIES]
        assert rows.speedup.iloc[0] == rows.fraction_of_limit.iloc[0] == 1
        assert rows.dense_ms.nunique() == 1
        assert ((rows.speedup - rows.dense_ms / rows.ms).abs() < 1e-9).all()
        assert (rows.speedup_low <= rows.speedup_high).all()
    assert (table.m == 16).all()
    assert (table.k == 32).all()


@pytest.mark.parametrize(
    ("pattern", "sparsity", "dtype", "n", "dense_bits", "expected"),
    [
        ("2:4", 0.5, "float32", 64, 32, 2),  # half of the multiplications
        ("2:4", 0.5, "int8", 64, 8, 2),
        ("2:4", 0.5, "float32", 1, 32, 128 / (2 * 32 + 4)),  # 1.88: four weights in 68 of 128 bits
        ("2:4", 0.5, "float16", 1, 16, 64 / 36),  # 1.78
        ("2:4", 0.5, "int8", 1, 8, 32 / 20),  # 1.60
        ("dense", 0.0, "int8", 64, 32, 4),  # four narrow operands for a wide one
        ("dense", 0.0, "bfloat16", 1, 32, 2),
        ("unstructured", 0.75, "float32", 8, 32, 4),
        ("unstructured", 0.75, "float32", 1, 32, 64 * 64 * 32 / (1024 * 64 + 65 * 32)),  # values, indices, row pointers
    ],
)
def test_the_limit_is_operations_or_for_one_column_bytes(pattern, sparsity, dtype, n, dense_bits, expected):
    row = {"pattern": pattern, "sparsity": sparsity, "dtype": dtype, "m": 64, "n": n, "k": 64}
    assert limit(row, dense_bits) == pytest.approx(expected)


def test_a_product_that_fails_says_why_and_the_others_are_still_timed():
    def broken() -> None:
        raise RuntimeError("no kernel\nfor this   shape")

    rivals = {("dense", "int8", "dense", 0.0): lambda: None, ("cutlass", "int8", "2:4", 0.5): broken}
    dense, failed = compare(rivals, 4, 2, 8, seconds=0)
    assert dense["speedup"] == 1
    assert failed["backend"] == "cutlass failed: no kernel for this shape"
    assert failed["ms"] is None
    assert "speedup" not in failed
    rivals = {("dense", "int8", "dense", 0.0): broken, ("cutlass", "int8", "2:4", 0.5): lambda: None}
    dense, alone = compare(rivals, 4, 2, 8, seconds=0)
    assert dense["backend"] == "dense failed: no kernel for this shape"
    assert alone["ms"] > 0
    assert alone["dense_ms"] is None
    assert "speedup" not in alone


@pytest.mark.parametrize("dtype", gemm.GPU_TYPES, ids=str)
def test_a_gpus_rivals_multiply_the_same_numbers(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype):
    """Every way computed densely, on a CPU, from a weight that pruning does not change: it is one product."""
    any_values = gemm.random
    monkeypatch.setattr(gemm, "random", lambda *about: half_of(any_values(*about)))
    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cusparselt, "version", lambda: 802)
    dense = gemm.two_four.compressed
    monkeypatch.setattr(gemm.two_four, "compressed", lambda weight, way: dense(weight, "dense"))
    rivals = gpu_rivals(dtype, 32, 5, 64, device="cpu")
    assert [key[0] for key in rivals] == ["dense", "cusparselt 802", "cusparselt 802 searched", "cutlass"]
    expected, *others = (call() for call in rivals.values())
    assert all(torch.equal(found, expected) for found in others)


@pytest.mark.parametrize("dtype", [torch.float32, *gemm.GPU_TYPES], ids=str)
def test_half_of_a_weight_is_2_4_and_keeps_its_largest(dtype: torch.dtype):
    torch.manual_seed(0)
    weight = gemm.random(6, 16, dtype, "cpu")
    half = half_of(weight)
    assert half.dtype == dtype
    assert has_pattern(half)
    assert half.float().abs().sum() > weight.float().abs().sum() / 2


def test_figure_3s_products_and_losing_ones_are_among_the_gpus():
    assert [k for m, n, k in gemm.GPU_LARGE if m == n == 10240][::7] == [512, 20480]
    assert any(n == 1 for _, n, _ in gemm.GPU_SMALL)
    assert all(m % 32 == k % 128 == 0 for m, _, k in gemm.GPU_LARGE + gemm.GPU_TRANSFORMERS + gemm.GPU_SMALL)
