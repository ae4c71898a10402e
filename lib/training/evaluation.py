"""Hold a model in evaluation mode while something is measured on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lib.pruners.inputs import mode


@contextmanager
def measuring(model: nn.Module) -> Iterator[None]:
    """Measure in evaluation mode and without gradients; afterwards each module is in its own mode again.

    So whoever measures in the middle of a training goes on with dropout and batch statistics.
    """
    with mode(model, False), torch.no_grad():
        yield


def predicted(logits: Tensor) -> Tensor:
    """Return the class of each example's largest logit, [examples], of logits [examples, classes].

    Raises:
        FloatingPointError: one is NaN, of which torch says that the first class is the largest.
    """
    if bool(logits.isnan().any()):
        raise FloatingPointError("a logit is not a number: the network has diverged, so it has no accuracy")
    return logits.argmax(1)
