"""Expand a network (section 4): when to wake dormant units, and which; and when sizes have come to rest."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lib.base import BadInput
from lib.pruners.gates.model import OPEN, choose, deviation
from lib.pruners.gates.structure import Layer, arriving


def plateaus(losses: Sequence[float], patience: int, tolerance: float) -> bool:
    """Say whether the loss has stopped changing: its last `patience` + 1 values lie within `tolerance` of one another.

    A loss that rises by more is no plateau, and neither is one that falls by more. The paper says "plateaus" and no
    more (section 4); these two numbers are ours.
    """
    recent = losses[-patience - 1 :]
    return len(losses) > patience and max(recent) - min(recent) <= tolerance


def at_rest(counts: Sequence[Sequence[int]], epochs: int) -> bool:
    """Say whether a network's sizes have changed and then come to rest: they have not in the last `epochs` epochs.

    Without the first condition gates that start open, and need a while to close, would be at rest before they move.
    The paper fixes the architecture after stage 2 (section 3.3) and does not say when that ends; this rule is ours.

    Args:
        counts: the numbers of open gates, one of each layer, after each epoch so far.
    """
    since = next((ago for ago, count in enumerate(reversed(counts)) if list(count) != list(counts[-1])), None)
    return since is not None and since > epochs


def expand(layers: dict[str, Layer], draw: torch.Generator, level: float = OPEN) -> list[str]:
    """Wake one unit in each gated layer that has dormant units and no redundant one, and name these layers.

    It is to be called when the regularised loss plateaus, which is condition (a) of section 4; no redundant unit is
    (b). An empty answer is the end of the expansion.
    """
    woken = []
    for name, layer in layers.items():
        if (gates := layer.gates) is None:
            continue
        gates.awake |= gates.is_open()  # a dormant unit that its gradient has opened is awake too
        if bool(gates.dormant().any()) and not bool(gates.redundant().any()):
            wake(layers, name, draw, level)
            woken.append(name)
    return woken


@torch.no_grad()
def wake(layers: dict[str, Layer], name: str, draw: torch.Generator, level: float = OPEN) -> int:
    """Wake one dormant unit of a layer, chosen at random, and say which.

    Among flattened positions those of open channels come first: the others have no input.

    Args:
        layers: from `trace`.
        draw: a CPU generator.
        level: k phi of the new unit. 3 is how the paper activates a unit ("a large phi such that it will be
            activated"); the authors' code has 0.1 for the moons and 0 for LeNet-5.

    Raises:
        BadInput: the layer has no gates, or none of its units is dormant.
    """
    if name not in layers or layers[name].gates is None:
        raise BadInput(f"{name!r} has no gates; with gates: {', '.join(n for n, la in layers.items() if la.gates)}")
    layer, gates = layers[name], layers[name].gates
    dormant = gates.dormant().cpu()
    if not bool(dormant.any()):
        raise BadInput(f"{name} has no dormant units: all {len(dormant)} have been open, so it cannot be expanded")
    fed = dormant & arriving(layers, name) if layer.inputs is not None else dormant
    unit = int(choose(1, dormant.int() + fed.int(), draw).nonzero())
    gates.phi[unit] = level * (1 / gates.k) + deviation(gates.k) * float(torch.randn((), generator=draw))
    gates.awake[unit] = True
    return unit
