"""Multiply activations x [n, k] by the transpose of a weight [m, k], in the ways that 2:4 must be compared with.

Dense int8 (`quantised`, `int8_linear`) and unstructured sparse (`csr`, `csr_linear`). For inference: no gradients.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lib.base import BadInput
from lib.kernels import int8

FLOATS = (torch.float32, torch.float64)  # a CPU has no product of others in CSR


def padded(matrix: Tensor, rows: int, columns: int) -> Tensor:
    """Add zeros to a matrix, below and to the right until its sizes are multiples of these; itself if they are."""
    below, right = -matrix.shape[0] % rows, -matrix.shape[1] % columns
    return F.pad(matrix, (0, right, 0, below)) if below or right else matrix


def int_linear(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply int8 by int8, summed exactly: int32 [n, m].

    On a CPU through float64, since torch's int8 product is wrong on processors without VNNI: it adds pairs of products
    in 16 bits, where large ones do not fit. So this is for reference there, and fast on a GPU only.
    """
    if not x.is_cuda:
        return (x.double() @ weight.double().t()).int()
    padded_x, other = padded(x, 32, 8), padded(weight, 8, 8)  # cuBLAS wants more than 16 rows, and multiples of 8
    return torch._int_mm(padded_x, other.t())[: len(x), : len(weight)]


@dataclass(frozen=True, eq=False)
class Quantised:
    """Hold a weight [m, k] as int8 codes, in oneDNN's order on a CPU, the step of each row [m], and its columns k."""

    codes: Tensor
    steps: Tensor
    columns: int


def quantised(weight: Tensor) -> Quantised:
    """Quantise a float weight [m, k] for `int8_linear`: max calibration, a step for each row (paper 2, section 5.1).

    Raises:
        BadInput: no matrix, one without a weight, or values that have no code.
    """
    if weight.dim() != 2 or not weight.numel() or not weight.is_floating_point() or weight.is_meta:
        raise BadInput(f"quantised needs a float weight [m, k], this one is {list(weight.shape)} of {weight.dtype}")
    steps = int8.weight_scales(weight.float())
    codes = int8.quantise(weight.float(), steps)
    if not weight.is_cuda:
        codes = torch.ops.onednn.qlinear_prepack(codes.contiguous(), None)
    return Quantised(codes, steps.flatten(), weight.shape[1])


@torch.no_grad()
def int8_linear(x: Tensor, weight: Quantised) -> Tensor:
    """Multiply float activations [n, k] by a quantised weight, [n, m] of their type: dynamic quantisation, one step for
    all of x.

    On a CPU by oneDNN's kernel, which torch's compiler uses too. It takes unsigned codes; with seven bits of them pairs
    of products fit into the 16 bits that processors without VNNI add them in.

    Raises:
        BadInput: activations of another shape, no floats, or one that is not finite, which has no code.
    """
    if x.dim() != 2 or x.shape[1] != weight.columns or not x.numel() or not x.is_floating_point():
        found = f"{list(x.shape)}" + ("" if x.is_floating_point() else f" of {x.dtype}")
        raise BadInput(f"int8_linear needs float activations [n, {weight.columns}], these are {found}")
    low, high = x.aminmax()
    largest = torch.maximum(-low, high).float()
    if not torch.isfinite(largest):
        raise BadInput("an activation is NaN, infinite or beyond float32: int8 has no code for it")
    if x.is_cuda:
        step = int8.scale_of(largest)
        return (int_linear(int8.quantise(x, step), weight.codes) * (step * weight.steps)).to(x.dtype)
    step = max(float(largest) / 63, torch.finfo(torch.float32).tiny)  # 63 steps up, 63 down, zero at 64
    codes = torch.mul(int8.widened(x), 1 / step).round_().add_(64).to(torch.uint8)
    zeros = torch.zeros(len(weight.steps), dtype=torch.int32)
    out = (None, 1.0, 0, torch.float32, "none", [], "")  # no bias, no quantisation of the output, nothing fused
    return torch.ops.onednn.qlinear_pointwise(codes, step, 64, weight.codes, weight.steps, zeros, *out).to(x.dtype)


def csr(weight: Tensor) -> Tensor:
    """Put the weight [m, k] into torch's CSR format, with 32-bit indices: with torch's default of 64 it is half as
    fast.

    Raises:
        BadInput: no matrix of floats with values, or on a CPU one of floats that it has no product of.
    """
    if weight.dim() != 2 or not weight.is_floating_point() or weight.is_meta:
        raise BadInput(f"csr needs a float weight [m, k], this one is {list(weight.shape)} of {weight.dtype}")
    _check_product(weight)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")  # has been for years
        sparse = weight.to_sparse_csr()
    indices = sparse.crow_indices().int(), sparse.col_indices().int()
    return torch.sparse_csr_tensor(*indices, sparse.values(), sparse.shape, check_invariants=True)


@torch.no_grad()
def csr_linear(x: Tensor, weight: Tensor) -> Tensor:
    """Multiply activations [n, k] by a transposed weight in CSR: [n, m]. One row has a faster kernel of its own.

    Raises:
        BadInput: a weight that is not in CSR, or that a CPU has no product of, or activations of another width or type.
    """
    fits = weight.layout == torch.sparse_csr and x.dim() == 2 and x.shape[1] == weight.shape[1]
    if not fits or x.dtype != weight.dtype:
        found = f"{list(x.shape)} of {x.dtype} and {list(weight.shape)} of {weight.dtype} in {weight.layout}"
        raise BadInput(f"csr_linear needs activations [n, k] and a weight [m, k] made by csr, these are {found}")
    _check_product(weight)
    return (weight @ x[0])[None] if len(x) == 1 else (weight @ x.t()).t()


def _check_product(weight: Tensor) -> None:
    if weight.device.type == "cpu" and weight.dtype not in FLOATS:
        raise BadInput(f"a CPU has CSR products of float32 and float64 alone, this weight is of {weight.dtype}")
