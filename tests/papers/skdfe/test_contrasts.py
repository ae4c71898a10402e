"""A law of contrasts between systems: averaging independent systems narrows an interval by the root of their number."""

import math

import numpy as np
import pandas as pd
import pytest

from lib.papers.skdfe import measures

NAMES = ["a", "b", "c", "d"]


def half(errors, contrast):
    found = measures.log_interval(errors, contrast)
    return (found.high - found.low) / 2


def of(values):
    """Errors [system, seed, draw] as `log_interval` takes them."""
    index = pd.MultiIndex.from_product([NAMES, range(values.shape[1])], names=["system", "seed"])
    return pd.DataFrame(values.reshape(-1, values.shape[2]), index=index)


def test_with_equal_spread_over_seeds_two_against_two_is_narrower_by_the_root_of_two():
    seeds = np.array([9.0, 10, 11])[None, :, None] * np.array([1, 2, 3, 4])[:, None, None]
    errors = of(np.repeat(seeds, 5, axis=2))  # the same in each draw of the speakers
    one = half(errors, {"a": 1, "b": -1})
    two = half(errors, {"a": 0.5, "b": 0.5, "c": -0.5, "d": -0.5})
    assert two / one == pytest.approx(1 / math.sqrt(2))


def test_with_equal_spread_over_speakers_two_against_two_is_narrower_by_the_root_of_two():
    first, second = np.array([[0, 1, -1, 1, -1], [0, 1, -1, -1, 1]])
    patterns = np.stack([first, -first, second, -second])  # a - b and c - d do not vary together
    errors = of(np.repeat(np.exp(0.1 * patterns)[:, None], 3, axis=1))
    one = half(errors, {"a": 1, "b": -1})
    two = half(errors, {"a": 0.5, "b": -0.5, "c": 0.5, "d": -0.5})
    assert two / one == pytest.approx(1 / math.sqrt(2))
