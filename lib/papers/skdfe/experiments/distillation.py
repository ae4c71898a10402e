"""Learn from a teacher: one's own refined features (paper 3, section 3.2), or a larger network (section 5.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from lib.base import BadInput, naming, refuse_outside, refuse_uncounted
from lib.data.speech.utterances import Utterances
from lib.models.bifpn import SelfTeacher
from lib.models.speaker_resnet import EMBEDDING, NETWORKS, SpeakerResNet
from lib.training.checkpoints import Session, checksum
from lib.training.examples import in_batches
from lib.training.precision import autocast, check
from lib.training.seeds import seed_of
from lib.training.supervised import learning_rate


@dataclass(frozen=True)
class DistillationTraining:
    """Hold the settings of one training session; the paper states only `frames` (300), the rest is ours.

    Attributes:
        epochs: passes over the utterances, one crop of each.
        batch: utterances a step; the last batch of an epoch may be smaller.
        frames: length of a crop.
        learning_rate: of AdamW, the rate that half a cosine lowers to zero over all epochs, from the first on.
        warmup: epochs in which the rate is multiplied besides by a factor that rises linearly to 1, as in
            `supervised.learning_rate`: in a training that is all warm-up (the quick scale) the rate reaches about a
            quarter of its value.
        weight_decay: of AdamW.
        precision: "float32", or "bfloat16" for autocast.
    """

    epochs: int
    batch: int
    frames: int
    learning_rate: float
    warmup: float = 1.0
    weight_decay: float = 0.01
    precision: str = "float32"

    def __post_init__(self):
        with naming("training"):
            refuse_uncounted(epochs=self.epochs, batch=self.batch, frames=self.frames)
            refuse_outside("(0, inf)", learning_rate=self.learning_rate)
            refuse_outside("[0, inf)", warmup=self.warmup, weight_decay=self.weight_decay)
        if self.warmup > self.epochs:
            raise BadInput(f"training: warmup={self.warmup} must not be longer than epochs={self.epochs}")
        check(self.precision, "training")


@dataclass(frozen=True)
class DistillationWeights:
    """Hold the weight of each distillation term beside cross-entropy; a term of weight 0 is left out.

    Attributes:
        label: alpha of equation 8, and for a pretrained teacher.
        feature: beta of equation 9.
        mse, cosine: on embeddings, from a pretrained teacher.
        temperature: of the label term (the paper: 1; FRSKD: 4).
        form: of the feature term, see `feature_loss`.
    """

    label: float = 0.0
    feature: float = 0.0
    mse: float = 0.0
    cosine: float = 0.0
    temperature: float = 1.0
    form: str = "mean"

    def __post_init__(self):
        weights = (self.label, self.feature, self.mse, self.cosine)
        if not (all(0 <= weight < math.inf for weight in weights) and 0 < self.temperature < math.inf):
            expected = "weights must be 0 or more and finite, the temperature positive"
            raise BadInput(f"distillation: {expected}; found {self}")
        if self.form not in ("mean", "norm"):
            raise BadInput(f"distillation: form={self.form!r}: known are mean, norm")


def label_loss(logits: Tensor, targets: Tensor, temperature: float = 1.0) -> Tensor:
    """Return the mean cross-entropy with the teacher's posteriors (equation 6). [N, classes] twice -> scalar

    It is the Kullback-Leibler divergence but for the teacher's entropy, which gives the student no gradient. Above a
    temperature of 1 it is multiplied by the square of it, which keeps the size of gradients (Hinton et al. 2015).
    """
    soft = (targets.detach().float() / temperature).softmax(1)  # bfloat16 would round the posteriors
    return temperature**2 * F.cross_entropy(logits.float() / temperature, soft)


def attention_map(hidden: Tensor) -> Tensor:
    """Average a map's squares over channels and scale the result to length 1. [N, C, F, T] -> [N, F T]"""
    return F.normalize(hidden.float().square().mean(1).flatten(1), dim=1)


def feature_loss(maps: Sequence[Tensor], targets: Sequence[Tensor], form: str = "mean") -> Tensor:
    """Sum over stages how far the student's attention map is from the teacher's (equation 7).

    Args:
        form: "mean": of squared differences over positions and examples, to which weights of 100 or 200 belong (the
            code of the method's origin); "norm": the length of the difference, as equation 7 prints, mean over
            examples: hundreds of times as large, about 380 times for a small untrained student and crops of 140
            frames (notebook 31), more for longer crops or a ResNet18.
    """
    apart = [attention_map(own) - attention_map(target.detach()) for own, target in zip(maps, targets, strict=True)]
    if form == "mean":
        return sum(difference.square().mean() for difference in apart)
    return sum(torch.linalg.vector_norm(difference, dim=1).mean() for difference in apart)


def embedding_mse(embedding: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared distance of the embeddings (Wang et al. 2019). [N, size] twice -> scalar"""
    return (embedding.float() - target.detach().float()).square().sum(1).mean()


def embedding_cosine(embedding: Tensor, target: Tensor) -> Tensor:
    """Return the mean of 1 - cosine of the embeddings (Wang et al. 2019). [N, size] twice -> scalar"""
    return (1 - F.cosine_similarity(embedding.float(), target.detach().float())).mean()


class ClassifierOutputs(NamedTuple):
    """Hold what a classifier of speakers computes: the stages' maps, the embedding and the logits."""

    maps: list[Tensor]
    embedding: Tensor
    logits: Tensor


class Classifier(nn.Module):
    """An embedding network is followed by a linear layer that tells the training speakers apart.

    Only `network` is used after training, whatever it has learned from.
    """

    def __init__(self, network: SpeakerResNet, speakers: int):
        super().__init__()
        self.network = network
        self.head = nn.Linear(EMBEDDING, speakers)

    def forward(self, features: Tensor) -> ClassifierOutputs:
        """Compute maps, embedding and logits of features [N, frames, bands]."""
        maps = self.network.maps(features)
        embedding = self.network.embed(maps)
        return ClassifierOutputs(maps, embedding, self.head(embedding))

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Return the cross-entropy with the labels. [N, frames, bands], [N] -> scalar"""
        return F.cross_entropy(self(features).logits, labels)


class SelfDistilled(nn.Module):
    """A student is trained jointly with the self-teacher that refines its features (equations 8-10).

    The self-teacher's own cross-entropy reaches the student through its features; only what the student is to imitate
    is held fixed.
    """

    def __init__(self, student: Classifier, teacher: SelfTeacher, weights: DistillationWeights):
        super().__init__()
        self.student, self.teacher, self.weights = student, teacher, weights
        self.head = nn.Linear(EMBEDDING, student.head.out_features)

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Add both cross-entropies and the distillation terms (equation 10). [N, frames, bands], [N] -> scalar"""
        own = self.student(features)
        refined, embedding = self.teacher(own.maps)
        logits = self.head(embedding)
        total = F.cross_entropy(own.logits, labels) + F.cross_entropy(logits, labels)
        if self.weights.label:
            total = total + self.weights.label * label_loss(own.logits, logits, self.weights.temperature)
        if self.weights.feature:
            total = total + self.weights.feature * feature_loss(own.maps, refined, self.weights.form)
        return total


class TeacherDistilled(nn.Module):
    """A student learns from a pretrained teacher, which stays as it is: its parameters get no gradient from now on."""

    def __init__(self, student: Classifier, teacher: Classifier, weights: DistillationWeights):
        super().__init__()
        self.student, self.teacher, self.weights = student, teacher.requires_grad_(False), weights

    def train(self, mode: bool = True) -> TeacherDistilled:
        """Set the mode as of any module, but leave the teacher in evaluation mode."""
        super().train(mode)
        self.teacher.eval()  # or its batch norms would learn
        return self

    def checksum(self) -> int:
        """Tell this teacher from others, for a kept session."""
        total = 0
        for value in self.teacher.state_dict().values():
            total = checksum(value, total)
        return total

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        """Add the fixed teacher's terms to the cross-entropy. [N, frames, bands], [N] -> scalar"""
        own = self.student(features)
        with torch.no_grad():
            target = self.teacher(features)
        total = F.cross_entropy(own.logits, labels)
        if self.weights.label:
            total = total + self.weights.label * label_loss(own.logits, target.logits, self.weights.temperature)
        if self.weights.mse:
            total = total + self.weights.mse * embedding_mse(own.embedding, target.embedding)
        if self.weights.cosine:
            total = total + self.weights.cosine * embedding_cosine(own.embedding, target.embedding)
        return total


Learner = Classifier | SelfDistilled | TeacherDistilled


def new_classifier(network: str, width: int, speakers: int, seed: int) -> Classifier:
    """Return an untrained network of `NETWORKS` with its classifier; a seed always gives the same weights."""
    torch.manual_seed(seed_of(seed))
    return Classifier(NETWORKS[network](width=width), speakers)


def with_self_teacher(student: Classifier, width: int, weights: DistillationWeights, seed: int) -> SelfDistilled:
    """Put an untrained self-teacher of this width beside the student; a seed always gives the same weights."""
    torch.manual_seed(seed_of(seed, 1))
    return SelfDistilled(student, SelfTeacher(student.network.channels, width), weights)


def train(
    learner: Learner,
    utterances: Utterances,
    settings: DistillationTraining,
    seed: int,
    device: str = "cpu",
    state: Path | None = None,
    on_progress: Callable[[], None] = lambda: None,
    progress: bool = False,
) -> list[dict]:
    """Minimise the learner's own loss in place; it is left in evaluation mode.

    Every utterance gives one random crop an epoch; order and crops are drawn from (seed, epoch), so two learners see
    the same batches, and a session that was stopped goes on with the same numbers.

    Args:
        seed: of the run.
        state: where to keep the session; when the file is there it goes on from it.
        on_progress: called after each epoch; may raise to stop.

    Returns:
        One row an epoch: epoch (from 1) and loss (mean over the epoch's utterances).

    Raises:
        BadInput: the file is of a session with other settings, utterances or another teacher.
        FloatingPointError: the loss is not finite.
    """
    learner.to(device)
    if settings.precision == "bfloat16":  # a layout in which such convolutions run faster
        learner.to(memory_format=torch.channels_last)
    learned = [parameter for parameter in learner.parameters() if parameter.requires_grad]
    # foreach: the same bits as one tensor after the other, sooner; fused would round otherwise
    optimizer = torch.optim.AdamW(learned, settings.learning_rate, weight_decay=settings.weight_decay, foreach=True)
    identity = {**asdict(settings), **asdict(getattr(learner, "weights", DistillationWeights())), "seed": seed}
    identity |= {"data": utterances.checksums()}
    if isinstance(learner, TeacherDistilled):
        identity |= {"teacher": learner.checksum()}
    keeper = Session(state, identity, learner, optimizer)
    rows = keeper.load(on_progress)
    epochs = range(len(rows), settings.epochs)
    for epoch in tqdm(epochs, initial=len(rows), total=settings.epochs, disable=not progress):
        loss = _epoch(learner, optimizer, utterances, settings, epoch, seed_of(seed, epoch), device)
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} in epoch {epoch + 1}: training diverged; lower the rate")
        rows.append({"epoch": epoch + 1, "loss": loss})
        keeper.save_when_due(rows, on_progress, last=epoch + 1 == settings.epochs)
    learner.eval()
    return rows


def _epoch(
    learner: Learner,
    optimizer: torch.optim.AdamW,
    utterances: Utterances,
    settings: DistillationTraining,
    epoch: int,
    seed: int,
    device: str,
) -> float:
    """Learn from one crop of every utterance and return the mean loss."""
    learner.train()
    draw = torch.Generator().manual_seed(seed)
    batches = in_batches(torch.randperm(len(utterances), generator=draw), settings.batch)
    total = torch.zeros((), device=device)
    for step, chosen in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(settings, epoch + step / len(batches))
        places = torch.rand(len(chosen), generator=draw, dtype=torch.float64)
        features = torch.from_numpy(utterances.crops(chosen.tolist(), settings.frames, places.tolist())).to(device)
        labels = torch.from_numpy(utterances.speakers[chosen.numpy()]).to(device)
        with autocast(device, settings.precision):
            loss = learner.loss(features, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(chosen)
    return float(total) / len(utterances)
