"""Run the 2:4 workflow on a language model, and ask when to prune in training of two phases (paper 2, table 7, figure
7).

Phase 1 learns to foresee the next character of a text without its speakers' names; its variants, a row every few steps:

    dense         the first training session
    dense_twice   the dense network given the second session too, the fair rival of sparse
    pruned        the dense weights with 2 of every 4 removed by magnitude in the blocks, not trained further
    sparse        pruned, then the session repeated

Phase 2 learns from a few labelled passages of the same text which vowel comes next
(`lib.papers.two_four.experiments.two_phases` has its variants), with as many labels as the task lists.

`bits` are bits a character of the last tenth of the text, given after the last step of a session; `valid_bits` those of
the tenth before it. `accuracy` is of the test passages, in percent. `step` counts all steps of the phase.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from lib import pruners
from lib.base import BadInput, Count, refuse_twice, refuse_unknown
from lib.companion.sweep.context import Context
from lib.companion.sweep.settings import each_seed
from lib.data import text
from lib.models import transformer
from lib.papers.two_four.experiments import two_phases
from lib.papers.two_four.experiments.two_phases import FineTuning, block_masks
from lib.papers.two_four.experiments.variants import masked_copy
from lib.training.language import bits, windows
from lib.training.seeds import seed_of
from lib.training.steps import StepTraining, fit

NETWORKS: dict[str, Callable[[int, int], transformer.LanguageModel]] = {  # from the number of symbols and the window
    "decoder": transformer.decoder,
    "small_decoder": transformer.small_decoder,
}

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "phase", "variant", "labels", "draw", "seed", "step")
COLUMNS = (*INDEX, "bits", "valid_bits", "accuracy", "sparsity")


@dataclass(frozen=True)
class Amount:
    """Say how many labels phase 2 has (None: all there are), and how many draws of so many are averaged in a seed."""

    labels: int | None
    draws: int = 1

    def __post_init__(self):
        if (self.labels is not None and self.labels < 1) or self.draws < 1:
            raise BadInput(f"labels={self.labels}, draws={self.draws}: expected 1 or more (labels: null for all)")


@dataclass(frozen=True)
class Task:
    """Describe one network on one text.

    Attributes:
        window: characters that the network reads at a time.
        each: passages of each vowel that phase 2 learns from with all labels, at most.
        seeds: how many, from 0.
        first: one training session of phase 1.
        second: one training session of phase 2.
    """

    data: str
    network: str
    window: Count
    each: Count
    seeds: Count
    first: StepTraining
    second: FineTuning
    amounts: tuple[Amount, ...]

    def __post_init__(self):
        refuse_unknown(self, data=text.names(), network=NETWORKS)
        refuse_twice(amounts=[amount.labels for amount in self.amounts])


@dataclass(frozen=True)
class Settings:
    """Each task is a network on a text."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return each_seed(settings.tasks)


def units(configuration: dict) -> int:
    """Count the rows of phase 1 and the epochs of phase 2 in one configuration."""
    first, draws = configuration["first"], sum(amount["draws"] for amount in configuration["amounts"])
    return 3 * math.ceil(first["steps"] / first["every"]) + draws * two_phases.units(configuration["second"])


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration, phase 1 first."""
    play = text.load(configuration["data"])
    first = FirstPhase(configuration, play, context)
    seed, window = configuration["seed"], configuration["window"]
    torch.manual_seed(seed_of(seed))
    dense = first.session("dense", NETWORKS[configuration["network"]](len(play.symbols), window), 0)
    twice = first.session("dense_twice", masked_copy(dense, {}), 1)
    pruned = masked_copy(dense, block_masks(dense))
    first.record("pruned", pruned, first.schedule.steps, bits=first.bits(pruned, "test"))
    models = {"dense": dense, "dense_twice": twice, "sparse": first.session("sparse", pruned, 1)}

    passages = text.passages(play, window, configuration["each"])
    second = two_phases.SecondPhase(passages, FineTuning(**configuration["second"]), seed, context)
    for amount in configuration["amounts"]:
        for draw in range(amount["draws"]):
            first.rows += [{**first.key, "phase": 2, **row} for row in second.compare(models, amount["labels"], draw)]
    return first.rows


class FirstPhase:
    """Hold the sessions of a language model on the training text, and the rows of them so far."""

    def __init__(self, configuration: dict, play: text.Play, context: Context):
        self.key = {name: configuration[name] for name in KEYS}
        self.schedule, self.window = StepTraining(**configuration["first"]), configuration["window"]
        self.context, self.rows = context, []
        language = text.language(play)
        self.parts = {part: torch.from_numpy(getattr(language, part)).to(context.device) for part in text.PARTS}

    def bits(self, model: nn.Module, part: str) -> float:
        """Measure bits a character of one part of the text."""
        return bits(model, self.parts[part], self.window)

    def record(self, variant: str, model: nn.Module, step: int, **found: float) -> None:
        """Add a row; there are no labels in phase 1."""
        row = {**self.key, "phase": 1, "variant": variant, "labels": 0, "draw": 0, "step": step}
        self.rows.append(row | found | {"sparsity": pruners.sparsity(model)})

    def session(self, variant: str, model: nn.Module, number: int) -> nn.Module:
        """Train the model itself and return it; sessions of the same number see the same batches."""
        history = fit(
            model.to(self.context.device),
            windows(self.parts["train"], self.window, self.schedule.batch),
            self.schedule,
            self.key["seed"],
            number,
            self.context.checkpoint(f"first_{variant}.pt"),
            identity={"variant": variant},
            measure=lambda model: self.bits(model, "valid"),
            on_progress=lambda: self.context.report_progress(f"phase 1, {variant}"),
        )
        before = number * self.schedule.steps
        for row in history[:-1]:
            self.record(variant, model, before + row["step"], valid_bits=row["measured"])
        last = history[-1]
        self.record(variant, model, before + last["step"], valid_bits=last["measured"], bits=self.bits(model, "test"))
        return model
