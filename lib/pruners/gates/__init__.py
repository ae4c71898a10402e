"""Open and close neurons and channels by stochastic binary gates: neural plasticity (paper 4).

    model = gates.gated(network)                                          # every layer, k = 7, all open
    loss = gates.arm(model, lambda model: F.cross_entropy(model(inputs), labels), draw)
    gates.penalty(model, lambdas).backward()                              # what the open gates cost
    small = gates.harden(model)                                           # an ordinary, smaller network

One number k leads through all stages: infinity (5000) trains an ordinary network, 7 or 0.5 lets gates move, 0 is
dropout. `lib.training.gated` is the loop around it.
"""

from lib.pruners.gates.estimators import ESTIMATORS, ar, arm, generators, pathwise, plain
from lib.pruners.gates.expansion import at_rest, expand, plateaus, wake
from lib.pruners.gates.gate import INFINITE, KINDS, Gated, Gates, check_k, fix, gates_of, holding, set_k, testing_at
from lib.pruners.gates.harden import harden
from lib.pruners.gates.model import architecture, gated, penalty, settled, sizes
from lib.pruners.gates.structure import Layer, gateable, live, trace

__all__ = [
    "ESTIMATORS",
    "INFINITE",
    "KINDS",
    "Gated",
    "Gates",
    "Layer",
    "ar",
    "architecture",
    "arm",
    "at_rest",
    "check_k",
    "expand",
    "fix",
    "gateable",
    "gated",
    "gates_of",
    "generators",
    "harden",
    "holding",
    "live",
    "pathwise",
    "penalty",
    "plain",
    "plateaus",
    "set_k",
    "settled",
    "sizes",
    "testing_at",
    "trace",
    "wake",
]
