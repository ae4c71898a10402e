"""What a measure gives: for each cell one number a seed."""

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion.cells import by_cell, by_seed


def test_a_cell_has_one_number_for_each_seed():
    index = pd.MultiIndex.from_tuples([("d", "n", 0), ("d", "n", 1), ("e", "n", 0)], names=["data", "network", "seed"])
    values = pd.Series([1.0, 2.0, 3.0], index=index)
    assert by_cell(values) == {"d/n": {0: 1.0, 1: 2.0}, "e/n": {0: 3.0}}
    with pytest.raises(BadInput, match=r"^d/n has two numbers for seed 1, expected one"):
        by_cell(pd.concat([values, values[1:2]]))
    assert by_seed(values["d"]["n"]) == {0: 1.0, 1: 2.0}
    with pytest.raises(BadInput, match=r"^there are two numbers for seed 0, expected one$"):
        by_seed(values.droplevel(["data", "network"]))
