"""Advice before pruning: the right products are measured, and times become the right words. No time is asserted."""

import pytest
import torch
from torch import nn

from lib.advise import COLUMNS, METHODS, advise, measure, verdict
from lib.base import BadInput


class Small(nn.Module):
    """Two convolutions, one of them in groups, and two layers used once and twice."""

    def __init__(self):
        super().__init__()
        self.conv, self.grouped = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=2)
        self.twice, self.last, self.never = nn.Linear(8, 8), nn.Linear(8, 6), nn.Linear(3, 3)

    def forward(self, x):
        x = self.grouped(self.conv(x)).mean((2, 3))
        return self.last(self.twice(self.twice(x)))


def test_each_layer_is_measured_as_the_product_it_amounts_to():
    model = Small()
    model.last.weight.data[:3] = 0
    table = advise(model, 5, shape=(3, 6, 6), seconds=0).set_index("layer")
    assert list(table.reset_index().columns) == list(COLUMNS)
    assert table[["m", "n", "k"]].T.to_dict("list") == {
        "conv.weight": [8, 5 * 4 * 4, 3 * 3 * 3],  # not a multiple of four, as every first layer
        "grouped.weight": [4, 5 * 2 * 2, 4 * 3 * 3],
        "twice.weight": [8, 5 * 2, 8],
        "last.weight": [6, 5, 8],
        "never.weight": [3, 0, 3],
    }
    assert (table.batch == 5).all()
    assert table.sparsity["last.weight"] == 0.5
    measured = table[["dense_ms", "int8_ms", "two_four_ms", "csr_ms"]].notna().all(axis=1)
    assert measured.to_dict() == {name: name not in ("grouped.weight", "never.weight") for name in table.index}
    assert table.loc[["grouped.weight", "never.weight"], ["use", "why"]].to_numpy().tolist() == [
        ["dense", "2 groups: small products, no sparse one for them"],
        ["dense", "not used by such an example"],
    ]
    assert set(table.use) <= set(METHODS)


def test_without_a_shape_each_linear_is_used_once():
    table = advise(nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 2)), 7, seconds=0)
    assert table[["m", "n", "k"]].to_numpy().tolist() == [[4, 7, 8], [2, 7, 4]]


def test_every_way_has_a_time():
    assert list(measure(torch.randn(6, 10), 3, seconds=0)) == list(METHODS)


@pytest.mark.parametrize(
    ("times", "use", "why"),
    [
        (
            (4.0, 1.0, 2.0, 8.0),
            "int8",
            "int8 is the fastest (speed relative to dense: int8 4.00 x, 2:4 2.00 x, CSR 0.50 x)",
        ),
        ((4.0, 8.0, 2.0, 8.0), "two_four", "2:4 is the fastest (speed relative to dense: int8 0.50 x, 2:4 2.00 x, "),
        (
            (4.0, 8.0, 8.0, 1.0),
            "csr",
            "CSR is the fastest (speed relative to dense: int8 0.50 x, 2:4 0.50 x, CSR 4.00 x)",
        ),
        ((4.0, 3.9, 8.0, 8.0), "dense", "dense is faster here (speed relative to dense: int8 1.03 x, 2:4 0.50 x, "),
    ],
)
def test_the_fastest_is_advised_if_it_is_clearly_faster_than_dense(times: tuple, use: str, why: str):
    found = verdict(dict(zip(METHODS, times, strict=True)), "select")
    assert found["use"] == use
    assert found["why"].startswith(why)
    assert "computed densely" not in found["why"]


def test_that_2_4_is_computed_densely_is_told():
    found = verdict(dict.fromkeys(METHODS, 1.0), "dense")
    assert found["why"].endswith("; 2:4 is computed densely, no sparse product is faster here")


def test_what_cannot_be_measured_is_refused_in_one_line():
    with pytest.raises(BadInput, match=r"conv.weight is a Conv2d, its product depends on the image: give shape="):
        advise(Small(), 5)
    with pytest.raises(BadInput, match="batch=0: expected a whole number, at least 1"):
        advise(nn.Linear(2, 2), 0)
    with pytest.raises(BadInput, match="device='gpu': expected cpu, or cuda where torch finds a GPU"):
        advise(nn.Linear(2, 2), 1, device="gpu")
    with pytest.raises(BadInput, match="ReLU has no layer with a matrix"):
        advise(nn.ReLU(), 1)
