"""Time how one layer is pruned in one shot: magnitude, Wanda, SparseGPT; and gathering what they know of it.

All prune the same Gaussian weight in float32 on one core and take turns; milliseconds are medians. SparseGPT and the
second moments are in float64. The row "moments" is what Wanda and SparseGPT need before: X X^T of so many inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch

from lib import pruners
from lib.kernels.timing import in_turn

DEVICE, THREADS = "cpu", 1
COLUMNS = ("rows", "columns", "inputs", "pattern", "method", "ms", "ratio_to_magnitude")
SIDES = (512, 1024)
INPUTS = 4096


def run(device: str) -> list[dict]:
    """Return one row a size, pattern and method."""
    return [row for side in SIDES for row in measured(side)]


def measured(side: int, inputs: int = INPUTS, seconds: float = 3.0) -> list[dict]:
    """Time the rows of one square weight."""
    draw = torch.Generator().manual_seed(0)
    weight, entering = torch.randn(side, side, generator=draw), torch.randn(inputs, side, generator=draw)
    moments = entering.double().T @ entering.double() / inputs
    half = partial(pruners.unstructured, sparsity=0.5)
    patterns = {
        "2:4": (partial(pruners.n_of_m, n=2, m=4), 4, partial(pruners.n_of_m, n=2, m=4)),
        "4:8": (partial(pruners.n_of_m, n=4, m=8), 8, partial(pruners.n_of_m, n=4, m=8)),
        "50 %": (partial(half, scope="layer"), 128, partial(half, scope="row")),
    }
    rows = []
    for name, (pattern, width, by_row) in patterns.items():
        solvers = {"Wanda": pruners.Wanda(by_row), "SparseGPT": pruners.SparseGPT(pattern, width)}
        rivals: dict[str, Callable[[], object]] = {
            "magnitude": partial(lambda pattern: pattern({"w": weight.abs()}), pattern)
        }
        rivals |= {method: partial(solver, weight, moments) for method, solver in solvers.items()}
        rivals["moments"] = lambda: entering.double().T @ entering.double()
        times = in_turn(rivals, seconds, warmup=1)
        where = {"rows": side, "columns": side, "inputs": inputs, "pattern": name}
        rows += [
            where | {"method": method, "ms": ms, "ratio_to_magnitude": ms / times["magnitude"]}
            for method, ms in times.items()
        ]
    return rows
