"""Run the 2:4 workflow on a generative adversarial network that makes digits (paper 2, table 5, its first row).

Two networks are trained against each other, and only the generator is of use afterwards; so the paper prunes it alone
(section 4.2). Its reference 56 has a scheme of its own for training on when one of the two is sparse; whether table 5
was made with it the paper does not say, and here the session is repeated as it was. A row is an epoch of one of

    dense                 the first training session of both
    dense_twice           both given a second session, the fair rival of what follows
    pruned                the dense generator with 2 of every 4 weights removed by magnitude, not trained further
    sparse                the generator pruned, then the session repeated with the discriminator as it was
    sparse_discriminator  the discriminator pruned instead
    sparse_both           both pruned

or of `real`, training images in place of made ones: the least distance that so many images can have.

`frechet` is the Fréchet distance between made images and the test images by the features of a LeNet that was trained on
the training images, one LeNet for all runs on a data set. The paper's FID has the features of Inception, which is made
for photographs; so its numbers cannot be compared with these. After the last epoch it is measured with several seeds of
noise, before with one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import Count, refuse_unknown
from lib.companion.sweep.context import Context
from lib.companion.sweep.settings import each_seed
from lib.data import vision
from lib.models import dcgan, lenet
from lib.papers.two_four.experiments.variants import masked_copy
from lib.training.adversarial import AdversarialTraining, fit, make
from lib.training.examples import Examples
from lib.training.frechet import Moments, features, frechet, moments
from lib.training.seeds import seed_of
from lib.training.supervised import Training, train

NETWORKS: dict[str, Callable[[], tuple[dcgan.Generator, dcgan.Discriminator]]] = {
    "dcgan": dcgan.dcgan,
    "small_dcgan": dcgan.small_dcgan,
}
READERS: dict[str, Callable[[], nn.Module]] = {"mnist": lenet.lenet5, "digits": lenet.small_lenet}
LAYER = "fc2"  # the reader's last: what enters it are the features
SESSIONS = 5

#: variant: which networks are pruned before the second session
SECOND = {
    "dense_twice": (),
    "sparse": ("generator",),
    "sparse_discriminator": ("discriminator",),
    "sparse_both": ("generator", "discriminator"),
}

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "variant", "seed", "noise", "epoch")
COLUMNS = (*INDEX, "frechet", "generator_loss", "discriminator_loss", "sparsity", "discriminator_sparsity")


@dataclass(frozen=True)
class Task:
    """Describe one pair of networks on one data set.

    Attributes:
        seeds: how many, from 0.
        samples: images that are made to measure a distance; the test images count as many at most.
        noises: seeds of noise after the last epoch of a session.
        reader: how the LeNet is trained whose features are compared.
        training: one session of both networks.
    """

    data: str
    network: str
    seeds: Count
    samples: Count
    noises: Count
    reader: Training
    training: AdversarialTraining

    def __post_init__(self):
        refuse_unknown(self, data=READERS, network=NETWORKS)


@dataclass(frozen=True)
class Settings:
    """Each task is a pair of networks on a data set."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return each_seed(settings.tasks)


def units(configuration: dict) -> int:
    """Count the epochs of one configuration."""
    return SESSIONS * configuration["training"]["epochs"] + configuration["reader"]["epochs"]


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration."""
    game = Game(configuration, context)
    game.record_real()
    torch.manual_seed(seed_of(game.seed))
    pair = nn.ModuleDict(dict(zip(("generator", "discriminator"), NETWORKS[configuration["network"]](), strict=True)))
    dense = game.session("dense", pair.to(context.device), 0)
    game.record_end("pruned", pruned_copy(dense, ("generator",)), game.settings.epochs)
    for variant, which in SECOND.items():
        game.session(variant, pruned_copy(dense, which), 1)
    return game.rows


def pruned_copy(pair: nn.ModuleDict, which: tuple[str, ...]) -> nn.ModuleDict:
    """Copy generator and discriminator, with the masks of the 2:4 workflow on some of them."""
    return nn.ModuleDict(
        {
            name: masked_copy(network, pruners.two_four(network)) if name in which else copy.deepcopy(network)
            for name, network in pair.items()
        }
    )


class Game:
    """Hold the sessions of one seed, how their images are measured, and the rows so far."""

    def __init__(self, configuration: dict, context: Context):
        self.key = {name: configuration[name] for name in KEYS}
        self.seed, self.samples, self.noises = (configuration[name] for name in ("seed", "samples", "noises"))
        self.settings, self.context = AdversarialTraining(**configuration["training"]), context
        self.examples = Examples.of(vision.load(configuration["data"]), context.device)
        self.rows: list[dict] = []
        torch.manual_seed(seed_of(0))
        self.reader = READERS[configuration["data"]]()
        train(
            self.reader,
            self.examples,
            Training(**configuration["reader"]),
            seed=0,  # the same reader for every seed
            state=context.checkpoint("reader.pt"),
            on_progress=lambda: context.report_progress("the LeNet that compares"),
        )
        self.real = self.moments(self.examples.test_inputs[: self.samples])

    def moments(self, images: Tensor) -> Moments:
        """Compute mean and covariance of the features of uint8 images."""
        return moments(features(self.reader, self.examples.scaled(images), LAYER))

    def distance(self, generator: nn.Module, noise: int) -> float:
        """Measure how far made images are from the test images."""
        return frechet(self.moments(make(generator, self.samples, seed_of(noise))), self.real)

    def record(self, variant: str, epoch: int, noise: int, distance: float, **more: float) -> None:
        """Add a row."""
        self.rows.append({**self.key, "variant": variant, "epoch": epoch, "noise": noise, "frechet": distance, **more})

    def record_real(self) -> None:
        """Add a row for training images in place of made ones."""
        images = self.examples.train_inputs[: self.samples]
        self.record("real", 0, 0, frechet(self.moments(images), self.real))

    def record_end(self, variant: str, pair: nn.ModuleDict, epoch: int, **losses: float) -> None:
        """Add a row for each seed of noise."""
        for noise in range(self.noises):
            self.record(variant, epoch, noise, self.distance(pair["generator"], noise), **losses, **sparsities(pair))

    def session(self, variant: str, pair: nn.ModuleDict, number: int) -> nn.ModuleDict:
        """Train both networks themselves and return them; sessions of the same number see the same batches."""
        history = fit(
            pair["generator"],
            pair["discriminator"],
            self.examples.train_inputs,
            self.settings,
            self.seed,
            number,
            self.context.checkpoint(f"{variant}.pt"),
            identity={"variant": variant},
            measure=lambda generator: self.distance(generator, 0),
            on_progress=lambda: self.context.report_progress(variant),
        )
        before = number * self.settings.epochs
        for row in history:
            losses = {f"{name}_loss": row[name] for name in ("generator", "discriminator")}
            if row is history[-1]:
                self.record_end(variant, pair, before + row["epoch"], **losses)
            else:
                self.record(variant, before + row["epoch"], 0, row["measured"], **losses, **sparsities(pair))
        return pair


def sparsities(pair: nn.ModuleDict) -> dict[str, float]:
    """Measure the sparsity of generator and discriminator."""
    return {
        "sparsity": pruners.sparsity(pair["generator"]),
        "discriminator_sparsity": pruners.sparsity(pair["discriminator"]),
    }
