"""Compute log-Mel filter banks: what every network for speech here sees of a waveform."""

from __future__ import annotations

import kaldi_native_fbank as knf
import numpy as np

from lib.base import BadInput

RATE = 16_000  # samples a second
BANDS = 40
WINDOW, SHIFT = 400, 160  # samples: 25 ms and 10 ms


def frames(samples: int) -> int:
    """Count the whole windows that fit into so many samples."""
    return max(0, 1 + (samples - WINDOW) // SHIFT)


def log_mel(samples: np.ndarray) -> np.ndarray:
    """Compute the logarithms of the energies in 40 Mel bands, float32 [frames, 40].

    Kaldi's conventions: windows of 25 ms every 10 ms that lie wholly within the waveform, without their mean, with a
    pre-emphasis of 0.97 and Povey's window; triangles from 20 Hz to 8 kHz on the scale 1127 ln(1 + f / 700). No dither,
    so that the same samples give the same features.

    Args:
        samples: [n] at 16 kHz, in the range of 16-bit integers.

    Raises:
        BadInput: samples of another shape, or fewer than one window.
    """
    if np.ndim(samples) != 1 or not frames(len(samples)):
        raise BadInput(f"a waveform of shape {list(np.shape(samples))}: expected [n] with {WINDOW} samples or more")
    options = knf.FbankOptions()
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = BANDS
    bank = knf.OnlineFbank(options)
    bank.accept_waveform(RATE, np.asarray(samples, np.float32))
    bank.input_finished()
    return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])
