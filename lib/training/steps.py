"""Train networks that learn batch by batch, whatever they learn: AdamW, warm-up, cosine; stop it and go on."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput, naming, refuse_outside, refuse_uncounted
from lib.kernels.sparse_linear import SparseLinear
from lib.pruners.inputs import call
from lib.training.checkpoints import Session
from lib.training.precision import autocast, check
from lib.training.seeds import seed_of
from lib.training.supervised import refuse_frozen

#: A generator to one batch: what the network is called with (`pruners.inputs`), and what its answer is compared with.
Draw = Callable[[torch.Generator], tuple[Any, Any]]
Criterion = Callable[[Any, Any], Tensor]


def entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Compute the mean cross-entropy, in nats, of logits [..., C] and classes [...]."""
    return F.cross_entropy(logits.float().flatten(0, -2), classes.flatten())


@dataclass(frozen=True)
class StepTraining:
    """Hold the settings of one training session.

    Attributes:
        steps: batches of the session.
        every: steps between two rows, and between two chances to stop.
        batch: examples a step.
        learning_rate: the rate that half a cosine lowers to zero over all steps, from the first on.
        warmup: share of the steps in which the rate is multiplied besides by a factor that rises linearly to 1, see
            the function `learning_rate`; so with a warm-up no step quite has the rate that was given.
        weight_decay: of AdamW, on weights (matrices), not on biases and norms.
        clip: longest gradient; a longer one is shortened to it.
        precision: "float32", or "bfloat16" for autocast.
    """

    steps: int
    every: int
    batch: int
    learning_rate: float
    warmup: float = 0.05
    weight_decay: float = 0.1
    clip: float = 1.0
    precision: str = "float32"

    def __post_init__(self):
        with naming("training"):
            refuse_uncounted(steps=self.steps, batch=self.batch, every=self.every)
        if self.every > self.steps:
            raise BadInput(f"training: steps={self.steps}, every={self.every}: expected every to be at most steps")
        with naming("training"):
            refuse_outside("(0, inf)", learning_rate=self.learning_rate)
            refuse_outside("[0, 1)", warmup=self.warmup)
            refuse_outside("(0, inf]", clip=self.clip)
            refuse_outside("[0, inf)", weight_decay=self.weight_decay)
        check(self.precision, "training")


def fit(
    model: nn.Module,
    draw: Draw,
    schedule: StepTraining,
    seed: int,
    session: int = 0,
    state: Path | None = None,
    identity: Mapping[str, object] | None = None,
    measure: Callable[[nn.Module], float] = lambda model: math.nan,
    loss: Criterion = entropy,
    on_progress: Callable[[], None] = lambda: None,
) -> list[dict]:
    """Train the model in place; it is left in evaluation mode.

    All randomness between two rows (batches, dropout) is drawn from (seed, session, the steps before), so two models
    see the same batches, and a session that was stopped goes on with the same numbers (bit for bit on a CPU with the
    same number of threads).

    Args:
        draw: one batch by a generator.
        seed: of the run.
        session: which of the run's training sessions this is; each has batches of its own.
        state: where to keep the session. When the file is there the session goes on from it.
        identity: what else tells this session from others that may be kept in that file.
        measure: what is asked of the model at each row, such as bits a character.
        loss: of what the model answers to a batch, and the batch's targets.
        on_progress: called after each row; may raise to stop, and what is done is saved then.

    Returns:
        One row every `every` steps and after the last: step, loss (mean over the steps since the row before, in
        nats), measured.

    Raises:
        BadInput: a network that is wholly frozen, or a file of another session.
        FloatingPointError: the loss is not finite.
    """
    refuse_frozen(model)
    optimizer = torch.optim.AdamW(groups(model, schedule.weight_decay), schedule.learning_rate, fused=True)
    session_of = {**asdict(schedule), "seed": seed, "session": session, **(identity or {})}
    keeper = Session(state, session_of, model, optimizer)
    rows = keeper.load(on_progress)
    done = rows[-1]["step"] if rows else 0
    while done < schedule.steps:
        until = min(done + schedule.every, schedule.steps)
        mean = _steps(model, optimizer, draw, loss, schedule, range(done, until), seed_of(seed, session, done))
        if not math.isfinite(mean):
            raise FloatingPointError(f"the loss is {mean} after {until} steps: training diverged; lower the rate")
        done = until
        model.eval()
        rows.append({"step": done, "loss": mean, "measured": measure(model)})
        keeper.save_when_due(rows, on_progress, last=done == schedule.steps)
    model.eval()
    return rows


def groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Sort a model's parameters for AdamW: matrices decay, vectors (biases, norms) do not.

    The values of a `SparseLinear` are a list, and what is left of a matrix.
    """
    parameters = list(model.parameters())
    listed = {id(module.values) for module in model.modules() if isinstance(module, SparseLinear)}
    decays = [parameter.dim() > 1 or id(parameter) in listed for parameter in parameters]
    return [
        {"params": [p for p, one in zip(parameters, decays, strict=True) if one], "weight_decay": weight_decay},
        {"params": [p for p, one in zip(parameters, decays, strict=True) if not one], "weight_decay": 0.0},
    ]


def learning_rate(schedule: StepTraining, step: int) -> float:
    """Compute the rate at a step (from 0): linear warm-up times half a cosine."""
    warm = min(1.0, (step + 1) / max(1.0, schedule.warmup * schedule.steps))
    return schedule.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / schedule.steps))


def _steps(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    draw: Draw,
    loss: Criterion,
    schedule: StepTraining,
    steps: range,
    seed: int,
) -> float:
    """Take some steps and return the mean loss."""
    model.train()
    torch.manual_seed(seed)  # dropout, where a model has it
    generator = torch.Generator().manual_seed(seed)
    device = next(model.parameters()).device
    total = 0.0
    for step in steps:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(schedule, step)
        inputs, targets = draw(generator)
        with autocast(device, schedule.precision):
            found = loss(call(model, inputs), targets)
        optimizer.zero_grad(set_to_none=True)
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
        optimizer.step()
        total += found.item()
    return total / len(steps)
