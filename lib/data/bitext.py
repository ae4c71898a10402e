"""Load sentences in two languages, line by line: `load(name)`.

`multi30k-de-en` and `multi30k-en-de` are descriptions of photographs, German to English and back; not everybody may use
them for everything (see registry.toml), so data.dvc does not lock them. `numbers` is made here by a seed: sentences
about so and so many things, in which German puts ones before tens and a verb at the end where English does not.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.base import BadInput
from lib.data import sources

SEED = 0  # of the made sentences
PARTS = ("train", "valid", "test")
MADE = {"train": 1000, "valid": 100, "test": 100}
LANGUAGES = ("de", "en")
FILES = {"train": "train", "val": "valid", "test_2016_flickr": "test"}  # the publisher's name of each part
PUBLIC = "multi30k"

Sides = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True)
class Bitext:
    """Hold pairs of sentences.

    Attributes:
        parts: {part: (sources, targets)}; sentence i of one is the translation of sentence i of the other.
    """

    name: str
    parts: Mapping[str, Sides]


def names() -> list[str]:
    """Name all that `load` knows."""
    return ["numbers", f"{PUBLIC}-de-en", f"{PUBLIC}-en-de"]


def load(name: str, places: sources.Places = sources.PROJECT) -> Bitext:
    """Load pairs by name.

    A public set that is not in data/ yet is first read from COMPANION_DATA or downloaded (1.3 MB).
    BadInput: an unknown name, and whatever keeps the files from being found whole and unaltered.
    """
    if name not in names():
        raise BadInput(f"no pairs of sentences called {name!r}; there are: {', '.join(names())}")
    if name == "numbers":
        return Bitext(name, numbers())
    _, source, target = name.split("-")
    files, _ = prepare(PUBLIC, places)
    lines = {array: tuple(line.decode() for line in sources.open_array(path)) for array, path in files.items()}
    return Bitext(name, {part: (lines[f"{part}_{source}"], lines[f"{part}_{target}"]) for part in PARTS})


def prepare(name: str, places: sources.Places = sources.PROJECT) -> tuple[dict[str, Path], str]:
    """Prepare a public set: its checked arrays, {"train_de": file, ...}, and where they came from.

    Raises:
        BadInput: no such set, and as `sources.prepare`.
    """
    if name != PUBLIC:
        raise BadInput(f"no public pairs called {name!r}; there is: {PUBLIC}")
    return sources.prepare(name, read, places)


def read(files: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """Turn the publisher's packed text files into arrays of lines, {"train_de": bytes [N], ...}.

    Raises:
        BadInput: a file that is not packed or not UTF-8, an empty line, or parts that do not have as many lines.
    """
    arrays: dict[str, np.ndarray] = {}
    for name, content in files.items():
        part, language, _ = Path(name).name.rsplit(".", 2)
        try:
            lines = gzip.decompress(content).decode().removesuffix("\n").split("\n")
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise BadInput(f"{name} is no packed text in UTF-8 ({error}); {sources.MOVE_AWAY}") from error
        if empty := [number for number, line in enumerate(lines, 1) if not line.strip()]:
            raise BadInput(f"{name}, line {empty[0]}: empty, expected a sentence")
        arrays[f"{FILES[part]}_{language}"] = np.array([line.strip().encode() for line in lines])
    for part in PARTS:
        one, other = (len(arrays[f"{part}_{language}"]) for language in LANGUAGES)
        if one != other:
            raise BadInput(f"{PUBLIC}: the {part} part has {one} German sentences and {other} English ones")
    return arrays


ONES = {
    "de": ["", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
    "en": ["", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
}
TENS = {
    "de": ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"],
    "en": ["", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"],
}
PEOPLE = ["anna", "bruno", "clara", "david", "emma", "felix"]
VERBS = [  # German: now, and what was done; English likewise
    (("sieht", "gesehen"), ("sees", "seen")),
    (("malt", "gemalt"), ("paints", "painted")),
    (("zählt", "gezählt"), ("counts", "counted")),
    (("kauft", "gekauft"), ("buys", "bought")),
    (("findet", "gefunden"), ("finds", "found")),
]
COLOURS = [("rote", "red"), ("blaue", "blue"), ("grüne", "green"), ("weiße", "white"), ("schwarze", "black")]
THINGS = [("boote", "boats"), ("hunde", "dogs"), ("bälle", "balls"), ("äpfel", "apples"), ("vögel", "birds")]


def number(count: int) -> tuple[str, str]:
    """Write a number from 20 to 99 in German, one word with the ones first, and in English."""
    ten, one = divmod(count, 10)
    german = TENS["de"][ten] if not one else f"{ONES['de'][one]}und{TENS['de'][ten]}"
    return german, f"{TENS['en'][ten]} {ONES['en'][one]}".strip()


def numbers() -> dict[str, Sides]:
    """Make pairs of sentences by SEED, no pair twice, {part: (German, English)}."""
    draw = np.random.default_rng(SEED)
    made: dict[str, str] = {}
    while len(made) < sum(MADE.values()):
        made.update([_pair(draw)])
    pairs, parts = list(made.items()), {}
    for part, count in MADE.items():
        parts[part], pairs = tuple(zip(*pairs[:count], strict=True)), pairs[count:]
    return parts


def _pair(draw: np.random.Generator) -> tuple[str, str]:
    """Draw one sentence: what somebody does, has done, or does as a reason."""
    who, form = PEOPLE[draw.integers(len(PEOPLE))], draw.integers(3)
    german, english = VERBS[draw.integers(len(VERBS))]
    words = (
        number(int(draw.integers(20, 100))),
        COLOURS[draw.integers(len(COLOURS))],
        THINGS[draw.integers(len(THINGS))],
    )
    what, these = (" ".join(side) for side in zip(*words, strict=True))
    if form == 0:
        return f"{who} {german[0]} {what}", f"{who} {english[0]} {these}"
    if form == 1:
        return f"{who} hat {what} {german[1]}", f"{who} has {english[1]} {these}"
    return f"weil {who} {what} {german[0]}", f"because {who} {english[0]} {these}"
