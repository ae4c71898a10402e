"""Time matrix products: 2:4, unstructured sparsity and narrow types against dense ones (paper 2, figure 3, table 1).

Sizes as in the paper (section 3.2, figure 2): a weight [m, k] times activations [k, n], so m counts outputs, k is the
length of each sum, and n the examples (or tokens) at once. On a GPU the rival is the dense product of the same type; on
a CPU, where narrow types are the real alternative to sparsity, it is float32's, and int8 includes quantising the
activations. Every way of multiplying by a 2:4 weight is measured, also those that `two_four.linear` would not take.

fraction_of_limit is the speed-up relative to `limit`. Above 1 the dense rival is itself far from what it could be. A
product that fails has no time, and its row says why in place of the back end. Rivals take turns of one call, so each
finds in the cache what the others have left there, as a layer does among the others of a network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import median

import torch
from torch import Tensor
from torch.nn import functional as F

from lib import pruners
from lib.kernels import storage, two_four
from lib.kernels.products import csr, csr_linear, int8_linear, int_linear, quantised
from lib.kernels.timing import rounds, times_as_fast

KEYS = ("backend", "dtype", "pattern", "sparsity")
SPEED = ("speedup", "speedup_low", "speedup_high")  # over the dense product, with quartiles: `times_as_fast`
COLUMNS = ("backend", "dtype", "m", "n", "k", "pattern", "sparsity", "ms", "dense_ms", *SPEED, "fraction_of_limit")
THREADS = 1  # on a CPU, so that runs on machines with more cores can be compared

CPU_WEIGHTS = ((1024, 1024), (3072, 768), (768, 3072), (4096, 4096))  # m, k; the middle two are BERT-base's
CPU_BATCHES = (1, 2, 8, 64, 1024)
SPARSITIES = (0.5, 0.75, 0.9, 0.95, 0.99)

GPU_LARGE = [(10240, 10240, k) for k in (512, 1024, 2048, 4096, 8192, 12288, 16384, 20480)]  # m, n, k; n is figure 3's
GPU_TRANSFORMERS = [(4096, 4096, 1024), (1024, 4096, 4096), (11008, 2048, 4096), (4096, 2048, 11008)]
GPU_TRANSFORMERS += [(12288, 2048, 12288), (49152, 2048, 12288)]  # GPT-3's, which section 3.2 names
GPU_SMALL = [(4096, n, 4096) for n in (1, 8, 64)]  # where 2:4 is said to lose
GPU_TYPES = (torch.float16, torch.bfloat16, torch.int8)

Rivals = dict[tuple[str, str, str, float], Callable[[], object]]  # by KEYS; the first is what the others run against


def run(device: str) -> list[dict]:
    """Return one row a shape, type, pattern and way of multiplying."""
    return list(on_gpu() if device == "cuda" else on_cpu())


def on_cpu(
    weights: Sequence[tuple[int, int]] = CPU_WEIGHTS, batches: Sequence[int] = CPU_BATCHES, seconds: float = 2.0
) -> Iterator[dict]:
    """Return rows of each weight (m, k) and batch n, measured for so many seconds."""
    torch.manual_seed(0)
    for m, k in weights:
        weight = torch.randn(m, k)
        pruned = half_of(weight)
        narrow, codes = weight.bfloat16(), quantised(weight)
        forms = {backend: two_four.compressed(pruned, backend) for backend in ("select", "dense")}
        sparse = {share: csr(weight * (torch.rand(m, k) >= share)) for share in SPARSITIES}
        for n in batches:
            x = torch.randn(n, k)
            rivals: Rivals = {
                ("dense", "float32", "dense", 0.0): partial(F.linear, x, weight),
                ("dense", "bfloat16", "dense", 0.0): partial(F.linear, x.bfloat16(), narrow),
                ("dense", "int8", "dense", 0.0): partial(int8_linear, x, codes),
            }
            for backend, packed in forms.items():
                rivals[backend, "float32", "2:4", 0.5] = partial(two_four.linear, x, packed)
            for share, packed in sparse.items():
                rivals["csr", "float32", "unstructured", share] = partial(csr_linear, x, packed)
            yield from compare(rivals, m, n, k, seconds)


def on_gpu() -> Iterator[dict]:
    """Return rows of each type and shape, half a second each."""
    torch.manual_seed(0)
    for dtype in GPU_TYPES:
        for m, n, k in (*GPU_LARGE, *GPU_TRANSFORMERS, *GPU_SMALL):
            yield from compare(gpu_rivals(dtype, m, n, k), m, n, k, seconds=0.5)


def gpu_rivals(dtype: torch.dtype, m: int, n: int, k: int, device: str = "cuda") -> Rivals:
    """List the dense product and each way to the sparse tensor cores that this build of torch has."""
    name = str(dtype).removeprefix("torch.")
    x, weight = random(n, k, dtype, device), random(m, k, dtype, device)
    pruned, dense = half_of(weight), int_linear if dtype == torch.int8 else F.linear
    rivals: Rivals = {("dense", name, "dense", 0.0): partial(dense, x, weight)}
    if torch.backends.cusparselt.is_available():
        packed = two_four.compressed(pruned, "cusparselt")
        backend = f"cusparselt {torch.backends.cusparselt.version()}"
        rivals[backend, name, "2:4", 0.5] = partial(two_four.linear, x, packed)
        rivals[f"{backend} searched", name, "2:4", 0.5] = Searched(x, packed)
    rivals["cutlass", name, "2:4", 0.5] = partial(two_four.linear, x, two_four.compressed(pruned, "cutlass"))
    return rivals


class Searched:
    """Multiply with the fastest of cuSPARSELt's kernels, which its first call searches."""

    def __init__(self, x: Tensor, weight: two_four.Compressed):
        self.x, self.weight, self.found = x, weight, False

    def __call__(self) -> Tensor:
        if not self.found:
            self.weight, self.found = two_four.searched(self.x, self.weight), True
        return two_four.linear(self.x, self.weight)


def compare(rivals: Rivals, m: int, n: int, k: int, seconds: float) -> Iterator[dict]:
    """Return the rows of one shape: rivals called in turn, those that fail left out and named with the reason."""
    failed = {key: why for key, call in rivals.items() if (why := failure(call))}
    times = rounds({key: call for key, call in rivals.items() if key not in failed}, seconds, warmup=1)
    medians = {key: median(own) for key, own in times.items()}
    first = next(iter(rivals))
    dense = medians.get(first)
    for key in rivals:
        row = dict(zip(KEYS, key, strict=True)) | {"m": m, "n": n, "k": k, "ms": medians.get(key), "dense_ms": dense}
        if key in failed:
            row["backend"] += f" failed: {failed[key]}"
        elif dense is not None:
            row |= zip(SPEED, times_as_fast(times[first], times[key]), strict=True)
            row["fraction_of_limit"] = row["speedup"] / limit(row, bits(first[1]))
        yield row


def failure(call: Callable[[], object]) -> str:
    """Say why a product cannot be had, in one line; empty when it can. Kernels differ in what they refuse."""
    try:
        call()
    except (RuntimeError, NotImplementedError, ValueError) as error:
        return " ".join(str(error).split())[:200]
    return ""


def limit(row: dict, dense_bits: int) -> float:
    """Return the speed-up that the format allows.

    With one column of activations (n = 1) every weight is read and used once, so it is the ratio of the weights' bytes,
    metadata included. Otherwise the ratio of operations, 2 for 2:4 and 1 / (1 - sparsity) for CSR, times how many more
    narrow operands an instruction takes.
    """
    m, k, value_bits = row["m"], row["k"], bits(row["dtype"])
    nonzeros = round((1 - row["sparsity"]) * m * k)
    if row["n"] > 1:
        return m * k * dense_bits / (nonzeros * value_bits)
    form = {"dense": "dense", "2:4": "two_four", "unstructured": "csr"}[row["pattern"]]
    return m * k * dense_bits / storage.bits(form, m, k, nonzeros, value_bits, index_bits=32)


def bits(dtype: str) -> int:
    """Count the bits of a value of a type, named as in the rows."""
    return 8 * getattr(torch, dtype).itemsize


def random(rows: int, columns: int, dtype: torch.dtype, device: str) -> Tensor:
    """Draw normal values, or int8 codes that are equally likely."""
    if dtype == torch.int8:
        return torch.randint(-127, 128, (rows, columns), dtype=dtype, device=device)
    return torch.randn(rows, columns, dtype=dtype, device=device)


def half_of(weight: Tensor) -> Tensor:
    """Prune the weight to 2:4 by magnitude."""
    return weight * pruners.n_of_m({"weight": weight.float().abs()})["weight"]
