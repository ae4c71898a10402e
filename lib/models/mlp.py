"""Build fully connected networks of many runs at once: a leading axis *run*, one batched matrix product a layer.

The networks of reinforcement learning are small and sweeps over seeds and sparsities are wide. A stack computes all
runs together; a run's numbers do not depend on what else is in its stack, so a stack is only a faster way to the same
results. On a CPU it costs what its runs cost, on a GPU far less.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from lib.base import BadInput

ACTIVATIONS = {"relu": partial(nn.ReLU, inplace=True), "tanh": nn.Tanh}  # in place: no fresh memory a layer
M = TypeVar("M", bound=nn.Module)


class StackedLinear(nn.Module):
    """Extend `nn.Linear` by an axis *run*: weight [run, out, in], bias [run, out].

    Every parameter and buffer of the layer, of attached masks too, has the run as its first axis; `take` and `join`
    rely on it.

    Args:
        inputs, outputs: features.
        draws: one generator a run. Each run draws PyTorch's default initialisation, uniform within 1 / sqrt(inputs),
            from its own, in the order in which `nn.Linear` draws from the global one.
    """

    def __init__(self, inputs: int, outputs: int, draws: Sequence[torch.Generator]):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(len(draws), outputs, inputs))
        self.bias = nn.Parameter(torch.empty(len(draws), outputs))
        bound = 1 / math.sqrt(inputs)
        for weight, bias, draw in zip(self.weight, self.bias, draws, strict=True):
            nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=draw)
            nn.init.uniform_(bias, -bound, bound, generator=draw)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map [run, batch, in] to [run, batch, out]."""
        weight, bias = self.weight, self.bias.unsqueeze(1)  # of blocks or a mask a weight is made anew at each mention
        if weight.shape[1] == 1:  # BLAS sums such a product in another order for one run than for several
            return (inputs * weight).sum(2, keepdim=True) + bias
        if inputs.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            # examples as columns: a transposed weight or its gradient would be copied, inputs are smaller
            columns = torch.bmm(weight, inputs.transpose(1, 2))
            return columns.transpose(1, 2) + bias.to(columns.dtype)
        return torch.baddbmm(bias, inputs, weight.transpose(1, 2))


class Bounded(nn.Module):
    """Compute bound * tanh(x): actions within limits. The bound is one number an action, the same for all runs."""

    def __init__(self, bound: Tensor):
        super().__init__()
        self.register_buffer("bound", bound)

    def forward(self, inputs: Tensor) -> Tensor:
        """Bound actions of any shape whose last axis is the action."""
        return self.bound * torch.tanh(inputs)


class MLP(nn.Module):
    """Hold a stack of fully connected networks of the same shape.

    Args:
        sizes: features from the input to the output, such as (17, 256, 256, 6).
        draws: one generator a run, see `generators`.
        activation: after each layer but the last, "relu" or "tanh".
        output: what is applied to the last layer's outputs, such as `Bounded`.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        draws: Sequence[torch.Generator],
        activation: str = "relu",
        output: nn.Module | None = None,
    ):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise BadInput(f"activation {activation!r}: known are {', '.join(ACTIVATIONS)}")
        if len(sizes) < 2 or min(sizes) < 1 or not draws:
            found = f"{tuple(sizes)} and {len(draws)} runs"
            raise BadInput(f"an MLP needs two or more sizes, each at least 1, and at least one run, not {found}")
        pairs = itertools.pairwise(sizes)
        self.layers = nn.ModuleList(StackedLinear(inputs, outputs, draws) for inputs, outputs in pairs)
        self.activation = ACTIVATIONS[activation]()
        self.output = output if output is not None else nn.Identity()
        self.inputs = sizes[0]

    @property
    def runs(self) -> int:
        """Count how many networks the stack holds."""
        return len(self.layers[0].bias)

    def forward(self, inputs: Tensor) -> Tensor:
        """Map [run, batch, in] to [run, batch, out].

        Raises:
            BadInput: inputs of another shape.
        """
        if inputs.dim() != 3 or inputs.shape[2] != self.inputs:
            raise BadInput(f"expected inputs of shape [run, batch, {self.inputs}], found {list(inputs.shape)}")
        if inputs.shape[0] != self.runs:
            raise BadInput(f"expected inputs of {self.runs} runs, as many as the stack has, found {list(inputs.shape)}")
        for layer in self.layers[:-1]:
            inputs = self.activation(layer(inputs))
        return self.output(self.layers[-1](inputs))


def generators(seeds: Sequence[int]) -> list[torch.Generator]:
    """Make a generator a run, for the initialisation of all of a run's networks, one after the other."""
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def take(module: M, runs: Sequence[int]) -> M:
    """Make a copy of a module, of any that is built of `StackedLinear`, with these runs alone, in this order.

    Raises:
        BadInput: no runs, or one that the stack does not hold.
    """
    if not len(runs):
        raise BadInput("no runs to take: a stack needs at least one")
    for count in {len(layer.bias) for layer in module.modules() if isinstance(layer, StackedLinear)}:
        if odd := [run for run in runs if not -count <= run < count]:
            raise BadInput(f"run {odd[0]} of a stack of {count}: expected 0 to {count - 1}")
    return _rebuilt(module, [module], lambda tensors: tensors[0][list(runs)].clone())


def join(modules: Sequence[M]) -> M:
    """Join copies of modules of the same shape to one stack: the runs of the first, then those of the next.

    Raises:
        BadInput: no modules, modules of other shapes, activations or bounds, or masks on one of them only.
    """
    if not modules:
        raise BadInput("no networks to join: a stack needs at least one")
    shapes = [{name: tensor.shape[1:] for name, tensor in module.state_dict().items()} for module in modules]
    if any(other != shapes[0] for other in shapes):
        raise BadInput("networks to join must have the same layers, and masks on the same ones")
    if not all(_alike(module, modules[0]) for module in modules[1:]):
        raise BadInput("networks to join must have the same activations, and outputs with the same bounds")
    return _rebuilt(modules[0], modules, torch.cat)


def _alike(one: nn.Module, other: nn.Module) -> bool:
    """Whether all that runs of a stack share is the same: activations, which repr names, and the bounds of outputs."""
    bounds, others = ([part.bound for part in each.modules() if isinstance(part, Bounded)] for each in (one, other))
    return repr(one) == repr(other) and all(map(torch.equal, bounds, others))


def _rebuilt(like: M, modules: Sequence[nn.Module], change: Callable[[list[Tensor]], Tensor]) -> M:
    """A copy of `like` whose stacked tensors are what `change` makes of the modules' tensors of that name."""
    new = copy.deepcopy(like)
    states = [module.state_dict() for module in modules]
    for path, layer in new.named_modules():
        if isinstance(layer, StackedLinear):
            for name, tensor in layer.state_dict(prefix=path and f"{path}.", keep_vars=True).items():
                tensor.data = change([state[name] for state in states])
    return new


def plain(module: MLP, run: int = 0) -> nn.Sequential:
    """Copy one run as an ordinary network: [batch, in] -> [batch, out], masks baked in, nothing shared.

    Raises:
        BadInput: a run that the stack does not have.
    """
    parts: list[nn.Module] = []
    for layer in take(module, [run]).layers:
        weight, bias = layer.weight.detach()[0], layer.bias.detach()[0]
        size = weight.shape[1], weight.shape[0]
        linear = nn.utils.skip_init(nn.Linear, *size, device=weight.device, dtype=weight.dtype)  # nothing is drawn
        with torch.no_grad():
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        parts += [linear, copy.deepcopy(module.activation)]
    return nn.Sequential(*parts[:-1], copy.deepcopy(module.output))
