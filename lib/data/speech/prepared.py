"""Compute the features of recorded corpora once and keep them in data/<name>/<form>/ as arrays.

A corpus is looked for below the folder that COMPANION_DATA names, in each of the forms `FORMS` lists; nothing is
downloaded here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from lib.base import BadInput, atomic
from lib.data import sources
from lib.data.speech.corpora import LISTS, PARTS, Clip, Corpus, speechocean762_official, speechocean762_packed, voxceleb
from lib.data.speech.filterbank import BANDS, frames, log_mel
from lib.data.speech.utterances import SpeechData, Trials, Utterances

LARGE = 2**32  # bytes
ARRAYS = ("features", "starts", "speakers", "means")
FORMS: dict[str, dict[str, tuple[str, Callable[[Path], Corpus]]]] = {
    "speechocean762": {
        "official": ("speechocean762", speechocean762_official),
        "packed": ("speech/speechocean762", speechocean762_packed),
    },
    "voxceleb": {"official": ("voxceleb", voxceleb)},
}
TRIALS = {"speechocean762": ("one_session", "same_sex"), "voxceleb": tuple(LISTS)}


def load(name: str, places: sources.Places = sources.PROJECT) -> SpeechData:
    """Load a corpus with its features memory-mapped."""
    files, _ = prepare(name, places)
    _compare(files)
    arrays = {array: sources.open_array(path) for array, path in files.items()}
    train, test = (Utterances(**{array: arrays[f"{part}_{array}"] for array in ARRAYS}) for part in PARTS)
    trials = {key: Trials(arrays[f"{key}_pairs"], arrays[f"{key}_same"]) for key in TRIALS[name]}
    return SpeechData(name, train, test, int(train.speakers.max(initial=-1)) + 1, trials)


def prepare(name: str, places: sources.Places = sources.PROJECT) -> tuple[dict[str, Path], str]:
    """Find the arrays of a corpus, {array: data/<name>/<form>/<array>.npy}, and say where they came from.

    They are computed when one is missing: a few minutes for speechocean762, hours and 140 GB for VoxCeleb.

    Raises:
        BadInput: no such corpus, it is nowhere, or a file of it is not as it should be.
    """
    if name not in FORMS:
        raise BadInput(f"no corpus called {name!r}; there are: {', '.join(FORMS)}")
    form, folder = _form(name, places)
    files = _files(name, form, places)
    if all(path.exists() for path in files.values()):
        return files, f"data/ ({form})"
    there = {array: path for array, path in files.items() if path.exists()}
    if there and _sums(files).exists():
        _compare(there)  # before the checksums are those of other files
    corpus = FORMS[name][form][1](folder)
    if both := {clip.speaker for clip in corpus.train} & {clip.speaker for clip in corpus.test}:
        raise BadInput(f"{folder}: the speaker {min(both)} is in both parts; nobody to learn from may be tested on")
    for key, trials in corpus.trials.items():
        _save(files[f"{key}_pairs"], trials.pairs)
        _save(files[f"{key}_same"], trials.same)
    for part in PARTS:
        of_part = {array: files[f"{part}_{array}"] for array in ARRAYS}
        if not all(path.exists() for path in of_part.values()):
            store(getattr(corpus, part), of_part)
    _sums(files).unlink(missing_ok=True)  # they are other files now
    return files, f"{sources.VARIABLE} ({form})"


def _sums(files: dict[str, Path]) -> Path:
    """Where the checksums of a corpus's arrays are kept, beside them."""
    return next(iter(files.values())).with_name("sums.json")


def _compare(files: dict[str, Path]) -> None:
    """Compare each array with its checksum, which of one beyond LARGE is its size: hashing VoxCeleb takes minutes.

    Without checksums, those of the arrays as they are now are kept.

    Raises:
        BadInput: an array that is not as it was.
    """
    path = _sums(files)
    sizes = {array: file.stat().st_size for array, file in files.items()}
    digests = {
        array: sources.file_digest(file, "sha256") if sizes[array] <= LARGE else f"{sizes[array]} bytes"
        for array, file in files.items()
    }
    if not path.exists():
        with atomic(path) as file:
            file.write(json.dumps(digests, indent=1).encode())
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = None
    known = known if isinstance(known, dict) else {}
    if altered := [array for array in digests if known.get(array) != digests[array]]:
        raise BadInput(f"{files[altered[0]]} is not as it was computed: move {path.parent} away, it is made anew")


def _form(name: str, places: sources.Places) -> tuple[str, Path | None]:
    """Find out which form of a corpus there is, and its folder; None when only the arrays made of it are in data/."""
    root = sources.companion()
    for form, (folder, _) in FORMS[name].items():
        if root is not None and (root / folder).is_dir():
            return form, root / folder
    for form in FORMS[name]:
        if all(path.exists() for path in _files(name, form, places).values()):
            return form, None
    wanted = " or ".join(folder for folder, _ in FORMS[name].values())
    address = sources.pick(name, places.registry).address
    need = f"name the folder that holds {wanted} in {sources.VARIABLE}"
    raise BadInput(f"{name} is not downloaded by this project: get it from {address}, then {need}")


def _files(name: str, form: str, places: sources.Places) -> dict[str, Path]:
    arrays = [f"{part}_{array}" for part in PARTS for array in ARRAYS]
    arrays += [f"{key}_{array}" for key in TRIALS[name] for array in ("pairs", "same")]
    return {array: places.data / name / form / f"{array}.npy" for array in arrays}


def store(clips: Sequence[Clip], files: dict[str, Path]) -> None:
    """Compute the features of clips into the arrays of `Utterances`, with one clip in memory at a time.

    Raises:
        BadInput: a clip's features are not finite, because its samples are not.
    """
    starts = np.cumsum([0, *(frames(clip.samples) for clip in clips)])
    names = sorted({clip.speaker for clip in clips})
    labels = {speaker: label for label, speaker in enumerate(names)}
    means = np.empty((len(clips), BANDS), np.float32)
    with atomic(files["features"]) as file:
        header = {"descr": "<f4", "fortran_order": False, "shape": (int(starts[-1]), BANDS)}
        np.lib.format.write_array_header_1_0(file, header)
        for row, clip in enumerate(clips):
            features = log_mel(clip.read())
            if not np.isfinite(features).all():
                raise BadInput(f"{clip.name} holds samples that are not finite: fetch it again")
            means[row] = features.mean(0)
            file.write((features - means[row]).astype("<f4").tobytes())
    _save(files["starts"], starts)
    _save(files["speakers"], np.array([labels[clip.speaker] for clip in clips]))
    _save(files["means"], means)


def _save(path: Path, values: np.ndarray) -> None:
    with atomic(path) as file:
        np.save(file, values)
