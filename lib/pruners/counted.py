"""Count how sparse a model is, layer by layer: by the zeros that its products see."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lib.base import BadInput, refuse_outside
from lib.pruners.layers import matrices, say_partial, stacked_runs, survey
from lib.pruners.selected import Select
from lib.pruners.weights import Prunable, Refused

BESIDE = "not in the total: "  # how a table's row of what cannot be pruned begins


def sparsity(model: nn.Module, select: Select = None) -> float:
    """Compute the share of zeros among the prunable weights: the project's one definition of sparsity.

    Zeros are those that products see, and those that `pruners.sparse` has left out.

    Warns (`Partial`) where these are less than nine tenths of the network's matrix weights (`coverage`).

    Args:
        select: as `prunable`; who selects is not warned.
    """
    weights = values(matrices(model, select)).values()
    zeros = sum(int((weight == 0).sum()) for weight in weights)
    count = sum(weight.numel() for weight in weights)
    if select is None:
        say_partial(model, "this sparsity")
    return zeros / count


def values(layers: Iterable[Prunable | Refused]) -> dict[str, Tensor]:
    """Collect the weights that layers compute with, by their parameters' names.

    Raises:
        BadInput: as `refuse_valueless`.
    """
    weights = {layer.name: layer.weight for layer in layers}
    _refuse_meta(weights)
    return weights


def refuse_valueless(layers: Iterable[Prunable]) -> None:
    """Raise BadInput where a weight is on the meta device: it has a shape there, and nothing in it."""
    _refuse_meta({layer.name: layer.weight for layer in layers})


def refuse_shapeless(model: nn.Module) -> None:
    """Refuse a lazy layer that no input has passed yet: its weight has no shape, so that it would not be counted.

    Raises:
        BadInput: its name.
    """
    if lazy := [name for name, parameter in model.named_parameters() if is_lazy(parameter)]:
        raise BadInput(f"{lazy[0]} has no shape yet: run the model once")


def _refuse_meta(weights: Mapping[str, Tensor]) -> None:
    if empty := [name for name, weight in weights.items() if weight.is_meta]:
        raise BadInput(f"{empty[0]} is on the meta device, where it has no values: load the model first")


def sparsity_per_run(model: nn.Module) -> list[float]:
    """Compute the sparsity of each run of a stack.

    Raises:
        BadInput: the model is no stack.
    """
    table = report(model)
    if "run" not in table:
        raise BadInput(f"{type(model).__name__} is not a stack of runs: ask for its `sparsity`")
    return table.sparsity[table.layer == "total"].tolist()


def report(model: nn.Module, select: Select = None) -> pd.DataFrame:
    """Give one row a layer, then the total: `layer, shape, weights, kept, sparsity`; of a stack so for each `run`.

    What looks like a matrix of weights and cannot be pruned (`refused`) has a row before the total, which is named
    "not in the total: NAME".

    Args:
        select: as `prunable`; the total is that of the selected layers, and others have no row.
    """
    layers = matrices(model, select)
    runs = stacked_runs(layers)
    weights, others = values(layers), values(survey(model)[1] if select is None else [])
    if runs is None:
        return _counts(weights, others)
    tables = [_counts({name: weight[run] for name, weight in weights.items()}, others) for run in range(runs)]
    return pd.concat(tables, keys=range(runs), names=["run", None]).reset_index("run").reset_index(drop=True)


def empty_layers(model: nn.Module, share: float = 0.0, select: Select = None) -> pd.DataFrame:
    """Return the rows of `report` of layers that keep no more than this share of their weights; no row of others.

    A layer without weights passes on its bias only: whatever comes before it is cut off.

    Args:
        select: as `prunable`.

    Raises:
        BadInput: a share outside [0, 1].
    """
    refuse_outside("[0, 1]", share=share)
    table = report(model, select)
    of_layers = (table.layer != "total") & ~table.layer.str.startswith(BESIDE)
    return table[(table.kept <= share * table.weights) & of_layers].reset_index(drop=True)


def counts(name: str, weight: Tensor) -> dict[str, str | int]:
    """Count what a table says of a weight: layer, shape, weights, kept; of one without a shape yet there are none."""
    if is_lazy(weight):
        return {"layer": name, "shape": "", "weights": 0, "kept": 0}
    shape = " x ".join(map(str, weight.shape))
    return {"layer": name, "shape": shape, "weights": weight.numel(), "kept": int((weight != 0).sum())}


def _counts(weights: Mapping[str, Tensor], others: Mapping[str, Tensor]) -> pd.DataFrame:
    """The table of one network, and what its total does not count."""
    rows = [counts(name, weight) for name, weight in weights.items()]
    total = {"layer": "total", "shape": "", **{what: sum(row[what] for row in rows) for what in ("weights", "kept")}}
    beside = [counts(f"{BESIDE}{name}", weight) for name, weight in others.items()]
    table = pd.DataFrame([*rows, *beside, total])
    return table.assign(sparsity=1 - table.kept / table.weights)
