"""Store matrices in the compressed 2:4 format (paper 2, section 3.1, figure 1): half of the values, and where in their
groups they stood. Multiply by them too (section 3.2, figure 2): only the activations that meet a stored value are used.

The metadata is that of NVIDIA's kernels before they reorder it for their own access: two bits a value, the first value
of a group in the lower bits, two groups a byte. A group with fewer than two nonzeros still stores two values, so that
every group takes the same room; the places it adds are those which the kernels expect.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numba
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from lib.base import BadInput
from lib.kernels.products import int_linear, padded

DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8)
SPARSE_CORES = {  # torch's two ways to the sparse tensor cores of a GPU
    "cusparselt": torch.sparse.SparseSemiStructuredTensorCUSPARSELT,
    "cutlass": torch.sparse.SparseSemiStructuredTensorCUTLASS,
}
CORES_TAKE = (torch.float16, torch.bfloat16, torch.int8)
BACKENDS = ("dense", "select", *SPARSE_CORES)
IMPOSSIBLE = 0  # no metadata: it would name the first place twice
LARGE = 2**22  # from so many weights on skipping zeros pays on one core, for one row on every processor measured


def has_pattern(weight: Tensor) -> bool:
    """Say whether every four consecutive values of each row of a matrix [R, C] hold at least two zeros.

    Raises:
        BadInput: it is no matrix.
    """
    if weight.dim() != 2:
        raise BadInput(f"a matrix has the pattern or not, this is {list(weight.shape)}")
    return weight.shape[1] % 4 == 0 and bool((_nonzeros(weight) <= 2).all())


def compress(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Compress a 2:4 matrix [R, C] to values [R, C/2] and metadata [R, C/8] uint8 (four 2-bit places a byte).

    Raises:
        BadInput: not a matrix of a known type with columns in multiples of 8, or a group of four with more than two
            nonzeros, named by its row and group.
    """
    if weight.dim() != 2 or weight.shape[1] % 8 or not weight.numel() or weight.is_meta or weight.dtype not in DTYPES:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in DTYPES)
        found = f"{tuple(weight.shape)} of {weight.dtype}"
        raise BadInput(f"compress needs a matrix of {names} with columns in multiples of 8, this is {found}")
    cases, eights = tables(weight.device), _eights(weight)
    metadata = cases.metadata[eights]
    if bool((metadata == IMPOSSIBLE).any()):
        row, group = (_nonzeros(weight) > 2).nonzero()[0].tolist()
        values = weight[row, 4 * group : 4 * group + 4].tolist()
        raise BadInput(f"not 2:4: row {row}, group {group} holds {values}; prune with n_of_m(scores, 2, 4) first")
    values = weight.reshape(-1, 8).gather(1, cases.places[eights.flatten()])
    return values.reshape(len(weight), -1), metadata


class Tables(NamedTuple):
    """Say what becomes of eight neighbours in each of the 256 cases of which of them are not zero, the first the lowest
    bit.

    Attributes:
        metadata: the byte, or IMPOSSIBLE where a group has more than two nonzeros, uint8 [256].
        places: of the four values that are stored among the eight, int64 [256, 4].
    """

    metadata: Tensor
    places: Tensor


@cache
def tables(device: torch.device) -> Tables:
    """Write the tables of `compress` down, by its rule: where a group has fewer than two nonzeros, the places 2 and 3
    fill it up, in this order.
    """
    metadata, places = [], []
    for case in range(256):
        nonzeros = [[place for place in range(4) if case >> 4 * half + place & 1] for half in range(2)]
        (a, b), (c, d) = (sorted([*one, *(p for p in (2, 3) if p not in one)][:2]) for one in nonzeros)
        metadata.append(a | b << 2 | c << 4 | d << 6 if max(map(len, nonzeros)) <= 2 else IMPOSSIBLE)
        places.append([a, b, 4 + c, 4 + d])
    return Tables(torch.tensor(metadata, dtype=torch.uint8, device=device), torch.tensor(places, device=device))


def decompress(values: Tensor, metadata: Tensor) -> Tensor:
    """Rebuild the matrix [R, C] that `compress` made values [R, C/2] and metadata [R, C/8] of, exactly.

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


@dataclass(frozen=True, eq=False)
class Compressed:
    """Hold a 2:4 weight [rows, columns], ready for `linear`. What a back end multiplies with is built at its first use.

    Attributes:
        values, metadata: of `compress`, columns padded with zeros to a multiple of 8.
        columns: of the weight itself.
        backend: one of BACKENDS; empty: whatever `backend` names for the activations.
        algorithm: cuSPARSELt's number for one of its own kernels (`searched`).
    """

    values: Tensor
    metadata: Tensor
    columns: int
    backend: str = ""
    algorithm: int = 0

    @cached_property
    def dense(self) -> Tensor:
        """Return the weight [rows, columns] as it was."""
        return decompress(self.values, self.metadata)[:, : self.columns].contiguous()

    @cached_property
    def by_column(self) -> tuple[np.ndarray, np.ndarray]:
        """Give values [columns / 2, rows] and metadata [columns / 8, rows]: neighbours share an activation."""
        return self.values.t().contiguous().numpy(), self.metadata.t().contiguous().numpy()

    @cached_property
    def semi_structured(self) -> Tensor:
        """Return torch's own sparse tensor, on a GPU, sizes padded to the multiples it needs."""
        name = self.backend or backend(self.values.dtype, self.values.device)
        rows, columns, _ = multiples(name, self.values.dtype)
        weight = padded(decompress(self.values, self.metadata), rows, columns)
        return SPARSE_CORES[name].from_dense(weight, alg_id=self.algorithm)


def compressed(weight: Tensor, backend: str = "") -> Compressed:
    """Prepare a 2:4 weight [rows, columns] of any size for `linear`, on its device; zeros fill up a last incomplete
    group.

    Raises:
        BadInput: as `compress`, or a back end that does not multiply such a weight.
    """
    kinds = {"select": ("cpu", (torch.float32,)), "cusparselt": ("cuda", CORES_TAKE), "cutlass": ("cuda", CORES_TAKE)}
    device, dtypes = kinds.get(backend, (weight.device.type, DTYPES))
    if backend not in ("", *BACKENDS) or weight.device.type != device or weight.dtype not in dtypes:
        none = f"no back end {backend!r}" if backend else "no back end"
        raise BadInput(
            f"{none} for {weight.dtype} on {weight.device}: dense takes float32, float16, bfloat16 and int8, select "
            "float32 on a CPU, cusparselt and cutlass float16, bfloat16 and int8 on a GPU"
        )
    wide = padded(weight.detach(), 1, 8) if weight.dim() == 2 else weight
    return Compressed(*compress(wide), columns=weight.shape[-1], backend=backend)


def backend(dtype: torch.dtype, device: str | torch.device, rows: int = 1, weights: int = 0) -> str:
    """Say which product `linear` takes for so many rows of activations and so many weights, zeros included.

    On a GPU its sparse tensor cores: "cusparselt" where torch has it, else "cutlass". On a CPU the fastest that was
    measured: "select", which skips the zeros, for one float32 row and a weight larger than the cache on one core, where
    reading the weight takes the time; otherwise "dense", the decompressed weight in a dense product, because no
    sparse one is faster there.

    Raises:
        BadInput: nothing multiplies this type there; the line says which types and multiples would do.
    """
    try:
        device = torch.device(device)
    except RuntimeError as error:
        raise BadInput(f"device {device!r}: expected cpu or cuda") from error
    if device.type == "cpu" and dtype in DTYPES:
        read_bound = dtype == torch.float32 and rows == 1 and weights >= LARGE
        return "select" if read_bound and torch.get_num_threads() == 1 else "dense"
    name = "cusparselt" if torch.backends.cusparselt.is_available() else "cutlass"
    if device.type != "cuda" or dtype not in CORES_TAKE:
        sizes = {kind: multiples(name, kind)[:2] for kind in (torch.float16, torch.int8)}
        half, byte = (f"{rows} x {columns}" for rows, columns in sizes.values())
        raise BadInput(
            f"no 2:4 product of {dtype} on {device.type}: a GPU takes float16 and bfloat16 (weights are padded to "
            f"multiples of {half}) and int8 ({byte}), its float32 is TF32 with the pattern 1:2; a CPU takes float32 too"
        )
    if not torch.cuda.is_available():
        raise BadInput("device cuda: torch finds no GPU here")
    if (capability := torch.cuda.get_device_capability(device)) < (8, 0):
        raise BadInput(f"sparse tensor cores came with compute capability 8.0 (Ampere), this GPU has {capability}")
    return name


def multiples(name: str, dtype: torch.dtype) -> tuple[int, int, int]:
    """Say what torch's kernels need, by its tables: multiples of a weight's rows and columns, of activations' rows."""
    sizes = SPARSE_CORES[name]._DTYPE_SHAPE_CONSTRAINTS[dtype]
    return sizes.sparse_min_rows, sizes.sparse_min_cols, sizes.dense_min_rows


@torch.no_grad()
def linear(x: Tensor, weight: Compressed, bias: Tensor | None = None) -> Tensor:
    """Multiply activations x [..., columns] by the transpose of a compressed weight, plus bias: [..., rows]. No
    gradients.

    int8 is summed exactly and returned as int32. The reference that runs anywhere is the back end "dense": decompress,
    then an ordinary product.

    Raises:
        BadInput: activations of another width, type or device than the weight; or as `backend`.
    """
    if x.shape[-1:] != (weight.columns,) or x.dtype != weight.values.dtype or x.device != weight.values.device:
        wanted = f"[..., {weight.columns}] of {weight.values.dtype} on {weight.values.device}"
        raise BadInput(
            f"this weight multiplies activations {wanted}, these are {list(x.shape)} of {x.dtype} on {x.device}"
        )
    if bias is not None and bias.shape != weight.values.shape[:1]:
        raise BadInput(f"this weight has {len(weight.values)} outputs, a bias of {list(bias.shape)} does not fit them")
    flat = x.reshape(-1, weight.columns)
    name = weight.backend or backend(x.dtype, x.device, len(flat), 2 * weight.values.numel())
    if name == "select":
        product = _select(flat, weight)
    elif name == "dense":
        product = (int_linear if x.dtype == torch.int8 else F.linear)(flat, weight.dense)
    else:
        product = _sparse_cores(_for_cores(flat, name), weight, name)[: len(flat), : len(weight.values)]
    product = product.reshape(*x.shape[:-1], len(weight.values))
    return product if bias is None else product + bias


def searched(x: Tensor, weight: Compressed) -> Compressed:
    """Find for the same weight the fastest of cuSPARSELt's kernels for activations like x; all of them are measured."""
    name = weight.backend or backend(x.dtype, x.device)
    if name != "cusparselt":
        return weight
    padded_x, packed = _for_cores(x.reshape(-1, weight.columns), name), weight.semi_structured.packed
    exact = x.dtype == torch.int8
    out = torch.int32 if exact else None
    algorithm, *_ = torch._C._cusparselt.mm_search(packed, padded_x.t(), None, None, out, not exact)
    return replace(weight, algorithm=algorithm)


def _for_cores(x: Tensor, name: str) -> Tensor:
    """Activations [rows, columns], padded as the weight is."""
    _, columns, rows = multiples(name, x.dtype)
    return padded(x, rows, columns).contiguous()


def _sparse_cores(x: Tensor, weight: Compressed, name: str) -> Tensor:
    """The product on a GPU, sizes as it needs them. Only torch's inner functions give sums of int8 as int32."""
    sparse = weight.semi_structured
    if x.dtype != torch.int8:
        return F.linear(x, sparse)
    if name == "cusparselt":
        return torch._cslt_sparse_mm(sparse.packed, x.t(), out_dtype=torch.int32, alg_id=weight.algorithm).t()
    return torch._sparse_semi_structured_mm(sparse.packed, sparse.meta, x.t(), out_dtype=torch.int32).t()


def _select(x: Tensor, weight: Compressed) -> Tensor:
    """The product on a CPU that skips the zeros, float32 [n, rows]."""
    values, metadata = weight.by_column
    padded_x = padded(x, 1, 8).contiguous()
    sums = torch.zeros(len(x), len(weight.values))
    _add_selected(padded_x.numpy(), values, metadata, sums.numpy())
    return sums


@numba.njit(fastmath=True)
def _add_selected(x: np.ndarray, values: np.ndarray, metadata: np.ndarray, sums: np.ndarray) -> None:
    """What figure 2's multiplexers do: of each four activations, the two that meet stored values.

    The inner loop runs over the weight's rows, which all choose among the same four numbers. So there is no gather from
    memory, and the compiler makes vector instructions of it.
    """
    for group in range(len(values) // 2):
        shift = np.uint8(4 * (group % 2))
        for n in range(len(x)):
            a, b, c, d = x[n, 4 * group], x[n, 4 * group + 1], x[n, 4 * group + 2], x[n, 4 * group + 3]
            for row in range(values.shape[1]):
                places = metadata[group // 2, row] >> shift
                first, second = places & np.uint8(3), (places >> np.uint8(2)) & np.uint8(3)
                left = a if first == 0 else (b if first == 1 else c)
                right = d if second == 3 else (c if second == 2 else b)
                sums[n, row] += values[2 * group, row] * left + values[2 * group + 1, row] * right


def _nonzeros(weight: Tensor) -> Tensor:
    """How many nonzeros each group of four holds, [R, C/4]."""
    return (weight.reshape(len(weight), weight.shape[1] // 4, 4) != 0).sum(-1)


def _eights(weight: Tensor) -> Tensor:
    """The case of each eight neighbours, see `Tables`, int64 [R, C/8].

    The eight truth values are the bytes of one number. The product adds up copies of it that are shifted by multiples
    of seven bits, so that its highest byte has a bit of each.
    """
    flags = (weight != 0).contiguous().view(torch.int64)
    return (flags * 0x0102040810204080 >> 56) & 255
