"""Laws of `lib.training.detection`: losses in closed form, who learns which box, and average precision by hand."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from lib.base import BadInput
from lib.data.canvases import Canvases, CanvasLayout, make
from lib.models.detector import Detector, places, small_backbone
from lib.training import detection
from lib.training.detection import (
    LONGEST,
    DetectionLoss,
    Findings,
    Truth,
    assign,
    average_precision,
    batches,
    corners,
    detect,
    focal,
    generalised_overlap,
    suppress,
)

CENTRES, STRIDES = places((4, 8), 64)


def test_the_focal_loss_is_equation_5():
    logits, truths = torch.tensor([[0.3, -2.0, 4.0]]), torch.tensor([[1.0, 0.0, 0.0]])
    share = [1 / (1 + math.exp(-x)) for x in (0.3, -2.0, 4.0)]
    right, weight = [share[0], 1 - share[1], 1 - share[2]], [detection.ALPHA, *[1 - detection.ALPHA] * 2]
    expected = -sum(w * (1 - p) ** detection.GAMMA * math.log(p) for w, p in zip(weight, right, strict=True))
    assert float(focal(logits, truths)) == pytest.approx(expected, rel=1e-5)


def test_a_box_is_learned_near_its_centre_at_the_scale_of_its_size():
    boxes = torch.tensor([[10.0, 10.0, 22.0, 30.0], [20.0, 20.0, 60.0, 50.0]])
    chosen = assign(CENTRES, STRIDES, boxes)
    for number, stride in ((0, 4), (1, 8)):
        mine = chosen == number
        assert mine.any()
        assert (STRIDES[mine] == stride).all()
        middle = (boxes[number, :2] + boxes[number, 2:]) / 2
        assert (CENTRES[mine] - middle).abs().max() < 1.5 * stride
        assert (CENTRES[mine] > boxes[number, :2]).all()
        assert (CENTRES[mine] < boxes[number, 2:]).all()


def test_how_far_from_the_centre_a_place_learns():
    centres, strides = places((4, 8), 64)
    mine = assign(centres, strides, torch.tensor([[12.0, 12.0, 32.0, 32.0]])) == 0  # of the fine scale, its centre 22
    assert sorted(set(centres[mine][:, 0].tolist())) == [18.0, 22.0, 26.0]  # within 1.5 strides of 4 pixels


def test_on_a_canvas_without_boxes_no_place_learns_one():
    centres, strides = places((4, 8), 64)
    found = assign(centres, strides, torch.zeros(0, 4))
    assert found.tolist() == [-1] * len(centres)
    assert found.dtype == torch.int64
    logits, distances = perfect(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64))
    truth = Truth([torch.zeros(0, 4)], [torch.zeros(0, dtype=torch.int64)])
    assert float(DetectionLoss(Detector(small_backbone()), 64)((logits[None], distances[None]), truth)) < 0.01


def test_of_two_boxes_the_smaller_is_learned_and_every_size_has_a_scale():
    boxes = torch.tensor([[8.0, 8.0, 30.0, 30.0], [14.0, 14.0, 24.0, 24.0]])
    chosen = assign(CENTRES, STRIDES, boxes)
    at = (torch.tensor([18.0, 18.0]) == CENTRES).all(1).nonzero()[0]
    assert chosen[at] == 1
    for side in range(4, 64, 3):
        centre = torch.tensor([34.0, 34.0])
        box = torch.cat([centre - side / 2, centre + side / 2])[None]
        assert (assign(CENTRES, STRIDES, box) == 0).any(), side


def test_generalised_overlap_written_out():
    one = torch.tensor([[0.0, 0.0, 4.0, 4.0]] * 3)
    other = torch.tensor([[0.0, 0.0, 4.0, 4.0], [2.0, 0.0, 6.0, 4.0], [6.0, 0.0, 8.0, 4.0]])
    expected = [1, 8 / 24, 0 - (32 - 24) / 32]
    assert generalised_overlap(one, other).tolist() == pytest.approx(expected)


def test_corners_are_distances_from_a_place():
    assert corners(torch.tensor([10.0, 20.0]), torch.tensor([1.0, 2.0, 3.0, 4.0])).tolist() == [9, 18, 13, 24]


def perfect(boxes, labels, spread=8.0):
    """What a detector that knows the truth would answer."""
    chosen = assign(CENTRES, STRIDES, boxes)
    logits, distances = torch.full((len(CENTRES), 10), -spread), torch.ones(len(CENTRES), 4)
    for place in (chosen >= 0).nonzero().flatten():
        box = boxes[chosen[place]]
        logits[place, labels[chosen[place]]] = spread
        distances[place] = torch.cat([CENTRES[place] - box[:2], box[2:] - CENTRES[place]])
    return logits, distances


def test_the_loss_is_nothing_for_the_truth_and_large_for_another():
    boxes, labels = torch.tensor([[10.0, 10.0, 22.0, 30.0], [30.0, 30.0, 40.0, 40.0]]), torch.tensor([3, 7])
    logits, distances = perfect(boxes, labels)
    loss = DetectionLoss(Detector(small_backbone()), 64)
    truth = Truth([boxes, boxes], [labels, labels])

    def found(distances, logits):
        return float(loss((logits.expand(2, -1, -1), distances.expand(2, -1, -1)), truth))

    assert found(distances, logits) < 0.01
    assert found(3 * distances, logits) > 0.3  # boxes of another size
    assert found(distances, logits.roll(1, 1)) > 3  # other classes


def test_suppression_is_by_class_and_keeps_the_strongest():
    boxes = torch.tensor(
        [[0.0, 0.0, 10.0, 10.0], [1.0, 0.0, 11.0, 10.0], [1.0, 0.0, 11.0, 10.0], [30.0, 30.0, 40.0, 40.0]]
    )
    found = suppress(Findings(boxes, torch.tensor([1, 1, 2, 1]), torch.tensor([0.9, 0.8, 0.7, 0.6])))
    assert found.scores.tolist() == pytest.approx([0.9, 0.7, 0.6])
    assert found.labels.tolist() == [1, 2, 1]
    assert len(suppress(Findings(boxes, torch.tensor([1, 2, 3, 4]), torch.ones(4)), most=2).labels) == 2


def test_boxes_of_two_classes_never_meet_left_of_the_canvas_either():
    boxes = torch.tensor([[0.0, 0.0, 10.0, 10.0], [-11.0, -11.0, -1.0, -1.0]])
    assert suppress(Findings(boxes, torch.tensor([0, 1]), torch.tensor([0.9, 0.8]))).labels.tolist() == [0, 1]


def test_suppression_keeps_no_two_of_a_class_that_overlap():
    draw = torch.Generator().manual_seed(0)
    corner = 40 * torch.rand(60, 2, generator=draw)
    boxes = torch.cat([corner, corner + 5 + 20 * torch.rand(60, 2, generator=draw)], 1)
    labels, scores = torch.randint(3, (60,), generator=draw), torch.rand(60, generator=draw).sort(descending=True)[0]
    found = suppress(Findings(boxes, labels, scores))
    shared = detection_overlap(found.boxes)
    same = (found.labels[:, None] == found.labels[None]) & ~torch.eye(len(found.labels), dtype=torch.bool)
    assert 10 < len(found.labels) < 60
    assert shared[same].max() <= 0.5


def detection_overlap(boxes):
    from lib.data.canvases import overlaps

    return torch.stack([torch.from_numpy(overlaps(box.numpy(), boxes.numpy())) for box in boxes])


class Knows(nn.Module):
    """Answers with what it was given, canvas by canvas."""

    def __init__(self, answers):
        super().__init__()
        self.answers = answers

    def forward(self, images):
        mine, self.answers = self.answers[: len(images)], self.answers[len(images) :]
        return tuple(torch.stack(each) for each in zip(*mine, strict=True))


@pytest.fixture(scope="module")
def some():
    digits = np.random.default_rng(0).integers(100, 256, (30, 1, 8, 8)).astype(np.uint8)
    return make(digits, np.arange(30) % 10, 12, CanvasLayout(64, 12, 24, 2, 4), seed=0)


def test_whoever_knows_the_truth_has_the_best_precision(some):
    known = [perfect(torch.from_numpy(b), torch.from_numpy(n)) for b, n in zip(some.boxes, some.labels, strict=True)]
    found = detect(Knows(known), (4, 8), torch.from_numpy(some.images), lambda images: images.float(), batch=5)
    mean, half = average_precision(some, found)
    assert half > 97  # but for digits whose places a smaller one has taken
    assert mean > 97


def one_canvas(boxes, labels):
    boxes = np.array(boxes, np.float32)
    return Canvases(
        np.zeros((1, 1, 64, 64), np.uint8), (boxes,), (np.array(labels),), (np.zeros((len(boxes), 64, 64)),)
    )


def test_average_precision_of_one_class_by_hand():
    """Of two digits one is found, after a wrong finding: precision 1/2 up to recall 1/2, above it nothing."""
    canvas = one_canvas([[0, 0, 10, 10], [40, 40, 60, 60]], [3, 3])
    boxes = torch.tensor([[20.0, 20.0, 30.0, 30.0], [0.0, 0.0, 10.0, 10.0]])
    found = [Findings(boxes, torch.tensor([3, 3]), torch.tensor([0.9, 0.8]))]
    mean, half = average_precision(canvas, found)
    assert half == pytest.approx(100 * 51 / 101 * 0.5)  # COCO reads precision at 101 recalls, 0 to 0.5 are 51
    assert mean == pytest.approx(half)


def test_a_box_counts_at_the_overlaps_that_it_reaches():
    canvas = one_canvas([[0, 0, 10, 10]], [3])
    found = [Findings(torch.tensor([[0.0, 0.0, 10.0, 7.2]]), torch.tensor([3]), torch.tensor([0.9]))]
    mean, half = average_precision(canvas, found)  # an overlap of 0.72: 0.50 to 0.70 are 5 of 10
    assert (mean, half) == (pytest.approx(50), pytest.approx(100))


def test_who_finds_nothing_has_none(some):
    nothing = Findings(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), torch.zeros(0))
    assert average_precision(some, [nothing] * 12) == (0.0, 0.0)
    assert len(suppress(nothing).labels) == 0
    with pytest.raises(BadInput, match="3 lists of findings for 12 canvases"):
        average_precision(some, [nothing] * 3)


def test_of_canvases_without_a_box_there_is_no_precision():
    found = Findings(torch.tensor([[0.0, 0.0, 9.0, 9.0]]), torch.tensor([3]), torch.tensor([0.9]))
    with pytest.raises(BadInput, match="none of 1 canvases has a box: average precision needs one or more"):
        average_precision(one_canvas(np.zeros((0, 4)), []), [found])


def test_batches_are_canvases_with_what_is_on_them(some):
    images, truth = batches(some, 6, lambda images: images.float(), count=4)(torch.Generator().manual_seed(0))
    for image, boxes, labels in zip(images, truth.boxes, truth.labels, strict=True):
        number = next(n for n in range(4) if np.array_equal(some.images[n], image.numpy().astype(np.uint8)))
        assert np.array_equal(some.boxes[number], boxes.numpy())
        assert np.array_equal(some.labels[number], labels.numpy())


def test_each_canvas_learns_boxes_of_its_own():

    torch.manual_seed(0)
    loss = DetectionLoss(SimpleNamespace(strides=(4,)), 16)
    count = len(loss.centres)
    logits, distances = torch.randn(2, count, 3), 1 + torch.rand(2, count, 4)
    boxes = [torch.tensor([[0.0, 0.0, 9.0, 9.0]]), torch.tensor([[4.0, 3.0, 16.0, 13.0]])]
    labels = [torch.tensor([0]), torch.tensor([2])]
    learned = [int((assign(loss.centres, loss.strides, one) >= 0).sum()) for one in boxes]
    alone = [
        loss((logits[i : i + 1], distances[i : i + 1]), Truth(boxes[i : i + 1], labels[i : i + 1])) for i in (0, 1)
    ]
    expected = sum(one * number for one, number in zip(alone, learned, strict=True)) / sum(learned)
    torch.testing.assert_close(loss((logits, distances), Truth(boxes, labels)), expected)


def test_a_box_on_the_border_of_two_scales_is_learned_by_the_finer():
    centres, strides = places((4, 8, 16), 64)
    for stride in (4.0, 8.0):
        half = LONGEST * stride / 2
        chosen = assign(centres, strides, torch.tensor([[32 - half, 32 - half, 32 + half, 32 + half]]))
        assert set(strides[chosen == 0].tolist()) == {stride}


def test_boxes_end_where_the_canvas_does():

    class Wide(nn.Module):
        def forward(self, images):
            count = len(places((8,), 16)[0])
            return torch.full((len(images), count, 1), 3.0), torch.full((len(images), count, 4), 100.0)

    (found,) = detect(Wide(), (8,), torch.zeros(1, 1, 16, 16, dtype=torch.uint8), torch.Tensor.float)
    assert found.boxes.tolist() == [[0, 0, 16, 16]]


def test_suppression_comes_before_the_hundred_strongest_are_taken():
    """300 findings of one box and 50 weaker ones elsewhere: the box counts once, and the others stay."""
    one, others = torch.tensor([[0.0, 0.0, 8.0, 8.0]]).expand(300, 4), 10.0 * torch.arange(1, 51)[:, None]
    boxes = torch.cat([one, torch.cat([others, others, others + 8, others + 8], 1)])
    scores = torch.cat([torch.full((300, 1), 0.9), torch.full((50, 1), 0.06), torch.full((1, 1), 0.04)])
    boxes = torch.cat([boxes, torch.tensor([[900.0, 900.0, 908.0, 908.0]])])
    found = detection._findings(scores, boxes)
    assert len(found.labels) == 51  # and not the last one, whose score is below 0.05
