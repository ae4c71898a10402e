"""Share coefficients among weights, as a parametrization of a layer: the coefficients are what is trained."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from lib.kernels.block_circulant import expand, project
from lib.pruners.masks import beneath
from lib.pruners.weights import Prunable


class Grouped(nn.Module):
    """Turn coefficients [..., rows, columns, room] to a weight each time the layer reads it
    (`kernels.block_circulant`).

    As the weight is computed from them, the gradient of a coefficient is the sum of its weights' gradients.

    Args:
        table: which coefficient stands at each place of a block, [B, B], of a stack [run, B, B].
        size: (out, in) of the weight; of a convolution its channels, and each place of the kernel is a matrix.
        room: coefficients a block has place for.
    """

    def __init__(self, table: Tensor, size: Sequence[int], room: int):
        super().__init__()
        self.register_buffer("table", table)
        self.size, self.room = tuple(size), room

    def forward(self, coefficients: Tensor) -> Tensor:
        """Compute the weight: [out, in], of a convolution [out, in, R, S], of a stack [run, out, in]."""
        matrices = expand(coefficients, self.table, self.size)
        return matrices.movedim((0, 1), (2, 3)) if matrices.dim() == 4 else matrices

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Compute the coefficients whose weight is nearest in least squares."""
        return project(weight.movedim((2, 3), (0, 1)) if weight.dim() == 4 else weight, self.table, self.room)


def grouped(layer: Prunable) -> Grouped | None:
    """Say how the layer's weights share coefficients, None if they do not."""
    return next((one for one in beneath(layer) if isinstance(one, Grouped)), None)
