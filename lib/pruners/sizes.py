"""Count how much a network computes and takes up: the one place every table has its sizes from."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from lib.base import BadInput, refuse_uncounted, type_of
from lib.kernels import storage
from lib.kernels.two_four import has_pattern
from lib.pruners import kinds
from lib.pruners.counted import refuse_shapeless, refuse_valueless
from lib.pruners.grouped import grouped
from lib.pruners.inputs import entering
from lib.pruners.layers import matrices, say_partial
from lib.pruners.masks import original
from lib.pruners.uses import positions


def parameters(model: nn.Module) -> int:
    """Count the numbers of a network's parameters, frozen ones too."""
    return sum(parameter.numel() for parameter in model.parameters())


def flops(model: nn.Module, shape: Sequence[int]) -> int:
    """Count the multiplications and additions of one example's matrix products, counting only weights that are not
    zero.

    Each kept weight of a Linear is used once and of a Conv2d at every output position; each use is a multiplication
    and an addition. Biases, norms and activations are left out. A dense network counts all its weights, so one
    function serves both.

    Warns (`Partial`) where these are products of less than nine tenths of the network's matrix weights (`coverage`).

    Args:
        shape: of one example, without the batch axis.

    Raises:
        BadInput: the model takes no examples of this shape, or has no numbers: it lies on the meta device, or a lazy
            layer of it has not been run yet.
    """
    layers = matrices(model)
    refuse_shapeless(model)
    refuse_valueless(layers)
    uses = positions(model, shape)
    say_partial(model, "this count of FLOPs")
    return round(sum(2 * int((layer.weight != 0).sum()) * uses.get(layer.name, 0) for layer in layers))


def sizes(model: nn.Module, shape: Sequence[int], value_bits: int = 16) -> dict[str, int]:
    """Count parameters, bytes in each format, and FLOPs of a network.

    Biases, norms and what cannot be pruned are stored as they are in every format. In the 2:4 format only layers that
    have the pattern are compressed; the others stay dense. Warns as `flops`.

    Args:
        shape: of one example, without the batch axis.
        value_bits: width of a stored value.

    Returns:
        parameters (all their numbers), weights (those of layers that are pruned or can be), kept (weights that are
        not zero), bytes_dense, bytes_csr, bytes_bitmap, bytes_two_four, flops_dense (of the same network without
        zeros), flops.

    Raises:
        BadInput: weights that share coefficients, of which fewer numbers are stored than there are weights, a shape of
            which the model takes no examples, a lazy layer that has not been run yet, or a width that counts nothing.
    """
    refuse_uncounted(value_bits=value_bits)
    layers = matrices(model)
    refuse_shapeless(model)
    refuse_valueless(layers)
    if shared := [layer.name for layer in layers if grouped(layer) is not None]:
        raise BadInput(f"{shared[0]} shares coefficients, sizes counts plain weights: pruners.detach the model first")
    stored = {layer.name: layer.matrix() for layer in layers}
    nonzeros = {name: int((matrix != 0).sum()) for name, matrix in stored.items()}
    weights, trained = sum(matrix.numel() for matrix in stored.values()), parameters(model)
    found = {"parameters": trained, "weights": weights, "kept": sum(nonzeros.values())}
    unstored = sum(layer.weight.numel() - original(layer).numel() for layer in layers if layer.sparse)
    for form in ("dense", "csr", "bitmap", "two_four"):
        bits = (trained + unstored - weights) * value_bits
        for name, matrix in stored.items():
            own = "dense" if form == "two_four" and not has_pattern(matrix) else form
            bits += storage.bits(own, *matrix.shape, nonzeros[name], value_bits)
        found[f"bytes_{form}"] = math.ceil(bits / 8)
    uses = positions(model, shape)
    say_partial(model, "this count of FLOPs")
    found["flops_dense"] = round(sum(2 * matrix.numel() * uses.get(name, 0) for name, matrix in stored.items()))
    return found | {"flops": round(sum(2 * count * uses.get(name, 0) for name, count in nonzeros.items()))}


def operations_per_byte(model: nn.Module, shape: Sequence[int], batch: int, value_bits: int = 16) -> float:
    """Divide the operations of a network's matrix products by the bytes they move (paper 5, figure 1).

    Each layer reads its weights and its inputs once and writes its outputs once; nothing stays on the chip from one
    layer to the next, not even weights that they share. Biases, norms, look-ups and activations are left out.

    Args:
        shape: of one example, without the batch axis.
        batch: examples that share one reading of the weights.

    Raises:
        BadInput: a layer that is not a product with one weight, such as nn.LSTM or nn.MultiheadAttention, or a
            shape of which the model takes no examples, a lazy layer that has not been run yet, or a batch or a width
            that counts nothing.
    """
    refuse_uncounted(batch=batch, value_bits=value_bits)
    moved = 0

    def count(module: nn.Module, args: tuple, kwargs: dict, output: torch.Tensor) -> None:
        nonlocal moved
        moved += module.weight.numel() + batch * (entering(args, kwargs).numel() + output.numel())

    layers = matrices(model)
    refuse_shapeless(model)
    owners = [(layer.name, *owner) for layer in layers for owner in layer.owners]
    owners = [owner for owner in owners if not isinstance(owner[1], kinds.LOOKUPS)]
    if inside := [(name, module) for name, module, attribute in owners if attribute != "weight"]:
        where = f"{inside[0][0]} is inside {type_of(inside[0][1])}"
        raise BadInput(f"operations_per_byte knows what layers with a single weight move, {where}")
    handles = [module.register_forward_hook(count, with_kwargs=True) for _, module, _ in owners]
    try:
        uses = positions(model, shape)
    finally:
        for handle in handles:
            handle.remove()
    operations = sum(2 * batch * layer.weight.numel() * uses.get(layer.name, 0) for layer in layers)
    return 8 * operations / (moved * value_bits)
