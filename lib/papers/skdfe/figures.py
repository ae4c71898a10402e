"""Name paper 3's systems, and make the table of what they reach, as its notebooks show them."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.companion import plots
from lib.papers.skdfe import measures

DISTILLATIONS = {  # what a student is taught
    "label": "label",
    "feature": "feature",
    "both": "label + feature",
    "mse": "embedding MSE",
    "cosine": "embedding cosine",
}


def system(name: str) -> str:
    """Say what a system of paper 3, such as "resnet18/resnet34/mse", is called in every figure and table."""
    network, teacher, distillation = name.split("/")
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
            "MinDCF": plots.interval_text(row.min_dcf, 3),
            "EER by cosine, %": plots.interval_text(row.eer_cosine),
        }
        for row in measures.table(runs).itertuples()
        if chosen is None or row.system in chosen
    )
