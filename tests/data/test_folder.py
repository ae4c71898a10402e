"""The image-folder loader, on a small folder of ImageNet's layout that the tests write."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from lib.base import BadInput
from lib.data import folder, vision
from lib.training.examples import Examples
from lib.training.supervised import Training, train

COLOURS = {"n01": (220, 30, 30), "n02": (30, 30, 220)}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two classes, red and blue pictures with noise, of several sizes: 12 to train on, 6 to be judged on."""
    draw = np.random.default_rng(0)
    for split, count in (("train", 6), ("val", 3)):
        for name, colour in COLOURS.items():
            place = tmp_path / "imagenet" / split / name
            place.mkdir(parents=True)
            for number in range(count):
                size = (60 + 10 * number, 80, 3)
                pixels = np.clip(np.array(colour) + draw.integers(-25, 25, size), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / f"{name}_{number}.JPEG")
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path))
    return tmp_path / "imagenet"


def test_files_are_listed_by_class_and_name(root: Path):
    data = vision.load("imagenet")
    assert data.classes == 2
    assert data.train_inputs.shape == (12, 3, 224, 224)
    assert data.train_labels.tolist() == [0] * 6 + [1] * 6
    assert [path.name for path in data.test_inputs.files[:2]] == ["n01_0.JPEG", "n01_1.JPEG"]


def test_pixels_come_as_channels_first_bytes_in_the_order_asked_for(root: Path):
    images = vision.load("imagenet").train_inputs
    pixels = images.decode([7, 0])
    assert pixels.shape == (2, 3, 224, 224)
    assert pixels.dtype == np.uint8
    assert np.allclose(pixels.mean((2, 3)), [COLOURS["n02"], COLOURS["n01"]], atol=8)


def test_the_middle_is_cut_out_with_the_shorter_side_at_256(tmp_path: Path):
    """A picture 512 wide and 256 high keeps 224 x 224 of its middle: columns 144 to 368."""
    across = np.tile(np.arange(512) // 2, (256, 1)).astype(np.uint8)
    Image.fromarray(np.stack([across] * 3, axis=2)).save(tmp_path / "a.png")
    (pixels,) = folder.Images((tmp_path / "a.png",)).decode([0])
    assert pixels[0, 0, 0] == 144 // 2
    assert pixels[0, -1, -1] == 367 // 2


def test_a_random_box_lies_inside_and_has_the_area_and_ratio_drawn():
    left, top, right, bottom = folder.random_box(200, 100, np.array([0.4, 0.5, 1.0, 0.0, 0.0]))
    assert (right - left) * (bottom - top) == pytest.approx(200 * 100 * (0.08 + 0.92 * 0.4))
    assert (right - left) / (bottom - top) == pytest.approx(1.0)
    assert (right, top) == (200, 0)
    for row in np.random.default_rng(0).random((200, 5)):
        left, top, right, bottom = folder.random_box(90, 400, row)
        assert 0 <= left < right <= 90 + 1e-9
        assert 0 <= top < bottom <= 400 + 1e-9


def test_the_same_draws_give_the_same_pixels_and_a_half_of_them_is_mirrored(tmp_path: Path):
    Image.fromarray(np.tile(np.arange(256, dtype=np.uint8)[:, None], (256, 1, 3))).save(tmp_path / "a.png")
    images = folder.Images((tmp_path / "a.png",), side=64)
    whole = np.array([[0.999999, 0.5, 0.0, 0.0, 0.9]])
    plain, mirrored = images.decode([0], whole), images.decode([0], whole - [[0, 0, 0, 0, 0.5]])
    assert plain[0, 0, 0, 0] < plain[0, 0, 0, -1]
    assert np.array_equal(plain[..., ::-1], mirrored)


def test_a_network_learns_from_files_and_two_trainings_agree_bit_for_bit(root: Path):
    examples = Examples.of(vision.load("imagenet"))
    settings = Training(3, batch=5, learning_rate=0.05, augment="resized_crop_flip")

    def trained() -> tuple[list[dict], nn.Module]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 4, 7, stride=8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        model.append(nn.Linear(4, 2))
        return train(model, examples, settings, seed=0), model

    (rows, first), (again, second) = trained(), trained()
    assert rows == again
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert rows[-1]["loss"] < rows[0]["loss"]


def test_test_batches_keep_the_order_and_lose_nothing(root: Path):
    examples = Examples.of(vision.load("imagenet"))
    batches = list(examples.test_batches(4))
    assert [len(labels) for _, labels in batches] == [4, 2]
    assert torch.cat([labels for _, labels in batches]).tolist() == [0, 0, 0, 1, 1, 1]
    red = torch.cat([inputs for inputs, _ in batches])[:, 0].mean((1, 2))
    assert bool((red[:3] > 1).all())
    assert bool((red[3:] < -1).all())


def test_files_are_asked_for_their_own_augmentation(root: Path):
    digits = Examples.of(vision.load("digits"))
    with pytest.raises(BadInput, match="'resized_crop_flip' is for image files, each input here has shape"):
        digits.check("resized_crop_flip")


def test_a_file_that_is_no_image_is_named(root: Path):
    data = vision.load("imagenet")
    bad = data.train_inputs.files[3]
    bad.write_bytes(bad.read_bytes()[:200])
    with pytest.raises(BadInput, match=r"n01_3\.JPEG cannot be read as an image"):
        data.train_inputs.decode([0, 3])


def test_what_is_missing_is_said_in_one_line(root: Path, monkeypatch: pytest.MonkeyPatch):
    for path in (root / "val" / "n02").iterdir():
        path.unlink()
    with pytest.raises(BadInput, match=r"n02 holds no image; known endings are \.jpeg"):
        vision.load("imagenet")
    (root / "val" / "n02").rmdir()
    with pytest.raises(BadInput, match="train and val hold different classes, 'n02'"):
        vision.load("imagenet")
    (root / "val").rename(root / "validation")
    with pytest.raises(BadInput, match="val does not exist; expected a folder of class folders"):
        vision.load("imagenet")
    monkeypatch.delenv("COMPANION_DATA")
    with pytest.raises(BadInput, match=r"imagenet is not downloaded by this project: .* COMPANION_DATA"):
        vision.load("imagenet")
