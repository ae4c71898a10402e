"""From a pruned model to one that computes with nothing else: what a user of unstructured pruning keeps."""

from __future__ import annotations

import copy

import torch
from torch import nn

from lib.base import BadInput
from lib.kernels.sparse_linear import SparseLinear
from lib.pruners.layers import prunable
from lib.pruners.masks import attached, numbers


def sparse(model: nn.Module) -> nn.Module:
    """Make a copy of a pruned model in which each `nn.Linear` holds only the weights that are left.

    Left is what its mask keeps, or without a mask what is not zero. The copy computes the same function, and trains as
    the model with its masks does.

    Raises:
        BadInput: a model without an `nn.Linear`, with two that share a weight, or with one that has no weight left.
    """
    numbers(prunable(model))  # refuses shared weights, and such without values
    masks, made, new = attached(model), {}, copy.deepcopy(model)
    found = [(name, old) for name, old in model.named_modules(remove_duplicate=False) if isinstance(old, nn.Linear)]
    if not found:
        raise BadInput("sparse needs a model with an nn.Linear; a stack's run becomes one by `models.mlp.plain`")
    for name, old in found:
        if old not in made:  # one layer may be used at several places
            path = f"{name}.weight" if name else "weight"
            try:
                with torch.enable_grad():  # or a masked weight would look frozen
                    made[old] = SparseLinear(old.weight, old.bias, masks.get(path))
            except BadInput as error:
                raise BadInput(f"layer {name or 'of the model'}: {error}") from error
        if not name:
            return made[old]
        new.set_submodule(name, made[old])
    return new
