"""Measures of speed for claims and tables: from the rows of a benchmark to one number a product, or a network.

A cell of `lib.bench.two_four_gemm` is "device/type m x n x k"; its number is a median of many timings. Of several ways
to the same product the fastest counts; products that failed do not.
"""

from __future__ import annotations

import pandas as pd

from lib.errors import BadInput
from lib.kernels.two_four import SPARSE_CORES


def speedup(
    products: pd.DataFrame,
    dtype: str,
    device: str,
    pattern: str = "2:4",
    sparsity: float = 0.5,
    min_n: int = 1,
    min_k: int = 1,
) -> dict[str, float]:
    """How many times as fast as the dense rival a sparse product is (paper 2, figure 3), product by product.

    Args:
        device: "cuda": on sparse tensor cores; "cpu": on processors.
        min_n, min_k: the smallest number of activations, and length of the sums, that counts.

    Raises:
        BadInput: an unknown kind of device.
    """
    found = _fastest(products, dtype, device, pattern, sparsity)
    large = found[(found.n >= min_n) & (found.k >= min_k)]
    return {f"{row.device}/{dtype} {row.m} x {row.n} x {row.k}": row.speedup for row in large.itertuples()}


def nearer_to_two(products: pd.DataFrame, dtype: str, device: str, m: int, n: int) -> dict[str, float]:
    """How much nearer to 2 the speed-up of the 2:4 product with the largest k is than that with the smallest.

    Of products m x n x k with these m and n (paper 2, figure 3: 10,240 both); above 0 means that larger ones gain more.
    """
    found = _fastest(products, dtype, device, "2:4", 0.5)
    series = found[(found.m == m) & (found.n == n)].sort_values("k")
    return {
        f"{name}/{dtype} {m} x {n}": abs(2 - rows.speedup.iloc[0]) - abs(2 - rows.speedup.iloc[-1])
        for name, rows in series.groupby("device")
        if len(rows) > 1
    }


def of_agents(agents: pd.DataFrame, task: str, sparsity: float, device: str) -> dict[str, float]:
    """How many times as fast as a dense one a network of the weights that are left is (paper 1, section 6).

    Args:
        agents: rows of `lib.bench.sparse_agents`.
        task: "act" or "train".
        device: "cuda", or "cpu": rows whose device counts cores.

    Returns:
        {"device/network, n at once": times as fast}.

    Raises:
        BadInput: an unknown kind of device or task.
    """
    if device not in ("cpu", "cuda") or task not in ("act", "train"):
        raise BadInput(f"device {device!r}, task {task!r}: known are cpu, cuda and act, train")
    on_cpu = agents.device.str.endswith("cores")
    kind = (agents.implementation == "sparse") & (agents.task == task) & (agents.sparsity == sparsity)
    found = agents[kind & (on_cpu if device == "cpu" else ~on_cpu)]
    return {f"{row.device}/{row.network}, {row.examples} at once": row.speedup for row in found.itertuples()}


def _fastest(products: pd.DataFrame, dtype: str, device: str, pattern: str, sparsity: float) -> pd.DataFrame:
    """The fastest row of each product of a type, pattern and kind of device."""
    if device not in ("cpu", "cuda"):
        raise BadInput(f"device {device!r}: known are cpu, cuda")
    on_cores = products.backend.str.split().str[0].isin(list(SPARSE_CORES))
    kind = (products["dtype"] == dtype) & (products.pattern == pattern) & (products.sparsity == sparsity)
    found = products[kind & (on_cores if device == "cuda" else ~on_cores)].dropna(subset="speedup")
    return found.loc[found.groupby(["device", "m", "n", "k"]).speedup.idxmax()]
