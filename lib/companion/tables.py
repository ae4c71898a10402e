"""Make tables of the notebooks: from runs and verdicts to rows that a reader understands. Named as in the figures."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.companion import plots
from lib.companion.claims.readme import measured_text

VERDICT = ("printed", "measured [low, high]", "scale", "data", "verdict", "note")
SHORT = ("printed", "measured [low, high]", "scale", "verdict")  # what fits beside a long claim on a page


def directions(ends: pd.DataFrame) -> pd.DataFrame:
    """Tabulate where each direction of paper 4 ends: one row a direction, in the figures' order.

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


def verdicts(claims: pd.DataFrame, columns: Sequence[str] = VERDICT) -> pd.DataFrame:
    """Tabulate rows of claims, by what they say; "measured [low, high]" may be among the columns. An empty note is left
    out.
    """
    numbers = [measured_text(row) for row in claims.to_dict("records")]
    shown = [name for name in columns if name != "note" or claims.note.any()]
    return claims.assign(**{"measured [low, high]": numbers}).set_index("says")[shown]
