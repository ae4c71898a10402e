"""Select the lowest values of many, or the highest of each few, ties in order, without sorting them.

Sorting n numbers stably takes their places along, 8 bytes each and more for the sort itself. Here a copy of the numbers
is reordered in place until the k-th lowest stands in its place; what is below it goes, and of what equals it the first.
Of few numbers it is quicker to compare each with each.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

FEW = 32  # counting takes less time than sorting up to so many (measured)


@torch.no_grad()
def all_but_lowest(parts: Sequence[Tensor], removed: Sequence[int]) -> list[Tensor]:
    """True for all but so many of the lowest values of each row; among equal values those that come first are False.

    The same, bit for bit, as a stable argsort of the parts' rows laid end to end, whose first places are False. Beside
    parts and result it takes memory for one copy of the values.

    Args:
        parts: tensors [rows, any], without NaN; the row of one continues that of the one before.
        removed: how many of each row are False.
    """
    pool = torch.cat(list(parts), dim=1)
    if not pool.numel():
        return [torch.ones_like(part, dtype=torch.bool) for part in parts]
    thresholds = [_value_at(row, max(count - 1, 0)) for row, count in zip(pool, removed, strict=True)]
    kind = pool.dtype
    del pool
    kept = []
    for row, (threshold, count) in enumerate(zip(thresholds, removed, strict=True)):
        pieces = [part[row].to(kind) for part in parts]
        masks = [piece > threshold for piece in pieces]
        equal_to_go = count - sum(int((piece < threshold).count_nonzero()) for piece in pieces)
        for piece, mask in zip(pieces, masks, strict=True):
            equal = piece == threshold
            count_here = int(equal.count_nonzero())
            if equal_to_go < count_here:  # of the equal ones the last stay
                start = _after(equal, equal_to_go)
                mask[start:] |= equal[start:]
            equal_to_go = max(equal_to_go - count_here, 0)
        kept.append(masks)
    if len(kept) == 1:
        return [mask.unsqueeze(0) for mask in kept[0]]
    return [torch.stack(masks) for masks in zip(*kept, strict=True)]


@torch.no_grad()
def highest_of_each(groups: Tensor, count: int) -> Tensor:
    """True for so many of the highest values of each row; among equal values those that come first are True.

    A value's rank is how many others come before it: each pair of columns is compared once, over all rows at a time.

    Args:
        groups: [rows, columns], without NaN.
    """
    rows, width = groups.shape
    if width > FEW:
        first = groups.argsort(dim=1, descending=True, stable=True)[:, :count]
        return torch.zeros_like(groups, dtype=torch.bool).scatter_(1, first, True)
    columns = groups.t().contiguous()
    rank = torch.arange(width, dtype=torch.uint8, device=groups.device)[:, None].repeat(1, rows)  # if all were equal
    for apart in range(1, width):
        later_first = (columns[apart:] > columns[:-apart]).view(torch.uint8)
        rank[:-apart] += later_first
        rank[apart:] -= later_first
    return (rank < count).t()


def _value_at(row: Tensor, place: int) -> Tensor:
    """The value that would stand at a place if the row were sorted; a row on a CPU is reordered in place."""
    if row.device.type != "cpu":
        return row.kthvalue(place + 1).values
    values = row if row.dtype != torch.bfloat16 else row.float()  # NumPy knows no bfloat16, float32 holds it exactly
    values.numpy().partition(place)
    return values[place].to(row.dtype).clone()  # a view would keep the whole row in memory


def _after(marks: Tensor, count: int) -> int:
    """The first place by which so many of the marks have passed, by halving."""
    start, end = 0, len(marks)
    if count == 0:
        return 0
    while end - start > 1:
        middle = (start + end) // 2
        passed = int(marks[start:middle].count_nonzero())
        if passed >= count:
            end = middle
        else:
            start, count = middle, count - passed
    return end
