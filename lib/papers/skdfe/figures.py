"""Name paper 3's systems, and make the table of what they reach, as its notebooks show them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from lib.companion import plots
from lib.companion.statistics import Interval
from lib.papers.skdfe import measures

DISTILLATIONS = {  # what a student is taught
    "label": "label",
    "feature": "feature",
    "both": "label + feature",
    "mse": "embedding MSE",
    "cosine": "embedding cosine",
}


def system(name: str) -> str:
    """Say what a system of paper 3, such as "resnet18/resnet34/mse", is called in every figure and table.

    Raises:
        BadInput: a name that figures do not know.
    """
    network, teacher, distillation = name.split("/")
    plots.refuse_unnamed(
        [one for one in (network, teacher) if one not in ("self", "none")], plots.NETWORKS, "plots.NETWORKS"
    )
    plots.refuse_unnamed([distillation], ["none", *DISTILLATIONS], "DISTILLATIONS of lib.papers.skdfe.figures")
    if distillation == "none":
        return plots.NETWORKS[network]
    who = "self-teacher" if teacher == "self" else f"teacher {plots.NETWORKS[teacher]}"
    return f"{plots.NETWORKS[network]}, {who}: {DISTILLATIONS[distillation]}"


def error_rates(runs: pd.DataFrame, chosen: Sequence[str] | None = None) -> pd.DataFrame:
    """Tabulate what the systems of paper 3 reach: one row a system and list of trials, intervals over seeds and
    speakers.

    Args:
        runs: of all systems, because their spread over seeds is pooled.
        chosen: the systems to show, such as "resnet18/self/both"; None: all.
    """
    return pd.DataFrame(
        {
            "trials": f"{row.data}, {row.trials.replace('_', ' ')}",
            "system": system(row.system),
            "width": row.width,
            "parameters": row.parameters,
            "seeds": row.eer.seeds,
            "epochs": row.epoch,
            "EER, %": plots.interval_text(row.eer),
            "minDCF": plots.interval_text(row.min_dcf, 3),
            "EER by cosine, %": plots.interval_text(row.eer_cosine),
        }
        for row in measures.table(runs).itertuples()
        if chosen is None or row.system in chosen
    )


def seeds_in_words(runs: pd.DataFrame) -> str:
    """Say with how many seeds systems were trained: "2 seeds", or "2 to 5 seeds" where some have more."""
    counts = runs.groupby(["network", "teacher", "distillation"]).seed.nunique()
    least, most = counts.min(), counts.max()
    return (f"{least}" if least == most else f"{least} to {most}") + (" seed" if most == 1 else " seeds")


def errors_in_words(found: Interval | Mapping[str, object], digits: int = 0) -> str:
    """Say by how many percent a system's errors differ from another's: "3 % more errors [7 % fewer to 13 % more]".

    Args:
        found: percent fewer, below 0 more: an `improvement`, or a claim's row of the ledger.
        digits: behind the point.
    """
    if not isinstance(found, Interval):
        found = Interval(*(float(found[name]) for name in ("measured", "low", "high")), seeds=int(found["seeds"]))
    value, low, high = found.value, found.low, found.high
    if found.seeds == 1:
        return f"{_amount(value, digits)} errors (one seed)"
    if low * high >= 0:
        least, most = sorted((abs(low), abs(high)))
        return f"{_amount(value, digits)} errors [{least:.{digits}f}, {most:.{digits}f}]"
    return f"{_amount(value, digits)} errors [{_amount(high, digits)} to {_amount(low, digits)}]"


def _amount(percent: float, digits: int) -> str:
    return f"{abs(percent):.{digits}f} % {'fewer' if percent > 0 else 'more'}"
