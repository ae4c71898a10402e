"""The storage numbers that paper 2 prints in section 3.1, and what they do not depend on."""

import pytest

from lib.base import BadInput
from lib.papers.two_four import measures


@pytest.mark.parametrize(
    ("form", "bits", "percent"),
    [
        ("dense", 16, 0.0),
        ("two_four", 16, 43.75),  # half the values, and 2 bits for each: 1 - (16 + 2) / (2 * 16); printed as 44 %
        ("two_four", 8, 37.5),  # 1 - (8 + 2) / (2 * 8); printed as 38 %
        ("two_four", 32, 46.875),
        ("bitmap", 16, 43.75),
        ("coo", 16, -50.0),  # two 16-bit indices a value: three times half the values
    ],
)
def test_what_a_half_empty_matrix_saves(form: str, bits: int, percent: float):
    assert measures.saved(form, bits) == percent


@pytest.mark.parametrize(
    ("form", "bits", "percent"),
    [("dense", 8, 0.0), ("two_four", 16, 12.5), ("two_four", 8, 25.0), ("csr", 8, 200.0), ("csr", 16, 100.0)],
)
def test_what_the_metadata_add_to_the_values(form: str, bits: int, percent: float):
    assert measures.overhead(form, bits) == percent


def test_the_row_pointers_of_csr_count_as_saved_storage_but_not_as_overhead_a_value():
    # 4 x 8, half kept: 16 values of 8 bits and their 16-bit indices, 5 pointers of 32 bits, against 32 values of 8 bits
    assert measures.saved("csr", 8, rows=4, columns=8) == 100 * (1 - (16 * 8 + 16 * 16 + 5 * 32) / (32 * 8))
    assert measures.overhead("csr", 8, rows=4, columns=8) == 200.0


def test_the_shares_of_two_four_do_not_depend_on_the_matrix():
    shapes = [(1, 4), (3, 8), (1024, 4096)]
    assert {measures.saved("two_four", 16, *shape) for shape in shapes} == {43.75}
    assert {measures.overhead("two_four", 16, *shape) for shape in shapes} == {12.5}


def test_an_unknown_format_is_refused():
    with pytest.raises(BadInput, match="format 'csc': known are dense, coo, csr, bitmap, two_four"):
        measures.saved("csc", 16)
