"""Narrow agents and random data: what the tests of `lib.training.offline` share."""

from types import SimpleNamespace

import numpy as np
import torch

from lib.training.agents import Transitions
from lib.training.bc import BC, BCSettings, PlainBC, PlainBCSettings
from lib.training.bcq import BCQ, BCQSettings
from lib.training.offline import Progress, Pruning, Run, prune

OBSERVATIONS, BOUND = 4, [1.0, 1.0]
RUNS = [Run(0), Run(0, "snip", 0.75), Run(1, "grasp", 0.75), Run(1, "random", 0.5)]
SETTINGS = {
    "bcq": BCQSettings(hidden=(8, 8), vae_hidden=(8, 8), batch=4, target_samples=2, acting_samples=3),
    "bc": BCSettings(hidden=(8, 8), batch=4),
    "bc_mlp": PlainBCSettings(hidden=(8, 8), batch=4),
}


def bundle(count=40):
    draw = np.random.default_rng(0)
    return SimpleNamespace(
        observations=draw.standard_normal((count, OBSERVATIONS)).astype(np.float32),
        actions=draw.uniform(-1, 1, (count, 2)).astype(np.float32),
        rewards=draw.standard_normal(count).astype(np.float32),
        next_observations=draw.standard_normal((count, OBSERVATIONS)).astype(np.float32),
        terminals=draw.random(count) < 0.1,
        timeouts=draw.random(count) < 0.1,
    )


DATA = Transitions.of(bundle())


def agent(kind="bcq", runs=RUNS, pruned=True, data=DATA, **settings):
    seeds, settings = [run.seed for run in runs], type(SETTINGS[kind])(**vars(SETTINGS[kind]) | settings)
    if kind == "bc_mlp":
        found = PlainBC(OBSERVATIONS, BOUND, seeds, settings, data.rewards.device)
    else:
        found = {"bcq": BCQ, "bc": BC}[kind](OBSERVATIONS, BOUND, seeds, settings, data.rewards.device)
    if pruned:
        prune(found, data, runs, Pruning(4, 8))
    return found


def flat(content):
    """The tensors of nested dicts and lists, and everything else, in order."""
    if isinstance(content, dict):
        return [part for key, value in content.items() for part in (key, *flat(value))]
    return [part for value in content for part in flat(value)] if isinstance(content, (list, tuple)) else [content]


def same(left, right):
    states = ((agent.modules.state_dict(), Progress(agent).state_dict()) for agent in (left, right))
    pairs = zip(*(flat(state) for state in states), strict=True)
    return all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in pairs)


def mean_action(policy):
    observations = np.ones((len(RUNS), 2, OBSERVATIONS), np.float32)
    return {"action": policy(observations).mean((1, 2)).tolist()}
