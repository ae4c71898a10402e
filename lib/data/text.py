"""Load plays as text: `load(name)`, for a model of characters and for the question which vowel comes next.

`tinyshakespeare` is public (see `lib.data.sources` for where it is looked for); the publisher's file is kept byte for
byte as data/tinyshakespeare/characters.npy, an array of its bytes. `grammar` is made here by a seeded grammar.

Both are speeches: a heading (the speaker's name and a colon), lines, an empty line. What a language model reads has
the headings taken out (`language`). A second task has labels: a passage of that text breaks off before a vowel, and the
label says which one it is (`passages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.base import BadInput, refuse_uncounted
from lib.data import sources

SEED = 0  # of the made play and of which passages are taken
PARTS = ("train", "valid", "test")
TENTHS = (8, 9)  # where the training text and the validation text end, the rest is test text
VOWELS = "aeiou"
TESTED = 400  # passages of each vowel in the validation and in the test part, at most


@dataclass(frozen=True)
class Speech:
    """Hold what one speaker says at a time: lines, without the heading."""

    speaker: str
    words: str


@dataclass(frozen=True)
class Play:
    """Hold a text by speeches, in their order.

    Attributes:
        symbols: the characters of the text without headings, sorted; a token is a place in this string, and a new line
            is token 0.
    """

    name: str
    speeches: tuple[Speech, ...]
    symbols: str

    def encode(self, words: str) -> np.ndarray:
        """Turn characters into tokens, int64 [N].

        Raises:
            BadInput: a character that the text does not have.
        """
        place = {symbol: token for token, symbol in enumerate(self.symbols)}
        if strange := sorted(set(words) - place.keys()):
            raise BadInput(f"{self.name} has no character {strange[0]!r}, so it has no token")
        return np.array([place[character] for character in words], np.int64)

    def decode(self, tokens: Sequence[int]) -> str:
        """Turn tokens back into characters."""
        return "".join(self.symbols[token] for token in tokens)


@dataclass(frozen=True, eq=False)
class Language:
    """Hold consecutive parts of a text without headings, as tokens, int64 [N]: eight tenths, a tenth and the last
    tenth.
    """

    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray


@dataclass(frozen=True, eq=False)
class Passages:
    """Hold passages that break off before a vowel, in the parts of `Language`; each vowel comes as often as another.

    Attributes:
        tokens: {part: int64 [N, window]}.
        labels: {part: int64 [N]}, places in VOWELS.
    """

    tokens: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]


def names() -> list[str]:
    """Name all that `load` knows."""
    return ["grammar", "tinyshakespeare"]


def load(name: str, places: sources.Places = sources.PROJECT) -> Play:
    """Load the play called `name`: grammar or tinyshakespeare.

    A public text that is not in data/ yet is first read from COMPANION_DATA or downloaded (1 MB).
    BadInput: an unknown name, and whatever keeps the text from being found whole and unaltered.
    """
    if name == "grammar":
        return parse(name, grammar())
    files, _ = prepare(name, places)
    return parse(name, sources.open_array(files["characters"]).tobytes().decode("ascii"))


def prepare(name: str, places: sources.Places = sources.PROJECT) -> tuple[dict[str, Path], str]:
    """Prepare a public text: its checked array, {"characters": file}, and where it came from (`sources.prepare`).

    Raises:
        BadInput: no such text, and as `sources.prepare`.
    """
    if name == "grammar" or name not in names():
        raise BadInput(f"no public text called {name!r}; there is: tinyshakespeare")
    return sources.prepare(name, read, places)


def read(files: Mapping[str, bytes]) -> dict[str, np.ndarray]:
    """Turn the publisher's one file into its array, byte for byte."""
    (content,) = files.values()
    return {"characters": np.frombuffer(content, np.uint8)}


def parse(name: str, text: str) -> Play:
    """Read the speeches of a text: a heading "NAME:", lines, an empty line. A heading without lines is left out.

    BadInput: a paragraph that does not begin with a heading.
    """
    said = []
    for paragraph in (part.strip("\n") for part in text.split("\n\n")):
        heading, _, words = paragraph.partition("\n")
        if not heading.endswith(":"):
            raise BadInput(f"{name}: a speech begins with its speaker's name and a colon, this one with {heading!r}")
        if words.strip():
            said.append((heading[:-1], words))
    speeches = tuple(Speech(*speech) for speech in said)
    symbols = sorted({*"\n", *(character for _, words in said for character in words)})
    return Play(name, speeches, "".join(symbols))


def language(play: Play) -> Language:
    """Take the headings out and cut the text into training, validation and test text (the last tenth)."""
    tokens = play.encode("\n\n".join(speech.words for speech in play.speeches))
    return Language(*np.split(tokens, [len(tokens) * tenth // 10 for tenth in TENTHS]))


def passages(play: Play, window: int, each: int) -> Passages:
    """Pick passages that break off before a vowel, by SEED, each part from its own part of `language`.

    So the test passages come from a text that a language model has never read. All vowels are equally frequent: of
    each there are as many as asked for, or as many as there are of the rarest.

    Args:
        window: characters of a passage.
        each: passages of each vowel to learn from, at most; TESTED in the other parts.

    Raises:
        BadInput: a part lacks a vowel after so many characters, so there is too little text; no characters or no
            passages asked for.
    """
    refuse_uncounted(window=window, each=each)
    draw, tokens, labels = np.random.default_rng(SEED), {}, {}
    for part, read in vars(language(play)).items():
        found = [np.flatnonzero(read[window:] == play.encode(vowel)) for vowel in VOWELS if vowel in play.symbols]
        count = min([each if part == "train" else TESTED, *map(len, found)])
        if not count or len(found) < len(VOWELS):
            raise BadInput(f"{play.name}: the {part} part has no passage of {window} characters for each vowel")
        begins = np.concatenate([draw.permutation(places)[:count] for places in found])
        order = draw.permutation(len(begins))
        tokens[part] = read[begins[order, None] + np.arange(window)]
        labels[part] = np.repeat(np.arange(len(VOWELS)), count)[order]
    return Passages(tokens, labels)


#: In the made play each speaker has nouns and a verb of their own, which they use more often than others do.
PEOPLE = {
    "ANNA": ("river", "boat", "rows"),
    "BRUNO": ("bread", "oven", "bakes"),
    "CLARA": ("star", "night", "counts"),
    "DAVID": ("horse", "field", "ploughs"),
    "EMMA": ("letter", "ink", "writes"),
    "FELIX": ("drum", "song", "plays"),
}
PAIRS = (("ANNA", "BRUNO"), ("CLARA", "DAVID"), ("EMMA", "FELIX"))
OWN = 0.8  # how often a word is the speaker's own


def grammar(scenes: int = 36, speeches: int = 8) -> str:
    """Make a play of about ten thousand characters by SEED: scenes of two speakers, sentences of six words."""
    draw = np.random.default_rng(SEED)
    common = [word for words in PEOPLE.values() for word in words[:2]]
    verbs = [words[2] for words in PEOPLE.values()]
    said = []
    for scene in range(scenes):
        pair = PAIRS[scene % len(PAIRS)]
        for turn in range(speeches):
            speaker = pair[turn % 2]
            own = PEOPLE[speaker]
            first, second = (own[draw.integers(2)] if draw.random() < OWN else draw.choice(common) for _ in range(2))
            verb = own[2] if draw.random() < OWN else draw.choice(verbs)
            said.append(f"{speaker}:\nThe {first} {verb} by the {second}.")
    return "\n\n".join(said)
