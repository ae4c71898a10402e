"""Estimate gradients of the expected loss over all settings of the gates, E[f(z)] with z ~ Ber(g(phi)) (equation 6).

Each is called once a minibatch. It adds the gradients to `.grad`, of the network's weights through f(z) and of phi by
its own rule, and returns the minibatch's loss. f is the loss of the whole network with the gates of all layers drawn
together, one draw for the whole minibatch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lib.base import BadInput
from lib.pruners.gates.gate import KINDS, Gates, gates_of, holding
from lib.pruners.scores import Loss, scalar


def arm(model: nn.Module, loss: Loss, draw: torch.Generator) -> Tensor:
    """Estimate the gradients by augment-REINFORCE-merge (equations 7 and 9): two passes, unbiased, little variance.

    The gradient of phi is (f(1[u > g(-phi)]) - f(1[u < g(phi)])) (u - 1/2) d logit(g) / d phi. Equation 7 prints no
    last factor; it is 1 for g = sigmoid(phi), k for equation 10, and not constant for equation 11.

    Both passes run in the model's mode and draw the same dropout masks; the second leaves running statistics of batch
    norms as they are. Weights learn from the pass that is drawn as in equation 8, z = 1[u < g(phi)].

    Args:
        loss: called with the model, returns the minibatch's mean loss.
        draw: a CPU generator for u. Dropout draws from torch's global one.

    Raises:
        BadInput: a model without gates, gates of another kind, or a loss that is no real scalar.
    """
    gates, uniforms = _uniforms(model, draw)
    dropout = [(generator, generator.get_state()) for generator in generators(gates[0].phi.device)]
    with torch.no_grad():
        drawn = [g.draw(u) for g, u in zip(gates, uniforms, strict=True)]
    first = _pass(model, loss, gates, drawn)
    _backward(first)
    with torch.no_grad():
        # at large k the chain factor would multiply the difference between two dropout masks
        for generator, before in dropout:
            generator.set_state(before)
        buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
        try:
            second = _pass(model, loss, gates, [g.antithetic(u) for g, u in zip(gates, uniforms, strict=True)])
        finally:
            for buffer, before in buffers:
                buffer.copy_(before)
        difference = second - first
    for one, uniform in zip(gates, uniforms, strict=True):
        _add(one, difference * (uniform - 0.5) * one.chain())
    return first.detach()


def ar(model: nn.Module, loss: Loss, draw: torch.Generator) -> Tensor:
    """Estimate the gradients by augment-REINFORCE, which ARM merges: in one pass, unbiased, with more variance.

    The gradient of phi is f(1[u < g(phi)]) (1 - 2 u) d logit(g) / d phi.

    Args: as `arm`.
    """
    gates, uniforms = _uniforms(model, draw)
    value = _pass(model, loss, gates, [g.draw(u) for g, u in zip(gates, uniforms, strict=True)])
    _backward(value)
    for one, uniform in zip(gates, uniforms, strict=True):
        _add(one, value.detach() * (1 - 2 * uniform) * one.chain())
    return value.detach()


def pathwise(model: nn.Module, loss: Loss, draw: torch.Generator) -> Tensor:
    """Compute the gradients of hard concrete gates (Louizos et al. 2018): z is stretched, cut off, differentiable.

    Args: as `arm`.
    """
    gates, uniforms = _uniforms(model, draw, binary=False)
    value = _pass(model, loss, gates, [g.draw(u) for g, u in zip(gates, uniforms, strict=True)])
    _backward(value)
    return value.detach()


def plain(model: nn.Module, loss: Loss, draw: torch.Generator) -> Tensor:
    """Compute the gradients where all gates are open or closed for certain (`settled`): one pass is enough, and phi
    has no gradient (equation 16).

    Nothing is drawn, so the pass is the plain network's, dropout masks included.
    """
    gates = gates_of(model)
    with torch.no_grad():
        certain = [one.probability().round() for one in gates]
    value = _pass(model, loss, gates, certain)
    _backward(value)
    return value.detach()


ESTIMATORS = {"arm": arm, "ar": ar, "hard_concrete": pathwise}


def _uniforms(model: nn.Module, draw: torch.Generator, binary: bool = True) -> tuple[list[Gates], list[Tensor]]:
    """The model's gates and u for each of them."""
    if not isinstance(draw, torch.Generator):
        raise BadInput(f"draw={draw!r:.40}: expected a torch.Generator, such as torch.Generator().manual_seed(0)")
    gates = gates_of(model)
    if wrong := [one.kind for one in gates if KINDS[one.kind].binary is not binary]:
        raise BadInput(f"gates of kind {wrong[0]!r} have another estimator: {'pathwise' if binary else 'arm or ar'}")
    return gates, [torch.rand(g.phi.shape, generator=draw, dtype=g.phi.dtype).to(g.phi.device) for g in gates]


def _pass(model: nn.Module, loss: Loss, gates: list[Gates], draws: list[Tensor]) -> Tensor:
    with holding(gates, draws):
        return scalar(loss(model))


def _backward(loss: Tensor) -> None:
    """Add the loss's gradients to those of what is trained, if anything that it depends on is."""
    if loss.requires_grad:
        loss.backward()


def generators(device: torch.device) -> list[torch.Generator]:
    """Return torch's global generators, from which dropout on this device may draw."""
    return [torch.default_generator] + ([torch.cuda.default_generators[device.index]] if device.type == "cuda" else [])


def _add(gates: Gates, gradient: Tensor) -> None:
    if not gates.phi.requires_grad:
        return
    gates.phi.grad = gradient if gates.phi.grad is None else gates.phi.grad + gradient
