"""Measure paper 5: from a sweep's rows to one number a seed; what definitions say is in `definitions`.

Which runs are meant is said by their columns: chosen = {"method": "gst", "block": [2, 4]}, a value or several a column.
What they are compared with has the same columns but those that `against` names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace

import pandas as pd

from lib.base import refuse_twice
from lib.companion import pairs
from lib.companion.cells import Values, by_seed
from lib.companion.statistics import Interval
from lib.papers.gst.definitions import (  # noqa: F401 (claims look all measures of a paper up here)
    changed_by_conversion,
    csr_crossover,
    operations_per_byte,
    packed_gap,
    weight_share,
)
from lib.papers.gst.experiments.compression import ratio
from lib.papers.gst.returns import (  # noqa: F401 (as above)
    DENSE,
    END,
    KEYS,
    SINGLE,
    dense_before_release,
    ends,
    gap_after_shift,
    kinds_of,
    late_gain,
    lead,
    lead_before_release,
    lead_by_seed,
    percent_of_mean,
    ratio_between_rows,
    recovered,
    recovery,
    refuse_poor,
    spared_at_shift,
)
from lib.papers.gst.ways import METHODS, method_of

OFFLINE_KEYS = ["data", "env", "block", "shift", "choice", "kept", "seed"]  # so learns from fixed data
OFFLINE_DENSE = {"block": 1, "shift": 0.0, "choice": "none", "kept": 1.0}
PLACES = ["data", "network", "env", "learner"]  # of classifiers or of players
BEYOND_KEYS = [*PLACES, "method", "block", "shift", "conversion", "prune_every", "seed"]
PLAIN = {"method": "dense", **SINGLE, "prune_every": 0}  # the dense classifier or player


def pruned(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """Measure the share of coefficients that is removed in the end, in percent."""
    return _percent(runs, chosen, steps, "sparsity")


def past_shift(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None = None) -> Values:
    """Measure by how many points more is pruned in the end than the S_shift of a release; below 0 there was none."""
    shifts = {name: kind["shift"] for name, kind in kinds_of(ends(runs, steps), chosen)}
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
    for name, kind in kinds_of(end, chosen):
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

    found = {name: (swing(kind) - swing(kind | dict(against))).dropna() for name, kind in kinds_of(runs, chosen)}
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
    for name, kind in kinds_of(runs, chosen, OFFLINE_KEYS):
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
) -> dict[str, Interval]:
    """Compute how much more the chosen players earn than others of the same seeds, in percent of what these earn on
    average.

    Args:
        runs: of gst_games; returns are averaged over the last fifth of a training.
        steps: only runs of at least so many.

    Raises:
        BadInput: others that earn nothing.
    """
    found = {}
    for name, both in _pairs(played(runs, steps), chosen, against, "return").items():
        refuse_poor(both.other, "a rival")
        found[name] = percent_of_mean(both.one - both.other, both.other)
    return found


def score(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int = 0, until: float = float("inf")) -> Values:
    """Compute what players earn in the last fifth of a training, in the game's points.

    Args:
        steps: only of trainings of at least so many steps.
        until: as if a training had ended after so many of its steps.
    """
    return _beyond(played(runs[runs.step <= until], steps), chosen, {}, lambda both: both.one, "return")


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
    """One number a seed from the pairs of the chosen runs and others."""
    return {name: by_seed(value(both)) for name, both in _pairs(runs, chosen, against, column).items()}


def _pairs(
    runs: pd.DataFrame, chosen: Mapping[str, object], against: Mapping[str, object], column: str
) -> dict[str, pd.DataFrame]:
    """Pair the last rows of the chosen runs with others of the same seed, one cell for each network or game and way.

    Players are told apart by how often they were pruned, too, which classifiers have no column for.
    """
    keys = [name for name in BEYOND_KEYS if name in runs and name != "seed"]
    kinds = pairs.chosen(runs, chosen)[keys].drop_duplicates()
    found = {}
    against = {name: other for name, other in against.items() if name in runs or name != "prune_every"}
    for kind in kinds.to_dict("records"):
        both = pairs.paired(runs, ["seed"], kind, kind | against, column)
        where = " ".join(str(kind[name]) for name in PLACES if name in kind)
        how = method_of(SimpleNamespace(**kind))
        if every := kind.get("prune_every", 0):
            how += f", a chance every {every} updates" if every > 1 else ", a chance every update"
        found |= {f"{where}, {how}": both} if len(both) else {}
    return found


def _percent(runs: pd.DataFrame, chosen: Mapping[str, object], steps: int | None, column: str) -> Values:
    end = ends(runs, steps)
    kinds = kinds_of(end, chosen)
    return {name: by_seed(100 * pairs.chosen(end, kind).set_index("seed")[column]) for name, kind in kinds}
