"""Laws of `lib.data.vision`: the made sets are what they are said to be, the readers read the official formats.

CIFAR's files are written here byte by byte as Python 2 wrote them; MNIST is also tried with the real files where the
packed data lies beside the repository.
"""

import gzip
import hashlib
import io
import os
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from sklearn.datasets import load_digits

from lib import base
from lib.base import BadInput
from lib.data import sources, vision
from lib.data.__main__ import main

UNPACK = base.ROOT.parent / "shared" / "data" / "unpack.py"


def test_digits_are_scikit_learns_split_once_and_for_all():
    digits = vision.load("digits")
    assert (digits.name, digits.classes) == ("digits", 10)
    assert digits.train_inputs.shape == (1297, 1, 8, 8)
    assert digits.test_inputs.shape == (500, 1, 8, 8)
    assert (digits.train_inputs.dtype, digits.train_labels.dtype) == (np.uint8, np.int64)
    # a split: all digits, each once; 16 grey levels that reach 255
    images = np.concatenate([digits.train_inputs, digits.test_inputs]).reshape(-1, 64)
    labels = np.concatenate([digits.train_labels, digits.test_labels])
    pixels, targets = load_digits(return_X_y=True)
    ours = sorted(zip(map(bytes, images), labels, strict=True))
    theirs = sorted(zip(map(bytes, np.floor(pixels * 255 / 16 + 0.5).astype(np.uint8)), targets, strict=True))
    assert ours == theirs
    assert np.unique(images).tolist()[:3] + np.unique(images).tolist()[-2:] == [0, 16, 32, 239, 255]
    # stratified: every digit's share of the test images is 500 / 1797 of it, to within one image
    assert np.abs(np.bincount(digits.test_labels) - np.bincount(labels) * 500 / 1797).max() < 1
    assert digits.test_labels[:10].tolist() == [4, 8, 8, 3, 9, 0, 6, 3, 9, 8]


def test_moons_are_two_noisy_half_circles_split_in_halves():
    moons = vision.load("moons")
    assert moons.classes == 2
    assert moons.train_inputs.shape == moons.test_inputs.shape == (500, 2)
    assert (moons.train_inputs.dtype, moons.train_labels.dtype) == (np.float32, np.int64)
    points = np.concatenate([moons.train_inputs, moons.test_inputs])
    labels = np.concatenate([moons.train_labels, moons.test_labels])
    assert np.bincount(labels).tolist() == [500, 500]
    assert len(np.unique(points, axis=0)) == 1000
    # each lies around its own half circle of radius 1: above about (0, 0), below about (1, 0.5), 0.10 away
    centre = np.where(labels[:, None] == 0, [0, 0], [1, 0.5])
    distance = np.linalg.norm(points - centre, axis=1) - 1
    assert np.std(distance) == pytest.approx(0.10, abs=0.01)
    assert abs(np.mean(distance)) < 0.015
    np.testing.assert_allclose(moons.test_inputs[:2], [[0.723373, -0.606309], [0.136197, -0.101214]], atol=1e-6)


@pytest.mark.parametrize("name", ["digits", "moons"])
def test_made_sets_are_the_same_every_time_and_nobody_elses(name):
    first, second = vision.load(name), vision.load(name)
    first.train_inputs[:] = 0  # a caller's own copy
    third = vision.load(name)
    for part in ("train_inputs", "train_labels", "test_inputs", "test_labels"):
        np.testing.assert_array_equal(getattr(second, part), getattr(third, part))


def test_moons_of_a_seed_below_0_are_refused():
    with pytest.raises(BadInput, match="seed=-1: expected a whole number, at least 0"):
        vision.moons(-1)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(BadInput, match=r"'mnits'; there are: digits, moons, mnist, cifar10, cifar100, imagenet$"):
        vision.load("mnits")


# The official formats


def idx(array: np.ndarray) -> bytes:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return gzip.compress(head + array.astype(np.uint8).tobytes())


class Python2Pickler(pickle._Pickler):
    """Pickles as Python 2 did: texts and bytes are both its `str`."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_str2(self, value):
        content = value.encode() if isinstance(value, str) else value
        self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)
        self.memoize(value)

    dispatch[bytes] = dispatch[str] = save_str2


def python2(value) -> bytes:
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(value)
    return buffer.getvalue().replace(b"numpy._core.multiarray", b"numpy.core.multiarray")


def python3(value) -> bytes:
    return pickle.dumps(value, protocol=2)


GENERATOR = np.random.default_rng(0)


def rows(count: int) -> np.ndarray:
    return GENERATOR.integers(0, 256, (count, 3072), dtype=np.uint8)


def write_registry(path: Path, name: str, files: dict[str, bytes], archive: bytes) -> Path:
    """The real entry of a set, but for other files."""
    real = sources.pick(name)
    lines = [f"[{name}]", 'title = "t"', 'kind = "vision"', 'address = "http://x/"', 'terms = "free"', 'cite = "c"']
    lines += ["bytes = 0", "locked = false"]
    if real.archive:
        lines += [f'archive = "{real.archive}"', f'archive_hash = "{hashlib.sha256(archive).hexdigest()}"']
    lines += [f"[{name}.files]", *(f'"{n}" = "md5:{hashlib.md5(c).hexdigest()}"' for n, c in files.items())]
    lines += [f"[{name}.arrays]", *(f'{array} = "unknown"' for array in real.arrays)]
    path.write_text("\n".join(lines))
    return path


def converted(folder: Path, name: str, files: dict[str, bytes], monkeypatch, packed: bool = False) -> sources.Places:
    """A project whose data/ was filled from these files of a publisher, loose or as the archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member_name, content in files.items():
            member = tarfile.TarInfo(member_name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    registry = write_registry(folder.with_suffix(".toml"), name, files, buffer.getvalue())
    lying = {sources.pick(name).archive: buffer.getvalue()} if packed else files
    for file, content in lying.items():
        (folder / "companion" / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / "companion" / file).write_bytes(content)
    monkeypatch.setenv("COMPANION_DATA", str(folder / "companion"))
    places = sources.Places(folder / "data", folder / "downloads", registry, None)
    vision.prepare(name, places)
    return places


def arrays_of(places: sources.Places) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in places.data.rglob("*.npy")}


def test_mnist_files_become_images(tmp_path, monkeypatch, capsys):
    train, test = GENERATOR.integers(0, 256, (3, 28, 28)), GENERATOR.integers(0, 256, (2, 28, 28))
    files = {
        "mnist/train-images-idx3-ubyte.gz": idx(train),
        "mnist/train-labels-idx1-ubyte.gz": idx(np.array([5, 0, 4])),
        "mnist/t10k-images-idx3-ubyte.gz": idx(test),
        "mnist/t10k-labels-idx1-ubyte.gz": idx(np.array([7, 2])),
    }
    places = converted(tmp_path / "a", "mnist", files, monkeypatch)
    mnist = vision.load("mnist", places)
    np.testing.assert_array_equal(mnist.train_inputs[:, 0], train)
    np.testing.assert_array_equal(mnist.test_inputs[:, 0], test)
    assert mnist.train_labels.tolist() == [5, 0, 4]
    assert mnist.test_labels.tolist() == [7, 2]
    assert (mnist.classes, mnist.train_inputs.dtype, mnist.train_labels.dtype) == (10, np.uint8, np.int64)
    assert isinstance(mnist.train_inputs, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        mnist.train_inputs[0] = 0
    # the program: one line a set, and the lock is looked at
    assert main(["mnist"], places, lock=tmp_path / "data.dvc") == 1
    out, err = capsys.readouterr()
    assert out == "mnist           5 examples    0.0 MB   from data/   terms: free\n"
    assert err == "lib.data: data.dvc is absent; `git checkout data.dvc` brings it back\n"


def test_a_broken_idx_file_is_refused():
    whole = gzip.decompress(idx(np.zeros((2, 3))))
    assert vision.read_idx(gzip.compress(whole)).shape == (2, 3)
    for broken in (whole[:-1], whole + b"0", b"\x00\x00\x0d" + whole[3:]):
        with pytest.raises(BadInput, match="IDX"):
            vision.read_idx(gzip.compress(broken))


def test_cifar10_batches_become_images_loose_or_packed(tmp_path, monkeypatch):
    batches = {name: (rows(2), [i, 9 - i]) for i, name in enumerate([*"12345", "test"])}
    files = {"cifar-10-batches-py/batches.meta": python2({"label_names": ["cat"]})}
    for name, (data, labels) in batches.items():
        file = "test_batch" if name == "test" else f"data_batch_{name}"
        files[f"cifar-10-batches-py/{file}"] = python2({"data": data, "labels": labels, "batch_label": "b"})
    places = converted(tmp_path / "a", "cifar10", files, monkeypatch)
    cifar = vision.load("cifar10", places)
    assert cifar.train_inputs.shape == (10, 3, 32, 32)
    assert cifar.train_labels.tolist() == [0, 9, 1, 8, 2, 7, 3, 6, 4, 5]
    assert cifar.test_labels.tolist() == [5, 4]
    # third image, green plane, row 1, column 2: the batch's first row at 1024 + 32 + 2
    assert cifar.train_inputs[2, 1, 1, 2] == batches["2"][0][0, 1058]
    np.testing.assert_array_equal(cifar.test_inputs.reshape(2, -1), batches["test"][0])
    assert arrays_of(converted(tmp_path / "b", "cifar10", files, monkeypatch, packed=True)) == arrays_of(places)


def test_cifar100_has_one_order_whatever_order_it_comes_in(tmp_path, monkeypatch):
    data, labels = rows(5), [99, 3, 3, 0, 3]
    names = ["a.png", "b.png", "a.png", "c.png", "b.png"]  # two of one class share a name

    def files(order, write):
        batch = {
            b"filenames": [names[i].encode() for i in order],
            b"fine_labels": [labels[i] for i in order],
            b"coarse_labels": [labels[i] // 5 for i in order],
            b"data": data[order],
        }
        content = write(batch)
        return {f"cifar-100-python/{split}": content for split in ("train", "test")} | {"cifar-100-python/meta": b"m"}

    official = converted(tmp_path / "a", "cifar100", files([0, 1, 2, 3, 4], python2), monkeypatch)
    repacked = converted(tmp_path / "b", "cifar100", files([4, 2, 0, 3, 1], python3), monkeypatch)
    packed = converted(tmp_path / "c", "cifar100", files([0, 1, 2, 3, 4], python2), monkeypatch, packed=True)
    assert arrays_of(official) == arrays_of(repacked) == arrays_of(packed)
    cifar = vision.load("cifar100", official)
    first, second = sorted([1, 4], key=lambda i: bytes(data[i]))
    np.testing.assert_array_equal(cifar.train_inputs.reshape(5, -1), data[[3, 2, first, second, 0]])
    assert cifar.test_labels.tolist() == [0, 3, 3, 3, 99]
    assert cifar.classes == 100


class Harm:
    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


def test_a_pickle_that_runs_something_is_refused(tmp_path):
    marker = tmp_path / "harm"
    for call in ((os.mkdir, (str(marker),)), (eval, ("1",)), (np.fromfile, ("x",)), (io.open, (str(marker), "w"))):
        for protocol in (0, 2, 5):
            with pytest.raises(BadInput, match="was not read"):
                vision.unpickle(pickle.dumps({b"data": Harm(*call)}, protocol=protocol))
    assert not marker.exists()
    assert vision.unpickle(python2({"labels": [1]})) == {b"labels": [1]}


@pytest.mark.skipif(not UNPACK.exists(), reason="the packed public data is not beside this repository")
def test_the_real_mnist_becomes_the_arrays_of_the_registry(tmp_path, monkeypatch):
    subprocess.run([sys.executable, UNPACK, tmp_path / "companion", "mnist"], check=True, capture_output=True)
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path / "companion"))
    places = sources.Places(data=tmp_path / "data", download=None)
    files, origin = vision.prepare("mnist", places)
    known = sources.pick("mnist")
    assert origin == "COMPANION_DATA"
    assert {array: hashlib.sha256(path.read_bytes()).hexdigest() for array, path in files.items()} == known.arrays
    assert sum(path.stat().st_size for path in files.values()) == known.bytes
    mnist = vision.load("mnist", places)
    assert (mnist.train_inputs.shape, mnist.test_inputs.shape) == ((60000, 1, 28, 28), (10000, 1, 28, 28))
    assert mnist.test_labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert mnist.train_inputs.mean() / 255 == pytest.approx(0.1307, abs=5e-5)  # the mean everybody normalises with
