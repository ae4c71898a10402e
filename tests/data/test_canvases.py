"""Laws of `lib.data.canvases`: what is on a canvas is where the boxes say, and training and test digits never mix."""

import numpy as np
import pytest

from lib.base import BadInput
from lib.data import canvases, vision
from lib.data.canvases import CanvasLayout, box_of, load, make, overlaps, resized

LAYOUT = CanvasLayout(side=48, smallest=8, largest=20, fewest=2, most=5)
DIGITS = np.random.default_rng(0).integers(0, 256, (30, 1, 8, 8)).astype(np.uint8)
LABELS = np.arange(30) % 10


@pytest.fixture(scope="module")
def made():
    return make(DIGITS, LABELS, 40, LAYOUT, seed=3)


def test_every_canvas_has_its_digits(made):
    assert made.images.shape == (40, 1, 48, 48)
    assert made.images.dtype == np.uint8
    assert len(made) == 40
    counts = [len(boxes) for boxes in made.boxes]
    assert set(counts) <= set(range(1, 6))
    assert max(counts) == 5
    assert [len(labels) for labels in made.labels] == [len(ink) for ink in made.outlines] == counts


def test_a_box_is_the_smallest_around_its_outline_and_lies_on_the_canvas(made):
    for boxes, outlines, image in zip(made.boxes, made.outlines, made.images, strict=True):
        for (left, top, right, bottom), ink in zip(boxes.astype(int), outlines, strict=True):
            inside = ink[top:bottom, left:right]
            assert inside.sum() == ink.sum() > 0
            assert inside[0].any()
            assert inside[-1].any()
            assert inside[:, 0].any()
            assert inside[:, -1].any()
            assert (image[0][ink] > canvases.INK).all()  # no digit is hidden by another


def test_digits_overlap_only_so_much(made):
    for boxes in made.boxes:
        for number in range(1, len(boxes)):
            assert overlaps(boxes[number], boxes[:number]).max() <= canvases.OVERLAP


def test_overlaps_of_boxes_written_out():
    box = np.array([0, 0, 4, 4], np.float32)
    others = np.array([[0, 0, 4, 4], [2, 0, 6, 4], [4, 4, 8, 8]], np.float32)
    assert overlaps(box, others) == pytest.approx([1, 8 / 24, 0])


def test_a_box_written_out():
    outline = np.zeros((6, 6), bool)
    outline[1:4, 2] = outline[3, 2:5] = True
    assert box_of(outline).tolist() == [2, 1, 5, 4]


def test_a_resized_image_keeps_its_place_and_gets_its_white():
    image = np.zeros((8, 8), np.uint8)
    image[0:4, 0:4] = 100
    found = resized(image, 16)
    assert found.shape == (16, 16)
    assert found.max() == 255
    assert found[:7, :7].min() > 200
    assert found[10:, 10:].max() == 0


def test_more_canvases_begin_with_the_same_ones(made):
    fewer = make(DIGITS, LABELS, 10, LAYOUT, seed=3)
    assert np.array_equal(fewer.images, made.images[:10])
    assert not np.array_equal(make(DIGITS, LABELS, 10, LAYOUT, seed=4).images, fewer.images)


def test_training_and_test_canvases_have_digits_of_their_own(monkeypatch):
    seen = {}
    monkeypatch.setattr(canvases, "make", lambda images, labels, *rest: seen.update({rest[-1]: (images, labels)}))
    for part in ("train", "test"):
        load("digits", part, 5, LAYOUT)
    data = vision.load("digits")
    assert np.array_equal(seen[0][0], data.train_inputs)
    assert np.array_equal(seen[1][0], data.test_inputs)
    assert np.array_equal(seen[0][1], data.train_labels)
    assert np.array_equal(seen[1][1], data.test_labels)


def test_bad_input_is_named():
    with pytest.raises(BadInput, match="sizes 8 to 60 on 48"):
        CanvasLayout(side=48, smallest=8, largest=60)
    with pytest.raises(BadInput, match="grey images"):
        make(np.zeros((3, 3, 8, 8), np.uint8), LABELS, 1, LAYOUT, 0)
    with pytest.raises(BadInput, match="something white on them; there are none"):
        make(DIGITS[:0], LABELS[:0], 1, LAYOUT, 0)
    with pytest.raises(BadInput, match="something white on them; image 1 is all black"):
        make(np.concatenate([DIGITS[:1], 0 * DIGITS[:1]]), LABELS[:2], 1, LAYOUT, 0)
    with pytest.raises(BadInput, match="part 'valid': known are train, test"):
        load("digits", "valid", 1, LAYOUT)
    with pytest.raises(BadInput, match="count=0: expected a whole number, at least 1"):
        make(DIGITS, LABELS, 0, LAYOUT, 0)
    with pytest.raises(BadInput, match="seed=-1: expected a whole number, at least 0"):
        make(DIGITS, LABELS, 1, LAYOUT, -1)


def test_boxes_share_at_most_three_tenths_and_six_fragments_lie_between_them(monkeypatch):
    """What the head of the module says of canvases, and what notebook 28 trains on."""
    crowded = make(DIGITS, LABELS, 20, CanvasLayout(side=24, smallest=12, largest=20, fewest=4, most=8), seed=3)
    shared = [overlaps(boxes[one], boxes[:one]).max() for boxes in crowded.boxes for one in range(1, len(boxes))]
    assert 0.2 < max(shared) <= 0.3
    asked = []

    def counted(image, size):
        asked.append(size)
        return resized(image, size)

    monkeypatch.setattr(canvases, "resized", counted)
    made = make(DIGITS, LABELS, 1, CanvasLayout(side=200, smallest=8, largest=8, fewest=2, most=2), seed=0)
    assert len(asked) - len(made.boxes[0]) == 6
