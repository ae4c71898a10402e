"""Compare what transposable masks keep and how long they take to find: the exact ones, and two rules that others use.

Kept is in percent of the magnitude of a Gaussian matrix, short the share of blocks in percent in which fewer than
n x m weights stay, optimal that whose sum is at least that of the best mask with n both ways (up to rounding). All are
compiled loops or products over all blocks of the matrix, and take turns on one core; milliseconds are medians and grow
with the number of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from lib.kernels.timing import in_turn
from lib.pruners import n_of_m, transposable
from lib.pruners.block_rules import by_rule, greedy, two_approximation
from lib.pruners.transposable import assignment, dual, to_blocks

DEVICE, THREADS = "cpu", 1
COLUMNS = ("n", "m", "rows", "columns", "method", "kept", "short", "optimal", "ms", "ratio_to_exact")
SIDE, PATTERNS = 4096, ((2, 4), (4, 8), (8, 16))
SAMPLE = 2**14  # blocks of which the share of optimal ones is counted


def run(device: str) -> list[dict]:
    """Return one row a pattern and method."""
    return [row for n, m in PATTERNS for row in measured(n, m, SIDE)]


def measured(n: int, m: int, side: int, seconds: float = 3.0) -> list[dict]:
    """Return the rows of one pattern on a Gaussian matrix [side, side]; the plain mask of rows only is there to
    compare.
    """
    magnitude = torch.randn(side, side, generator=torch.Generator().manual_seed(0)).abs()
    rivals: dict[str, Callable[[], Tensor]] = {
        "rows only": lambda: n_of_m({"w": magnitude}, n, m)["w"],
        "exact": lambda: transposable({"w": magnitude}, n, m)["w"],
        "greedy": partial(by_rule, magnitude, n, m, greedy),
        "2-approximation": partial(by_rule, magnitude, n, m, two_approximation),
    }
    blocks = to_blocks(magnitude, m)[:SAMPLE].double()
    best = dual(blocks, n, *assignment(blocks, n)[1:])
    shares = {}
    for name, search in rivals.items():  # this also compiles
        mask = search()
        by_block = to_blocks(mask, m)
        shares[name] = {
            "kept": 100 * float(magnitude[mask].double().sum() / magnitude.double().sum()),
            "short": 100 * float((by_block.sum((1, 2)) < n * m).double().mean()),
        }
        if name != "rows only":
            optimal = (blocks * by_block[:SAMPLE]).sum((1, 2)) > best - 1e-5 * best
            shares[name]["optimal"] = 100 * float(optimal.double().mean())
    times = in_turn(rivals, seconds, warmup=0)
    where = {"n": n, "m": m, "rows": side, "columns": side}
    return [
        where | {"method": name, **share, "ms": times[name], "ratio_to_exact": times[name] / times["exact"]}
        for name, share in shares.items()
    ]
