"""Read from a network's forward pass how its layers feed one another, and which of their units are live."""

from __future__ import annotations

import inspect
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from lib.base import BadInput
from lib.kernels.sparse_linear import SparseLinear
from lib.pruners.gates.gate import Gated, Gates
from lib.pruners.inputs import duplicate
from lib.pruners.layers import unwrapped
from lib.pruners.uses import positions

# What keeps a silent channel silent: 0 stays 0, and channels do not mix.
SILENT_MODULES = (
    nn.ReLU, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Identity, nn.Dropout, nn.Dropout2d,
)  # fmt: skip
SILENT_FUNCTIONS = (
    torch.relu, torch.tanh, F.relu, F.leaky_relu, F.elu, F.gelu, F.silu, F.dropout,
)  # fmt: skip
SILENT_METHODS = ("relu", "tanh", "contiguous")
RESHAPES = ("view", "reshape", torch.reshape)
# So do these with the channels of an image; the units of a Linear, along the last axis, they mix.
POOL_MODULES = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d)
POOL_FUNCTIONS = (F.max_pool2d, F.avg_pool2d, F.adaptive_avg_pool2d)


@dataclass
class Layer:
    """A Linear or Conv2d knows here what it reads and what reads it.

    Attributes:
        name: its path in the model.
        source: the layer whose units are its inputs, with nothing but silent operations between; None: something else.
        norm: path of the batch norm that directly follows.
        readers: the layers whose source it is.
        only_layers: whether nothing but layers reads its outputs, so that an unread unit may go.
        inputs, outputs: its gates, if there are any.
        positions: how often one example uses each weight.
        wall: why its units cannot be cut, nor those of its neighbours: it is called twice, or a convolution in groups.
        lost: whether its channels are reshaped so that nobody can tell whose they are then, as by x.reshape(-1, 800).
    """

    name: str
    module: nn.Linear | nn.Conv2d
    source: str | None = None
    norm: str | None = None
    readers: list[str] = field(default_factory=list)
    only_layers: bool = True
    inputs: Gates | None = None
    outputs: Gates | None = None
    positions: int = 1
    wall: str = ""
    lost: bool = False

    @property
    def gates(self) -> Gates | None:
        """Return its gates, at whichever end they are."""
        return self.inputs or self.outputs

    @property
    def cuttable(self) -> bool:
        """Say whether other layers read its outputs and nothing else does."""
        return self.only_layers and bool(self.readers)

    @property
    def kernel(self) -> int:
        """Count the weights between one input unit and one output unit."""
        return self.module.weight[0, 0].numel()

    @property
    def learns(self) -> bool:
        """Say whether its weight is trained; one that a parametrization computes says so only with gradients on."""
        with torch.enable_grad():
            return self.module.weight.requires_grad


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, path: str) -> bool:
        return isinstance(module, Gated) or super().is_leaf_module(module, path)


def trace(model: nn.Module, shape: Sequence[int] | None = None) -> dict[str, Layer]:
    """Find the Linear and Conv2d layers of a network, gated or not, in the order in which its forward pass uses them.

    The result follows the gates as they change: trace once, ask often. Arguments that have a default are left at it.

    Args:
        shape: of one example, without the batch axis: the model is run once with it to fill in `positions`.

    Raises:
        BadInput: a forward pass that torch.fx cannot follow, a layer without a shape yet or with a weight that a hook
            computes, one with gates that is called twice, a layer of `pruners.sparse`.
    """
    model = unwrapped(model)
    if late := [path for path, module in model.named_modules() if isinstance(module, SparseLinear)]:
        raise BadInput(f"{late[0]} holds only what is left of it: count and cut units before pruners.sparse")
    graph = followed(model)
    times = Counter(node.target for node in graph.nodes if node.op == "call_module")
    modules = dict(model.named_modules())
    layers: dict[str, Layer] = {}
    origins: dict[fx.Node, str | None] = {}
    flat: set[fx.Node] = set()  # behind a flatten, where a channel's positions are units
    for node in graph.nodes:
        module = modules[node.target] if node.op == "call_module" else None
        module, gates = (module.layer, module.gates) if isinstance(module, Gated) else (module, None)
        above = [origins[other] for other in node.all_input_nodes]
        flattened = bool(flat & set(node.all_input_nodes))
        layered = isinstance(module, (nn.Linear, nn.Conv2d))
        if layered and is_lazy(module._parameters.get("weight")):
            raise BadInput(f"{node.target} has no shape yet: run the model once")
        if layered and "weight" not in module._parameters and not parametrize.is_parametrized(module, "weight"):
            why = "remove the hook first, as torch.nn.utils.remove_weight_norm does"
            raise BadInput(f"{node.target}.weight is computed by a hook, so that its units cannot be cut: {why}")
        wall = _wall(module, times[node.target]) if layered else ""
        if layered and above[0] and (wall or not _reads(module, layers[above[0]], flattened)):
            layers[above[0]].only_layers, above = False, [None]  # columns of an image, or steps of a sequence
        if wall and gates is not None:
            raise BadInput(f"{node.target} {wall}")
        if wall:
            layers[node.target] = Layer(node.target, module, only_layers=False, wall=wall)
            origins[node] = None
        elif layered:
            layers[node.target] = _layer(node.target, module, gates, above[0], layers)
            origins[node] = node.target
        elif isinstance(module, nn.BatchNorm2d) and above[0] and times[node.target] == 1 and _alone_after(node, layers):
            layers[above[0]].norm, layers[above[0]].outputs = node.target, gates
            origins[node] = above[0]
        elif _asks(node):
            origins[node] = None
        elif _silent(node, module, layers.get(above[0]) if above else None):
            origins[node] = above[0]
            if flattened or _flattens(node, module):
                flat.add(node)
        else:
            for name in filter(None, above):
                layers[name].only_layers = False
                layers[name].lost |= node.target in RESHAPES and isinstance(layers[name].module, nn.Conv2d)
            origins[node] = None
    read = {node.target.rpartition(".")[0] for node in graph.nodes if node.op == "get_attr"}
    for path in read & layers.keys():  # a function reads its weight: no unit at its ends may go
        for name in filter(None, (path, layers[path].source)):
            layers[name].only_layers = False
    if shape is not None:
        uses = positions(model, shape, {name: layer.module for name, layer in layers.items()})
        for name, layer in layers.items():
            layer.positions = round(uses.get(name, 0))  # none where a layer is for training alone
    return layers


def followed(model: nn.Module) -> fx.Graph:
    """Follow a network's forward pass with torch.fx; a gated layer is one step, an argument with a default left at it.

    A copy is followed, so that nothing is left in the model itself.

    Raises:
        BadInput: torch.fx cannot.
    """
    copy = duplicate(model)
    try:
        arguments = inspect.signature(copy.forward).parameters.values()
        defaults = {one.name: one.default for one in arguments if one.default is not one.empty}
        return _Tracer().trace(copy, defaults)
    except Exception as error:
        raise BadInput(f"torch.fx cannot follow the forward pass of {type(model).__name__}: {error}") from error


def gateable(layers: dict[str, Layer]) -> list[str]:
    """Name the layers that carry gates unless others are asked for: each Conv2d whose channels only layers read, and
    each Linear that reads the units of another layer.

    Args:
        layers: from `trace`.
    """
    return [
        name for name, layer in layers.items()
        if (layer.cuttable if isinstance(layer.module, nn.Conv2d) else layer.source is not None)
    ]  # fmt: skip


def live(layers: dict[str, Layer], tied: bool = True) -> dict[str, tuple[Tensor, Tensor]]:
    """Find which of each layer's units are live at test time: {name: (inputs [in], outputs [out])}, bool.

    An input is live when its own gate is open and so is the unit that feeds it; an output when its own gate is open
    and somebody reads it.

    Args:
        tied: False: where a layer has gates of its own at an end, only these count, as in the paper's tables. Its
            LeNet-5 counts an open position of a closed channel, for instance.

    Raises:
        BadInput: a layer none of whose units is live.
    """
    for name, layer in layers.items():
        if layer.gates is not None and not bool(layer.gates.is_open().any()):
            raise BadInput(
                f"all {len(layer.gates.phi)} gates of {name} are closed, nothing passes it: lower its lambda"
            )
    inputs = {name: arriving(layers, name) for name in layers}
    for name, layer in layers.items():
        if layer.inputs is not None:
            own = layer.inputs.is_open().cpu()
            inputs[name] = own & inputs[name] if tied else own
    found = {}
    for name, layer in layers.items():
        outputs = _emitted(layer)
        if layer.cuttable and (tied or layer.outputs is None):
            read = [inputs[reader].reshape(len(outputs), -1).any(1) for reader in layer.readers]
            outputs = outputs & torch.stack(read).any(0)
        if not (bool(inputs[name].any()) and bool(outputs.any())):
            raise BadInput(f"no open gates lead through {name}, nothing passes it: lower the lambdas around it")
        found[name] = inputs[name], outputs
    return found


def arriving(layers: dict[str, Layer], name: str) -> Tensor:
    """Find which inputs of a layer are fed by an open unit, [in] bool, whatever its own gates."""
    layer = layers[name]
    width = layer.module.weight.shape[1]
    if layer.source is None:
        return torch.ones(width, dtype=torch.bool)
    return spread(_emitted(layers[layer.source]), width)


def _emitted(layer: Layer) -> Tensor:
    units = layer.module.weight.shape[0]
    return torch.ones(units, dtype=torch.bool) if layer.outputs is None else layer.outputs.is_open().cpu()


def spread(channels: Tensor, width: int) -> Tensor:
    """Repeat channels as the inputs of the next layer: a flattened channel has several positions."""
    return channels.repeat_interleave(width // len(channels))


def _layer(name: str, module: nn.Module, gates: Gates | None, source: str | None, layers: dict[str, Layer]) -> Layer:
    if source is not None:
        layers[source].readers.append(name)
    end = {} if gates is None else {"inputs" if isinstance(module, nn.Linear) else "outputs": gates}
    return Layer(name, module, source, **end)


def _wall(module: nn.Linear | nn.Conv2d, times: int) -> str:
    """Why a layer's units cannot be cut; "" where they can."""
    if times > 1:
        return "is used twice in one forward pass: its units cannot be cut"
    groups = getattr(module, "groups", 1)
    return f"is a convolution in {groups} groups: its channels cannot be cut" if groups > 1 else ""


def _alone_after(norm: fx.Node, layers: dict[str, Layer]) -> bool:
    """Whether a batch norm reads a convolution's output as it is, and nobody else does."""
    node = norm.all_input_nodes[0]
    found = layers.get(node.target) if node.op == "call_module" else None
    return found is not None and isinstance(found.module, nn.Conv2d) and len(node.users) == 1


def _asks(node: fx.Node) -> bool:
    """Whether a node asks how many examples a tensor holds, or of which type it is: neither changes with its units."""
    if node.op == "call_function" and node.target is getattr:
        first = all(user.target is operator.getitem and user.args[1] == 0 for user in node.users)
        return node.args[1] in ("ndim", "dtype", "device") or (node.args[1] == "shape" and first)
    return node.op == "call_method" and (node.target == "dim" or (node.target == "size" and node.args[1:] == (0,)))


def _silent(node: fx.Node, module: nn.Module | None, source: Layer | None) -> bool:
    """Whether what a node computes keeps a silent channel of the source silent."""
    if node.op not in ("call_module", "call_function", "call_method"):  # an input or a parameter may be named relu
        return False
    if isinstance(module, nn.Flatten) or node.target in (torch.flatten, "flatten", *RESHAPES):
        return _flattens(node, module)
    image = source is not None and isinstance(source.module, nn.Conv2d)
    if node.op == "call_module":
        return isinstance(module, SILENT_MODULES) or (image and isinstance(module, POOL_MODULES))
    if node.op == "call_function":
        return node.target in SILENT_FUNCTIONS or (image and node.target in POOL_FUNCTIONS)
    return node.target in SILENT_METHODS


def _flattens(node: fx.Node, module: nn.Module | None) -> bool:
    """Whether a node flattens the channels' axis and those behind it, no others."""
    if isinstance(module, nn.Flatten):
        return module.start_dim == 1 and module.end_dim == -1
    if node.target in RESHAPES:  # x.view(x.size(0), -1), or of x.shape[0]
        shape = node.args[1:] if len(node.args) != 2 else node.args[1]
        first = shape[0] if isinstance(shape, (tuple, list)) and len(shape) == 2 and shape[1] == -1 else None
        return isinstance(first, fx.Node) and first.args[-1] == 0 and first.target in ("size", operator.getitem)
    given = dict(zip(("start_dim", "end_dim"), node.args[1:], strict=False)) | node.kwargs
    axes = given.get("start_dim", 0), given.get("end_dim", -1)
    return node.target in (torch.flatten, "flatten") and axes == (1, -1)


def _reads(module: nn.Linear | nn.Conv2d, source: Layer, flat: bool) -> bool:
    """Whether a layer's inputs are the source's units: channels, flattened channels, or features of the same width."""
    if isinstance(source.module, nn.Conv2d):
        return isinstance(module, nn.Conv2d) or flat
    return isinstance(module, nn.Linear) and module.in_features == source.module.out_features
