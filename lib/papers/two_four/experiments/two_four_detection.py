"""Prune a detector 2:4 and ask which of its two training phases must be repeated (paper 2, table 4 and figure 8).

Phase 1 teaches a backbone to name single digits; phase 2 adds a pyramid and a head, which are new, and teaches the
whole network to find digits on canvases. The variants, on the same canvases and batches:

    dense          phase 1 and phase 2, each once
    dense_second   dense, then phase 2 a second time: the rival of sparse_second, trained as long
    pruned_second  dense, 2 of every 4 weights removed by magnitude, not trained further
    sparse_second  pruned_second, then phase 2 a second time (figure 8, what the paper does)
    dense_both     phase 1 twice, then phase 2 twice: the rival of sparse_both, trained as long
    sparse_both    the backbone pruned after phase 1, which is repeated; then phase 2; then the pyramid and the head are
                   pruned too and phase 2 is repeated

What phase 2 adds must have been trained before it is pruned (section 4.3), so sparse_both, too, has phase 2 twice; all
sparse networks end with the same layers pruned. `*_int8` are quantised after their last session with entropy
calibration (table 4's last column), `*_int8_max` so that no activation is clipped. With fewer canvases phase 2 is
shorter, so that it can be seen how much training it needs.

`precision` is average precision over overlaps 0.50 to 0.95 on canvases of test digits, in percent (`precision_50` at
0.50); `accuracy` that of phase 1 on the test digits, in percent. `step` counts the steps of phase 2, in phase 1 epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import nn

from lib import pruners
from lib.base import Count, refuse_twice, refuse_unknown
from lib.companion.sweep.context import Context
from lib.companion.sweep.settings import each_seed
from lib.data import canvases, vision
from lib.data.canvases import CanvasLayout
from lib.kernels.int8 import threshold
from lib.models import detector
from lib.models.detector import Classifier, Detector
from lib.papers.two_four.experiments.two_phases import FineTuning, kept_rows
from lib.papers.two_four.experiments.variants import before_precision, masked_copy
from lib.pruners import calibration
from lib.training import supervised
from lib.training.detection import DetectionLoss, average_precision, batches, detect
from lib.training.examples import Examples
from lib.training.seeds import seed_of
from lib.training.steps import fit
from lib.training.supervised import Training

NETWORKS: dict[str, tuple[Callable[[], detector.Backbone], int]] = {  # a backbone, and channels of pyramid and head
    "detector": (detector.backbone, 32),
    "small_detector": (detector.small_backbone, 16),
}
SESSIONS = 7  # of phase 2 for one number of canvases
CALIBRATED, CALIBRATION_BATCH = 256, 64  # canvases that INT8's scales are found on, and how many at once
CALIBRATIONS = {"_int8": "entropy", "_int8_max": "max"}  # ending of a variant: how its activations are calibrated

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "phase", "variant", "canvases", "seed", "step")
COLUMNS = (*INDEX, "precision", "precision_50", "accuracy", "sparsity")


@dataclass(frozen=True)
class Task:
    """Describe one network on canvases of one kind of digits.

    Attributes:
        canvases: how many to learn from in phase 2, each number by itself.
        tested: canvases to test on.
        seeds: how many, from 0.
        first: one training session of phase 1.
        second: one training session of phase 2.
    """

    data: str
    network: str
    layout: CanvasLayout
    canvases: tuple[Count, ...]
    tested: Count
    seeds: Count
    first: Training
    second: FineTuning

    def __post_init__(self):
        refuse_unknown(self, data=("mnist", "digits"), network=NETWORKS)
        refuse_twice(canvases=self.canvases)


@dataclass(frozen=True)
class Settings:
    """Each task is a network on canvases."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return each_seed(settings.tasks)


def aliases(configuration: dict) -> list[dict]:
    """Return the form in which earlier sources keyed this configuration."""
    return before_precision(configuration, "second")


def units(configuration: dict) -> int:
    """Count the epochs of both phases in one configuration."""
    second = SESSIONS * configuration["second"]["epochs"] * len(configuration["canvases"])
    return 3 * configuration["first"]["epochs"] + second


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration, phase 1 first."""
    first = FirstPhase(configuration, context)
    build, channels = NETWORKS[configuration["network"]]
    torch.manual_seed(seed_of(first.seed))
    dense = first.session("dense", Classifier(build()).to(context.device), 0)
    twice = first.session("dense_twice", masked_copy(dense, {}), 1)
    pruned = masked_copy(dense, pruners.two_four(dense, "backbone"))
    first.record("pruned", pruned, first.settings.epochs)
    sparse = first.session("sparse", pruned, 1)
    backbones = {"dense": dense.backbone, "dense_twice": twice.backbone, "sparse": sparse.backbone}

    second = SecondPhase(configuration, channels, first.examples, context)
    for count in configuration["canvases"]:
        first.rows += [{**first.key, "phase": 2, "canvases": count, **row} for row in second.compare(backbones, count)]
    return first.rows


class FirstPhase:
    """Hold the sessions of the backbone on single digits, and the rows of them so far."""

    def __init__(self, configuration: dict, context: Context):
        self.key = {name: configuration[name] for name in KEYS}
        self.seed, self.settings, self.context = configuration["seed"], Training(**configuration["first"]), context
        self.examples = Examples.of(vision.load(configuration["data"]), context.device)
        self.rows: list[dict] = []

    def record(self, variant: str, model: nn.Module, step: int, accuracy: float | None = None) -> None:
        """Add a row; there are no canvases in phase 1."""
        if accuracy is None:
            accuracy = supervised.accuracy(model, self.examples, self.settings.precision)
        row = {**self.key, "phase": 1, "variant": variant, "canvases": 0, "step": step}
        self.rows.append(row | {"accuracy": accuracy, "sparsity": pruners.sparsity(model)})

    def session(self, variant: str, model: Classifier, number: int) -> Classifier:
        """Train the model itself and return it; sessions of the same number see the same batches."""
        history = supervised.train(
            model,
            self.examples,
            self.settings,
            self.seed,
            number,
            self.context.checkpoint(f"first_{variant}.pt"),
            on_progress=lambda: self.context.report_progress(f"phase 1, {variant}"),
        )
        for row in history:
            self.record(variant, model, number * self.settings.epochs + row["epoch"], row["accuracy"])
        return model


class SecondPhase:
    """Hold the canvases of all seeds, and the comparison for one number of them after another."""

    def __init__(self, configuration: dict, channels: int, examples: Examples, context: Context):
        self.layout = CanvasLayout(**configuration["layout"])
        made = {"train": max(configuration["canvases"]), "test": configuration["tested"]}
        self.parts = {
            part: canvases.load(configuration["data"], part, count, self.layout) for part, count in made.items()
        }
        self.tested = torch.from_numpy(self.parts["test"].images).to(context.device)
        self.settings, self.seed = FineTuning(**configuration["second"]), configuration["seed"]
        self.channels, self.scale, self.context = channels, examples.scaled, context

    def compare(self, backbones: Mapping[str, detector.Backbone], count: int) -> list[dict]:
        """Train and test all variants; a row has variant, step (of phase 2), precisions, sparsity.

        A run that was stopped goes on with the next number of canvases, see `kept_rows`.

        Args:
            backbones: of phase 1: dense, dense_twice and sparse; they are left as they are.
        """
        units = SESSIONS * self.settings.epochs
        return kept_rows(self.context, f"second_{count}", units, lambda: Comparison(self, count).variants(backbones))


class Comparison:
    """Train all variants for one number of canvases, and the rows so far.

    Attributes:
        outline: cells along a side of the outlines that are learned; 0: boxes alone are.
    """

    outline = 0

    def __init__(self, phase: SecondPhase, count: int):
        self.phase, self.count = phase, count
        self.schedule = phase.settings.schedule(count)
        read = phase.scale, phase.context.device
        self.draw = batches(phase.parts["train"], self.schedule.batch, *read, count, self.outline)
        self.rows: list[dict] = []

    def variants(self, backbones: Mapping[str, detector.Backbone]) -> list[dict]:
        """Train and record every variant."""
        second = self.second_repeated(backbones["dense"])
        once = self._session("dense_both", self._detector(backbones["dense_twice"]), 0, told=False)
        self._session("dense_both", once, 1)
        once = self._session("sparse_both", self._detector(backbones["sparse"]), 0, told=False)
        both = masked_copy(
            once, pruners.attached(once) | {n: m for n, m in pruners.two_four(once).items() if "backbone" not in n}
        )
        self._session("sparse_both", both, 1)
        for variant, model in second.items():
            self.quantise(variant, model)
        return self.rows

    def second_repeated(self, backbone: detector.Backbone) -> dict[str, Detector]:
        """Train a detector, prune it, and give both phase 2 a second time; return those two by variant."""
        dense = self._session("dense", self._detector(backbone), 0)
        second = self._session("dense_second", masked_copy(dense, {}), 1)
        pruned = masked_copy(dense, pruners.two_four(dense))
        self._record("pruned_second", pruned, self.schedule.steps)
        return {"dense_second": second, "sparse_second": self._session("sparse_second", pruned, 1)}

    def quantise(self, variant: str, model: Detector) -> None:
        """Record a detector that has had phase 2 twice in INT8, by each calibration."""
        images = self.phase.parts["train"].images[: min(self.count, CALIBRATED)]
        read = self.phase.scale(torch.from_numpy(images).to(self.phase.context.device))
        histograms = calibration.observe(model, read.split(CALIBRATION_BATCH))
        for name, method in CALIBRATIONS.items():
            amax = {layer: threshold(histogram, method) for layer, histogram in histograms.items()}
            self._record(variant + name, calibration.quantised(model, amax), 2 * self.schedule.steps, sized=model)

    def _detector(self, backbone: detector.Backbone) -> Detector:
        torch.manual_seed(seed_of(self.phase.seed, 1))
        return Detector(backbone, self.phase.channels, outline=self.outline).to(self.phase.context.device)

    def _session(self, variant: str, model: Detector, number: int, told: bool = True) -> Detector:
        """Train the model itself and return it; sessions of the same number see the same batches.

        Args:
            told: whether the model at the end of the session is a variant, with a row.
        """
        context = self.phase.context
        fit(
            model,
            self.draw,
            self.schedule,
            seed_of(self.phase.seed, 2),
            number,
            context.checkpoint(f"second_{self.count}_{variant}_{number}.pt"),
            identity={"variant": variant, "canvases": self.count},
            loss=DetectionLoss(model, self.phase.layout.side, context.device),
            on_progress=lambda: context.report_progress(f"phase 2, {self.count} canvases, {variant}"),
        )
        if told:
            self._record(variant, model, (number + 1) * self.schedule.steps)
        return model

    def _record(self, variant: str, model: nn.Module, step: int, sized: nn.Module | None = None) -> None:
        """Add a row; the sparsity is that of `sized`, for a quantised model the one it was made of."""
        strides = (sized or model).strides
        found = detect(model, strides, self.phase.tested, self.phase.scale)
        mean, half = average_precision(self.phase.parts["test"], found)
        row = {"variant": variant, "step": step, "precision": mean, "precision_50": half}
        if self.outline:
            row["mask_precision"], _ = average_precision(self.phase.parts["test"], found, outlines=True)
        self.rows.append(row | {"sparsity": pruners.sparsity(sized or model)})
