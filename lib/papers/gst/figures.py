"""Draw paper 5's ways of training in its notebooks, with their names and looks."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes

from lib.companion import plots
from lib.papers.gst.measures import METHODS

# way of training: (label, colour, marker, line)
METHODS = {
    "dense": (METHODS["dense"], plots.GREY, "o", "-"),
    "gradual": (METHODS["gradual"], plots.ORANGE, "v", "--"),
    "rwp": (METHODS["rwp"], "#000000", "s", "-."),
    "regrow": (METHODS["regrow"], plots.YELLOW, "h", ":"),
    "gst_2": ("GST, B = 2", plots.GREEN, "^", "-"),
    "gst_4": ("GST, B = 4", plots.BLUE, "D", "-"),
    "projection": ("B = 4 to 2, projection", plots.RED, "X", ":"),
    "block4_friendly_block2": ("B = 4 to 2, block4 friendly block2", plots.SKY, "*", "--"),
    "block2_friendly_block4": ("B = 4 to 2, block2 friendly block4", plots.PINK, "P", "-."),
}


def curves(axes: Axes, runs: pd.DataFrame, column: str, method: str) -> None:
    """Draw how a column of one way of training goes (paper 5): a line for the mean over seeds, a band for their range.

    Args:
        runs: one row an evaluation and seed, columns step and the one to draw.
        method: of METHODS.
    """
    by_step = runs.groupby("step")[column]
    mean = by_step.mean()
    axes.plot(mean, markevery=max(len(mean) // 8, 1), **plots.variant_style(method, METHODS))
    axes.fill_between(mean.index, by_step.min(), by_step.max(), color=METHODS[method][1], alpha=0.15, linewidth=0)
