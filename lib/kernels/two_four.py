"""The compressed 2:4 format (paper 2, section 3.1, figure 1): half of the values, and where in their groups they stood.

The metadata is that of NVIDIA's kernels before they reorder it for their own access: two bits a value, the first value
of a group in the lower bits, two groups a byte. A group with fewer than two nonzeros still stores two values, so that
every group takes the same room; the places it adds are those which the kernels expect.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lib.errors import BadInput

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8)


def has_pattern(weight: Tensor) -> bool:
    """Whether every four consecutive values of each row of a matrix [R, C] hold at least two zeros."""
    return weight.shape[1] % 4 == 0 and bool((_nonzeros(weight) <= 2).all())


def compress(weight: Tensor) -> tuple[Tensor, Tensor]:
    """A 2:4 matrix [R, C] as values [R, C/2] and metadata [R, C/8] uint8 (four 2-bit places a byte).

    Raises:
        BadInput: not a matrix of a known type with columns in multiples of 8, or a group of four with more than two
            nonzeros, named by its row and group.
    """
    if weight.dim() != 2 or weight.shape[1] % 8 or weight.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        found = f"{tuple(weight.shape)} of {weight.dtype}"
        raise BadInput(f"compress needs a matrix of {names} with columns in multiples of 8, this is {found}")
    groups = weight.reshape(len(weight), -1, 4)
    nonzero, count = groups != 0, _nonzeros(weight)
    if bool((count > 2).any()):
        row, group = (count > 2).nonzero()[0].tolist()
        values = groups[row, group].tolist()
        raise BadInput(f"not 2:4: row {row}, group {group} holds {values}; prune with n_of_m(scores, 2, 4) first")
    first = nonzero.int().argmax(-1).where(count > 0, 3).clamp(max=2)
    last = 3 - nonzero.flip(-1).int().argmax(-1)
    second = last.where(count == 2, (first + 1).clamp(min=2))
    places = torch.stack([first, second], dim=-1)
    shifts = torch.tensor([0, 2, 4, 6], device=weight.device)
    metadata = (places.reshape(len(weight), -1, 4) << shifts).sum(-1).to(torch.uint8)
    return groups.gather(-1, places).flatten(1), metadata


def decompress(values: Tensor, metadata: Tensor) -> Tensor:
    """The matrix [R, C] that `compress` made values [R, C/2] and metadata [R, C/8] of, exactly.

    Raises:
        BadInput: shapes or types that do not belong together, or two equal places in one group.
    """
    expected = (len(values), values.shape[1] // 4) if values.dim() == 2 and values.shape[1] % 4 == 0 else None
    if metadata.dtype != torch.uint8 or tuple(metadata.shape) != expected:
        found = f"{tuple(values.shape)} and {tuple(metadata.shape)} of {metadata.dtype}"
        raise BadInput(f"decompress needs values [R, C/2] and metadata [R, C/8] of torch.uint8, these are {found}")
    shifts = torch.tensor([0, 2, 4, 6], device=metadata.device)
    places = ((metadata.long().unsqueeze(-1) >> shifts) & 3).reshape(len(values), -1, 2)
    wrong = places[..., 0] >= places[..., 1]
    if bool(wrong.any()):
        row, group = wrong.nonzero()[0].tolist()
        raise BadInput(f"damaged metadata: row {row}, group {group} has the places {places[row, group].tolist()}")
    groups = torch.zeros(len(values), places.shape[1], 4, dtype=values.dtype, device=values.device)
    return groups.scatter(-1, places, values.reshape(places.shape)).flatten(1)


def _nonzeros(weight: Tensor) -> Tensor:
    """How many nonzeros each group of four holds, [R, C/4]."""
    return (weight.reshape(len(weight), -1, 4) != 0).sum(-1)
