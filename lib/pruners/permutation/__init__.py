"""Permute channels before pruning, so that 2:4 keeps more (paper 2, section 4.1, figure 6).

order = anneal(weight)                                      # one matrix: an order of its columns
permuted, report = permute(model, inputs)                   # a whole network, which computes the same function
"""

from lib.pruners.permutation.both_sides import anneal_both, kept_both_ways
from lib.pruners.permutation.network import permute
from lib.pruners.permutation.search import COOLING, HOT, anneal, bound, efficacy, greedy, kept_magnitude

__all__ = [
    "COOLING",
    "HOT",
    "anneal",
    "anneal_both",
    "bound",
    "efficacy",
    "greedy",
    "kept_both_ways",
    "kept_magnitude",
    "permute",
]
