"""Laws of `lib.data.sources` and of the lock on data/: nothing unchecked, nothing half-written, one line when refused.

The set here is a toy of two files and two arrays; no network, no real data.
"""

import hashlib
import io
import re
import socket
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest

from lib import base
from lib.base import BadInput
from lib.data import sources
from lib.data.__main__ import contents, lock_difference, main

FILES = {"toy/a.bin": b"\x01\x02\x03\x04", "toy/b.bin": b"\x00\x01\x01\x00"}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def npy(values: list[int]) -> bytes:
    """The .npy file of a uint8 vector, by hand: magic, version 1.0, header padded to 128 bytes, values."""
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({len(values)},), }}".encode()
    return b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n" + bytes(values)


ARRAYS = {"inputs": npy([1, 2, 3, 4]), "labels": npy([0, 1, 1, 0])}


def read(files):
    return {
        "inputs": np.frombuffer(files["toy/a.bin"], np.uint8),
        "labels": np.frombuffer(files["toy/b.bin"], np.uint8),
    }


def archive() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in reversed(FILES.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


ARCHIVE = archive()


def no_download(address, file):
    raise OSError("no network")


def write_registry(
    path: Path, archive: bool = False, arrays: dict = ARRAYS, locked: bool = True, address: str = "http://x/"
):
    lines = ["[toy]", 'title = "t"', 'kind = "k"', f'address = "{address}"', 'terms = "free"', 'cite = "c"']
    lines += ["bytes = 264", f"locked = {str(locked).lower()}"]
    if archive:
        lines += ['archive = "toy.tar.gz"', f'archive_hash = "{sha256(ARCHIVE)}"']
    lines += ["[toy.files]", *(f'"{name}" = "{sha256(content)}"' for name, content in FILES.items()), "[toy.arrays]"]
    lines += [f'{name} = "{sha256(content) if content else "unknown"}"' for name, content in arrays.items()]
    path.write_text("\n".join(lines))
    return path


def write(folder: Path, files: dict) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A project without data, COMPANION_DATA or a network."""
    monkeypatch.delenv("COMPANION_DATA", raising=False)
    registry = write_registry(tmp_path / "registry.toml")
    return sources.Places(tmp_path / "data", tmp_path / "downloads", registry, no_download)


@pytest.fixture
def companion(tmp_path, monkeypatch):
    """The same, with the publisher's files in COMPANION_DATA."""
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path / "companion"))
    return write(tmp_path / "companion", FILES)


def refused(places, *words, reader=read):
    """`prepare` says no in one line that has all these words."""
    with pytest.raises(BadInput) as error:
        sources.prepare("toy", reader, places)
    line = str(error.value)
    assert "\n" not in line
    assert [word for word in words if str(word) not in line] == []


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


WHOLE = {"toy/inputs.npy": ARRAYS["inputs"], "toy/labels.npy": ARRAYS["labels"]}


def test_every_source_gives_the_same_bytes(places, tmp_path, monkeypatch):
    sent = {"http://x/a.bin": FILES["toy/a.bin"], "http://x/b.bin": FILES["toy/b.bin"], "http://x/toy.tar.gz": ARCHIVE}
    packed = write_registry(tmp_path / "packed.toml", archive=True)
    folders = {
        "loose": (write(tmp_path / "loose", FILES), places.registry),
        "archive": (write(tmp_path / "archive", {"toy.tar.gz": ARCHIVE}), packed),
        "download": ("", places.registry),
        "downloaded archive": ("", packed),
    }
    for case, (folder, registry) in folders.items():
        monkeypatch.setenv("COMPANION_DATA", str(folder))
        here = replace(
            places, data=tmp_path / case / "data", downloads=tmp_path / case / "downloads", registry=registry
        )
        if not folder:
            here = replace(here, download=lambda address, file: file.write(sent[address]))
        files, origin = sources.prepare("toy", read, here)
        assert files_below(here.data) == WHOLE, case
        assert origin == ("COMPANION_DATA" if folder else "http://x/")
        assert files == {array: here.data / "toy" / f"{array}.npy" for array in ARRAYS}
        # and the second time from data/ alone
        assert sources.prepare("toy", None, replace(here, downloads=None, download=None))[1] == "data/"


def test_a_checksum_may_have_a_prefix_and_alternatives():
    def digest(algorithm):
        return {"sha256": "aa", "md5": "bb"}[algorithm]

    for accepted in (["aa"], ["sha256:aa"], ["md5:bb"], ["cc", "md5:bb"], ["md5:cc", "aa"]):
        sources.check("f", accepted, digest, "r")
    for accepted in (["bb"], ["md5:aa"], ["cc", "md5:dd"]):
        with pytest.raises(BadInput, match="f is altered"):
            sources.check("f", accepted, digest, "r")


@pytest.mark.parametrize("content", [b"\x01\x02\x03", b"\x01\x02\x03\x05", b""])
def test_a_truncated_or_altered_file_of_the_publisher_is_refused_and_stays(places, companion, content):
    bad = companion / "toy/a.bin"
    bad.write_bytes(content)
    refused(places, bad, sha256(FILES["toy/a.bin"]), sha256(content), "move it away")
    assert bad.read_bytes() == content
    assert not places.data.exists()


def test_a_truncated_archive_is_refused_and_stays(places, companion, tmp_path):
    here = replace(places, registry=write_registry(tmp_path / "packed.toml", archive=True))
    (companion / "toy/a.bin").unlink()
    write(companion, {"toy.tar.gz": ARCHIVE[:-1]})
    refused(here, companion / "toy.tar.gz", sha256(ARCHIVE), sha256(ARCHIVE[:-1]))
    assert (companion / "toy.tar.gz").read_bytes() == ARCHIVE[:-1]


@pytest.mark.parametrize("content", [ARRAYS["inputs"][:-1], npy([1, 2, 3, 5]), b""])
def test_an_altered_array_is_refused_and_stays(places, companion, content):
    sources.prepare("toy", read, places)
    bad = places.data / "toy/inputs.npy"
    bad.write_bytes(content)
    refused(places, bad, sha256(ARRAYS["inputs"]), sha256(content), "move it away", "make data")
    assert bad.read_bytes() == content
    bad.rename(bad.with_suffix(".bad"))  # what the line says
    sources.prepare("toy", read, places)
    assert bad.read_bytes() == ARRAYS["inputs"]


def test_an_array_without_a_known_checksum_must_at_least_be_whole(tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(npy([1, 2, 3]))
    assert sources.open_array(path).tolist() == [1, 2, 3]
    for content in (npy([1, 2, 3])[:-1], npy([1, 2, 3])[:20], b"", npy([1, 2, 3]).replace(b"}", b" ")):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=r"x\.npy is no whole"):
            sources.open_array(path)


def test_companion_data_must_be_a_folder(places, monkeypatch, tmp_path):
    monkeypatch.setenv("COMPANION_DATA", str(tmp_path / "nowhere"))
    refused(places, "COMPANION_DATA", tmp_path / "nowhere", "not a folder")


def test_without_a_network_one_line_names_file_address_and_variable(places, monkeypatch):
    with socket.socket() as closed:  # bound, so nobody else listens there; not listening, so it refuses
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        monkeypatch.setenv("no_proxy", "*")
        write_registry(places.registry, address=address)
        here = replace(places, download=sources.download)
        refused(here, "toy/a.bin", f"{address}a.bin", "ConnectionError", "COMPANION_DATA is not set")
    assert files_below(places.downloads) == {}


def test_a_companion_folder_that_lacks_a_file_is_said(places, companion):
    (companion / "toy/b.bin").unlink()
    refused(places, f"COMPANION_DATA={companion} lacks toy/b.bin", "http://x/a.bin", "no network")
    here = replace(places, download=lambda address, file: file.write(FILES["toy/" + address[-5:]]))
    assert sources.prepare("toy", read, here)[1] == f"http://x/ (COMPANION_DATA={companion} lacks toy/b.bin)"


@pytest.mark.parametrize("cut", [OSError("reset"), KeyboardInterrupt()])
def test_an_interrupted_download_leaves_nothing(places, cut):
    def half(address, file):
        file.write(FILES["toy/a.bin"][:2])
        raise cut

    with pytest.raises((BadInput, KeyboardInterrupt)):
        sources.prepare("toy", read, replace(places, download=half))
    assert files_below(places.downloads) == {}


def test_another_content_than_expected_is_not_kept(places):
    here = replace(places, download=lambda address, file: file.write(b"sorry"))
    refused(here, "http://x/a.bin", sha256(FILES["toy/a.bin"]), sha256(b"sorry"))
    assert files_below(places.downloads) == {}


def test_an_altered_download_is_neither_used_nor_fetched_again(places):
    write(places.downloads, {"toy/a.bin": b"????"})
    here = replace(places, download=lambda address, file: file.write(FILES["toy/" + address[-5:]]))
    refused(here, places.downloads / "toy/a.bin", sha256(b"????"))
    assert (places.downloads / "toy/a.bin").read_bytes() == b"????"


def test_an_interrupted_conversion_leaves_nothing_taken_for_whole(places, companion):
    def stops(files):
        raise KeyboardInterrupt

    def second_fails(files):
        return read(files) | {"labels": np.array([None])}  # cannot be written

    for reader, error, left in ((stops, KeyboardInterrupt, []), (second_fails, ValueError, ["toy/inputs.npy"])):
        with pytest.raises(error):
            sources.prepare("toy", reader, places)
        assert [*files_below(places.data)] == left
    # killed while writing: the part stays, and nobody takes it for the array
    write(places.data, {"toy/.labels.npy.0badcafe.part": ARRAYS["labels"][:-2]})
    sources.prepare("toy", read, places)
    assert {name: content for name, content in files_below(places.data).items() if ".part" not in name} == WHOLE


def test_a_conversion_that_gives_other_bytes_is_not_kept(places, companion):
    wrong = np.array([9, 9, 9, 9], np.uint8)
    refused(
        places,
        "the conversion to",
        "inputs.npy",
        sha256(npy([9, 9, 9, 9])),
        reader=lambda f: read(f) | {"inputs": wrong},
    )
    assert files_below(places.data) == {}


def test_two_at_once_do_not_disturb_each_other(places, companion):
    both = Barrier(2, timeout=10)

    def slow(files):
        both.wait()  # both have found nothing and start to write
        return read(files)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda _: sources.prepare("toy", slow, places), range(2)))
    assert len(results) == 2
    assert files_below(places.data) == WHOLE


def test_a_file_that_changes_is_hashed_again(places, companion):
    sources.prepare("toy", read, places)
    path = places.data / "toy/inputs.npy"
    sources.prepare("toy", read, places)
    path.unlink()
    path.write_bytes(npy([4, 3, 2, 1]))  # same size
    refused(places, path)


def test_an_unknown_set_is_refused_with_the_known_ones(places, capsys):
    with pytest.raises(BadInput, match=r"'toys'; there are: toy$"):
        sources.prepare("toys", read, places)
    with pytest.raises(SystemExit) as stop:
        main(["toys"], places)
    assert stop.value.code == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "lib.data: no public data set called 'toys'; there are: toy\n")


def test_the_registry_is_in_step_with_data_dvc_and_dvcignore():
    known = sources.registry().values()
    locked = [source for source in known if source.locked]
    for source in locked:
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in source.arrays.values())
    lock = (base.ROOT / "data.dvc").read_text()
    assert f"  size: {sum(source.bytes for source in locked)}\n" in lock
    assert f"  nfiles: {sum(len(source.arrays) for source in locked)}\n" in lock
    assert "  cache: false\n" in lock  # no second copy in .dvc/cache, and `dvc status` works without one
    ignored = [line for line in (base.ROOT / ".dvcignore").read_text().splitlines() if not line.startswith("#")]
    assert ignored == [*(f"/data/{source.name}" for source in known if not source.locked), "*.part", "__pycache__"]


# What DVC writes of data/toy/{inputs,labels}.npy as above (the last test asks DVC)
LOCK = """outs:
- md5: 2b28b8c5a46fa9466088dddf86885668.dir
  size: 264
  nfiles: 2
  hash: md5
  path: data
  cache: false
"""


@pytest.fixture
def lock(places, companion, tmp_path):
    """The toy set in data/ and the data.dvc that fits."""
    sources.prepare("toy", read, places)
    path = tmp_path / "data.dvc"
    path.write_text(LOCK)
    yield path
    assert path.read_text() == LOCK  # nothing may write to it


def test_nothing_to_say_when_data_is_as_locked(places, lock):
    write(places.data, {"toy/.labels.npy.0badcafe.part": b"left"})
    assert lock_difference(places, lock) is None


def test_whatever_would_change_data_dvc_is_said(places, lock, tmp_path):
    inputs = places.data / "toy/inputs.npy"
    write(places.data, {"toy/notes.txt": b"x"})
    assert "holds toy/notes.txt" in lock_difference(places, lock)
    (places.data / "toy/notes.txt").unlink()
    write(places.data, {"toy/inputs.npy": npy([1, 2, 3, 5])})
    assert "not the locked one" in lock_difference(places, lock)
    inputs.unlink()
    assert "lacks toy/inputs.npy" in lock_difference(places, lock)
    assert "git checkout" in lock_difference(places, tmp_path / "absent.dvc")


def test_a_set_that_is_not_locked_does_not_count(places, lock):
    write_registry(places.registry, locked=False)
    assert contents(places.data, ["toy"]) == []
    write(places.data, {"toys/x": b""})
    assert "holds toys/x" in lock_difference(places, lock)


def test_dvc_itself_says_the_same(places, lock, tmp_path):
    def dvc(*words):
        command = [sys.executable, "-m", "dvc", *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout.strip()

    dvc("init", "--no-scm", "--quiet")
    (tmp_path / ".dvcignore").write_text("/data/other\n*.part\n")
    write(places.data, {"other/x": b"1", "toy/.labels.npy.0badcafe.part": b"left"})
    dvc("config", "core.analytics", "false")
    assert dvc("status", "--json", "data.dvc") == "{}"
    write(places.data, {"toy/inputs.npy": npy([1, 2, 3, 5])})
    assert dvc("status", "--json", "data.dvc") == '{"data.dvc": [{"changed outs": {"data": "modified"}}]}'
