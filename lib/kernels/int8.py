"""Code values as symmetric int8: choose which range the codes -127 to 127 cover, and round (paper 2, section 5.1).

A scale is the width of one step, amax / 127. Weights have one per output channel with amax = the largest magnitude (max
calibration). Activations have one for the whole tensor, and clipping a few outliers may buy all other values a finer
step: entropy calibration picks the amax whose quantised distribution says most about the observed one. It is NVIDIA's,
from TensorRT; paper 2 refers to its survey (Wu et al. 2020, "Integer quantization for deep learning inference").
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from lib.base import BadInput

LARGEST = 127  # -128 is left out, so that the range is symmetric
LEVELS = 128  # magnitudes that int8 tells apart, 0 to 127
BINS = 4096  # of a histogram; at least half of them lie below the largest value, TensorRT's 2,048
METHODS = ("entropy", "entropy_with_zeros", "max", "percentile")


def scale_of(amax: Tensor) -> Tensor:
    """Compute the step that spreads the codes over [-amax, amax]; 1 where amax is 0, since any step codes zeros
    exactly.
    """
    return torch.where(amax > 0, (amax / LARGEST).clamp(min=torch.finfo(amax.dtype).smallest_normal), 1.0)


def weight_scales(weight: Tensor) -> Tensor:
    """Calibrate by the maximum of each output channel: [out, ...] -> steps [out, 1, ...] that divide the weight as they
    are; in float32 at least, because a narrower type has no step for the weights of a small channel.

    Raises:
        BadInput: no axis beside that of the channels, or no weights.
    """
    if weight.dim() < 2 or not weight.numel():
        raise BadInput(f"weight_scales needs a weight [out, ...] of two axes or more, this one is {list(weight.shape)}")
    return scale_of(widened(weight).abs().amax(dim=tuple(range(1, weight.dim())), keepdim=True))


def quantise(values: Tensor, scale: Tensor | float) -> Tensor:
    """Compute the nearest int8 codes, half to even, clipped to [-127, 127]. Zero is always code 0, so pruned weights
    stay so. What is narrower than float32 is divided in float32: in its own type a quotient would be rounded twice.

    Args:
        scale: step width; one number, or a tensor that broadcasts against the values.

    Raises:
        BadInput: a value that is not finite, which has no code, or a step that is not above 0.
    """
    _check_finite(values)
    steps = torch.as_tensor(scale)
    if not bool((torch.isfinite(steps) & (steps > 0)).all()):
        raise BadInput(f"scale={float(steps.min()):g} to {float(steps.max()):g}: expected finite steps above 0")
    return (widened(values) / scale).round().clamp(-LARGEST, LARGEST).to(torch.int8)


def widened(values: Tensor) -> Tensor:
    """Return floats that are narrower than float32 as float32, and others as they are."""
    return values.float() if values.is_floating_point() and values.element_size() < 4 else values


def dequantise(codes: Tensor, scale: Tensor) -> Tensor:
    """Compute the values that int8 codes stand for."""
    return codes * scale


class Histogram:
    """Count how often each magnitude |x| was seen: equal bins from 0 on, and a range that grows with the values.

    A bin is a power of two wide, the one with which the largest value lies in the upper half of the bins. So when a
    larger value comes, whole bins are merged, no count is lost, and the result does not depend on the order of values.

    Attributes:
        counts: int64 [BINS]; bin j counts the magnitudes in [j, j + 1) x width.
        max: the largest magnitude seen.
    """

    def __init__(self):
        self.counts = np.zeros(BINS, dtype=np.int64)
        self.max = 0.0

    @property
    def width(self) -> float:
        """Return the width of a bin."""
        return _width(self.max)

    def add(self, values: Tensor) -> None:
        """Count a tensor of any shape. BadInput: a value is not finite."""
        _check_finite(values)
        if not values.numel():
            return
        magnitudes = values.detach().double().abs().flatten()
        largest = max(self.max, float(magnitudes.max()))
        width = _width(largest)
        counts = torch.bincount((magnitudes / width).long(), minlength=BINS).cpu().numpy()
        filled = np.flatnonzero(self.counts)
        np.add.at(counts, (filled * (self.width / width)).astype(np.int64), self.counts[filled])
        self.counts, self.max = counts, largest

    def share_above(self, amax: float) -> float:
        """Compute the share of the values that [-amax, amax] clips, by the bins that lie beyond amax as a whole."""
        if amax >= self.max:
            return 0.0
        return float(self.counts[math.ceil(amax / self.width) :].sum() / self.counts.sum())


def check_method(method: str) -> None:
    """Refuse a method that is none of METHODS.

    Raises:
        BadInput: it is none.
    """
    if method not in METHODS:
        raise BadInput(f"calibration {method!r}: known are {', '.join(METHODS)}")


def threshold(histogram: Histogram, method: str = "entropy") -> float:
    """Find the amax of an activation by one of METHODS; 0 when all values were zero.

    Raises:
        BadInput: an unknown method, or a histogram of nothing.
    """
    check_method(method)
    if not histogram.counts.any():
        raise BadInput("an empty histogram has no threshold: add values first")
    return {
        "entropy": entropy_threshold,
        "entropy_with_zeros": lambda seen: entropy_threshold(seen, zeros=True),
        "max": lambda seen: seen.max,
        "percentile": percentile_threshold,
    }[method](histogram)


def entropy_threshold(histogram: Histogram, zeros: bool = False) -> float:
    """Find the amax, an edge of a bin or the maximum, with the least of the `divergences`; among equal ones the
    largest.

    Args:
        zeros: count the first bin as it is, as TensorRT's pseudo-code stands. By default it counts as much as the
            second, as in NVIDIA's own tool: it holds the zeros of a ReLU, often half of all values, which every amax
            codes exactly, but which the pseudo-code smears over the first level; it then clips much to avoid that.
    """
    if histogram.max == 0:
        return 0.0
    counts = histogram.counts.copy()
    if not zeros:
        counts[0] = counts[1]
    candidates, divergence = divergences(counts)
    best = candidates[::-1][divergence[::-1].argmin()]
    return min(float(best * histogram.width), histogram.max)


def divergences(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the Kullback-Leibler divergence KL(P | Q) in nats for each number of bins i that may be kept.

    P is the first i bins, what lies beyond added to the last of them. Q is the first i bins without it, in 128 levels
    (bin j in level floor(128 j / i)), each level's count spread evenly over its non-empty bins. Where bin i - 1 is
    empty, Q lacks what P has there and the divergence is infinite: such an i is left out, as is any beyond the maximum.

    All sums over a level's bins are differences of running sums, so no loop over i is needed.

    Returns:
        candidates [n] >= 128 in rising order, divergence [n], rounded to 12 digits so that equal ones are equal.
    """
    i = np.flatnonzero(counts) + 1
    i = i[i >= LEVELS]
    running = [np.concatenate([[0], np.cumsum(terms)]) for terms in (counts, counts > 0, _xlogy(counts, counts))]
    total, filled, information = running
    edges = -(-i[:, None] * np.arange(LEVELS + 1) // LEVELS)  # the first bin of each level, rounded up
    level, bins = np.diff(total[edges]), np.diff(filled[edges])
    beyond = total[-1] - total[i]
    last = counts[i - 1] + beyond
    own = information[i - 1] + _xlogy(last, last)  # sum of P ln P, before P is divided by its total
    level_of_p = level.copy()
    level_of_p[:, -1] += beyond
    cross = _xlogy(level_of_p, level / np.maximum(bins, 1)).sum(1)  # sum of P ln Q, likewise
    return i, ((own - cross) / total[-1] - np.log(total[-1] / total[i])).round(12)


def percentile_threshold(histogram: Histogram, percent: float = 99.99) -> float:
    """Find the smallest edge of a bin (or the maximum) below which so many percent of all values lie.

    Raises:
        BadInput: a percentage that is not above 0 and at most 100.
    """
    if not 0 < percent <= 100:
        raise BadInput(f"percentile {percent}: it must be above 0 and at most 100")
    running = histogram.counts.cumsum()
    wanted = round(percent / 100 * running[-1], 6)  # 99.9 / 100 * 1000 is a little more than 999
    bins = int(np.searchsorted(running, wanted)) + 1
    return min(bins * histogram.width, histogram.max)


def _xlogy(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x ln y in float64, 0 where x is 0."""
    return torch.special.xlogy(torch.from_numpy(x).double(), torch.from_numpy(y).double()).numpy()


def _width(largest: float) -> float:
    """The power of two with which the largest value lies in the upper half of the bins."""
    return math.ldexp(1.0, math.frexp(largest)[1]) / BINS


def _check_finite(values: Tensor) -> None:
    if not bool((finite := torch.isfinite(values)).all()):
        raise BadInput(
            f"{int((~finite).sum())} of {values.numel()} values are NaN or infinite: int8 has no code for them"
        )
