"""What a corpus of speech is to the rest of the project: features, speakers and trials."""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lib.base import BadInput
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
    """

    features: np.ndarray
    starts: np.ndarray
    speakers: np.ndarray
    means: np.ndarray
    sessions: np.ndarray | None = None

    @classmethod
    def of(
        cls, waveforms: Iterable[np.ndarray], speakers: Sequence[int], sessions: np.ndarray | None = None
    ) -> Utterances:
        """Compute the features of waveforms at 16 kHz in the range of 16-bit integers."""
        banks = [log_mel(samples) for samples in waveforms]
        means = np.stack([bank.mean(0) for bank in banks])
        features = np.concatenate([bank - mean for bank, mean in zip(banks, means, strict=True)])
        return cls(features, np.cumsum([0, *map(len, banks)]), np.asarray(speakers, np.int64), means, sessions)

    def __len__(self) -> int:
        return len(self.speakers)

    def __getitem__(self, index: int) -> np.ndarray:
        """Return one whole utterance, float32 [frames, 40]."""
        return self.features[self.starts[index] : self.starts[index + 1]]

    def of_speakers(self, chosen: Sequence[int]) -> Utterances:
        """Take the utterances of these speakers alone, whose labels become 0, 1, ... in the order given."""
        labels = {speaker: label for label, speaker in enumerate(chosen)}
        chosen = [index for index, speaker in enumerate(self.speakers) if speaker in labels]
        return Utterances(
            np.concatenate([self[index] for index in chosen]),
            np.cumsum([0, *(len(self[index]) for index in chosen)]),
            np.array([labels[speaker] for speaker in self.speakers[chosen]]),
            self.means[chosen],
            None if self.sessions is None else self.sessions[chosen],
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


@dataclass(frozen=True, eq=False)
class Speech:
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


def all_trials(
    speakers: np.ndarray, sessions: np.ndarray | None = None, groups: np.ndarray | None = None, seed: int = 0
) -> Trials:
    """Take all pairs of one speaker from different sessions, and draw ten times as many of two speakers.

    Args:
        sessions: [n], of each utterance within its speaker; None: each utterance is a session of its own.
        groups: [n], the sex of each utterance's speaker, say: two speakers make a trial only within a group, which
            is harder because what tells the groups apart does not help. None: any two speakers do.

    Raises:
        BadInput: no two speakers are of one group.
    """
    first, second = np.triu_indices(len(speakers), 1)
    one = speakers[first] == speakers[second]
    apart = one if sessions is None else one & (sessions[first] != sessions[second])
    targets = np.flatnonzero(apart)
    others = np.flatnonzero(~one if groups is None else ~one & (groups[first] == groups[second]))
    if groups is not None and not len(others):
        raise BadInput("trials within groups need two speakers of one group; here each speaker has one of its own")
    count = min(len(others), IMPOSTORS * len(targets))
    drawn = np.random.default_rng(seed).choice(others, count, replace=False)
    chosen = np.sort(np.concatenate([targets, drawn]))
    return Trials(np.stack([first[chosen], second[chosen]], 1), one[chosen])


def hold_out(data: Speech, count: int, seed: int = 0) -> Speech:
    """Judge on so many of the training speakers, who are then not learned from; the test speakers are not looked at.

    What is chosen on such a validation split (a weight, a rate) has seen no test speaker. Who is held out is drawn by
    the seed.

    Raises:
        BadInput: fewer than two speakers would be left to learn from, or to be judged on.
    """
    if not 2 <= count <= data.speakers - 2:
        raise BadInput(f"{count} speakers held out of {data.speakers}: expected 2 to {data.speakers - 2}")
    order = np.random.default_rng(seed).permutation(data.speakers)
    validation, train = (data.train.of_speakers(np.sort(part).tolist()) for part in (order[:count], order[count:]))
    trials = {"validation": all_trials(validation.speakers, validation.sessions)}
    return Speech(data.name, train, validation, data.speakers - count, trials)


def read_trials(path: Path) -> list[tuple[bool, str, str]]:
    """Read an official list of trials, plain or gzipped, a line each: 1 or 0 (the same speaker?), file, file.

    Raises:
        BadInput: a line of another form, or one whose files' speakers (the first folder) are not what it says.
    """
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode()
    trials = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if len(words) != 3 or words[0] not in ("0", "1"):
            raise BadInput(f"{path}, line {number}: expected `1 file file` or `0 file file`, found {line!r}")
        same, left, right = words[0] == "1", *words[1:]
        if same != (left.split("/")[0] == right.split("/")[0]):
            raise BadInput(f"{path}, line {number}: {words[0]} says {'one speaker' if same else 'two'}, found {line!r}")
        trials.append((same, left, right))
    return trials
