"""Advice before pruning: the right products are measured, and times become the right words. No time is asserted."""

import signal
import sys

import pandas as pd
import pytest
import torch
from scipy.stats import binom
from torch import nn
from torch.nn import functional as F

from lib import base, pruners
from lib.advise import COLUMNS, METHODS, TIE, advise, main, measure, surely, verdict
from lib.base import BadInput


@pytest.fixture(autouse=True)
def path_of_this_test_alone(monkeypatch):
    monkeypatch.setattr(sys, "path", sys.path.copy())


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
        ["dense", "not reached by these inputs, in neither mode"],
    ]
    assert set(table.use) <= {*METHODS, TIE}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_layer_that_is_timed_in_another_precision_says_so(dtype: torch.dtype):
    (why,) = advise(nn.Sequential(nn.Linear(16, 16)).to(dtype), 2, seconds=0).why
    said = f"; timed in float32, the layer is {str(dtype).removeprefix('torch.')}"
    assert why.endswith(said) == (dtype != torch.float32)
    assert "timed in" not in why.removesuffix(said)


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
        ((4.0, 5.0, 8.0, 8.0), "dense", "dense is faster here (speed relative to dense: int8 0.80 x, 2:4 0.50 x, "),
        (
            (4.0, 3.9, 8.0, 8.0),
            TIE,
            "no way is clearly faster than dense here (speed relative to dense: int8 1.0",
        ),
    ],
)
def test_the_fastest_is_advised_if_it_is_clearly_faster_than_dense(times: tuple, use: str, why: str):
    found = verdict({method: [one] * 9 for method, one in zip(METHODS, times, strict=True)}, "select")
    assert found["use"] == use
    assert found["why"].startswith(why)
    assert "computed densely" not in found["why"]


def test_that_2_4_is_computed_densely_is_told():
    times = {"dense": [2.0] * 9, "int8": [3.0] * 9, "two_four": [1.0] * 9, "csr": [3.0] * 9}
    found = verdict(times, "dense")
    assert found["use"] == "dense"  # whatever the clock says
    assert found["why"].endswith("; 2:4 is computed densely, no sparse product is faster here")


def test_what_lies_within_the_noise_of_the_timing_is_not_advised():
    """The medians differ by a third, and yet in a third of the rounds the dense product was faster."""
    dense, sparse = [4.0] * 12, [3.0] * 8 + [5.0] * 4
    times = {"dense": dense, "int8": [8.0] * 12, "two_four": sparse, "csr": [8.0] * 12}
    assert surely(dense, sparse) == 0.8
    found = verdict(times, "select")
    assert found["use"] == TIE
    assert "2:4 1.33 x, CSR 0.50 x; within the noise 2:4 0.80 to 1.33 x" in found["why"]
    assert verdict(times | {"two_four": [3.0] * 10 + [5.0] * 2}, "select")["use"] == "two_four"


def test_overlapping_times_are_a_tie_and_equal_shapes_get_one_answer():
    """Whichever of two ways was a little ahead by chance; where dense is ahead in every round, it is the answer."""
    scattered = [8.6, 12.6, 9.4, 11.9, 10.3, 8.9, 12.1, 11.2, 9.8]
    for dense, int8 in ((scattered, scattered[::-1]), (scattered[::-1], scattered)):
        times = {"dense": dense, "int8": int8, "two_four": [30.0] * 9, "csr": [90.0] * 9}
        assert verdict(times, "select")["use"] == TIE
    assert verdict(times | {"int8": [1.1 * one for one in times["dense"]]}, "select")["use"] == "dense"


def test_a_2_4_product_that_is_computed_densely_is_no_tie_with_dense():
    times = {"dense": [4.0, 5.0] * 5, "int8": [9.0] * 10, "two_four": [5.0, 4.0] * 5, "csr": [9.0] * 10}
    assert verdict(times, "select")["use"] == TIE
    assert verdict(times, "dense")["use"] == "dense"


def test_csr_is_never_advised_for_a_matrix_without_zeros():
    times = {"dense": [9.0] * 9, "int8": [3.0] * 9, "two_four": [9.0] * 9, "csr": [1.0] * 9}
    assert verdict(times, "dense")["use"] == "csr"
    assert verdict(times, "dense", sparse=False)["use"] == "int8"  # an accident of the timing


def test_ctrl_c_while_packages_are_loaded_is_one_line(capsys):
    with pytest.raises(SystemExit) as stop, base.extra("lib.some"):
        raise KeyboardInterrupt
    assert (stop.value.code, capsys.readouterr().err) == (130, "lib.some: stopped before it began\n")


def test_a_program_of_the_companion_says_outside_a_checkout_where_it_works(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(base, "PARAMS", tmp_path / "params.yaml")
    with pytest.raises(SystemExit) as stop, base.extra("lib.some"):
        raise AssertionError("it went on")
    said = "lib.some: works in a checkout of the repository, where params.yaml lies, and not alone\n"
    assert (stop.value.code, capsys.readouterr().err) == (2, said)


def test_sigterm_ends_a_program_as_ctrl_c_does_and_later_means_what_it_meant(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as stop, base.program("lib.some", "stopped, nothing is lost"):
        signal.raise_signal(signal.SIGTERM)
    assert (stop.value.code, capsys.readouterr().err) == (143, "lib.some: stopped, nothing is lost\n")
    assert signal.getsignal(signal.SIGTERM) is before


def test_of_ten_thousand_coins_the_bound_lies_above_the_middle_in_at_most_one_of_forty():
    ratios = torch.rand(10_000, 15, generator=torch.Generator().manual_seed(0)) + 0.5
    wrong = sum(surely([1.0] * 15, (1 / one).tolist()) > 1 for one in ratios)
    assert 0.01 < wrong / 10_000 < 0.026


class Attentive(nn.Module):
    """Attention, whose `out_proj` only a function reads, and a head for training."""

    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.last, self.auxiliary, self.never = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x, scale=None):
        x = self.attention(x, x, x)[0] * (1.0 if scale is None else scale)
        x = F.linear(x, self.last.weight)
        return (x, self.auxiliary(x)) if self.training else x


def test_weights_that_functions_read_are_counted():
    model, x = Attentive(), torch.randn(3, 5, 8)
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model, "last")))
    table = advise(model, seconds=0, inputs=((x,), {"scale": 2.0})).set_index("layer")
    assert table[["m", "n", "k"]].T.to_dict("list") == {
        "attention.in_proj_weight": [24, 15, 8],
        "attention.out_proj.weight": [8, 15, 8],
        "last.weight": [8, 15, 8],
        "auxiliary.weight": [4, 0, 8],
        "never.weight": [4, 0, 8],
    }
    assert (table.batch == 3).all()
    assert table.why["auxiliary.weight"] == "used in training mode only"
    assert table.why["never.weight"] == "not reached by these inputs, in neither mode"
    assert advise(model, seconds=0, inputs=x, select="last").layer.tolist() == ["last.weight"]


def test_rules_of_thumb_are_named_with_whose_figure_they_are():
    conv = advise(nn.Conv2d(8, 4, 3), 2, shape=(8, 6, 6), seconds=0)
    assert "about 256 channels on GPUs, TensorRT's developers measured it (issues 3849 and 4065)" in conv.why[0]
    wide = advise(nn.Conv2d(256, 4, 3), 2, shape=(256, 6, 6), seconds=0)
    assert "gain from about 256 channels" in wide.why[0]  # few channels at either end
    token = advise(nn.Linear(8, 4), 1, seconds=0)
    assert "decoding was 12 % slower by 2:4 (pytorch/tutorials 3505)" in token.why[0]
    assert "rule of thumb" not in advise(nn.Linear(8, 4), 2, seconds=0).why[0]


def test_what_cannot_be_measured_is_refused_in_one_line():
    with pytest.raises(BadInput, match=r"conv.weight is a Conv2d, its product depends on the image: give --shape C"):
        advise(Small(), 5)
    with pytest.raises(
        BadInput, match=r"weight_ih_l0 is an LSTM, its product depends on the inputs: give inputs=, in Python"
    ):
        advise(nn.LSTM(2, 2), 5)
    with pytest.raises(BadInput, match="batch=0: at least one example is needed"):
        advise(nn.Linear(2, 2), 0)
    with pytest.raises(BadInput, match="device='gpu': expected cpu, or cuda where torch finds a GPU"):
        advise(nn.Linear(2, 2), 1, device="gpu")
    with pytest.raises(BadInput, match="ReLU has no layer with a matrix"):
        advise(nn.ReLU(), 1)
    with pytest.raises(BadInput, match="Linear is a class: expected a model of it, such as Linear"):
        advise(nn.Linear, 1)
    with pytest.raises(BadInput, match=r"expected a model, a torch\.nn\.Module, found an OrderedDict"):
        advise(nn.Linear(2, 2).state_dict(), 1)
    with pytest.raises(BadInput, match="weight holds numbers that are not finite"):
        advise(nn.Linear(2, 2).requires_grad_(False).apply(lambda layer: layer.weight.fill_(torch.nan)), 1)


ONE = nn.Linear(4, 2)


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"batch": True}, "batch=True: at least one example is needed, a whole number of them"),
        ({"batch": 2, "seconds": "1"}, "seconds='1': expected a finite time"),
        ({"batch": 2, "shape": 4}, "shape=4: expected whole numbers above 0, of one example"),
        ({"batch": 2, "shape": (-1, 4)}, r"shape=\(-1, 4\): expected whole numbers above 0"),
        ({"batch": 2, "shape": (3, 7)}, "Linear cannot take an input of shape 3,7: RuntimeError: mat1 and mat2"),
        ({"inputs": torch.ones(2, 7)}, "Linear cannot take these inputs: RuntimeError: mat1 and mat2"),
        ({"inputs": {"nope": torch.ones(2, 4)}}, "Linear cannot take these inputs: TypeError: "),
        ({"inputs": torch.ones(2, 4), "shape": (4,)}, "give inputs, or the shape of one example, not both"),
        ({"inputs": torch.ones(2, 4), "batch": 3}, "batch=3: the inputs hold 2 examples"),
    ],
)
def test_inputs_that_make_no_sense_are_one_line(asked: dict, line: str):
    with pytest.raises(BadInput, match=f"^{line}") as refusal:
        advise(ONE, **{"seconds": 0} | asked)
    assert "\n" not in str(refusal.value)


NETWORK = """
import torch
from scipy.stats import binom
from torch import nn
class Small(nn.Module):
    def __init__(self, outputs=4):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, outputs)
    def forward(self, images):
        return self.head(self.conv(images).mean((2, 3)))
ready = Small(2)
number = 3
def broken():
    raise RuntimeError("no weights here\\nsecond line")
def leaves():
    raise SystemExit(3)
"""


def test_a_model_of_ones_own_is_measured_from_the_shell(tmp_path, monkeypatch, capsys):
    (tmp_path / "own_network.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    words = ["--shape", "3,8,8", "--batch", "2", "--seconds", "0"]
    main([f"{tmp_path}/own_network.py:Small", *words, "--csv", "table.csv"])
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed] == ["layer", "conv.weight", "head.weight"]
    assert pd.read_csv("table.csv").n.tolist() == [2 * 36, 2]
    monkeypatch.syspath_prepend(str(tmp_path))
    main(["own_network:ready", *words, "--select", "head"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["layer", "head.weight"]


WITH_HELPERS = """
from __future__ import annotations
from dataclasses import dataclass
import sizes_beside_it
from torch import nn
@dataclass
class Build:
    outputs: int
    def __call__(self):
        return nn.Linear(sizes_beside_it.inputs, self.outputs)
class Late(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 2)
    def forward(self, x):
        from scales_beside_it import scale
        return scale * self.inner(x)
build, late = Build(4), Late()
"""


@pytest.mark.parametrize("name", ["with_helpers", "statistics"])  # the second is that of a module in use
def test_a_file_may_hold_a_dataclass_and_import_what_lies_beside_it_even_when_it_is_called(name, tmp_path, capsys):
    there = sys.modules.get(name)
    (tmp_path / f"{name}.py").write_text(WITH_HELPERS)
    (tmp_path / "sizes_beside_it.py").write_text("inputs = 3")
    (tmp_path / "scales_beside_it.py").write_text("scale = 2.0")
    for factory, layer in (("build", "weight"), ("late", "inner.weight")):
        main([f"{tmp_path}/{name}.py:{factory}", "--shape", "3", "--seconds", "0"])
        assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["layer", layer]
    assert sys.modules.get(name) is there


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["small"], "'small': expected MODULE:FACTORY, such as lib.models.resnet:small_resnet or net.py:build"),
        (["nowhere.py:Small"], "nowhere.py is no file"),
        (["nowhere_at_all:Small"], "nowhere_at_all:Small cannot be built: ModuleNotFoundError: No module named"),
        (["net.py:Large"], "net.py has no 'Large'"),
        (["net.py:broken"], "net.py:broken cannot be built: RuntimeError: no weights here"),
        (["net.py:leaves"], "net.py:leaves cannot be built: SystemExit: 3"),
        (["net.py:number"], "net.py:number cannot be built: TypeError: 'int' object is not callable"),
        (["net.py:Small", "--shape", "3x8x8"], "--shape 3x8x8: expected whole numbers above 0 with commas"),
        (["net.py:Small", "--shape", "1,8,8"], "Small cannot take an input of shape 1,8,8: RuntimeError: "),
        (["net.py:Small"], "conv.weight is a Conv2d, its product depends on the image: give --shape C"),
        (["net.py:Small", "--batch", "0"], "batch=0: at least one example is needed"),
    ],
)
def test_bad_input_at_the_shell_is_one_line(words, line, tmp_path, monkeypatch, capsys):
    (tmp_path / "net.py").write_text(NETWORK)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stop:
        main([*words, "--seconds", "0"])
    assert stop.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"lib.advise: {line}")
    assert printed.count("\n") == 1


def test_the_bound_is_that_of_the_binomial_distribution():
    for count in (1, 5, 6, 10, 37, 400, 3000):
        dense = [float(one) for one in range(1, count + 1)]
        assert surely(dense, [1.0] * count) == max(int(binom.ppf(0.025, count, 0.5)), 1)


@pytest.mark.parametrize("batch", [10**16, 10**19])
def test_a_batch_that_no_memory_holds_is_refused_by_its_layer(batch: int):
    with pytest.raises(BadInput, match=rf"^weight: {batch:,} rows do not fit into memory; a smaller --batch$"):
        advise(nn.Linear(4, 2), batch, seconds=0)


def test_layers_that_are_sparse_already_are_measured_as_any_other():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Bilinear(2, 3, 4))
    small = pruners.sparse(model)
    table = advise(small, 3, seconds=0)
    assert table.layer.tolist() == ["0.weight", "2.weight"]
    assert table[["m", "n", "k"]].iloc[0].tolist() == [8, 3, 8]
    assert table.why[1].startswith("there is no rule for what Bilinear")
    small = nn.Sequential(small[0])
    assert advise(small, shape=(8,), batch=3, seconds=0).n.tolist() == [3]
