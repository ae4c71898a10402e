"""Draw paper 5's ways of training in its notebooks, with their names and looks."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from matplotlib.axes import Axes

from lib.companion import plots
from lib.companion.statistics import Interval
from lib.papers.gst.returns import KEYS, lead, lead_by_seed
from lib.papers.gst.ways import METHODS as NAMES

# way of training: (label, colour, marker, line)
METHODS = {
    "dense": (NAMES["dense"], plots.GREY, "o", "-"),
    "gradual": (NAMES["gradual"], plots.ORANGE, "v", "--"),
    "rwp": (NAMES["rwp"], "#000000", "s", "-."),
    "regrow": (NAMES["regrow"], plots.YELLOW, "h", ":"),
    "gst_2": ("GST, B = 2", plots.GREEN, "^", "-"),
    "gst_2_often": ("GST, B = 2, pruned more often", plots.SKY, "v", ":"),
    "gst_4": ("GST, B = 4", plots.BLUE, "D", "-"),
    "gst_4_end": ("GST, B = 4 to the end", plots.BLUE, "p", "--"),
    "projection": ("B = 4, then 2, projection", plots.RED, "X", ":"),
    "block4_friendly_block2": ("B = 4, then 2, block4 friendly block2", plots.SKY, "*", "--"),
    "block2_friendly_block4": ("B = 4, then 2, block2 friendly block4", plots.PINK, "P", "-."),
}


def curves(
    axes: Axes, runs: pd.DataFrame, column: str, method: str, label: str | None = None, band: bool = True
) -> None:
    """Draw how a column of one way of training goes (paper 5): a line for the mean over seeds, a band for their range.

    Args:
        runs: one row an evaluation and seed, columns step and the one to draw.
        method: of METHODS.
        label: another name than that of METHODS.
        band: without it the mean alone is drawn, where bands of many ways would cover one another.
    """
    by_step = runs.groupby("step")[column]
    mean = by_step.mean()
    look = plots.variant_style(method, METHODS) | ({"label": label} if label else {})
    axes.plot(mean, markevery=max(len(mean) // 8, 1), **look)
    if band:
        axes.fill_between(mean.index, by_step.min(), by_step.max(), color=METHODS[method][1], alpha=0.15, linewidth=0)


def short(cell: str) -> str:
    """Shorten a cell's name to that of its way of training: "HalfCheetah-v4, GST, B = 4 to the end" to its end."""
    return cell.split(", ", 1)[1].removeprefix("GST, ")


def leads(axes: Axes, runs: pd.DataFrame, chosen: Mapping[str, object]) -> dict[str, Interval]:
    """Draw how much more each of the chosen ways earns than dense agents, as `plots.differences_with_intervals`.

    A row is a way of training, its name without the environment's and without "GST". Small points are seeds.

    Returns:
        What was drawn, by that name: `returns.lead`.
    """
    found, seeds = lead(runs, chosen), lead_by_seed(runs, chosen)
    plots.known_intervals(axes, {short(cell): (one, list(seeds[cell].values())) for cell, one in found.items()})
    axes.axvline(0, color="black", linestyle="--", linewidth=1)
    axes.set_xlabel("return minus dense, % of the mean dense return")
    return {short(cell): one for cell, one in found.items()}


def against_dense(runs: pd.DataFrame, dense: pd.DataFrame, evaluations: int = 5) -> pd.DataFrame:
    """Compute how much more each run earns than the dense one of its seed, step by step, averaged over the last
    evaluations.

    Args:
        runs, dense: one row an evaluation and seed, columns KEYS, step and return.
        evaluations: so many up to each step are averaged, because a single one is noisy.

    Returns:
        The rows that have a dense partner, with the column lead, in units of the return.
    """
    partner = dense[["env", "seed", "step", "return"]]
    rows = runs.merge(partner, on=["env", "seed", "step"], suffixes=("", "_dense")).sort_values("step")
    lead = (rows["return"] - rows["return_dense"]).groupby([rows[key] for key in KEYS])
    return rows.assign(lead=lead.transform(lambda one: one.rolling(evaluations, min_periods=1).mean()))
