"""Before anything is pruned: what would each layer gain from 2:4, from unstructured zeros, from int8, on this machine?

    from lib.advise import advise
    advise(model, batch=64, shape=(3, 32, 32))

Speed depends on the processor and the shapes, not on the values, so each layer's own shapes are measured, in turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput, refuse_uncounted
from lib.bench.timing import in_turn
from lib.kernels import two_four
from lib.kernels.products import csr, csr_linear, int8_linear, padded, quantised
from lib.pruners.masks import numbers
from lib.pruners.uses import positions

COLUMNS = ("layer", "m", "n", "k", "sparsity", "batch", "dense_ms", "int8_ms", "two_four_ms", "csr_ms", "use", "why")
METHODS = {"dense": "dense", "int8": "int8", "two_four": "2:4", "csr": "CSR"}
CLEARLY = 1.05  # how many times as fast as dense another way must be before it is advised; less is noise


def advise(
    model: nn.Module, batch: int, device: str = "cpu", shape: Sequence[int] | None = None, seconds: float = 0.5
) -> pd.DataFrame:
    """Time the product of each Linear and Conv2d dense, int8, 2:4 and in CSR, and which of them to use.

    Weights that are not 2:4 yet are pruned for the measurement; CSR has the zeros that the weight has now. int8 stays
    dense and includes quantising the activations. A Conv2d is measured as the matrix product it amounts to (paper 2,
    section 3.2: m = outputs, k = inputs x kernel, n = batch x positions), on both sides without the cost of laying it
    out so. On a CPU the products are float32's, on a GPU float16's.

    Args:
        batch: examples at once.
        shape: of one example, without the batch axis. It tells how often each layer is used; left out, once, which
            no Conv2d is.
        seconds: of measuring, for each layer.

    Returns:
        A row a layer, columns COLUMNS: m, n, k of its product, milliseconds, `use` (one of METHODS), and `why`.

    Raises:
        BadInput: a batch below 1, a Conv2d without a shape, or as `two_four.backend`.
    """
    refuse_uncounted(batch=batch)
    if not 0 <= seconds < math.inf:
        raise BadInput(f"seconds={seconds}: expected a finite time for each layer")
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise BadInput(f"device={device!r}: expected cpu, or cuda where torch finds a GPU")
    dtype = torch.float32 if device == "cpu" else torch.float16
    two_four.backend(dtype, device)
    layers = pruners.prunable(model)
    numbers(layers)  # refuses weights without values
    conv = [layer.name for layer in layers if isinstance(layer.module, nn.Conv2d)]
    if conv and shape is None:
        raise BadInput(f"{conv[0]} is a Conv2d, its product depends on the image: give shape=(channels, height, width)")
    uses = {layer.name: 1 for layer in layers} if shape is None else positions(model, shape)
    rows = []
    for layer in layers:
        matrix, groups = layer.matrix().to(device, dtype), getattr(layer.module, "groups", 1)
        m, k, n = len(matrix) // groups, matrix.shape[1], batch * uses.get(layer.name, 0)
        row = {"layer": layer.name, "m": m, "n": n, "k": k, "batch": batch}
        row["sparsity"] = float((matrix == 0).double().mean())
        if groups > 1 or n == 0:
            why = (
                "not used by such an example" if n == 0 else f"{groups} groups: small products, no sparse one for them"
            )
            rows.append(row | {"use": "dense", "why": why})
        else:
            times = measure(matrix, n, seconds)
            backend = two_four.backend(dtype, device, n, m * k)
            rows.append(row | {f"{key}_ms": ms for key, ms in times.items()} | verdict(times, backend))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def measure(matrix: Tensor, n: int, seconds: float) -> dict[str, float]:
    """Return median milliseconds of each of METHODS for n rows of activations."""
    x = torch.randn(n, matrix.shape[1], device=matrix.device).to(matrix.dtype)
    wide = padded(matrix, 1, 4)
    pruned = wide * pruners.n_of_m({"weight": wide.abs()})["weight"]
    rivals = {
        "dense": partial(F.linear, x, matrix),
        "int8": partial(int8_linear, x, quantised(matrix)),
        "two_four": partial(two_four.linear, x, two_four.compressed(pruned[:, : matrix.shape[1]].contiguous())),
        "csr": partial(csr_linear, x, csr(matrix)),
    }
    return in_turn(rivals, seconds)


def verdict(times: Mapping[str, float], backend: str) -> dict[str, str]:
    """Return {use, why}: the fastest way if it is clearly faster than dense, and how the others compare with dense.

    Args:
        times: milliseconds of each of METHODS.
        backend: how the 2:4 product was computed; "dense" means that there was no sparse one to take.
    """
    gains = {method: times["dense"] / ms for method, ms in times.items() if method != "dense"}
    best = max(gains, key=gains.get)
    use = best if gains[best] >= CLEARLY else "dense"
    told = ", ".join(f"{METHODS[method]} {gain:.2f} x" for method, gain in gains.items())
    why = "dense is faster here" if use == "dense" else f"{METHODS[use]} is the fastest"
    by_dense = "; 2:4 is computed densely, no sparse product is faster here" if backend == "dense" else ""
    return {"use": use, "why": f"{why} (speed relative to dense: {told}){by_dense}"}
