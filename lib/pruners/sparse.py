"""Turn a pruned model into one that computes with nothing else, what a user of unstructured pruning keeps, and back."""

from __future__ import annotations

from torch import nn
from torch.nn.utils import skip_init

from lib.base import BadInput
from lib.kernels.products import FLOATS
from lib.kernels.sparse_linear import SparseLinear
from lib.pruners import kinds
from lib.pruners.behind import behind, called_besides
from lib.pruners.counted import refuse_valueless
from lib.pruners.inputs import duplicate, replaced
from lib.pruners.layers import leave_out, matrices, prunable, refuse_replicated
from lib.pruners.masks import attach, attached, beneath
from lib.pruners.selected import Select


def sparse(model: nn.Module, select: Select = None) -> nn.Module:
    """Make a copy of a pruned model in which each `nn.Linear` holds only the weights that are left.

    Left is what its mask keeps, or without a mask what is not zero. The copy computes the same function, and trains as
    the model with its masks does. The `weight` of such a layer can still be read, by attention for example, which
    multiplies by it as by a dense one, and by tables such as `report`; but no more of it can be pruned before `dense`
    makes a plain layer of it again. Layers of other kinds stay as they are, masks on them too. A Linear that cannot be
    made sparse, because nothing of it is left, it shares its weight with another layer, computes it from other numbers
    than a mask's, has hooks or a bias that is computed, stays as it is with a warning that names it.

    Args:
        select: as `layers.prunable`.

    Raises:
        BadInput: no `nn.Linear` of the model can be made sparse; with the reason, if it is one; a model that
            DistributedDataParallel has wrapped.
    """
    refuse_replicated(model, prunable(model, select))
    new = duplicate(model)
    chosen = prunable(new, select)
    refuse_valueless(chosen)
    layers = [layer for layer in chosen if isinstance(layer.module, nn.Linear) and kinds.find(layer.module)[0].affine]
    if not layers:
        raise BadInput("sparse needs a model with an nn.Linear; a stack's run becomes one by `models.mlp.plain`")
    masks = attached(new)
    made: dict[int, SparseLinear] = {}
    whys = {}
    for layer in layers:
        mask, weight = masks.get(layer.name), layer.weight
        found = f"its weight is {list(weight.shape)} of {weight.dtype}"
        if weight.dtype not in FLOATS:
            whys[layer.name] = f"CSR has products of float32 and float64, {found}"
        elif layer.tied:
            whys[layer.name] = "it shares its weight with another layer"
        elif beneath(layer) or len(behind(layer.module)[layer.attribute]) > 1:
            ways = "pruners.detach, or torch.nn.utils.parametrize.remove_parametrizations, first"
            whys[layer.name] = f"its weight is computed from other numbers: {ways}"
        elif called_besides(layer.module):
            whys[layer.name] = "it has hooks, which a sparse layer would not call"
        elif "bias" not in layer.module._parameters:
            whys[layer.name] = "its bias is computed, and a sparse layer would not compute it"
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


def dense(model: nn.Module) -> nn.Module:
    """Make a copy of what `sparse` has made in which its layers are `nn.Linear` again, and masks hold what is left.

    The copy computes the same function, and can be pruned further. `save` writes the same.

    Raises:
        BadInput: no layer of the model is sparse, one has hooks, which would be lost, or DistributedDataParallel has
            wrapped one.
    """
    refuse_replicated(model, [layer for layer in matrices(model) if layer.sparse])
    new = duplicate(model)
    layers = [layer for layer in matrices(new) if layer.sparse]
    if not layers:
        raise BadInput(f"{type(model).__name__} has no layer that pruners.sparse has made")
    made, masks = {}, {}
    for layer in layers:
        old = layer.module
        if called_besides(old):
            raise BadInput(f"{layer.name}: its layer has hooks, which a plain one would not call: remove them first")
        weight, bias = old.weight.detach(), old.bias
        like = {"device": weight.device, "dtype": weight.dtype}
        plain = skip_init(nn.Linear, old.in_features, old.out_features, bias=bias is not None, **like)
        plain.weight = nn.Parameter(weight, old.values.requires_grad)
        plain.bias = bias
        made[id(old)] = plain
        masks[layer.name] = old.left
    new = replaced(new, made)
    attach(new, masks)
    return new
