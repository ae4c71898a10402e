"""What networks of paper 3 cost: their size, and training them with a self-teacher or a pretrained one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lib.data.speech.filterbank import BANDS
from lib.errors import BadInput
from lib.evaluation import sizes
from lib.models.bifpn import SelfTeacher
from lib.models.speaker import EMBEDDING, NETWORKS, SpeakerResNet
from lib.pruners.layers import prunable


@dataclass(frozen=True)
class Cost:
    """What it takes to make one student.

    Attributes:
        sessions: trainings one after the other, the student's own included.
        trained, held: parameters that the student's session changes, and all that it has in memory, each network with
            its classifier.
        step: multiply-accumulates of a training step in the student's session, for one crop.
        whole: those of all sessions, for one crop in each.
        inference: those of the student alone, for one utterance as long as a crop.
    """

    sessions: int
    trained: int
    held: int
    step: int
    whole: int
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
    """The cost of one student; the defaults are the paper's networks, crops, and VoxCeleb2's speakers to learn from.

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
    """Multiply-accumulates of all training for one crop, from those of one pass of the student and of its teacher.

    A self-teacher is trained with the student; a pretrained one was trained alone before, on as many crops.
    """
    return 3 * student + (1 + 3) * teacher if pretrained else 3 * (student + teacher)


def parameters(network: str) -> float:
    """Parameters of one of the paper's networks at its own width, without the classifier, in millions."""
    return sizes.parameters(_network(network)) / 1e6


def fewer_parameters(network: str, than: str) -> float:
    """Parameters that one network has less than another, in percent of the other's."""
    return 100 * (1 - parameters(network) / parameters(than))


def share_of_cost(network: str, teacher: str, width: int = 32, teacher_width: int = 256) -> float:
    """Multiply-accumulates of all training with a self-teacher, in percent of those with a teacher trained first."""
    with_self = training_cost(network, "self", width, teacher_width)
    return 100 * with_self.whole / training_cost(network, teacher, width, teacher_width).whole


def _network(name: str, width: int = 32) -> SpeakerResNet:
    if name not in NETWORKS:
        raise BadInput(f"network {name!r}: known are {', '.join(NETWORKS)}")
    with torch.device("meta"):  # shapes without numbers: nothing is computed, only counted
        return NETWORKS[name](width=width)


def _forward(model: nn.Module, frames: int) -> int:
    """Multiply-accumulates of one pass."""
    uses = sizes.positions(model, (frames, BANDS))
    return sum(layer.weight.numel() * uses[layer.name] for layer in prunable(model))
