"""Run the lower half of paper 2's table 4: 2:4 in a detector that draws the outline of each digit inside its box.

The network is that of `two_four_detection` with a further head; its variants are those that repeat phase 2 alone, which
is what the paper does:

    dense          phase 1 and phase 2, each once
    dense_second   dense, then phase 2 a second time: the rival of sparse_second, trained as long
    pruned_second  dense, 2 of every 4 weights removed by magnitude, not trained further
    sparse_second  pruned_second, then phase 2 a second time
    *_int8         quantised with entropy calibration, *_int8_max so that no activation is clipped

`mask_precision` is average precision of outlines over overlaps 0.50 to 0.95, in percent; `precision` that of boxes.
"""

from __future__ import annotations

import torch

from lib.companion.sweep.context import Context
from lib.models.detector import Classifier
from lib.papers.two_four.experiments import two_four_detection
from lib.papers.two_four.experiments.two_four_detection import (
    NETWORKS,
    Comparison,
    FirstPhase,
    SecondPhase,
    Settings,
    aliases,
    configurations,
)
from lib.training.seeds import seed_of

__all__ = ["COLUMNS", "INDEX", "KEYS", "Settings", "aliases", "configurations", "run", "units"]

OUTLINE = 14  # cells along a side, as Mask R-CNN has in its first layers
SESSIONS = 3  # of phase 2 for one number of canvases

KEYS = two_four_detection.KEYS
INDEX = two_four_detection.INDEX
COLUMNS = (*INDEX, "mask_precision", "precision", "precision_50", "accuracy", "sparsity")


class Outlines(Comparison):
    """Train the variants that repeat phase 2 alone, drawing outlines."""

    outline = OUTLINE


def units(configuration: dict) -> int:
    """Count the epochs of phase 1 and the sessions of phase 2 in one configuration."""
    second = SESSIONS * configuration["second"]["epochs"] * len(configuration["canvases"])
    return configuration["first"]["epochs"] + second


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration, phase 1 first."""
    first = FirstPhase(configuration, context)
    build, channels = NETWORKS[configuration["network"]]
    torch.manual_seed(seed_of(first.seed))
    backbone = first.session("dense", Classifier(build()).to(context.device), 0).backbone
    phase = SecondPhase(configuration, channels, first.examples, context)
    for count in configuration["canvases"]:
        outlines = Outlines(phase, count)
        for variant, model in outlines.second_repeated(backbone).items():
            outlines.quantise(variant, model)
        first.rows += [{**first.key, "phase": 2, "canvases": count, **row} for row in outlines.rows]
    return first.rows
