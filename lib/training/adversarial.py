"""Train two networks that play against each other: a generator and a discriminator (Goodfellow et al. 2014).

Settings and order of steps are those of DCGAN (Radford et al. 2016) as its reference code has them: Adam for both; the
discriminator learns from a batch of real and a batch of made images, then the generator from the same made ones, by
the loss that asks the discriminator to take them for real.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput, Range, naming, refuse_outside, refuse_uncounted
from lib.models.dcgan import Discriminator, Generator, noise
from lib.training.checkpoints import Session, Together, checksum
from lib.training.evaluation import measuring
from lib.training.precision import autocast, check
from lib.training.seeds import seed_of
from lib.training.supervised import channels_last, refuse_frozen


@dataclass(frozen=True)
class AdversarialTraining:
    """Hold the settings of one training session.

    Attributes:
        epochs: passes over the training images.
        batch: images a step; what is left over at the end of an epoch is not seen in it.
        learning_rate: of Adam, the same throughout (the reference code has no schedule).
        beta1: how much of the mean gradient Adam keeps from step to step; 0.5 is DCGAN's.
        precision: "float32", or "bfloat16" for autocast; losses are computed in float32.
    """

    epochs: int
    batch: int
    learning_rate: float = 2e-4
    beta1: Annotated[float, Range(0, 1)] = 0.5
    precision: str = "float32"

    def __post_init__(self):
        with naming("training"):
            refuse_uncounted(epochs=self.epochs)
            refuse_uncounted(2, batch=self.batch)
            refuse_outside("(0, inf)", learning_rate=self.learning_rate)
            refuse_outside("[0, 1)", beta1=self.beta1)
        check(self.precision, "training")


def fit(
    generator: Generator,
    discriminator: Discriminator,
    images: Tensor,
    settings: AdversarialTraining,
    seed: int,
    session: int = 0,
    state: Path | None = None,
    identity: Mapping[str, object] | None = None,
    measure: Callable[[Generator], float] = lambda generator: math.nan,
    on_progress: Callable[[], None] = lambda: None,
) -> list[dict]:
    """Train both networks in place; they are left in evaluation mode.

    All randomness of an epoch (order, noise) is drawn from (seed, session, epoch), so two pairs of networks see the
    same batches, and a session that was stopped goes on with the same numbers.

    Args:
        images: uint8 [N, 1, H, W]; the networks see them from -1 to 1.
        measure: what is asked of the generator after each epoch, such as how far its images are from real ones.
        seed, session, state, identity, on_progress: as in `lib.training.steps.fit`.

    Returns:
        One row an epoch: epoch (from 1), generator and discriminator (mean losses in nats), measured.

    Raises:
        BadInput: fewer images than a batch has, a network that is wholly frozen, or a file of another session.
        FloatingPointError: a loss is not finite.
    """
    if len(images) < settings.batch:
        raise BadInput(f"training: batch={settings.batch}, but there are only {len(images)} images")
    both = nn.ModuleDict({"generator": generator, "discriminator": discriminator})
    for name, one in both.items():
        refuse_frozen(one, name)
    if settings.precision == "bfloat16":  # a layout in which such convolutions run faster
        channels_last(both)
    betas = (settings.beta1, 0.999)
    optimizers = {
        name: torch.optim.Adam(network.parameters(), settings.learning_rate, betas, fused=True)
        for name, network in both.items()
    }
    session_of = {**asdict(settings), "seed": seed, "session": session, "data": checksum(images), **(identity or {})}
    keeper = Session(state, session_of, both, Together(**optimizers))
    rows = keeper.load(on_progress)
    for epoch in range(len(rows), settings.epochs):
        made, judged = _epoch(both, optimizers, images, settings, seed_of(seed, session, epoch))
        if not (math.isfinite(made) and math.isfinite(judged)):
            raise FloatingPointError(f"the losses are {made} and {judged} in epoch {epoch + 1}: training diverged")
        both.eval()
        losses = {"generator": made, "discriminator": judged}
        rows.append({"epoch": epoch + 1, **losses, "measured": measure(generator)})
        keeper.save_when_due(rows, on_progress, last=epoch + 1 == settings.epochs)
    both.eval()
    return rows


def _epoch(
    both: nn.ModuleDict,
    optimizers: Mapping[str, torch.optim.Adam],
    images: Tensor,
    settings: AdversarialTraining,
    seed: int,
) -> tuple[float, float]:
    """One pass over the images; the mean losses of generator and discriminator."""
    both.train()
    torch.manual_seed(seed)  # of what networks draw themselves, as dropout does
    generator, discriminator = both["generator"], both["discriminator"]
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(images), generator=draw).to(images.device)
    batches = [chosen for chosen in order.split(settings.batch) if len(chosen) == settings.batch]
    totals = torch.zeros(2, device=images.device)
    for chosen in batches:
        real = scaled(images[chosen])
        with autocast(images.device, settings.precision):
            made = generator(noise(generator, len(real), draw).to(images.device))
            judged = toward(discriminator(real), 1.0) + toward(discriminator(made.detach()), 0.0)
        _step(optimizers["discriminator"], judged)
        with autocast(images.device, settings.precision):
            fooled = toward(discriminator(made), 1.0)
        _step(optimizers["generator"], fooled)
        totals += torch.stack([fooled.detach(), judged.detach()])
    made, judged = (totals / len(batches)).tolist()
    return made, judged


def _step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Lower a loss by the optimizer's own weights; those of the other network need no gradients."""
    optimizer.zero_grad(set_to_none=True)
    loss.backward(inputs=[weight for weight in optimizer.param_groups[0]["params"] if weight.requires_grad])
    optimizer.step()


def scaled(images: Tensor) -> Tensor:
    """Bring uint8 images to the range of the generator's, -1 to 1."""
    return images.float() / 127.5 - 1


def toward(logits: Tensor, truth: float) -> Tensor:
    """Compute the cross-entropy of logits that should say `truth`: 1 for real, 0 for made."""
    logits = logits.float()
    return F.binary_cross_entropy_with_logits(logits, torch.full_like(logits, truth))


def make(generator: Generator, count: int, seed: int, batch: int = 1000) -> Tensor:
    """Make so many images by a seed of noise, uint8 [count, 1, H, W], on the generator's device."""
    draw = torch.Generator().manual_seed(seed)
    device = next(generator.parameters()).device
    drawn = noise(generator, count, draw).to(device)
    with measuring(generator):
        made = torch.cat([generator(part) for part in drawn.split(batch)])
    return ((made + 1) * 127.5).round().clamp(0, 255).to(torch.uint8)
