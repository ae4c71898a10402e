"""Run the 2:4 workflow of paper 2, section 4.1: train, prune, retrain; with the controls it needs.

One configuration is one network, one data set and one seed, trained into all its variants:

    dense         the first training session
    pruned        the dense weights with 2 of every 4 removed by magnitude, not trained further
    retrained     pruned, then the session repeated with the same schedule and a new optimizer: the workflow
    dense_twice   the dense network given the second session too, the fair rival of retrained
    fresh         the same mask on a new initialisation, one session: is it the mask or the weights that matter?
    unstructured  half of the same layers' weights removed one by one, then retrained: what the pattern costs
    random        as retrained, but chance chooses the two of four: does the score matter at all?
    gradient      as retrained, but |weight x gradient| chooses (section 4.1 names gradients as another metric)

`epoch` counts all epochs a network has been trained, so retrained goes from E + 1 to 2 E.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib import pruners
from lib.base import Count, Range, refuse_unknown
from lib.companion.sweep.context import Context
from lib.data import vision
from lib.models import lenet, resnet
from lib.papers.two_four.experiments.variants import Variants
from lib.pruners.sizes import flops
from lib.training.examples import Examples
from lib.training.seeds import seed_of
from lib.training.supervised import Training

NETWORKS: dict[str, Callable[[int], nn.Module]] = {  # from the number of classes
    "lenet5": lenet.lenet5,
    "small_lenet": lenet.small_lenet,
    "resnet20": resnet.resnet20,
    "small_resnet": resnet.small_resnet,
    "resnet34": resnet.resnet34,
    "resnet50": resnet.resnet50,
}
CONTROLS = {  # of the workflow's score and pattern: variant to names in the registries
    "unstructured": ("magnitude", "unstructured"),
    "random": ("random", "two_four"),
    "gradient": ("snip", "two_four"),
}
GRADIENT_EXAMPLES, GRADIENT_BATCH = 1024, 64  # training examples behind the gradient score, and how many at once

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "variant", "seed", "epoch")
COLUMNS = (*INDEX, "accuracy", "sparsity", "flops")


@dataclass(frozen=True)
class Task:
    """Describe one network on one data set.

    Attributes:
        seeds: how many seeds, from 0.
        control_seeds: how many of them also train the controls fresh, unstructured, random and gradient.
    """

    data: str
    network: str
    seeds: Count
    control_seeds: Annotated[int, Range(0)]
    training: Training

    def __post_init__(self):
        refuse_unknown(self, data=vision.names(), network=NETWORKS)


@dataclass(frozen=True)
class Settings:
    """Each task is a network on a data set."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return [
        {
            "data": task.data,
            "network": task.network,
            "seed": seed,
            "controls": seed < task.control_seeds,
            "training": asdict(task.training),
        }
        for task in settings.tasks
        for seed in range(task.seeds)
    ]


def units(configuration: dict) -> int:
    """Count the epochs of training in one configuration."""
    return configuration["training"]["epochs"] * (7 if configuration["controls"] else 3)


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration; one row a variant and epoch."""
    variants = Variants.of(configuration, KEYS, context, flops)
    seed, classes = configuration["seed"], vision.load(configuration["data"]).classes
    build = partial(NETWORKS[configuration["network"]], classes)

    torch.manual_seed(seed_of(seed))
    dense = variants.session("dense", build(), number=0, before=0)

    masks = variants.prune(dense)
    variants.pruned("pruned", dense, masks)
    variants.again("retrained", dense, masks)
    variants.again("dense_twice", dense, {})
    if configuration["controls"]:
        torch.manual_seed(seed_of(seed, 1))
        fresh = build()
        pruners.attach(fresh, masks)
        variants.session("fresh", fresh, number=1, before=0)
        losses = training_losses(variants.examples, seed)
        for variant, (score, pattern) in CONTROLS.items():
            variants.again(variant, dense, variants.prune(dense, score, pattern, losses, seed))
    return variants.rows


def training_losses(examples: Examples, seed: int) -> list[Callable[[nn.Module], Tensor]]:
    """Make the losses of a network in evaluation mode, as it will be used, one a batch of training data; the same for a
    seed.
    """
    draw = torch.Generator().manual_seed(seed_of(seed, 2))
    chosen = torch.randperm(len(examples.train_labels), generator=draw)[:GRADIENT_EXAMPLES]
    batches = chosen.to(examples.train_labels.device).split(GRADIENT_BATCH)

    def of(batch: Tensor, model: nn.Module) -> Tensor:
        inputs, labels = next(examples.train_batches((batch,), "none", draw))
        return F.cross_entropy(model.eval()(inputs), labels)

    return [partial(of, batch) for batch in batches]
