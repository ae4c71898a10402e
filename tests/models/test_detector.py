"""Laws of `lib.models.detector`: shapes, places, and what 2:4's rule prunes of it."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib import pruners
from lib.models.detector import Classifier, Detector, backbone, places, small_backbone


@pytest.mark.parametrize(("build", "side", "channels"), [(backbone, 128, 32), (small_backbone, 64, 16)])
def test_there_is_an_answer_for_each_place_of_each_scale(build, side, channels):
    detector = Detector(build(), channels).eval()
    centres, strides = places(detector.strides, side)
    logits, distances = detector(torch.zeros(2, 1, side, side))
    count = sum((side // stride) ** 2 for stride in detector.strides)
    assert centres.shape == (count, 2)
    assert strides.shape == (count,)
    assert logits.shape == (2, count, 10)
    assert distances.shape == (2, count, 4)
    assert (distances > 0).all()


def test_places_written_out():
    centres, strides = places((2, 4), 4)
    assert centres.tolist() == [[1, 1], [3, 1], [1, 3], [3, 3], [2, 2]]
    assert strides.tolist() == [2, 2, 2, 2, 4]


def test_the_answer_at_a_place_is_about_what_lies_there():
    """A change in one corner of the canvas changes the fine answers there and leaves those far away."""
    torch.manual_seed(0)
    detector = Detector(small_backbone(), 16).eval()
    plain, changed = torch.zeros(2, 1, 1, 128, 128)
    changed[..., :4, :4] = 1
    centres, strides = places(detector.strides, 128)
    with torch.no_grad():
        moved = (detector(plain)[0] - detector(changed)[0]).abs().sum(-1)[0]
    fine = strides == strides.min()
    near, far = (centres < 8).all(1) & fine, (centres > 100).all(1) & fine
    assert moved[near].max() > 0
    assert moved[far].max() == 0


@torch.no_grad()
def test_the_fine_scale_hears_the_coarse_one():
    torch.manual_seed(0)
    detector, image = Detector(small_backbone(), 16).eval(), torch.rand(1, 1, 64, 64)
    _, strides = places(detector.strides, 64)
    fine, coarse = detector.backbone(image)
    heard = detector.laterals[0](fine) + F.interpolate(detector.laterals[1](coarse), scale_factor=2)
    expected = detector.classes(detector.of_class(detector.smooth[0](heard).relu())).flatten(2).mT
    torch.testing.assert_close(detector(image)[0][:, strides == 4], expected)


def test_a_new_head_says_that_next_to_nothing_is_there():
    torch.manual_seed(0)
    logits, _ = Detector(backbone(), 32).eval()(torch.zeros(1, 1, 128, 128))
    assert logits.sigmoid().mean().item() == pytest.approx(0.01, rel=0.3)  # RetinaNet, section 4.1


def test_a_detector_has_a_copy_of_the_backbone_with_its_masks():
    trained = Classifier(small_backbone())
    pruners.attach(trained, pruners.two_four(trained))
    detector = Detector(trained.backbone)
    held = {name for name in pruners.attached(trained) if name.startswith("backbone")}
    assert set(pruners.attached(detector)) == held
    with torch.no_grad():
        next(detector.backbone.parameters()).zero_()
    assert next(trained.backbone.parameters()).any()


def test_the_rule_leaves_only_the_first_convolution():
    assert [rule.name for rule in pruners.layer_rule(Detector(backbone(), 32)) if not rule.pruned] == [
        "backbone.stem.0.weight"
    ]


def test_distances_are_counted_in_strides():

    detector = Detector(small_backbone(), channels=8).eval()
    nn.init.zeros_(detector.sides.weight)
    nn.init.zeros_(detector.sides.bias)
    distances = detector(torch.randn(1, 1, 64, 64))[1][0]
    assert torch.equal(distances, places(detector.strides, 64)[1][:, None].expand(-1, 4))


def test_a_box_may_be_as_wide_as_148_strides_and_no_wider():
    detector = Detector(small_backbone(), channels=8).eval()
    nn.init.zeros_(detector.sides.weight)
    nn.init.constant_(detector.sides.bias, 9.0)
    strides = places(detector.strides, 64)[1]
    distances = detector(torch.zeros(1, 1, 64, 64))[1][0]
    torch.testing.assert_close(distances / strides[:, None], torch.full_like(distances, math.exp(5)))
