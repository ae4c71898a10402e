"""Put gates on a whole network, and say what they cost and how large the network is now."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral, Real

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from lib.base import BadInput, refuse_outside
from lib.pruners.gates.gate import KINDS, Gated, Gates, check_k, gates_of
from lib.pruners.gates.structure import Layer, followed, gateable, live, spread, trace
from lib.pruners.inputs import duplicate, replaced
from lib.pruners.layers import leave_out, unwrapped
from lib.pruners.masks import attached
from lib.pruners.scores import seeded

OPEN = 3.0  # k phi of a gate that starts open: sigmoid(3) = 0.95 (section 6)
SPREAD = 0.01  # standard deviation of phi at the start; figure 2 prints N(0.5, 0.01)
STEEP = 20.0  # from this k on the deviation shrinks as the mean 3/k does, so that what is to start open is open


def gated(
    model: nn.Module,
    layers: Sequence[str] | str | None = None,
    k: float = 7.0,
    kind: str = "sigmoid",
    tau: float = 0.5,
    start: Sequence[int | Tensor] | int | Tensor | None = None,
    dormant: float = 3.0,
    seed: int = 0,
) -> nn.Module:
    """Copy the network and put gates on its layers, or on the named ones.

    A named Linear has its inputs gated, which are the neurons of the layer before, after their activation; a named
    Conv2d its output channels. So the numbers the paper gives a network are its gates: LeNet-5's 20-50-800-500 are two
    layers of channels, 800 flattened positions and 500 neurons. Channels are gated before activation and pooling;
    behind ReLU and max-pooling would be the same, as both keep 0 at 0 and scale with their input. A batch norm is not
    like that: it would turn a closed channel into a constant, which no bias of the next layer can stand for at the
    borders of an image. So where one follows a convolution directly, the gate stands behind it.

    Warns (`LeftOut`), unless layers are named, of a Conv2d whose channels are reshaped by another call than one that
    flattens all but the first axis.

    phi starts from N(3/k, 0.01) for open gates (section 6), above k = 20 from N(3/k, 0.2/k): with the deviation of
    0.01 many would be closed there.

    Args:
        layers: paths of Linear and Conv2d layers, or a single one; None: those of `gateable`.
        k: the slope for which phi is initialised, 7 to sparsify and 0.5 to expand in the paper; `set_k` changes it.
        kind: g, a key of KINDS: "sigmoid" (equation 10), "hard_sigmoid" (equation 11), "hard_concrete".
        start: how many units of each layer start open, chosen at random, or which ones (bool tensors), of a single
            layer without a list too; the others are dormant. None: all. Flattened positions are chosen among those of
            open channels while there are any.
        dormant: -k phi of a dormant gate. 3, the paper's, leaves it open in 5 % of all draws; 40 (the authors' code)
            never, until `set_k` makes k smaller: with a seventh of it in 0.3 %.

    Raises:
        BadInput: a layer that does not exist or is of another kind, none that has units to gate, a convolution whose
            channels meet others (a residual sum) or whose weight a parametrization computes, one in groups, a layer
            that is called twice, k < 0, a tau outside [0, 1), more units to start with than there are, a dormant or a
            seed that is no number, a tau and a dormant at which others would start open, a layer with a mask or one
            whose weight a hook computes, a forward pass that asks what its layers are.
    """
    check_k(k)
    if kind not in KINDS:
        raise BadInput(f"kind={kind!r}: known are {', '.join(KINDS)}")
    refuse_outside("[0, 1)", tau=tau)
    if not isinstance(dormant, Real) or not math.isfinite(dormant):
        raise BadInput(f"dormant={dormant!r:.40}: expected a finite number, -k phi of a gate that starts closed")
    (draw,) = seeded(seed)
    if masked := attached(model):
        raise BadInput(f"{min(masked)} has a mask, which cutting units would lose: bake it in, pruners.detach(model)")
    model = duplicate(unwrapped(model))
    found = trace(model)
    for name in (name for name, layer in found.items() if layer.lost and layers is None):
        leave_out(name, "the forward pass reshapes its channels, and no gate can follow them: use torch.flatten(x, 1)")
    layers = _asked(layers, found, type(model).__name__)
    chosen = [_named(name, found) for name in layers]
    if not chosen or layers != [name for name in found if name in layers]:
        raise BadInput(f"gates on {layers}: name some of {', '.join(found)}, each once and in this order")
    widths = [layer.module.weight.shape[isinstance(layer.module, nn.Linear)] for layer in chosen]
    start = widths if start is None else _each(start)
    if len(start) != len(chosen) or not all(_opens(one, width) for one, width in zip(start, widths, strict=True)):
        given = [f"{one.dtype} {list(one.shape)}" if isinstance(one, Tensor) else one for one in start]
        raise BadInput(
            f"start={given}: expected one number a layer, from 1 to the layer's units {widths}, or bool tensors"
        )

    scale = 1 / k if k else 1.0
    made: dict[int, nn.Module] = {}
    emitted = {name: one.outputs.is_open().cpu() for name, one in found.items() if one.outputs}  # open channels
    places = {name: place for place, name in enumerate(found)}  # in the forward pass
    for layer, first, width in zip(chosen, start, widths, strict=True):
        channels = emitted.get(layer.source) if isinstance(layer.module, nn.Linear) else None
        rank = torch.zeros(width) if channels is None else spread(channels, width).int()
        awake = first.cpu() if isinstance(first, Tensor) else choose(first, rank, draw)
        if isinstance(layer.module, nn.Conv2d):
            emitted[layer.name] = awake
        level = torch.where(awake, OPEN, -dormant) * scale
        if k and not torch.equal(Gates(level, awake, kind, k, tau, 1).is_open(), awake):
            why = "expected a tau between the probabilities of gates that start open, 0.95, and of dormant ones"
            raise BadInput(f"tau={tau}, dormant={dormant}: other units of {layer.name} would start open: {why}")
        phi = level + deviation(k) * torch.randn(width, generator=draw)
        weight = layer.module.weight
        each = weight.numel() // width  # the weights that go with a unit
        gates = Gates(phi.to(weight), awake.to(weight.device), kind, k, tau, each, places[layer.name])
        module = model.get_submodule(layer.norm or layer.name)
        made[id(module)] = Gated(module, gates)
    plain = str(followed(model))
    model = replaced(model, made)
    if str(followed(model)) != plain:
        name = type(model).__name__
        raise BadInput(f"{name} asks what its layers are, and would compute something else with gates on them")
    return model


def deviation(k: float) -> float:
    """Return the standard deviation of phi at the start for this slope, see `gated`."""
    return SPREAD * (STEEP / max(k, STEEP))


def _each(value: object) -> list:
    """The values that are given, or the one that is; a word and a tensor are one."""
    return list(value) if isinstance(value, Iterable) and not isinstance(value, (str, Tensor)) else [value]


def _asked(layers: Sequence[str] | str | None, found: dict[str, Layer], network: str) -> list[str]:
    """The paths of the layers to gate among those found in a network."""
    if not found:
        raise BadInput(f"{network} calls no Linear and no Conv2d, and gates stand on these alone")
    if layers is not None:
        return _each(layers)
    if not (names := gateable(found)):
        why = "no Linear reads another layer's, and no Conv2d is read by layers alone"
        raise BadInput(f"{network} has no units to gate: {why}; name a Linear to gate its inputs")
    return names


def _opens(start: int | Tensor, width: int) -> bool:
    """Whether this says how many, or which, of a layer's units start open."""
    if isinstance(start, Tensor):
        return start.dtype is torch.bool and start.shape == (width,) and bool(start.any())
    return isinstance(start, Integral) and 0 < start <= width


def penalty(model: nn.Module, lambdas: Sequence[float]) -> Tensor:
    """Compute the regulariser of equations 1 and 8: for each layer lambda times the sum of g(phi) over its weights.

    A gate counts once for every weight it switches, whether or not their other end is open. The gradient of phi is
    the last term of equation 9.

    Args:
        lambdas: one a gated layer, in the order of the forward pass, which is that of `trace`; negative ones reward
            open gates.

    Raises:
        BadInput: a model without gates, or another number of lambdas than of gated layers.
    """
    gates = gates_of(model)
    if not isinstance(lambdas, Sequence):
        raise BadInput(f"lambdas={lambdas!r}: expected a list, one a gated layer ({len(gates)})")
    if len(lambdas) != len(gates):
        raise BadInput(f"{len(lambdas)} lambdas for {len(gates)} gated layers: one a layer is needed")
    return sum(rate * one.weights * one.probability().sum() for rate, one in zip(lambdas, gates, strict=True))


def settled(model: nn.Module) -> bool:
    """Say whether every gate is all but certainly open or closed: phi has no gradient then, and one forward pass is
    enough.

    A float32 is 1 when it is nearer to 1 than 2^-25, but far smaller numbers are not yet 0. Draws are multiples of
    2^-24: a gate that is less likely open than that is closed but for a draw of exactly 0, once in 2^24.
    """
    with torch.no_grad():
        chances = [gates.probability() for gates in gates_of(model)]
    return all(bool(((pi < 2**-24) | (pi == 1)).all()) for pi in chances)


def sizes(layers: dict[str, Layer]) -> dict[str, int]:
    """Count how large the network is at test time: the weights that are trained, without biases, unless said.

    Args:
        layers: from `trace`, with a shape.

    Returns:
        parameters: as the paper counts in its tables, products of the numbers of open gates. Where a layer has gates
            of its own at an end only these count.
        parameters_live: weights whose two ends are both live: those that `harden` keeps.
        flops: multiplications and additions of one example with the live weights, fixed ones too.
    """
    printed, real = live(layers, tied=False), live(layers)

    def weights(ends: dict[str, tuple[Tensor, Tensor]], name: str) -> int:
        inputs, outputs = ends[name]
        return int(inputs.sum()) * int(outputs.sum()) * layers[name].kernel

    trained = [name for name, layer in layers.items() if layer.learns]
    return {
        "parameters": sum(weights(printed, name) for name in trained),
        "parameters_live": sum(weights(real, name) for name in trained),
        "flops": sum(2 * weights(real, name) * layer.positions for name, layer in layers.items()),
    }


def architecture(layers: dict[str, Layer], only_live: bool = False) -> str:
    """Write the numbers of open gates as the paper does: "7-9-109-30"; an MLP with its ends, "2-100-80-2".

    Args:
        only_live: count the units that `harden` keeps, those whose other end is open too.
    """
    gated = {name: layer for name, layer in layers.items() if layer.gates}
    if only_live:
        ends = live(layers)
        counts = [int(ends[name][layer.inputs is None].sum()) for name, layer in gated.items()]
    else:
        counts = [int(layer.gates.is_open().sum()) for layer in gated.values()]
    first, last = next(iter(layers.values())).module, list(layers.values())[-1].module
    if isinstance(first, nn.Linear) and isinstance(last, nn.Linear):
        counts = [first.in_features, *counts, last.out_features]
    return "-".join(map(str, counts))


def _named(name: str, found: dict[str, Layer]) -> Layer:
    if name not in found:
        raise BadInput(f"gates on {name!r}: the network's Linear and Conv2d layers are {', '.join(found)}")
    layer = found[name]
    if layer.gates is not None:
        raise BadInput(f"gates on {name!r}: it has gates already")
    if layer.wall:
        raise BadInput(f"gates on {name!r}: it {layer.wall}")
    if isinstance(layer.module, nn.Conv2d) and not layer.cuttable:
        where = "meet others in a sum, are read by a convolution in groups, or leave the network"
        raise BadInput(f"gates on {name!r}: its channels {where}, so none can be cut")
    if isinstance(layer.module, nn.Conv2d) and layer.norm is None and parametrize.is_parametrized(layer.module):
        why = "make it a plain one with torch.nn.utils.parametrize.remove_parametrizations"
        raise BadInput(f"gates on {name!r}: a parametrization computes its weight: {why}")
    return layer


def choose(count: int, rank: Tensor, draw: torch.Generator) -> Tensor:
    """Choose so many units, [units] bool: those of the highest rank, at random among equals."""
    order = torch.randperm(len(rank), generator=draw)
    order = order[rank[order].sort(descending=True, stable=True).indices]
    chosen = torch.zeros(len(rank), dtype=torch.bool)
    chosen[order[:count]] = True
    return chosen
