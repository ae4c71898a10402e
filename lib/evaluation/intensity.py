"""How many operations networks do with each byte they move (paper 5, figure 1): what limits training them."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from lib.errors import BadInput
from lib.evaluation import sizes
from lib.models.mlp import MLP, generators, plain
from lib.models.resnet import resnet34

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {  # with the shape of one example
    "actor of HalfCheetah": (lambda: plain(MLP((17, 256, 256, 6), generators([0]))), (17,)),
    "critic of HalfCheetah": (lambda: plain(MLP((23, 256, 256, 1), generators([0]))), (23,)),
    "actor of Humanoid": (lambda: plain(MLP((376, 256, 256, 17), generators([0]))), (376,)),
    "critic of Humanoid": (lambda: plain(MLP((393, 256, 256, 1), generators([0]))), (393,)),
    "ResNet-34": (resnet34, (3, 224, 224)),
}


def operations_per_byte(network: str, batch: int, value_bits: int = 16) -> float:
    """Of a forward pass, see `sizes.operations_per_byte`.

    Raises:
        BadInput: an unknown network.
    """
    if network not in NETWORKS:
        raise BadInput(f"network {network!r}: known are {', '.join(NETWORKS)}")
    build, shape = NETWORKS[network]
    return sizes.operations_per_byte(build(), shape, batch, value_bits)
