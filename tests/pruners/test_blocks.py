"""The tables of blocks: those of the paper's figure, how many coefficients they have, which of them refine others."""

import pytest
import torch

from lib.base import BadInput
from lib.kernels import block_circulant as bc
from lib.pruners import blocks


def test_the_tables_of_figure_4_written_out():
    # [[P, Q], [Q, P]], then [[P, Q], [R, S]] of circulants of two
    assert blocks.friendly(4, 2).tolist() == [[0, 1, 2, 3], [1, 0, 3, 2], [2, 3, 0, 1], [3, 2, 1, 0]]
    assert blocks.within(4, 2).tolist() == [[0, 1, 2, 3], [1, 0, 3, 2], [4, 5, 6, 7], [5, 4, 7, 6]]
    assert blocks.halved(bc.circulant(4)).tolist() == [[0, 3, 2, 1], [1, 0, 3, 2], [6, 5, 4, 7], [7, 6, 5, 4]]


def test_blocks_of_four_have_a_quarter_then_a_half_of_the_coefficients():
    for conversion in blocks.CONVERSIONS[1:]:
        tables = blocks.phases(4, conversion)
        assert [bc.number(table) for table in tables] == [4, 8, 16]
        assert [blocks.group_size(table) for table in tables] == [4, 2, 1]
        assert all((table.flatten().bincount() == blocks.group_size(table)).all() for table in tables)
    assert [blocks.group_size(table) for table in blocks.phases(8)] == [8, 1]
    assert [blocks.group_size(table) for table in blocks.phases(1)] == [1]


def test_only_the_friendly_conversions_refine():
    refined = {name: blocks.refines(*reversed(blocks.phases(4, name)[:2])) for name in blocks.CONVERSIONS}
    assert refined == {
        "none": True,
        "projection": False,  # a 4-circulant (a, b, c, d) is 2-circulant only if b = d
        "block4_friendly_block2": True,
        "block2_friendly_block4": True,
    }
    smaller = blocks.within(4, 2)  # a matrix of it is that of blocks of two
    coefficients = torch.arange(8.0).reshape(1, 1, 8)
    matrix = bc.expand(coefficients, smaller, (4, 4))
    assert torch.equal(bc.expand(bc.project(matrix, bc.circulant(2)), bc.circulant(2), (4, 4)), matrix)


def test_phases_that_there_are_not_are_refused():
    with pytest.raises(BadInput, match="conversion 'half': known are none, projection"):
        blocks.phases(4, "half")
    with pytest.raises(BadInput, match="conversion 'projection' is from block size 4 to 2, this is block=2"):
        blocks.phases(2, "projection")
    for block in (0, 2.0, True):
        with pytest.raises(BadInput, match=f"block={block}: expected a whole number, at least 1"):
            blocks.phases(block)


@pytest.mark.parametrize("table", [blocks.within, blocks.friendly])
def test_smaller_blocks_that_do_not_fill_a_block_are_refused(table):
    with pytest.raises(BadInput, match="blocks of 3 x 3 do not fill one of 4 x 4: give a divisor of 4"):
        table(4, 3)
    with pytest.raises(BadInput, match="block=0: expected a whole number, at least 1"):
        table(4, 0)
