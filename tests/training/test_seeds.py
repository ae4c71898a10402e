"""Laws of `lib.training.seeds`: other numbers give other streams, and what is no number is refused."""

import pytest

from lib.base import BadInput
from lib.training.seeds import seed_of


def test_other_numbers_give_other_seeds_and_the_same_the_same():
    parts = [(0,), (0, 0), (0, 0, 0), (1,), (1, 0), (0, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1), (2,)]
    seeds = [seed_of(*part) for part in parts]
    assert len(set(seeds)) == len(parts)
    assert seeds == [seed_of(*part) for part in parts]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_a_seed_below_0_is_refused_in_one_line():
    for parts, told in (((-1, 2), "-1, 2"), ((1.5,), "1.5"), ((), "none")):
        with pytest.raises(BadInput, match=f"seeds are whole numbers from 0 on, these are {told}"):
            seed_of(*parts)
