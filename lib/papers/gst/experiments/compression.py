"""Compute what group-sparse weights save: the ratio of paper 5, equations 2 and 3, and the bytes that really come out.

A ratio is the share of bits saved, over dense values of 16 bits. Sparsity is the share of coefficients removed; blocks
of B keep one coefficient of B weights (`group_size` of a table).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from lib.base import BadInput, refuse_uncounted
from lib.kernels.block_circulant import number
from lib.pruners.grouped import Grouped

BITMAPS = ("none", "weights", "coefficients")


def ratio(
    sparsity: float | np.ndarray,
    block: float | np.ndarray,
    share: float = 1.0,
    bitmap: str = "weights",
    value_bits: int = 16,
) -> float | np.ndarray:
    """Compute the share of a network's bits that is saved by blocks of B of which a share is removed.

    Args:
        sparsity: S, share of coefficients removed.
        block: B, weights a coefficient.
        share: P_comp / P_total, of the parameters that are compressed.
        bitmap: what says which are removed. "none": nothing, equation 2. "weights": a bit a weight, equation 3, which
            charges it at S = 0 too. "coefficients": a bit a coefficient, B times less, which is enough, as whole
            groups go.

    Raises:
        BadInput: an unknown bitmap, a share outside [0, 1], blocks smaller than 1, or a width that counts nothing.
    """
    refuse_uncounted(value_bits=value_bits)
    if bitmap not in BITMAPS:
        raise BadInput(f"bitmap {bitmap!r}: known are {', '.join(BITMAPS)}")
    for name, value in (("sparsity", sparsity), ("share", share)):
        if not (np.all(np.asarray(value) >= 0) and np.all(np.asarray(value) <= 1)):
            raise BadInput(f"{name}={value} is not in [0, 1]")
    if np.any(np.asarray(block) < 1):
        raise BadInput(f"block={block} must be at least 1")
    bits = {"none": 0.0, "weights": 1.0, "coefficients": 1 / block}[bitmap]
    return ((block + sparsity - 1) / block - bits / value_bits) * share


def pack(weight: Tensor, table: Tensor, bitmap: str = "coefficients") -> bytes:
    """Write a weight in groups as bytes: a bitmap, then the kept coefficients in float16.

    Args:
        weight: [out, in], of a convolution [out, in, R, S], whose groups are those of the table.
        table: [B, B].
        bitmap: a bit for each of the "coefficients", or of the "weights" as equation 3 charges it.

    Raises:
        BadInput: a bitmap of another kind, a weight whose groups are not equal, or a number beyond float16's largest.
    """
    form, weight = _form(weight.shape, table), weight.detach()
    coefficients = form.right_inverse(weight)
    if not torch.equal(form(coefficients), weight):
        raise BadInput("weights of a group differ, so there is no coefficient for them: pack it with a table it has")
    nonzero = coefficients != 0
    places = _places(nonzero, form, bitmap)
    kept = coefficients[nonzero].half()
    if not bool(kept.isfinite().all()):
        raise BadInput(f"a coefficient is beyond float16, whose largest number is {torch.finfo(kept.dtype).max:,.0f}")
    return np.packbits(places.flatten().numpy()).tobytes() + kept.numpy().tobytes()


def unpack(content: bytes, shape: tuple[int, ...], table: Tensor, bitmap: str = "coefficients") -> Tensor:
    """Read the weight that `pack` was given, rounded to float16."""
    form = _form(shape, table)
    coefficients = form.right_inverse(torch.zeros(shape, dtype=torch.float16))
    count = _places(coefficients != 0, form, bitmap).numel()
    bits = np.unpackbits(np.frombuffer(content, np.uint8, -(-count // 8)))[:count]
    places = torch.from_numpy(bits.astype(np.float32))
    nonzero = (
        places.reshape(coefficients.shape) if bitmap == "coefficients" else form.right_inverse(places.reshape(shape))
    )
    values = np.frombuffer(content, np.float16, offset=-(-count // 8))
    return form(coefficients.masked_scatter(nonzero > 0, torch.from_numpy(values.copy())))


def packed_ratio(weights: Mapping[str, Tensor], tables: Mapping[str, Tensor], bitmap: str = "coefficients") -> float:
    """Compute the share of bytes that is really saved over float16, by packing the layers that have a table.

    Args:
        weights: {name: weight} of a whole network; what has no table is stored as it is.
    """
    dense = sum(2 * weight.numel() for weight in weights.values())
    stored = sum(
        len(pack(weight, tables[name], bitmap)) if name in tables else 2 * weight.numel()
        for name, weight in weights.items()
    )
    return 1 - stored / dense


def _form(shape: tuple[int, ...], table: Tensor) -> Grouped:
    return Grouped(table, shape[:2], number(table))


def _places(nonzero: Tensor, form: Grouped, bitmap: str) -> Tensor:
    """The bits of the bitmap, as a bool tensor like the coefficients or like the weight."""
    if bitmap not in BITMAPS[1:]:
        raise BadInput(f"bitmap {bitmap!r}: bytes need one of {', '.join(BITMAPS[1:])}")
    return nonzero if bitmap == "coefficients" else form(nonzero.float()) > 0
