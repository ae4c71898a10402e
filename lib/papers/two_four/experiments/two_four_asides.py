"""Measure what paper 2 says in passing, without a number: old momenta, a low rate, early scales, sparse activations.

One configuration is one network, one data set and one seed, trained into all its variants. The first five are those of
`two_four_workflow` and `two_four_networks`:

    dense               the first training session
    dense_twice         the dense network given the second session too
    pruned              the dense weights with 2 of every 4 removed by magnitude, not trained further
    retrained           pruned, then the session repeated with the same schedule and a new optimizer: the workflow
    int8                retrained, then quantised: scales of inputs are found on the network that is quantised

Section 4.1, step 3: "It is important to reset all hyper-parameters and optimizer state, such as momenta".

    momenta_kept        as retrained, but the optimizer begins with the momenta that the first session ended with
    rate_kept           as retrained, but at a hundredth of the rate, near where the first session ended

Section 4.4: calibrate after pruning and retraining.

    int8_early          retrained, then quantised with the scales of inputs that the dense network had

Section 6: activations can be pruned to 2:4 without a loss of accuracy. The weights stay dense.

    activations         the dense network, with the inputs of the same layers pruned to 2:4, not trained further
    activations_twice   the dense network given the second session too, with these inputs pruned throughout

`epoch` counts all epochs that a network has been trained; `sparsity` and `flops` are those of the weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.optim import Optimizer

from lib import pruners
from lib.base import Count, refuse_unknown
from lib.companion.sweep.context import Context
from lib.companion.sweep.settings import each_seed
from lib.data import vision
from lib.models import resnet
from lib.papers.two_four.experiments.variants import Variants, masked_copy
from lib.pruners import activations, calibration
from lib.pruners.sizes import flops
from lib.training.seeds import seed_of
from lib.training.supervised import Training, accuracy

NETWORKS: dict[str, Callable[[int], nn.Module]] = {  # from the number of classes
    "resnet20": resnet.resnet20,
    "small_resnet": resnet.small_resnet,
    "resnet50": resnet.resnet50,
}
RATE_LEFT = 0.01  # of the schedule's rate, where it is not reset: a cosine ends at 0, where nothing would be learned

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "variant", "seed", "epoch")
COLUMNS = (*INDEX, "accuracy", "sparsity", "flops")


@dataclass(frozen=True)
class Task:
    """Describe one network on one data set.

    Attributes:
        seeds: how many, from 0.
    """

    data: str
    network: str
    seeds: Count
    training: Training

    def __post_init__(self):
        refuse_unknown(self, data=vision.names(), network=NETWORKS)


@dataclass(frozen=True)
class Settings:
    """Each task is a network on a data set."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return each_seed(settings.tasks)


def units(configuration: dict) -> int:
    """Count the epochs of training in one configuration: six sessions."""
    return 6 * configuration["training"]["epochs"]


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration; one row a variant and epoch."""
    variants = Variants.of(configuration, KEYS, context, flops)
    seed, examples, epochs = configuration["seed"], variants.examples, variants.settings.epochs

    torch.manual_seed(seed_of(seed))
    network = NETWORKS[configuration["network"]](vision.load(configuration["data"]).classes)
    first = Momenta()
    dense = variants.session("dense", network, number=0, before=0, callback=first.of)
    variants.again("dense_twice", dense, {})

    masks = variants.prune(dense)
    variants.pruned("pruned", dense, masks)
    retrained = variants.again("retrained", dense, masks)
    model, earlier = copy.deepcopy((dense, first.optimizer))  # together, so that its momenta are those of the copy
    pruners.attach(model, masks)
    variants.session("momenta_kept", model, number=1, before=epochs, callback=Momenta(earlier).of)
    low = replace(variants.settings, learning_rate=RATE_LEFT * variants.settings.learning_rate)
    replace(variants, settings=low).again("rate_kept", dense, masks)

    for variant, calibrated in (("int8", retrained), ("int8_early", dense)):
        amax = calibration.ranges(calibrated, examples.sample(seed=seed_of(seed, 2)))
        small = calibration.quantised(retrained, amax)
        variants.record(variant, retrained, [accuracy(small, examples, variants.settings.precision)], 2 * epochs)

    thin = masked_copy(dense, {})
    activations.prune(thin)
    variants.pruned("activations", thin, {})
    variants.again("activations_twice", thin, {})
    return variants.rows


class Momenta:
    """Begin a training session with the momenta of an earlier one, and hold its optimizer for a later one.

    Args:
        earlier: the optimizer of the same parameters in the session before; None: all momenta begin at zero.
    """

    def __init__(self, earlier: Optimizer | None = None):
        self.earlier, self.optimizer = earlier, None

    def of(self, optimizer: Optimizer) -> Momenta:
        """Give the momenta to a session's optimizer before its first update."""
        self.optimizer = optimizer
        if self.earlier is not None:
            optimizer.state.update(self.earlier.state)
        return self

    def step(self, step: int) -> None:
        """Do nothing after an update."""

    def identity(self) -> dict:
        """Tell a session that begins with momenta from one that does not."""
        return {"momenta": "kept" if self.earlier else "new"}

    def state_dict(self) -> dict:
        """Give nothing: the optimizer's own state holds the momenta."""
        return {}

    def load_state_dict(self, content: dict) -> None:
        """Take nothing."""
