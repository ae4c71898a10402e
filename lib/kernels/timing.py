"""Time rivals fairly on a machine that is not quiet: in turn, many times, and compare medians.

Beside it how much memory a call takes.
"""

from __future__ import annotations

import ctypes
import gc
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median, quantiles

import torch

from lib.base import BadInput, refuse_uncounted


def in_turn(
    rivals: dict[str, Callable[[], object]], seconds: float = 3.0, warmup: int = 3, block: int = 1
) -> dict[str, float]:
    """Measure the median milliseconds of each rival, see `rounds`."""
    return {name: median(values) for name, values in rounds(rivals, seconds, warmup, block).items()}


def rounds(
    rivals: dict[str, Callable[[], object]], seconds: float = 3.0, warmup: int = 3, block: int = 1
) -> dict[str, list[float]]:
    """Measure the milliseconds of each call of each rival: A B C A B C ... for so many seconds, at least five rounds.

    Taking turns lets a slow moment of the machine hit all of them alike. On a GPU each call is waited for.

    Args:
        block: calls a turn. In turns of one call each rival finds in the processor's cache what the others have left
            there; calls of microseconds need longer turns.

    Raises:
        BadInput: no rivals, or turns of no calls.
    """
    refuse_uncounted(block=block)
    if not rivals:
        raise BadInput("no rivals to time: at least one is needed")
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for _ in range(warmup):
        for call in rivals.values():
            call()
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or len(next(iter(times.values()))) < 5 * block:
        for name, call in rivals.items():
            for _ in range(block):
                _wait()
                start = time.perf_counter()
                call()
                _wait()
                times[name].append(1000 * (time.perf_counter() - start))
    return times


def times_as_fast(rival: Sequence[float], own: Sequence[float]) -> tuple[float, float, float]:
    """Compare the times of two rivals that took turns: how many times as fast the second is.

    Args:
        rival, own: milliseconds, call by call, from `rounds`; at least two.

    Returns:
        The ratio of their medians, and the lower and upper quartile of the ratios of single calls: between these lie
        half of what one comparison would have said.
    """
    low, _, high = quantiles((other / mine for other, mine in zip(rival, own, strict=True)), n=4, method="inclusive")
    return median(rival) / median(own), low, high


def peak_bytes(call: Callable[[], object]) -> int:
    """Say how much more memory than before the process holds at most while a call runs (Linux, a processor's memory).

    The kernel keeps the largest size of a process ("VmHWM") and forgets it when asked to. What memory the process has
    freed and still holds would not be seen, so it is given back first.
    """
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(line: str) -> int:
    """A line of the kernel's status of this process, from kB in bytes."""
    return int(re.search(rf"{line}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
