"""Train phase 2 after a language model on few labelled passages, pruned before it or after it (paper 2, section 4.3).

A passage breaks off before a vowel, and its label says which one it is (`lib.data.text.passages`).

Every variant begins with a model of phase 1 and a new head, the same head and the same batches for all:

    dense            phase 1 and phase 2, each once, without pruning
    sparse_first     pruned after phase 1; phase 1 is repeated, then comes phase 2 (figure 7, what the paper does)
    dense_first      phase 1 twice, then phase 2: the rival of sparse_first, trained as long
    pruned_second    phase 1, phase 2, then pruned and not trained further
    sparse_second    pruned after phase 2; only phase 2 is repeated (figure 8, which the paper finds too little here)
    dense_second     phase 1 once, phase 2 twice: the rival of sparse_second, trained as long

and with all labels dense_first_int8 and sparse_first_int8, quantised after their last session (table 7's last columns).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import BadInput, naming, refuse_uncounted
from lib.companion.sweep.context import Context
from lib.data.text import VOWELS, Passages
from lib.models.transformer import LEFT_DENSE, LanguageModel, TextClassifier
from lib.papers.two_four.experiments.variants import masked_copy
from lib.pruners import calibration
from lib.training import checkpoints
from lib.training.language import share_right
from lib.training.seeds import seed_of
from lib.training.steps import Draw, StepTraining, fit

SESSIONS = 5  # of phase 2 for one draw of labels
CALIBRATED, CALIBRATION_BATCH = 1024, 256  # passages that INT8's scales are found on, and how many at once


@dataclass(frozen=True)
class FineTuning:
    """Hold the settings of one training session of phase 2; `steps.StepTraining` says what the others mean.

    Attributes:
        epochs: so many examples are drawn for each label there is; fewer labels are fewer steps.
    """

    epochs: int
    batch: int
    learning_rate: float
    warmup: float = 0.1
    weight_decay: float = 0.1
    clip: float = 1.0
    precision: str = "float32"

    def __post_init__(self):
        with naming("fine-tuning"):
            refuse_uncounted(epochs=self.epochs, batch=self.batch)
        self.schedule(1)  # checks the others

    def schedule(self, labels: int) -> StepTraining:
        """Lay out the session for so many labels."""
        settings = asdict(self)
        epoch = math.ceil(labels / self.batch)
        return StepTraining(steps=settings.pop("epochs") * epoch, every=epoch, **settings)


def units(settings: dict) -> int:
    """Count the epochs of training for one draw of labels."""
    return SESSIONS * settings["epochs"]


def block_names(model: nn.Module) -> list[str]:
    """Name the weights that the 2:4 workflow prunes in a transformer: those of its blocks, no embedding or head
    (section 5.4).
    """
    return [rule.name for rule in pruners.layer_rule(model, leave=LEFT_DENSE) if rule.pruned]


def block_masks(model: nn.Module) -> dict[str, Tensor]:
    """Choose the masks of the 2:4 workflow in a transformer's blocks."""
    return pruners.n_of_m(pruners.magnitude(model).only(block_names(model)), 2, 4)


def kept_rows(context: Context, name: str, units: int, compare: Callable[[], list[dict]]) -> list[dict]:
    """Compare variants in phase 2, or read the rows that a run which was stopped has kept.

    Rows are kept once all of them are there; the states of the sessions they come from, `second_*.pt`, then go.

    Args:
        name: the comparison's own.
        units: how many units of work it is.
        compare: trains the variants and returns their rows.
    """
    path = context.checkpoint(f"{name}.rows")
    if path is not None and (kept := checkpoints.read(path)) is not None:
        for _ in range(units):
            context.report_progress("phase 2")
        return kept
    rows = compare()
    if path is not None:
        checkpoints.write(checkpoints.python(rows), path)
        for state in path.parent.glob("second_*.pt"):
            state.unlink()
    return rows


class SecondPhase:
    """Hold the passages of one seed, and the comparison for one draw of labels after another."""

    def __init__(self, passages: Passages, settings: FineTuning, seed: int, context: Context):
        put = lambda arrays: {part: torch.from_numpy(array).to(context.device) for part, array in arrays.items()}  # noqa: E731
        self.tokens, self.labels = put(passages.tokens), put(passages.labels)
        self.settings, self.seed, self.context = settings, seed, context

    def compare(self, models: Mapping[str, LanguageModel], labels: int | None, draw: int) -> list[dict]:
        """Train and test all variants; a row has variant, labels, draw, step (of phase 2), accuracy, sparsity.

        A run that was stopped goes on with the next draw, see `kept_rows`.

        Args:
            models: of phase 1: dense, dense_twice and sparse; they are left as they are.
            labels: how many, drawn without repetition; None: all.

        Raises:
            BadInput: more labels than there are passages.
        """
        there = len(self.labels["train"])
        if labels is not None and labels > there:
            raise BadInput(f"labels={labels}: there are {there} passages to learn from; null takes them all")
        return kept_rows(
            self.context,
            f"second_{labels}_{draw}",
            units(asdict(self.settings)),
            lambda: Draws(self, labels or there, draw).variants(models, quantise=labels is None),
        )


class Draws:
    """Hold one draw of labels: a few of the passages, the batches of them, and the rows so far."""

    def __init__(self, phase: SecondPhase, labels: int, draw: int):
        self.phase, self.draw = phase, draw
        order = torch.randperm(len(phase.labels["train"]), generator=self._generator(2))
        chosen = order[:labels].to(phase.context.device)
        self.tokens, self.labels = phase.tokens["train"][chosen], phase.labels["train"][chosen]
        self.schedule = phase.settings.schedule(labels)
        self.rows: list[dict] = []

    def variants(self, models: Mapping[str, LanguageModel], quantise: bool) -> list[dict]:
        """Train and record every variant."""
        dense = self._session("dense", self._classifier(models["dense"]), 0)
        self._session("dense_second", masked_copy(dense, {}), 1)
        pruned = masked_copy(dense, block_masks(dense))
        self._record("pruned_second", pruned, self.schedule.steps)
        self._session("sparse_second", pruned, 1)
        for variant, first in (("dense_first", "dense_twice"), ("sparse_first", "sparse")):
            model = self._session(variant, self._classifier(models[first]), 0)
            if quantise:
                batches = self.tokens[:CALIBRATED].split(CALIBRATION_BATCH)
                self._record(f"{variant}_int8", calibration.simulated(model, batches), self.schedule.steps, model)
        return self.rows

    def _generator(self, purpose: int) -> torch.Generator:
        return torch.Generator().manual_seed(seed_of(self.phase.seed, purpose, self.draw))

    def _classifier(self, model: LanguageModel) -> TextClassifier:
        torch.manual_seed(seed_of(self.phase.seed, 3, self.draw))
        return TextClassifier(model, len(VOWELS)).to(self.phase.context.device)

    def _batches(self) -> Draw:
        def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
            chosen = torch.randint(len(self.labels), (self.schedule.batch,), generator=generator)
            chosen = chosen.to(self.labels.device)
            return self.tokens[chosen], self.labels[chosen]

        return draw

    def _session(self, variant: str, model: nn.Module, number: int) -> nn.Module:
        """Train the model itself, record it and return it; sessions of the same number see the same batches."""
        context = self.phase.context
        fit(
            model,
            self._batches(),
            self.schedule,
            seed_of(self.phase.seed, 4, self.draw),
            number,
            context.checkpoint(f"second_{len(self.labels)}_{self.draw}_{variant}.pt"),
            identity={"variant": variant, "labels": len(self.labels), "draw": self.draw},
            on_progress=lambda: context.report_progress(f"phase 2, {len(self.labels)} labels, {variant}"),
        )
        self._record(variant, model, (number + 1) * self.schedule.steps)
        return model

    def _record(self, variant: str, model: nn.Module, step: int, sized: nn.Module | None = None) -> None:
        """Add a row; the sparsity is that of `sized`, for a quantised model the one it was made of."""
        row = {"variant": variant, "labels": len(self.labels), "draw": self.draw, "step": step}
        row["accuracy"] = share_right(model, self.phase.tokens["test"], self.phase.labels["test"])
        self.rows.append(row | {"sparsity": pruners.sparsity(sized or model)})
