"""What the slips of paper 2 say of its own numbers, computed again from its tables and from its networks' shapes."""

import pandas as pd
import pytest
import torch
from scipy import stats
from torch import nn

from lib.base import BadInput
from lib.companion.claims import papers
from lib.papers.two_four.measures import most_by_order
from lib.pruners import n_of_m
from lib.pruners.layers import layer_rule
from lib.pruners.permutation import anneal, kept_magnitude

PAPER = next(paper for paper in papers.read() if paper.paper == 2)
Shapes = list[tuple[int, int]]  # terms of a sum, and rows


def printed(*names: str) -> pd.DataFrame:
    """Rows of tables with the same columns, with their differences to one decimal."""
    tables = [pd.DataFrame(one.rows, columns=one.columns) for one in PAPER.tables if one.id in names]
    found = pd.concat(tables).set_index("network")
    return found.assign(
        pruning=(found["sparse FP16"] - found["dense FP16"]).round(1),
        int8=(found["sparse INT8"].astype(float) - found["sparse FP16"]).round(1),
    )


def slip(where: str) -> str:
    """What was found at one place."""
    (found,) = (one.found for one in PAPER.slips if one.where == where)
    return found


def test_the_differences_of_the_tables_have_a_sign():
    pruning = printed("table 2", "table 4", "table 6").pruning
    up, down = int((pruning > 0).sum()), int((pruning < 0).sum())
    int8 = printed("table 4").int8.dropna()
    p = stats.binomtest(up, up + down).pvalue
    said = slip("section 5.1")
    assert f"of the {up + down} differences" in said
    assert f"not zero {up} favour the sparse network" in said
    assert f"p = {p:.5f}" in said
    assert f"in {(int8 < 0).sum()} of {len(int8)} rows of table 4" in said


def test_short_schedules_gain_more_than_long_ones():
    pruning = printed("table 4").pruning
    short, long = (pruning[pruning.index.str.contains(f"-{times}x")] for times in (1, 3))
    gains = short[short > 0]
    said = slip("section 5.2, table 4")
    assert (len(gains), len(short), len(long)) == (3, 4, 6)
    assert f"end {gains.min()} to {gains.max()} points above" in said
    assert f"the six rows with the long one (3x) {long.min()} to {long.max()}" in said


def xception() -> Shapes:
    """The weights of Xception (Chollet 2017, figure 5): 3 x 3 convolutions, depth-wise and 1 x 1 ones, a classifier."""
    layers = [(27, 32), (288, 64)]

    def separable(inputs: int, outputs: int) -> Shapes:
        return [(9, inputs), (inputs, outputs)]

    for inputs, outputs in ((64, 128), (128, 256), (256, 728)):
        layers += [*separable(inputs, outputs), *separable(outputs, outputs), (inputs, outputs)]
    layers += separable(728, 728) * (8 * 3 + 1)
    return [*layers, *separable(728, 1024), (728, 1024), *separable(1024, 1536), *separable(1536, 2048), (2048, 1000)]


def shufflenet() -> Shapes:
    """The weights of ShuffleNet v2 1x (Ma et al. 2018, table 5)."""
    layers, inputs = [(27, 24)], 24
    for outputs, units in ((116, 4), (232, 8), (464, 4)):
        half = outputs // 2
        # the unit that halves the image has weights in both of its branches, the others in one
        layers += [(9, inputs), (inputs, half), (inputs, half), (9, half), (half, half)]
        layers += [(half, half), (9, half), (half, half)] * (units - 1)
        inputs = outputs
    return [*layers, (464, 1024), (1024, 1000)]


@pytest.mark.parametrize(
    ("shapes", "millions", "said"),
    [(xception(), 22.8, "together {} % of its weights"), (shufflenet(), 2.26, "likewise {} % of ShuffleNet v2's")],
)
def test_the_rule_leaves_much_of_two_networks_dense(shapes: Shapes, millions: float, said: str):
    assert sum(terms * rows for terms, rows in shapes) / 1e6 == pytest.approx(millions, abs=0.005)  # as published
    with torch.device("meta"):
        network = nn.ModuleList([nn.Linear(terms, rows, bias=False) for terms, rows in shapes])
    weights = pd.Series({f"{i}.weight": terms * rows for i, (terms, rows) in enumerate(shapes)})
    dense = weights[[rule.name for rule in layer_rule(network) if not rule.pruned]].sum() / weights.sum()
    assert said.format(f"{100 * dense:.0f}") in slip("section 5.1, against section 4.2")


@pytest.mark.parametrize("law", ["normal", "exponential", "uniform"])
def test_the_bound_on_orders_is_what_a_large_matrix_shows(law: str):
    draw = torch.Generator().manual_seed(0)
    shape = 64, 4096
    size = {
        "normal": lambda: torch.randn(shape, generator=draw).abs(),
        "exponential": lambda: torch.empty(shape).exponential_(generator=draw),
        "uniform": lambda: torch.rand(shape, generator=draw),
    }[law]()
    kept = float((size * n_of_m({"w": size}, 2, 4)["w"]).sum())
    half = float(size.topk(shape[1] // 2).values.sum())
    assert 100 * (half / kept - 1) == pytest.approx(most_by_order(law), abs=0.15)


def test_an_unknown_law_is_refused():
    with pytest.raises(BadInput, match="law 'cauchy': known are normal, exponential, uniform"):
        most_by_order("cauchy")


def test_no_order_comes_near_the_printed_gain_on_a_matrix_of_one_law():
    bound = most_by_order("normal")
    matrix = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    gain = 100 * (kept_magnitude(matrix[:, anneal(matrix, 20_000)]) / kept_magnitude(matrix) - 1)
    assert 0 < gain < bound < 100 * (102.9 / 83.7 - 1)
    assert f"is {bound:.0f} % more" in slip("section 4.1, figure 6")
