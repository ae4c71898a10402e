"""Measure paper 1: from a sweep's rows, files or a benchmark to the numbers that its claims name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import stats

from lib.base import BadInput
from lib.companion.cells import Values, by_cell
from lib.companion.pairs import Kind, chosen, last, paired, refuse_wrong
from lib.companion.statistics import Interval, by_holm, ratio_of_means
from lib.papers.offline_rl.file_sizes import bcq_networks, megabytes
from lib.papers.offline_rl.layer_measures import (  # noqa: F401 (claims look all measures of a paper up here)
    INDEX,
    emptiest_kept_more,
    flow,
    last_kept_more,
    lead_of_last,
    same_pattern,
    spread,
)

KEYS = ["data", "env", "algorithm", "pruner", "sparsity", "batches", "seed"]  # what tells runs apart
DRAWS = 10_000  # of an interval's samples


def interquartile_mean(scores: Mapping[str, Sequence[float]], confidence: float = 0.95) -> Interval:
    """Compute the mean of the middle half of all scores, with a stratified bootstrap interval (Agarwal et al. 2021).

    The lowest and the highest quarter (rounded down) are left out, so that one failed run does not decide. Each draw
    takes from every task as many of its own runs as it has, with replacement. Simulated with normal scores of three
    tasks, an interval called 95 % covers 75, 85, 90 and 94 % with 2, 3, 5 and 10 runs on each.

    Args:
        scores: of each task, one a run; normalised, or tasks could not be put together.

    Raises:
        BadInput: no finite numbers, one a run, of each task; a confidence outside (0, 1).
    """
    if not 0 < confidence < 1:
        raise BadInput(f"confidence={confidence} must lie between 0 and 1")
    samples = [np.asarray(values, dtype=float) for values in scores.values()]
    if not samples or any(sample.ndim != 1 or len(sample) == 0 for sample in samples):
        raise BadInput("an interquartile mean needs a list of scores for each task, one a run")
    if not all(np.isfinite(sample).all() for sample in samples):
        raise BadInput("an interquartile mean needs finite scores")
    draw = np.random.default_rng(0)
    again = np.concatenate([sample[draw.integers(len(sample), size=(DRAWS, len(sample)))] for sample in samples], 1)
    tail = 50 * (1 - confidence)
    low, high = np.percentile(stats.trim_mean(again, 0.25, axis=1), [tail, 100 - tail])
    value = stats.trim_mean(np.concatenate(samples), 0.25)
    return Interval(float(value), float(low), float(high), min(len(sample) for sample in samples))


def ends(runs: pd.DataFrame) -> pd.DataFrame:
    """Select the last evaluation of each run, whatever columns tell the runs of its sweep apart."""
    return last(runs, [name for name in (*KEYS, "variant", "rounds", "scaled") if name in runs]).reset_index(drop=True)


def kept_return(
    runs: pd.DataFrame,
    algorithm: str,
    pruner: str,
    sparsity: float,
    envs: Sequence[str] | None = None,
    quality: str = "expert",
    scaled: bool | None = None,
    learned: float | None = None,
    variant: str = "normalised",
) -> dict[str, Interval]:
    """Divide the mean of pruned agents' last returns by that of the dense ones of the same seeds: {"data/env": ratio}.

    The paper plots means over seeds (section 4), so these are compared; a mean of each seed's own ratio would follow
    the one seed whose dense agent fell. The interval is that of `ratio_of_means`.

    Args:
        runs: one row an evaluation, columns KEYS, step, return, normalised_return.
        envs: the environments that count; None: all.
        quality: of the policy behind the data, as in "recorded-expert".
        scaled: whether observations are, where runs differ in that (`offline_rl_scaling`).
        learned: environments count where the dense agents earn at least so many normalised points on average.
        variant: which reading of the paper the runs follow; "normalised" is our default, see `BCSettings.normalise`.

    Raises:
        BadInput: dense agents that earn nothing on average, of whose return no share can be kept.
    """
    runs = _of(runs, envs, quality, scaled=scaled, variant=variant)
    pairs = _with_dense(runs, algorithm, pruner, sparsity, learned)
    return {where: ratio_of_means(both.one, both.other) for where, both in pairs.items()}


def difference(
    runs: pd.DataFrame,
    algorithm: str,
    pruner: str,
    sparsity: float,
    against: str | None = None,
    envs: Sequence[str] | None = None,
    quality: str = "expert",
    scaled: bool | None = None,
    variant: str = "normalised",
) -> Values:
    """Subtract another's last normalised return from a pruned agent's of the same seed: {"data/env": {seed: points}}.

    Args:
        against: the other's pruner, at the same sparsity; None: the dense agent.
        envs, quality, scaled, variant: as in `kept_return`.
    """
    pruned = _kind(algorithm, pruner, sparsity)
    other = _kind(algorithm) if against is None else pruned | {"pruner": against}
    runs = _of(runs, envs, quality, scaled=scaled, variant=variant)
    both = paired(runs, INDEX, pruned, other, "normalised_return")
    return by_cell(both.one - both.other)


def gain_by_batches(
    runs: pd.DataFrame,
    algorithm: str,
    pruner: str,
    sparsity: float,
    batches: int,
    quality: str = "expert",
    variant: str = "normalised",
) -> Values:
    """Measure what a score of several batches gains over one of a single batch, as `difference`."""
    runs = _of(runs, quality=quality, variant=variant)
    return _gain(runs, _kind(algorithm, pruner, sparsity), "batches", batches, 1)


def gain_by_variant(
    runs: pd.DataFrame, algorithm: str, pruner: str, sparsity: float, variant: str, against: str = "normalised"
) -> Values:
    """Measure what runs of one variant earn more than those of another, in normalised points of the same seed.

    Args:
        variant, against: such as "float32" and "normalised", which computes products in bfloat16.
    """
    return _gain(_of(runs), _kind(algorithm, pruner, sparsity), "variant", variant, against)


def gain_by_rounds(
    runs: pd.DataFrame, algorithm: str, pruner: str, sparsity: float, rounds: int, variant: str = "normalised"
) -> Values:
    """Measure what pruning in several rounds gains over a single one (`offline_rl_rounds`), as `difference`."""
    return _gain(_of(runs, variant=variant), _kind(algorithm, pruner, sparsity), "rounds", rounds, 1)


def gain_by_scaling(runs: pd.DataFrame, algorithm: str, pruner: str, sparsity: float) -> Values:
    """Measure what scaled observations gain over observations as they are (`offline_rl_scaling`), as `difference`."""
    return _gain(_of(runs), _kind(algorithm, pruner, sparsity), "scaled", True, False)


def late_gain(
    runs: pd.DataFrame,
    algorithm: str,
    share: float = 0.2,
    variant: str = "normalised",
    quality: str = "expert",
) -> dict[str, Interval]:
    """Measure by how many percent the dense agents' mean return rises in the last share of their steps: {"data/env":
    percent}, with the interval of `ratio_of_means`.

    An agent that still rises shows how fast it learns, not what it has learned. Agents count that were evaluated where
    the last share begins; where they earned nothing there on average, there is no percentage.

    Raises:
        WentWrong: a return is NaN.
    """
    dense = chosen(_of(runs, quality=quality, variant=variant), _kind(algorithm))
    steps = dense.groupby(INDEX).step.transform("max")
    refuse_wrong(dense.set_index([*INDEX, "step"])["return"])
    begin = dense[(dense.step - (1 - share) * steps).abs() < 0.5].set_index(INDEX)["return"]
    both = pd.concat({"begin": begin, "end": dense[dense.step == steps].set_index(INDEX)["return"]}, axis=1)
    return {
        "/".join(where): ratio_of_means(one.end, one.begin).through(lambda ratio: 100 * (ratio - 1))
        for where, one in both.dropna().groupby(level=["data", "env"])
        if one.begin.mean() > 0
    }


def share_kept(
    runs: pd.DataFrame,
    algorithms: Sequence[str],
    pruners: Sequence[str],
    sparsity: float,
    at_least: float,
    learned: float | None = None,
) -> dict[str, Interval]:
    """Compute the share of all experiments in which pruned agents keep so much of their return on average.

    An experiment is an algorithm with a pruner on an environment; it keeps its return where the mean of its pruned
    agents is at least so much of that of the dense ones (`kept_return`, which says what `learned` is). The interval is
    of how many true means lie above that bound: from as many as Student's t shows to keep their return to all but those
    that it shows to lose it, where the tests of one side share a risk of 2.5 % by Holm's rule. That holds, too, where
    experiments share their dense agents. A single seed shows neither.

    Returns:
        {"data/n experiments": share}.
    """
    runs = _of(runs, variant="normalised")
    kinds = [_with_dense(runs, algorithm, pruner, sparsity, learned) for algorithm in algorithms for pruner in pruners]
    by_data: dict[str, list[np.ndarray]] = {}
    for where, both in [pair for found in kinds for pair in found.items()]:
        by_data.setdefault(where.split("/")[0], []).append((both.one - at_least * both.other).to_numpy())
    return {f"{data}/{len(each)} experiments": _share_above(each) for data, each in by_data.items()}


def _share_above(experiments: Sequence[np.ndarray]) -> Interval:
    """Compute the share of experiments whose mean over seeds is 0 or more, see `share_kept`."""
    value = float(np.mean([above.mean() >= 0 for above in experiments]))

    def ends(sure: float = 0.95, seeds: int | None = None) -> tuple[float, float]:
        risk = (1 - sure) / 2
        chances = np.array([_chance(above, seeds) for above in experiments])
        keep, lose = (by_holm(one) <= risk for one in (chances, 1 - chances))
        return float(keep.mean()), float(1 - lose.mean())

    return Interval(value, *ends(), min(map(len, experiments)), at=lambda seeds: ends(seeds=seeds), sure=ends)


def _chance(above: np.ndarray, seeds: int | None = None) -> float:
    """How likely a sample's mean is as high as it is, or were it of so many seeds, if the true one is below 0; 0.5 of a
    single seed, which says neither. Where all seeds agree, 0.0 or 1.0.
    """
    if len(above) == 1:
        return 0.5
    seeds = len(above) if seeds is None else seeds
    error = above.std(ddof=1) / math.sqrt(seeds)
    return float(stats.t.sf(above.mean() / error, seeds - 1)) if error else float(above.mean() < 0)


def unseen(runs: pd.DataFrame, algorithm: str, pruner: str, sparsity: float, scaled: bool) -> Values:
    """Count how many observations a pruned network does not see: {"data/env": {seed: number}}."""
    kind = _kind(algorithm, pruner, sparsity)
    return by_cell(paired(_of(runs, scaled=scaled), INDEX, kind, kind, "unseen").one.astype(float))


def seen_again(runs: pd.DataFrame, algorithm: str, pruner: str, sparsity: float) -> Values:
    """Count how many more observations a pruned network sees where they are scaled: {"data/env": {seed: number}}."""
    return _gain(_of(runs), _kind(algorithm, pruner, sparsity), "scaled", False, True, "unseen")


def worst_gap(form: str, sparsity: float, printed: Mapping[str, float]) -> float:
    """Find the largest relative difference, in percent, between files and the sizes printed for them.

    Args:
        printed: {network: megabytes}.
    """
    return max(100 * abs(megabytes(network, form, sparsity) / size - 1) for network, size in printed.items())


def times_smaller(form: str, sparsity: float) -> float:
    """Compute how many times smaller than their dense files the pruned networks are, all of BCQ's together."""
    sizes = [(megabytes(name, "dense"), megabytes(name, form, sparsity)) for name in bcq_networks()]
    return sum(dense for dense, _ in sizes) / sum(small for _, small in sizes)


def break_even(form: str) -> float:
    """Find the sparsity in percent at which files of BCQ's networks, all together, are as large as dense ones (figure
    4).

    A file grows by the same bytes for each kept weight, so it is where a line through two sizes crosses the dense one.
    """
    few, many = (1 / times_smaller(form, sparsity) for sparsity in (0.95, 0.5))  # shares of the dense files' size
    return 100 * (0.95 - 0.45 * (1 - few) / (many - few))


def of_agents(agents: pd.DataFrame, task: str, sparsity: float, device: str) -> dict[str, float]:
    """Measure how many times as fast as a dense one a network of the weights that are left is (paper 1, section 6).

    Args:
        agents: rows of `lib.bench.sparse_agents`.
        task: "act" or "train".
        device: "cuda", or "cpu": rows whose device counts cores.

    Returns:
        {"device/network, n at once": times as fast}.

    Raises:
        BadInput: an unknown kind of device or task.
    """
    if device not in ("cpu", "cuda") or task not in ("act", "train"):
        raise BadInput(f"device {device!r}, task {task!r}: known are cpu, cuda and act, train")
    on_cpu = agents.device.str.endswith("cores")
    kind = (agents.implementation == "sparse") & (agents.task == task) & (agents.sparsity == sparsity)
    found = agents[kind & (on_cpu if device == "cpu" else ~on_cpu)]
    found = found.dropna(subset="speedup")  # a product may have failed
    return {f"{row.device}/{row.network}, {row.examples} at once": row.speedup for row in found.itertuples()}


def _with_dense(
    runs: pd.DataFrame, algorithm: str, pruner: str, sparsity: float, learned: float | None
) -> dict[str, pd.DataFrame]:
    """Pair the last returns of pruned agents (one) and of dense ones (other), for each "data/env" whose dense agents
    earn at least so many normalised points on average as `learned` says.

    Raises:
        BadInput: dense agents that earn nothing on average.
    """
    pruned, dense = _kind(algorithm, pruner, sparsity), _kind(algorithm)
    both = paired(runs, INDEX, pruned, dense, "return")
    if learned is not None:
        points = paired(runs, INDEX, dense, dense, "normalised_return").one
        both = both[points.groupby(level=["data", "env"]).transform("mean").reindex(both.index) >= learned]
    found = {"/".join(where): pairs for where, pairs in both.groupby(level=["data", "env"])}
    for where, pairs in found.items():
        if (mean := pairs.other.mean()) <= 0:
            raise BadInput(f"the dense {algorithm} earns {mean:g} on {where}; compare points with `difference`")
    return found


def _gain(
    runs: pd.DataFrame, kind: Kind, column: str, one: object, other: object, what: str = "normalised_return"
) -> Values:
    """What runs of a kind have more with one value of a column than with another, of the same seed."""
    both = paired(runs, INDEX, {**kind, column: one}, {**kind, column: other}, what)
    return by_cell((both.one - both.other).astype(float))


def _kind(algorithm: str, pruner: str = "dense", sparsity: float = 0.0) -> dict:
    """Say what the runs of one kind have in common; they have scores of a single batch."""
    return {"algorithm": algorithm, "pruner": pruner, "sparsity": sparsity, "batches": 1}


def _of(
    runs: pd.DataFrame, envs: Sequence[str] | None = None, quality: str = "expert", **columns: object
) -> pd.DataFrame:
    """Select the runs on data of a quality and, of columns that are not None, those with this value.

    Runs of a sweep without variants (`offline_rl_scaling`) are of none.
    """
    runs = runs[runs.data.str.endswith(f"-{quality}")]
    runs = runs if envs is None else runs[runs.env.isin(envs)]
    wanted = {name: value for name, value in columns.items() if value is not None}
    return chosen(runs, {name: value for name, value in wanted.items() if name != "variant" or name in runs})
