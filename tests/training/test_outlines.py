"""Laws of outlines in `lib.training.detection`: true ones have a precision of 100, shifted ones of 0."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lib.data.canvases import CanvasLayout, box_of, make
from lib.models.detector import Detector, places, small_backbone
from lib.training.detection import (
    DetectionLoss,
    Findings,
    Truth,
    assign,
    average_precision,
    batches,
    cropped,
    detect,
    pasted,
)

SIDE, CELLS = 64, 14


@pytest.fixture(scope="module")
def some():
    digits = np.zeros((20, 1, 8, 8), np.uint8)
    digits[:, :, 1:7, 2:6] = 255
    digits[:, :, 3, 3:5] = 0
    return make(digits, np.arange(20) % 10, 8, CanvasLayout(SIDE, 12, 24, 2, 4), seed=0)


def drawn(canvases, shift=0):
    """Whoever draws the truth, with a box of the whole canvas and a cell for each pixel; or beside it."""
    for outlines, labels in zip(canvases.outlines, canvases.labels, strict=True):
        inks = torch.from_numpy(np.roll(outlines, shift, axis=(1, 2))).float()
        boxes = torch.tensor([[0.0, 0.0, SIDE, SIDE]]).expand(len(labels), 4)
        yield Findings(boxes, torch.from_numpy(labels), torch.ones(len(labels)), inks)


def test_true_outlines_have_a_precision_of_100_and_shifted_ones_of_0(some):
    assert average_precision(some, list(drawn(some)), outlines=True) == (pytest.approx(100), pytest.approx(100))
    assert average_precision(some, list(drawn(some, shift=13)), outlines=True) == (0, 0)


def test_boxes_alone_say_nothing_of_outlines(some):
    """The right boxes with ink in a third of each: every box is right, and no outline."""
    third = torch.zeros(CELLS, CELLS)
    third[: CELLS // 3] = 1
    found = [
        Findings(torch.from_numpy(b), torch.from_numpy(n), torch.ones(len(n)), third.expand(len(n), -1, -1))
        for b, n in zip(some.boxes, some.labels, strict=True)
    ]
    assert average_precision(some, found) == (pytest.approx(100), pytest.approx(100))
    assert average_precision(some, found, outlines=True) == (0, 0)


def test_what_is_looked_at_through_a_box_is_laid_back_on_its_place(some):
    for outlines, boxes in zip(some.outlines, some.boxes, strict=True):
        back = pasted(cropped(outlines, boxes, CELLS), torch.from_numpy(boxes), SIDE).numpy()
        shared, either = (back & outlines).sum((1, 2)), (back | outlines).sum((1, 2))
        assert (shared / either > 0.8).all()
        for one, box in zip(back, boxes, strict=True):
            assert (box_of(one)[:2] >= box[:2]).all()
            assert (box_of(one)[2:] <= box[2:]).all()


def test_there_may_be_no_box():
    nothing = cropped(np.zeros((0, SIDE, SIDE), bool), np.zeros((0, 4), np.float32), CELLS)
    assert nothing.shape == (0, CELLS, CELLS)


def test_a_box_is_filled_up_to_its_sides():
    full = pasted(torch.ones(1, 3, 3), torch.tensor([[5.0, 7.0, 12.0, 20.0]]), 32)
    expected = torch.zeros(1, 32, 32, dtype=torch.bool)
    expected[:, 7:20, 5:12] = True
    assert torch.equal(full, expected)


def test_batches_have_the_ink_of_each_box(some):
    _, truth = batches(some, 4, lambda images: images.float(), outline=CELLS)(torch.Generator().manual_seed(0))
    assert [len(one) for one in truth.outlines] == [len(one) for one in truth.boxes]
    every = [cropped(*one, CELLS) for one in zip(some.outlines, some.boxes, strict=True)]
    assert all(any(len(a) == len(b) and torch.equal(a, b) for b in every) for a in truth.outlines)


def test_the_loss_of_outlines_is_their_cross_entropy_where_a_box_is_learned():
    torch.manual_seed(0)
    network = Detector(small_backbone(), 16, outline=CELLS)
    box, true = torch.tensor([[20.0, 20.0, 32.0, 34.0]]), (torch.rand(1, CELLS, CELLS) > 0.5).float()
    answers = network(torch.rand(1, 1, SIDE, SIDE))
    truth = Truth([box], [torch.tensor([3])], [true])
    loss = DetectionLoss(network, SIDE)
    centres, strides = places(network.strides, SIDE)
    learns = assign(centres, strides, box) == 0
    assert learns.any()
    expected = F.binary_cross_entropy_with_logits(answers[2][0, learns], true.flatten(1).expand(learns.sum(), -1))
    assert torch.allclose(loss(answers, truth) - loss(answers[:2], truth), expected, atol=1e-5)


def test_findings_keep_their_own_ink(some):
    torch.manual_seed(0)
    network = Detector(small_backbone(), 16, outline=CELLS).eval()
    torch.nn.init.constant_(network.classes.bias, 0.0)  # finds something everywhere
    found = detect(network, network.strides, torch.from_numpy(some.images), lambda images: images.float() / 255)
    assert all(one.inks.shape == (len(one.boxes), CELLS, CELLS) for one in found)
    logits, _, inks = network(torch.from_numpy(some.images[:1]).float() / 255)
    place = int(logits[0].sigmoid().max(1).values.argmax())
    assert torch.allclose(found[0].inks[0].flatten(), inks[0, place].sigmoid(), atol=1e-5)


def test_a_detector_without_outlines_is_what_it_was():
    torch.manual_seed(0)
    plain = Detector(small_backbone(), 16)
    torch.manual_seed(0)
    draws = Detector(small_backbone(), 16, outline=CELLS)
    both = plain.state_dict(), draws.state_dict()
    assert all(torch.equal(value, both[1][name]) for name, value in both[0].items())
    assert {name.split(".")[0] for name in set(both[1]) - set(both[0])} == {"of_outline", "cells"}
    assert len(plain(torch.zeros(1, 1, 64, 64))) == 2
