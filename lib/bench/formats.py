"""Time making and reading sparse formats: `compress` to 2:4, masks by `n_of_m`, `packed.unpack`, each beside rivals.

torch's converter stores the metadata of 2:4 in another order; "NumPy" gives the same bytes, from the same table. topk
finds the same masks but for ties, which it may break otherwise. zlib (its default level) unpacks the same numbers from
more bytes. One core, Gaussian weights pruned by magnitude; milliseconds are medians.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor
from torch.sparse import _semi_structured_conversions as conversions

from lib import pruners
from lib.kernels import packed, two_four
from lib.kernels.timing import in_turn

DEVICE, THREADS = "cpu", 1
COLUMNS = ("operation", "weights", "kind", "method", "ms", "ratio_to_ours")
SIDES = (512, 2048)
TYPES = (torch.float16, torch.int8)
PATTERNS = ((2, 4), (4, 8), (8, 16), (16, 32))
SPARSITIES = (0.5, 0.8, 0.95)

Rivals = dict[str, Callable[[], object]]


def run(device: str) -> list[dict]:
    """Return one row an operation, size, kind and method."""
    return [row for side in SIDES for row in measured(side)]


def measured(side: int, seconds: float = 2.0) -> Iterator[dict]:
    """Yield the rows of a square weight, each operation and kind timed for so many seconds."""
    for (operation, kind), rivals in rivals_of(side).items():
        times = in_turn(rivals, seconds, warmup=1)
        where = {"operation": operation, "weights": side**2, "kind": kind}
        yield from (where | {"method": n, "ms": ms, "ratio_to_ours": ms / times["ours"]} for n, ms in times.items())


def rivals_of(side: int) -> dict[tuple[str, str], Rivals]:
    """List the ways to do each operation, {(operation, kind): {method: call}}."""
    weight = torch.randn(side, side, generator=torch.Generator().manual_seed(0))
    found: dict[tuple[str, str], Rivals] = {}
    half = weight * pruners.n_of_m({"w": weight.abs()})["w"]
    for dtype in TYPES:
        narrow = (50 * half).clamp(-127, 127).to(dtype)
        found["compress", str(dtype).removeprefix("torch.")] = {
            "ours": partial(two_four.compress, narrow),
            "torch": partial(conversions.sparse_semi_structured_from_dense_cutlass, narrow),
            "NumPy": partial(by_numpy, narrow.numpy()),
        }
    for n, m in PATTERNS:
        scores = weight.abs()
        ours = partial(pruners.n_of_m, {"w": scores}, n, m)
        found["n_of_m", f"{n}:{m}"] = {"ours": ours, "topk": partial(by_topk, scores, n, m)}
    for share in SPARSITIES:
        pruned = torch.where(pruners.unstructured({"w": weight.abs()}, share)["w"], weight, 0)
        deflated = zlib.compress(pruned.numpy().tobytes())
        found["unpack", f"{100 * share:.0f} % removed"] = {
            "ours": partial(packed.unpack, *packed.pack(pruned)),
            "zlib": lambda deflated=deflated: torch.frombuffer(bytearray(zlib.decompress(deflated)), dtype=torch.float),
        }
    return found


def by_numpy(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compress a 2:4 matrix that is known to be one, as `two_four.compress`."""
    cases = [table.numpy() for table in two_four.tables(torch.device("cpu"))]
    eights = weight.reshape(-1, 8)
    which = np.packbits(eights != 0, axis=1, bitorder="little")[:, 0]
    metadata, places = (table[which] for table in cases)
    return np.take_along_axis(eights, places, 1).reshape(len(weight), -1), metadata.reshape(len(weight), -1)


def by_topk(scores: Tensor, n: int, m: int) -> Tensor:
    """Make the mask of an n:m pattern by torch's topk."""
    groups = scores.reshape(-1, m)
    kept = torch.zeros_like(groups, dtype=torch.bool).scatter_(1, groups.topk(n, dim=1).indices, True)
    return kept.reshape(scores.shape)
