"""Choose which weights go together: patterns are pure functions from scores to masks (True = kept).

Every pattern has an argument `within`, masks as they are: what they have removed goes before anything else, so that a
network which is pruned further loses more and gets nothing back. `two_four` is score and pattern of the 2:4 workflow.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real

import numpy as np
import torch
from torch import Tensor, nn

from lib.base import BadInput, naming, refuse_outside, type_of
from lib.kernels.selection import all_but_lowest, highest_of_each
from lib.pruners.layers import Scores, eligible, layout
from lib.pruners.scores import check_within, described, magnitude
from lib.pruners.selected import Select, chosen
from lib.pruners.weights import Prunable

SCOPES = ("row", "layer", "network", "global")
Pattern = Callable[..., dict[str, Tensor]]


def check_pattern(pattern: object, alone: bool = False) -> None:
    """Refuse what cannot be a pattern.

    Args:
        alone: whether it is called with scores alone; a `Pruner` gives it a sparsity too.

    Raises:
        BadInput: it is no function of scores, or one that needs something else.
    """
    if not callable(pattern):
        raise BadInput(f"pattern={pattern!r:.60}: expected a function of scores, such as pruners.unstructured")
    if pattern is two_four:
        raise BadInput("two_four is a score and a pattern in one, a function of a model: give pruners.n_of_m")
    if alone:
        try:
            inspect.signature(pattern, follow_wrapped=False).bind({})
        except TypeError as error:
            name, cure = getattr(pattern, "__name__", repr(pattern)), "functools.partial gives it all but the scores"
            raise BadInput(f"the pattern {name:.40}: {error}; {cure}") from error
        except ValueError:  # written in C, which does not say what it takes
            return


def mask_by(pattern: Pattern, scores: Tensor) -> Tensor:
    """Ask a pattern for the mask of one matrix of scores [rows, inner].

    Raises:
        BadInput: it gives something else.
    """
    found = pattern({"weight": scores})
    mask = found.get("weight") if isinstance(found, Mapping) else found
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != scores.shape:
        expected = f"expected {{name: mask}}, for one of {list(scores.shape)} a bool mask like it (True = kept)"
        raise BadInput(f"the pattern gives {described(mask)}: {expected}")
    return mask


def unstructured(
    scores: Mapping[str, Tensor],
    sparsity: float | Sequence[float],
    scope: str = "network",
    floor: float = 0.0,
    within: Mapping[str, Tensor] | None = None,
    select: Select = None,
) -> dict[str, Tensor]:
    """Remove the lowest scores one by one.

    Exactly round(sparsity * n) of the n weights ranked together go, or more where `within` has removed more, ties
    included: among equal scores those that come first in the tensor go first. Scores of a stack [run, out, in] are
    ranked within each run.

    Args:
        scores: {parameter name: tensor}; `Scores` also know each parameter's network and layout. In a plain dictionary
            a tensor of three axes is a stack.
        sparsity: share to remove, in [0, 1); of a stack one number, or one a run.
        scope: what is ranked together: each "row" (the weights of one output) or "layer" (weight tensor) by itself, all
            of one "network", or "global".
        floor: share of its weights, rounded up, that each layer keeps whatever its rank; others go in their place.
        within: {parameter name: mask}; what these have removed goes first. Names that it lacks have lost nothing yet.
        select: which of the scores count, as `layers.prunable`; the others get no mask.

    Raises:
        BadInput: a setting out of its range, scores that cannot be ranked, a floor that leaves too little to remove.
    """
    if scope not in SCOPES:
        raise BadInput(f"scope={scope!r}: known are {', '.join(SCOPES)}")
    if not isinstance(floor, Real) or not 0 <= floor <= 1:
        raise BadInput(f"floor={described(floor)} is not in [0, 1]")
    scores = selected(scores, select)
    shares = per_run(sparsity, scores)
    check_within(scores, within)
    if scope == "row":
        return _row_by_row(scores, shares, floor, within)
    scores = _remaining(scores, within)
    masks: dict[str, Tensor] = {}
    for names in _pools(scores, scope):
        parts = [scores[name].reshape(len(shares), -1) for name in names]
        size = sum(part.shape[1] for part in parts)
        removed = [round(share * size) for share in shares]
        if floor:
            parts = [_protected(part, floor) for part in parts]
            free = sum((part < torch.inf).sum(1) for part in parts).tolist()
            if short := [share for share, count, most in zip(shares, removed, free, strict=True) if count > most]:
                raise BadInput(f"floor={floor} keeps more of {', '.join(names)} than sparsity={short[0]} leaves")
        kept = all_but_lowest(parts, removed)
        masks |= {name: part.reshape(scores[name].shape) for name, part in zip(names, kept, strict=True)}
    return still_gone({name: masks[name] for name in scores}, within)


def n_of_m(
    scores: Mapping[str, Tensor],
    n: int = 2,
    m: int = 4,
    sparsity: float | None = None,
    within: Mapping[str, Tensor] | None = None,
    select: Select = None,
) -> dict[str, Tensor]:
    """Keep the n highest scores of every m consecutive ones along the reduction axis (paper 2, section 3.1; 2:4).

    Consecutive means next to each other in the layer's matrix product: inputs of a Linear, input channels of a
    convolution (`kinds.Layout`). Among equal scores those that come first are kept.

    Args:
        scores: {parameter name: tensor} of layers that are not stacked.
        sparsity: what a schedule asks for. The pattern has only one, 1 - n / m, which this must be if it is given.
        within: {parameter name: mask}; what these have removed stays removed, so that fewer than n may be left.
        select: which of the scores count, as `layers.prunable`; the others get no mask.

    Raises:
        BadInput: a layer whose inner dimension m does not divide. `layer_rule` names the layers that fit. Another
            sparsity than the pattern's.
    """
    check_n_of_m("n_of_m", n, m, sparsity)
    scores = selected(scores, select)
    check(scores)
    check_within(scores, within)
    masks = {}
    for name, score in _remaining(scores, within).items():
        matrix = layout(scores, name).matrix(score)
        rows, inner = matrix.shape
        if inner % m:
            raise BadInput(f"{name}: inner dimension {inner} is not a multiple of {m}, so {n}:{m} does not fit it")
        kept = highest_of_each(matrix.reshape(-1, m), n).reshape(rows, inner)
        masks[name] = layout(scores, name).tensor(kept, score.shape).contiguous()
    return still_gone(masks, within)


def two_four(model: nn.Module, select: Select = None) -> dict[str, Tensor]:
    """Make the masks of the 2:4 workflow (paper 2, sections 4.1 and 4.2).

    In the layers that fit, of every four weights the two of the largest magnitude; other layers have no mask.

    Args:
        select: as `layers.prunable`.

    Raises:
        BadInput: no layer of the model fits, or it is a stack of runs.
    """
    return n_of_m(magnitude(model).only(fitting(model, select)), 2, 4)


def fitting(model: nn.Module, select: Select = None) -> list[str]:
    """Name the weights that the 2:4 workflow prunes (`eligible`), of which there must be one.

    Raises:
        BadInput: there is none.
    """
    if not (names := eligible(model, select)):
        why = "a multiple of 16 is needed; pruners.layer_rule says it layer by layer"
        raise BadInput(f"no layer of {type(model).__name__} has an inner dimension that fits: {why}")
    return names


def selected(scores: Mapping[str, Tensor], select: Select) -> Mapping[str, Tensor]:
    """Return the scores that a selection names; of a plain dict by its names alone."""
    if select is None or isinstance(scores, Scores):
        return scores if select is None else scores.only(select)
    layers = [Prunable(name, "", nn.Identity()) for name in scores]
    return {name: scores[name] for name in chosen(layers, select, {}, "there are scores for")}


def check_n_of_m(pattern: str, n: int, m: int, sparsity: float | None) -> None:
    """Refuse n and m that are not whole numbers with 0 < n < m, and a sparsity that is asked for and not the pattern's.

    Args:
        pattern: the name of the function that was called with n and m.

    Raises:
        BadInput: n and m are not whole numbers with 0 < n < m, or the sparsity is another than 1 - n / m.
    """
    if not (isinstance(n, Integral) and isinstance(m, Integral) and 0 < n < m):
        raise BadInput(
            f"{pattern}({described(n)}, {described(m)}): n must be at least 1 and smaller than m, both whole numbers"
        )
    own = (m - n) / m
    if sparsity is not None and not (isinstance(sparsity, Real) and math.isclose(sparsity, own)):
        raise BadInput(f"sparsity={sparsity}: {n} of {m} leaves {n / m:g}, so its sparsity is {own:g}")


def _remaining(scores: Mapping[str, Tensor], within: Mapping[str, Tensor] | None) -> Mapping[str, Tensor]:
    """The scores, of what is gone already minus infinity: below all others, which are finite."""
    if not within:
        return scores
    left = {
        name: _floats(score).masked_fill(~within[name], -torch.inf) if name in within else score
        for name, score in scores.items()
    }
    return Scores(left, scores.layers) if isinstance(scores, Scores) else left


def _floats(scores: Tensor) -> Tensor:
    """The scores in a type that has infinity, which whole numbers lack."""
    return scores if scores.is_floating_point() else scores.double()


def still_gone(masks: dict[str, Tensor], within: Mapping[str, Tensor] | None) -> dict[str, Tensor]:
    """Return the masks without what is gone already, where that is more than was asked for."""
    return {name: mask & within[name] if within and name in within else mask for name, mask in masks.items()}


def _row_by_row(
    scores: Mapping[str, Tensor], shares: Sequence[float], floor: float, within: Mapping[str, Tensor] | None
) -> dict[str, Tensor]:
    """`unstructured` with each row as a run of its own."""
    masks = {}
    for name, score in scores.items():
        lies = layout(scores, name)
        mine = score.flatten(0, 1) if lies.stacked else lies.matrix(score)
        kept = None
        if within is not None and name in within:
            kept = {name: (within[name].flatten(0, 1) if lies.stacked else lies.matrix(within[name]))[:, None]}
        each = [share for share in shares for _ in range(len(mine) // len(shares))]
        found = unstructured({name: mine[:, None]}, each, "layer", floor, kept)[name][:, 0]
        masks[name] = found.reshape(score.shape) if lies.stacked else lies.tensor(found, score.shape).contiguous()
    return masks


def _pools(scores: Mapping[str, Tensor], scope: str) -> list[list[str]]:
    """The names that are ranked together."""
    layers = getattr(scores, "layers", {})
    pools: dict[str, list[str]] = {}
    for name in scores:
        network = layers[name].network if name in layers else ""
        pools.setdefault({"layer": name, "network": network, "global": ""}[scope], []).append(name)
    return list(pools.values())


def per_run(sparsity: float | Sequence[float], scores: Mapping[str, Tensor]) -> list[float]:
    """Return the sparsity of each run; of one network as of a stack of one.

    Raises:
        BadInput: it is no number in [0, 1), or not one a run; or as `check`.
    """
    runs = check(scores)
    shares = [sparsity] * (runs or 1) if isinstance(sparsity, Real) else sparsity
    shares = list(shares) if isinstance(shares, (Sequence, np.ndarray)) and np.ndim(shares) == 1 else []
    if not shares or not all(isinstance(share, Real) for share in shares):
        raise BadInput(f"sparsity={described(sparsity)} is no number in [0, 1)")
    if len(shares) != (runs or 1):
        raise BadInput(f"{len(shares)} sparsities for {runs or 1} runs: give one number, or one a run")
    for share in shares:
        refuse_outside("[0, 1)", sparsity=share)
    return list(shares)


def _protected(scores: Tensor, floor: float) -> Tensor:
    """Scores [run, weights] of a layer, the highest of each run raised to infinity so that this share is kept."""
    count = scores.shape[1]
    least = math.ceil(round(floor * count, 9))  # rounded: 0.07 * 100 is a little more than 7
    alive = (scores > -torch.inf).sum(1).tolist()  # what is gone already cannot be kept
    (highest,) = all_but_lowest([scores], [count - min(least, there) for there in alive])
    return _floats(scores).masked_fill(highest, torch.inf)


def check(scores: Mapping[str, Tensor]) -> int | None:
    """Count how many runs the scores are of; None: of one network.

    Raises:
        BadInput: no scores, some that cannot be ranked, or scores of different runs.
    """
    if not isinstance(scores, Mapping):
        raise BadInput(f"scores are {type_of(scores)}: expected {{parameter name: tensor}}")
    if not scores:
        raise BadInput("no scores: at least one parameter is needed")
    for name, score in scores.items():
        if not isinstance(score, Tensor) or score.is_complex() or score.is_meta or not score.numel():
            raise BadInput(f"{name}: scores must be a tensor of real numbers, these are {described(score)}")
        with naming(name):
            layout(scores, name)
        if not bool(torch.isfinite(torch.stack(score.aminmax())).all()):  # one pass, no copy: NaN passes through both
            raise BadInput(f"{name}: {int((~torch.isfinite(score)).sum())} of {score.numel()} scores are not finite")
    runs = {len(score) if layout(scores, name).stacked else None for name, score in scores.items()}
    if len(runs) > 1:
        raise BadInput(f"scores of different runs together ({runs}): a stack has the same runs in all its layers")
    return runs.pop()
