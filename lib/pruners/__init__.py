"""Prune by a score x a pattern x a schedule.

    scores = pruners.magnitude(model)                        # what matters
    masks = pruners.unstructured(scores, sparsity=0.95)      # what may go
    pruners.attach(model, masks)                             # stays zero through any optimizer
    small = pruners.sparse(model)                            # holds and multiplies only what is left; `dense` undoes it
    print(pruners.verify(model))                             # what holds now, layer by layer
    pruners.save(model, path); pruners.load(path, fresh)     # weights and masks, as safetensors

Any score goes with any pattern, and a schedule says when and how much; all three meet in one loop:

    pruner = pruners.Pruner(score=pruners.snip, pattern=pruners.unstructured, schedule=pruners.Once(0.95))
    pruner.step(model, step, loss=loss, reward=reward)       # asks the schedule; scores; masks within today's; attaches

More lies in modules of their own: `lib.pruners.calibration` (INT8), `lib.pruners.export` (ONNX), `lib.pruners.gates`
(networks that shrink and grow), `lib.pruners.groups` (block-circulant weights), `lib.pruners.permutation` (the order of
channels) and `lib.pruners.sizes` (bytes and products).
"""

from lib.pruners import kinds
from lib.pruners.counted import empty_layers, report, sparsity, sparsity_per_run
from lib.pruners.gradients import Slower
from lib.pruners.layers import LayerRule, LeftOut, Partial, Scores, coverage, eligible, layer_rule, prunable, refused
from lib.pruners.masks import Emptied, attach, attached, detach
from lib.pruners.one_shot import SparseGPT, Wanda, one_shot, wanda
from lib.pruners.patterns import n_of_m, two_four, unstructured
from lib.pruners.pruner import Holder, Pruner
from lib.pruners.registry import PATTERNS, SCHEDULES, SCORES, find, register
from lib.pruners.saved import load, save
from lib.pruners.schedules import Gradual, Iterative, Once, RewardAware, Schedule
from lib.pruners.scores import grasp, magnitude, random, shuffled, snip, snip_shuffled
from lib.pruners.sparse import dense, sparse
from lib.pruners.straight_through import DECAY, flip_rate, learn, settle
from lib.pruners.transposable import eligible_both_ways, transposable
from lib.pruners.verified import verify
from lib.pruners.weights import Prunable

__all__ = [
    "DECAY",
    "PATTERNS",
    "SCHEDULES",
    "SCORES",
    "Emptied",
    "Gradual",
    "Holder",
    "Iterative",
    "LayerRule",
    "LeftOut",
    "Once",
    "Partial",
    "Prunable",
    "Pruner",
    "RewardAware",
    "Schedule",
    "Scores",
    "Slower",
    "SparseGPT",
    "Wanda",
    "attach",
    "attached",
    "coverage",
    "dense",
    "detach",
    "eligible",
    "eligible_both_ways",
    "empty_layers",
    "find",
    "flip_rate",
    "grasp",
    "kinds",
    "layer_rule",
    "learn",
    "load",
    "magnitude",
    "n_of_m",
    "one_shot",
    "prunable",
    "random",
    "refused",
    "register",
    "report",
    "save",
    "settle",
    "shuffled",
    "snip",
    "snip_shuffled",
    "sparse",
    "sparsity",
    "sparsity_per_run",
    "transposable",
    "two_four",
    "unstructured",
    "verify",
    "wanda",
]
