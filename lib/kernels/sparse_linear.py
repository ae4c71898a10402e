"""Compute linear layers with the weights that are left and with no others, in acting and in training.

A mask on a dense weight saves nothing: its zeros are multiplied too. Here a weight is a list of values in the CSR
format, and each of the three products of a training step, with W, with its transpose, and the slope of the loss by
each weight, touches only those.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx
from torch.nn import functional as F

from lib.base import BadInput
from lib.kernels.products import FLOATS, csr, csr_linear


def _learns(given: Tensor) -> bool:
    """Whether what is made of it learns: a parameter may be frozen, of another tensor a layer is made to be trained."""
    return given.requires_grad or not isinstance(given, nn.Parameter)


class SparseLinear(nn.Module):
    """Compute x [..., k] -> x W^T + bias [..., m], where W holds what is left of a weight; nothing else is trained.

    Args:
        weight: [m, k], float32 or float64; copied.
        bias: [m], or None.
        mask: bool [m, k], True = left; None: whatever is not zero.

    Raises:
        BadInput: a weight that is no matrix of floats, of which nothing is left, or a mask of another shape.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, mask: Tensor | None = None):
        super().__init__()
        kept = weight != 0 if mask is None else mask
        if not isinstance(kept, Tensor) or (bias is not None and bias.shape != weight.shape[:1]):
            found = type(kept).__name__ if bias is None else f"{type(kept).__name__} and a bias {list(bias.shape)}"
            raise BadInput(f"SparseLinear needs a mask that is a tensor and a bias of {len(weight)}, these are {found}")
        fits = weight.dim() == 2 and kept.shape == weight.shape and kept.dtype == torch.bool
        known = weight.dtype in FLOATS
        if not fits or not known or not bool(kept.any()):
            found = f"{list(weight.shape)} of {weight.dtype}" + (", nothing of it is left" if fits and known else "")
            raise BadInput(f"SparseLinear needs a matrix of float32 or float64 and a mask like it, this is {found}")
        self.shape = tuple(weight.shape)
        self.out_features, self.in_features = self.shape  # as a Linear has them
        for name, ones in (("by_output", kept.float()), ("by_input", kept.t().float())):
            structure = csr(ones.contiguous())
            self.register_buffer(f"{name}_ends", structure.crow_indices())
            self.register_buffer(f"{name}_places", structure.col_indices())
        outputs, inputs = kept.nonzero(as_tuple=True)
        self.register_buffer("order", torch.argsort(inputs * len(weight) + outputs))  # of values when turned
        self.values = nn.Parameter(weight.detach()[kept], _learns(weight))
        self.bias = None if bias is None else nn.Parameter(bias.detach().clone(), _learns(bias))

    def forward(self, input: Tensor) -> Tensor:
        """Map [..., k] to [..., m], in the type of the weights whatever autocast says: CSR has no narrower one.

        The argument has the name that a Linear's has, since a model may call its layer by keyword. Exported to other
        programs it is the dense product, as these have no CSR.

        Raises:
            BadInput: activations of another width, or of another type.
        """
        if torch.is_autocast_enabled(input.device.type):
            with torch.autocast(input.device.type, enabled=False):
                return self.forward(input.to(self.values.dtype))  # hooks have been called
        if torch.compiler.is_exporting() or torch.jit.is_tracing():
            return F.linear(input, self.weight, self.bias)
        if input.shape[-1:] != self.shape[1:]:
            raise BadInput(f"this layer takes activations [..., {self.shape[1]}], these are {list(input.shape)}")
        flat = input if input.dim() == 2 else input.reshape(-1, input.shape[-1])
        learning = torch.is_grad_enabled() and (input.requires_grad or self.values.requires_grad)
        product = _Product.apply(flat, self.values, self) if learning else csr_linear(flat, self.matrix(self.values))
        product = product.clone() if self.bias is None else product + self.bias  # a view could not be changed in place
        return product if input.dim() == 2 else product.reshape(*input.shape[:-1], self.shape[0])

    @property
    def weight(self) -> Tensor:
        """W [m, k] with its zeros, for whoever reads the weight and multiplies by it elsewhere; it has a gradient."""
        ends = self.by_output_ends.long()
        # how many rows have begun before each value; ONNX knows neither repeat_interleave nor searchsorted
        begun = torch.zeros(self.values.numel() + 1, dtype=torch.long, device=ends.device)
        rows = begun.index_add(0, ends[1:], torch.ones_like(ends[1:]))[:-1].cumsum(0)
        zeros = torch.zeros(self.shape, dtype=self.values.dtype, device=ends.device)
        return zeros.index_put((rows, self.by_output_places.long()), self.values)

    @property
    def left(self) -> Tensor:
        """Say which places of W [m, k] hold a weight, whatever its value: bool."""
        return self.matrix(torch.ones_like(self.values.detach())).to_dense() > 0

    def matrix(self, values: Tensor) -> Tensor:
        """Return W [m, k] with these values, in CSR."""
        return _csr(self.by_output_ends, self.by_output_places, values, self.shape)

    def transposed(self, values: Tensor) -> Tensor:
        """Return W^T [k, m] with these values, in CSR."""
        return _csr(self.by_input_ends, self.by_input_places, values[self.order], self.shape[::-1])

    def extra_repr(self) -> str:
        """Say how large the layer is; `print(model)` shows it."""
        return f"{self.shape[1]}, {self.shape[0]}, {len(self.values)} weights"


class _Product(torch.autograd.Function):
    """x W^T and its derivatives, in sparse products only."""

    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, values: Tensor, layer: SparseLinear) -> Tensor:
        ctx.save_for_backward(x, values)
        ctx.layer = layer
        return csr_linear(x, layer.matrix(values))

    @staticmethod
    def backward(ctx: FunctionCtx, slope: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        if torch.is_grad_enabled():  # `once_differentiable` would raise only if torch came back to this layer
            raise BadInput("SparseLinear has no second derivative: take it of the masked model, before pruners.sparse")
        x, values = ctx.saved_tensors
        to_x = csr_linear(slope, ctx.layer.transposed(values)) if ctx.needs_input_grad[0] else None
        to_values = None
        if ctx.needs_input_grad[1]:  # slope^T x, but only where W has a weight
            to_values = torch.sparse.sampled_addmm(ctx.layer.matrix(values), slope.t(), x, beta=0).values()
        return to_x, to_values, None


def _csr(ends: Tensor, places: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    return torch.sparse_csr_tensor(ends, places, values, shape, check_invariants=False)
