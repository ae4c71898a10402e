"""Linear layers that compute with the weights that are left and with no others, in acting and in training.

A mask on a dense weight saves nothing: its zeros are multiplied too. Here a weight is a list of values in the CSR
format, and each of the three products of a training step, with W, with its transpose, and the slope of the loss by
each weight, touches only those.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable

from lib.errors import BadInput
from lib.kernels.products import csr, csr_linear


class SparseLinear(nn.Module):
    """x [n, k] -> x W^T + bias [n, m], where W holds the nonzeros of a weight; they alone are trained.

    Args:
        weight: [m, k], float32 or float64; copied.
        bias: [m], or None.

    Raises:
        BadInput: a weight that is no matrix of floats, or that has no nonzero.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None):
        super().__init__()
        weight = weight.detach()
        if weight.dim() != 2 or weight.dtype not in (torch.float32, torch.float64) or not bool(weight.any()):
            found = f"{list(weight.shape)} of {weight.dtype}" + ("" if bool(weight.any()) else ", all zero")
            raise BadInput(f"SparseLinear needs a matrix of float32 or float64 with a nonzero, this is {found}")
        self.shape = tuple(weight.shape)
        sparse, turned = csr(weight), csr(weight.t().contiguous())
        for name, matrix in (("by_output", sparse), ("by_input", turned)):
            self.register_buffer(f"{name}_ends", matrix.crow_indices())
            self.register_buffer(f"{name}_places", matrix.col_indices())
        outputs, inputs = weight.nonzero(as_tuple=True)
        self.register_buffer("order", torch.argsort(inputs * len(weight) + outputs))  # of values when turned
        self.values = nn.Parameter(sparse.values().clone())
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        """[n, k] -> [n, m]."""
        learning = torch.is_grad_enabled() and (x.requires_grad or self.values.requires_grad)
        product = _Product.apply(x, self.values, self) if learning else csr_linear(x, self.matrix(self.values))
        return product if self.bias is None else product + self.bias

    def matrix(self, values: Tensor) -> Tensor:
        """W [m, k] with these values, in CSR."""
        return _csr(self.by_output_ends, self.by_output_places, values, self.shape)

    def transposed(self, values: Tensor) -> Tensor:
        """W^T [k, m] with these values, in CSR."""
        return _csr(self.by_input_ends, self.by_input_places, values[self.order], self.shape[::-1])

    def extra_repr(self) -> str:
        return f"{self.shape[1]}, {self.shape[0]}, {len(self.values)} weights"


class _Product(torch.autograd.Function):
    """x W^T and its derivatives, in sparse products only."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, values: Tensor, layer: SparseLinear) -> Tensor:
        ctx.save_for_backward(x, values)
        ctx.layer = layer
        return csr_linear(x, layer.matrix(values))

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x, values = ctx.saved_tensors
        to_x = csr_linear(slope, ctx.layer.transposed(values)) if ctx.needs_input_grad[0] else None
        to_values = None
        if ctx.needs_input_grad[1]:  # slope^T x, but only where W has a weight
            to_values = torch.sparse.sampled_addmm(ctx.layer.matrix(values), slope.t(), x, beta=0).values()
        return to_x, to_values, None


def sparse(model: nn.Module) -> nn.Module:
    """A copy of a pruned model in which each `nn.Linear` holds only its nonzero weights, masks baked in.

    It computes the same function, and trains as the model with its masks does.

    Raises:
        BadInput: a model without an `nn.Linear`, or one with a layer that has no weight left.
    """
    found = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not found:
        raise BadInput("sparse needs a model with an nn.Linear; a stack's run becomes one by `models.mlp.plain`")
    new = copy.deepcopy(model)
    for name in found:
        layer = new.get_submodule(name)
        try:
            small = SparseLinear(layer.weight, layer.bias)
        except BadInput as error:
            raise BadInput(f"layer {name or 'of the model'}: {error}") from error
        if not name:
            return small
        new.set_submodule(name, small)
    return new


def _csr(ends: Tensor, places: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(ends, places, values, shape, check_invariants=False)
