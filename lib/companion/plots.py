"""Set names, colours and the style of every figure: the same everywhere, and readable without colour."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from IPython import get_ipython
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
from matplotlib.transforms import ScaledTranslation

from lib.base import BadInput
from lib.companion.results import drawn
from lib.companion.statistics import DIFFERS, MOOT, NOT_RUN, PARTLY, REPRODUCED, UNDECIDED, Interval, interval

# Okabe and Ito's palette, told apart by colour-blind readers; in a figure each variant has its own marker and line.
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
    "dense_int8": ("dense, INT8", ORANGE, "v", "--"),
    "sparse": ("2:4, retrained", BLUE, "D", "-"),
    "sparse_int8": ("2:4, retrained, INT8", SKY, "*", "-."),
    "pruned_permuted": ("permuted and pruned, not retrained", YELLOW, "p", ":"),
    "sparse_permuted": ("2:4, permuted and retrained", GREEN, "^", "-"),
    "sparse_permuted_int8": ("2:4, permuted and retrained, INT8", PINK, "P", "-."),
}
# paper 4: direction: (label, colour, marker, line)
DIRECTIONS = {
    "dense": ("dense", GREY, "o", "-"),
    "sparsify": ("sparsified", BLUE, "D", "-"),
    "expand": ("expanded", ORANGE, "v", "--"),
    "magnitude": ("largest units, retrained", GREEN, "^", "-."),
    "fresh": ("fresh, of the same shape", PINK, "P", ":"),
    "sparsify_script": ("sparsified, authors' schedule", SKY, "*", "-"),
    "expand_script": ("expanded, authors' schedule", RED, "p", "--"),
}
# paper 1: pruner: (label, colour, marker, line)
PRUNERS = {
    "dense": ("dense", GREY, "o", "-"),
    "snip": ("SNIP", BLUE, "D", "-"),
    "grasp": ("GraSP", ORANGE, "v", "--"),
    "magnitude": ("magnitude", GREEN, "^", "-."),
    "random": ("random", PINK, "P", ":"),
    "snip_shuffled": ("SNIP, shuffled", SKY, "*", "-."),
    "none": ("nothing pruned", "#000000", "s", "-"),
}
NETWORKS = {
    "moons_mlp": "MLP",
    "digits_mlp": "MLP",
    "lenet5": "LeNet-5",
    "small_lenet": "small LeNet",
    "alexnet": "AlexNet",
    "small_alexnet": "small AlexNet",
    "resnet20": "ResNet-20",
    "resnet32": "ResNet-32",
    "small_resnet": "ResNet-8",
    "resnet18": "ResNet-18",
    "resnet34": "ResNet-34",
    "resnet50": "ResNet-50",
    "wide_resnet": "wide ResNet-14",
    "small_wide_resnet": "wide ResNet-8",
    "resnext20": "ResNeXt-20",
    "small_resnext": "ResNeXt-8",
    "vgg10": "VGG-10",
    "small_vgg": "VGG-6",
    "densenet24": "DenseNet-24",
    "small_densenet": "DenseNet-11",
    "lstm": "LSTM",
    "small_lstm": "small LSTM",
    "mobilenet_v2": "MobileNet v2",
    "small_mobilenet_v2": "small MobileNet v2",
    "squeezenet": "SqueezeNet",
    "small_squeezenet": "small SqueezeNet",
    "shufflenet_v2": "ShuffleNet v2",
    "small_shufflenet_v2": "small ShuffleNet v2",
    "detector": "a detector",
    "small_detector": "a small detector",
    "dcgan": "DCGAN",
    "small_dcgan": "small DCGAN",
    "decoder": "decoder",
    "small_decoder": "small decoder",
    "transformer": "transformer",
    "small_transformer": "small transformer",
    "recurrent": "LSTM with attention",
    "small_recurrent": "small LSTM with attention",
}
DATA = {
    "digits": "8 x 8 digits",
    "moons": "two moons",
    "mnist": "MNIST",
    "cifar10": "CIFAR-10",
    "cifar100": "CIFAR-100",
    "imagenet": "ImageNet",
    "grammar": "a made text",
    "tinyshakespeare": "tiny Shakespeare",
    "numbers": "made sentences",
    "multi30k-de-en": "Multi30k, German to English",
    "multi30k-en-de": "Multi30k, English to German",
}
ENVIRONMENTS = {
    "halfcheetah": "HalfCheetah",
    "hopper": "Hopper",
    "walker2d": "Walker2d",
    "humanoid": "Humanoid",
    "breakout": "Breakout",
}
ALGORITHMS = {"bc": "BC", "bcq": "BCQ", "plain_bc": "plain BC"}  # of paper 1
PARTS = {"critic1": "first critic", "critic2": "second critic"}  # networks of an agent whose names are not words
VERDICT_COLOURS = {
    REPRODUCED: GREEN, PARTLY: SKY, UNDECIDED: YELLOW, DIFFERS: RED, MOOT: GREY, NOT_RUN: "#D9D9D9",
}  # fmt: skip
VERDICT_HATCHES = {REPRODUCED: "", PARTLY: "//", UNDECIDED: "..", DIFFERS: "xx", MOOT: "--", NOT_RUN: ""}


def style() -> None:
    """Set the house style; in a notebook figures become SVG, with the same bytes at each execution."""
    sns.set_theme(style="whitegrid", context="notebook")
    mpl.rcParams.update(
        {
            "figure.figsize": (7.0, 4.0),
            "figure.constrained_layout.use": True,
            "svg.hashsalt": "sparsity-reproduced",
            "axes.titlesize": "medium",
            "legend.framealpha": 1.0,
            "legend.edgecolor": "white",
        }
    )
    pd.set_option("display.max_colwidth", None)  # claims are sentences
    pd.set_option("display.max_rows", 100)  # and a table of verdicts is never cut in its middle
    shell = get_ipython()
    if shell is not None:
        shell.run_line_magic("config", "InlineBackend.figure_formats = ['svg']")
        shell.run_line_magic("config", "InlineBackend.print_figure_kwargs = {'metadata': {'Date': None}}")
        plt.switch_backend(mpl.get_backend())  # the backend sets its own way of drawing when it starts
        shell.display_formatter.formatters["image/svg+xml"].for_type(Figure, drawn)


def refuse_unnamed(found: Iterable[str], names: Mapping[str, object], where: str) -> None:
    """Refuse what has no name and no look in figures, so that no row of a table is left out in silence.

    Raises:
        BadInput: the first of them.
    """
    for one in found:
        if one not in names:
            raise BadInput(f"{one!r} has no name and look in {where}; there are: {', '.join(names)}")


def label(variant: str) -> str:
    """Say how a variant is called in every figure and table.

    Raises:
        BadInput: a name that figures do not know, see `refuse_unnamed`.
    """
    refuse_unnamed([variant], VARIANTS, "plots.VARIANTS")
    return VARIANTS[variant][0]


def task(data: str, network: str) -> str:
    """Say what a network on a data set is called in every figure and table.

    Raises:
        BadInput: a name that figures do not know, see `refuse_unnamed`.
    """
    refuse_unnamed([data], DATA, "plots.DATA")
    refuse_unnamed([network], NETWORKS, "plots.NETWORKS")
    return f"{NETWORKS[network]} on {DATA[data]}"


def variant_style(variant: str, names: Mapping[str, tuple[str, str, str, str]] = VARIANTS) -> dict:
    """Give keyword arguments for a line or points of a variant, or with `names=DIRECTIONS` of a direction.

    Raises:
        BadInput: a name that figures do not know, see `refuse_unnamed`.
    """
    refuse_unnamed([variant], names, "the table of looks")
    name, colour, marker, line = names[variant]
    return {"label": name, "color": colour, "marker": marker, "linestyle": line}


def errors_with_intervals(axes: Axes, groups: Sequence[tuple[str, Sequence[float]]]) -> None:
    """Draw one row a variant: each seed's error a small point, their mean a marker with its 95 % interval, on a log
    scale.

    The interval is that of the mean accuracy, so its marker is the mean. Seeds with nearly equal errors stand one above
    the other. An end at or below no error at all is drawn to the edge.

    Args:
        groups: (variant, accuracies over seeds in percent), drawn from top to bottom.
    """
    smallest = 0.05
    for row, (variant, accuracies) in enumerate(groups):
        look = {k: v for k, v in variant_style(variant).items() if k != "linestyle"}
        errors = pd.Series([max(100 - accuracy, smallest) for accuracy in accuracies]).sort_values()
        rank = errors.groupby(np.log(errors).mul(50).round()).cumcount()  # dots 2 % apart would overlap
        measured = interval(list(accuracies))
        error = max(100 - measured.value, smallest)
        bars = None
        if measured.seeds > 1:  # one seed is its own mean
            axes.scatter(errors, row + 0.22 + 0.09 * rank, s=9, color=look["color"], linewidths=0)
            least, most = (max(100 - end, smallest) for end in (measured.high, measured.low))
            bars = [[error - least], [most - error]]
        axes.errorbar([error], [row], xerr=bars, markersize=8, capsize=4, linestyle="none", **look)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_yticks(range(len(groups)), [label(variant) for variant, _ in groups])
    axes.set_ylim(len(groups) - 0.3, -0.5)
    axes.grid(axis="y", visible=False)


def with_interval(values: Sequence[float], digits: int = 2, most: float = math.inf) -> str:
    """Write "98.12 [97.49, 98.75]": the mean over seeds and its 95 % interval, as tables print it.

    Args:
        most: the largest value that there is, where the interval is cut off; Student's t does not know of it.
    """
    found = interval(list(values))
    return interval_text(replace(found, high=min(found.high, most)), digits)


def percent(accuracies: Sequence[float]) -> str:
    """Write accuracies in percent as `with_interval` does, of which there are at most 100."""
    return with_interval(accuracies, most=100.0)


def interval_text(measured: Interval, digits: int = 2) -> str:
    """Write as `with_interval` does an interval that is known already."""
    value, low, high = (f"{one:z.{digits}f}" for one in (measured.value, measured.low, measured.high))  # z: no "-0.0"
    return f"{value} (one seed)" if measured.seeds == 1 else f"{value} [{low}, {high}]"


def means_with_intervals(axes: Axes, groups: Mapping[str, Sequence[float]]) -> None:
    """Draw one row a name: each seed's value a small point, their mean a marker with its 95 % interval.

    One seed has its marker alone. The caller names the axis.

    Args:
        groups: {name: values over seeds}, drawn from top to bottom.
    """
    known_intervals(axes, {name: (interval(list(values)), values) for name, values in groups.items()})


def known_intervals(axes: Axes, groups: Mapping[str, tuple[Interval, Sequence[float]]]) -> None:
    """Draw as `means_with_intervals`, with intervals that are known already: {name: (interval, values over seeds)}.

    An end that is infinite lies at the edge of the axes, wherever that will be.
    """
    for row, (measured, values) in enumerate(groups.values()):
        bars = None
        if measured.seeds != 1:  # one seed is its own mean
            bars = [[measured.value - measured.low], [measured.high - measured.value]]
            for side, bar in enumerate(bars):
                if math.isinf(bar[0]):
                    line = {"arrowstyle": "-", "color": BLUE, "shrinkA": 0, "shrinkB": 0}
                    line |= {"linewidth": mpl.rcParams["lines.linewidth"]}
                    edge = {"xycoords": axes.get_yaxis_transform(), "textcoords": "data"}
                    axes.annotate("", (side, row), (measured.value, row), arrowprops=line, **edge)
                    bar[0] = 0.0
            points = pd.Series(values, dtype=float).round(6)
            rank = points.groupby(points).cumcount().clip(upper=3)  # equal seeds stand one above the other
            axes.scatter(points, row + 0.24 + 0.08 * rank, s=9, color=BLUE, linewidths=0)
        axes.errorbar([measured.value], [row], xerr=bars, marker="o", color=BLUE, markersize=7, capsize=4)
    axes.set_yticks(range(len(groups)), list(groups))
    axes.set_ylim(len(groups) - 0.4, -0.6)
    axes.grid(axis="y", visible=False)


def differences_with_intervals(axes: Axes, groups: Mapping[str, Sequence[float]]) -> None:
    """Draw as `means_with_intervals`; a dashed line marks no difference.

    Args:
        groups: {name: differences over seeds}, drawn from top to bottom.
    """
    means_with_intervals(axes, groups)
    axes.axvline(0, color="black", linestyle="--", linewidth=1)


def against_sparsity(axes: Axes, ends: pd.DataFrame) -> None:
    """Draw normalised returns of one algorithm on one environment: a line a pruner, the dense agent's interval as a
    band.

    Args:
        ends: one row a run, columns pruner, sparsity, normalised_return. Sparsities stand at equal distances,
            with thin lines between them.

    Raises:
        BadInput: a name that figures do not know, see `refuse_unnamed`.
    """
    refuse_unnamed(ends.pruner.unique(), PRUNERS, "plots.PRUNERS")
    dense = interval(ends.normalised_return[ends.pruner == "dense"].tolist())
    if dense.seeds > 1:
        axes.axhspan(dense.low, dense.high, color=GREY, alpha=0.2, linewidth=0)
    axes.axhline(dense.value, color=GREY, linewidth=1.5, label=PRUNERS["dense"][0])
    sparsities = sorted(set(ends.sparsity[ends.pruner != "dense"]))
    pruners = [name for name in PRUNERS if name in set(ends.pruner) - {"dense"}]
    for number, pruner in enumerate(pruners):
        groups = ends[ends.pruner == pruner].groupby("sparsity").normalised_return
        places = [sparsities.index(sparsity) + 0.1 * (number - (len(pruners) - 1) / 2) for sparsity in groups.groups]
        found = [interval(values.tolist()) for _, values in groups]
        means, bars = [each.value for each in found], _bars(found)
        look = {"capsize": 2, "markersize": 5, "linewidth": 1, "elinewidth": 1}
        axes.errorbar(places, means, yerr=bars, **look, **variant_style(pruner, PRUNERS))
    for place in range(1, len(sparsities)):  # which marks belong together
        axes.axvline(place - 0.5, color="0.8", linewidth=0.8, zorder=0)
    axes.set_xticks(range(len(sparsities)), [f"{100 * sparsity:g}" for sparsity in sparsities])
    axes.set(xlabel="weights removed, %", xlim=(-0.5, len(sparsities) - 0.5))
    axes.grid(axis="x", visible=False)


def choices(axes: Axes, ends: pd.DataFrame, dense: Sequence[float]) -> None:
    """Draw normalised returns of ways of grouping, a marker for each choice of what goes; the dense interval as a band.

    Args:
        ends: one row a run, columns way, choice (a key of PRUNERS), normalised_return.
        dense: normalised returns of dense agents.

    Raises:
        BadInput: a name that figures do not know, see `refuse_unnamed`.
    """
    refuse_unnamed(set(ends.choice) - {"none"}, PRUNERS, "plots.PRUNERS")
    band, ways = interval(list(dense)), list(dict.fromkeys(ends.way))
    if band.seeds > 1:
        axes.axvspan(band.low, band.high, color=GREY, alpha=0.2, linewidth=0)
    axes.axvline(band.value, color=GREY, linewidth=1.5, label=PRUNERS["dense"][0])
    of_way = {way: [one for one in PRUNERS if one in set(mine.choice)] for way, mine in ends.groupby("way")}
    for choice in (one for one in PRUNERS if one in set(ends.choice)):
        by_way = {way: seeds.tolist() for way, seeds in ends[ends.choice == choice].groupby("way").normalised_return}
        rows = [  # a way that lacks a choice has its others about its label all the same
            ways.index(way) + 0.22 * (of_way[way].index(choice) - (len(of_way[way]) - 1) / 2) for way in by_way
        ]
        each = [interval(seeds) for seeds in by_way.values()]
        for row, seeds in zip(rows, by_way.values(), strict=True):
            if len(seeds) > 1:
                axes.scatter(seeds, [row + 0.08] * len(seeds), s=9, color=PRUNERS[choice][1], linewidths=0)
        style = variant_style(choice, PRUNERS) | {"linestyle": "none"}
        axes.errorbar([e.value for e in each], rows, xerr=_bars(each), capsize=3, markersize=6, **style)
    axes.set_yticks(range(len(ways)), ways)
    axes.set_ylim(len(ways) - 0.4, -0.6)
    axes.set(xlabel="normalised return")
    axes.grid(axis="y", visible=False)


def _bars(found: Sequence[Interval]) -> list[list[float]] | None:
    """How far the ends lie below and above the values, as matplotlib has bars; NaN, and no bar, of one seed, which has
    no ends. None where all are so.
    """
    if all(each.seeds == 1 for each in found):
        return None
    ends = [(each.value - each.low, each.high - each.value) if each.seeds != 1 else (math.nan,) * 2 for each in found]
    return [list(side) for side in zip(*ends, strict=True)]


def over_epochs(axes: Axes, rows: pd.DataFrame, column: str, direction: str) -> None:
    """Draw one direction of paper 4: each seed a thin line, their mean a thick one, ends of stages 1 and 2 dotted.

    The mean is of epochs that most seeds have. A seed that has no row there counts with its latest value: an
    expansion that ends by itself has fewer epochs.
    """
    look, seeds = {"color": DIRECTIONS[direction][1]}, rows.groupby("seed")
    for _, one in seeds:  # of many, lines would make a large file
        axes.plot(one.epoch, one[column], linewidth=1, alpha=0.3, rasterized=len(seeds) > 10, **look)
    table = rows.pivot(index="epoch", columns="seed", values=column)
    mean = table.ffill()[table.notna().mean(axis=1) > 0.5].mean(axis=1)
    name = f"mean of {len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    axes.plot(mean.index, mean, linewidth=2.5, label=name, **look)
    for stage in (1, 2):
        axes.axvline(rows[rows.stage == stage].epoch.max(), color="black", linestyle=":", linewidth=1)


def accuracy_against_size(axes: Axes, ends: pd.DataFrame) -> None:
    """Draw a marker a direction of paper 4: mean accuracy, with its 95 % interval, at mean live weights; small points
    are seeds.

    Networks of nearly one size are drawn a few points apart, because their bars would hide one another.

    Args:
        ends: one row a direction and seed, columns direction, accuracy, parameters_live.

    Raises:
        BadInput: a name that figures do not know, see `refuse_unnamed`.
    """
    refuse_unnamed(ends.direction.unique(), DIRECTIONS, "plots.DIRECTIONS")
    taken: list[float] = []
    for direction in (name for name in DIRECTIONS if name in set(ends.direction)):
        mine = ends[ends.direction == direction]
        look = variant_style(direction, DIRECTIONS) | {"linestyle": "none"}
        size, found = mine.parameters_live.mean(), interval(mine.accuracy.tolist())
        bars = axes.errorbar([size], [found.value], yerr=_bars([found]), markersize=8, capsize=4, **look)
        inches = 0.1 * sum(abs(size / other - 1) < 0.05 for other in taken)
        aside = axes.transData + ScaledTranslation(inches, 0, axes.figure.dpi_scale_trans)
        for part in bars.get_children():  # when the axis knows where they are
            part.set_transform(aside)
        if found.seeds > 1:
            points = axes.scatter(mine.parameters_live, mine.accuracy, s=9, color=look["color"], linewidths=0)
            points.set_offset_transform(aside)
        taken.append(size)
    axes.set(xscale="log", xlabel="live weights, log scale", ylabel="test accuracy (%)")
