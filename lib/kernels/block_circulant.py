"""Multiply by block-circulant matrices (paper 5, sections 2 and 3; CirCNN, CircConv): B x B weights from B
coefficients.

A matrix [out, in] is cut into blocks of B x B. In a block the weights of each wrapped diagonal are one number: the
weight in row i and column j is the coefficient (i - j) mod B. Coefficients are kept as [out / B, in / B, B].

Which weights of a block share a coefficient is a *table* [B, B] of the coefficient's number at each place. `circulant`
is one table; others group the weights of a block otherwise (`lib.pruners.groups`), and `expand` and `project`
take any.

A product with a circulant block is a convolution, so a Fourier transform over the block turns it into products of
numbers, one a frequency. For small B no fast transform pays. Here the transform is a B x B matrix of real numbers, and
each frequency becomes one matrix product over all blocks: that is how the saved operations are turned into time.

With one example and a matrix of 256 x 256 they are not: the dense product is over in about the time that torch takes to
begin one, and this needs three to five such calls. `lib.bench.block_circulant_products` times the bare calls, too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from lib.base import BadInput, refuse_uncounted


def circulant(block: int) -> Tensor:
    """Make the table of a circulant block: (i - j) mod B in row i and column j, int64 [B, B].

    Raises:
        BadInput: a size that is no whole number, or below 1.
    """
    refuse_uncounted(block=block)
    places = torch.arange(block)
    return (places[:, None] - places) % block


def expand(coefficients: Tensor, table: Tensor, size: Sequence[int]) -> Tensor:
    """Compute the matrices [..., out, in] of coefficients [..., rows, columns, room].

    Args:
        table: [B, B], or one a matrix, [..., B, B]; of the room, coefficients that it does not name have no effect.
        size: (out, in), at most (B rows, B columns): what the last blocks hold beyond it is cut off.
    """
    *_, rows, columns, room = coefficients.shape
    block = table.shape[-1]
    chosen = _one_hot(table, room, coefficients.dtype)  # products with 0 and 1, so nothing is rounded
    blocks = (coefficients.flatten(-3, -2) @ chosen.mT).unflatten(-1, (block, block)).unflatten(-3, (rows, columns))
    matrices = blocks.transpose(-3, -2).flatten(-4, -3).flatten(-2)
    return matrices[..., : size[0], : size[1]]


def project(matrices: Tensor, table: Tensor, room: int | None = None) -> Tensor:
    """Find the coefficients [..., rows, columns, room] whose expansion is the nearest in least squares to [..., out,
    in].

    Each is the mean of the weights that share it: for a circulant of a wrapped diagonal. Blocks that reach over the
    matrix's end hold less weights; a coefficient without any is 0. Weights that are equal already keep their value.

    Args:
        table: [B, B], or one a matrix.
        room: how many coefficients a block has place for, as many as the table names or more.
    """
    room, size = number(table) if room is None else room, matrices.shape[-2:]
    chosen = _one_hot(table, room, torch.float64)  # in which the sum of equal float32 numbers is exact
    counts = members(size, table, room).clamp(min=1)

    def mean(values: Tensor) -> Tensor:
        sums = _blocks(values.double(), table.shape[-1]) @ chosen
        return sums.unflatten(-2, counts.shape[-3:-1]) / counts

    means = mean(matrices)
    if matrices.dtype == torch.float64:  # there it rounds, by so few last digits that their own mean is exact
        nearer = means + mean(matrices - expand(means, table, size))
        equal = mean(matrices != expand(nearer, table, size)) == 0  # means of unequal ones stay as they are
        means = torch.where(equal, nearer, means)
    return means.to(matrices.dtype)


def members(size: Sequence[int], table: Tensor, room: int | None = None) -> Tensor:
    """Count how many weights of a matrix (out, in) share each coefficient, float64 [..., rows, columns, room]."""
    room = number(table) if room is None else room
    ones = torch.ones(*size, dtype=torch.float64, device=table.device)
    counts = _blocks(ones, table.shape[-1]) @ _one_hot(table, room, torch.float64)
    return counts.unflatten(-2, (-(-size[0] // table.shape[-1]), -1))


def number(table: Tensor) -> int:
    """Count how many coefficients a table names; of several tables the largest number."""
    return int(table.max()) + 1


def _one_hot(table: Tensor, room: int, dtype: torch.dtype) -> Tensor:
    """[..., B * B, room]: 1 where a place of the block has the coefficient."""
    return F.one_hot(table.flatten(-2), room).to(dtype)


def _blocks(matrices: Tensor, block: int) -> Tensor:
    """Matrices [..., out, in] as blocks [..., rows * columns, B * B], zeros beyond the end."""
    padded = F.pad(matrices, (0, -matrices.shape[-1] % block, 0, -matrices.shape[-2] % block))
    cut = padded.unflatten(-1, (-1, block)).unflatten(-3, (-1, block))  # rows, B, columns, B
    return cut.transpose(-3, -2).flatten(-2).flatten(-3, -2)


# Products


def limit(block: int) -> float:
    """Compute how many times fewer multiplications a product takes than the dense one: B^2 over those of all
    frequencies.

    Frequency 0, and B / 2 of an even B, are real and take one product of 1 / B^2 of the size each; the others are
    complex and come in pairs of conjugates, of which one is computed: four real products. So 2 for B = 2, 2.67 for 4,
    4.57 for 8. (Three products for a complex one would give 3.2 for 4.)

    Raises:
        BadInput: a block size that is no count.
    """
    refuse_uncounted(block=block)
    real = 2 - block % 2
    return block**2 / (real + 4 * (block - real) / 2)


def transform(block: int, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu") -> Tensor:
    """Make the orthonormal Fourier transform of real numbers as a matrix [B, B]; its inverse is its transpose.

    Rows: frequency 0, then B / 2 if B is even, then the real and the imaginary part of each of the others.

    Raises:
        BadInput: a block size that is no count.
    """
    refuse_uncounted(block=block)
    places = torch.arange(block, dtype=torch.float64, device=device)
    real = [0] if block % 2 else [0, block // 2]
    rows = [torch.cos(2 * math.pi * f / block * places) for f in real]
    for f in range(1, (block + 1) // 2):
        angle = 2 * math.pi * f / block * places
        rows += [math.sqrt(2) * torch.cos(angle), -math.sqrt(2) * torch.sin(angle)]
    return (torch.stack(rows) / math.sqrt(block)).to(dtype)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Hold a block-circulant weight by frequency, ready to multiply with.

    Attributes:
        real: [f, rows, columns, ...], of the real frequencies; further axes are a convolution's kernel.
        pairs: [g, 2 rows, 2 columns, ...], of the complex ones, as the real matrix [[re, -im], [im, re]].
        transform: of `transform`, [B, B].
    """

    real: Tensor
    pairs: Tensor
    transform: Tensor


def spectrum(coefficients: Tensor) -> Spectrum:
    """Transform coefficients [rows, columns, B], of a convolution [R, S, rows, columns, B]; gradients flow through."""
    block = coefficients.shape[-1]
    matrix = transform(block, coefficients.dtype, coefficients.device)
    found = math.sqrt(block) * (coefficients @ matrix.mT).movedim(-1, 0)  # Fourier's sums, not normalised
    found = found.movedim((1, 2), (-2, -1)) if coefficients.dim() == 5 else found
    count = 2 - block % 2
    re, im = found[count::2] / math.sqrt(2), found[count + 1 :: 2] / math.sqrt(2)
    pairs = torch.cat([torch.cat([re, -im], 2), torch.cat([im, re], 2)], 1)
    return Spectrum(found[:count].contiguous(), pairs.contiguous(), matrix)  # or each product would copy it


def linear(x: Tensor, weight: Spectrum) -> Tensor:
    """Multiply activations x [..., in] by the transpose of a block-circulant weight: [..., out].

    Raises:
        BadInput: activations of another width or type than the weight, or the weight of a convolution.
    """
    if weight.real.dim() != 3:
        raise BadInput("this weight is a convolution's, whose products are those of block_circulant.conv2d")
    block, (count, rows, columns) = len(weight.transform), weight.real.shape
    if x.shape[-1] != block * columns or x.dtype != weight.real.dtype:
        wanted = f"[..., {block * columns}] of {weight.real.dtype}"
        raise BadInput(f"this weight multiplies activations {wanted}, these are {list(x.shape)} of {x.dtype}")
    flat = x.reshape(-1, block).mT
    found = (weight.transform @ flat).unflatten(1, (-1, columns))  # [B, examples, columns]
    products = found[:count] @ weight.real.mT
    if len(weight.pairs):
        pairs = found[count:].unflatten(0, (-1, 2)).transpose(1, 2).flatten(2)
        complex_ = (pairs @ weight.pairs.mT).unflatten(2, (2, rows)).transpose(1, 2).flatten(0, 1)
        products = torch.cat([products, complex_])
    back = weight.transform.mT @ products.flatten(1)  # [B, examples * rows]
    return back.mT.reshape(*x.shape[:-1], block * rows)


def conv2d(x: Tensor, weight: Spectrum, stride: int = 1, padding: int = 0) -> Tensor:
    """Convolve images x [n, in, H, W] with a weight that is block-circulant over its channels: [n, out, H', W'].

    Raises:
        BadInput: images with other channels or of another type than the weight, or the weight of a matrix product.
    """
    if weight.real.dim() != 5:
        raise BadInput("this weight is a matrix's, whose products are those of block_circulant.linear")
    block, (count, rows, columns) = len(weight.transform), weight.real.shape[:3]
    if x.dim() != 4 or x.shape[1] != block * columns or x.dtype != weight.real.dtype:
        wanted = f"[n, {block * columns}, H, W] of {weight.real.dtype}"
        raise BadInput(f"this weight takes images {wanted}, these are {list(x.shape)} of {x.dtype}")
    cut = x.unflatten(1, (columns, block))
    found = torch.einsum("fb,ncbhw->fnchw", weight.transform, cut)
    real = [F.conv2d(found[f], weight.real[f], None, stride, padding) for f in range(count)]
    pairs = found[count:].unflatten(0, (-1, 2)).transpose(1, 2).flatten(2, 3)
    for one, kernel in zip(pairs, weight.pairs, strict=True):
        real += F.conv2d(one, kernel, None, stride, padding).unflatten(1, (2, rows)).unbind(1)
    back = torch.einsum("fb,fnchw->ncbhw", weight.transform, torch.stack(real))
    return back.flatten(1, 2)
