"""Turn a pruned model into one that computes with nothing else: what a user of unstructured pruning keeps."""

from __future__ import annotations

from torch import nn

from lib.base import BadInput
from lib.kernels.sparse_linear import FLOATS, SparseLinear
from lib.pruners import kinds
from lib.pruners.behind import behind, called_besides
from lib.pruners.inputs import duplicate, replaced
from lib.pruners.layers import Select, leave_out, prunable
from lib.pruners.masks import attached, beneath, numbers


def sparse(model: nn.Module, select: Select = None) -> nn.Module:
    """Make a copy of a pruned model in which each `nn.Linear` holds only the weights that are left.

    Left is what its mask keeps, or without a mask what is not zero. The copy computes the same function, and trains as
    the model with its masks does. The `weight` of such a layer can still be read, by attention for example, which
    multiplies by it as by a dense one, and by tables such as `report`; but no more of it can be pruned. Layers of other
    kinds stay as they are, masks on them too. A Linear that cannot be made sparse, because nothing of it is left, it
    shares its weight with another layer, computes it from other numbers than a mask's, has hooks or a bias that is
    computed, stays as it is with a warning that names it.

    Args:
        select: as `layers.prunable`.

    Raises:
        BadInput: no `nn.Linear` of the model can be made sparse; with the reason, if it is one.
    """
    new = duplicate(model)
    chosen = prunable(new, select)
    numbers(chosen)  # refuses what has no values
    layers = [layer for layer in chosen if isinstance(layer.module, nn.Linear) and kinds.find(layer.module)[0].affine]
    if not layers:
        raise BadInput("sparse needs a model with an nn.Linear; a stack's run becomes one by `models.mlp.plain`")
    masks = attached(new)
    made: dict[int, SparseLinear] = {}
    whys = {}
    for layer in layers:
        mask, weight = masks.get(layer.name), layer.weight
        found = f"its weight is {list(weight.shape)} of {weight.dtype}"
        if layer.tied:
            whys[layer.name] = "it shares its weight with another layer"
        elif beneath(layer) or len(behind(layer.module)[layer.attribute]) > 1:
            whys[layer.name] = "its weight is computed from other numbers; pruners.detach the model first"
        elif called_besides(layer.module):
            whys[layer.name] = "it has hooks, which a sparse layer would not call"
        elif "bias" not in layer.module._parameters:
            whys[layer.name] = "its bias is computed, and a sparse layer would not compute it"
        elif weight.dtype not in FLOATS:
            whys[layer.name] = f"CSR has products of float32 and float64, {found}"
        elif not bool((weight != 0 if mask is None else mask).any()):
            whys[layer.name] = f"{found}, nothing of it is left"
        else:
            made[id(layer.module)] = one = SparseLinear(weight, layer.module.bias, mask)
            one.values.requires_grad_(any(p.requires_grad for p in behind(layer.module)[layer.attribute]))
    if not made:
        name, why = next(iter(whys.items()))
        raise BadInput(f"layer {name.removesuffix('.weight') if '.' in name else 'of the model'}: {why}")
    for name, why in whys.items():
        leave_out(name, why)
    return replaced(new, made)
