"""Train a network into variants of one another, all on the same batches; each gives one row an epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.optim import Optimizer

from lib import pruners
from lib.companion.sweep.context import Context
from lib.data import vision
from lib.training.callbacks import Callback
from lib.training.examples import Examples
from lib.training.supervised import Training, accuracy, train


@dataclass
class Variants:
    """Train the variants of one configuration.

    Attributes:
        key: the columns that tell this configuration's rows from those of others.
        flops: what a model computes for one example, from the model and the example's shape (`pruners.sizes.flops`).
        rows: what has been recorded so far.
    """

    key: Mapping[str, object]
    examples: Examples
    settings: Training
    seed: int
    context: Context
    flops: Callable[[nn.Module, Sequence[int]], int]
    rows: list[dict] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        configuration: Mapping,
        key: Iterable[str],
        context: Context,
        flops: Callable[[nn.Module, Sequence[int]], int],
    ) -> Variants:
        """Make those of a configuration with data (a name that `vision.load` knows), seed and training.

        Args:
            key: names of the configuration's values that its rows have as columns.
        """
        examples = Examples.of(vision.load(configuration["data"]), context.device)
        columns = {name: configuration[name] for name in key}
        return cls(columns, examples, Training(**configuration["training"]), configuration["seed"], context, flops)

    def record(self, variant: str, model: nn.Module, accuracies: Sequence[float], first: int, **more: object) -> None:
        """Add rows of consecutive epochs; masks do not change within a session, so sizes are the same in all of them.

        Args:
            accuracies: on the test data, percent.
            first: the epoch of the first row, counted over all the training that the network has had.
            more: further columns.
        """
        sizes = {"sparsity": pruners.sparsity(model), "flops": self.flops(model, self.examples.shape)}
        for epoch, percent in enumerate(accuracies, first):
            self.rows.append({**self.key, "variant": variant, "epoch": epoch, "accuracy": percent, **sizes, **more})

    def session(
        self,
        variant: str,
        model: nn.Module,
        number: int,
        before: int,
        callback: Callable[[Optimizer], Callback] | None = None,
        **more: object,
    ) -> nn.Module:
        """Train the model itself and return it.

        Args:
            number: which session of the seed this is; those of the same number see the same batches.
            before: epochs that the network has been trained already.
            callback: as `train` takes it.
            more: further columns.
        """
        state = self.context.checkpoint(f"{variant}.pt")
        history = train(
            model,
            self.examples,
            self.settings,
            self.seed,
            number,
            state,
            on_progress=lambda: self.context.report_progress(variant),
            callback=callback,
        )
        self.record(variant, model, [row["accuracy"] for row in history], before + 1, **more)
        return model

    def prune(
        self,
        model: nn.Module,
        score: str = "magnitude",
        pattern: str = "two_four",
        loss: object = None,
        seed: int | None = None,
    ) -> dict[str, Tensor]:
        """Make the masks of the workflow: once, after the first session, half of the layers that the rule names.

        Args:
            score, pattern: names in `pruners.SCORES` and `pruners.PATTERNS`.
            loss, seed: for scores that ask for them.

        Returns:
            {parameter name: mask}; the model itself is not pruned.
        """
        entries = pruners.find(pruners.SCORES, "score", score), pruners.find(pruners.PATTERNS, "pattern", pattern)
        schedule = pruners.Once(0.5, at=self.settings.epochs)
        pruner = pruners.Pruner(*entries, schedule, layers=pruners.eligible(model))
        return pruner.step(copy.deepcopy(model), self.settings.epochs, loss=loss, seed=seed)

    def again(self, variant: str, model: nn.Module, masks: Mapping[str, Tensor], **more: object) -> nn.Module:
        """Train a copy of the model a second time under these masks: same schedule, new optimizer; return the copy."""
        return self.session(variant, masked_copy(model, masks), number=1, before=self.settings.epochs, **more)

    def pruned(self, variant: str, model: nn.Module, masks: Mapping[str, Tensor], **more: object) -> None:
        """Record a copy of the model under these masks as it is after the first session, not trained further."""
        model = masked_copy(model, masks)
        found = accuracy(model, self.examples, self.settings.precision)
        self.record(variant, model, [found], self.settings.epochs, **more)


def masked_copy(model: nn.Module, masks: Mapping[str, Tensor]) -> nn.Module:
    """Make a copy of the model with these masks attached."""
    model = copy.deepcopy(model)
    pruners.attach(model, masks)
    return model


def before_precision(configuration: Mapping, session: str) -> list[dict]:
    """Return the form of a configuration from when a session could not choose its precision: it was float32.

    Args:
        session: which of its settings are that session's.
    """
    settings = dict(configuration.get(session, {}))
    return [{**configuration, session: settings}] if settings.pop("precision", None) == "float32" else []
