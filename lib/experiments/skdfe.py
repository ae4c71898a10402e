"""Self-knowledge distillation for speaker verification (paper 3, tables 3 to 5), beside distillation from a teacher.

One configuration is one network, one teacher, one data set and one seed. All its students start from the same weights
and see the same crops:

    teacher self    none, label, feature, both: equations 8 to 10 with alpha and beta; none is plain cross-entropy
    teacher named   label, mse, cosine: what a larger network says or embeds, trained first with plain cross-entropy.
                    It is the network of its own name that another configuration records as none

Every trial list gives a row with the test speakers as they are (draw 0) and one for each draw of them with replacement,
the same draws for every system: so systems can be compared draw by draw, over speakers and not over trials. Scores are
PLDA's, and the cosine's for comparison, both after the training mean is subtracted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from lib.data import speech
from lib.errors import BadInput
from lib.evaluation.sizes import parameters
from lib.evaluation.speaker import error_rates
from lib.jobs import Job
from lib.models.speaker import NETWORKS, SpeakerResNet
from lib.settings import refuse_twice, refuse_unknown
from lib.training.distillation import Learner, Taught, Training, Weights, new_classifier, train, with_self_teacher

SELF = "self"
BY_SELF = ("none", "label", "feature", "both")
BY_TEACHER = ("label", "mse", "cosine")

KEYS = ("data", "network", "teacher", "width", "seed")
INDEX = ("data", "network", "teacher", "distillation", "width", "seed", "trials", "draw", "epoch")
COLUMNS = (*INDEX, "parameters", "teacher_parameters", "eer", "min_dcf", "eer_cosine")


@dataclass(frozen=True)
class Task:
    """One network on one data set, and whom it learns from.

    Attributes:
        teacher: "self" or the network that is trained first.
        distillations: some of BY_SELF or BY_TEACHER.
        width: channels of the first stage, of the network and of a named teacher.
        teacher_width: channels of the self-teacher.
        alpha, beta: weights of the label and the feature term (equations 8 to 10).
        embedding: weight of the embedding terms.
        seeds: how many, from 0.
    """

    data: str
    network: str
    teacher: str
    distillations: tuple[str, ...]
    width: int
    seeds: int
    training: Training
    teacher_width: int = 256
    alpha: float = 1.0
    beta: float = 100.0
    embedding: float = 1.0

    def __post_init__(self):
        refuse_unknown(self, data=speech.NAMES, network=NETWORKS, teacher=(SELF, *NETWORKS))
        refuse_twice(distillations=self.distillations)
        if min(self.width, self.teacher_width) < 1:
            raise BadInput(f"width={self.width}, teacher_width={self.teacher_width} must both be 1 or more")
        known = BY_SELF if self.teacher == SELF else BY_TEACHER
        if odd := [name for name in self.distillations if name not in known]:
            raise BadInput(f"distillation {odd[0]!r}: from teacher {self.teacher} known are {', '.join(known)}")


@dataclass(frozen=True)
class Settings:
    """What is varied; `draws` is how often the test speakers are drawn anew."""

    draws: int
    tasks: tuple[Task, ...]

    def __post_init__(self):
        if self.draws < 2:
            raise BadInput(f"draws={self.draws}: an interval over speakers needs at least 2")


def configurations(settings: Settings) -> list[dict]:
    """The grid: a seed of a task each, with everything `run` needs."""
    return [
        {
            **{name: value for name, value in asdict(task).items() if name != "seeds"},
            "seed": seed,
            "draws": settings.draws,
        }
        for task in settings.tasks
        for seed in range(task.seeds)
    ]


def units(configuration: dict) -> int:
    """Epochs of training in one configuration."""
    systems = len(configuration["distillations"]) + (configuration["teacher"] != SELF)
    return configuration["training"]["epochs"] * systems


def run(configuration: dict, job: Job) -> list[dict]:
    """Train all students of one configuration; rows of each trial list and draw."""
    seed, settings = configuration["seed"], Training(**configuration["training"])
    width, teacher_name = configuration["width"], configuration["teacher"]
    data = speech.load(configuration["data"])
    key = {name: configuration[name] for name in KEYS}
    rows: list[dict] = []

    def session(name: str, learner: Learner) -> None:
        state = job.kept(f"{name}.pt")
        train(learner, data.train, settings, seed, job.device, state, lambda: job.advance(name))

    def record(distillation: str, network: SpeakerResNet, taught: int) -> None:
        """What the network does alone; whatever taught it is gone."""
        what = {**key, "distillation": distillation, "epoch": settings.epochs}
        sizes = {"parameters": parameters(network), "teacher_parameters": taught}
        rows.extend({**what, **sizes, **row} for row in error_rates(network, data, configuration["draws"], job.device))

    pretrained = None if teacher_name == SELF else new_classifier(teacher_name, width, data.speakers, seed)
    if pretrained is not None:
        session("teacher", pretrained)
    for distillation in configuration["distillations"]:
        student = new_classifier(configuration["network"], width, data.speakers, seed)
        if distillation == "none":
            learner, taught = student, 0
        elif pretrained is None:
            learner = with_self_teacher(
                student, configuration["teacher_width"], weights(configuration, distillation), seed
            )
            taught = parameters(learner.teacher)
        else:
            learner = Taught(student, pretrained, weights(configuration, distillation))
            taught = parameters(pretrained.network)
        session(distillation, learner)
        record(distillation, student.network, taught)
    return rows


def weights(configuration: dict, distillation: str) -> Weights:
    """The terms of one kind of distillation."""
    alpha, beta, embedding = (configuration[name] for name in ("alpha", "beta", "embedding"))
    return {
        "label": Weights(label=alpha),
        "feature": Weights(feature=beta),
        "both": Weights(label=alpha, feature=beta),
        "mse": Weights(mse=embedding),
        "cosine": Weights(cosine=embedding),
    }[distillation]
