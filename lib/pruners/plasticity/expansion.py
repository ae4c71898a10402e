"""Network expansion (section 4): when to wake dormant units, and which."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from lib.errors import BadInput
from lib.pruners.plasticity.network import OPEN, SPREAD, choose
from lib.pruners.plasticity.structure import Layer, arriving


def plateaus(losses: Sequence[float], patience: int, tolerance: float) -> bool:
    """Whether the last `patience` losses bring no new best one, better than the earlier best by more than `tolerance`.

    The paper says "plateaus" and no more; these two numbers are ours.
    """
    return len(losses) > patience and min(losses[-patience:]) >= min(losses[:-patience]) - tolerance


def expand(layers: dict[str, Layer], draw: torch.Generator, level: float = OPEN) -> list[str]:
    """Wake one unit in each gated layer that has dormant units and no redundant one; the layers where one was woken.

    To be called when the regularised loss plateaus, which is condition (a) of section 4; no redundant unit is (b). An
    empty answer is the end of the expansion.
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
    gates.phi[unit] = level * (1 / gates.k if gates.k else 1.0) + SPREAD * float(torch.randn((), generator=draw))
    gates.awake[unit] = True
    return unit
