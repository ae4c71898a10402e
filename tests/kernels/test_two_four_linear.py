"""Products with a compressed weight: what figure 2 draws, on every back end, for sizes that fit and sizes that do not.

What only a GPU can do is replaced by torch's own converters of its layout, which run on a CPU: they accept no size that
the kernels would refuse. The last test runs on a GPU.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.sparse import _semi_structured_conversions as oracle

from lib import pruners
from lib.base import BadInput
from lib.kernels import two_four
from lib.kernels.two_four import CORES_TAKE, DTYPES, LARGE, Compressed, backend, compressed, linear, multiples, searched

SIZES = [(1, 8, 1), (5, 6, 3), (32, 64, 8), (33, 70, 9), (20, 200, 1)]  # rows, columns of the weight, activations
TOLERANCE = {torch.float32: 1e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.int8: 0}


def example(rows: int, columns: int, n: int, dtype: torch.dtype, empty: float = 0.2) -> tuple[Tensor, Tensor]:
    """A 2:4 weight, some of its kept places empty, and activations."""
    draw = torch.Generator().manual_seed(rows + columns + n)
    wide = -(-columns // 4) * 4
    kept = pruners.n_of_m({"w": torch.rand(rows, wide, generator=draw)})["w"][:, :columns]
    kept &= torch.rand(rows, columns, generator=draw) >= empty
    weight, x = (torch.randint(-127, 128, size, generator=draw) for size in ((rows, columns), (n, columns)))
    scale = 1 if dtype == torch.int8 else 100
    return (x / scale).to(dtype), (weight * kept / scale).to(dtype)


def one_by_one(x: Tensor, values: Tensor, metadata: Tensor) -> Tensor:
    """Figure 2, a multiplication at a time: value j of a row meets activation 4 * (j // 2) + its place."""
    out = torch.zeros(len(x), len(values), dtype=torch.float64)
    for n in range(len(x)):
        for row in range(len(values)):
            for j in range(values.shape[1]):
                column = 4 * (j // 2) + (int(metadata[row, j // 4]) >> 2 * (j % 4) & 3)
                if column < x.shape[1]:
                    out[n, row] += float(values[row, j]) * float(x[n, column])
    return out


def near(found: Tensor, expected: Tensor, dtype: torch.dtype) -> bool:
    return bool((found.double() - expected).norm() <= TOLERANCE[dtype] * expected.norm())


def test_the_weight_of_figure_1_times_activations_by_hand():
    weight = compressed(torch.tensor([[4.0, 0.0, 0.0, 3.0, 0.0, -2.0, 5.0, 0.0]]))
    x = torch.tensor([[1.0, 10.0, 10.0, 2.0, 10.0, 3.0, 4.0, 10.0]])
    for way in ("dense", "select"):
        assert linear(x, replace(weight, backend=way)).tolist() == [[4 * 1 + 3 * 2 - 2 * 3 + 5 * 4]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("rows", "columns", "n"), SIZES)
def test_every_back_end_of_a_cpu_sums_what_figure_2_sums(dtype: torch.dtype, rows: int, columns: int, n: int):
    x, weight = example(rows, columns, n, dtype)
    packed = compressed(weight)
    expected = one_by_one(x, packed.values, packed.metadata)
    assert torch.allclose(expected, x.double() @ weight.double().t())
    for way in ("", "dense", "select") if dtype == torch.float32 else ("", "dense"):
        found = linear(x, compressed(weight, way))
        assert found.shape == (n, rows)
        assert found.dtype == (torch.int32 if dtype == torch.int8 else dtype)
        assert near(found, expected, dtype)


def test_other_axes_stay_and_a_bias_is_added():
    x, weight = example(5, 16, 6, torch.float32)
    bias = torch.arange(5.0)
    packed = compressed(torch.nn.Parameter(weight), "select")
    assert not packed.values.requires_grad
    found = linear(x.reshape(2, 3, 16), packed, bias)
    assert found.shape == (2, 3, 5)
    assert torch.allclose(found.reshape(6, 5), x @ weight.t() + bias, atol=1e-5)
    assert linear(x[0], compressed(weight)).shape == (5,)


def test_int8_sums_do_not_overflow():
    weight = torch.tensor([[127, 127, 0, 0]], dtype=torch.int8).repeat(3, 1000)
    x = torch.full((2, 4000), -127, dtype=torch.int8)
    assert linear(x, compressed(weight)).tolist() == [[-127 * 127 * 2000] * 3] * 2


def test_what_a_back_end_multiplies_with_is_built_once():
    weight = compressed(example(8, 16, 1, torch.float32)[1])
    assert weight.dense is weight.dense
    assert weight.by_column is weight.by_column


def test_on_a_cpu_zeros_are_skipped_only_where_that_was_measured_to_pay():
    assert torch.get_num_threads() == 1
    assert backend(torch.float32, "cpu", rows=1, weights=LARGE) == "select"
    for other in ({"rows": 2}, {"weights": LARGE - 1}, {"dtype": torch.float16}):
        about = {"dtype": torch.float32, "rows": 1, "weights": LARGE} | other
        assert backend(device="cpu", **about) == "dense"
    torch.set_num_threads(2)
    try:
        assert backend(torch.float32, "cpu", rows=1, weights=LARGE) == "dense"
    finally:
        torch.set_num_threads(1)


def test_a_large_weight_takes_the_product_that_skips(monkeypatch: pytest.MonkeyPatch):
    x, weight = example(8, 16, 1, torch.float32)
    monkeypatch.setattr(two_four, "LARGE", 8 * 16)
    called = []
    monkeypatch.setattr(two_four, "_select", lambda x, weight: called.append(len(x)) or x @ weight.dense.t())
    linear(x, compressed(weight))
    linear(x, compressed(weight[:7]))
    assert called == [1]


@pytest.mark.parametrize("way", ["cusparselt", "cutlass"])
def test_on_a_gpu_cusparselt_is_taken_where_torch_has_it(monkeypatch: pytest.MonkeyPatch, way: str):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda: way == "cusparselt")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert [backend(dtype, "cuda") for dtype in CORES_TAKE] == [way] * 3
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    with pytest.raises(BadInput, match=r"came with compute capability 8\.0 \(Ampere\), this GPU has \(7, 5\)"):
        backend(torch.float16, "cuda")


def test_the_multiples_are_those_of_nvidias_kernels():
    found = {(name, dtype): multiples(name, dtype) for name in two_four.SPARSE_CORES for dtype in CORES_TAKE}
    half, cutlass = [torch.float16, torch.bfloat16], {("cutlass", torch.int8): (16, 128, 16)}
    cusparselt = {("cusparselt", torch.int8): (32, 32, 16)} | {("cusparselt", kind): (16, 16, 8) for kind in half}
    assert found == cutlass | {("cutlass", kind): (32, 64, 8) for kind in half} | cusparselt


class Converted:
    """In place of torch's class for GPUs: its layout, made and undone by its converters, which check the sizes too."""

    def __init__(self, name: str, used: list):
        self._DTYPE_SHAPE_CONSTRAINTS = two_four.SPARSE_CORES[name]._DTYPE_SHAPE_CONSTRAINTS
        self.used = used

    def from_dense(self, weight: Tensor, alg_id: int):
        rows, columns, *_ = self._DTYPE_SHAPE_CONSTRAINTS[weight.dtype]
        assert weight.is_contiguous()
        assert (weight.shape[0] % rows, weight.shape[1] % columns) == (0, 0)
        self.used.append(alg_id)
        whole = two_four.padded(weight, 32, 128)  # which the converters need for whatever type
        packed, meta = oracle.sparse_semi_structured_from_dense_cutlass(whole)
        back = oracle.sparse_semi_structured_to_dense_cutlass(packed, meta)[: len(weight), : weight.shape[1]]
        return back if weight.dtype != torch.int8 else SimpleNamespace(packed=back, meta=None)

    def product(self, weight: Tensor, x: Tensor) -> Tensor:
        """An int8 product on a GPU: the sum of int8 values as int32, of sizes that fit."""
        *_, columns, _ = self._DTYPE_SHAPE_CONSTRAINTS[torch.int8]
        assert x.shape[1] % columns == 0
        assert x.t().is_contiguous()  # the only layout of activations that int8 kernels take
        return weight.int() @ x.int()


@pytest.mark.parametrize("name", ["cusparselt", "cutlass"])
@pytest.mark.parametrize("dtype", CORES_TAKE, ids=str)
def test_sizes_that_do_not_fit_a_gpu_are_padded_and_cut(monkeypatch: pytest.MonkeyPatch, name: str, dtype: torch.dtype):
    used: list[int] = []
    fake = Converted(name, used)
    monkeypatch.setitem(two_four.SPARSE_CORES, name, fake)
    monkeypatch.setattr(torch, "_cslt_sparse_mm", lambda packed, x, **_: fake.product(packed, x))
    monkeypatch.setattr(torch, "_sparse_semi_structured_mm", lambda packed, meta, x, **_: fake.product(packed, x))
    for rows, columns, n in SIZES:
        x, weight = example(rows, columns, n, dtype)
        here = compressed(weight)
        packed = Compressed(here.values, here.metadata, columns, backend=name, algorithm=3)
        for _ in range(2):
            found = linear(x, packed)
            assert found.shape == (n, rows)
            assert near(found, x.double() @ weight.double().t(), dtype)
    assert used == [3] * len(SIZES)  # built once, with cuSPARSELt's kernel


def test_only_cusparselt_has_kernels_to_search_among():
    x, weight = example(8, 16, 1, torch.float32)
    packed = compressed(weight)
    assert searched(x, packed) is packed


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_types_that_no_gpu_takes_are_refused_with_the_multiples(monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype):
    for there, half, byte in ((True, "16 x 16", "32 x 32"), (False, "32 x 64", "16 x 128")):
        monkeypatch.setattr(torch.backends.cusparselt, "is_available", lambda there=there: there)
        with pytest.raises(BadInput) as error:
            backend(dtype, "cuda")
        line = str(error.value)
        assert f"no 2:4 product of {dtype} on cuda" in line
        assert f"multiples of {half}) and int8 ({byte})" in line
        assert "TF32 with the pattern 1:2" in line
        assert "\n" not in line
    for device, kind in (("cpu", torch.float64), ("mps", torch.float16)):
        with pytest.raises(BadInput, match=f"no 2:4 product of {kind} on {device}"):
            backend(kind, device)


def test_activations_and_back_ends_that_do_not_fit_the_weight_are_refused():
    x, weight = example(8, 16, 2, torch.float32)
    wanted = r"this weight multiplies activations \[\.\.\., 16\] of torch\.float32 on cpu, these are "
    for wrong in (x[:, :15], x.half(), torch.tensor(1.0)):
        with pytest.raises(BadInput, match=wanted):
            linear(wrong, compressed(weight))
    takes = "dense takes float32, float16, bfloat16 and int8, select float32"
    for kind, way in ((torch.float32, "cublas"), (torch.float16, "select"), (torch.float16, "cutlass")):
        with pytest.raises(BadInput, match=f"no back end '{way}' for {kind} on cpu: {takes}"):
            compressed(weight.to(kind), way)
    with pytest.raises(BadInput, match=f"no back end for torch.float64 on cpu: {takes}"):
        compressed(weight.double())
    with pytest.raises(BadInput, match="not 2:4: row 0, group 0"):
        compressed(torch.ones(2, 6))
    with pytest.raises(BadInput, match="compress needs a matrix"):
        compressed(torch.zeros(2, 2, 8))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU with sparse tensor cores")
@pytest.mark.parametrize("dtype", CORES_TAKE, ids=str)
@pytest.mark.parametrize(("rows", "columns", "n"), SIZES)
def test_sparse_tensor_cores_sum_what_figure_2_sums(dtype: torch.dtype, rows: int, columns: int, n: int):
    x, weight = example(rows, columns, n, dtype)
    packed = compressed(weight.cuda())
    expected = x.double() @ weight.double().t()
    for ready in (packed, searched(x.cuda(), packed)):
        found = linear(x.cuda(), ready).cpu()
        assert found.shape == (n, rows)
        assert near(found, expected, dtype)
