"""A small stack of TD3 and when two are the same: what the tests of `lib.training.td3` share."""

import torch

from lib.training import td3

SMALL = td3.TD3Settings(hidden=(8, 8), batch=16, random_steps=30, buffer=70, learning_rate=1e-3)


def trainer(env="Clock-v0", seeds=(0,), settings=SMALL):
    return td3.start(env, seeds, settings)


def equal(one, run, other, place):
    """Whether a run of one trainer is a run of another in all that was learned, seen and earned."""
    tensors = [
        (a[run], b[place])
        for mine, theirs in ((one.agent.networks, other.agent.networks), (one.agent.targets, other.agent.targets))
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True)
    ]
    tensors.append((one.replay.rows[run], other.replay.rows[place]))
    return one.returns[run] == other.returns[place] and all(torch.equal(a, b) for a, b in tensors)
