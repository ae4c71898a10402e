"""Tables 2 and 3 of paper 2: the 2:4 workflow over families of networks, then INT8, and permutation before pruning.

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

import copy
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor, nn

from lib import pruners
from lib.data import vision
from lib.errors import BadInput
from lib.jobs import Job
from lib.models import densenet, mobilenet, recurrent, resnet, resnext, shufflenet, squeezenet, vgg, wide_resnet
from lib.pruners.permutation import anneal, permute
from lib.training import int8
from lib.training.examples import Examples
from lib.training.supervised import Training, accuracy, seed_of
from lib.training.variants import Variants

NETWORKS: dict[str, Callable[[], nn.Module]] = {
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
    """One network on one data set.

    Attributes:
        table: the paper's table that reports networks of this family: 2, or 3 for parameter-efficient ones.
        permute: also prune a permuted network (table 3 does).
        seeds: how many, from 0.
    """

    data: str
    network: str
    table: int
    permute: bool
    seeds: int
    training: Training

    def __post_init__(self):
        if self.network not in NETWORKS:
            raise BadInput(f"network {self.network!r}: known are {', '.join(NETWORKS)}")
        if self.data not in (known := vision.names()):
            raise BadInput(f"data {self.data!r}: known are {', '.join(known)}")
        if self.table not in TABLES:
            raise BadInput(f"table={self.table}: networks stand in tables 2 and 3")


@dataclass(frozen=True)
class Settings:
    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """The grid: a seed of a task each, with everything `run` needs."""
    return [
        {
            "data": task.data,
            "network": task.network,
            "table": task.table,
            "permute": task.permute,
            "seed": seed,
            "training": asdict(task.training),
        }
        for task in settings.tasks
        for seed in range(task.seeds)
    ]


def units(configuration: dict) -> int:
    """Epochs of training in one configuration."""
    return configuration["training"]["epochs"] * (4 if configuration["permute"] else 3)


def run(configuration: dict, job: Job) -> list[dict]:
    """Train all variants of one configuration; one row a variant and epoch."""
    seed, settings = configuration["seed"], Training(**configuration["training"])
    examples = Examples.of(vision.load(configuration["data"]), job.device)
    key = {name: configuration[name] for name in ("data", "network", "table", "seed")}
    variants = Variants(key, examples, settings, seed, job)
    first, last = settings.epochs, 2 * settings.epochs

    def quantise(variant: str, model: nn.Module, epoch: int, kept: float) -> None:
        small = int8.simulated(model, int8.inputs(examples, seed=seed_of(seed, 2)))
        variants.record(f"{variant}_int8", model, [accuracy(small, examples)], epoch, kept=kept)

    def workflow(model: nn.Module, suffix: str = "") -> None:
        masks = two_four(model)
        pruned = copy.deepcopy(model)
        pruners.attach(pruned, masks)
        kept = 100 * magnitude(pruned, masks) / magnitude(model, masks)
        variants.record(f"pruned{suffix}", pruned, [accuracy(pruned, examples, settings.precision)], first, kept=kept)
        sparse = variants.again(f"sparse{suffix}", model, masks, kept=kept)
        quantise(f"sparse{suffix}", sparse, last, kept)

    torch.manual_seed(seed_of(seed))
    dense = variants.session("dense", NETWORKS[configuration["network"]](), number=0, before=0, kept=100.0)
    quantise("dense", dense, first, 100.0)
    variants.again("dense_twice", dense, {}, kept=100.0)
    workflow(dense)
    if configuration["permute"]:
        inputs = next(int8.inputs(examples, count=2))
        search = partial(anneal, seed=seed_of(seed, 3))
        workflow(permute(dense, inputs, eligible(dense), search)[0], "_permuted")
    return variants.rows


def eligible(model: nn.Module) -> list[str]:
    """The weights that section 4.2 prunes."""
    return [rule.name for rule in pruners.layer_rule(model) if rule.pruned]


def two_four(model: nn.Module) -> dict[str, Tensor]:
    """Masks that keep the largest two of every four weights."""
    return pruners.n_of_m(pruners.magnitude(model).only(eligible(model)), 2, 4)


def magnitude(model: nn.Module, names: Iterable[str]) -> float:
    """The sum of |w| over these weights."""
    return sum(float(score.double().sum()) for score in pruners.magnitude(model).only(names).values())
