"""Run table 6 of paper 2: the 2:4 workflow on networks that translate, of attention alone and an LSTM with attention.

The variants, on the same sentences and batches, a row every few steps:

    dense          the first training session
    dense_twice    the dense network given the second session too, the fair rival of sparse
    pruned         the dense weights with 2 of every 4 removed by magnitude, not trained further
    sparse         pruned, then the session repeated with the same settings
    *_int8         dense_twice and sparse, quantised after their last session so that no activation is clipped, as
                   section 5.4 has it ("max calibration")
    sparse_int8_entropy   the same with entropy calibration, which section 5.2 has for other networks

Pruned is every Linear layer but the head, which shares its weight with the embeddings. Subwords are found in the
training sentences of both languages. `bleu` is sacrebleu's on the test sentences, by beam search, given after the last
step of a session; `nats` are the mean surprise a token of the validation sentences. `step` counts all steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from lib import pruners
from lib.base import Count, refuse_unknown
from lib.companion.sweep.context import Context
from lib.companion.sweep.settings import each_seed
from lib.data import bitext
from lib.data.subwords import Subwords
from lib.kernels.int8 import threshold
from lib.models import translator
from lib.papers.two_four.experiments.two_phases import block_masks
from lib.papers.two_four.experiments.variants import masked_copy
from lib.pruners import calibration
from lib.training.seeds import seed_of
from lib.training.steps import StepTraining, fit
from lib.training.translation import Pairs, batches, bleu, smoothed, surprise, translate

NETWORKS: dict[str, Callable[[int, int], translator.Translator]] = {  # from the number of symbols and the window
    "transformer": translator.transformer,
    "recurrent": translator.recurrent,
    "small_transformer": translator.small_transformer,
    "small_recurrent": translator.small_recurrent,
}
CALIBRATED = 1024  # training pairs that INT8's scales are found on

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "variant", "seed", "step")
COLUMNS = (*INDEX, "bleu", "nats", "sparsity")


@dataclass(frozen=True)
class Task:
    """Describe one network on one set of pairs.

    Attributes:
        pieces: of words in the vocabulary of both languages together.
        longest: tokens of a sentence; longer ones are cut off, translations too.
        seeds: how many, from 0.
        training: one training session.
    """

    data: str
    network: str
    pieces: Count
    longest: Count
    seeds: Count
    training: StepTraining

    def __post_init__(self):
        refuse_unknown(self, data=bitext.names(), network=NETWORKS)


@dataclass(frozen=True)
class Settings:
    """Each task is a network on a set of pairs."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return each_seed(settings.tasks)


def units(configuration: dict) -> int:
    """Count the rows of the three sessions of one configuration."""
    return 3 * math.ceil(configuration["training"]["steps"] / configuration["training"]["every"])


def run(configuration: dict, context: Context) -> list[dict]:
    """Train all variants of one configuration."""
    sessions = Sessions(configuration, context)
    torch.manual_seed(seed_of(configuration["seed"]))
    model = NETWORKS[configuration["network"]](len(sessions.subwords), configuration["longest"] + 1)
    dense = sessions.session("dense", model.to(context.device), 0)
    twice = sessions.session("dense_twice", masked_copy(dense, {}), 1)
    pruned = masked_copy(dense, block_masks(dense))
    sessions.record("pruned", pruned, sessions.schedule.steps)
    sparse = sessions.session("sparse", pruned, 1)
    sessions.quantise("dense_twice", twice, {"_int8": "max"})
    sessions.quantise("sparse", sparse, {"_int8": "max", "_int8_entropy": "entropy"})
    return sessions.rows


class Sessions:
    """Hold the sentences of a configuration, and the rows of its training sessions so far."""

    def __init__(self, configuration: dict, context: Context):
        self.key = {name: configuration[name] for name in KEYS}
        self.schedule, self.longest = StepTraining(**configuration["training"]), configuration["longest"]
        self.context, self.rows = context, []
        sides = bitext.load(configuration["data"]).parts
        self.subwords = Subwords.train((line for side in sides["train"] for line in side), configuration["pieces"])
        self.pairs = {part: Pairs.of(sides[part], self.subwords, self.longest, context.device) for part in bitext.PARTS}
        self.references = sides["test"][1]

    def bleu(self, model: nn.Module) -> float:
        """Measure BLEU of a model's translations of the test sentences."""
        return bleu(translate(model, self.pairs["test"].source, self.subwords, self.longest), self.references)

    def record(self, variant: str, model: nn.Module, step: int, sized: nn.Module | None = None) -> None:
        """Add the row of a model that is trained; the sparsity is that of `sized`, from which one in INT8 was made."""
        found = {"bleu": self.bleu(model), "nats": surprise(model, self.pairs["valid"])}
        row = {**self.key, "variant": variant, "step": step}
        self.rows.append(row | found | {"sparsity": pruners.sparsity(sized or model)})

    def session(self, variant: str, model: nn.Module, number: int) -> nn.Module:
        """Train the model itself and return it; sessions of the same number see the same batches."""
        history = fit(
            model,
            batches(self.pairs["train"], self.schedule.batch),
            self.schedule,
            self.key["seed"],
            number,
            self.context.checkpoint(f"{variant}.pt"),
            identity={"variant": variant},
            measure=lambda model: surprise(model, self.pairs["valid"]),
            loss=smoothed,
            on_progress=lambda: self.context.report_progress(variant),
        )
        before, sparsity = number * self.schedule.steps, pruners.sparsity(model)
        for row in history[:-1]:
            found = {"step": before + row["step"], "nats": row["measured"], "sparsity": sparsity}
            self.rows.append({**self.key, "variant": variant, **found})
        self.record(variant, model, before + history[-1]["step"])
        return model

    def quantise(self, variant: str, model: nn.Module, calibrations: dict[str, str]) -> None:
        """Add rows of the model in INT8, one for each ending of the variant's name: how activations are calibrated."""
        train = self.pairs["train"]
        some = Pairs(train.source[:CALIBRATED], train.target[:CALIBRATED])
        inputs = (inputs for inputs, _ in some.split())
        histograms = calibration.observe(model, inputs, select="!head")  # the head's weight is the embedding's
        for ending, method in calibrations.items():
            amax = {layer: threshold(histogram, method) for layer, histogram in histograms.items()}
            self.record(variant + ending, calibration.quantised(model, amax), 2 * self.schedule.steps, sized=model)
