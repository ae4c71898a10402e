"""One loop for networks that read text, whatever they say of it: AdamW, warm-up, cosine; stop it and go on anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.training.checkpoints import Session
from lib.training.supervised import seed_of

#: A generator to (inputs, targets): tokens [N, T], and classes [N, T] (the next token) or [N].
Draw = Callable[[torch.Generator], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Schedule:
    """Hold the settings of one training session.

    Attributes:
        steps: batches of the session.
        every: steps between two rows, and between two chances to stop.
        batch: examples a step.
        learning_rate: peak, reached after the warm-up and lowered to zero along a cosine.
        warmup: share of the steps with linear warm-up.
        weight_decay: of AdamW, on weights (matrices), not on biases and norms.
        clip: longest gradient; a longer one is shortened to it.
    """

    steps: int
    every: int
    batch: int
    learning_rate: float
    warmup: float = 0.05
    weight_decay: float = 0.1
    clip: float = 1.0

    def __post_init__(self):
        if self.steps < 1 or self.batch < 1 or not 1 <= self.every <= self.steps:
            given = f"steps={self.steps}, batch={self.batch}, every={self.every}"
            raise BadInput(f"training: {given}: expected 1 or more, and every at most steps")
        if not (0 < self.learning_rate < math.inf and 0 <= self.warmup < 1 and self.clip > 0):
            given = f"learning_rate={self.learning_rate}, warmup={self.warmup}, clip={self.clip}"
            raise BadInput(f"training: {given}: expected a rate above 0, a warm-up in [0, 1), a clip above 0")


def fit(
    model: nn.Module,
    draw: Draw,
    schedule: Schedule,
    seed: int,
    session: int = 0,
    state: Path | None = None,
    identity: Mapping[str, object] | None = None,
    measure: Callable[[nn.Module], float] = lambda model: math.nan,
    save_seconds: float = 20.0,
    on_progress: Callable[[], None] = lambda: None,
) -> list[dict]:
    """Train the model in place on its cross-entropy; it is left in evaluation mode.

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
        save_seconds: save no more often; the last row always is saved, and so is one at which `on_progress` raises.
        on_progress: called after each row; may raise to stop.

    Returns:
        One row every `every` steps and after the last: step, loss (mean over the steps since the row before, in
        nats), measured.
    """
    optimizer = torch.optim.AdamW(groups(model, schedule.weight_decay), schedule.learning_rate, fused=True)
    session_of = {**asdict(schedule), "seed": seed, "session": session, **(identity or {})}
    keeper = Session(state, session_of, model, optimizer, save_seconds)
    rows = keeper.load()
    for _ in rows:
        on_progress()
    done = rows[-1]["step"] if rows else 0
    while done < schedule.steps:
        until = min(done + schedule.every, schedule.steps)
        loss = _steps(model, optimizer, draw, schedule, range(done, until), seed_of(seed, session, done))
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} after {until} steps: training diverged; lower the rate")
        done = until
        model.eval()
        rows.append({"step": done, "loss": loss, "measured": measure(model)})
        keeper.save_when_due(rows, on_progress, last=done == schedule.steps)
    model.eval()
    return rows


def groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Sort a model's parameters for AdamW: matrices decay, vectors (biases, norms) do not."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() <= 1], "weight_decay": 0.0},
    ]


def learning_rate(schedule: Schedule, step: int) -> float:
    """Compute the rate at a step (from 0): linear warm-up times half a cosine."""
    warm = min(1.0, (step + 1) / max(1.0, schedule.warmup * schedule.steps))
    return schedule.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * step / schedule.steps))


def windows(text: Tensor, window: int, batch: int) -> Draw:
    """Draw batches for a language model: as many stretches of the text as `batch`, begun anywhere, [N, window].

    The targets are the same stretches one token later.
    """
    if len(text) <= window:
        raise BadInput(f"a text of {len(text)} tokens is too short for a window of {window}")
    along = torch.arange(window + 1, device=text.device)

    def draw(generator: torch.Generator) -> tuple[Tensor, Tensor]:
        begins = torch.randint(len(text) - window, (batch, 1), generator=generator).to(text.device)
        stretch = text[begins + along]
        return stretch[:, :-1], stretch[:, 1:]

    return draw


def bits(model: nn.Module, text: Tensor, window: int, batch: int = 64) -> float:
    """Measure a language model in bits a character: the mean of -log2 of the share it gave to what came next.

    The text is read in windows that do not overlap, so a character is foreseen from half a window on average; each but
    the first is foreseen once.
    """
    total = torch.zeros((), dtype=torch.float64)
    count = len(text) - 1
    full = count // window * window
    inputs, targets = (tokens.view(-1, window).split(batch) for tokens in (text[:full], text[1 : full + 1]))
    parts = [*zip(inputs, targets, strict=True)]
    if full < count:
        parts.append((text[None, full:-1], text[None, full + 1 :]))
    model.eval()
    with torch.no_grad():
        for inputs, targets in parts:
            logits = model(inputs)
            total += F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum").double().cpu()
    return float(total) / count / math.log(2)


def share_right(model: nn.Module, tokens: Tensor, labels: Tensor, batch: int = 64) -> float:
    """Measure the share of the passages whose largest logit is their label, in percent."""
    model.eval()
    with torch.no_grad():
        right = sum(
            int((model(inputs).argmax(1) == own).sum())
            for inputs, own in zip(tokens.split(batch), labels.split(batch), strict=True)
        )
    return 100 * right / len(labels)


def _steps(
    model: nn.Module, optimizer: torch.optim.Optimizer, draw: Draw, schedule: Schedule, steps: range, seed: int
) -> float:
    """Take some steps and return the mean loss."""
    model.train()
    torch.manual_seed(seed)  # dropout, where a model has it
    generator = torch.Generator().manual_seed(seed)
    total = 0.0
    for step in steps:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(schedule, step)
        inputs, targets = draw(generator)
        loss = F.cross_entropy(model(inputs).flatten(0, -2), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), schedule.clip)
        optimizer.step()
        total += loss.item()
    return total / len(steps)
