"""Hold what a corpus of speech is to the rest of the project: features, speakers and trials."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from lib.base import BadInput, refuse_uncounted
from lib.data.speech.filterbank import BANDS, log_mel

IMPOSTORS = 10  # trials of two speakers for each of one


@dataclass(frozen=True, eq=False)
class Utterances:
    """Hold the features of many utterances, one after another in one array, which may be a memory map.

    Attributes:
        features: float32 [frames of all, 40], log-Mel energies less their mean over the utterance.
        starts: int64 [n + 1], where each utterance begins, and the end of the last.
        speakers: int64 [n], from 0.
        means: float32 [n, 40], what was subtracted.
        sessions: int64 [n], which recording session of its speaker an utterance belongs to; None: each is one of its
            own.
        ends: int64 [n], where each utterance ends, if these are some of those in `features` (`of_speakers`), which are
            not copied; then `starts` is [n] too. None: each ends where the next begins.
    """

    features: np.ndarray
    starts: np.ndarray
    speakers: np.ndarray
    means: np.ndarray
    sessions: np.ndarray | None = None
    ends: np.ndarray | None = None

    def __post_init__(self):
        count, rows = len(self.speakers), len(self.features)
        shapes = {"features": (rows, BANDS), "starts": (count + 1,), "speakers": (count,), "means": (count, BANDS)}
        shapes |= {} if self.sessions is None else {"sessions": (count,)}
        shapes |= {} if self.ends is None else {"starts": (count,), "ends": (count,)}
        for name, shape in shapes.items():
            array, kinds = getattr(self, name), "f" if name in ("features", "means") else "iu"
            if array.shape != shape or array.dtype.kind not in kinds:
                found = f"{list(array.shape)} of {array.dtype}"
                raise BadInput(f"utterances of {count} labels and {rows} frames have {name} {found}, not {list(shape)}")
        if self.ends is None and (self.starts[0] != 0 or self.starts[-1] != rows or (self.lengths < 1).any()):
            raise BadInput(f"utterances must follow one another from frame 0 to {rows}, each with one frame or more")
        if self.ends is not None and ((self.starts < 0) | (self.lengths < 1) | (self.ends > rows)).any():
            raise BadInput(f"utterances must lie within frames 0 to {rows}, each with one frame or more")
        if count and self.speakers.min() < 0:
            raise BadInput(f"utterances have the speaker {self.speakers.min()}: speakers are counted from 0")
        if not np.isfinite(self.means).all():
            raise BadInput(f"the features of utterance {np.isfinite(self.means).all(1).argmin()} are not finite")

    @classmethod
    def of(
        cls, waveforms: Iterable[np.ndarray], speakers: Sequence[int], sessions: np.ndarray | None = None
    ) -> Utterances:
        """Compute the features of waveforms at 16 kHz in the range of 16-bit integers.

        Raises:
            BadInput: no waveform, or one that is shorter than a window.
        """
        banks = [log_mel(samples) for samples in waveforms]
        if not banks:
            raise BadInput("utterances are made of waveforms, there are none here: expected one or more")
        means = np.stack([bank.mean(0) for bank in banks])
        features = np.concatenate([bank - mean for bank, mean in zip(banks, means, strict=True)])
        return cls(features, np.cumsum([0, *map(len, banks)]), np.asarray(speakers, np.int64), means, sessions)

    def __len__(self) -> int:
        return len(self.speakers)

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one whole utterance, float32 [frames, 40]."""
        return self.features[self.starts[index] : (self.starts[1:] if self.ends is None else self.ends)[index]]

    @property
    def lengths(self) -> np.ndarray:
        """Count the frames of each utterance, int64 [n]."""
        return np.diff(self.starts) if self.ends is None else self.ends - self.starts

    def checksums(self) -> list[int]:
        """Tell these utterances from others, for a kept session: one number for each array that there is.

        Of the features, which may be larger than the memory, their means speak.
        """
        arrays = (self.starts, self.ends, self.speakers, self.means)
        return [zlib.crc32(np.ascontiguousarray(array)) for array in arrays if array is not None]

    def of_speakers(self, chosen: Sequence[int]) -> Utterances:
        """Take the utterances of these speakers alone, whose labels become 0, 1, ... in the order given.

        Raises:
            BadInput: no speaker, or one without an utterance.
        """
        there = set(self.speakers.tolist())
        if absent := [speaker for speaker in chosen if speaker not in there]:
            raise BadInput(f"no utterance is the speaker {absent[0]}'s: there are {', '.join(map(str, sorted(there)))}")
        if not len(chosen):
            raise BadInput("utterances of no speaker: expected one speaker or more")
        labels = {speaker: label for label, speaker in enumerate(chosen)}
        chosen = [index for index, speaker in enumerate(self.speakers) if speaker in labels]
        return Utterances(
            self.features,  # as they are: they may be a memory map that is larger than the memory
            self.starts[chosen],
            np.array([labels[speaker] for speaker in self.speakers[chosen]]),
            self.means[chosen],
            None if self.sessions is None else self.sessions[chosen],
            self.starts[chosen] + self.lengths[chosen],
        )

    def crops(self, chosen: Sequence[int], frames: int, uniforms: Sequence[float]) -> np.ndarray:
        """Cut consecutive frames out of some utterances, float32 [len(chosen), frames, 40].

        An utterance that is shorter is repeated until it is long enough.

        Args:
            uniforms: where each crop begins, in [0, 1): 0 the first place there is, 1 the last.
        """
        cut = np.empty((len(chosen), frames, BANDS), np.float32)
        for row, (index, uniform) in enumerate(zip(chosen, uniforms, strict=True)):
            utterance = self[index]
            if len(utterance) < frames:
                utterance = np.tile(utterance, (-(-frames // len(utterance)), 1))
            first = int(uniform * (len(utterance) - frames + 1))
            cut[row] = utterance[first : first + frames]
        return cut


@dataclass(frozen=True, eq=False)
class Trials:
    """Hold pairs of test utterances, and whether each has one speaker or two.

    Attributes:
        pairs: int64 [n, 2], which utterances.
        same: bool [n].
    """

    pairs: np.ndarray
    same: np.ndarray

    def __post_init__(self):
        right = self.pairs.shape == (len(self.same), 2) and self.pairs.dtype.kind in "iu" and self.same.dtype == bool
        if not right or self.same.shape != (len(self.same),):
            found = f"{list(self.pairs.shape)} of {self.pairs.dtype}, {list(self.same.shape)} of {self.same.dtype}"
            raise BadInput(f"trials must be pairs [n, 2] of whole numbers and answers bool [n], these are {found}")
        if not self.same.any() or self.same.all():
            kinds = f"{int(self.same.sum())} trials of one speaker, {int((~self.same).sum())} of two"
            raise BadInput(f"{kinds}: error rates need both; are there two test speakers, each heard twice or more?")


@dataclass(frozen=True, eq=False)
class SpeechData:
    """Hold the speakers to learn from and the others to be judged on.

    Attributes:
        speakers: how many there are to learn from; labels of `train` are 0 to this - 1.
        trials: the lists of trials over `test`, by name.
    """

    name: str
    train: Utterances
    test: Utterances
    speakers: int
    trials: Mapping[str, Trials]

    def __post_init__(self):
        if sorted(set(self.train.speakers.tolist())) != list(range(self.speakers)) or self.speakers < 2:
            raise BadInput(f"{self.name}: the training speakers are not 0 to {self.speakers - 1}, two at least")
        if not len(self.test) or not self.trials:
            raise BadInput(f"{self.name} has no utterance to test on, or no list of trials")
        for key, one in self.trials.items():
            first, second = one.pairs.T
            if one.pairs.min() < 0 or one.pairs.max() >= len(self.test) or (first == second).any():
                raise BadInput(f"{self.name}: {key} pairs utterances that are not there, or one with itself")
            if ((self.test.speakers[first] == self.test.speakers[second]) != one.same).any():
                raise BadInput(f"{self.name}: {key} and the labels of the test utterances disagree on who is who")


def all_trials(
    speakers: np.ndarray, sessions: np.ndarray | None = None, groups: np.ndarray | None = None, seed: int = 0
) -> Trials:
    """Take all pairs of one speaker from different sessions, and draw ten times as many of two speakers.

    Args:
        sessions: [n], of each utterance within its speaker; None: each utterance is a session of its own.
        groups: [n], the sex of each utterance's speaker, say: two speakers make a trial only within a group, which
            is harder because what tells the groups apart does not help. None: any two speakers do.

    Raises:
        BadInput: no two speakers are of one group, or a seed below 0.
    """
    refuse_uncounted(0, seed=seed)

    def later(first: int) -> tuple[np.ndarray, np.ndarray]:
        """Find the utterances after this one that make a trial with it: of its speaker, and of others."""
        one = speakers[first + 1 :] == speakers[first]
        apart = one if sessions is None else one & (sessions[first + 1 :] != sessions[first])
        others = ~one if groups is None else ~one & (groups[first + 1 :] == groups[first])
        return first + 1 + np.flatnonzero(apart), first + 1 + np.flatnonzero(others)

    # the pairs of two speakers are counted and never listed, because there are as many as utterances squared
    counts = np.array([[len(part) for part in later(first)] for first in range(len(speakers))], np.int64).reshape(-1, 2)
    targets, others = counts.sum(0)
    if groups is not None and not others:
        raise BadInput("trials within groups need two speakers of one group; here each speaker has one of its own")
    drawn = np.sort(np.random.default_rng(seed).choice(others, min(others, IMPOSTORS * targets), replace=False))
    pairs, begin = [np.empty((0, 2), np.int64)], 0
    for first, end in enumerate(counts[:, 1].cumsum()):
        same, other = later(first)
        mine = drawn[slice(*np.searchsorted(drawn, (begin, end)))] - begin
        second = np.sort(np.concatenate([same, other[mine]]))
        pairs.append(np.stack([np.full_like(second, first), second], 1))
        begin = end
    found = np.concatenate(pairs)
    return Trials(found, speakers[found[:, 0]] == speakers[found[:, 1]])


def hold_out(data: SpeechData, count: int, seed: int = 0) -> SpeechData:
    """Judge on so many of the training speakers, who are then not learned from; the test speakers are not looked at.

    What is chosen on such a validation split (a weight, a rate) has seen no test speaker. Who is held out is drawn by
    the seed.

    Raises:
        BadInput: fewer than two speakers would be left to learn from, or to be judged on; a seed below 0.
    """
    refuse_uncounted(0, seed=seed)
    if not 2 <= count <= data.speakers - 2:
        raise BadInput(f"{count} speakers held out of {data.speakers}: expected 2 to {data.speakers - 2}")
    order = np.random.default_rng(seed).permutation(data.speakers)
    validation, train = (data.train.of_speakers(np.sort(part).tolist()) for part in (order[:count], order[count:]))
    trials = {"validation": all_trials(validation.speakers, validation.sessions)}
    return SpeechData(data.name, train, validation, data.speakers - count, trials)


def read_trials(path: Path) -> list[tuple[bool, str, str]]:
    """Read an official list of trials, plain or gzipped, a line each: 1 or 0 (the same speaker?), file, file.

    Raises:
        BadInput: no such list, a line of another form, one whose files' speakers (the first folder) are not what it
            says, or one that names a path outside of the corpus.
    """
    try:
        content = path.read_bytes()
        text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read as a list of trials ({error}): fetch it again") from error
    trials = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if len(words) != 3 or words[0] not in ("0", "1"):
            raise BadInput(f"{path}, line {number}: expected `1 file file` or `0 file file`, found {line!r}")
        same, left, right = words[0] == "1", *words[1:]
        if same != (left.split("/")[0] == right.split("/")[0]):
            raise BadInput(f"{path}, line {number}: {words[0]} says {'one speaker' if same else 'two'}, found {line!r}")
        for file in words[1:]:
            refuse_outside(file, f"{path}, line {number}")
        trials.append((same, left, right))
    return trials


def refuse_outside(name: str, where: str) -> None:
    """Refuse the name of a file that does not lie below the folder which a list names its files from.

    Raises:
        BadInput: a name that begins at the root or goes up.
    """
    if not isinstance(name, str) or PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise BadInput(f"{where}: {name!r} does not lie below the corpus's folder")
