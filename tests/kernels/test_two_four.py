"""The compressed format: exact for every type, the paper's first row, and the same bits as torch's own converter."""

from itertools import product

import pytest
import torch
from torch.sparse import _semi_structured_conversions as oracle

from lib import pruners
from lib.base import BadInput
from lib.kernels import storage
from lib.kernels.two_four import DTYPES, compress, decompress, has_pattern


def matrix(rows: int, columns: int, dtype: torch.dtype, seed: int = 0, empty: float = 0.0) -> torch.Tensor:
    """A random 2:4 matrix; a share of the values that the pattern keeps is zero as well."""
    draw = torch.Generator().manual_seed(seed)
    dense = torch.randint(1, 100, (rows, columns), generator=draw) * (-1) ** torch.randint(2, (1,), generator=draw)
    kept = pruners.n_of_m({"w": torch.rand(rows, columns, generator=draw)}, 2, 4)["w"]
    return (dense * kept * (torch.rand(rows, columns, generator=draw) >= empty)).to(dtype)


def by_torch(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and metadata; torch's converter reorders the metadata for CUTLASS, its offsets undo that."""
    values, reordered = oracle.sparse_semi_structured_from_dense_cutlass(weight)
    shape = (len(weight), reordered.shape[1])
    offsets = oracle._calculate_meta_reordering_scatter_offsets(*shape, reordered.dtype, "cpu")
    return values, reordered.reshape(-1).gather(0, offsets).reshape(shape).view(torch.uint8)


def test_the_papers_first_row_has_the_places_it_prints():
    """Figure 1: [[0, 3], [1, 2]], that is 00 11 and 01 10, lowest bits first: 0b10011100."""
    values, metadata = compress(torch.tensor([[4.0, 0.0, 0.0, 3.0, 0.0, -2.0, 5.0, 0.0]]))
    assert values.tolist() == [[4.0, 3.0, -2.0, 5.0]]
    assert metadata.tolist() == [[0b10_01_11_00]]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("empty", [0.0, 0.3, 1.0])
def test_nothing_is_lost(dtype: torch.dtype, empty: float):
    for seed, (rows, columns) in enumerate([(1, 8), (3, 16), (32, 64), (5, 200)]):
        weight = matrix(rows, columns, dtype, seed, empty)
        values, metadata = compress(weight)
        assert values.shape == (rows, columns // 2)
        assert values.dtype == dtype
        assert metadata.shape == (rows, columns // 8)
        assert metadata.dtype == torch.uint8
        assert torch.equal(decompress(values, metadata), weight)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int8], ids=str)
@pytest.mark.parametrize("empty", [0.0, 0.3])
def test_values_and_bits_are_those_of_torchs_converter(dtype: torch.dtype, empty: float):
    weight = matrix(64, 128, dtype, empty=empty)
    theirs, bits = by_torch(weight)
    values, metadata = compress(weight)
    assert torch.equal(values, theirs)
    assert torch.equal(metadata, bits)


def test_all_121_pairs_of_groups_are_stored_as_torchs_converter_stores_them_and_the_other_135_refused():
    """Every case of eight neighbours, one a row; the converter wants rows and columns in multiples of 32."""
    eights = torch.tensor(list(product([0, 1], repeat=8))) * torch.arange(1, 9)
    fits = ((eights[:, :4] != 0).sum(1) <= 2) & ((eights[:, 4:] != 0).sum(1) <= 2)
    assert int(fits.sum()) == 121
    for eight in eights[~fits]:
        with pytest.raises(BadInput, match="not 2:4: row 0, group"):
            compress(eight[None].float())
    weight = torch.zeros(128, 32, dtype=torch.float16)
    weight[:121] = eights[fits].repeat(1, 4)
    theirs, bits = by_torch(weight)
    values, metadata = compress(weight)
    assert torch.equal(values, theirs)
    assert torch.equal(metadata, bits)


def test_negative_zeros_are_zeros_and_what_is_no_number_is_a_value():
    values, metadata = compress(torch.tensor([[-0.0, float("nan"), 3.0, -0.0, 0.0, -0.0, 0.0, 2.0]]))
    assert values[0, 0].isnan()
    assert values[0, 1:].tolist() == [3.0, 0.0, 2.0]
    assert metadata.tolist() == [[0b11_10_10_01]]


def test_a_transposed_matrix_is_read_by_its_rows():
    weight = matrix(16, 24, torch.float32)
    turned = weight.t().contiguous().t()
    assert not turned.is_contiguous()
    assert all(torch.equal(a, b) for a, b in zip(compress(turned), compress(weight), strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_bytes_are_those_of_section_3_1(dtype: torch.dtype):
    """Half of the values and two bits for each of them."""
    values, metadata = compress(matrix(16, 64, dtype))
    bits = storage.bits("two_four", 16, 64, 512, 8 * dtype.itemsize)
    assert 8 * (values.nbytes + metadata.nbytes) == bits


def test_a_matrix_that_is_not_2_4_is_refused_with_its_first_wrong_row_and_group():
    weight = matrix(4, 16, torch.float32)
    weight[2, 4:8] = torch.tensor([1.0, 2.0, 0.0, 3.0])
    weight[3, 0:4] = 1.0
    with pytest.raises(BadInput, match=r"not 2:4: row 2, group 1 holds \[1\.0, 2\.0, 0\.0, 3\.0\]"):
        compress(weight)


@pytest.mark.parametrize(
    "weight", [torch.zeros(8), torch.zeros(2, 12), torch.zeros(2, 8, dtype=torch.float64), torch.zeros(2, 2, 8)]
)
def test_a_wrong_shape_or_type_is_refused(weight: torch.Tensor):
    with pytest.raises(BadInput, match="compress needs a matrix of float32, float16, bfloat16, int8"):
        compress(weight)


def test_what_does_not_belong_together_or_is_damaged_is_refused():
    values, metadata = compress(matrix(2, 16, torch.float32))
    with pytest.raises(BadInput, match="decompress needs values"):
        decompress(values, metadata[:, :1])
    with pytest.raises(BadInput, match="decompress needs values"):
        decompress(values, metadata.int())
    metadata[1, 0] = 0b01_01_10_01
    with pytest.raises(BadInput, match=r"damaged metadata: row 1, group 1 has the places \[1, 1\]"):
        decompress(values, metadata)


@pytest.mark.parametrize(
    ("row", "has"),
    [
        ([1.0, 0.0, 2.0, 0.0], True),
        ([0.0, 0.0, 0.0, 5.0], True),
        ([1.0, 2.0, 3.0, 0.0], False),
        ([0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0], False),
        ([1.0, 0.0, 0.0], False),
    ],
)
def test_the_two_four_pattern_is_recognised(row: list[float], has: bool):
    assert has_pattern(torch.tensor([row])) is has
