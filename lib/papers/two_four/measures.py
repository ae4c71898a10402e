"""Measure paper 2: from a sweep's rows, a benchmark's or a definition to the numbers that its claims name.

A cell of `lib.bench.two_four_gemm` is "device/type m x n x k"; its number is a median of many timings. Of several ways
to the same product the fastest counts; products that failed do not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd
import torch
from scipy import integrate, stats
from torch import nn

from lib.base import BadInput
from lib.companion import pairs
from lib.companion.cells import Values, by_cell
from lib.kernels import storage
from lib.kernels.two_four import SPARSE_CORES
from lib.models import resnet
from lib.pruners import two_four
from lib.pruners.layers import layer_rule
from lib.pruners.permutation import greedy, permute

INDEX = ["data", "network", "seed"]  # what the variants of a run share
NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "resnet20": resnet.resnet20,
    "resnet34": resnet.resnet34,
    "resnet50": resnet.resnet50,
}


def difference(
    runs: pd.DataFrame,
    variant: str,
    against: str,
    column: str = "accuracy",
    only: Mapping[str, object] | None = None,
) -> Values:
    """Subtract another variant's last value from a variant's, seed by seed: {"data/network": {seed: points}}.

    Args:
        column: what is compared, such as accuracy (percent).
        only: {column: value} of the rows that count, such as {"table": 3}; None: all rows.

    Raises:
        BadInput: a variant or a column that the runs do not have.
    """
    runs = pairs.chosen(runs, only or {})
    if runs.empty:
        return {}
    pairs.refuse_absent(runs, "variant", variant, against)
    both = pairs.paired(runs, INDEX, {"variant": variant}, {"variant": against}, column)
    return by_cell(both.one - both.other)


def accuracy(runs: pd.DataFrame, variant: str, network: str) -> Values:
    """Read how accurate a variant of a network is in the end, percent: {"data/network": {seed: percent}}.

    Raises:
        BadInput: a variant that the runs of the network do not have.
    """
    mine = pairs.chosen(runs, {"network": network})
    if mine.empty:
        return {}
    pairs.refuse_absent(mine, "variant", variant)
    return by_cell(pairs.last(mine[mine.variant == variant], INDEX).set_index(INDEX).accuracy)


def in_deviations(runs: pd.DataFrame, variant: str, against: str) -> Values:
    """Divide `difference` by the standard deviation of the other variant's last values over its seeds.

    The paper calls differences small when they are "within bounds of run-to-run variation" (paper 2, section 5.1).
    A network whose rival has fewer than two seeds, or the same value in all of them, is left out. The deviation is
    taken as known; of three seeds it is itself uncertain, and the interval covers less than it says: of a difference
    of exactly two deviations, which is allowed, three or five seeds say in 9 to 14 % of cases that it is larger.

    Raises:
        BadInput: a variant that the runs do not have.
    """
    rivals = pairs.last(runs[runs.variant == against], INDEX).groupby(INDEX[:2]).accuracy.std()
    spread = {"/".join(cell): size for cell, size in rivals.items() if size > 0}
    found = difference(runs, variant, against)
    return {
        cell: {seed: points / spread[cell] for seed, points in of.items()}
        for cell, of in found.items()
        if cell in spread
    }


LAWS = {"normal": stats.halfnorm, "exponential": stats.expon, "uniform": stats.uniform}  # of sizes |w|


def most_by_order(law: str) -> float:
    """Bound what an order of columns can add to what 2:4 keeps of a large matrix with independent entries, in percent.

    Let u be the share of entries that are smaller than a given one. 2:4 keeps the entry if at most one of its three
    neighbours is larger, with probability u^3 + 3 u^2 (1 - u); no order keeps more than the larger half of each row,
    u > 1/2. With Q(u), the size of that entry, the bound is the integral of Q over u > 1/2 divided by that of Q times
    the probability (paper 2, figure 6; derived here).

    Args:
        law: normal, exponential or uniform, of the sizes |w|.

    Raises:
        BadInput: another law.
    """
    if law not in LAWS:
        raise BadInput(f"law {law!r}: known are {', '.join(LAWS)}")
    size = LAWS[law].ppf
    half, _ = integrate.quad(size, 0.5, 1)
    kept, _ = integrate.quad(lambda u: size(u) * (u**3 + 3 * u**2 * (1 - u)), 0, 1)
    return 100 * (half / kept - 1)


def saved(form: str, value_bits: int, rows: int = 1024, columns: int = 1024) -> float:
    """Compute how much smaller a half-empty matrix is in a format than dense, in percent (paper 2, section 3.1)."""
    nonzeros = rows * columns // 2
    dense = storage.bits("dense", rows, columns, nonzeros, value_bits)
    return 100 * (1 - storage.bits(form, rows, columns, nonzeros, value_bits) / dense)


def overhead(form: str, value_bits: int, rows: int = 1024, columns: int = 1024) -> float:
    """Compare the metadata of a half-empty matrix relative to its stored values, in percent (paper 2, section 3.1).

    The row pointers of CSR, one for a row of hundreds of values, are left out, as the paper leaves them out.
    """
    nonzeros = rows * columns // 2
    pointers = storage.metadata_bits(form, rows, columns, 0) if form == "csr" else 0
    metadata = storage.metadata_bits(form, rows, columns, nonzeros) - pointers
    return 100 * metadata / storage.value_bits_stored(form, rows, columns, nonzeros, value_bits)


def left_dense(network: str, bits: int = 16) -> float:
    """Count how many layers of a network the 2:4 workflow's rule leaves dense (paper 2, sections 4.2 and 5.1)."""
    return float(sum(not rule.pruned for rule in layer_rule(_built(network), bits)))


def parameters_left(network: str) -> float:
    """Compute the share of all parameters that 2:4 leaves where the workflow's rule prunes, in percent (section 1)."""
    model = _built(network)
    gone = sum(mask.numel() - int(mask.sum()) for mask in two_four(model).values())
    total = sum(parameter.numel() for parameter in model.parameters())
    return 100 * (1 - gone / total)


def changed_by_permutation(network: str, side: int = 32) -> float:
    """Find the largest change of an output when channels are permuted for 2:4, as a share of the largest output.

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


def speedup(
    products: pd.DataFrame,
    dtype: str,
    device: str,
    pattern: str = "2:4",
    sparsity: float = 0.5,
    min_n: int = 1,
    min_k: int = 1,
) -> dict[str, float]:
    """Measure how many times as fast as the dense rival a sparse product is (paper 2, figure 3), product by product.

    Args:
        device: "cuda": on sparse tensor cores; "cpu": on processors.
        min_n, min_k: the smallest number of activations, and length of the sums, that counts.

    Raises:
        BadInput: an unknown kind of device.
    """
    found = _fastest(products, dtype, device, pattern, sparsity)
    large = found[(found.n >= min_n) & (found.k >= min_k)]
    return {f"{row.device}/{dtype} {row.m} x {row.n} x {row.k}": row.speedup for row in large.itertuples()}


def nearer_to_two(products: pd.DataFrame, dtype: str, device: str, m: int, n: int) -> dict[str, float]:
    """Measure how much nearer to 2 the speed-up of the 2:4 product with the largest k is than that with the smallest.

    Of products m x n x k with these m and n; above 0 means that larger ones gain more. Paper 2, figure 3, prints n
    alone, 10K; ours have 10,240 both.
    """
    found = _fastest(products, dtype, device, "2:4", 0.5)
    series = found[(found.m == m) & (found.n == n)].sort_values("k")
    return {
        f"{name}/{dtype} {m} x {n}": abs(2 - rows.speedup.iloc[0]) - abs(2 - rows.speedup.iloc[-1])
        for name, rows in series.groupby("device")
        if len(rows) > 1
    }


def _built(network: str) -> nn.Module:
    if network not in NETWORKS:
        raise BadInput(f"network {network!r}: known are {', '.join(NETWORKS)}")
    return NETWORKS[network]()


def _fastest(products: pd.DataFrame, dtype: str, device: str, pattern: str, sparsity: float) -> pd.DataFrame:
    """The fastest row of each product of a type, pattern and kind of device."""
    if device not in ("cpu", "cuda"):
        raise BadInput(f"device {device!r}: known are cpu, cuda")
    on_cores = products.backend.str.split().str[0].isin(list(SPARSE_CORES))
    kind = (products["dtype"] == dtype) & (products.pattern == pattern) & (products.sparsity == sparsity)
    found = products[kind & (on_cores if device == "cuda" else ~on_cores)].dropna(subset="speedup")
    return found.loc[found.groupby(["device", "m", "n", "k"]).speedup.idxmax()]


def more_bits(runs: pd.DataFrame, variant: str, against: str) -> Values:
    """Measure by how many percent a language model needs more bits a character than another, seed by seed.

    Args:
        runs: of `two_four_language`; phase 1 counts.

    Raises:
        BadInput: the runs have no such variant.
    """
    pairs.refuse_absent(runs, "variant", variant, against)
    both = pairs.paired(runs[runs.phase == 1], INDEX, {"variant": variant}, {"variant": against}, "bits")
    return by_cell(100 * (both.one / both.other - 1))


def points(runs: pd.DataFrame, variant: str, against: str, labels: str | None = None) -> Values:
    """Compare two variants of phase 2: accuracy minus that of `against`, mean over draws of labels, seed by seed.

    Args:
        runs: of `two_four_language`.
        labels: "fewest" or "all"; None: each number of labels is a cell of its own, "data/network/100 labels".
    """
    return _by_amount(runs, variant, against, "accuracy", "labels", labels, "draw")


def precision(
    runs: pd.DataFrame, variant: str, against: str, canvases: str | None = None, column: str = "precision"
) -> Values:
    """Compare two variants of phase 2 of detection: average precision minus that of `against`, seed by seed.

    Args:
        runs: of `two_four_detection` or `two_four_masks`.
        canvases: "fewest" or "all"; None: each number of canvases is a cell of its own.
        column: precision (of boxes) or mask_precision.
    """
    return _by_amount(runs, variant, against, column, "canvases", canvases)


def _by_amount(
    runs: pd.DataFrame, variant: str, against: str, column: str, amount: str, which: str | None, *averaged: str
) -> Values:
    """Subtract what `against` reaches at the end of phase 2, for the fewest or all examples or each number of them."""
    if which not in (None, "fewest", "all"):
        raise BadInput(f"{amount}={which!r}: known are fewest, all, or none for each number of {amount}")
    second = runs[runs.phase == 2]
    pairs.refuse_absent(second, "variant", variant, against)
    index = ["data", "network", amount, "seed"]
    both = pairs.paired(second, [*index, *averaged], {"variant": variant}, {"variant": against}, column)
    found = (both.one - both.other).groupby(index).mean().reset_index(name="points")
    if which is None:  # sorted as numbers, then named: as texts 1000 would stand before 300
        return {f"{cell} {amount}": of for cell, of in by_cell(found.set_index(index).points).items()}
    chosen = found.groupby(["data", "network"])[amount].transform("min" if which == "fewest" else "max")
    return by_cell(found[found[amount] == chosen].set_index(["data", "network", "seed"]).points)


def fewer_labels(runs: pd.DataFrame, variant: str, against: str) -> Values:
    """Subtract `points` with all labels from those with the fewest: below 0 where few labels cost the variant more."""
    return _fewest_less_all(points, runs, variant, against)


def fewer_canvases(runs: pd.DataFrame, variant: str, against: str) -> Values:
    """Subtract `precision` with all canvases from that with the fewest: below 0 where few cost the variant more."""
    return _fewest_less_all(precision, runs, variant, against)


def _fewest_less_all(compare: Callable[..., Values], runs: pd.DataFrame, variant: str, against: str) -> Values:
    """What a comparison says of the fewest examples, less what it says of all."""
    few, everything = (compare(runs, variant, against, which) for which in ("fewest", "all"))
    shared = {cell: sorted(few[cell].keys() & of.keys()) for cell, of in everything.items() if cell in few}
    return {cell: {seed: few[cell][seed] - everything[cell][seed] for seed in seeds} for cell, seeds in shared.items()}


def farther(runs: pd.DataFrame, variant: str, against: str) -> Values:
    """Measure by how many percent a generator's images are farther from real ones than another's, seed by seed.

    The distance is the mean over seeds of noise of the Fréchet distance after the last epoch.

    Args:
        runs: of `two_four_gan`.

    Raises:
        BadInput: the runs have no such variant.
    """
    pairs.refuse_absent(runs, "variant", variant, against)
    both = pairs.paired(runs, [*INDEX, "noise"], {"variant": variant}, {"variant": against}, "frechet")
    means = both.groupby(INDEX).mean()
    return by_cell(100 * (means.one / means.other - 1))


def one_shot(runs: pd.DataFrame, one: pairs.Kind, other: pairs.Kind, column: str = "bits") -> Values:
    """Subtract one way to prune in one shot from another, seed by seed.

    Args:
        runs: of `two_four_one_shot`.
        one, other: {column: value} that name them, such as {"method": "wanda", "pattern": "2:4", "order": "permuted"}.
        column: what is compared: bits (below 0: the first loses less) or accuracy (percent).
    """
    both = pairs.paired(runs, INDEX, one, other, column)
    return by_cell(both.one - both.other)


def int8_after(runs: pd.DataFrame, method: str, pattern: str, order: str = "as trained") -> Values:
    """Subtract the accuracy before INT8 from that after it, of networks pruned in one shot, seed by seed."""
    found = pairs.chosen(runs, {"method": method, "pattern": pattern, "order": order}).set_index(INDEX)
    return by_cell(found.int8_accuracy - found.accuracy)


def different_masks(runs: pd.DataFrame) -> Values:
    """Count the different sets of masks that repeated pruning gave, the most of all ways; 1: always the same."""
    return by_cell(runs.groupby(INDEX).masks.max())


def settling(runs: pd.DataFrame, variant: str) -> Values:
    """Divide the share of the masks' entries that flipped a step in the last epoch by that of the first, by seed.

    Raises:
        BadInput: the runs have no such variant, or one whose mask stands still in its first epoch.
        WentWrong: the last share of a run is NaN.
    """
    pairs.refuse_absent(runs, "variant", variant)
    mine = runs[runs.variant == variant].sort_values("epoch").set_index(INDEX).flips
    pairs.refuse_wrong(mine)
    epochs = mine.groupby(level=INDEX)
    if (epochs.first() == 0).any():
        raise BadInput(f"a mask of {variant} flips nothing in its first epoch: there is nothing to divide by")
    return by_cell(epochs.last() / epochs.first())


def mean_flips(runs: pd.DataFrame, variant: str, against: str) -> Values:
    """Compare how often masks change: flips a step, in percent and over all epochs, minus those of `against`.

    Raises:
        BadInput: the runs have no such variant.
    """
    pairs.refuse_absent(runs, "variant", variant, against)
    one, other = (pairs.mean(runs[runs.variant == name], INDEX, "flips") for name in (variant, against))
    return by_cell((one - other).dropna())
