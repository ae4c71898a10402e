"""The lowest values of many and the highest of few: the same as a stable sort, whatever the ties, types and parts."""

import pytest
import torch

from lib.kernels.selection import FEW, all_but_lowest, highest_of_each

KINDS = {
    "many": lambda shape, draw: torch.randn(shape, generator=draw),
    "few": lambda shape, draw: torch.randint(-2, 3, shape, generator=draw).float(),
    "equal": lambda shape, draw: torch.zeros(shape),
    "signs of zero": lambda shape, draw: torch.where(torch.rand(shape, generator=draw) < 0.5, 0.0, -0.0),
    "gone": lambda shape, draw: torch.randn(shape, generator=draw).masked_fill(
        torch.rand(shape, generator=draw) < 0.6, -torch.inf
    ),
}


def sorted_out(parts: list[torch.Tensor], removed: list[int]) -> list[torch.Tensor]:
    """By a stable sort, row by row."""
    pool = torch.cat(parts, dim=1)
    kept = torch.ones_like(pool, dtype=torch.bool)
    for row, count in enumerate(removed):
        kept[row, pool[row].argsort(stable=True)[:count]] = False
    return list(kept.split([part.shape[1] for part in parts], dim=1))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_it_is_a_stable_sort_without_sorting(kind, dtype):
    draw = torch.Generator().manual_seed(0)
    for removed in ([0, 0], [1, 60], [30, 31], [59, 7], [100, 99]):
        parts = [KINDS[kind]((2, width), draw).to(dtype) for width in (1, 60, 39)]
        before = [part.clone() for part in parts]
        found = all_but_lowest(parts, removed)
        assert all(torch.equal(a, b) for a, b in zip(found, sorted_out(parts, removed), strict=True))
        assert all(torch.equal(a, b) for a, b in zip(parts, before, strict=True))


def test_parts_of_different_types_are_compared_without_rounding():
    """In float32 both numbers of the second part would equal the first one's."""
    single = torch.tensor([[1.0]])
    double = torch.tensor([[1 + 1e-12, 1 - 1e-12]], dtype=torch.float64)
    assert [mask.tolist() for mask in all_but_lowest([single, double], [1])] == [[[True]], [[True, False]]]
    assert [mask.tolist() for mask in all_but_lowest([single, double], [2])] == [[[False]], [[True, False]]]


def test_nothing_to_choose_from():
    assert all_but_lowest([torch.ones(2, 0)], [0, 0])[0].shape == (2, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("width", [2, 4, 7, FEW, FEW + 1])
def test_the_highest_of_each_group_are_those_that_pythons_stable_sort_puts_first(kind, dtype, width):
    groups = KINDS[kind]((20, width), torch.Generator().manual_seed(1)).to(dtype)
    for count in {1, width // 2, width - 1}:
        found = highest_of_each(groups, count)
        for group, kept in zip(groups.tolist(), found.tolist(), strict=True):
            first = sorted(range(width), key=lambda place: -group[place])[:count]
            assert [place for place in range(width) if kept[place]] == sorted(first)


def test_no_group_at_all_has_no_highest():
    assert highest_of_each(torch.ones(0, 4), 2).shape == (0, 4)
