"""Train classifiers group-sparsely (paper 5, section 4.5 and figure 10), and the rivals they are compared with.

One configuration is one network on one data set, one seed, and one way of training:

    dense    the network as it is
    rwp      reward-aware pruning of single weights
    regrow   the same, but what was set to zero is trained on and may grow again; only where a task asks for it
    gst      Algorithm 1 with reward-aware pruning, once a block size, shift and conversion

What stands in for the reward the paper does not say. Here it is the accuracy on training images that are held out, from
which no way of training learns; the test images have no part in it. It is measured at each chance to prune.

`compression_ratio` is equation 3 averaged over the updates so far; beside it equation 2 (`ideal_ratio`), and equation 3
with a bitmap on coefficients (`coefficient_ratio`). `share` is P_comp / P_total. `accuracy` is that on the test images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import nn

from lib import pruners
from lib.base import BadInput, Count, Range, refuse_unknown
from lib.companion.sweep.context import Context
from lib.data import vision
from lib.models.alexnet import alexnet, small_alexnet
from lib.models.resnet import resnet32, small_resnet
from lib.papers.gst.experiments import methods
from lib.papers.gst.experiments.algorithm import GroupSparseTraining, begin, share
from lib.papers.gst.experiments.methods import METHODS, RATIOS, Blocks, RewardPruning
from lib.training.examples import Examples, in_batches
from lib.training.seeds import seed_of
from lib.training.supervised import Training, accuracy, hold_out, train

NETWORKS: dict[str, Callable[[int], nn.Module]] = {  # from the number of classes
    "resnet32": resnet32,
    "small_resnet": small_resnet,
    "alexnet": alexnet,
    "small_alexnet": small_alexnet,
}
KEYS = ("data", "network", "method", "block", "shift", "conversion", "seed")
INDEX = (*KEYS, "epoch")
COLUMNS = (*INDEX, "accuracy", "held_out", "sparsity", "phase", "share", *RATIOS)


@dataclass(frozen=True)
class Task:
    """Describe one network on one data set.

    Attributes:
        first, last: which weights are compressed, counted from 1 in the network's order as the paper counts layers.
        seeds: how many, from 0.
        held_out: share of the training images that the reward is measured on.
        pruning: `every` counts updates.
        blocks: the ways of grouping, besides single weights.
        methods: those of single weights, some of METHODS and REGROW.
    """

    data: str
    network: str
    first: Count
    last: Count
    seeds: Count
    held_out: Annotated[float, Range(0, 1)]
    training: Training
    pruning: RewardPruning
    blocks: tuple[Blocks, ...]
    methods: tuple[str, ...] = METHODS

    def __post_init__(self):
        refuse_unknown(self, data=vision.names(), network=NETWORKS)
        if self.first > self.last:
            raise BadInput(f"first={self.first} comes after last={self.last}: name the first and the last layer")
        methods.refuse_methods(self.blocks, self.methods)


@dataclass(frozen=True)
class Settings:
    """List the tasks, each a network on a data set."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed and a way of training of a task each, with everything `run` needs."""
    return [one for task in settings.tasks for one in methods.each_method(task)]


def units(configuration: dict) -> int:
    """Count the epochs of training in one configuration."""
    return configuration["training"]["epochs"]


def run(configuration: dict, context: Context) -> list[dict]:
    """Train one network in one way; one row an epoch.

    Raises:
        BadInput: a rhythm of pruning that training is too short for.
    """
    data, seed = vision.load(configuration["data"]), configuration["seed"]
    training, every = Training(**configuration["training"]), configuration["pruning"]["every"]
    examples, held = hold_out(Examples.of(data, context.device), configuration["held_out"], seed)
    torch.manual_seed(seed_of(seed))
    model = NETWORKS[configuration["network"]](data.classes).to(context.device)
    layers = chosen(model, configuration["first"], configuration["last"])
    if configuration["method"] != "dense":
        updates = training.epochs * len(in_batches(torch.arange(len(examples.train_labels)), training.batch))
        methods.RewardPruning(**configuration["pruning"]).refuse_never(updates)
    compression = methods.compression(configuration, layers)
    begin(model, compression)

    def reward(step: int) -> list[float] | None:
        """Measure the accuracy on the images held out, at each chance to prune."""
        if step % every:
            return None
        return [accuracy(model, held, training.precision)]

    made: list[GroupSparseTraining] = []

    def hook(optimizer: torch.optim.Optimizer) -> GroupSparseTraining:
        schedules = [methods.schedule(configuration)]
        made.append(GroupSparseTraining(model, compression, schedules, [optimizer], reward=reward))
        return made[0]

    def report() -> dict:
        return {"held_out": made[0].rewards[0], **made[0].report()}

    history = train(
        model,
        examples,
        training,
        seed,
        state=context.checkpoint("session.pt"),
        on_progress=lambda: context.report_progress(f"{configuration['network']} {configuration['method']}"),
        callback=hook,
        report=report,
    )
    key = {name: configuration[name] for name in KEYS} | {"share": share(model, layers)}
    return methods.rows(key, history, COLUMNS)


def chosen(model: nn.Module, first: int, last: int) -> tuple[str, ...]:
    """List the names of the weights from the first to the last, counted from 1.

    Raises:
        BadInput: the network has fewer.
    """
    names = [layer.name for layer in pruners.prunable(model)]
    if last > len(names):
        raise BadInput(f"last={last}: this network has {len(names)} layers")
    return tuple(names[first - 1 : last])
