"""Measures on untrained networks: which layers a rule leaves alone or keeps, and what a permutation changes."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import torch
from pandas.core.groupby import SeriesGroupBy
from torch import nn

from lib.errors import BadInput
from lib.evaluation.cells import Values, cells
from lib.models import resnet
from lib.pruners.layers import layer_rule
from lib.pruners.permutation import greedy, permute

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet20": resnet.resnet20,
    "resnet34": resnet.resnet34,
    "resnet50": resnet.resnet50,
}


def left_dense(network: str, bits: int = 16) -> float:
    """How many layers of a network the 2:4 workflow's rule leaves dense (paper 2, sections 4.2 and 5.1)."""
    return float(sum(not rule.pruned for rule in layer_rule(_built(network), bits)))


def changed_by_permutation(network: str, side: int = 32) -> float:
    """The largest change of an output when channels are permuted for 2:4, as a share of the largest output.

    In float64, on images of noise, with random weights and batch norms in which no two channels are alike (paper 2,
    section 4.1).

    Raises:
        BadInput: no channel of the network could be permuted, so nothing was tried.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = _built(network).double().eval()
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.dim() == 1:  # biases and batch norms: weights, running means and variances
                torch.nn.init.uniform_(tensor, 0.5, 1.5)
        images = torch.randn(4, 3, side, side, dtype=torch.float64)
    permuted, report = permute(model, images, search=greedy)
    if not report.permuted.any():
        raise BadInput(f"no channel of {network} can be permuted")
    with torch.no_grad():
        before, after = model(images), permuted.eval()(images)
    return float((before - after).abs().max() / before.abs().max())


def lead_of_last(runs: pd.DataFrame, pruner: str, sparsity: float) -> Values:
    """How much more of a network's last layer is kept than of its fullest other (paper 1, figure 3), in points.

    Args:
        runs: columns data, env, pruner, sparsity, seed, network, layer (from 1), kept (percent).

    Returns:
        {"data/env/network": {seed: points}}.
    """
    kept = _kept(runs[runs.sparsity == sparsity], pruner)
    return cells(kept.agg(lambda layers: layers.iloc[-1] - layers.iloc[:-1].max()))


def spread(runs: pd.DataFrame, pruner: str, sparsity: float) -> Values:
    """How much more a network's fullest layer keeps than its emptiest, in points; arguments as in `lead_of_last`."""
    kept = _kept(runs[runs.sparsity == sparsity], pruner)
    return cells(kept.max() - kept.min())


def last_kept_more(runs: pd.DataFrame, pruner: str, against: str, sparsity: float) -> Values:
    """How much more of each network's last layer one pruner keeps than another, as `lead_of_last`; {} without both."""
    one, other = (_kept(runs[runs.sparsity == sparsity], name).last() for name in (pruner, against))
    return cells((one - other).dropna())


def same_pattern(runs: pd.DataFrame, pruner: str, against: str, sparsity: float) -> Values:
    """How alike two pruners order a network's layers by what they keep of them, as `lead_of_last`; {} without both.

    Spearman's rank correlation, from -1 (the other way round) to 1 (the same order).
    """
    where = ["data", "env", "network", "seed"]
    chosen = runs[(runs.sparsity == sparsity) & runs.pruner.isin([pruner, against])]
    kept = chosen.pivot(index=[*where, "layer"], columns="pruner", values="kept").dropna()
    if not {pruner, against} <= set(kept):
        return {}
    return cells(kept.groupby(level=where).apply(lambda one: one[pruner].corr(one[against], method="spearman")))


def _kept(runs: pd.DataFrame, pruner: str) -> SeriesGroupBy:
    """What a pruner keeps of the layers, in their order: a group a network and seed."""
    return runs[runs.pruner == pruner].sort_values("layer").groupby(["data", "env", "network", "seed"]).kept


def _built(network: str) -> nn.Module:
    if network not in NETWORKS:
        raise BadInput(f"network {network!r}: known are {', '.join(NETWORKS)}")
    return NETWORKS[network]()
