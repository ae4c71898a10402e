"""Verify what holds in a model now, layer by layer, read from the weights that its products see and from nothing
else.
"""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor, nn

from lib.pruners.counted import BESIDE, counts, values
from lib.pruners.layers import matrices, survey
from lib.pruners.masks import attached, original
from lib.pruners.selected import Select

GROUPS = (2, 4, 8, 16)  # lengths m of the N:M patterns that are looked for
EXPLAINED = 1.25  # an N:M that lets so many times as many weights stay as do is a chance, and not the layer's pattern
COLUMNS = ("layer", "shape", "weights", "kept", "sparsity", "pattern", "two_four", "both_ways", "mask")


def verify(model: nn.Module, select: Select = None) -> pd.DataFrame:
    """Say of each prunable weight which pattern its zeros have and what share they are, then of all together.

    Nothing is taken on trust: a mask that was attached once, a name or a file's promise says nothing here.

    Args:
        select: as `prunable`; the total is that of the selected layers, and others have no row.

    Returns:
        A row a layer, then one named "not in the total: NAME" for each tensor that looks like a matrix of weights and
        cannot be pruned (`refused`), then "total", with columns COLUMNS. `pattern` is "dense" (no zeros), the N:M with
        the fewest left of every m in GROUPS along the reduction axis, the shortest of equal ones, or "unstructured"
        where none explains the zeros (EXPLAINED): half of the weights removed one by one may be 14:16 by chance.
        `two_four`: at least two of every four are zero, so that sparse tensor cores take it. `both_ways`: the pattern
        holds along the other axis of the product too; False for a stack of runs, of which it is not asked. `mask`:
        "held" if a mask keeps all zeros through training, or if `pruners.sparse` has left them out, "free" if they
        would move.

    Raises:
        BadInput: as `prunable`, or weights on the meta device.
    """
    layers, masks, rows = matrices(model, select), attached(model), []
    weights = values(layers)
    for layer in layers:
        weight = weights[layer.name]
        matrix = weight.flatten(0, 1) if layer.runs is not None else layer.matrix(weight)
        n, m = tightest(matrix)
        row = counts(layer.name, weight)
        kept, count = row["kept"], row["weights"]
        mask = torch.ones_like(original(layer)) if layer.sparse else masks.get(layer.name)  # each value has its place
        held = mask is not None and int(mask.count_nonzero()) <= kept
        explained = n < m and n / m <= EXPLAINED * kept / count
        row["pattern"] = "dense" if kept == count else f"{n}:{m}" if explained else "unstructured"
        row["two_four"] = most(matrix, 4) <= 2
        row["both_ways"] = explained and layer.runs is None and most(matrix.T, m) <= n
        rows.append(row | {"mask": "held" if held else "free" if kept < count else ""})
    none = {"shape": "", "pattern": "", "two_four": False, "both_ways": False, "mask": ""}
    others = values(survey(model)[1] if select is None else [])
    beside = [none | counts(f"{BESIDE}{name}", weight) for name, weight in others.items()]
    sums = {name: sum(row[name] for row in rows) for name in ("weights", "kept")}
    same = {name: all(row[name] for row in rows) for name in ("two_four", "both_ways")}
    table = pd.DataFrame([*rows, *beside, none | {"layer": "total"} | sums | same])
    return table.assign(sparsity=1 - table.kept / table.weights)[list(COLUMNS)]


def tightest(matrix: Tensor) -> tuple[int, int]:
    """Find the N:M with the smallest share that the zeros of a matrix have along its rows; (1, 1) if there is none."""
    found = [(most(matrix, m), m) for m in GROUPS]
    fits = [(n, m) for n, m in found if n < m]
    return min(fits, key=lambda pair: pair[0] / pair[1], default=(1, 1))


def most(matrix: Tensor, m: int) -> int:
    """Count the nonzeros of the fullest group of m along the rows of a matrix; m where m does not divide them."""
    if matrix.shape[1] % m or not matrix.numel():
        return m
    return int((matrix != 0).reshape(len(matrix), -1, m).sum(-1, dtype=torch.int32).max())
