"""Keep the features of made voices on disk, so that not every process makes them again (13 seconds each)."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import zipfile
import zlib
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from lib import base
from lib.base import atomic
from lib.data.speech.utterances import SpeechData, Utterances
from lib.data.speech.voices import Sizes, synthetic, trials

FOLDER = base.STORE / "voices"
SIZES = Sizes()
ARRAYS = ("features", "starts", "speakers", "means", "sessions")
SOURCES = ("voices.py", "filterbank.py", "utterances.py")
LIBRARIES = ("numpy", "scipy", "kaldi-native-fbank")


@cache
def cached(sizes: Sizes = SIZES, seed: int = 0, folder: Path = FOLDER) -> SpeechData:
    """Return the voices of `synthetic`, read from a file of the folder if an earlier process made the same ones.

    The file is named after everything that the numbers depend on, and its checksums are compared as it is read: a
    damaged one is made anew.
    """
    path = folder / f"{fingerprint(sizes, seed)}.npz"
    try:
        with zipfile.ZipFile(path) as file:  # which compares the checksum of each array before it is parsed
            arrays = {name.removesuffix(".npy"): np.load(io.BytesIO(file.read(name))) for name in file.namelist()}
        train, test = (Utterances(*(arrays[f"{part}_{name}"] for name in ARRAYS)) for part in ("train", "test"))
    except (OSError, EOFError, KeyError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error):  # absent or damaged
        made = synthetic(sizes, seed)
        with atomic(path) as file:
            parts = {"train": made.train, "test": made.test}
            np.savez(file, **{f"{part}_{name}": getattr(of, name) for part, of in parts.items() for name in ARRAYS})
        return made
    tested = range(sizes.train_speakers, sizes.train_speakers + sizes.test_speakers)
    return SpeechData("synthetic", train, test, sizes.train_speakers, trials(test, seed, tested))


def fingerprint(sizes: Sizes, seed: int) -> str:
    """Hash what the numbers depend on: sizes, seed, the sources that make them, libraries, and the processor's part.

    Another processor, or NumPy told to leave instructions of this one unused, may round differently.
    """
    digest = hashlib.sha256()
    for name in SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    asked = {name: value for name, value in sorted(os.environ.items()) if name.startswith(("NPY_", "OPENBLAS_CORE"))}
    about = [asdict(sizes), seed, [version(name) for name in LIBRARIES], platform.machine(), _processor(), asked]
    digest.update(json.dumps(about, sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line for line in lines if line.startswith("flags")), platform.processor())
