"""Ask whether a second training session is needed: learn masks in one, and shorten the second. Beyond paper 2.

A session has E epochs. With the steps of one session:

    dense                      one session without a mask
    halves                     the workflow in one session's steps: E / 2, pruned, E / 2, two whole schedules
    ste                        masks chosen anew at each step, gradients straight through (SGD's weight decay alone)
    sr_ste                     the same with the decay of SR-STE (Zhou et al. 2021)
    sr_ste_transposable        SR-STE with masks that are 2:4 along rows and along columns (Hubara et al. 2021)

With the steps of two:

    dense_twice                the session repeated without a mask
    retrained                  pruned to 2:4 after the first, and the session repeated: the workflow of section 4.1
    transposable               the workflow with a transposable mask
    sr_ste_long, sr_ste_transposable_long    SR-STE in one session of 2 E epochs

And between the two, for section 6's outlook on shorter schedules: pruned, which is not trained again, and retrained_10,
retrained_25 and so on, pruned after the first session and trained for so many percent of a second one, its schedule
and warm-up shortened alike.

All prune the same layers, those that fit a transposable mask. `flips` is how many entries of the masks changed a step,
in percent, over the epoch; `epoch` counts all epochs that the network has been trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import BadInput, Count, Range, refuse_twice, refuse_unknown
from lib.companion.sweep.context import Context
from lib.companion.sweep.settings import each_seed
from lib.data import vision
from lib.models import plain, resnet
from lib.papers.two_four.experiments.variants import masked_copy
from lib.training.examples import Examples
from lib.training.seeds import seed_of
from lib.training.supervised import Training, accuracy, train

NETWORKS: dict[str, Callable[[int], nn.Module]] = {  # from the number of classes
    "digits_mlp": plain.digits_mlp,
    "resnet20": resnet.resnet20,
    "small_resnet": resnet.small_resnet,
}
TWO_FOUR = partial(pruners.n_of_m, n=2, m=4)
BOTH_WAYS = partial(pruners.transposable, n=2, m=4)

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "variant", "seed", "epoch")
COLUMNS = (*INDEX, "accuracy", "flips", "sparsity")


@dataclass(frozen=True)
class Task:
    """Describe one network on one data set.

    Attributes:
        seeds: how many, from 0.
        shares: of the session, for shorter second ones; each a whole number of epochs.
        decay: of masked weights in SR-STE, its paper's lambda_W, in one session; one of double length has half of it,
            so that the product of steps, rate and decay is the same.
    """

    data: str
    network: str
    seeds: Count
    shares: tuple[float, ...]
    decay: Annotated[float, Range(0)]
    training: Training

    def __post_init__(self):
        refuse_unknown(self, data=vision.names(), network=NETWORKS)
        refuse_twice(shares=self.shares)
        epochs = self.training.epochs
        if epochs % 2:
            raise BadInput(f"training: epochs={epochs}: expected an even number, because halves has half of them twice")
        for share in self.shares:
            if not 0 < share < 1 or abs(share * epochs - round(share * epochs)) > 1e-9:
                raise BadInput(f"shares: {share} of {epochs} epochs is not a whole number between 0 and {epochs}")


@dataclass(frozen=True)
class Settings:
    """List the tasks: each is a network on a data set."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return each_seed(settings.tasks)


def units(configuration: dict) -> int:
    """Count the epochs: twelve sessions' (two halves, seven whole, two of double length), and the shorter ones."""
    epochs = configuration["training"]["epochs"]
    return 12 * epochs + sum(round(share * epochs) for share in configuration["shares"])


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration; one row a variant and epoch."""
    sessions = Sessions(configuration, context)
    epochs, fresh, decay = sessions.training.epochs, sessions.fresh, configuration["decay"]

    dense = sessions.train("dense", fresh(), epochs)
    half = sessions.train("halves", fresh(), epochs // 2)
    sessions.train("halves", masked_copy(half, sessions.masks(half, TWO_FOUR)), epochs // 2, 1, epochs // 2)
    for variant, pattern, strength, length in (
        ("ste", TWO_FOUR, 0.0, epochs),
        ("sr_ste", TWO_FOUR, decay, epochs),
        ("sr_ste_transposable", BOTH_WAYS, decay, epochs),
        ("sr_ste_long", TWO_FOUR, decay / 2, 2 * epochs),
        ("sr_ste_transposable_long", BOTH_WAYS, decay / 2, 2 * epochs),
    ):
        model = fresh()
        pruners.learn(model, pattern, strength, pruners.eligible_both_ways(model))
        sessions.train(variant, model, length)

    sessions.train("dense_twice", masked_copy(dense, {}), epochs, 1, epochs)
    masks = sessions.masks(dense, TWO_FOUR)
    sessions.record("pruned", masked_copy(dense, masks), epochs)
    sessions.train("retrained", masked_copy(dense, masks), epochs, 1, epochs)
    sessions.train("transposable", masked_copy(dense, sessions.masks(dense, BOTH_WAYS)), epochs, 1, epochs)
    for share in configuration["shares"]:
        few = round(share * epochs)
        sessions.train(f"retrained_{round(100 * share)}", masked_copy(dense, masks), few, 1, epochs)
    return sessions.rows


class Sessions:
    """Train the sessions of one configuration's network, and keep the rows of them."""

    def __init__(self, configuration: dict, context: Context):
        self.key = {name: configuration[name] for name in KEYS}
        self.training, self.context = Training(**configuration["training"]), context
        data = vision.load(configuration["data"])
        self.examples, self.classes = Examples.of(data, context.device), data.classes
        self.rows: list[dict] = []

    def fresh(self) -> nn.Module:
        """Build the network as every variant of the seed begins."""
        torch.manual_seed(seed_of(self.key["seed"]))
        return NETWORKS[self.key["network"]](self.classes)

    def masks(self, model: nn.Module, pattern: Callable[..., dict[str, Tensor]]) -> dict[str, Tensor]:
        """Choose masks by magnitude for the layers that fit a transposable one."""
        return pattern(pruners.magnitude(model).only(pruners.eligible_both_ways(model)))

    def of(self, epochs: int) -> Training:
        """Shorten or lengthen the whole schedule of a session to so many epochs, its warm-up too."""
        return replace(self.training, epochs=epochs, warmup=self.training.warmup * epochs / self.training.epochs)

    def train(self, variant: str, model: nn.Module, epochs: int, number: int = 0, before: int = 0) -> nn.Module:
        """Train the model itself for a session, record an epoch a row, and return it.

        Args:
            number: which session of the seed this is; those of the same number and length see the same batches.
            before: epochs that the network has been trained already.
        """
        history = train(
            model,
            self.examples,
            self.of(epochs),
            self.key["seed"],
            number,
            self.context.checkpoint(f"{variant}_{number}.pt"),
            on_progress=lambda: self.context.report_progress(variant),
            report=lambda: {"flips": pruners.flip_rate(model)},
        )
        sparsity = pruners.sparsity(model)
        for row in history:
            found = {"accuracy": row["accuracy"], "flips": row["flips"], "sparsity": sparsity}
            self.rows.append({**self.key, "variant": variant, "epoch": before + row["epoch"], **found})
        return model

    def record(self, variant: str, model: nn.Module, epochs: int) -> None:
        """Add the row of a model that is not trained further, after so many epochs."""
        reached = accuracy(model, self.examples, self.training.precision)
        found = {"accuracy": reached, "flips": math.nan, "sparsity": pruners.sparsity(model)}
        self.rows.append({**self.key, "variant": variant, "epoch": epochs, **found})
