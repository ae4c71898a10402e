"""Gate each unit of a layer: how likely it is open, what is drawn in training, and what is used at test time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor, nn

from lib.base import BadInput

INFINITE = 5000.0  # what the paper uses for k = infinity (section 6): sigmoid(k phi) is then exactly 0 or 1
# The hard concrete distribution's temperature and stretch (Louizos et al. 2018, section 4.1).
BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1


@dataclass(frozen=True)
class GateFunction:
    """Describe a kind of gate by its parametric function g, from phi and k to the probability that a gate is open.

    Attributes:
        probability: g_k(phi), differentiable.
        chain: d logit(g) / d phi = g' / (g (1 - g)), the factor of equation 7's estimator for this g; 0 where g is 0
            or 1, because g' is 0 there (equation 16). None of what is not binary: ARM and AR are for binary gates.
        binary: whether what is drawn is 0 or 1.
    """

    probability: Callable[[Tensor, float], Tensor]
    chain: Callable[[Tensor, float], Tensor] | None = None
    binary: bool = True


def sigmoid(phi: Tensor, k: float) -> Tensor:
    """Compute g = 1 / (1 + exp(-k phi)) (equation 10)."""
    return torch.sigmoid(k * phi)


def sigmoid_chain(phi: Tensor, k: float) -> Tensor:
    """Return the slope of equation 10's logit, which is k phi: it is k."""
    g = sigmoid(phi, k)
    return k * ((g > 0) & (g < 1)).to(phi)


def hard_sigmoid(phi: Tensor, k: float) -> Tensor:
    """Compute g = min(1, max(0, k phi / 7 + 0.5)) (equation 11).

    At its ends the slope is 0, the value it has on the flat side.
    """
    line = k / 7 * phi + 0.5
    return torch.where((line > 0) & (line < 1), line, line.detach().clamp(0, 1))


def hard_sigmoid_chain(phi: Tensor, k: float) -> Tensor:
    """Compute (k / 7) / (g (1 - g)), which is no constant: equation 7 as printed, without it, is biased for this g."""
    g = hard_sigmoid(phi, k)
    inside = (g > 0) & (g < 1)
    return torch.where(inside, k / 7 / torch.where(inside, g * (1 - g), 1), 0)


def hard_concrete(phi: Tensor, k: float) -> Tensor:
    """Compute P(z > 0) of hard concrete gates with log alpha = k phi (the paper's reference 10: Louizos, eq. 12)."""
    return torch.sigmoid(k * phi - BETA * math.log(-GAMMA / ZETA))


def stretched(values: Tensor) -> Tensor:
    """Stretch values from (0, 1) to (gamma, zeta), cut off at 0 and 1, where the slope is then 0 (Louizos, eq. 10)."""
    return (values * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


KINDS = {  # a saved network names its kind by the place here: add others at the end
    "sigmoid": GateFunction(sigmoid, sigmoid_chain),
    "hard_sigmoid": GateFunction(hard_sigmoid, hard_sigmoid_chain),
    "hard_concrete": GateFunction(hard_concrete, binary=False),
}


class Gates(nn.Module):
    """The gates of one layer's units switch them: each multiplies what its unit gives by z, which is drawn.

    Attributes:
        phi: [units], what is trained.
        awake: [units] bool, units that have been open; the others are dormant (section 4: in hibernation).
        kind: which g, a key of KINDS.
        k: its slope now.
        tau: a gate at or below it is closed at test time (equation 13).
        weights: how many weights each gate switches: outputs of a Linear, inputs x kernel of a Conv2d.
        place: of the layer among those of the forward pass, by which `gates_of` puts the gates in order.
        drawn: z [units] of the pass being computed, in either mode, set by `holding`; None: a pass in training mode
            draws its own from torch's global generator, one in evaluation mode uses `value`.
    """

    def __init__(self, phi: Tensor, awake: Tensor, kind: str, k: float, tau: float, weights: int, place: int = 0):
        super().__init__()
        self.phi = nn.Parameter(phi)
        self.register_buffer("awake", awake)
        self.kind, self.k, self.tau, self.weights, self.place = kind, k, tau, weights, place
        self.drawn: Tensor | None = None

    def get_extra_state(self) -> Tensor:
        """Give k, tau and the place of `kind` in KINDS to the `state_dict()`: without them phi is another function."""
        return torch.tensor([self.k, self.tau, list(KINDS).index(self.kind)], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take k, tau and the kind from a `state_dict()`."""
        self.k, self.tau, kind = state.tolist()
        self.kind = list(KINDS)[int(kind)]

    def probability(self) -> Tensor:
        """Compute pi = g_k(phi), how likely each gate is open [units], with its gradient."""
        return KINDS[self.kind].probability(self.phi, self.k)

    def chain(self) -> Tensor:
        """Compute d logit(pi) / d phi [units], see `GateFunction`."""
        with torch.no_grad():
            return KINDS[self.kind].chain(self.phi, self.k)

    def draw(self, uniform: Tensor) -> Tensor:
        """Make z [units] from u in [0, 1): 1[u < g(phi)] (equation 8), or the hard concrete sample with its gradient.

        Louizos et al., eq. 10: the stretched sigmoid((log u - log(1 - u) + log alpha) / beta).
        """
        if KINDS[self.kind].binary:
            return (uniform < self.probability()).to(self.phi)
        uniform = uniform.clamp(1e-6, 1 - 1e-6)
        return stretched(torch.sigmoid((uniform.log() - (-uniform).log1p() + self.k * self.phi) / BETA))

    def antithetic(self, uniform: Tensor) -> Tensor:
        """Make equation 7's second setting from the same u, 1[u > g(-phi)], with g(-phi) = 1 - g(phi).

        u = 0, which a generator may give, opens a gate of g = 1 too: then both settings agree, as they must.
        """
        return (uniform >= 1 - self.probability()).to(self.phi)

    @torch.no_grad()
    def value(self) -> Tensor:
        """Compute what stands for z at test time [units]: g(phi) where it is above tau, else 0 (equations 12 and 13).

        At k = 0 all are g(phi) = 0.5, equation 12 alone, as dropout has it; equation 13 would close every gate. Hard
        concrete gates follow their own rule, the stretched sigmoid(log alpha) (Louizos et al., eq. 13).
        """
        if not KINDS[self.kind].binary:
            return stretched(torch.sigmoid(self.k * self.phi))
        g = self.probability()
        return g if self.k == 0 else torch.where(g > self.tau, g, 0)

    def is_open(self) -> Tensor:
        """Say which units are open at test time, [units] bool."""
        return self.value() > 0

    def redundant(self) -> Tensor:
        """Say which units have been open and are closed now, [units] bool."""
        return self.awake & ~self.is_open()

    def dormant(self) -> Tensor:
        """Say which units are closed and have never been open, [units] bool."""
        return ~self.awake & ~self.is_open()

    def forward(self) -> Tensor:
        """Return z [units] for this pass."""
        if self.drawn is not None:
            return self.drawn
        return self.draw(torch.rand_like(self.phi)) if self.training else self.value()


class Gated(nn.Module):
    """A layer with its gates computes with z times the inputs of a Linear, or gives z times the output channels of a
    Conv2d or BatchNorm2d.
    """

    def __init__(self, layer: nn.Module, gates: Gates):
        super().__init__()
        self.layer, self.gates = layer, gates
        self.of_inputs = isinstance(layer, nn.Linear)  # remembered: `sparse` or int8 may put another layer in its place

    def forward(self, input: Tensor) -> Tensor:
        """Map the layer's inputs to its outputs; shapes are those without gates.

        The argument has torch's own name, since a model may call its layer by keyword.
        """
        z = self.gates()
        if self.of_inputs:
            return self.layer(input * z)
        plain = self.layer._parameters  # a mask, or what else computes a weight, has taken it out of there
        if isinstance(self.layer, nn.Conv2d) and {"weight", "bias"} <= plain.keys():
            own = {"weight": z.view(-1, 1, 1, 1) * self.layer.weight}  # far fewer than a channel's outputs
            if self.layer.bias is not None:
                own["bias"] = z * self.layer.bias
            return _called_with(self.layer, own, input)
        found = self.layer(input)
        return found * z[:, None, None].to(found.dtype)


def _called_with(layer: nn.Module, own: dict[str, Tensor], inputs: Tensor) -> Tensor:
    """Call a layer, its hooks too, with other tensors in place of its parameters.

    `torch.func.functional_call` does so for whole networks and takes a third of a small convolution's time for it.
    """
    parameters = layer._parameters
    layer._parameters = parameters | own
    try:
        return layer(inputs)
    finally:
        layer._parameters = parameters


def gates_of(model: nn.Module) -> list[Gates]:
    """Collect the gates of all layers, in the order of the forward pass that `gated` found.

    Raises:
        BadInput: the model has none.
    """
    found = [module for module in model.modules() if isinstance(module, Gates)]
    if not found:
        raise BadInput(f"{type(model).__name__} has no gates: gates.gated(model, layers) puts them there")
    return sorted(found, key=lambda gates: gates.place)


def set_k(model: nn.Module, k: float) -> None:
    """Set the slope k of all gates, which is how section 3 tells the stages apart.

    Raises:
        BadInput: a slope that is not a finite number of 0 or more.
    """
    check_k(k)
    for gates in gates_of(model):
        gates.k = k


@torch.no_grad()
def fix(model: nn.Module, k: float) -> None:
    """Fix the architecture found at this k (section 3.3): set k to infinity, where those gates are open that are here.

    At infinite k the sign of phi decides, at others tau does, or the hard concrete gates' own rule. Where they disagree
    phi changes its sign; for binary gates and a tau of 0.5 they agree. A phi within 0.003 of 0 is undecided even then.
    """
    set_k(model, k)
    for gates in gates_of(model):
        gates.phi.copy_(torch.where(gates.is_open() == (gates.phi > 0), gates.phi, -gates.phi))
    set_k(model, INFINITE)


def check_k(k: float) -> None:
    """Refuse a slope k that is not a finite number of 0 or more.

    Raises:
        BadInput: it is no number, below 0 or not finite.
    """
    if not isinstance(k, Real) or not 0 <= k < math.inf:
        raise BadInput(f"gates: k={k!r:.40}: the slope is at least 0 (0 is dropout, {INFINITE:g} stands for infinity)")


@contextmanager
def holding(gates: list[Gates], draws: list[Tensor]) -> Iterator[None]:
    """Let every pass within use these z instead of drawing.

    Raises:
        BadInput: another number of z than of gated layers.
    """
    if len(draws) != len(gates):
        raise BadInput(f"{len(draws)} draws for {len(gates)} gated layers: one a layer is needed")
    for one, z in zip(gates, draws, strict=True):
        one.drawn = z
    try:
        yield
    finally:
        for one in gates:
            one.drawn = None


@contextmanager
def testing_at(gates: list[Gates], tau: float) -> Iterator[None]:
    """Let gates within close at this tau (equation 13) instead of their own."""
    own = [one.tau for one in gates]
    for one in gates:
        one.tau = tau
    try:
        yield
    finally:
        for one, before in zip(gates, own, strict=True):
            one.tau = before
