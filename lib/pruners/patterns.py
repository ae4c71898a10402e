"""Patterns: which weights may go together. Pure functions from scores to masks (True = kept)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from lib.errors import BadInput
from lib.pruners.layers import as_matrix, from_matrix

SCOPES = ("layer", "network", "global")


def unstructured(scores: Mapping[str, Tensor], sparsity: float, scope: str = "network") -> dict[str, Tensor]:
    """Remove the lowest scores one by one.

    Exactly round(sparsity * n) of the n weights ranked together go, ties included: among equal scores those that
    come first in the tensor go first.

    Args:
        scores: {parameter name: tensor}; `Scores` also know each parameter's network.
        sparsity: share to remove, in [0, 1).
        scope: what is ranked together: each "layer" (weight tensor) by itself, all of one "network", or "global".
    """
    if not 0 <= sparsity < 1:
        raise BadInput(f"sparsity={sparsity} is not in [0, 1)")
    if scope not in SCOPES:
        raise BadInput(f"scope={scope!r}: known are {', '.join(SCOPES)}")
    _check(scores)
    masks: dict[str, Tensor] = {}
    for names in _pools(scores, scope):
        pool = torch.cat([scores[name].flatten() for name in names])
        removed = pool.argsort(stable=True)[: round(sparsity * len(pool))]
        kept = torch.ones_like(pool, dtype=torch.bool)
        kept[removed] = False
        parts = kept.split([scores[name].numel() for name in names])
        masks |= {name: part.reshape(scores[name].shape) for name, part in zip(names, parts, strict=True)}
    return {name: masks[name] for name in scores}


def n_of_m(scores: Mapping[str, Tensor], n: int = 2, m: int = 4) -> dict[str, Tensor]:
    """Keep the n highest scores of every m consecutive ones along the reduction axis (paper 2, section 3.1; 2:4).

    Consecutive means next to each other in the layer's matrix product: inputs of a Linear, input channels of a
    Conv2d (`as_matrix`). Among equal scores those that come first are kept.

    Raises:
        BadInput: a layer whose inner dimension m does not divide. `layer_rule` names the layers that fit.
    """
    if not 0 < n < m:
        raise BadInput(f"n_of_m({n}, {m}): n must be at least 1 and smaller than m")
    _check(scores)
    masks = {}
    for name, score in scores.items():
        matrix = as_matrix(score)
        rows, inner = matrix.shape
        if inner % m:
            raise BadInput(f"{name}: inner dimension {inner} is not a multiple of {m}, so {n}:{m} does not fit it")
        groups = matrix.reshape(rows, inner // m, m)
        first = groups.argsort(dim=-1, descending=True, stable=True)[..., :n]
        kept = torch.zeros_like(groups, dtype=torch.bool).scatter_(-1, first, True)
        masks[name] = from_matrix(kept.reshape(rows, inner), score.shape).contiguous()
    return masks


def _pools(scores: Mapping[str, Tensor], scope: str) -> list[list[str]]:
    """The names that are ranked together."""
    layers = getattr(scores, "layers", {})
    pools: dict[str, list[str]] = {}
    for name in scores:
        network = layers[name].network if name in layers else ""
        pools.setdefault({"layer": name, "network": network, "global": ""}[scope], []).append(name)
    return list(pools.values())


def _check(scores: Mapping[str, Tensor]) -> None:
    if not scores:
        raise BadInput("no scores: at least one parameter is needed")
    for name, score in scores.items():
        if score.dim() not in (2, 4):
            raise BadInput(f"{name}: scores of a Linear have 2 axes and of a Conv2d 4, these have {score.dim()}")
        if not bool(torch.isfinite(score).all()):
            raise BadInput(f"{name}: {int((~torch.isfinite(score)).sum())} of {score.numel()} scores are not finite")
