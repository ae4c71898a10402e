"""Laws of `lib.kernels.storage`: the paper's numbers, and the bits of matrices that were really encoded."""

import numpy as np
import pytest
from scipy import sparse

from lib.base import BadInput
from lib.kernels.storage import FORMATS, bits, curve, metadata_bits, value_bits_stored


def test_four_elements_in_2_4_take_the_bits_of_section_3_1():
    assert bits("dense", 1, 4, 2, value_bits=16) == 64
    assert bits("two_four", 1, 4, 2, value_bits=16) == 2 * 16 + 2 * 2 == 36  # 44 % less
    assert bits("two_four", 1, 4, 2, value_bits=8) == 2 * 8 + 2 * 2 == 20  # of 32: 38 % less
    assert metadata_bits("two_four", 1, 4, 2) / value_bits_stored("two_four", 1, 4, 2, 16) == 0.125
    assert metadata_bits("two_four", 1, 4, 2) / value_bits_stored("two_four", 1, 4, 2, 8) == 0.25


def test_a_2_4_matrix_with_fewer_values_takes_as_much():
    assert bits("two_four", 8, 16, 3, value_bits=16) == bits("two_four", 8, 16, 64, value_bits=16) == 64 * 18


def test_every_format_counts_the_bits_of_a_matrix_encoded_in_it():
    draw = np.random.default_rng(0)
    matrix = np.where(draw.random((24, 40)) < 0.3, draw.normal(size=(24, 40)), 0).astype(np.float16)
    csr, (rows, columns) = sparse.csr_array(matrix.astype(np.float32)), matrix.nonzero()
    kept = matrix[rows, columns]
    encoded = {
        "dense": [matrix],
        "coo": [kept, rows.astype(np.uint16), columns.astype(np.uint16)],
        "csr": [kept, csr.indices.astype(np.uint16), csr.indptr.astype(np.uint32)],
        "bitmap": [kept, np.packbits(matrix != 0)],
    }
    assert {form: bits(form, 24, 40, len(kept), 16) for form in encoded} == {
        form: 8 * sum(part.nbytes for part in parts) for form, parts in encoded.items()
    }


@pytest.mark.parametrize("form", FORMATS)
def test_the_bits_of_a_matrix_are_its_values_and_its_metadata(form):
    values, metadata = value_bits_stored(form, 6, 8, 10, 8), metadata_bits(form, 6, 8, 10, index_bits=32)
    assert bits(form, 6, 8, 10, value_bits=8, index_bits=32) == values + metadata


@pytest.mark.parametrize("function", [lambda *size: bits(*size, 16), lambda *size: value_bits_stored(*size, 16)])
def test_a_format_or_size_that_cannot_be_is_refused(function):
    with pytest.raises(BadInput, match="format 'ellpack': known are dense, coo, csr, bitmap, two_four"):
        function("ellpack", 4, 4, 2)
    with pytest.raises(BadInput, match="columns in multiples of 4, these are 6"):
        function("two_four", 4, 6, 2)
    with pytest.raises(BadInput, match="17 kept values do not fit the 16 places"):
        function("coo", 4, 4, 17)
    with pytest.raises(BadInput, match="9 kept values do not fit the 8 places"):
        function("two_four", 4, 4, 9)
    with pytest.raises(BadInput, match="-1 kept"):
        function("coo", 4, 4, -1)


def test_no_format_goes_below_the_floor_and_the_entropy_coded_bitmap_comes_nearest_to_it():
    shares = (0.5, 0.75, 0.9, 0.95, 0.99)
    found = curve(64, 256, 16, (0.0, *shares, 1.0)).pivot(index="sparsity", columns="format", values="bits")
    assert set(found) == {*FORMATS, "entropy_coded", "floor"}
    assert (found[list(FORMATS)].ge(found.floor, axis=0) | found[list(FORMATS)].isna()).all().all()
    assert (found.entropy_coded >= found.floor).all()
    assert found.entropy_coded[0.95] <= 1.1 * found.floor[0.95]
    assert (found.entropy_coded[[0.75, 0.9, 0.95, 0.99]] < found.bitmap[[0.75, 0.9, 0.95, 0.99]]).all()
    assert found.two_four.dropna().to_dict() == {0.5: 9.0}  # 36 bits for four weights
    assert found.dense.tolist() == [16.0] * 7
    assert found.loc[1.0, ["coo", "entropy_coded", "floor"]].tolist() == [0.0, 0.0, 0.0]


def test_bytes_are_those_of_the_whole_matrix():
    found = curve(8, 32, 8, [0.5]).set_index("format")
    assert found.bytes.to_dict().items() >= {"dense": 256.0, "bitmap": 128 + 32.0, "two_four": 128 + 32.0}.items()
    assert np.allclose(found.bytes, found.bits * 8 * 32 / 8)


def test_csr_has_an_index_a_value_and_a_pointer_a_row_and_one_more():
    assert metadata_bits("csr", 3, 8, 5, index_bits=8, pointer_bits=16) == 5 * 8 + 4 * 16


def test_an_index_is_as_wide_as_its_axis_asks_for():
    assert metadata_bits("csr", 1, 2**16, 10) == 10 * 16 + 2 * 32
    assert metadata_bits("csr", 1, 2**17, 10) == 10 * 17 + 2 * 32
    assert metadata_bits("coo", 2**18, 8, 10) == 10 * (18 + 16)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: bits("csr", 4, 4, 2, -16), "value_bits=-16: expected a whole number, at least 1"),
        (lambda: bits("dense", 4.5, 4, 2, 16), "rows=4.5: expected a whole number"),
        (lambda: curve(0, 4, 16, [0.5]), "rows=0: expected a whole number, at least 1"),
        (lambda: curve(4, 4, 16, [float("nan")]), "sparsity nan: expected a share of zeros, from 0 to 1"),
    ],
)
def test_what_is_no_matrix_of_numbers_has_no_bits(call, said):
    with pytest.raises(BadInput, match=said):
        call()
