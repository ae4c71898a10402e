"""Pruning as a score x a pattern x a schedule.

    scores = pruners.magnitude(model)                        # what matters
    masks = pruners.unstructured(scores, sparsity=0.95)      # what may go
    pruners.attach(model, masks)                             # stays zero through any optimizer
    small = pruners.sparse(model)                            # holds and multiplies only what is left

Any score goes with any pattern, and a schedule says when and how much.
"""

from lib.pruners.layers import LayerRule, Prunable, Scores, eligible, layer_rule, prunable
from lib.pruners.masks import attach, attached, detach, empty_layers, report, sparsity, sparsity_per_run
from lib.pruners.patterns import n_of_m, two_four, unstructured
from lib.pruners.schedules import Gradual, Once, RewardAware
from lib.pruners.scores import grasp, magnitude, random, snip
from lib.pruners.sparse import sparse

__all__ = [
    "Gradual",
    "LayerRule",
    "Once",
    "Prunable",
    "RewardAware",
    "Scores",
    "attach",
    "attached",
    "detach",
    "eligible",
    "empty_layers",
    "grasp",
    "layer_rule",
    "magnitude",
    "n_of_m",
    "prunable",
    "random",
    "report",
    "snip",
    "sparse",
    "sparsity",
    "sparsity_per_run",
    "two_four",
    "unstructured",
]
