"""Choose the precision of products; weights, gradients and the optimizer's memory stay in float32."""

from __future__ import annotations

import torch

from lib.base import BadInput

PRECISIONS = ("float32", "bfloat16")


def check(precision: str, where: str) -> None:
    """Refuse a precision that is not one of PRECISIONS, naming whose setting it is.

    Raises:
        BadInput: another precision.
    """
    if precision not in PRECISIONS:
        raise BadInput(f"{where}: precision={precision!r}: known are {', '.join(PRECISIONS)}")


def autocast(device: torch.device | str, precision: str) -> torch.autocast:
    """Compute products within it in bfloat16, if that is the precision: on many machines twice as fast.

    Raises:
        BadInput: another precision than these two.
    """
    check(precision, "autocast")
    return torch.autocast(torch.device(device).type, torch.bfloat16, enabled=precision == "bfloat16")
