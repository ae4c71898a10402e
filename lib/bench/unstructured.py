"""Time finding the lowest weights of a network: `pruners.unstructured`, torch's kthvalue, and a stable sort.

kthvalue finds only the threshold, which is less than a mask, and ties are left over. The sort finds the same mask as
`unstructured`, ties in their order. Bytes are those that the process holds at most beside the scores, a weight.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from lib import pruners
from lib.kernels.timing import in_turn, peak_bytes

DEVICE, THREADS = "cpu", 1
COLUMNS = ("weights", "scores", "sparsity", "method", "ms", "ratio_to_kthvalue", "bytes_a_weight")
SIDES, SPARSITIES = (1024, 4096), (0.5, 0.9)


def run(device: str) -> list[dict]:
    """Return one row a size, kind of scores, sparsity and method; "few" scores are whole numbers with many ties."""
    rows = []
    for side in SIDES:
        gaussian = torch.randn(side, side, generator=torch.Generator().manual_seed(0)).abs()
        for kind, scores in {"gaussian": gaussian, "few": (10 * gaussian).floor()}.items():
            rows += [{"scores": kind} | row for share in SPARSITIES for row in measured(scores, share)]
    return rows


def measured(scores: Tensor, sparsity: float, seconds: float = 3.0) -> list[dict]:
    """Return the rows of one matrix of scores."""
    removed = round(sparsity * scores.numel())
    rivals: dict[str, Callable[[], Tensor]] = {
        "kthvalue": lambda: scores.flatten().kthvalue(removed).values,
        "unstructured": lambda: pruners.unstructured({"w": scores}, sparsity)["w"],
        "stable sort": lambda: by_sorting(scores, removed),
    }
    for call in rivals.values():  # a first call keeps memory that later ones find
        call()
    taken = {name: peak_bytes(call) / scores.numel() for name, call in rivals.items()}
    times = in_turn(rivals, seconds, warmup=0)
    return [
        {"weights": scores.numel(), "sparsity": sparsity, "method": name, "ms": times[name]}
        | {"ratio_to_kthvalue": times[name] / times["kthvalue"], "bytes_a_weight": taken[name]}
        for name in rivals
    ]


def by_sorting(scores: Tensor, removed: int) -> Tensor:
    """Return the mask that keeps all but so many of the lowest; of equal ones the first go."""
    kept = torch.ones(scores.numel(), dtype=torch.bool)
    kept[scores.flatten().argsort(stable=True)[:removed]] = False
    return kept.reshape(scores.shape)
