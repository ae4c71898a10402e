"""Build small fully connected networks: for the two moons (paper 4, section 6.1), and for the digits."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def moons_mlp(features: int = 100, hidden: int = 80) -> nn.Sequential:
    """Build 2-100 (fixed)-80-2: two coordinates, 100 fixed linear features, 80 neurons with ReLU, two classes.

    The first map is random, linear and not trained. Its distribution is not stated in the paper; here it is normal with
    variance 1/2, so that inputs of variance 1 give features of variance 1. Trained are 8,160 weights and 82 biases:
    features x hidden + hidden x 2, the paper's count.
    """
    model = nn.Sequential(
        OrderedDict(
            map=nn.Linear(2, features, bias=False),
            fc1=nn.Linear(features, hidden),
            relu=nn.ReLU(),
            fc2=nn.Linear(hidden, 2),
        )
    )
    nn.init.normal_(model.map.weight, std=0.5**0.5)
    model.map.weight.requires_grad_(False)
    return model


def digits_mlp(classes: int = 10) -> nn.Sequential:
    """Build 64-128-128-classes with ReLU for 8 x 8 digits: 24,576 hidden weights, 26,122 parameters."""
    return nn.Sequential(
        OrderedDict(
            flatten=nn.Flatten(),
            fc1=nn.Linear(64, 128),
            relu1=nn.ReLU(),
            fc2=nn.Linear(128, 128),
            relu2=nn.ReLU(),
            fc3=nn.Linear(128, classes),
        )
    )
