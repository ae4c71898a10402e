"""What there is to prune. Scores, patterns, masks and every table stand on `prunable`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from lib.base import BadInput
from lib.models.mlp import StackedLinear


@dataclass(frozen=True)
class Prunable:
    """Describe one weight tensor that may be pruned.

    Attributes:
        name: the parameter's name in the model, such as "fc1.weight".
        network: the network it belongs to. A `nn.ModuleDict` is a collection of networks, and this is the key
            ("actor", "critic"); in any other model everything belongs to the one network "".
        module: the layer that owns the weight.
    """

    name: str
    network: str
    module: nn.Module = field(repr=False)

    @property
    def weight(self) -> Tensor:
        """Return the weight the layer computes with, masks applied, without gradient."""
        return self.module.weight.detach()

    @property
    def inner(self) -> int:
        """Return the length of the reduction (GEMM-K): how many products each output sums."""
        return self.weight.shape[1:].numel() if self.runs is None else self.weight.shape[2]

    @property
    def runs(self) -> int | None:
        """Count how many runs the weight [run, out, in] of a `StackedLinear` holds; None: it is one network's."""
        return len(self.weight) if isinstance(self.module, StackedLinear) else None


def as_matrix(tensor: Tensor) -> Tensor:
    """View a weight, or scores like it, as the left matrix of its layer's matrix product: [rows, reduction].

    A Linear weight [out, in] is that already. A Conv2d weight [out, in, R, S] becomes [out, R*S*in] with the input
    channels running fastest, the order in which sparse hardware reads it (paper 2, sections 3.2 and 4.2: GEMM-K is
    C x R x S). Groups of consecutive elements are then groups of input channels.
    """
    if tensor.dim() == 3:
        raise BadInput(f"a stack {list(tensor.shape)} has a matrix for each run: take one run (lib.models.mlp.plain)")
    return tensor if tensor.dim() == 2 else tensor.movedim(1, -1).flatten(1)


def from_matrix(matrix: Tensor, shape: Iterable[int]) -> Tensor:
    """Invert `as_matrix` for a tensor of the given shape."""
    shape = tuple(shape)
    if len(shape) == 2:
        return matrix
    out, channels, *kernel = shape
    return matrix.reshape(out, *kernel, channels).movedim(-1, 1)


class Scores(dict):
    """Hold {parameter name: tensor like it}, high = matters, which also knows the layers the tensors belong to.

    A pattern takes this or a plain dict; in a plain dict all tensors belong to one network.
    """

    def __init__(self, tensors: Mapping[str, Tensor], layers: Mapping[str, Prunable]):
        super().__init__(tensors)
        self.layers = dict(layers)

    def only(self, names: Iterable[str]) -> Scores:
        """Return the scores of these parameters alone."""
        names = list(names)
        unknown = [name for name in names if name not in self]
        if unknown:
            raise BadInput(f"no score for {unknown[0]!r}; there are scores for: {', '.join(self)}")
        return Scores({name: self[name] for name in names}, {name: self.layers[name] for name in names})


def prunable(model: nn.Module) -> list[Prunable]:
    """List each Linear, Conv2d and StackedLinear weight of the model, in the order of its modules; no biases, no norms.

    Raises:
        BadInput: the model has no such layer, or one of them shares its weight with another layer, such as an
            embedding (a mask on one would silently miss the other).
    """
    owners: dict[int, list[str]] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(path, recurse=False):
            owners.setdefault(id(parameter), []).append(name.replace("parametrizations.weight.original", "weight"))
    tied = {name: names for names in owners.values() if len(names) > 1 for name in names}
    found: list[Prunable] = []
    for path, module in model.named_modules():
        if not isinstance(module, (nn.Linear, nn.Conv2d, StackedLinear)):
            continue
        name = f"{path}.weight" if path else "weight"
        network = path.split(".")[0] if isinstance(model, nn.ModuleDict) else ""
        if name in tied:
            raise BadInput(f"{' and '.join(tied[name])} share one weight: untie them before pruning")
        found.append(Prunable(name, network, module))
    if not found:
        raise BadInput(f"{type(model).__name__} has no Linear or Conv2d layer, so there is nothing to prune")
    return found


def positions(model: nn.Module, shape: Sequence[int], modules: Mapping[str, nn.Module] | None = None) -> dict[str, int]:
    """Count how often one example uses each weight of a layer, {name: output positions}; an unused layer is left out.

    Args:
        shape: of one example, without the batch axis.
        modules: Linear and Conv2d layers by a name; None: those of `prunable`, by their parameter's.
    """
    if modules is None:
        modules = {layer.name: layer.module for layer in prunable(model)}
    uses: dict[str, int] = {}

    def count(name: str):
        def hook(module: nn.Module, inputs: tuple, output: Tensor) -> None:
            grid = output.shape[2:] if isinstance(module, nn.Conv2d) else output.shape[1:-1]
            uses[name] = uses.get(name, 0) + math.prod(grid)  # a layer may run more than once

        return hook

    handles = [module.register_forward_hook(count(name)) for name, module in modules.items()]
    # of each module: one may be frozen inside a model that trains
    training = {module: module.training for module in model.modules()}
    some = next(model.parameters())
    try:
        with torch.no_grad():
            model.eval()(torch.zeros(1, *shape, device=some.device, dtype=some.dtype))
    finally:
        for module, mode in training.items():
            module.training = mode
        for handle in handles:
            handle.remove()
    return uses


def stacked_runs(layers: Iterable[Prunable]) -> int | None:
    """Count how many runs these layers of a model hold, each of them; None: they are one network's.

    Raises:
        BadInput: they differ in it, so that no run has a network of its own.
    """
    runs = {layer.runs: layer.name for layer in layers}
    if len(runs) > 1:
        found = ", ".join(f"{name} ({'not stacked' if count is None else count})" for count, name in runs.items())
        raise BadInput(f"all layers of a stack must have the same number of runs, these differ: {found}")
    return next(iter(runs), None)


@dataclass(frozen=True)
class LayerRule:
    """Say whether the 2:4 workflow prunes a layer, and why not when it does not."""

    name: str
    pruned: bool
    why: str


def layer_rule(model: nn.Module, bits: int = 16, leave: Mapping[str, str] | None = None) -> list[LayerRule]:
    """Say which layers the 2:4 workflow prunes (paper 2, section 4.2), and for each of the others why not.

    A layer is pruned when it has weights, leads to a matrix product, and its inner dimension (GEMM-K: inputs of a
    Linear, C x R x S of a Conv2d) is a multiple of 16 for 16-bit values or of 32 for 8-bit ones. Vectors (biases,
    norms) lead to no matrix product and are not listed.

    Args:
        bits: width of the values the network will be deployed with, 16 or 8.
        leave: {module name: reason} of layers to leave dense whatever their size: heads that are used in training
            only, which section 4.2 leaves too. Their sub-modules are left with them.
    """
    if bits not in (8, 16):
        raise BadInput(f"bits={bits}: section 4.2 has a rule for 16-bit and 8-bit values")
    multiple = {16: 16, 8: 32}[bits]
    leave = dict(leave or {})
    modules = dict(model.named_modules())
    unknown = [name for name in leave if name not in modules]
    if unknown:
        raise BadInput(f"leave: the model has no module {unknown[0]!r}; it has: {', '.join(m for m in modules if m)}")
    layers = {id(layer.module): layer for layer in prunable(model)}
    rules = []
    for path, module in modules.items():
        reason = next((why for name, why in leave.items() if path == name or path.startswith(f"{name}.")), None)
        if (layer := layers.get(id(module))) is not None:
            fits = layer.inner % multiple == 0
            why = f"inner dimension {layer.inner} is {'' if fits else 'not '}a multiple of {multiple}"
            rules.append(LayerRule(layer.name, fits and reason is None, reason or why))
        elif not isinstance(module, parametrize.ParametrizationList):  # which is the inside of a masked layer
            lookup = isinstance(module, (nn.Embedding, nn.EmbeddingBag))
            why = "an embedding is a look-up, not a matrix product"
            why = why if lookup else f"only Linear and Conv2d are pruned here, this belongs to {type(module).__name__}"
            weights = [name for name, weight in module.named_parameters(path, recurse=False) if weight.dim() > 1]
            rules += [LayerRule(name, False, reason or why) for name in weights]
    return rules


def eligible(model: nn.Module) -> list[str]:
    """Name the the weights that the 2:4 workflow prunes: those that `layer_rule` lets it."""
    return [rule.name for rule in layer_rule(model) if rule.pruned]
