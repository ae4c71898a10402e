"""Ask `advise` about two networks on this machine: notebook 21 discusses it, and times change from run to run.

Asked are CIFAR's ResNet-20 as it is made, and the same network with 90 % of its weights removed by magnitude.
"""

from __future__ import annotations

import warnings

import torch

from lib import pruners
from lib.advise import COLUMNS as ADVICE
from lib.advise import advise
from lib.models.resnet import resnet20

DEVICE, THREADS = "cpu", 1
COLUMNS = ("network", *ADVICE)
BATCH, SHAPE, REMOVED = 64, (3, 32, 32), 0.9


def run(device: str, seconds: float = 1.0) -> list[dict]:
    """Return one row a layer of each network."""
    torch.manual_seed(0)
    model = resnet20()
    rows = answers("dense", model, device, seconds)
    with warnings.catch_warnings():
        # ranked together the last layers lose all: the notebook says so
        warnings.simplefilter("ignore", pruners.Emptied)
        pruners.attach(model, pruners.unstructured(pruners.magnitude(model), REMOVED))
    return rows + answers(f"{100 * REMOVED:.0f} % removed", model, device, seconds)


def answers(name: str, model: torch.nn.Module, device: str, seconds: float) -> list[dict]:
    """Return the rows of one network."""
    return [{"network": name, **row} for row in advise(model, BATCH, device, SHAPE, seconds).to_dict("records")]
