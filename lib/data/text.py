"""Load plays as text: `load(name)`, for a model of characters and for the question who says a passage.

`tinyshakespeare` is public (see `lib.data.sources` for where it is looked for); the publisher's file is kept byte for
byte as data/tinyshakespeare/characters.npy, an array of its bytes. `grammar` is made here by a seeded grammar.

Both are speeches: a heading (the speaker's name and a colon), lines, an empty line. What a language model reads has
the headings taken out, so nothing in it says who speaks (`language`). A second task asks for the speaker of a passage
(`passages`); its parts differ in scenes, so that no conversation is in two of them. The file has no marks of scenes:
one ends here where the cast changes (`scenes`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.base import BadInput
from lib.data import sources

SEED = 0  # of the made play and of which scenes belong to which part
CAST = 5  # speeches on each side of a change of scene that have no speaker in common
SHORTEST = 32  # characters of a passage; a shorter one ("Ay, sir.") says little of who speaks
PARTS = ("train", "valid", "test")
TENTHS = (8, 9)  # where the training text and the validation text end, the rest is test text
SCENES = (0.6, 0.75)  # the same for shares of the scenes


@dataclass(frozen=True)
class Speech:
    """Hold what one speaker says at a time: lines, without the heading; and the number of the scene."""

    speaker: str
    words: str
    scene: int


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
        """Turn characters into tokens, int64 [N]."""
        place = {symbol: token for token, symbol in enumerate(self.symbols)}
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
    """Hold passages and who says them, in three parts; no scene is in two of them.

    Attributes:
        speakers: the names; a label is a place in this list.
        tokens: {part: int64 [N, window]}, filled up with new lines, at least one.
        labels: {part: int64 [N]}.
        scenes: {part: int64 [N]}, the scene of each passage.
    """

    speakers: tuple[str, ...]
    tokens: Mapping[str, np.ndarray]
    labels: Mapping[str, np.ndarray]
    scenes: Mapping[str, np.ndarray]


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
    """Prepare a public text: its checked array, {"characters": file}, and where it came from (`sources.prepare`)."""
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
    numbers = scenes([speaker for speaker, _ in said])
    speeches = tuple(Speech(*speech, scene) for speech, scene in zip(said, numbers, strict=True))
    symbols = sorted({*"\n", *(character for _, words in said for character in words)})
    return Play(name, speeches, "".join(symbols))


def scenes(speakers: Sequence[str], cast: int = CAST) -> list[int]:
    """Return number the scene of each speech, from 0: a new one begins where the cast changes.

    That is where none of those who spoke the last `cast` speeches speaks one of the next `cast`; two scenes begin at
    least so many speeches apart.
    """
    numbers, begun, scene = [], 0, 0
    for place in range(len(speakers)):
        last, following = speakers[max(0, place - cast) : place], speakers[place : place + cast]
        if place - begun >= cast and not set(last) & set(following):
            begun, scene = place, scene + 1
        numbers.append(scene)
    return numbers


def language(play: Play) -> Language:
    """Take the headings out and cut the text into training, validation and test text (the last tenth)."""
    tokens = play.encode("\n\n".join(speech.words for speech in play.speeches))
    return Language(*np.split(tokens, [len(tokens) * tenth // 10 for tenth in TENTHS]))


def passages(play: Play, speakers: int, window: int) -> Passages:
    """Cut passages of those who speak most often, in parts by scene, picked by SEED.

    A speech is cut between its lines into passages that fit into the window with a new line after them. Those with
    fewer than SHORTEST characters, or half a window, are left out.

    Args:
        speakers: how many of them, by their number of speeches (of equals the one who speaks first).
        window: tokens of a passage with its filling.

    BadInput: the training scenes lack one of them, so there is too little text for so many speakers.
    """
    chosen = tuple(name for name, _ in Counter(speech.speaker for speech in play.speeches).most_common(speakers))
    count = play.speeches[-1].scene + 1
    order = np.random.default_rng(SEED).permutation(count)
    split = np.split(order, [round(count * share) for share in SCENES])
    tokens, labels, scene_of = {}, {}, {}
    for part, own in zip(PARTS, split, strict=True):
        own = set(own.tolist())
        spoken = [speech for speech in play.speeches if speech.scene in own and speech.speaker in chosen]
        cut = [(speech, words) for speech in spoken for words in pieces(speech.words, window - 1)]
        cut = [(speech, words) for speech, words in cut if len(words) >= min(SHORTEST, window // 2)]
        said = {speech.speaker for speech, _ in cut}
        if not cut or (part == "train" and len(said) < speakers):
            raise BadInput(
                f"{play.name}: the {part} part of the scenes has passages of {len(said)} speakers, not of {speakers}; "
                "ask for fewer, or for a longer window"
            )
        filled = [play.encode(words.ljust(window, "\n")) for _, words in cut]
        tokens[part] = np.stack(filled)
        labels[part] = np.array([chosen.index(speech.speaker) for speech, _ in cut])
        scene_of[part] = np.array([speech.scene for speech, _ in cut])
    return Passages(chosen, tokens, labels, scene_of)


def pieces(words: str, longest: int) -> list[str]:
    """Cut words between lines into pieces of at most so many characters; a line that is longer is cut off there."""
    found = [""]
    for line in words.split("\n"):
        joined = f"{found[-1]}\n{line}" if found[-1] else line
        if len(joined) <= longest:
            found[-1] = joined
        else:
            found.append(line[:longest])
    return [piece for piece in found if piece]


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
