"""Names, colours and the style of every figure: the same everywhere, and readable without colour."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import pandas as pd
import seaborn as sns
from IPython import get_ipython
from matplotlib.axes import Axes

from lib.evaluation.statistics import DIFFERS, NOT_RUN, PARTLY, REPRODUCED, UNDECIDED, interval

# Okabe and Ito's palette, told apart by colour-blind readers; each variant also has a marker and a line of its own.
BLUE, ORANGE, GREEN, RED, SKY, PINK, YELLOW, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#56B4E9", "#CC79A7", "#F0E442", "#7F7F7F",
)  # fmt: skip

# variant: (label, colour, marker, line)
VARIANTS = {
    "dense": ("dense", GREY, "o", "-"),
    "dense_twice": ("dense, trained twice", "#000000", "s", "--"),
    "pruned": ("pruned, not retrained", RED, "X", ":"),
    "retrained": ("2:4, retrained", BLUE, "D", "-"),
    "unstructured": ("50 % unstructured, retrained", GREEN, "^", "-."),
    "fresh": ("2:4 mask, fresh weights", ORANGE, "v", "--"),
    "random": ("2:4 by chance, retrained", PINK, "P", ":"),
    "gradient": ("2:4 by gradient, retrained", SKY, "*", "-."),
}
NETWORKS = {
    "lenet5": "LeNet-5",
    "small_lenet": "small LeNet",
    "resnet20": "ResNet-20",
    "small_resnet": "ResNet-8",
}
DATA = {"digits": "8 x 8 digits", "mnist": "MNIST", "cifar10": "CIFAR-10"}
VERDICT_COLOURS = {REPRODUCED: GREEN, PARTLY: SKY, UNDECIDED: YELLOW, DIFFERS: RED, NOT_RUN: "#D9D9D9"}
VERDICT_HATCHES = {REPRODUCED: "", PARTLY: "//", UNDECIDED: "..", DIFFERS: "xx", NOT_RUN: ""}


def style() -> None:
    """Set the house style; in a notebook figures become SVG, with the same bytes at each execution."""
    sns.set_theme(style="whitegrid", context="notebook")
    mpl.rcParams.update(
        {
            "figure.figsize": (7.0, 4.0),
            "figure.constrained_layout.use": True,
            "svg.hashsalt": "sparsity-reproduced",
            "axes.titlesize": "medium",
            "legend.frameon": False,
        }
    )
    pd.set_option("display.max_colwidth", None)  # claims are sentences
    shell = get_ipython()
    if shell is not None:
        shell.run_line_magic("config", "InlineBackend.figure_formats = ['svg']")
        shell.run_line_magic("config", "InlineBackend.print_figure_kwargs = {'metadata': {'Date': None}}")


def label(variant: str) -> str:
    """How a variant is called in every figure and table."""
    return VARIANTS[variant][0]


def task(data: str, network: str) -> str:
    """What a network on a data set is called in every figure and table."""
    return f"{NETWORKS[network]} on {DATA[data]}"


def variant_style(variant: str) -> dict:
    """Keyword arguments for a line or points of a variant."""
    name, colour, marker, line = VARIANTS[variant]
    return {"label": name, "color": colour, "marker": marker, "linestyle": line}


def points_with_intervals(axes: Axes, groups: Sequence[tuple[str, Sequence[float]]], far: float = 3.0) -> None:
    """One row a variant: each seed a small point, the mean a marker with its 95 % interval.

    A variant far to the left of all the others would squeeze them into a corner; it is written at the left edge.

    Args:
        groups: (variant, values over seeds), drawn from top to bottom.
        far: how many times the others' spread below the median a mean has to be for that.
    """
    means = pd.Series({variant: sum(values) / len(values) for variant, values in groups})
    near = means[means >= means.median() - far * (means.max() - means.median())].index
    for row, (variant, values) in enumerate(groups):
        look = {k: v for k, v in variant_style(variant).items() if k != "linestyle"}
        if variant not in near:
            text = f"\u25c0 {with_interval(values)}"
            axes.text(0.02, row, text, color=look["color"], va="center", transform=axes.get_yaxis_transform())
            continue
        spread = [row + 0.14 * (2 * (i % 2) - 1) for i in range(len(values))]
        axes.scatter(list(values), spread, s=14, color=look["color"], alpha=0.6, linewidths=0)
        measured = interval(list(values))
        bars = None if measured.seeds == 1 else [[measured.value - measured.low], [measured.high - measured.value]]
        axes.errorbar([measured.value], [row], xerr=bars, markersize=8, capsize=4, linestyle="none", **look)
    axes.set_yticks(range(len(groups)), [label(variant) for variant, _ in groups])
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def with_interval(values: Sequence[float], digits: int = 2) -> str:
    """ "98.12 [97.49, 98.75]": the mean over seeds and its 95 % interval, as tables print it."""
    measured = interval(list(values))
    if measured.seeds == 1:
        return f"{measured.value:.{digits}f} (one seed)"
    return f"{measured.value:.{digits}f} [{measured.low:.{digits}f}, {measured.high:.{digits}f}]"
