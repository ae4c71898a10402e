"""Find what is trained behind a weight, in the ways that torch has to compute one before a layer reads it.

a parameter                          the weight itself
torch.nn.utils.parametrize           a chain of functions of one parameter or several; masks are held so
torch.nn.utils.prune                 a hook before `forward` multiplies a parameter by a mask
torch.nn.utils.weight_norm (old)     a hook before `forward` computes the weight from two parameters
lib.kernels.sparse_linear            a list of the values that are left of the weight
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.nn.utils.weight_norm import WeightNorm

from lib.kernels.sparse_linear import SparseLinear
from lib.pruners import kinds

ORDER = "_order_before"  # of a layer's parameters; an attribute beside the names of its weights


def behind(module: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Return the parameters behind each tensor that the module computes with, sub-modules aside."""
    found = {name: [one] for name, one in module.named_parameters(recurse=False, remove_duplicate=False)}
    if isinstance(module, SparseLinear):
        found["weight"] = found.pop("values")
    for hook in hooks(module):
        if isinstance(hook, WeightNorm):
            found[hook.name] = [*found.pop(f"{hook.name}_v"), *found.pop(f"{hook.name}_g")]
        elif f"{hook._tensor_name}_orig" in found:
            found[hook._tensor_name] = found.pop(f"{hook._tensor_name}_orig")
    if parametrize.is_parametrized(module):
        lists = module.parametrizations.items()
        found |= {name: list(chain.parameters(recurse=False)) for name, chain in lists}
    return {name: parameters for name, parameters in found.items() if parameters}


def hooks(module: nn.Module) -> list[WeightNorm | prune.BasePruningMethod]:
    """Return the hooks that compute weights before `forward`."""
    every = module._forward_pre_hooks.values()
    return [hook for hook in every if isinstance(hook, (WeightNorm, prune.BasePruningMethod))]


def called_besides(module: nn.Module) -> bool:
    """Tell whether hooks are called with a layer, or with its derivative, that do not compute its weight."""
    names = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
    every = (hook for name in names for hook in getattr(module, name).values())
    return any(hook not in hooks(module) for hook in every)


def hook_of(module: nn.Module, attribute: str) -> WeightNorm | prune.BasePruningMethod | None:
    """Return the hook that computes this weight, if one does."""
    named = ((hook.name if isinstance(hook, WeightNorm) else hook._tensor_name, hook) for hook in hooks(module))
    return next((hook for name, hook in named if name == attribute), None)


def computed(module: nn.Module, attribute: str) -> Tensor:
    """Return the weight as the layer's next product will see it."""
    hook = hook_of(module, attribute) if module._forward_pre_hooks else None
    if hook is not None:
        return hook.compute_weight(module) if isinstance(hook, WeightNorm) else hook.apply_mask(module)
    chain = module.parametrizations[attribute] if parametrize.is_parametrized(module, attribute) else ()
    # in training mode a spectral norm changes what it computes with whenever it is asked
    drifting = [one for one in chain if isinstance(one, parametrizations._SpectralNorm) and one.training]
    try:
        for one in drifting:
            one.eval()
        return getattr(module, attribute)
    finally:
        for one in drifting:
            one.train()


def mask_of(module: nn.Module, attribute: str) -> Tensor | None:
    """Return the mask that torch.nn.utils.prune holds on a weight, bool."""
    hook = hook_of(module, attribute)
    if not isinstance(hook, prune.BasePruningMethod):
        return None
    return getattr(module, f"{attribute}_mask").detach() != 0


def settle(module: nn.Module, attribute: str) -> None:
    """Make a weight that a hook computes one that a parametrization computes, or a parameter; the function stays.

    Parameters stay the same objects, so that optimizers stay valid. What torch.nn.utils.prune has removed is zero then,
    and no longer held there.
    """
    hook = hook_of(module, attribute)
    if isinstance(hook, prune.BasePruningMethod):
        prune.remove(module, attribute)
    elif isinstance(hook, WeightNorm):
        g, v = getattr(module, f"{attribute}_g"), getattr(module, f"{attribute}_v")
        key = next(key for key, other in module._forward_pre_hooks.items() if other is hook)
        hook.remove(module)
        del module._forward_pre_hooks[key]
        parametrizations.weight_norm(module, attribute, hook.dim)
        chain = module.parametrizations[attribute]
        chain.original0, chain.original1 = g, v


def register(module: nn.Module, attribute: str, form: nn.Module) -> None:
    """Let a parametrization compute a weight from now on; `bake` gives the weight its old place among the parameters.

    The order of parameters is what optimizers store their state by. It is noted when a layer's first weight moves here;
    what a hook or another parametrization has moved before stays where that has put it.
    """
    order = getattr(getattr(module, "parametrizations", None), ORDER, tuple(module._parameters))
    parametrize.register_parametrization(module, attribute, form)
    setattr(module.parametrizations, ORDER, order)
    kinds.reread(module)


def bake(module: nn.Module, attribute: str) -> None:
    """Make a computed weight a plain parameter with the values it has, frozen if all behind it are."""
    settle(module, attribute)
    if parametrize.is_parametrized(module, attribute):
        order = getattr(module.parametrizations, ORDER, ())
        # torch deletes the property `weight` from the layer's class, which deep copies of the layer share
        shared = type(module)
        module.__class__ = type(shared.__name__, shared.__bases__, dict(vars(shared)))
        module.parametrizations[attribute].eval()
        trained = any(parameter.requires_grad for parameter in behind(module)[attribute])
        parametrize.remove_parametrizations(module, attribute, leave_parametrized=True)
        if attribute in module._buffers:  # which torch makes of several parameters if frozen or without gradients
            module.register_parameter(attribute, nn.Parameter(module._buffers.pop(attribute), trained))
        places = {name: place for place, name in enumerate(order)}
        for name in sorted(module._parameters, key=lambda name: places.get(name, len(places))):
            module._parameters[name] = module._parameters.pop(name)
        kinds.reread(module)
