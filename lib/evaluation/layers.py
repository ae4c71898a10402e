"""Measures of which layers a rule leaves alone."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from lib.errors import BadInput
from lib.models import resnet
from lib.pruners.layers import layer_rule

NETWORKS: dict[str, Callable[[], nn.Module]] = {"resnet34": resnet.resnet34, "resnet50": resnet.resnet50}


def left_dense(network: str, bits: int = 16) -> float:
    """How many layers of a network the 2:4 workflow's rule leaves dense (paper 2, sections 4.2 and 5.1)."""
    if network not in NETWORKS:
        raise BadInput(f"network {network!r}: known are {', '.join(NETWORKS)}")
    return float(sum(not rule.pruned for rule in layer_rule(NETWORKS[network](), bits)))
