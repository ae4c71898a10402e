"""Data that are damaged or lie about themselves are refused in one line, before they are read or learned from."""

import io
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import h5py
import numpy as np
import pytest

from lib.base import BadInput
from lib.data import folder, offline_rl, policies, sources, text, vision
from lib.data.offline_rl import files
from lib.data.speech import prepared, voices
from lib.data.speech.filterbank import log_mel
from lib.data.speech.utterances import Utterances, all_trials, refuse_outside

# HDF5

SIZES = {"observations": (5, 11), "actions": (5, 3), "rewards": (5,), "terminals": (5,), "timeouts": (5,)}


def hdf5(change) -> dict:
    """A file of D4RL's kind, changed before it is read."""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        for name, size in SIZES.items():
            file[name] = np.zeros(size, np.float32)
        change(file)
    content.seek(0)
    return files.read_hdf5(content, "x")


def replaced(file: h5py.File, name: str, **how) -> None:
    del file[name]
    file.create_dataset(name, **how)


def linked(file: h5py.File, link: object) -> None:
    del file["rewards"]
    file["rewards"] = link


FILES = {
    "1e11 rows": (
        lambda file: replaced(file, "observations", shape=(10**11, 11), dtype="f4", chunks=True),
        "observations announces",
    ),
    "no numbers": (lambda file: replaced(file, "rewards", data=h5py.Empty("f")), "rewards is empty; expected numbers"),
    "text": (lambda file: replaced(file, "rewards", data=np.array([b"a"] * 5)), "rewards is .S1; expected numbers"),
    "another file": (lambda file: linked(file, h5py.ExternalLink("/etc/passwd", "/x")), "x lacks rewards"),
    "a circle": (lambda file: linked(file, h5py.SoftLink("/rewards")), "x lacks rewards"),
    "another file's bytes": (
        lambda file: replaced(file, "rewards", shape=(5,), dtype="f4", external=[("/etc/hostname", 0, 20)]),
        "rewards lies in another file",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_promises_what_it_does_not_hold_is_refused(case: str):
    change, line = FILES[case]
    assert hdf5(lambda file: None)["rewards"].tolist() == [0] * 5
    with pytest.raises(BadInput, match=line):
        hdf5(change)


# Episodes of Minari


def episode(**change) -> SimpleNamespace:
    arrays = {"observations": np.zeros((6, 11)), "actions": np.zeros((5, 3)), "rewards": np.zeros(5)}
    arrays |= {"terminations": np.zeros(5, bool), "truncations": np.arange(5) == 4}
    return SimpleNamespace(**(arrays | change))


EPISODES = {
    "an observation too few": {"observations": np.zeros((5, 11))},
    "another width": {"observations": np.zeros((6, 12))},
    "text": {"rewards": np.array(["a"] * 5)},
    "no array": {"observations": {"a": 1}},
    "half an end": {"terminations": np.full(5, 0.5)},
    "an end that is NaN": {"terminations": np.full(5, np.nan)},
    "an end in the middle": {"terminations": np.arange(5) == 2},
    "no end": {"truncations": np.zeros(5, bool)},
}


@pytest.mark.parametrize("case", EPISODES)
def test_an_episode_that_cannot_be_is_refused_by_its_number(case: str):
    assert len(files.from_episodes([episode()], "hopper", "m")) == 5
    with pytest.raises(BadInput, match=r"^m, episode 1: "):
        files.from_episodes([episode(), episode(**EPISODES[case])], "hopper", "m")


# Policies and images


def test_whichever_bit_of_a_policy_is_flipped_no_other_numbers_are_loaded(tmp_path: Path):
    source = policies.EXPERTS / "Hopper-v4" / "expert.npz"
    content, right, path = source.read_bytes(), policies.read(source), tmp_path / "x.npz"
    for place in range(0, len(content), len(content) // 60):
        spoilt = bytearray(content)
        spoilt[place] ^= 1 << place % 8
        path.write_bytes(spoilt)
        try:
            found = policies.read(path)
        except BadInput:
            continue
        assert all(np.array_equal(a, b) for a, b in zip(found.weights, right.weights, strict=True))


@pytest.mark.parametrize("content", [b"", b"hello"])
def test_what_is_no_policy_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(BadInput, match=r"is not a policy's \.npz file"):
        policies.read(tmp_path / "x.npz")


def test_an_image_that_would_fill_the_memory_is_refused(tmp_path: Path):
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    (tmp_path / "x.png").write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(bytes(100))))
    with pytest.raises(BadInput, match=r"cannot be read as an image \(Image size"):
        folder.one(tmp_path / "x.png", 32, None)


# Speech


def corpus(place: Path, **change) -> None:
    """The arrays of a recorded corpus, some of them others, loaded."""
    arrays = {}
    for part in ("train", "test"):
        features = np.random.default_rng(0).normal(size=(60, 40)).astype(np.float32)
        arrays |= {f"{part}_features": features, f"{part}_starts": np.arange(0, 61, 10)}
        arrays |= {f"{part}_speakers": np.repeat([0, 1, 2], 2), f"{part}_means": np.zeros((6, 40), np.float32)}
    trials = all_trials(arrays["test_speakers"])
    for key in ("one_session", "same_sex"):
        arrays |= {f"{key}_pairs": trials.pairs, f"{key}_same": trials.same}
    target = place / "speechocean762" / "official"
    target.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(target / f"{name}.npy", change[name](array) if name in change else array)
    prepared.load("speechocean762", sources.Places(data=place))


ARRAYS = {
    "another width": ({"train_features": lambda a: a[:, :39]}, r"have features \[60, 39\]"),
    "too short": ({"train_features": lambda a: a[:50]}, "must follow one another from frame 0 to 50"),
    "backwards": ({"train_starts": lambda a: a[::-1]}, "must follow one another"),
    "a negative start": ({"train_starts": lambda a: a - 1}, "must follow one another"),
    "an empty utterance": ({"train_starts": lambda a: np.array([0, 10, 10, 30, 40, 50, 60])}, "one frame or more"),
    "a mean that is NaN": ({"train_means": lambda a: a * np.nan}, "features of utterance 0 are not finite"),
    "a negative speaker": ({"train_speakers": lambda a: a - 1}, "the speaker -1"),
    "one speaker": ({"train_speakers": lambda a: a * 0}, "two at least"),
    "pairs out of range": ({"one_session_pairs": lambda a: a + 100}, "pairs utterances that are not there"),
    "negative pairs": ({"one_session_pairs": lambda a: a - 1}, "pairs utterances that are not there"),
    "pairs with themselves": ({"one_session_pairs": lambda a: a * 0}, "or one with itself"),
    "answers flipped": ({"one_session_same": lambda a: ~a}, "disagree on who is who"),
    "answers too few": ({"one_session_same": lambda a: a[:-1]}, "trials must be pairs"),
    "no trials": (
        {"one_session_pairs": lambda a: a[:0], "one_session_same": lambda a: a[:0]},
        "0 trials of one speaker, 0 of two: error rates need both",
    ),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_of_a_corpus_that_cannot_be_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str):
    monkeypatch.delenv("COMPANION_DATA", raising=False)
    change, line = ARRAYS[case]
    with pytest.raises(BadInput, match=line) as error:
        corpus(tmp_path, **change)
    assert "\n" not in str(error.value)


def test_an_array_of_a_corpus_that_was_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("COMPANION_DATA", raising=False)
    corpus(tmp_path)
    path = tmp_path / "speechocean762" / "official" / "train_features.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"train_features\.npy is not as it was computed: move .* away"):
        prepared.load("speechocean762", sources.Places(data=tmp_path))
    path.with_name("test_features.npy").unlink()  # what is made anew does not make the others right
    monkeypatch.setattr(prepared, "_form", lambda name, places: ("official", tmp_path))
    with pytest.raises(BadInput, match=r"train_features\.npy is not as it was computed"):
        prepared.load("speechocean762", sources.Places(data=tmp_path))


@pytest.mark.parametrize("name", ["/etc/passwd", "../x.wav", "a/../../x.wav", 5])
def test_a_list_names_files_below_its_own_folder_only(name: object):
    refuse_outside("WAVE/1.WAV", "wav.scp")
    with pytest.raises(BadInput, match=r"wav\.scp: .* does not lie below the corpus's folder"):
        refuse_outside(name, "wav.scp")


def test_too_little_sound_and_speakers_who_are_not_there_are_refused():
    with pytest.raises(BadInput, match=r"a waveform of shape \[399\]: expected \[n\] with 400 samples or more"):
        log_mel(np.zeros(399))
    with pytest.raises(BadInput, match="made of waveforms, there are none here"):
        Utterances.of([], [])
    both = Utterances.of([np.zeros(400)] * 2, [0, 3])
    with pytest.raises(BadInput, match="no utterance is the speaker 7's: there are 0, 3"):
        both.of_speakers([3, 7])
    with pytest.raises(BadInput, match="utterances of no speaker"):
        both.of_speakers([])
    with pytest.raises(BadInput, match="utterances must lie within frames 0 to 2, each with one frame or more"):
        replace(both, starts=np.array([0, 1]), ends=np.array([1, 3]))


# Arguments


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: vision.moons(test=0), "^test=0: expected a whole number, at least 1"),
        (lambda: offline_rl.check("recorded", "expert", 1.5), "^transitions=1.5: expected a whole number, at least 1"),
        (lambda: voices.synthetic(seed=-1), "^seed=-1: expected a whole number, at least 0"),
        (lambda: text.Play("a play", (), "\nab").encode("ba?!"), "^a play has no character '!', so it has no token"),
    ],
)
def test_what_no_data_can_be_made_from_is_refused_in_one_line(call, line: str):
    with pytest.raises(BadInput, match=line):
        call()
