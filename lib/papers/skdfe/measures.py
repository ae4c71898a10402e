"""Measure paper 3: error rates of systems and of one against another, with intervals, and what systems cost.

A system is a network, who teaches it and how: "resnet18/self/both". A cell is a list of trials and a width. Where
systems were trained by several schedules, those of one length are compared: of the longest one that has all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from lib.base import BadInput, refuse_twice
from lib.companion.pairs import refuse_wrong
from lib.companion.statistics import Interval
from lib.data.speech.filterbank import BANDS
from lib.models.bifpn import SelfTeacher
from lib.models.speaker_resnet import EMBEDDING, NETWORKS, SpeakerResNet
from lib.papers.skdfe.contrasts import log_interval
from lib.papers.skdfe.experiments.distillation import Classifier, DistillationWeights, SelfDistilled
from lib.papers.skdfe.experiments.skdfe import ERRORS, INDEX, OF_TEACHER
from lib.pruners import sizes
from lib.pruners.layers import prunable

DISTILLATIONS = ("none", "label", "feature", "both", "mse", "cosine")
CELL = ["data", "trials", "width"]
TWO_SESSIONS = ("retrained", "dense_twice")  # of `skdfe_two_four`, both as long
RATIOS = {"ratio": "eer_cosine", "gap": "teacher_eer"}  # of the EER to that without PLDA, and to the teacher's


def error(runs: pd.DataFrame, system: str, column: str = "eer", trials: str | None = None) -> dict[str, Interval]:
    """Measure a system's error, the mean over seeds: {"data/trials, width 16": interval}.

    The epochs are named, too, where the cell has several schedules.

    Args:
        runs: one row a seed, list of trials and draw of the test speakers; draw 0 is the speakers as they are.
        column: eer, eer_cosine (percent), min_dcf, or gap, the EER as a multiple of the teacher's.
        trials: the list that counts; None: each.
    """
    found = _contrasts(runs, {system: 1.0}, column, trials)
    return {cell: one.through(np.exp) for cell, one in found.items()}


def improvement(
    runs: pd.DataFrame,
    systems: Sequence[str],
    over: Sequence[str],
    column: str = "eer",
    trials: str | None = None,
    without: Sequence[str] = (),
    paired: bool = False,
) -> dict[str, Interval]:
    """Measure how much smaller one system's error is than another's, in percent of the other's; below 0 it is larger.

    Of several systems a side the geometric mean counts. Lists of trials that lack one of them are left out.

    Args: as `error`, and
        without: lists of trials that do not count.
        paired: systems of one seed branch off from one training (see `log_interval`).

    Raises:
        BadInput: no system on one of the sides, or one twice.
    """
    refuse_twice(systems=[*systems, *over])
    if not systems or not over:
        raise BadInput(f"systems={list(systems)}, over={list(over)}: expected one or more on each side")
    runs = runs[~runs.trials.isin(without)]
    contrast = {name: 1 / len(systems) for name in systems} | {name: -1 / len(over) for name in over}
    return {cell: one.through(_fewer) for cell, one in _contrasts(runs, contrast, column, trials, paired).items()}


def on_shared_lists(runs: pd.DataFrame) -> pd.DataFrame:
    """Keep the lists of trials and lengths of training that every system has, so that a figure of one has them all."""
    systems = runs.network + "/" + runs.teacher + "/" + runs.distillation
    place = [runs.trials, runs.epoch]
    return runs[systems.groupby(place).transform("nunique") == systems.nunique()]


def gain_of_plda(runs: pd.DataFrame) -> dict[str, Interval]:
    """Measure how much smaller the equal error rate is by PLDA than by cosine, in percent: geometric mean of all
    systems.
    """
    found = {}
    for cell, schedule, errors in _errors(runs, "ratio"):
        names = errors.index.unique("system")
        shared = errors.groupby("seed").size() == len(names)  # seeds of every system
        errors = errors[errors.index.get_level_values("seed").isin(shared.index[shared])]
        of_all = dict.fromkeys(names, 1 / len(names))  # of one sign: what the systems of a seed share does not cancel
        if shared.any():
            found[cell + schedule] = log_interval(errors, of_all, paired=True).through(_fewer)
    return found


def of_variants(runs: pd.DataFrame) -> pd.DataFrame:
    """Take the rows of the experiment `skdfe_two_four` with systems named "resnet18/both/retrained": the variant comes
    last, and epochs are those of one session, of which some variants have two.
    """
    epochs = runs.epoch.where(~runs.variant.isin(TWO_SESSIONS), runs.epoch // 2)
    return runs.assign(teacher=runs.distillation, distillation=runs.variant, epoch=epochs)


def retrained(runs: pd.DataFrame, network: str, taught: str, over: str, column: str = "eer") -> dict[str, Interval]:
    """Compute the `improvement` of the network that was pruned 2:4 and trained again over another variant of it.

    All variants of a seed branch off from one training, so they are compared seed by seed.

    Args:
        runs: of `skdfe_two_four`.
        taught: "both" or "none".
        over: dense, pruned or dense_twice.
    """
    own, rival = (f"{network}/{taught}/{variant}" for variant in ("retrained", over))
    return improvement(of_variants(runs), [own], [rival], column, paired=True)


def table(runs: pd.DataFrame) -> pd.DataFrame:
    """Tabulate all systems, one row each and cell, plain networks first (tables 3 to 5).

    Returns:
        Columns data, trials, width, system, epoch, parameters, teacher_parameters, and as intervals eer, min_dcf and
        eer_cosine.
    """
    rows = []
    for (*cell, _), of_cell in _named(runs).groupby([*CELL, "epoch"]):
        once = of_cell.drop_duplicates("system").sort_values("system", key=lambda names: names.map(_rank))
        for row in once[["system", "epoch", "parameters", "teacher_parameters"]].to_dict("records"):
            columns = {name: error(of_cell, row["system"], name) for name in ("eer", "min_dcf", "eer_cosine")}
            intervals = {name: one for name, found in columns.items() for one in found.values()}
            rows.append(dict(zip(CELL, cell, strict=True)) | row | intervals)
    return pd.DataFrame(rows)


def worst_percentage(printed: Sequence[Sequence[float]], unit: float = 0.0) -> float:
    """Compare relative improvements as a text states them with those of its table: the largest difference in points.

    Args:
        printed: (error before, error after, improvement in percent) each.
        unit: of the last digit of the errors. They were rounded to it, so each may be half of it larger or smaller, and
            an improvement that some such errors have is no difference.
    """
    half, gaps = unit / 2, []
    for before, after, percent in printed:
        least = 100 * (1 - (after + half) / (before - half))
        most = 100 * (1 - (after - half) / (before + half))
        gaps.append(max(least - percent, percent - most, 0.0))
    return max(gaps)


def _contrasts(
    runs: pd.DataFrame, contrast: Mapping[str, float], column: str, trials: str | None, paired: bool = False
) -> dict[str, Interval]:
    """`log_interval` in each cell that has all of the systems, by the longest schedule that has several seeds of each,
    or else by the longest.
    """
    if odd := [name for name in contrast if name.count("/") != 2]:
        raise BadInput(f"system {odd[0]!r}: expected network/teacher/distillation")
    chosen = runs if trials is None else runs[runs.trials == trials]
    longest: dict[str, tuple[str, Interval]] = {}
    for cell, schedule, errors in _errors(chosen, column):
        if set(contrast) <= set(errors.index.unique("system")):
            one = log_interval(errors, contrast, paired=paired)
            if one.seeds > 1 or cell not in longest or longest[cell][1].seeds == 1:
                longest[cell] = cell + schedule, one
    return dict(longest.values())


def _errors(runs: pd.DataFrame, column: str) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """For each cell and schedule, the shortest first: the cell's name, the schedule's where the cell has several, and
    what `log_interval` takes, where they have the column (not all have a gap).

    Raises:
        WentWrong: an error that is no number.
    """
    named = _named(runs)
    for (data, trials, width), cell in (named[named.teacher_eer.notna()] if column == "gap" else named).groupby(CELL):
        for epochs, rows in cell.groupby("epoch"):
            errors = rows.set_index(["system", "seed", "draw"])[column]
            refuse_wrong(errors)
            schedule = f", {epochs} epochs" if cell.epoch.nunique() > 1 else ""
            yield f"{data}/{trials}, width {width}", schedule, errors.unstack("draw")


def _named(runs: pd.DataFrame) -> pd.DataFrame:
    """Name the systems, teachers included, and add RATIOS."""
    runs = _with_teachers(runs) if "teacher_eer" in runs else runs
    ratios = {name: runs.eer / runs[under] for name, under in RATIOS.items() if under in runs}
    return runs.assign(system=runs.network + "/" + runs.teacher + "/" + runs.distillation, **ratios)


def _with_teachers(runs: pd.DataFrame) -> pd.DataFrame:
    """Add rows for pretrained teachers that no task has trained under their own names; what such a network does stands
    beside its students' errors. It learned from nobody: "resnet34/self/none".
    """
    taught = runs[(runs.teacher != "self") & runs.teacher_eer.notna()]
    own = {"network": taught.teacher, "teacher": "self", "distillation": "none"}
    sizes = {"parameters": taught.teacher_parameters, "teacher_parameters": 0}
    errors = {name: taught[f"teacher_{name}"] for name in ERRORS}
    nobody = dict.fromkeys(OF_TEACHER, np.nan)
    return pd.concat([runs, taught.assign(**own, **sizes, **errors, **nobody)]).drop_duplicates(
        [*INDEX], ignore_index=True
    )


def _rank(system: str) -> tuple:
    """The papers' order: who is taught nothing, by the self-teacher, by another network."""
    network, teacher, distillation = system.split("/")
    return distillation != "none", teacher != "self", teacher, network, DISTILLATIONS.index(distillation)


def _fewer(logarithm: float) -> float:
    return 100 * (1 - np.exp(logarithm))


@dataclass(frozen=True)
class Cost:
    """Hold what it takes to make one student.

    Attributes:
        sessions: trainings one after the other, the student's own included.
        trained, held: parameters that the student's session changes, and all that it has in memory, each network with
            its classifier.
        step: multiply-accumulates of a training step in the student's session, for one crop.
        total: those of all sessions, for one crop in each.
        inference: those of the student alone, for one utterance as long as a crop.
    """

    sessions: int
    trained: int
    held: int
    step: int
    total: int
    inference: int


class _Jointly(nn.Module):
    """A student and its self-teacher, as they run in training."""

    def __init__(self, student: SpeakerResNet, teacher: SelfTeacher):
        super().__init__()
        self.student, self.teacher = student, teacher

    def forward(self, features: Tensor) -> Tensor:
        maps = self.student.maps(features)
        self.student.embed(maps)
        return self.teacher(maps)[1]


def training_cost(
    network: str, teacher: str, width: int = 32, teacher_width: int = 256, frames: int = 300, speakers: int = 5994
) -> Cost:
    """Compute the cost of one student; the defaults are the paper's networks, crops, and VoxCeleb2's speakers to learn
    from.

    A step runs forward once and costs twice that again backward, in whatever is trained: the gradients of its inputs
    and of its weights. A pretrained teacher runs forward only, but has had a session of its own, taken to be as long.
    Norms, activations, losses and the optimizer are left out.

    Args:
        teacher: "none", "self", or the network that is trained first.
        width: channels of the first stage, of the network and of a named teacher.
        teacher_width: channels of the self-teacher.
    """
    student = _network(network, width)
    head = EMBEDDING * speakers
    inference = _forward(student, frames)
    alone, size = inference + head, sizes.parameters(student) + head + speakers
    if teacher == "none":
        return Cost(1, size, size, 3 * alone, 3 * alone, inference)
    if teacher == "self":
        with torch.device("meta"):
            both = _Jointly(student, SelfTeacher(student.channels, teacher_width))
        size = sizes.parameters(both) + 2 * (head + speakers)
        step = 3 * (_forward(both, frames) + 2 * head)
        return Cost(1, size, size, step, step, inference)
    large = _network(teacher, width)
    forward = _forward(large, frames) + head
    held = size + sizes.parameters(large) + head + speakers
    return Cost(2, size, held, 3 * alone + forward, all_training(alone, forward, pretrained=True), inference)


def all_training(student: int, teacher: int, pretrained: bool) -> int:
    """Count the multiply-accumulates of all training for one crop, from those of one pass of the student and of its
    teacher.

    A self-teacher is trained with the student; a pretrained one was trained alone before, on as many crops.
    """
    return 3 * student + (1 + 3) * teacher if pretrained else 3 * (student + teacher)


def parameters(network: str) -> float:
    """Count the parameters of one of the paper's networks at its own width, without the classifier, in millions."""
    return sizes.parameters(_network(network)) / 1e6


def fewer_parameters(network: str, than: str) -> float:
    """Count the parameters that one network has less than another, in percent of the other's."""
    return 100 * (1 - parameters(network) / parameters(than))


def fewer_when_distilled(network: str, teacher_width: int = 256) -> float:
    """Count the parameters that a network has less for having learned from its self-teacher, in percent.

    Of the student and the self-teacher that are trained together (section 3.2) the student's network alone is used
    afterwards, without either classifier; it is held against the plain network.

    Raises:
        BadInput: a network that is not one of the paper's.
    """
    plain = _network(network)
    student = _network(network)
    with torch.device("meta"):
        teacher = SelfTeacher(student.channels, teacher_width)
        trained = SelfDistilled(Classifier(student, 1), teacher, DistillationWeights())  # the count leaves heads out
    return 100 * (1 - sizes.parameters(trained.student.network) / sizes.parameters(plain))


def share_of_cost(network: str, teacher: str, width: int = 32, teacher_width: int = 256) -> float:
    """Compute the multiply-accumulates of all training with a self-teacher, in percent of those with a teacher trained
    first.
    """
    with_self = training_cost(network, "self", width, teacher_width)
    return 100 * with_self.total / training_cost(network, teacher, width, teacher_width).total


def _network(name: str, width: int = 32) -> SpeakerResNet:
    if name not in NETWORKS:
        raise BadInput(f"network {name!r}: known are {', '.join(NETWORKS)}")
    with torch.device("meta"):  # shapes without numbers: nothing is computed, only counted
        return NETWORKS[name](width=width)


def _forward(model: nn.Module, frames: int) -> int:
    """Multiply-accumulates of one pass."""
    uses = sizes.positions(model, (frames, BANDS))
    return round(sum(layer.weight.numel() * uses[layer.name] for layer in prunable(model)))
