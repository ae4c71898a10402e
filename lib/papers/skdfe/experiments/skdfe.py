"""Train speakers' networks by self-knowledge distillation (paper 3, tables 3 to 5), beside distillation from a teacher.

One configuration is one network, one teacher, one data set, one length of training and one seed. All its students start
from the same weights and see the same crops:

    teacher self    none, label, feature, both: equations 8 to 10 with alpha and beta; none is plain cross-entropy
    teacher named   label, mse, cosine: what a larger network says or embeds, trained first with plain cross-entropy.
                    It is the network of its own name that another configuration records as none

Every trial list gives a row with the test speakers as they are (draw 0) and one for each draw of them with replacement,
the same draws for every system: so systems can be compared draw by draw, over speakers and not over trials. Scores are
PLDA's, and the cosine's for comparison, both after the training mean is subtracted. Beside a student's errors stand
those of whoever taught it, on the same trials and draws: they say what gap is left between the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pandas as pd
from torch import nn

from lib.base import BadInput, Count, refuse_twice, refuse_uncounted, refuse_unknown
from lib.companion.sweep.context import Context
from lib.data import speech
from lib.models.bifpn import SelfTeacherEmbedding
from lib.models.speaker_resnet import NETWORKS, SpeakerResNet
from lib.papers.skdfe.experiments.distillation import (
    DistillationTraining,
    DistillationWeights,
    Learner,
    TeacherDistilled,
    new_classifier,
    train,
    with_self_teacher,
)
from lib.papers.skdfe.experiments.scoring import error_rates
from lib.pruners.sizes import parameters

SELF = "self"
BY_SELF = ("none", "label", "feature", "both")
BY_TEACHER = ("label", "mse", "cosine")

KEYS = ("data", "network", "teacher", "width", "seed", "epoch")
INDEX = ("data", "network", "teacher", "distillation", "width", "seed", "trials", "draw", "epoch")
ERRORS = ("eer", "min_dcf", "eer_cosine")
OF_TEACHER = tuple(f"teacher_{name}" for name in ERRORS)
COLUMNS = (*INDEX, "parameters", "teacher_parameters", *ERRORS, *OF_TEACHER)


@dataclass(frozen=True)
class Task:
    """Describe one network on one data set, and whom it learns from.

    Attributes:
        teacher: "self" or the network that is trained first.
        distillations: some of BY_SELF or BY_TEACHER.
        width: channels of the first stage, of the network and of a named teacher.
        teacher_width: channels of the self-teacher.
        alpha, beta: weights of the label and the feature term (equations 8 to 10).
        mse, cosine: weights of the embedding terms, which the paper does not print; `embedding_weights` chooses them on
            held-out training speakers, and where params.yaml says that it has not, the defaults stand.
        seeds: how many.
        first_seed: the first of them, for more seeds of some of the systems that another task has.
    """

    data: str
    network: str
    teacher: str
    distillations: tuple[str, ...]
    width: int
    seeds: Count
    training: DistillationTraining
    teacher_width: int = 256
    alpha: float = 1.0
    beta: float = 100.0
    mse: float = 0.1
    cosine: float = 0.1
    first_seed: int = 0

    def __post_init__(self):
        refuse_uncounted(0, first_seed=self.first_seed)
        refuse_unknown(self, data=speech.NAMES, network=NETWORKS, teacher=(SELF, *NETWORKS))
        refuse_twice(distillations=self.distillations)
        if min(self.width, self.teacher_width) < 1:
            raise BadInput(f"width={self.width}, teacher_width={self.teacher_width} must both be 1 or more")
        known = BY_SELF if self.teacher == SELF else BY_TEACHER
        if odd := [name for name in self.distillations if name not in known]:
            raise BadInput(f"distillation {odd[0]!r}: from teacher {self.teacher} known are {', '.join(known)}")
        DistillationWeights(label=self.alpha, feature=self.beta, mse=self.mse, cosine=self.cosine)  # refuses bad ones


@dataclass(frozen=True)
class Validation:
    """Say how the weights of the embedding terms are chosen, see `embedding_weights`.

    Attributes:
        speakers: how many of the training speakers are held out to be judged on.
        seeds: how many, from 0; a seed draws the speakers too.
        epochs: of each training session, in place of a task's.
        mse, cosine: the weights to choose from.
    """

    speakers: int
    seeds: int
    epochs: int
    mse: tuple[float, ...]
    cosine: tuple[float, ...]

    def __post_init__(self):
        if min(self.speakers - 1, self.seeds, self.epochs) < 1:
            given = f"speakers={self.speakers}, seeds={self.seeds}, epochs={self.epochs}"
            raise BadInput(f"validation: {given}: expected 2 speakers or more, and 1 or more of the others")
        refuse_twice(mse=self.mse, cosine=self.cosine)
        if min(*self.mse, *self.cosine) <= 0:
            raise BadInput(f"validation: mse={self.mse}, cosine={self.cosine}: expected weights above 0")


@dataclass(frozen=True)
class Settings:
    """Hold what is varied.

    Attributes:
        draws: how often the test speakers are drawn anew.
        validation: how weights are chosen before anything is run; None: they are not.
    """

    draws: int
    tasks: tuple[Task, ...]
    validation: Validation | None = None

    def __post_init__(self):
        if self.draws < 2:
            raise BadInput(f"draws={self.draws}: an interval over speakers needs at least 2")


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs; all tasks at one seed before the next."""
    return [
        {
            **{name: value for name, value in asdict(task).items() if name not in ("seeds", "first_seed")},
            "seed": seed,
            "epoch": task.training.epochs,  # tells two schedules of one network apart
            "draws": settings.draws,
        }
        for seed in range(max((task.first_seed + task.seeds for task in settings.tasks), default=0))
        for task in settings.tasks
        if task.first_seed <= seed < task.first_seed + task.seeds
    ]


def aliases(configuration: dict) -> list[dict]:
    """List the earlier forms of a configuration: the epochs once stood in `training` alone, and before that both
    embedding terms shared the weight `embedding`.
    """
    without_epoch = {name: value for name, value in configuration.items() if name != "epoch"}
    others = {name: value for name, value in without_epoch.items() if name not in ("mse", "cosine")}
    used = {configuration[name] for name in configuration["distillations"] if name in ("mse", "cosine")}
    shared = [others | {"embedding": used.pop() if used else 1.0}] if len(used) < 2 else []
    return [without_epoch, *shared]


def upgrade(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the columns that an earlier file lacks: the errors of whoever taught were not recorded."""
    return rows.assign(**{name: float("nan") for name in OF_TEACHER if name not in rows})


def units(configuration: dict) -> int:
    """Count the epochs of training in one configuration."""
    systems = len(configuration["distillations"]) + (configuration["teacher"] != SELF)
    return configuration["training"]["epochs"] * systems


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all students of one configuration and return rows of each trial list and draw."""
    seed, settings = configuration["seed"], DistillationTraining(**configuration["training"])
    width, teacher_name = configuration["width"], configuration["teacher"]
    data = speech.load(configuration["data"])
    key = {name: configuration[name] for name in KEYS}
    rows: list[dict] = []

    def session(name: str, learner: Learner) -> None:
        state = context.checkpoint(f"{name}.pt")
        train(learner, data.train, settings, seed, context.device, state, lambda: context.report_progress(name))

    def errors(network: nn.Module) -> list[dict]:
        return error_rates(network, data, configuration["draws"], context.device)

    def record(distillation: str, network: SpeakerResNet, size: int, of_teacher: Sequence[dict]) -> None:
        """Add what the network does alone, beside the errors of whoever taught it."""
        what = {**key, "distillation": distillation}
        sizes = {"parameters": parameters(network), "teacher_parameters": size}
        rows.extend({**what, **sizes, **row} for row in beside(errors(network), of_teacher))

    pretrained, taught = None, []
    if teacher_name != SELF:
        pretrained = new_classifier(teacher_name, width, data.speakers, seed)
        session("teacher", pretrained)
        taught = errors(pretrained.network)
    for distillation in configuration["distillations"]:
        student = new_classifier(configuration["network"], width, data.speakers, seed)
        if distillation == "none":
            session(distillation, student)
            record(distillation, student.network, 0, [])
        elif pretrained is None:
            loss = weights(configuration, distillation)
            learner = with_self_teacher(student, configuration["teacher_width"], loss, seed)
            session(distillation, learner)
            own = errors(SelfTeacherEmbedding(student.network, learner.teacher))
            record(distillation, student.network, parameters(learner.teacher), own)
        else:
            session(distillation, TeacherDistilled(student, pretrained, weights(configuration, distillation)))
            record(distillation, student.network, parameters(pretrained.network), taught)
    return rows


def beside(own: Sequence[dict], of_teacher: Sequence[dict]) -> list[dict]:
    """Put a teacher's errors into a student's rows of the same trials and draw; without a teacher they are NaN."""
    found = {(row["trials"], row["draw"]): row for row in of_teacher}
    nothing = dict.fromkeys(ERRORS, float("nan"))
    return [
        row | {f"teacher_{name}": found.get((row["trials"], row["draw"]), nothing)[name] for name in ERRORS}
        for row in own
    ]


def weights(configuration: dict, distillation: str) -> DistillationWeights:
    """Give the terms of one kind of distillation their weights."""
    alpha, beta = configuration["alpha"], configuration["beta"]
    return {
        "label": DistillationWeights(label=alpha),
        "feature": DistillationWeights(feature=beta),
        "both": DistillationWeights(label=alpha, feature=beta),
        "mse": DistillationWeights(mse=configuration["mse"]),
        "cosine": DistillationWeights(cosine=configuration["cosine"]),
    }[distillation]
