"""A small gated network and points: what the tests of `lib.training.gated` share."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn

from lib.models.plain import moons_mlp
from lib.pruners import gates
from lib.training.examples import Examples
from lib.training.gated import GatedTraining

SPARSIFY = GatedTraining(epochs=(2, 3, 2), lambdas=(0.1, 0.1), k=7.0, batch=16)
EXPAND = replace(SPARSIFY, k=0.5, expand=True, validation=0.25, patience=1)


def points(count=40, test=12, seed=0):
    """Points whose class is the sign of their product, random ones for the test."""
    draw = np.random.default_rng(seed)
    inputs = draw.normal(size=(count + test, 2)).astype(np.float32)
    labels = (inputs.prod(1) > 0).astype(np.int64)
    parts = {"train_inputs": inputs[:count], "train_labels": labels[:count]}
    return Examples.of(SimpleNamespace(**parts, test_inputs=inputs[count:], test_labels=labels[count:]))


def network(start=None, k=7.0, seed=0, dropout=0.0, **more):
    """2-6-5-2; the first map is fixed."""
    torch.manual_seed(seed)
    plain = moons_mlp(6, 5)
    plain.relu = nn.Sequential(nn.ReLU(), nn.Dropout(dropout))
    return gates.gated(plain, ["fc1", "fc2"], k=k, start=start, seed=seed, **more)
