"""Run the 2:4 workflow over families of networks, then INT8, and permute before pruning (paper 2, tables 2 and 3).

One configuration is one network, one data set and one seed, trained into all its variants:

    dense            the first training session
    dense_twice      the dense network given the second session too, the fair rival of sparse
    pruned           the dense weights with 2 of every 4 removed by magnitude, not trained further
    sparse           pruned, then the session repeated: the workflow of section 4.1
    dense_int8       dense and sparse quantised after their last session (section 4.4): weights with max calibration
    sparse_int8      per output channel, activations with entropy calibration per tensor (section 5.1)

and where the task asks for it, with the channels permuted before pruning so that 2:4 keeps more of the magnitude:

    pruned_permuted, sparse_permuted, sparse_permuted_int8

`epoch` counts all epochs a network has been trained. `kept` is what the mask left when the network was pruned of the
magnitude of the layers that were pruned, in percent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import BadInput, Count, refuse_unknown
from lib.companion.sweep.context import Context
from lib.companion.sweep.settings import each_seed
from lib.data import vision
from lib.models import densenet, mobilenet, recurrent, resnet, resnext, shufflenet, squeezenet, vgg, wide_resnet
from lib.papers.two_four.experiments.variants import Variants
from lib.pruners import calibration
from lib.pruners.permutation import anneal, permute
from lib.pruners.sizes import flops
from lib.training.seeds import seed_of
from lib.training.supervised import Training, accuracy

NETWORKS: dict[str, Callable[[int], nn.Module]] = {  # from the number of classes
    "resnet20": resnet.resnet20,
    "small_resnet": resnet.small_resnet,
    "wide_resnet": wide_resnet.wide_resnet,
    "small_wide_resnet": wide_resnet.small_wide_resnet,
    "resnext20": resnext.resnext20,
    "small_resnext": resnext.small_resnext,
    "vgg10": vgg.vgg10,
    "small_vgg": vgg.small_vgg,
    "densenet24": densenet.densenet24,
    "small_densenet": densenet.small_densenet,
    "lstm": recurrent.lstm,
    "small_lstm": recurrent.small_lstm,
    "mobilenet_v2": mobilenet.mobilenet_v2,
    "small_mobilenet_v2": mobilenet.small_mobilenet_v2,
    "squeezenet": squeezenet.squeezenet,
    "small_squeezenet": squeezenet.small_squeezenet,
    "shufflenet_v2": shufflenet.shufflenet_v2,
    "small_shufflenet_v2": shufflenet.small_shufflenet_v2,
}
TABLES = (2, 3)

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "variant", "seed", "epoch")
COLUMNS = (*INDEX, "table", "accuracy", "sparsity", "kept", "flops")


@dataclass(frozen=True)
class Task:
    """Describe one network on one data set.

    Attributes:
        table: the paper's table that reports networks of this family: 2, or 3 for parameter-efficient ones.
        permute: also prune a permuted network (table 3 does).
        seeds: how many, from 0.
    """

    data: str
    network: str
    table: int
    permute: bool
    seeds: Count
    training: Training

    def __post_init__(self):
        refuse_unknown(self, data=vision.names(), network=NETWORKS)
        if self.table not in TABLES:
            raise BadInput(f"table={self.table}: networks stand in tables 2 and 3")


@dataclass(frozen=True)
class Settings:
    """Each task is a network on a data set."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return each_seed(settings.tasks)


def units(configuration: dict) -> int:
    """Count the epochs of training in one configuration."""
    return configuration["training"]["epochs"] * (4 if configuration["permute"] else 3)


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration; one row a variant and epoch."""
    variants = Variants.of(configuration, (*KEYS, "table"), context, flops)
    seed, examples, epochs = configuration["seed"], variants.examples, variants.settings.epochs

    def quantise(variant: str, model: nn.Module, epoch: int, left: float) -> None:
        small = calibration.simulated(model, examples.sample(seed=seed_of(seed, 2)))
        found = accuracy(small, examples, variants.settings.precision)  # as the others; what is quantised stays exact
        variants.record(f"{variant}_int8", model, [found], epoch, kept=left)

    def workflow(model: nn.Module, suffix: str = "") -> None:
        masks = variants.prune(model)
        left = magnitude_left(model, masks)
        variants.pruned(f"pruned{suffix}", model, masks, kept=left)
        sparse = variants.again(f"sparse{suffix}", model, masks, kept=left)
        quantise(f"sparse{suffix}", sparse, 2 * epochs, left)

    classes = vision.load(configuration["data"]).classes
    torch.manual_seed(seed_of(seed))
    dense = variants.session("dense", NETWORKS[configuration["network"]](classes), number=0, before=0, kept=100.0)
    quantise("dense", dense, epochs, 100.0)
    variants.again("dense_twice", dense, {}, kept=100.0)
    workflow(dense)
    if configuration["permute"]:
        inputs = next(examples.sample(count=2))
        search = partial(anneal, seed=seed_of(seed, 3))
        workflow(permute(dense, inputs, search=search)[0], "_permuted")
    return variants.rows


def magnitude_left(model: nn.Module, masks: Mapping[str, Tensor]) -> float:
    """Measure what masks leave of the magnitude of the layers that they prune, in percent."""
    scores = pruners.magnitude(model)
    left = sum(float((scores[name] * mask).double().sum()) for name, mask in masks.items())
    return 100 * left / sum(float(scores[name].double().sum()) for name in masks)
