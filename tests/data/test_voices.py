"""Laws of `lib.data.speech.voices`: what a made speaker sounds like."""

from dataclasses import replace

import numpy as np
import pytest

from lib.data.speech import voices


def test_a_voice_has_its_pitch_and_its_resonances():
    draw = np.random.default_rng(0)
    who = voices.voice(draw)
    pulses = voices.source(replace(who, breath=0.0, jitter=0.0), 100.0, 16000, draw)
    assert 85 < (np.diff(pulses) > 0.5 * np.diff(pulses).max()).sum() < 115  # about a hundred a second
    impulse = np.zeros(4096)
    impulse[0] = 1
    response = np.abs(np.fft.rfft(voices.resonate(impulse, np.array([1000.0]), np.array([60.0]))))
    assert abs(response.argmax() * 16000 / 4096 - 1000) < 10
    assert response[0] == pytest.approx(1)


def test_a_high_pitch_often_goes_with_a_short_tract():
    draw = np.random.default_rng(0)
    made = [voices.voice(draw) for _ in range(2000)]
    pitch, tract = np.log([one.pitch for one in made]), np.log([one.tract.mean() for one in made])
    expected = 0.6 * 0.1 / np.hypot(0.1, 0.1 / 5**0.5)  # both hang on one size, as the model has it
    assert np.corrcoef(pitch, tract)[0, 1] == pytest.approx(expected, abs=0.05)
