"""Read corpora that people recorded: where their files lie, and who speaks in them.

speechocean762/{WAVE,train,test}              as its publisher packs it; parts have wav.scp, utt2spk, spk2gender
speech/speechocean762/{index.json,audio}      the same clips, one Opus file a speaker
voxceleb/vox2_dev/wav/ID/VIDEO/NNNNN.wav      VoxCeleb2's development set, its .m4a files turned into .wav
voxceleb/vox1/wav/ID/VIDEO/NNNNN.wav          VoxCeleb1, both its parts in one folder
voxceleb/{veri_test2,list_test_all2,list_test_hard2}.txt     the cleaned lists of trials Vox1-O, -E and -H
"""

from __future__ import annotations

import json
import wave
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import soundfile

from lib.base import BadInput, Count, Range, build, type_of
from lib.data.speech.filterbank import RATE
from lib.data.speech.utterances import Trials, all_trials, read_trials, refuse_outside

SHORTEST = RATE // 2  # samples: half a second
LISTS = {"vox1_o": "veri_test2.txt", "vox1_e": "list_test_all2.txt", "vox1_h": "list_test_hard2.txt"}
PARTS = ("train", "test")


@dataclass(frozen=True)
class Clip:
    """Name one utterance that is not read yet, and say how to read it.

    Attributes:
        name: how errors call it.
        samples: how many its file announces.
        sex: of the speaker, as the corpus writes it; empty where it does not say.
        read: its samples in the range of 16-bit integers, [samples].
    """

    name: str
    speaker: str
    samples: int
    read: Callable[[], np.ndarray]
    sex: str = ""


@dataclass(frozen=True)
class Corpus:
    """Hold the clips to learn from, the clips to be judged on, and the lists of trials over the latter."""

    train: list[Clip]
    test: list[Clip]
    trials: Mapping[str, Trials]


def wav_clip(path: Path, speaker: str, sex: str = "") -> Clip:
    """Check an utterance in a .wav file of its own, without reading its samples.

    Raises:
        BadInput: the file is missing, no .wav file, not 16-bit mono at 16 kHz, or shorter than half a second.
    """
    try:
        with wave.open(str(path)) as file:
            found = (file.getframerate(), file.getnchannels(), 8 * file.getsampwidth())
            samples = file.getnframes()
    except FileNotFoundError as error:
        raise BadInput(f"{path} does not exist") from error
    except (wave.Error, EOFError, OSError, RuntimeError, ValueError) as error:  # RuntimeError: a chunk too long
        raise BadInput(f"{path} is no whole .wav file ({error or 'it ends too early'}): fetch it again") from error
    if found != (RATE, 1, 16):
        raise BadInput(f"{path} has {found[0]} Hz, {found[1]} channels, {found[2]} bits; expected {RATE} Hz, 1, 16")
    _long_enough(str(path), samples)
    return Clip(str(path), speaker, samples, lambda: read_wav(path), sex)


def read_wav(path: Path) -> np.ndarray:
    """Read the samples of a 16-bit mono file, int16 [n].

    Raises:
        BadInput: it ends before it should.
    """
    with wave.open(str(path)) as file:
        content, announced = file.readframes(file.getnframes()), file.getnframes()
    if len(content) != 2 * announced:
        raise BadInput(f"{path} is cut off: {len(content) // 2} of {announced} samples are there; fetch it again")
    return np.frombuffer(content, "<i2")


def _long_enough(name: str, samples: int) -> None:
    if samples < SHORTEST:
        raise BadInput(f"{name} has {samples / RATE:.2f} s; an utterance needs {SHORTEST / RATE:g} s")


def speechocean762_official(root: Path) -> Corpus:
    """Read it as published: each part has the tables wav.scp (utterance, file below the root), utt2spk (utterance,
    speaker) and spk2gender (speaker, m or f).

    Raises:
        BadInput: a table is absent, damaged or lacks an entry, a file lies outside the corpus, an utterance stands
            there twice, a part has fewer than two speakers, or as `wav_clip`.
    """
    parts: dict[str, list[Clip]] = {}
    for part in PARTS:
        files = _table(root / part / "wav.scp")
        speakers, sexes = _table(root / part / "utt2spk"), _table(root / part / "spk2gender")
        for utterance in files:
            if utterance not in speakers:
                raise BadInput(f"{root / part / 'utt2spk'} names no speaker of utterance {utterance} in wav.scp")
            if speakers[utterance] not in sexes:
                raise BadInput(f"{root / part / 'spk2gender'} says nothing of the speaker {speakers[utterance]}")
        for utterance, file in files.items():
            refuse_outside(file, f"{root / part / 'wav.scp'}, {utterance}")
        order = sorted(files, key=lambda utterance: (speakers[utterance], utterance))
        parts[part] = [wav_clip(root / files[one], speakers[one], sexes[speakers[one]]) for one in order]
    return _one_session(**parts)


def _one_session(train: list[Clip], test: list[Clip]) -> Corpus:
    """Pair all test clips: speechocean762 has one recording session a speaker, so every pair counts."""
    names = Counter(clip.name for clip in (*train, *test))
    if twice := [name for name, count in names.items() if count > 1]:
        raise BadInput(f"{twice[0]} stands there twice: each utterance belongs to one part, once")
    for part, clips in {"train": train, "test": test}.items():
        if len({clip.speaker for clip in clips}) < 2:
            raise BadInput(f"the part {part} has {len(clips)} utterances of one speaker or none; it needs two speakers")
    speakers, sexes = np.array([clip.speaker for clip in test]), np.array([clip.sex for clip in test])
    lists = {"one_session": all_trials(speakers), "same_sex": all_trials(speakers, groups=sexes)}
    return Corpus(train, test, lists)


def _table(path: Path) -> dict[str, str]:
    """Read a file of Kaldi's: key, blank, value in each line."""
    if not path.is_file():
        raise BadInput(f"{path} does not exist; it belongs to the corpus")
    try:
        lines = [line.split(maxsplit=1) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise BadInput(f"{path} is not UTF-8: fetch it again") from error
    if odd := [number for number, words in enumerate(lines, 1) if len(words) != 2]:
        raise BadInput(f"{path}, line {odd[0]}: expected a key and a value")
    if twice := [key for key, count in Counter(key for key, _ in lines).items() if count > 1]:
        raise BadInput(f"{path} has {twice[0]} twice")
    return {key: value.strip() for key, value in lines}


def speechocean762_packed(root: Path) -> Corpus:
    """Read it with one Opus file a speaker; index.json says where each clip begins, and its length, in samples.

    Raises:
        BadInput: index.json is absent or damaged, a file lies outside the corpus or is two speakers', clips overlap,
            are too short or go too far, or a part has fewer than two speakers.
    """
    index, where = _index(root / "index.json"), str(root / "index.json")
    if index.get("sample_rate") != RATE:
        raise BadInput(f"{where}: sample_rate is {index.get('sample_rate')}; expected {RATE}")
    if not isinstance(index.get("speakers"), dict):
        raise BadInput(f"{where}: expected speakers by name")
    parts: dict[str, list[Clip]] = {part: [] for part in PARTS}
    files: set[str] = set()
    for speaker, content in sorted(index["speakers"].items()):
        entry = build(PackedSpeaker, _known(content, PackedSpeaker), f"{where}, speaker {speaker}")
        refuse_outside(entry.file, f"{where}, speaker {speaker}")
        if entry.split not in PARTS or entry.file in files:
            raise BadInput(
                f"{where}, speaker {speaker}: expected a part, train or test, and a file of the speaker's own"
            )
        files.add(entry.file)
        path, end = root / entry.file, 0
        for clip in sorted(entry.clips, key=lambda clip: clip.start):
            name = f"{path}, clip {clip.id}"
            _long_enough(name, clip.n)
            if not end <= clip.start <= entry.n_samples - clip.n:
                raise BadInput(f"{name}: samples {clip.start} to {clip.start + clip.n} overlap another's or go too far")
            end = clip.start + clip.n
        for clip in sorted(entry.clips, key=lambda clip: clip.id):
            read = _slice(path, entry.n_samples, clip.start, clip.n)
            parts[entry.split].append(Clip(f"{path}, clip {clip.id}", speaker, clip.n, read, entry.gender))
    return _one_session(**parts)


@dataclass(frozen=True)
class PackedClip:
    """Say where a clip lies in its speaker's file, in samples."""

    id: str
    start: Annotated[int, Range(0)]
    n: Count


@dataclass(frozen=True)
class PackedSpeaker:
    """Hold what index.json says of a speaker, as far as it is used here."""

    file: str
    split: str
    gender: str
    n_samples: Count
    clips: tuple[PackedClip, ...]


def _index(path: Path) -> dict:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are such
        raise BadInput(f"{path} is no JSON ({error!s:.80}): unpack it again") from error
    if not isinstance(content, dict):
        raise BadInput(f"{path}: expected speakers by name, found {type_of(content)}")
    return content


def _known(content: Any, kind: type) -> Any:
    """What a dataclass takes of a mapping: the file says more than is used here, such as the text that is read."""
    if not isinstance(content, dict):
        return content
    known = {name: value for name, value in content.items() if name in kind.__dataclass_fields__}
    if isinstance(known.get("clips"), list):
        known["clips"] = [_known(clip, PackedClip) for clip in known["clips"]]
    return known


def _slice(path: Path, total: int, start: int, count: int) -> Callable[[], np.ndarray]:
    return lambda: _decoded(path, total)[start : start + count]


@lru_cache(maxsize=1)  # clips of one speaker are asked for one after another
def _decoded(path: Path, total: int) -> np.ndarray:
    try:
        samples, rate = soundfile.read(path, dtype="float32")
    except (OSError, soundfile.LibsndfileError) as error:
        raise BadInput(f"{path} cannot be read as sound ({error}): unpack it again") from error
    if (rate, samples.shape) != (RATE, (total,)):
        raise BadInput(
            f"{path} holds {samples.shape} samples at {rate} Hz; expected {(total,)} at {RATE}: unpack again"
        )
    return samples * 32768


def voxceleb(root: Path) -> Corpus:
    """Take every file of VoxCeleb2's development set, and of VoxCeleb1 every file that a list of trials names.

    Raises:
        BadInput: a folder, a list or a speaker's folder is absent or empty, or as `read_trials` and `wav_clip`.
    """
    folder, below = root / "vox2_dev" / "wav", root / "vox1" / "wav"
    if not folder.is_dir():
        raise BadInput(f"{folder} does not exist; it would hold VoxCeleb2's development set as ID/VIDEO/NNNNN.wav")
    train = [wav_clip(path, path.parts[-3]) for path in sorted(folder.glob("*/*/*.wav"))]
    if not train:
        raise BadInput(f"{folder} holds no ID/VIDEO/NNNNN.wav; turn the .m4a files into .wav")
    wanted: dict[str, str] = {}  # {file: where it is named first}
    lists = {name: read_trials(root / file) for name, file in LISTS.items()}
    for name, trials in lists.items():
        for number, (_, *files) in enumerate(trials, 1):
            wanted |= {file: f"{LISTS[name]}, line {number}" for file in files if file not in wanted}
    for file, where in wanted.items():
        if not (below / file.split("/")[0]).is_dir():
            raise BadInput(f"{where} names the speaker {file.split('/')[0]}, of whom there is no folder in {below}")
    place = {file: index for index, file in enumerate(sorted(wanted))}
    trials = {
        name: Trials(
            np.array([[place[left], place[right]] for _, left, right in rows]), np.array([row[0] for row in rows])
        )
        for name, rows in lists.items()
    }
    return Corpus(train, [wav_clip(below / file, file.split("/")[0]) for file in place], trials)
