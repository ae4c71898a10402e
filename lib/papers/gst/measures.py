"""Measure paper 5: from a sweep's rows to one number a seed; what definitions say is in `definitions`.

Which runs are meant is said by their columns: chosen = {"method": "gst", "block": [2, 4]}, a value or several a column.
What they are compared with has the same columns but those that `against` names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import pandas as pd

from lib.base import BadInput, refuse_twice
from lib.companion import pairs
from lib.companion.cells import Values, by_seed
from lib.companion.statistics import Interval, ratio_of_means
from lib.papers.gst.definitions import (  # noqa: F401 (claims look all measures of a paper up here)
    changed_by_conversion,
    csr_crossover,
    operations_per_byte,
    packed_gap,
    weight_share,
)
from lib.papers.gst.experiments.compression import ratio
from lib.papers.gst.ways import METHODS, method_of, offline_method_of

KEYS = ["env", "method", "block", "shift", "conversion", "start", "reward", "seed"]  # what a run is
SINGLE = {"block": 1, "shift": 0.0, "conversion": "none"}
DENSE = {"method": "dense", **SINGLE, "start": 0, "reward": "none"}
OFFLINE_KEYS = ["data", "env", "block", "shift", "choice", "kept", "seed"]  # so learns from fixed data
OFFLINE_DENSE = {"block": 1, "shift": 0.0, "choice": "none", "kept": 1.0}
PLACES = ["data", "network", "env", "learner"]  # of classifiers or of players
BEYOND_KEYS = [*PLACES, "method", "block", "shift", "conversion", "prune_every", "seed"]
PLAIN = {"method": "dense", **SINGLE, "prune_every": 0}  # the dense classifier or player
END = 0.2  # share of a training whose evaluations are averaged: a single one is noisy, the best would flatter


def ends(
    runs: pd.DataFrame, steps: int | None = None, part: tuple[float, float] | list[float] = (1 - END, 1.0)
) -> pd.DataFrame:
    """Select one row a run: its last row, the return averaged over the evaluations of the last fifth of its steps.

    Args:
        runs: one row an evaluation, columns KEYS, step, return and others.
        steps: only runs of at least so many; None: all.
        part: of the training, over which returns are averaged.

    Raises:
        WentWrong: a run with an evaluation there that is no number.
    """
    length = runs.groupby(KEYS).step.transform("max")
    within = (runs.step > part[0] * length) & (runs.step <= part[1] * length)
    late = pairs.mean(runs[within], KEYS, "return")
    last = runs[(runs.step == length) & (length >= (steps or 0))]
    last = last[pd.MultiIndex.from_frame(last[KEYS]).isin(late.index)]  # the others have no evaluation in this part
    return last.assign(**{"return": late.loc[pd.MultiIndex.from_frame(last[KEYS])].to_numpy()})


def late_gain(runs: pd.DataFrame, part: float = END, chosen: Mapping[str, object] | None = None) -> dict[str, Interval]:
    """Measure by how many percent the dense agents' mean return rises in the last part of their steps: {env: percent}.

    Evaluations of half that part are averaged, those before its begin and those before its end. An agent that still
    rises shows how fast it learns, not what it has learned; one that earned nothing before does not count.

    Args:
        chosen: which dense agents, such as {"env": "breakout"}; None: those of all environments.
    """
    dense = pairs.chosen(runs, {"method": "dense", **(chosen or {})})
    length = dense.groupby(["env", "seed"]).step.transform("max")

    def before(end: float) -> pd.Series:
        within = (dense.step > (end - part / 2) * length) & (dense.step <= end * length)
        return pairs.mean(dense[within], ["env", "seed"], "return")

    both = pd.concat({"begin": before(1 - part), "end": before(1.0)}, axis=1).dropna()
    return {
        env: ratio_of_means(one.end, one.begin).through(lambda ratio: 100 * (ratio - 1))
        for env, one in both[both.begin > 0].groupby(level="env")
    }


def lead(
    runs: pd.DataFrame,
    chosen: Mapping[str, object],
    against: Mapping[str, object] = DENSE,
    steps: int | None = None,
    part: tuple[float, float] | list[float] = (1 - END, 1.0),
) -> Values:
    """Measure how much more the chosen runs earn than others of the same seed, in percent of the dense return in the
    end.

    Args:
        part: of the training, see `ends`.

    Raises:
        BadInput: a dense agent that earns nothing.
    """
    then, end = ends(runs, steps, part), ends(runs, steps)
    found: Values = {}
    for name, kind in _kinds(end, chosen):
        both = pairs.paired(then, ["seed"], kind, kind | against, "return")
        both = both.join(pairs.paired(end, ["seed"], kind, kind | DENSE, "return").other.rename("dense"), how="inner")
        _refuse_poor(both.dense)
        found |= {name: by_seed(100 * (both.one - both.other) / both.dense)} if len(both) else {}
    return found


def _refuse_poor(returns: pd.Series, who: str = "a dense agent") -> None:
    if (returns <= 0).any():
        raise BadInput(f"{who} earns {returns.min():g}, of which there is no percentage")


def gap_after_shift(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """Measure how much more a run earns than the dense agent after its shift, in percent of the dense return in the
    end: below 0 where there is something to recover from.

    After the shift: the evaluations of the first fifth of the steps that were left. A run without a shift, or without
    an evaluation there, is left out. A row has the return before its step's pruning and the sparsity after it
    (`lib.papers.gst.experiments.online`): a run that shifts on the step of an evaluation was played before the shift
    there.

    Raises:
        BadInput: the dense agent earns nothing, or less: a share of its return says nothing.
    """
    end, found = ends(runs, steps), {}
    for name, kind in _kinds(end, chosen):
        if kind["shift"] >= 1:
            continue
        mine = pairs.chosen(runs, kind)
        length = mine.groupby("seed").step.max()
        begin = mine[mine.sparsity >= kind["shift"]].groupby("seed").step.min()
        gaps = pairs.paired(runs, ["step", "seed"], kind, kind | DENSE, "return").reset_index()
        begun = gaps.seed.map(begin)
        gaps = gaps[gaps.step.between(begun, begun + END * (gaps.seed.map(length) - begun))]
        gap = (gaps.one - gaps.other).groupby(gaps.seed).mean().rename("gap")
        both = pairs.paired(end, ["seed"], kind, kind | DENSE, "return").join(gap, how="inner")
        _refuse_poor(both.other)
        found |= {name: by_seed(100 * both.gap / both.other)} if len(both) else {}
    return found


def recovery(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """Measure how much higher above the dense agent a run is in the end than after its shift (`gap_after_shift`), in
    percent of the dense return in the end.
    """
    after, end = gap_after_shift(runs, chosen, steps), recovered(runs, chosen, steps)
    return {name: {seed: end[name][seed] - gap for seed, gap in gaps.items()} for name, gaps in after.items()}


def recovered(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """Measure `lead` in the end, only for runs and seeds whose shift `gap_after_shift` knows."""
    after, end = gap_after_shift(runs, chosen, steps), lead(runs, chosen, steps=steps)
    return {name: {seed: end[name][seed] for seed in gaps} for name, gaps in after.items()}


def lead_before_release(runs: pd.DataFrame, chosen: Mapping[str, object]) -> Values:
    """Measure how much more a run earns than the dense agent at its last evaluation before its shift, in percent of
    the mean dense return at that step (the mean, because a single dense evaluation is noisy).

    Raises:
        BadInput: dense agents that earn nothing there.
    """
    found = _before_release(runs, chosen)
    if least := [both.usual.min() for both in found.values() if both.usual.min() <= 0]:
        raise BadInput(f"dense agents earn {min(least):g} on average, of which there is no percentage")
    return {name: by_seed(100 * (both.one - both.other) / both.usual) for name, both in found.items()}


def dense_before_release(runs: pd.DataFrame, chosen: Mapping[str, object]) -> Values:
    """Measure what the dense agent earns at the step of `lead_before_release`, in units of the return."""
    return {name: by_seed(both.other) for name, both in _before_release(runs, chosen).items()}


def _before_release(runs: pd.DataFrame, chosen: Mapping[str, object]) -> dict[str, pd.DataFrame]:
    """Returns at each seed's last row that shows less sparsity than its shift: by seed the columns one (chosen), other
    (dense) and usual (the mean over dense agents at that step). A seed without a shift or such a row is left out.
    """
    found = {}
    for name, kind in _kinds(runs, chosen):
        mine = pairs.chosen(runs, kind)
        shifts = mine[mine.sparsity >= kind["shift"]].groupby("seed").step.min()
        before = mine[mine.step < mine.seed.map(shifts)].groupby("seed").step.max()
        both = pairs.paired(runs, ["step", "seed"], kind, kind | DENSE, "return").reset_index()
        both["usual"] = both.groupby("step").other.transform("mean")
        both = both[both.step == both.seed.map(before)].set_index("seed")
        found |= {name: both} if len(both) else {}
    return found


def spared_at_shift(
    runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object], evaluations: int = 3
) -> Values:
    """Measure how much less the chosen runs lose at their shift than others of the same seed at theirs, in percent of
    the dense return in the end.

    What is lost is the mean return of so many evaluations before the shift minus that of as many from it on. A seed
    without a shift, or with fewer evaluations on one side, is left out.

    Raises:
        BadInput: the dense agent earns nothing, or less: a share of its return says nothing.
    """

    def change(kind: Mapping[str, object]) -> pd.Series:
        mine = pairs.chosen(runs, kind).sort_values("step")
        after = _shifted(mine).groupby(mine.seed).cummax()
        last = mine[~after].groupby("seed").tail(evaluations).groupby("seed")["return"]
        first = mine[after].groupby("seed").head(evaluations).groupby("seed")["return"]
        there = last.size().eq(evaluations) & first.size().eq(evaluations)
        return (first.mean() - last.mean())[there].rename("change")

    end, found = ends(runs), {}
    for name, kind in _kinds(end, chosen):
        both = pairs.paired(end, ["seed"], kind, kind | DENSE, "return")
        _refuse_poor(both.other)
        spared = (change(kind) - change(kind | dict(against))).dropna()
        found |= {name: by_seed((100 * spared / both.other).dropna())} if len(spared) else {}
    return found


def _shifted(runs: pd.DataFrame) -> pd.Series:
    """Whether each row, sorted by step, is the first after a shift: what is saved falls there, and rises elsewhere.

    The sparsity does not tell: projection lowers it at once, and a row has what it is after that. Rows have the average
    ratio since the first step, of which six digits are kept.
    """
    return ratio_between_rows(runs).groupby(runs.seed).diff() < -0.01


def ratio_between_rows(runs: pd.DataFrame) -> pd.Series:
    """Compute the ratio averaged since the row before, of one way's rows sorted by step; a seed's first has none."""
    sums = (runs.compression_ratio * runs.step).groupby(runs.seed)
    return sums.diff() / runs.groupby("seed").step.diff()


def pruned(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """Measure the share of coefficients that is removed in the end, in percent."""
    return _percent(runs, chosen, steps, "sparsity")


def past_shift(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """Measure by how many points more is pruned in the end than the S_shift of a release; below 0 there was none."""
    shifts = {name: kind["shift"] for name, kind in _kinds(ends(runs, steps), chosen)}
    found = pruned(runs, chosen, steps)
    return {name: {seed: percent - 100 * shifts[name] for seed, percent in of.items()} for name, of in found.items()}


def average_ratio(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """Measure the compression ratio by equation 3, averaged over training, in percent."""
    return _percent(runs, chosen, steps, "compression_ratio")


def ratio_lead(
    runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object], steps: int | None = None
) -> Values:
    """Measure how much higher that ratio is than that of others of the same seed, in points."""
    end, found = ends(runs, steps), {}
    for name, kind in _kinds(end, chosen):
        both = pairs.paired(end, ["seed"], kind, kind | against, "compression_ratio")
        found |= {name: by_seed(100 * (both.one - both.other))} if len(both) else {}
    return found


def ratio_swing_lead(runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object]) -> Values:
    """Measure by how many points more the ratio of equation 3 changes during a training than in others of the same
    seed: the highest minus the lowest average between two rows. Below 0 it is steadier.
    """

    def swing(kind: Mapping[str, object]) -> pd.Series:
        mine = pairs.chosen(runs, kind).sort_values("step")
        now = ratio_between_rows(mine).fillna(mine.compression_ratio).groupby(mine.seed)  # the first row is its own
        return 100 * (now.max() - now.min())

    found = {name: (swing(kind) - swing(kind | dict(against))).dropna() for name, kind in _kinds(runs, chosen)}
    return {name: by_seed(leads) for name, leads in found.items() if len(leads)}


def ratio_range(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """Measure how far conversions of the block size are apart in that ratio: the highest minus the lowest, in points.

    Args:
        chosen: "conversion" lists those that are compared; a seed that has not been trained by all is left out.

    Raises:
        BadInput: a conversion that is listed twice.
    """
    end, found = ends(runs, steps), {}
    ways = [key for key in KEYS if key not in ("conversion", "seed")]
    for way in pairs.chosen(end, chosen)[ways].drop_duplicates().itertuples(index=False):
        sides = {one: way._asdict() | {"conversion": one} for one in chosen["conversion"]}
        ratios = pairs.side_by_side(end, ["seed"], sides, "compression_ratio")
        name = f"{way.env}, {METHODS[way.method]}, B = {way.block}, then {way.block // 2} (at {way.shift:g})"
        refuse_twice(cells=[*found, name])
        found |= {name: by_seed(100 * (ratios.max(axis=1) - ratios.min(axis=1)))} if len(ratios) else {}
    return found


def offline_lead(
    runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object] = OFFLINE_DENSE
) -> Values:
    """Measure how many normalised points more the chosen runs earn than others of the same seed, at their last
    evaluation.

    Args:
        runs: one row an evaluation, columns OFFLINE_KEYS, step and normalised_return.
    """
    found: Values = {}
    for name, kind in _kinds(runs, chosen, OFFLINE_KEYS):
        both = pairs.paired(runs, ["seed"], kind, kind | against, "normalised_return")
        found |= {name: by_seed(both.one - both.other)} if len(both) else {}
    return found


def accuracy_lead(runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object] = PLAIN) -> Values:
    """Compute by how many points the chosen runs of gst_images end above others of the same seed in test accuracy."""
    return _beyond(runs, chosen, against, lambda both: both.one - both.other, "accuracy")


def accuracy(runs: pd.DataFrame, chosen: Mapping[str, object], epochs: int = 0) -> Values:
    """Compute the test accuracy in percent that classifiers have after a training of at least so many epochs."""
    return _beyond(_long(runs, "epoch", epochs), chosen, {}, lambda both: both.one, "accuracy")


def score_lead(
    runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object] = PLAIN, steps: int = 0
) -> Values:
    """Compute how much more the chosen players earn than others of the same seed, in percent of what these earn.

    Args:
        runs: of gst_games; returns are averaged over the last fifth of a training.
        steps: only runs of at least so many.

    Raises:
        BadInput: others that earn nothing.
    """

    def percent(both: pd.DataFrame) -> pd.Series:
        _refuse_poor(both.other, "a rival")
        return 100 * (both.one - both.other) / both.other

    return _beyond(played(runs, steps), chosen, against, percent, "return")


def score(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int = 0) -> Values:
    """Compute what players earn in the last fifth of a training of at least so many steps, in the game's points."""
    return _beyond(played(runs, steps), chosen, {}, lambda both: both.one, "return")


def played(runs: pd.DataFrame, steps: int = 0) -> pd.DataFrame:
    """Select each player's last row, its return averaged over the last fifth of at least so many steps, as `ends`."""
    keys = [name for name in BEYOND_KEYS if name in runs]
    length = runs.groupby(keys).step.transform("max")
    late = pairs.mean(runs[runs.step > (1 - END) * length], keys, "return")
    last = runs[(runs.step == length) & (length >= steps)]
    return last.assign(**{"return": late.reindex(pd.MultiIndex.from_frame(last[keys])).to_numpy()})


def saved(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int = 0, epochs: int = 0) -> Values:
    """Compute the ratio by equation 3, averaged over training, in percent, of classifiers or of players.

    Args:
        steps, epochs: only runs of at least so many.
    """
    long = _long(runs, "step", steps) if "step" in runs else _long(runs, "epoch", epochs)
    return _beyond(long, chosen, {}, lambda both: 100 * both.one, "compression_ratio")


def saved_by_pruning(runs: pd.DataFrame, chosen: Mapping[str, object]) -> Values:
    """Compute how many points that ratio is above what untouched blocks save by equation 3 in the same network, by the
    share of its weights that is compressed; of runs whose blocks stay to the end.
    """
    beyond = runs.compression_ratio - ratio(0.0, runs.block, runs.share)
    return _beyond(runs.assign(beyond=100 * beyond), chosen, {}, lambda both: both.one, "beyond")


def saved_lead(runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object]) -> Values:
    """Compute how many points higher that ratio is than that of others of the same seed."""
    return _beyond(runs, chosen, against, lambda both: 100 * (both.one - both.other), "compression_ratio")


def _long(runs: pd.DataFrame, clock: str, least: int) -> pd.DataFrame:
    """The rows of trainings that last at least so many of the clock's steps or epochs."""
    keys = [name for name in BEYOND_KEYS if name in runs]
    return runs[runs.groupby(keys)[clock].transform("max") >= least]


def _beyond(
    runs: pd.DataFrame,
    chosen: Mapping[str, object],
    against: Mapping[str, object],
    value: Callable[[pd.DataFrame], pd.Series],
    column: str,
) -> Values:
    """Pair the last rows of the chosen runs with others of the same seed, one cell for each network or game and way.

    Players are told apart by how often they were pruned, too, which classifiers have no column for.
    """
    keys = [name for name in BEYOND_KEYS if name in runs and name != "seed"]
    kinds = pairs.chosen(runs, chosen)[keys].drop_duplicates()
    found: Values = {}
    against = {name: other for name, other in against.items() if name in runs or name != "prune_every"}
    for kind in kinds.to_dict("records"):
        both = pairs.paired(runs, ["seed"], kind, kind | against, column)
        where = " ".join(str(kind[name]) for name in PLACES if name in kind)
        how = method_of(SimpleNamespace(**kind))
        if every := kind.get("prune_every", 0):
            how += f", a chance every {every} updates" if every > 1 else ", a chance every update"
        found |= {f"{where}, {how}": by_seed(value(both))} if len(both) else {}
    return found


def _kinds(runs: pd.DataFrame, chosen: Mapping[str, object], keys: Sequence[str] = KEYS) -> list[tuple[str, dict]]:
    """List the ways of training among the chosen runs: for each its cell's name, and what its runs have in common."""
    rows = pairs.chosen(runs, chosen)[[key for key in keys if key != "seed"]].drop_duplicates()
    name = offline_method_of if "choice" in keys else method_of
    kinds = [(f"{row.env}, {name(row)}", row._asdict()) for row in rows.itertuples(index=False)]
    refuse_twice(cells=[cell for cell, _ in kinds])  # the second would take the first one's place
    return kinds


def _percent(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None, column: str) -> Values:
    end = ends(runs, steps)
    kinds = _kinds(end, chosen)
    return {name: by_seed(100 * pairs.chosen(end, kind).set_index("seed")[column]) for name, kind in kinds}
