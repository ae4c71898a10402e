"""Prune a distilled speaker network 2:4 on top: do two ways of making a network cheap add up? Beyond papers 2 and 3.

One configuration is a network, a distillation and a seed, trained into

    dense        one training session, with the self-teacher or without it
    pruned       its weights with 2 of every 4 removed by magnitude, not trained further
    retrained    pruned, then the same session again: the workflow of paper 2; a self-teacher goes on teaching
    dense_twice  the dense network given the second session too, the fair rival of retrained

Rows are those of `skdfe`: the test speakers as they are (draw 0), and draws of them.
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass

from lib import pruners
from lib.base import BadInput, Count, refuse_twice, refuse_unknown
from lib.companion.sweep.context import Context
from lib.data import speech
from lib.models.speaker_resnet import NETWORKS
from lib.papers.skdfe.experiments.distillation import (
    Classifier,
    DistillationTraining,
    DistillationWeights,
    Learner,
    SelfDistilled,
    new_classifier,
    train,
    with_self_teacher,
)
from lib.papers.skdfe.experiments.scoring import error_rates
from lib.pruners.sizes import parameters

KEYS = ("data", "network", "distillation", "width", "seed")
INDEX = ("data", "network", "distillation", "variant", "width", "seed", "trials", "draw", "epoch")
COLUMNS = (*INDEX, "parameters", "sparsity", "eer", "min_dcf", "eer_cosine")


@dataclass(frozen=True)
class Task:
    """Describe one network on one data set.

    Attributes:
        distillations: "none" for plain cross-entropy, "both" for label and feature distillation from a self-teacher.
        width: channels of the first stage; `teacher_width`: of the self-teacher.
        alpha, beta: weights of the label and the feature term (paper 3, equation 10).
        seeds: how many, from 0.
        training: of each session.
    """

    data: str
    network: str
    distillations: tuple[str, ...]
    width: int
    teacher_width: int
    seeds: Count
    training: DistillationTraining
    alpha: float = 1.0
    beta: float = 100.0

    def __post_init__(self):
        refuse_unknown(self, data=speech.NAMES, network=NETWORKS)
        refuse_twice(distillations=self.distillations)
        if min(self.width, self.teacher_width) < 1:
            raise BadInput(f"width={self.width}, teacher_width={self.teacher_width} must both be 1 or more")
        if odd := [name for name in self.distillations if name not in ("none", "both")]:
            raise BadInput(f"distillation {odd[0]!r}: known are none, both")
        DistillationWeights(label=self.alpha, feature=self.beta)  # refuses bad ones


@dataclass(frozen=True)
class Settings:
    """Hold what is varied; `draws` is how often the test speakers are drawn anew."""

    draws: int
    tasks: tuple[Task, ...]

    def __post_init__(self):
        if self.draws < 2:
            raise BadInput(f"draws={self.draws}: an interval over speakers needs at least 2")


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed and distillation of a task each, with everything `run` needs."""
    return [
        {**asdict(task), "distillation": distillation, "seed": seed, "draws": settings.draws}
        for task in settings.tasks
        for distillation in task.distillations
        for seed in range(task.seeds)
    ]


def units(configuration: dict) -> int:
    """Count the epochs of training in one configuration."""
    return 3 * configuration["training"]["epochs"]


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration and return rows of each trial list and draw."""
    seed, settings = configuration["seed"], DistillationTraining(**configuration["training"])
    data = speech.load(configuration["data"])
    key = {name: configuration[name] for name in KEYS}
    rows: list[dict] = []

    def record(variant: str, learner: Learner, epoch: int) -> None:
        network = student(learner).network
        sizes = {"parameters": parameters(network), "sparsity": pruners.sparsity(network)}
        what = {**key, "variant": variant, "epoch": epoch, **sizes}
        rows.extend({**what, **row} for row in error_rates(network, data, configuration["draws"], context.device))

    def session(variant: str, learner: Learner, epoch: int) -> None:
        state = context.checkpoint(f"{variant}.pt")
        train(learner, data.train, settings, seed, context.device, state, lambda: context.report_progress(variant))
        record(variant, learner, epoch)

    dense = learner_of(configuration, data.speakers)
    session("dense", dense, settings.epochs)
    pruned = copy.deepcopy(dense)
    network = student(pruned).network
    pruners.attach(network, pruners.two_four(network))
    record("pruned", pruned, settings.epochs)
    session("retrained", pruned, 2 * settings.epochs)
    session("dense_twice", dense, 2 * settings.epochs)
    return rows


def learner_of(configuration: dict, speakers: int) -> Learner:
    """Return a new student with its classifier, beside a self-teacher if it is to have one."""
    seed = configuration["seed"]
    alone = new_classifier(configuration["network"], configuration["width"], speakers, seed)
    if configuration["distillation"] == "none":
        return alone
    weights = DistillationWeights(label=configuration["alpha"], feature=configuration["beta"])
    return with_self_teacher(alone, configuration["teacher_width"], weights, seed)


def student(learner: Learner) -> Classifier:
    """Return the part that stays after training."""
    return learner.student if isinstance(learner, SelfDistilled) else learner
