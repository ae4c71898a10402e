"""Make speakers that nobody recorded: a buzzing source and a resonating tract (Fant 1960), different in every voice.

A voice has a pitch with its jitter, a spectral tilt, breath, and a tract: its length moves all formants, and each
formant is a little off. A session adds a channel, noise and a mood (pitch). An utterance is a row of random phones,
vowels and fricatives, that all voices share. So what tells speakers apart is small and moves with every phone, while
the average spectrum tells channels apart: its mean is subtracted from the features, as for real speech.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.signal import fftconvolve, lfilter, sosfilt

from lib.base import refuse_uncounted
from lib.data.speech.filterbank import BANDS, RATE
from lib.data.speech.utterances import SpeechData, Trials, Utterances, all_trials

# Formants of vowels in Hz, rounded averages of Peterson and Barney (1952): i, I, e, ae, a, o, U, u
VOWELS = np.array(
    [
        [270, 2290, 3010], [390, 1990, 2550], [530, 1840, 2480], [660, 1720, 2410],
        [730, 1090, 2440], [570, 840, 2410], [440, 1020, 2240], [300, 870, 2240],
    ]
)  # fmt: skip
HIGHER = (3500.0, 4500.0)  # formants that vowels share
WIDTHS = np.array([80.0, 100.0, 140.0, 200.0, 300.0])  # bandwidths of the five, Hz
HISSES = np.array([[2500.0, 1200.0], [4500.0, 1500.0], [6000.0, 2000.0]])  # sh, s, f: centre and width, Hz
FADE = RATE // 100  # 10 ms from phone to phone
PITCH = 130.0  # Hz, the median over speakers; half of them speak above it, half below


@dataclass(frozen=True)
class Voice:
    """Describe a speaker.

    Attributes:
        pitch: mean, Hz.
        jitter: relative deviation of a period.
        tilt: pole of the low-pass filter behind the source, in (0, 1): the higher, the duller.
        breath: noise in the source.
        tract: factor on each of the five formants.
        width: factor on their bandwidths.
    """

    pitch: float
    jitter: float
    tilt: float
    breath: float
    tract: np.ndarray
    width: float


@dataclass(frozen=True)
class Sizes:
    """Say how many there are of everything; `seconds` is the length of each utterance."""

    train_speakers: int = 30
    test_speakers: int = 24
    sessions: int = 3
    utterances: int = 3
    seconds: float = 2.0


def voice(draw: np.random.Generator) -> Voice:
    """Draw a new speaker; a high pitch often goes with a short tract."""
    size = draw.normal()
    return Voice(
        pitch=PITCH * np.exp(0.35 * (0.6 * size + 0.8 * draw.normal())),
        jitter=draw.uniform(0.003, 0.02),
        tilt=draw.uniform(0.6, 0.95),
        breath=draw.uniform(0.01, 0.1),
        tract=np.exp(0.1 * size + 0.1 * draw.normal(size=5)),
        width=np.exp(0.2 * draw.normal()),
    )


def speak(voice: Voice, pitch: float, seconds: float, draw: np.random.Generator) -> np.ndarray:
    """Speak random phones, float64 [seconds * 16,000], of any level.

    Args:
        pitch: Hz, of this session.
    """
    count = int(seconds * RATE)
    buzz = source(voice, pitch, count, draw)
    hiss = draw.normal(size=count)
    spoken = np.zeros(count)
    start = 0
    while start < count:
        stop = start + int(draw.uniform(0.06, 0.16) * RATE)
        piece = slice(start, min(stop + FADE, count))
        window = np.ones(piece.stop - piece.start)
        fade = min(FADE, len(window))
        window[:fade] *= np.linspace(0, 1, fade)
        window[len(window) - fade :] *= np.linspace(1, 0, fade)
        if draw.uniform() < 0.75:
            formants = np.append(VOWELS[draw.integers(len(VOWELS))] * np.exp(0.03 * draw.normal(size=3)), HIGHER)
            spoken[piece] += resonate(buzz[piece] * window, formants * voice.tract, WIDTHS * voice.width)
        else:
            centre, width = HISSES[draw.integers(len(HISSES))]
            noise = resonate(hiss[piece] * window, np.array([centre * voice.tract[3]]), np.array([width]))
            spoken[piece] += 0.3 * noise
        start = stop
    return spoken


def source(voice: Voice, pitch: float, count: int, draw: np.random.Generator) -> np.ndarray:
    """Imitate the glottis: a falling tone of impulses, softened, and breath. [count]"""
    most = int(3 * pitch * count / RATE) + 10
    periods = RATE / pitch * np.exp(voice.jitter * draw.normal(size=most))
    times = np.cumsum(periods * np.linspace(0.9, 1.1, most) ** draw.uniform(0.5, 2))
    times = times[times < count].astype(int)
    pulses = np.zeros(count)
    pulses[times] = 1
    pulses += voice.breath * draw.normal(size=count)
    return lfilter([1 - voice.tilt], [1, -voice.tilt], pulses)


def resonate(samples: np.ndarray, centres: np.ndarray, widths: np.ndarray) -> np.ndarray:
    """Filter by resonances in turn, each with gain 1 at 0 Hz (Klatt 1980); none lies above 7.6 kHz."""
    radius = np.exp(-np.pi * widths / RATE)
    angle = 2 * np.pi * np.minimum(centres, 7600) / RATE
    second, third = -2 * radius * np.cos(angle), radius**2
    zero, one = np.zeros_like(radius), np.ones_like(radius)
    return sosfilt(np.stack([1 + second + third, zero, zero, one, second, third], 1), samples)


def channel(draw: np.random.Generator, decibels: float = 6.0) -> np.ndarray:
    """Imitate a microphone and a room by a filter that raises or lowers each band by so many decibels. [1024]

    It changes the mean of every feature by chance, and, being constant, nothing but the mean.
    """
    hertz = np.linspace(0, RATE / 2, 513)
    knots = np.linspace(0, np.log1p(RATE / 1400), BANDS)
    gains = np.interp(np.log1p(hertz / 700), knots, decibels * draw.normal(size=BANDS))
    return np.roll(np.fft.irfft(10 ** (gains / 20)), 512) * np.hanning(1024)


def recordings(seed: int, speaker: int, sizes: Sizes) -> list[list[np.ndarray]]:
    """Record what one speaker says, [session][utterance] -> float32 samples in the range of 16-bit integers.

    Speaker k depends on the seed and on k alone.
    """
    draw = np.random.default_rng([seed, speaker])
    who = voice(draw)
    recorded = []
    for _ in range(sizes.sessions):
        pitch, response = who.pitch * np.exp(0.05 * draw.normal()), channel(draw)
        ratio, colour = 10 ** (-draw.uniform(30, 45) / 20), draw.uniform(0, 0.9)
        takes = []
        for _ in range(sizes.utterances):
            clean = fftconvolve(speak(who, pitch * np.exp(0.03 * draw.normal()), sizes.seconds, draw), response, "same")
            noise = lfilter([1], [1, -colour], draw.normal(size=len(clean)))
            mixed = clean / clean.std() + ratio * noise / noise.std()
            takes.append((2000 * np.exp(0.3 * draw.normal()) * mixed).astype(np.float32))
        recorded.append(takes)
    return recorded


@cache
def synthetic(sizes: Sizes = Sizes(), seed: int = 0) -> SpeechData:
    """Make speakers to learn from and others to test on; trials join different sessions only.

    The second list of trials has two speakers of one pitch range only, both above 130 Hz or both below. It stands for
    trials within one sex, which these voices do not have.

    Raises:
        BadInput: a seed below 0.
    """
    refuse_uncounted(0, seed=seed)
    train = range(sizes.train_speakers)
    test = range(sizes.train_speakers, sizes.train_speakers + sizes.test_speakers)
    learned, tested = (_features(seed, part, sizes) for part in (train, test))
    return SpeechData("synthetic", learned, tested, sizes.train_speakers, trials(tested, seed, test))


def trials(tested: Utterances, seed: int, speakers: range) -> dict[str, Trials]:
    """List the trials over made voices by name; "same_pitch_range" is left out where no two speakers share a range."""
    lists = {"across_sessions": all_trials(tested.speakers, tested.sessions)}
    high = np.array([voice(np.random.default_rng([seed, speaker])).pitch > PITCH for speaker in speakers])
    if max(high.sum(), (~high).sum()) > 1:
        lists["same_pitch_range"] = all_trials(tested.speakers, tested.sessions, high[tested.speakers])
    return lists


def _features(seed: int, speakers: range, sizes: Sizes) -> Utterances:
    takes = (take for speaker in speakers for session in recordings(seed, speaker, sizes) for take in session)
    labels = np.repeat(np.arange(len(speakers)), sizes.sessions * sizes.utterances)
    sessions = np.tile(np.repeat(np.arange(sizes.sessions), sizes.utterances), len(speakers))
    return Utterances.of(takes, labels, sessions)
