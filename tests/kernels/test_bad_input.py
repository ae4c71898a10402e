"""What the kernels cannot compute is refused in one line: no abort, no silent nonsense, no endless search."""

import math

import pytest
import torch
from torch import nn

from lib.advise import advise
from lib.base import BadInput
from lib.kernels import block_circulant, int8, packed, products
from lib.pruners.permutation.search import anneal

WEIGHT = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
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
    "half a block": (lambda: block_circulant.circulant(2.5), "block=2.5 must be a whole number, at least 1"),
    "a true block": (lambda: block_circulant.circulant(True), "block=True must be a whole number, at least 1"),
    "no block": (lambda: block_circulant.circulant(0), "block=0 must be a whole number, at least 1"),
    "NaN seconds": (lambda: anneal(**ANNEAL, seconds=math.nan), "seconds=nan: expected a finite time"),
    "endless": (lambda: anneal(**ANNEAL, seconds=math.inf), "seconds=inf: expected a finite time"),
    "too few columns": (
        lambda: anneal(**ANNEAL, movable=torch.ones(7, dtype=torch.bool)),
        r"torch.bool \[7\]: expected",
    ),
    "numbers": (lambda: anneal(**ANNEAL, movable=torch.ones(8)), r"movable is torch.float32 \[8\]: expected bool"),
    "endless advice": (lambda: advise(nn.Linear(8, 8), 1, seconds=math.inf), "seconds=inf: expected a finite time"),
    "no advice": (lambda: advise(nn.Linear(8, 8), 1, seconds=math.nan), "seconds=nan: expected a finite time"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_computed_is_refused_in_one_line(case: str):
    call, line = REFUSED[case]
    with pytest.raises(BadInput, match=line) as error:
        call()
    assert "\n" not in str(error.value)


def test_a_packed_zero_has_no_sign_and_every_other_number_is_exact():
    values = torch.zeros(1000)
    values[::100] = torch.tensor([-0.0, 1e-45, -1e-45, math.inf, -math.inf, 3.0, -3.0, 0.1, 2.0**-126, -0.0])
    found = packed.unpack(*packed.pack(values))
    assert torch.equal(found, values)
    assert not found[values == 0].signbit().any()
