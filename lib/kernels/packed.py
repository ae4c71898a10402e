"""Store pruned weights in few bytes: the values that are kept, and an entropy-coded bitmap of where they stand.

A bitmap spends one bit on every place. Where most places are empty it is cheaper to write down the gaps between kept
values. Gaps of a random mask are geometrically distributed, for which Rice's code is close to the best one: a gap g
becomes g >> k ones and a zero (unary), and the k low bits of g as they are. Both parts are kept in streams of their
own, so that coding and decoding need no loop over values.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lib.base import BadInput, atomic, to_write, type_of

MAGIC = b"sparse1\n"
METADATA = "__metadata__"  # in the header, beside the tensors' names, as safetensors calls it
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # integers by their bytes


def floor_bits(places: int, nonzeros: int) -> float:
    """Compute the fewest bits that tell one mask with so many kept places from all others: log2 of the binomial
    coefficient.

    Raises:
        BadInput: more kept places than there are, or fewer than none.
    """
    if not 0 <= nonzeros <= places:
        raise BadInput(f"{nonzeros} kept values do not fit {places} places: expected 0 to {places}")
    return (math.lgamma(places + 1) - math.lgamma(nonzeros + 1) - math.lgamma(places - nonzeros + 1)) / math.log(2)


def encode_mask(mask: np.ndarray) -> tuple[int, bytes, bytes]:
    """Encode a flat mask as (k, unary parts, low bits); k is the one that takes the fewest bits."""
    gaps = np.diff(np.flatnonzero(mask), prepend=-1) - 1
    k = min(range(32), key=lambda low: len(gaps) * (1 + low) + int((gaps >> low).sum()))
    quotients = gaps >> k
    unary = np.ones(int(quotients.sum()) + len(gaps), dtype=np.uint8)
    unary[np.cumsum(quotients + 1) - 1] = 0
    low = (gaps[:, None] >> np.arange(k)) & 1
    return k, np.packbits(unary).tobytes(), np.packbits(low.astype(np.uint8)).tobytes()


def decode_mask(nonzeros: int, k: int, unary: bytes, low: bytes) -> np.ndarray:
    """Decode what `encode_mask` made of a flat mask: the places of its nonzeros, int64 in their order."""
    ends = np.flatnonzero(np.unpackbits(~np.frombuffer(unary, np.uint8)).view(bool))[:nonzeros]
    order = np.arange(nonzeros)
    places = (ends - order << k) + order  # before an end stand as many ones as all quotients so far make together
    if k:
        bits = np.unpackbits(np.frombuffer(low, np.uint8))[: nonzeros * k].reshape(nonzeros, k)
        places += np.cumsum(sum(bits[:, bit].astype(np.int64) << bit for bit in range(k)))
    return places


def pack(tensor: Tensor) -> tuple[dict, bytes]:
    """Pack one tensor as (description, bytes): entropy-coded where that is smaller, else as it is.

    Left out are the numbers whose bits are all zero: -0.0 is a value like any other and comes back.
    """
    flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().flatten()
    about = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape), "form": "dense"}
    raw = _bytes(flat)
    mask = nonzero_bits(flat).numpy()
    nonzeros = int(mask.sum())
    k, unary, low = encode_mask(mask)
    values = _bytes(flat[torch.from_numpy(mask)])
    coded = unary + low + values
    if len(coded) >= len(raw):
        return about | {"bytes": len(raw)}, raw
    code = {"form": "coded", "kept": nonzeros, "k": k, "unary": len(unary), "low": len(low), "bytes": len(coded)}
    return about | code, coded


def unpack(about: Mapping, content: bytes) -> Tensor:
    """Unpack the tensor that `pack` described."""
    dtype, shape = getattr(torch, about["dtype"]), about["shape"]
    if about["form"] == "dense":
        return _tensor(content, dtype).reshape(shape)
    ends = np.cumsum([about["unary"], about["low"]])
    unary, low, values = content[: ends[0]], content[ends[0] : ends[1]], content[ends[1] :]
    places = torch.from_numpy(decode_mask(about["kept"], about["k"], unary, low))
    kept = _tensor(values, torch.uint8).reshape(len(places), dtype.itemsize)  # bytes: some types have no index_copy_
    numbers = torch.zeros(math.prod(shape), dtype.itemsize, dtype=torch.uint8).index_copy_(0, places, kept)
    return numbers.view(dtype).reshape(shape)


def nonzero_bits(tensor: Tensor) -> Tensor:
    """Say where a tensor is not zero to the last bit (bool): -0.0 is not; a complex number has two parts."""
    if tensor.is_complex():
        return nonzero_bits(torch.view_as_real(tensor)).any(-1)
    return tensor.view(BITS[tensor.element_size()]) != 0


def save(state: Mapping[str, Tensor], path: str | Path) -> None:
    """Write a state_dict, whole or not at all. Zeros of masked weights cost little; detach masks before.

    What torch notes beside the tensors, `state_dict()._metadata` with each module's version, is kept. A negative zero
    costs as much as any other value, and a product of a weight and a mask has many; `pruners.detach` leaves none.

    Raises:
        BadInput: something that is no tensor, or a tensor that is not dense or has no values, by name; or the one name
            that the file needs for itself; no state_dict, or no path of a file that can be written.
    """
    path = to_write(path)
    if not isinstance(state, Mapping):
        raise BadInput(f"expected a state_dict, tensors by name, found {type_of(state)}")
    if METADATA in state:
        raise BadInput(f"a tensor is called {METADATA}, which the file calls its notes: give it another name")
    if others := [name for name, one in state.items() if not _dense(one)]:
        raise BadInput(f"{others[0]} is no dense tensor with values: packed weights are a state_dict of those")
    packed = {name: pack(tensor) for name, tensor in state.items()}
    about = {name: about for name, (about, _) in packed.items()}
    if metadata := getattr(state, "_metadata", None):
        about[METADATA] = metadata
    header = json.dumps(about).encode()
    body = MAGIC + len(header).to_bytes(8, "little") + header + b"".join(content for _, content in packed.values())
    with atomic(path) as file:
        file.write(body + hashlib.sha256(body).digest())


def load(path: str | Path) -> OrderedDict[str, Tensor]:
    """Read what `save` wrote: the same numbers, bit for bit, and torch's notes as `_metadata`.

    Raises:
        BadInput: the file is not there, of another kind, cut off, or altered.
    """
    if not isinstance(path, (str, os.PathLike)) or not Path(path).is_file():
        raise BadInput(f"{path!s:.80} is no file")
    path = Path(path)
    content = path.read_bytes()
    body, digest = content[:-32], content[-32:]
    if not content.startswith(MAGIC):
        raise BadInput(f"{path.name} is no file of packed weights")
    if hashlib.sha256(body).digest() != digest:
        raise BadInput(f"{path.name} is cut off or altered: its checksum does not fit; fetch or save it again")
    start = len(MAGIC) + 8
    at = start + int.from_bytes(body[len(MAGIC) : start], "little")
    header = json.loads(body[start:at])
    state = OrderedDict()
    if metadata := header.pop(METADATA, None):
        state._metadata = OrderedDict(metadata)
    for name, about in header.items():
        state[name] = unpack(about, body[at : at + about["bytes"]])
        at += about["bytes"]
    return state


def _dense(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and not (value.is_meta or value.is_quantized)


def _bytes(flat: Tensor) -> bytes:
    return flat.contiguous().view(torch.uint8).numpy().tobytes() if len(flat) else b""


def _tensor(content: bytes, dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=dtype) if content else torch.zeros(0, dtype=dtype)
