"""Time pruned agents that act and train (paper 1, section 6): CSR products against dense ones, on one core.

Networks have HalfCheetah's sizes. An agent acts on one observation, as BC does, or on 100 at once, as BCQ does to
choose among its samples; a training step, with a squared error and torch's fused Adam, has 100. `dense` knows of no
zeros, `masked` has a mask attached, `sparse` holds the weights that are left alone. Which ones those are was
drawn by chance: to a product's time their number matters.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.bench.calls import dense_step, inference
from lib.kernels.timing import rounds, times_as_fast

COLUMNS = ("network", "task", "examples", "sparsity", "implementation", "ms", "speedup", "speedup_low", "speedup_high")
THREADS = 1  # so that runs on machines with more cores can be compared
NETWORKS = {"actor": (23, 400, 300, 6), "decoder": (29, 750, 750, 6)}  # of BCQ; the decoder alone is BC
SPARSITIES = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99)
TASKS = (("act", 1), ("act", 100), ("train", 100))
BLOCK = 20  # calls a turn: an agent acts again and again, with its weights at hand


def run(device: str) -> list[dict]:
    """Return one row a network, task, sparsity and implementation; speed-ups are over `dense` of the same turns,
    with quartiles (`times_as_fast`).
    """
    rows = []
    for network, sizes in NETWORKS.items():
        for sparsity in SPARSITIES:
            torch.manual_seed(0)
            models = rivals(sizes, sparsity, device)
            for task, examples in TASKS:
                x = torch.randn(examples, sizes[0], device=device)
                y = torch.randn(examples, sizes[-1], device=device)
                calls = {
                    name: inference(model, x) if task == "act" else dense_step(copy.deepcopy(model), x, y, F.mse_loss)
                    for name, model in models.items()
                }
                times = rounds(calls, 2.0, block=BLOCK)
                key = (network, task, examples, sparsity)
                for name, own in times.items():
                    found = (*key, name, median(own), *times_as_fast(times["dense"], own))
                    rows.append(dict(zip(COLUMNS, found, strict=True)))
    return rows


def rivals(sizes: Sequence[int], sparsity: float, device: str) -> dict[str, nn.Module]:
    """Return the same pruned network three times; in `dense` removed weights are numbers like any others."""
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    masked = nn.Sequential(*layers[:-1]).to(device)
    pruners.attach(masked, pruners.unstructured(pruners.random(masked, 0), sparsity))
    dense = copy.deepcopy(masked)
    pruners.detach(dense)
    return {"dense": dense, "masked": masked, "sparse": pruners.sparse(masked)}
