"""A network that several modules test with."""

from torch import Tensor, nn


class ByKeyword(nn.Module):
    """A network that calls its layer by keyword."""

    def __init__(self, layer: nn.Module):
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(input=x)
