"""The benchmark of speaker networks: its rivals are what they say. Nothing here asserts a time."""

from functools import partial

import torch

from lib.bench import speaker
from lib.kernels.two_four import has_pattern
from lib.models.bifpn import SelfTeacher, SelfTeacherEmbedding
from lib.models.speaker_resnet import NETWORKS
from lib.pruners.layers import as_matrix, prunable


def test_rows_name_each_rival_its_time_and_its_bytes(monkeypatch):
    narrow = {name: partial(build, width=4) for name, build in NETWORKS.items()}
    monkeypatch.setattr(speaker, "NETWORKS", narrow)
    monkeypatch.setattr(speaker, "SelfTeacher", partial(SelfTeacher, width=8))
    made = []

    def in_turn(rivals):
        made.append({key: call() for key, call in rivals.items()})
        return {key: 2.0 + number for number, key in enumerate(rivals)}

    monkeypatch.setattr(speaker, "in_turn", in_turn)
    rows = speaker.run("cpu")
    assert all(tuple(row) == speaker.COLUMNS for row in rows)
    names = [("resnet18", "dense"), ("resnet34", "dense"), ("resnet50", "dense")]
    names += [("resnet18", "two_four"), ("resnet18 with self-teacher", "dense")]
    assert [(row["network"], row["form"], row["frames"]) for row in rows] == [
        (*name, frames) for frames in (300, 1000) for name in names
    ]
    assert [row["ratio_to_resnet34"] for row in rows[:3]] == [2 / 3, 1.0, 4 / 3]
    assert all(found.shape == (1, 256) and not found.requires_grad for calls in made for found in calls.values())
    size = {(row["network"], row["form"]): row["megabytes"] for row in rows}
    for name, build in narrow.items():
        assert size[name, "dense"] == 4 * sum(p.numel() for p in build().parameters()) / 1e6
    assert 0.5 < size["resnet18", "two_four"] / size["resnet18", "dense"] < 0.62  # a half, 2 bits a value, the rest
    assert size["resnet18 with self-teacher", "dense"] > size["resnet18", "dense"]


def test_the_two_four_form_has_the_pattern_and_no_mask_left():
    network = speaker.pruned(NETWORKS["resnet18"](width=16))
    layers = prunable(network)
    assert not any("parametrizations" in name for name, _ in network.named_parameters())
    assert sum(has_pattern(as_matrix(layer.weight)) for layer in layers) == len(layers) - 1  # the stem has one channel


def test_the_self_teacher_kept_reads_the_students_maps():
    torch.manual_seed(0)
    student = NETWORKS["resnet18"](width=4)
    both = SelfTeacherEmbedding(student, SelfTeacher(student.channels)).eval()
    features = torch.randn(1, 40, 40)
    with torch.no_grad():
        assert torch.equal(both(features), both.teacher(student.maps(features))[1])
