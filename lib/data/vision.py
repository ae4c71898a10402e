"""Load images, and the two moons: `load(name)`.

Two sets come with scikit-learn (`digits`, `moons`), three are public (`mnist`, `cifar10`, `cifar100`; see
`lib.data.sources` for where they are looked for). A public set is kept in data/<name>/ as canonical arrays, the same
bytes whichever source they came from: images uint8 [N, C, H, W] in the publisher's order, labels uint8 [N]. CIFAR-100,
which also goes round in other orders, is sorted by fine label, then file name.
"""

import gzip
import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.base import BadInput, refuse_uncounted
from lib.data import folder, sources

SEED = 0  # of the digits' split, the moons' noise and the moons' split
TEST = 500  # examples of the digits and of the moons to test on


@dataclass(frozen=True, eq=False)
class Dataset:
    """Hold a set to learn from and one to be judged on.

    Inputs are uint8 images [N, C, H, W], 0 to 255, or float32 points [N, 2]; labels int64 [N], 0 to `classes` - 1.
    Images of public sets are memory-mapped and read-only: copy what you change or hand to torch.
    """

    name: str
    train_inputs: np.ndarray | folder.Images
    train_labels: np.ndarray
    test_inputs: np.ndarray | folder.Images
    test_labels: np.ndarray
    classes: int


def load(name: str, places: sources.Places = sources.PROJECT) -> Dataset:
    """Load the data set called `name`: digits, moons, mnist, cifar10, cifar100 or imagenet.

    A public set that is not in data/ yet is first read from COMPANION_DATA or downloaded (up to 170 MB).

    Raises:
        BadInput: an unknown name, and whatever keeps a public set from being found whole and unaltered.
    """
    if name in MADE:
        return MADE[name]()
    if name == "imagenet":
        return imagenet()
    files, _ = prepare(name, places)
    arrays = {array: sources.open_array(path) for array, path in files.items()}
    for part in ("train_labels", "test_labels"):
        arrays[part] = arrays[part].astype(np.int64)
    return Dataset(name=name, classes=PUBLIC[name][1], **arrays)


def prepare(name: str, places: sources.Places = sources.PROJECT) -> tuple[dict[str, Path], str]:
    """Prepare the checked arrays of a public set, {array: file}, and where they came from; see `sources.prepare`.

    Raises:
        BadInput: an unknown name, or as `sources.prepare`.
    """
    if name not in PUBLIC:
        raise BadInput(f"no data set called {name!r}; there are: {', '.join(names())}")
    return sources.prepare(name, PUBLIC[name][0], places)


def names() -> list[str]:
    """Name all that `load` knows."""
    return [*MADE, *PUBLIC, "imagenet"]


def imagenet() -> Dataset:
    """Open ImageNet's (ILSVRC2012) train and val folders, one folder a class, below COMPANION_DATA/imagenet.

    Its publisher gives it to registered researchers only, so it is never downloaded here. Images stay files
    (`lib.data.folder.Images`).

    Raises:
        BadInput: the folder is not there, its two parts hold different classes, or as `folder.read_split`.
    """
    root = sources.companion()
    if root is None or not (root / "imagenet").is_dir():
        wanted = f"name the folder that holds imagenet/train and imagenet/val in {sources.VARIABLE}"
        raise BadInput(f"imagenet is not downloaded by this project: get it from its publisher, then {wanted}")
    train, train_labels, classes = folder.read_split(root / "imagenet" / "train")
    test, test_labels, others = folder.read_split(root / "imagenet" / "val")
    if classes != others:
        odd = sorted(set(classes) ^ set(others))
        raise BadInput(f"imagenet: train and val hold different classes, {odd[0]!r} is in one of them only")
    return Dataset("imagenet", train, train_labels, test, test_labels, len(classes))


def digits() -> Dataset:
    """Load scikit-learn's 1,797 handwritten digits: uint8 [N, 1, 8, 8], 1,297 to train on, 500 to test, stratified.

    The counts 0 to 16 become 0 to 255 (times 255 / 16, rounded), so that dividing by 255 suits every image set.
    """
    # imported here: it takes more than a second, and the process that starts a sweep's workers loads no data
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = np.rint(images * (255 / 16)).astype(np.uint8).reshape(-1, 1, 8, 8)
    return _split("digits", images, labels, stratify=labels)


def moons(seed: int = SEED, test: int = TEST) -> Dataset:
    """Draw two interleaved half circles with normal noise of standard deviation 0.10: float32 [N, 2], 500 + `test`
    points.

    Paper 4, section 6.1: 1,000 points, 500 picked at random to train on. It does not state the noise. Ours was chosen
    because it gives a plain network about the accuracy printed there, so that no accuracy by itself is a finding.

    Args:
        seed: of the points and of the split; `load` has those of SEED.
        test: how many points to test on.

    Raises:
        BadInput: a seed below 0, or no points to test on.
    """
    refuse_uncounted(0, seed=seed)
    refuse_uncounted(test=test)
    from sklearn.datasets import make_moons

    points, labels = make_moons(500 + test, noise=0.10, random_state=seed)
    return _split("moons", points.astype(np.float32), labels, test=test, seed=seed)


def _split(
    name: str,
    inputs: np.ndarray,
    labels: np.ndarray,
    stratify: np.ndarray | None = None,
    test: int = TEST,
    seed: int = SEED,
) -> Dataset:
    """So many examples to test on, the rest to train on, picked by the seed."""
    from sklearn.model_selection import train_test_split

    labels = labels.astype(np.int64)
    train_inputs, test_inputs, train_labels, test_labels = train_test_split(
        inputs, labels, test_size=test, random_state=seed, stratify=stratify
    )
    return Dataset(name, train_inputs, train_labels, test_inputs, test_labels, int(labels.max()) + 1)


def read_idx(content: bytes) -> np.ndarray:
    """Read the uint8 array of a gzipped IDX file: two zero bytes, type 8, the rank, sizes (big-endian), values.

    Raises:
        BadInput: another type of values, or more or fewer of them than the sizes say.
    """
    content = gzip.decompress(content)
    if content[:3] != b"\x00\x00\x08":
        raise BadInput(f"no IDX file of unsigned bytes: it begins with {content[:3].hex()}, not 000008")
    rank = content[3]
    shape = np.frombuffer(content, ">u4", rank, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * rank)
    if values.size != np.prod(shape, dtype=int):
        raise BadInput(f"no whole IDX file: {values.size} values for the shape {tuple(map(int, shape))}")
    return values.reshape(shape)


def read_mnist(files: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """Turn the four official files into the arrays of `mnist`."""
    read = {name: read_idx(content) for name, content in files.items()}
    return {
        "train_inputs": read["mnist/train-images-idx3-ubyte.gz"][:, None],
        "train_labels": read["mnist/train-labels-idx1-ubyte.gz"],
        "test_inputs": read["mnist/t10k-images-idx3-ubyte.gz"][:, None],
        "test_labels": read["mnist/t10k-labels-idx1-ubyte.gz"],
    }


def read_cifar10(files: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """Turn the six official batches into the arrays of `cifar10`."""
    train = [unpickle(files[f"cifar-10-batches-py/data_batch_{i}"]) for i in range(1, 6)]
    test = unpickle(files["cifar-10-batches-py/test_batch"])
    return {
        "train_inputs": _images(np.concatenate([batch[b"data"] for batch in train])),
        "train_labels": np.concatenate([batch[b"labels"] for batch in train]).astype(np.uint8),
        "test_inputs": _images(test[b"data"]),
        "test_labels": np.array(test[b"labels"], np.uint8),
    }


def read_cifar100(files: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """Turn the two splits into the arrays of `cifar100` (fine labels), by label, then file name, then content."""
    arrays = {}
    for split in ("train", "test"):
        batch = unpickle(files[f"cifar-100-python/{split}"])
        pixels, labels, names = batch[b"data"], batch[b"fine_labels"], batch[b"filenames"]
        # the content settles which of two images of the same name comes first, so that no source's order remains
        order = sorted(range(len(labels)), key=lambda i: (labels[i], names[i], pixels[i].tobytes()))
        arrays[f"{split}_inputs"] = _images(pixels[order])
        arrays[f"{split}_labels"] = np.array(labels, np.uint8)[order]
    return arrays


def _images(pixels: np.ndarray) -> np.ndarray:
    """CIFAR's rows [N, 3072] (red, green, blue plane) as images [N, 3, 32, 32]."""
    return pixels.reshape(-1, 3, 32, 32)


def unpickle(content: bytes) -> dict:
    """Read a CIFAR file; its texts as bytes. BadInput if it asks for anything but arrays, lists and texts."""
    return _ArraysOnly(io.BytesIO(content), encoding="bytes").load()


class _ArraysOnly(pickle.Unpickler):
    """A pickle may call any function there is. CIFAR's files need the three of a numpy array; repacked ones bytes."""

    def find_class(self, module: str, name: str) -> object:
        # numpy has moved its function since the files were written (2009: numpy.core)
        allowed = {
            ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
            ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
            ("numpy", "ndarray"): np.ndarray,
            ("numpy", "dtype"): np.dtype,
            ("_codecs", "encode"): _latin1,
        }
        if (module, name) not in allowed:
            raise BadInput(f"a CIFAR file asks for {module}.{name}, which only an altered one does; it was not read")
        return allowed[module, name]


_RECONSTRUCT = np.empty(0).__reduce__()[0]


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes in a pickle of protocol 2."""
    return text.encode("latin1")


MADE: dict[str, Callable[[], Dataset]] = {"digits": digits, "moons": moons}
PUBLIC: dict[str, tuple[sources.Reader, int]] = {
    "mnist": (read_mnist, 10),
    "cifar10": (read_cifar10, 10),
    "cifar100": (read_cifar100, 100),
}
