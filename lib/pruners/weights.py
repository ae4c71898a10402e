"""Say of one weight of a model where it is, how it is the matrix of a product, or why it cannot be pruned."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from lib.pruners import kinds
from lib.pruners.behind import computed
from lib.pruners.kinds import Layout

MATRIX = Layout("oi")


@dataclass(frozen=True)
class Prunable:
    """Describe one weight tensor that may be pruned.

    Attributes:
        name: the parameter's name in the model, such as "fc1.weight".
        network: the network it belongs to. A `nn.ModuleDict` is a collection of networks, and this is the key
            ("actor", "critic"); in any other model everything belongs to the one network "".
        module: the layer that owns the weight.
        attribute: what the layer calls it.
        layout: how it is the matrix of a product.
        tied: other layers that have the same parameter, an embedding say, and what they call it; the same layer where
            it has it under a second name. It is one weight: counted once, and a mask on it is a mask on it everywhere.
    """

    name: str
    network: str
    module: nn.Module = field(repr=False)
    attribute: str = "weight"
    layout: Layout = MATRIX
    tied: tuple[tuple[nn.Module, str], ...] = field(default=(), repr=False)

    @property
    def weight(self) -> Tensor:
        """Return the weight the layer computes with, masks applied, without gradient."""
        return computed(self.module, self.attribute).detach()

    @property
    def owners(self) -> tuple[tuple[nn.Module, str], ...]:
        """Return each layer that has the weight, and what it calls it."""
        return (self.module, self.attribute), *self.tied

    @property
    def sparse(self) -> bool:
        """Tell whether pruning is over: the layer holds only what is left of the weight (`Kind.sparse`)."""
        return kinds.find(self.module)[0].sparse

    @property
    def inner(self) -> int:
        """Return the length of the reduction (GEMM-K): how many products each output sums."""
        return self.layout.reduction(self.weight.shape)

    @property
    def runs(self) -> int | None:
        """Count how many runs the weight [run, out, in] of a `StackedLinear` holds; None: it is one network's."""
        return len(self.weight) if self.layout.stacked else None

    def matrix(self, tensor: Tensor | None = None) -> Tensor:
        """Return the weight, or scores like it, as the left matrix of its product, [rows, reduction]."""
        return self.layout.matrix(self.weight if tensor is None else tensor)


@dataclass(frozen=True)
class Refused:
    """Hold a tensor that looks like a matrix of weights and yet is not prunable: its name, itself, and why."""

    name: str
    weight: Tensor = field(repr=False)
    why: str

    @property
    def size(self) -> float:
        """Count the numbers in it; NaN before it has a shape."""
        return math.nan if is_lazy(self.weight) else self.weight.numel()
