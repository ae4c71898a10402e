"""Say which weights of a block share a coefficient (paper 5): the tables of blocks, their refinements, their phases.

A table [B, B] holds, at each place of a block, the number of the coefficient that stands there. `lib.pruners.groups`
puts tables into layers.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lib.base import BadInput, refuse_uncounted
from lib.kernels.block_circulant import circulant, number

CONVERSIONS = ("none", "projection", "block4_friendly_block2", "block2_friendly_block4")


def single(block: int) -> Tensor:
    """Make every weight of the block its own coefficient: [B, B].

    Raises:
        BadInput: a size that is no whole number, or below 1.
    """
    refuse_uncounted(block=block)
    return torch.arange(block**2).reshape(block, block)


def within(block: int, inner: int) -> Tensor:
    """Put blocks of a smaller size into one of B x B: circulants of `inner` x `inner`, each with coefficients of its
    own.

    Raises:
        BadInput: sizes that are no whole numbers above 0, or of which the smaller does not divide the larger.
    """
    repeated, outer = _inner(block, inner), torch.arange(block) // inner
    return (outer[:, None] * (block // inner) + outer) * inner + repeated


def friendly(block: int, inner: int) -> Tensor:
    """Make smaller circulants, which themselves repeat as in a circulant: "block2 friendly block4" is [[P, Q], [Q, P]].

    It has as few coefficients as a circulant of its size, and its groups consist of whole groups of `within`.

    Raises:
        BadInput: as `within`.
    """
    repeated, outer = _inner(block, inner), torch.arange(block) // inner
    return (outer[:, None] - outer) % (block // inner) * inner + repeated


def halved(table: Tensor) -> Tensor:
    """Cut each group of a block in two, those in its upper and those in its lower half ("block4 friendly block2").

    Raises:
        BadInput: a group has nothing in one of the halves, as each has in a block of one.
    """
    lower = torch.arange(len(table)) >= len(table) // 2
    cut = table + number(table) * lower[:, None]
    if len(cut.unique()) < 2 * number(table):
        raise BadInput(f"a group of blocks of {len(table)} lies in one half alone, so that it cannot be cut in two")
    return cut


def _inner(block: int, inner: int) -> Tensor:
    table = circulant(inner)
    refuse_uncounted(block=block)
    if block % inner:
        raise BadInput(f"blocks of {inner} x {inner} do not fill one of {block} x {block}: give a divisor of {block}")
    return table.repeat(block // inner, block // inner)


def refines(fine: Tensor, coarse: Tensor) -> bool:
    """Say whether each group of one table lies within a group of another, so that a change to it changes no value."""
    pairs = torch.stack([fine.flatten(), coarse.flatten()], 1).unique(dim=0)
    return len(pairs) == number(fine)


def check_phases(block: int, conversion: str) -> None:
    """Refuse what has no phases; settings are checked by it before anything is computed.

    Raises:
        BadInput: a block size below 1, an unknown conversion, or one of another block size than 4.
    """
    refuse_uncounted(block=block)
    if conversion not in CONVERSIONS:
        raise BadInput(f"conversion {conversion!r}: known are {', '.join(CONVERSIONS)}")
    if conversion != "none" and block != 4:
        raise BadInput(f"conversion {conversion!r} is from block size 4 to 2, this is block={block}")


def phases(block: int, conversion: str = "none") -> list[Tensor]:
    """List the tables of Algorithm 1 in their order, the last one's weights all single; with a conversion three.

    The three conversions are those of section 3.3 and figure 4, which are from B = 4 to 2. Of "block4 friendly block2"
    figure 4 does not say which halves are meant; here they are the upper and the lower rows.

    Raises:
        BadInput: an unknown conversion, or one of another block size than 4.
    """
    check_phases(block, conversion)
    full = circulant(block)
    if conversion == "none":
        return [full, single(block)] if block > 1 else [full]
    return {
        "projection": [full, within(4, 2), single(4)],
        "block4_friendly_block2": [full, halved(full), single(4)],
        "block2_friendly_block4": [friendly(4, 2), within(4, 2), single(4)],
    }[conversion]


def group_size(table: Tensor) -> int:
    """Count how many weights share a coefficient: B of a circulant, 1 of single weights."""
    return table.shape[-1] ** 2 // number(table)
