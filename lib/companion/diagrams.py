"""Draw diagrams of boxes and arrows in one style, by code: what goes into what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from lib.base import BadInput

# What a box stands for. Shapes differ as well as colours, so that a diagram is read without colour too.
KINDS = {
    "data": {"boxstyle": "square,pad=0.45", "facecolor": "#f2f2f2", "edgecolor": "#666666"},
    "network": {"boxstyle": "round,pad=0.55", "facecolor": "#dbe9f6", "edgecolor": "#1f5a94", "linewidth": 1.6},
    "loss": {"boxstyle": "round4,pad=0.5", "facecolor": "#fdebd0", "edgecolor": "#b8650b"},
    # a network, or a session of its training, that holds a pattern
    "sparse": {
        "boxstyle": "round,pad=0.55",
        "facecolor": "#ffffff",
        "edgecolor": "#1f5a94",
        "linestyle": "--",
        "linewidth": 1.6,
    },
}


def diagram(
    boxes: Mapping[str, tuple[float, float, str, str]],
    arrows: Sequence[tuple[str, str] | tuple[str, str, str]],
    size: tuple[float, float] = (9.0, 3.0),
) -> Figure:
    """Draw boxes and the arrows between them.

    Args:
        boxes: {name: (x, y, text, kind)}, places in units of the axes from 0 to 1, kinds of KINDS.
        arrows: (from, to) or (from, to, words beside it), by the names of boxes.
        size: of the figure in inches.

    Raises:
        BadInput: an unknown kind, or an arrow from or to a box that there is not.
    """
    figure, axes = plt.subplots(figsize=size)
    axes.set(xlim=(0, 1), ylim=(0, 1))
    axes.set_axis_off()
    drawn = {}
    for name, (x, y, text, kind) in boxes.items():
        if kind not in KINDS:
            raise BadInput(f"box {name!r}: kind {kind!r}: known are {', '.join(KINDS)}")
        drawn[name] = axes.text(x, y, text, ha="center", va="center", fontsize=10, zorder=3, bbox=KINDS[kind])
    for start, end, *words in arrows:
        for name in (start, end):
            if name not in drawn:
                raise BadInput(f"arrow {start!r} to {end!r}: no box {name!r}; there are: {', '.join(boxes)}")
        (x, y), (x2, y2) = boxes[start][:2], boxes[end][:2]
        patches = {"patchA": drawn[start].get_bbox_patch(), "patchB": drawn[end].get_bbox_patch()}
        look = {"arrowstyle": "-|>", "color": "#333333", "shrinkA": 2, "shrinkB": 2, "linewidth": 1.2, **patches}
        # above the boxes, which have to be drawn first: only then it is known where their edges are
        axes.annotate("", xy=(x2, y2), xytext=(x, y), arrowprops=look, zorder=4)
        if words:
            upright = abs(x2 - x) < abs(y2 - y)
            place = {"ha": "left", "va": "center"} if upright else {"ha": "center", "va": "bottom"}
            aside = (0.012, 0.0) if upright else (0.0, 0.03)
            x, y = (x + x2) / 2 + aside[0], (y + y2) / 2 + aside[1]
            axes.text(x, y, words[0], fontsize=9, color="#333333", **place)
    return figure
