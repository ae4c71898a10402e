"""Tables of the notebooks: from runs and verdicts to rows that a reader understands. Named as in the figures."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib import plots
from lib.claims.readme import measured_text
from lib.evaluation import verification
from lib.evaluation.accuracy import difference, last

VERDICT = ("printed", "measured [low, high]", "data", "verdict", "note")


def variants(runs: pd.DataFrame, scale: str) -> pd.DataFrame:
    """Where each variant of each network ends: one row a network and variant, in the figures' order."""
    rows = []
    for (data, network), chosen in last(runs).groupby(["data", "network"], sort=False):
        for variant in (name for name in plots.VARIANTS if name in set(chosen.variant)):
            mine = chosen[chosen.variant == variant]
            rows.append(
                {
                    "network": plots.task(data, network),
                    "variant": plots.label(variant),
                    "scale": scale,
                    "seeds": len(mine),
                    "epochs": mine.epoch.max(),
                    "accuracy, %": plots.with_interval(mine.accuracy.tolist()),
                    "sparsity, %": round(100 * mine.sparsity.mean(), 2),
                    "MFLOPs": round(mine.flops.mean() / 1e6, 2),
                }
            )
    return pd.DataFrame(rows)


def directions(ends: pd.DataFrame) -> pd.DataFrame:
    """Where each direction of paper 4 ends: one row a direction, in the figures' order.

    Args:
        ends: one row a direction and seed.
    """
    rows = []
    for direction in (name for name in plots.DIRECTIONS if name in set(ends.direction)):
        mine = ends[ends.direction == direction]
        rows.append(
            {
                "network": plots.DIRECTIONS[direction][0],
                "seeds": len(mine),
                "accuracy, %": plots.with_interval(mine.accuracy.tolist()),
                "weights": plots.with_interval(mine.parameters.tolist(), 0),
                "live weights": plots.with_interval(mine.parameters_live.tolist(), 0),
                "MFLOPs": round(mine.flops.mean() / 1e6, 3),
                f"architecture, seed {mine.seed.min()}": mine.sort_values("seed").architecture.iloc[0],
            }
        )
    return pd.DataFrame(rows)


def side_by_side(runs: pd.DataFrame, chosen: Sequence[str], scale: str) -> pd.DataFrame:
    """Accuracy of some variants in columns, in percent with intervals: one row a network, as the papers print it."""
    rows = []
    for (data, network), mine in last(runs).groupby(["data", "network"], sort=False):
        of_variant = {variant: mine.accuracy[mine.variant == variant].tolist() for variant in chosen}
        row = {"network": plots.task(data, network), "scale": scale, "seeds": mine.seed.nunique()}
        row |= {"epochs a session": mine.epoch[mine.variant == "dense"].max()}
        row |= {plots.label(v): plots.with_interval(values) if values else "" for v, values in of_variant.items()}
        rows.append(row)
    return pd.DataFrame(rows)


def differences(runs: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Accuracy of one variant minus another, paired by seed, in points: one row a pair and network."""
    rows = [
        {
            "difference in points": f"{plots.label(variant)} - {plots.label(against)}",
            "network": plots.task(*cell.split("/")),
            "mean [95 % interval]": plots.with_interval(list(points.values())),
        }
        for variant, against in pairs
        for cell, points in difference(runs, variant, against).items()
    ]
    return pd.DataFrame(rows)


def error_rates(runs: pd.DataFrame, chosen: Sequence[str] | None = None) -> pd.DataFrame:
    """What the systems of paper 3 reach: one row a system and list of trials, intervals over seeds and speakers.

    Args:
        runs: of all systems, because their spread over seeds is pooled.
        chosen: the systems to show, such as "resnet18/self/both"; None: all.
    """
    return pd.DataFrame(
        {
            "trials": f"{row.data}, {row.trials.replace('_', ' ')}",
            "system": plots.system(row.system),
            "width": row.width,
            "parameters": row.parameters,
            "seeds": row.eer.seeds,
            "epochs": row.epoch,
            "EER, %": plots.interval_text(row.eer),
            "MinDCF": plots.interval_text(row.min_dcf, 3),
            "EER by cosine, %": plots.interval_text(row.eer_cosine),
        }
        for row in verification.table(runs).itertuples()
        if chosen is None or row.system in chosen
    )


def verdicts(claims: pd.DataFrame, columns: Sequence[str] = VERDICT) -> pd.DataFrame:
    """Rows of claims, by what they say; "measured [low, high]" may be among the columns. An empty note is left out."""
    numbers = [measured_text(row) for row in claims.to_dict("records")]
    shown = [name for name in columns if name != "note" or claims.note.any()]
    return claims.assign(**{"measured [low, high]": numbers}).set_index("says")[shown]
