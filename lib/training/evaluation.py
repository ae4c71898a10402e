"""Hold a model in evaluation mode while something is measured on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from lib.pruners.inputs import mode


@contextmanager
def measuring(model: nn.Module) -> Iterator[None]:
    """Measure in evaluation mode and without gradients; afterwards each module is in its own mode again.

    So whoever measures in the middle of a training goes on with dropout and batch statistics.
    """
    with mode(model, False), torch.no_grad():
        yield
