"""What the kernels cannot compute is refused in one line: no abort, no silent nonsense, no endless search."""

import math

import pytest
import torch
from torch import nn

from lib.advise import advise
from lib.base import BadInput
from lib.kernels import block_circulant, int8, packed, products, storage, two_four
from lib.kernels.sparse_linear import SparseLinear
from lib.pruners.permutation import anneal, anneal_both

WEIGHT = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
HALF = WEIGHT * torch.tensor([1, 1, 0, 0]).repeat(2)
ANNEAL = {"weight": WEIGHT, "proposals": 100}

REFUSED = {
    "a vector": (lambda: products.quantised(WEIGHT[0]), r"a float weight \[m, k\], this one is \[8\]"),
    "a stack": (lambda: products.quantised(WEIGHT[None]), r"this one is \[1, 4, 8\]"),
    "no rows": (lambda: products.quantised(WEIGHT[:0]), r"this one is \[0, 8\]"),
    "codes": (lambda: products.quantised(WEIGHT.to(torch.int8)), "of torch.int8"),
    "too wide": (lambda: products.int8_linear(torch.ones(2, 9), products.quantised(WEIGHT)), r"\[n, 8\].*\[2, 9\]"),
    "one activation": (lambda: products.int8_linear(torch.ones(8), products.quantised(WEIGHT)), r"these are \[8\]"),
    "no activation": (lambda: products.int8_linear(torch.ones(0, 8), products.quantised(WEIGHT)), r"are \[0, 8\]"),
    "step 0": (lambda: int8.quantise(WEIGHT, torch.tensor(0.0)), "scale=0 to 0: expected finite steps above 0"),
    "step -1": (lambda: int8.quantise(WEIGHT, -1.0), "scale=-1 to -1: expected finite steps above 0"),
    "step NaN": (lambda: int8.quantise(WEIGHT, math.nan), "scale=nan to nan: expected finite steps above 0"),
    "step inf": (lambda: int8.quantise(WEIGHT, torch.tensor([[1.0]] * 3 + [[math.inf]])), "scale=1 to inf"),
    "half a block": (lambda: block_circulant.circulant(2.5), "block=2.5: expected a whole number, at least 1"),
    "a true block": (lambda: block_circulant.circulant(True), "block=True: expected a whole number, at least 1"),
    "no block": (lambda: block_circulant.circulant(0), "block=0: expected a whole number, at least 1"),
    "images by a matrix": (
        lambda: block_circulant.conv2d(torch.ones(2, 8, 5, 5), block_circulant.spectrum(torch.ones(1, 2, 4))),
        "^this weight is a matrix's, whose products are those of block_circulant.linear",
    ),
    "rows by a convolution": (
        lambda: block_circulant.linear(torch.ones(2, 8), block_circulant.spectrum(torch.ones(3, 3, 1, 2, 4))),
        "^this weight is a convolution's, whose products are those of block_circulant.conv2d",
    ),
    "rows of another type": (
        lambda: block_circulant.linear(torch.ones(2, 8).double(), block_circulant.spectrum(torch.ones(1, 2, 4))),
        r"activations \[..., 8\] of torch.float32, these are \[2, 8\] of torch.float64",
    ),
    "images of another type": (
        lambda: block_circulant.conv2d(
            torch.ones(1, 8, 5, 5).double(), block_circulant.spectrum(torch.ones(3, 3, 1, 2, 4))
        ),
        r"images \[n, 8, H, W\] of torch.float32, these are \[1, 8, 5, 5\] of torch.float64",
    ),
    "whole activations": (
        lambda: products.int8_linear(torch.arange(8)[None], products.quantised(WEIGHT)),
        r"float activations \[n, 8\], these are \[1, 8\] of torch.int64",
    ),
    "steps of nothing": (lambda: int8.weight_scales(torch.zeros(4, 0)), r"this one is \[4, 0\]"),
    "a bias of two axes": (
        lambda: two_four.linear(torch.ones(1, 8), two_four.compressed(HALF), torch.ones(4, 1)),
        r"4 outputs, a bias of \[4, 1\] does not fit",
    ),
    "NaN seconds": (lambda: anneal(**ANNEAL, seconds=math.nan), "seconds=nan: expected a finite time"),
    "endless": (lambda: anneal(**ANNEAL, seconds=math.inf), "seconds=inf: expected a finite time"),
    "too few columns": (
        lambda: anneal(**ANNEAL, movable=torch.ones(7, dtype=torch.bool)),
        r"torch.bool \[7\]: expected",
    ),
    "numbers": (lambda: anneal(**ANNEAL, movable=torch.ones(8)), r"movable is torch.float32 \[8\]: expected bool"),
    "endless advice": (lambda: advise(nn.Linear(8, 8), 1, seconds=math.inf), "seconds=inf: expected a finite time"),
    "csr of a vector": (lambda: products.csr(WEIGHT[0]), r"csr needs a float weight \[m, k\], this one is \[8\]"),
    "csr of numbers": (lambda: products.csr(WEIGHT.int()), "this one is .* of torch.int32"),
    "csr of half floats": (
        lambda: products.csr(WEIGHT.half()),
        "^a CPU has CSR products of float32 and float64 alone, this weight is of torch.float16",
    ),
    "a product of half floats": (
        lambda: products.csr_linear(WEIGHT.bfloat16(), WEIGHT.bfloat16().to_sparse_csr()),
        "^a CPU has CSR products of float32 and float64 alone, this weight is of torch.bfloat16",
    ),
    "steps of a vector": (lambda: int8.weight_scales(torch.ones(3)), r"of two axes or more, this one is \[3\]"),
    "a curve of seed -1": (lambda: storage.curve(4, 8, 16, [0.5], seed=-1), "^seed=-1: expected a whole number"),
    "NaN proposals": (lambda: anneal(WEIGHT, math.nan), "^proposals=nan: expected a whole number, at least 100"),
    "seed -1": (lambda: anneal(**ANNEAL, seed=-1), "^seed=-1: expected a whole number, at least 0"),
    "seed -1 both ways": (lambda: anneal_both(torch.ones(8, 8), 100, seed=-1), "^seed=-1: expected a whole number"),
    "another type": (lambda: products.csr_linear(WEIGHT.double(), products.csr(WEIGHT)), "of torch.float64 and"),
    "compress no rows": (lambda: two_four.compress(torch.zeros(0, 8)), r"this is \(0, 8\) of torch.float32"),
    "compress no columns": (lambda: two_four.compress(torch.zeros(8, 0)), r"this is \(8, 0\) of torch.float32"),
    "compress no values": (lambda: two_four.compress(WEIGHT.to("meta")), "compress needs a matrix"),
    "pack a model": (lambda: packed.save(nn.Linear(2, 2), "model.packed"), "a state_dict, .* found a Linear"),
    "pack into a folder": (lambda: packed.save({"weight": WEIGHT}, "/"), "'/' is no path of a file to write"),
    "the pattern of a vector": (lambda: two_four.has_pattern(WEIGHT[0]), r"a matrix has the pattern or not"),
    "no such device": (lambda: two_four.backend(torch.float32, "tpu"), "device 'tpu': expected cpu or cuda"),
    "a mask that is a list": (lambda: SparseLinear(WEIGHT, mask=[True]), "a mask that is a tensor .* these are list"),
    "a bias too short": (
        lambda: SparseLinear(WEIGHT, torch.ones(3)),
        r"these are Tensor and a bias \[3\]",
    ),
    "one number": (lambda: SparseLinear(WEIGHT)(torch.tensor(1.0)), r"activations \[..., 8\], these are \[\]"),
    "advice on nothing": (lambda: advise(nn.Linear(8, 8, device="meta"), 1), "on the meta device"),
    "advice for half a batch": (lambda: advise(nn.Linear(8, 8), 2.5), "batch=2.5: at least one example is needed"),
    "advice for a tpu": (lambda: advise(nn.Linear(8, 8), 1, device="tpu"), "device='tpu': expected cpu, or cuda"),
    "no advice": (lambda: advise(nn.Linear(8, 8), 1, seconds=math.nan), "seconds=nan: expected a finite time"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_computed_is_refused_in_one_line(case: str):
    call, line = REFUSED[case]
    with pytest.raises(BadInput, match=line) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for call in (lambda: two_four.backend(torch.float16, "cuda"), lambda: advise(nn.Linear(8, 8), 1, device="cuda")):
        with pytest.raises(BadInput, match=r"torch finds (no|a) GPU"):
            call()


def test_the_smallest_activations_keep_their_sign():
    tiny = torch.tensor([[1e-37, -1e-37, 0, 0, 0, 0, 0, 0]])
    found = products.int8_linear(tiny, products.quantised(torch.eye(8)))
    assert found.sign().tolist() == tiny.sign().tolist()
    assert found.abs().max() < 2e-37


def test_a_pattern_of_no_rows_has_nothing_against_it():
    assert two_four.has_pattern(torch.zeros(0, 8))


def test_every_packed_number_comes_back_with_its_sign():
    values = torch.zeros(1000)
    values[::100] = torch.tensor([-0.0, 1e-45, -1e-45, math.inf, -math.inf, 3.0, -3.0, 0.1, 2.0**-126, -0.0])
    found = packed.unpack(*packed.pack(values))
    assert torch.equal(found, values)
    assert torch.equal(found.signbit(), values.signbit())
