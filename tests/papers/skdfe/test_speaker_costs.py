"""What networks of paper 3 cost, against counts by hand."""

import pytest
import torch

from lib.base import BadInput
from lib.models.bifpn import SelfTeacher
from lib.models.speaker_resnet import NETWORKS
from lib.papers.skdfe import measures
from lib.papers.skdfe.measures import fewer_parameters, parameters, share_of_cost, training_cost

SMALL = {"width": 4, "teacher_width": 6, "frames": 20, "speakers": 10}
HEAD = 256 * 10


def size(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize(("network", "millions"), [("resnet18", 3.45), ("resnet34", 5.98), ("resnet50", 8.51)])
def test_networks_are_as_large_as_printed(network: str, millions: float):
    assert round(parameters(network), 2) == millions


def test_a_share_is_of_the_larger_network():
    assert fewer_parameters("resnet18", "resnet34") == pytest.approx(100 * (1 - 3.45008 / 5.978976), abs=1e-4)


@pytest.mark.parametrize("network", ["resnet18", "resnet34"])
def test_a_distilled_network_is_as_large_as_the_plain_one(network: str):
    assert measures.fewer_when_distilled(network) == 0


def test_whatever_a_distilled_network_keeps_is_counted(monkeypatch: pytest.MonkeyPatch):
    class Grown(measures.SelfDistilled):
        """A student that keeps a layer of its self-teacher for good."""

        def __init__(self, student, teacher, weights):
            super().__init__(student, teacher, weights)
            self.student.network.kept = self.teacher.bifpn.lateral[0]

    monkeypatch.setattr(measures, "SelfDistilled", Grown)
    kept = 9 * 32 + 32 * 256 + 2 * 256  # depth-wise, point-wise, batch norm
    assert measures.fewer_when_distilled("resnet18") == pytest.approx(-100 * kept / size(NETWORKS["resnet18"]()))


def test_whatever_teaches_the_student_alone_costs_the_same():
    costs = [training_cost("resnet18", teacher, **SMALL) for teacher in ("none", "self", "resnet34", "resnet50")]
    assert len({cost.inference for cost in costs}) == 1
    assert [cost.sessions for cost in costs] == [1, 1, 2, 2]


def test_a_student_alone_runs_forward_once_and_backward_for_twice_that():
    cost = training_cost("resnet18", "none", **SMALL)
    assert cost.step == cost.total == 3 * (cost.inference + HEAD)
    assert cost.trained == cost.held == size(NETWORKS["resnet18"](width=4)) + HEAD + 10


def test_a_self_teacher_is_trained_in_the_same_session():
    """Multiply-accumulates of its layers by hand: a 3 x 3 depth-wise and a point-wise convolution at each position."""
    alone, cost = (training_cost("resnet18", teacher, **SMALL) for teacher in ("none", "self"))
    channels, width = [4, 8, 16, 32], 6
    positions = [40 * 20, 20 * 10, 10 * 5, 5 * 3]
    lateral = sum(p * (9 * c + c * width) for p, c in zip(positions, channels, strict=True))
    one = 9 * width + width * width
    paths = one * (positions[1] + positions[2]) + one * sum(positions)  # P2, P3, and T1 to T4
    teacher = lateral + paths + 2 * width * 5 * 256 + HEAD
    assert cost.step - alone.step == 3 * teacher
    assert cost.total == cost.step
    assert cost.trained - alone.trained == size(SelfTeacher(channels, width)) + HEAD + 10
    assert cost.held == cost.trained


def test_a_pretrained_teacher_runs_forward_only_after_a_session_of_its_own():
    alone, large = (training_cost(name, "none", **SMALL) for name in ("resnet18", "resnet34"))
    cost = training_cost("resnet18", "resnet34", **SMALL)
    assert cost.step == alone.step + large.step / 3
    assert cost.total == cost.step + large.step
    assert (cost.trained, cost.held) == (alone.trained, alone.held + large.held)


def test_the_share_is_of_all_training():
    with_self, with_large = (training_cost("resnet18", name, 4, 6) for name in ("self", "resnet34"))
    assert share_of_cost("resnet18", "resnet34", 4, 6) == pytest.approx(100 * with_self.total / with_large.total)


def test_an_unknown_network_is_refused():
    with pytest.raises(BadInput, match="network 'resnet99': known are resnet18"):
        parameters("resnet99")
    with pytest.raises(BadInput, match="network 'resnet99'"):
        measures.fewer_when_distilled("resnet99")
    with pytest.raises(BadInput, match="network 'resnet99'"):
        training_cost("resnet18", "resnet99", **SMALL)
