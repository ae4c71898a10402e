"""Compute what paper 4's definitions say of one gate as it is, untrained."""

from __future__ import annotations

import torch

from lib.base import BadInput
from lib.pruners.gates.gate import KINDS, Gates

POINTS = 200_000  # of u, evenly spaced: an integral, not a sample


def probability(kind: str, k: float, phi: float) -> float:
    """Compute g_k(phi) of a gate (equations 10 and 11)."""
    return float(_gate(kind, k, phi).probability().detach())


def slope(kind: str, k: float, phi: float) -> float:
    """Compute the size of d g_k / d phi, what the gradient of phi is a multiple of (equations 9 and 16)."""
    gate = _gate(kind, k, phi)
    gate.probability().sum().backward()
    return abs(float(gate.phi.grad))


def learning_draws(kind: str, k: float, phi: float) -> float:
    """Compute in which share of all draws (percent) a gate that is closed at test time learns from the data.

    With binary gates it does where equation 7's two settings differ, in the hard concrete estimator where the drawn
    value has a gradient.

    Raises:
        BadInput: the gate is open.
    """
    gate = _gate(kind, k, phi, POINTS)
    if bool(gate.is_open().any()):
        raise BadInput(f"a gate of kind {kind} is open at k={k:g}, phi={phi:g}: choose a smaller phi")
    drawn = gate.draw(_uniforms())
    if KINDS[kind].binary:
        learns = (drawn != gate.antithetic(_uniforms())) & (gate.chain() != 0)
    else:
        (gradient,) = torch.autograd.grad(drawn.sum(), gate.phi)
        learns = gradient != 0
    return 100 * float(learns.double().mean())


def estimate_over_gradient(kind: str, k: float, phi: float, factor: bool) -> float:
    """Compute the mean of the ARM estimate of one gate, over the gradient it stands for; 1 is unbiased.

    Of f(z) = z, whose expectation has the gradient d g_k / d phi. With one gate any other f gives the same ratio.

    Args:
        factor: whether the estimate is multiplied by d logit(g) / d phi; equation 7 prints no such factor.
    """
    gate, uniform = _gate(kind, k, phi), _uniforms()
    mean = float(((gate.antithetic(uniform) - gate.draw(uniform)) * (uniform - 0.5)).mean())
    return mean * (float(gate.chain()) if factor else 1.0) / slope(kind, k, phi)


def variance_against_ar(kind: str, k: float, phi: float) -> float:
    """Compute the variance of the ARM estimate of one gate in percent of that of the AR estimate, of f(z) = z.

    Both are multiplied by the same d logit(g) / d phi, which drops out. AR's is f(1[u < g]) (1 - 2 u), which the
    paper does not print: it is in Yin and Zhou (2019), the paper's reference 17.
    """
    gate, uniform = _gate(kind, k, phi), _uniforms()
    drawn = gate.draw(uniform)
    arm, ar = (gate.antithetic(uniform) - drawn) * (uniform - 0.5), drawn * (1 - 2 * uniform)
    return 100 * float(arm.var() / ar.var())


def _gate(kind: str, k: float, phi: float, count: int = 1) -> Gates:
    if kind not in KINDS:
        raise BadInput(f"kind={kind!r}: known are {', '.join(KINDS)}")
    awake = torch.ones(count, dtype=torch.bool)
    return Gates(torch.full((count,), phi, dtype=torch.float64), awake, kind, k, tau=0.5, weights=1)


def _uniforms() -> torch.Tensor:
    return (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS
