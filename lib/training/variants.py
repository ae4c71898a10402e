"""A network trained into variants of one another, all on the same batches; each gives one row an epoch."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor, nn

from lib import pruners
from lib.evaluation.sizes import flops
from lib.jobs import Job
from lib.training.examples import Examples
from lib.training.supervised import Training, train


@dataclass
class Variants:
    """The variants of one configuration.

    Attributes:
        key: the columns that tell this configuration's rows from those of others.
        rows: what has been recorded so far.
    """

    key: Mapping[str, object]
    examples: Examples
    settings: Training
    seed: int
    job: Job
    rows: list[dict] = field(default_factory=list)

    def record(self, variant: str, model: nn.Module, accuracies: Sequence[float], first: int, **more: object) -> None:
        """Rows of consecutive epochs; masks do not change within a session, so sizes are the same in all of them.

        Args:
            accuracies: on the test data, percent.
            first: the epoch of the first row, counted over all the training that the network has had.
            more: further columns.
        """
        sizes = {"sparsity": pruners.sparsity(model), "flops": flops(model, self.examples.shape)}
        for epoch, accuracy in enumerate(accuracies, first):
            self.rows.append({**self.key, "variant": variant, "epoch": epoch, "accuracy": accuracy, **sizes, **more})

    def session(self, variant: str, model: nn.Module, number: int, before: int, **more: object) -> nn.Module:
        """Train the model itself and return it.

        Args:
            number: which session of the seed this is; those of the same number see the same batches.
            before: epochs that the network has been trained already.
            more: further columns.
        """
        state = None if self.job.folder is None else self.job.folder / f"{variant}.pt"
        history = train(
            model, self.examples, self.settings, self.seed, number, state, advance=lambda: self.job.advance(variant)
        )
        self.record(variant, model, [row["accuracy"] for row in history], before + 1, **more)
        return model

    def again(self, variant: str, model: nn.Module, masks: Mapping[str, Tensor], **more: object) -> nn.Module:
        """Train a copy of the model a second time under these masks: same schedule, new optimizer; return the copy."""
        model = copy.deepcopy(model)
        pruners.attach(model, masks)
        return self.session(variant, model, number=1, before=self.settings.epochs, **more)
