"""Compare the returns of paper 5's agents: means over seeds, as the paper plots them, in percent of the dense agents'.

A mean of each seed's own percentage would follow the one seed whose dense agent earned little, so the mean difference
is divided by the mean dense return; the interval is that of `ratio_of_means`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.base import BadInput, refuse_twice
from lib.companion import pairs
from lib.companion.cells import Values, by_seed
from lib.companion.statistics import Interval, ratio_of_means
from lib.papers.gst.ways import method_of, offline_method_of

KEYS = ["env", "method", "block", "shift", "conversion", "start", "reward", "seed"]  # what a run is
SINGLE = {"block": 1, "shift": 0.0, "conversion": "none"}
DENSE = {"method": "dense", **SINGLE, "start": 0, "reward": "none"}
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
    rises shows how fast it learns, not what it has learned. Where they earned nothing before on average there is no
    percentage.

    Args:
        chosen: which dense agents, such as {"env": "breakout"}; None: those of all environments.

    Raises:
        BadInput: dense agents of several learners, of which a mean would mix the returns.
    """
    dense = pairs.chosen(runs, {"method": "dense", **(chosen or {})})
    if "learner" in dense and dense.learner.nunique() > 1:
        raise BadInput(f"dense agents of {', '.join(sorted(dense.learner.unique()))}: choose one learner")
    length = dense.groupby(["env", "seed"]).step.transform("max")

    def before(end: float) -> pd.Series:
        within = (dense.step > (end - part / 2) * length) & (dense.step <= end * length)
        return pairs.mean(dense[within], ["env", "seed"], "return")

    both = pd.concat({"begin": before(1 - part), "end": before(1.0)}, axis=1).dropna()
    return {
        env: ratio_of_means(one.end, one.begin).through(lambda ratio: 100 * (ratio - 1))
        for env, one in both.groupby(level="env")
        if one.begin.mean() > 0
    }


def lead(
    runs: pd.DataFrame,
    chosen: Mapping[str, object],
    against: Mapping[str, object] = DENSE,
    steps: int | None = None,
    part: tuple[float, float] | list[float] = (1 - END, 1.0),
) -> dict[str, Interval]:
    """Measure how much more the chosen runs earn than others of the same seeds, in percent of the mean dense
    return in the end.

    Args:
        part: of the training, see `ends`.

    Raises:
        BadInput: a dense agent that earns nothing.
    """
    return {
        name: percent_of_mean(both.part, both.dense)
        for name, both in _leads(runs, chosen, against, steps, part).items()
    }


def lead_by_seed(runs: pd.DataFrame, chosen: Mapping[str, object]) -> Values:
    """Split `lead` over dense agents into what each seed adds to it: in percent of the mean dense return, too, so that
    their mean is the lead.
    """
    return {name: by_seed(100 * one.part / one.dense.mean()) for name, one in _leads(runs, chosen).items()}


def _leads(
    runs: pd.DataFrame,
    chosen: Mapping[str, object],
    against: Mapping[str, object] = DENSE,
    steps: int | None = None,
    part: Sequence[float] = (1 - END, 1.0),
) -> dict[str, pd.DataFrame]:
    """By seed the columns part, how much more the chosen earn than others, and dense, what the dense agent earns."""
    then, end = ends(runs, steps, part), ends(runs, steps)
    found = {}
    for name, kind in kinds_of(end, chosen):
        both = pairs.paired(then, ["seed"], kind, kind | against, "return")
        both = both.join(pairs.paired(end, ["seed"], kind, kind | DENSE, "return").other.rename("dense"), how="inner")
        refuse_poor(both.dense)
        found |= {name: both.assign(part=both.one - both.other)} if len(both) else {}
    return found


def percent_of_mean(part: pd.Series, whole: pd.Series) -> Interval:
    """Divide the mean of one by the mean of the other, both by seed, in percent.

    Raises:
        BadInput: a seed stands there twice; see `ratio_of_means`.
    """
    parts, wholes = by_seed(part), by_seed(whole)
    return ratio_of_means(list(parts.values()), [wholes[seed] for seed in parts]).through(lambda ratio: 100 * ratio)


def refuse_poor(returns: pd.Series, who: str = "a dense agent") -> None:
    """Refuse returns that a percentage cannot be taken of.

    Raises:
        BadInput: one is 0 or less.
    """
    if (returns <= 0).any():
        raise BadInput(f"{who} earns {returns.min():g}, of which there is no percentage")


def gap_after_shift(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> dict[str, Interval]:
    """Measure how much more a run earns than the dense agent after its shift, in percent of the mean dense
    return in the end: below 0 where there is something to recover from.

    After the shift: the evaluations of the first fifth of the steps that were left. A run without a shift, or without
    an evaluation there, is left out. A row has the return before its step's pruning and the sparsity after it
    (`lib.papers.gst.experiments.online`): a run that shifts on the step of an evaluation was played before the shift
    there.

    Raises:
        BadInput: the dense agent earns nothing, or less: a share of its return says nothing.
    """
    return {name: percent_of_mean(both.part, both.dense) for name, both in _gaps(runs, chosen, steps).items()}


def _gaps(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None) -> dict[str, pd.DataFrame]:
    """By seed the columns part, how much more a run earns after its shift, and dense, what the dense agent earns."""
    end, found = ends(runs, steps), {}
    for name, kind in kinds_of(end, chosen):
        if kind["shift"] >= 1:
            continue
        mine = pairs.chosen(runs, kind)
        length = mine.groupby("seed").step.max()
        begin = mine[mine.sparsity >= kind["shift"]].groupby("seed").step.min()
        gaps = pairs.paired(runs, ["step", "seed"], kind, kind | DENSE, "return").reset_index()
        begun = gaps.seed.map(begin)
        gaps = gaps[gaps.step.between(begun, begun + END * (gaps.seed.map(length) - begun))]
        gap = (gaps.one - gaps.other).groupby(gaps.seed).mean().rename("part")
        both = pairs.paired(end, ["seed"], kind, kind | DENSE, "return").join(gap, how="inner")
        refuse_poor(both.other)
        found |= {name: both.rename(columns={"other": "dense"})} if len(both) else {}
    return found


def recovery(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> dict[str, Interval]:
    """Measure how much higher above the dense agent a run is in the end than after its shift (`gap_after_shift`), in
    percent of the mean dense return in the end.
    """
    after, end = _gaps(runs, chosen, steps), _leads(runs, chosen, steps=steps)
    return {
        name: percent_of_mean(end[name].part.loc[both.index] - both.part, both.dense) for name, both in after.items()
    }


def recovered(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> dict[str, Interval]:
    """Measure `lead` in the end, only for runs and seeds whose shift `gap_after_shift` knows."""
    after, end = _gaps(runs, chosen, steps), _leads(runs, chosen, steps=steps)
    return {name: percent_of_mean(end[name].part.loc[both.index], both.dense) for name, both in after.items()}


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
    for name, kind in kinds_of(runs, chosen):
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
) -> dict[str, Interval]:
    """Measure how much less the chosen runs lose at their shift than others of the same seed at theirs, in percent of
    the mean dense return in the end.

    What is lost is the mean return of so many evaluations before the shift minus that of as many from it on. A seed
    without a shift, or with fewer evaluations on one side, is left out.

    Raises:
        BadInput: the dense agent earns nothing, or less: a share of its return says nothing.
        WentWrong: an evaluation that is no number.
    """

    def change(kind: Mapping[str, object]) -> pd.Series:
        mine = pairs.chosen(runs, kind).sort_values("step")
        pairs.refuse_wrong(mine.set_index([*KEYS, "step"])["return"])
        after = _shifted(mine).groupby(mine.seed).cummax()
        last = mine[~after].groupby("seed").tail(evaluations).groupby("seed")["return"]
        first = mine[after].groupby("seed").head(evaluations).groupby("seed")["return"]
        there = last.size().eq(evaluations) & first.size().eq(evaluations)
        return (first.mean() - last.mean())[there].rename("change")

    end, found = ends(runs), {}
    for name, kind in kinds_of(end, chosen):
        both = pairs.paired(end, ["seed"], kind, kind | DENSE, "return")
        refuse_poor(both.other)
        spared = (change(kind) - change(kind | dict(against))).rename("part")
        both = both.join(spared, how="inner").dropna(subset="part")
        found |= {name: percent_of_mean(both.part, both.other)} if len(both) else {}
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


def kinds_of(runs: pd.DataFrame, chosen: Mapping[str, object], keys: Sequence[str] = KEYS) -> list[tuple[str, dict]]:
    """List the ways of training among the chosen runs: for each its cell's name, and what its runs have in common.

    Raises:
        BadInput: two ways of one name.
    """
    rows = pairs.chosen(runs, chosen)[[key for key in keys if key != "seed"]].drop_duplicates()
    name = offline_method_of if "choice" in keys else method_of
    kinds = [(f"{row.env}, {name(row)}", row._asdict()) for row in rows.itertuples(index=False)]
    refuse_twice(cells=[cell for cell, _ in kinds])  # the second would take the first one's place
    return kinds
