"""Train every network that learns labels: SGD with momentum, warm-up, cosine; stop it and go on anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm

from lib.base import BadInput, Range, naming, refuse_outside, refuse_uncounted
from lib.data.folder import Images
from lib.training.callbacks import Callback
from lib.training.checkpoints import Session, Together
from lib.training.evaluation import measuring, predicted
from lib.training.examples import AUGMENTS, Examples, in_batches
from lib.training.precision import autocast, check
from lib.training.seeds import seed_of


@dataclass(frozen=True)
class Training:
    """Hold the settings of one training session.

    Attributes:
        epochs: passes over the training data.
        batch: examples a step; the last batch of an epoch may be smaller, or larger by the one that would be left.
        learning_rate: the rate that half a cosine lowers to zero over all epochs, from the first on.
        warmup: epochs in which the rate is multiplied besides by a factor that rises linearly to 1, see the function
            `learning_rate`; so with a warm-up no step quite has the rate that was given.
        momentum, weight_decay: of SGD (Nesterov).
        augment: "none", "crop_flip" (4 pixels of padding, random crop, random mirror image: CIFAR's standard) or, for
            image files, "resized_crop_flip" (ImageNet's standard).
        precision: "float32", or "bfloat16" for autocast.
    """

    epochs: int
    batch: int
    learning_rate: float
    warmup: float = 1.0
    momentum: float = 0.9
    weight_decay: Annotated[float, Range(0)] = 5e-4
    augment: str = "none"
    precision: str = "float32"

    def __post_init__(self):
        with naming("training"):
            refuse_uncounted(epochs=self.epochs, batch=self.batch)
        if self.augment not in AUGMENTS:
            raise BadInput(f"training: augment={self.augment!r}: known are {', '.join(AUGMENTS)}")
        with naming("training"):
            refuse_outside("(0, inf)", learning_rate=self.learning_rate)
            refuse_outside("[0, inf)", warmup=self.warmup, weight_decay=self.weight_decay)
            refuse_outside("[0, 1)", momentum=self.momentum)
        if self.warmup > self.epochs:
            raise BadInput(f"training: warmup={self.warmup} must not be longer than epochs={self.epochs}")
        check(self.precision, "training")


def train(
    model: nn.Module,
    examples: Examples,
    settings: Training,
    seed: int,
    session: int = 0,
    state: Path | None = None,
    on_progress: Callable[[], None] = lambda: None,
    progress: bool = False,
    callback: Callable[[torch.optim.Optimizer], Callback] | None = None,
    report: Callable[[], Mapping[str, object]] = dict,
) -> list[dict]:
    """Train the model in place and say after each epoch how it does on the test data; it is left in evaluation mode.

    All randomness of an epoch (order, augmentation, dropout) is drawn from (seed, session, epoch). So two models see
    the same batches, and a session that was stopped goes on with the same numbers (bit for bit on a CPU with the same
    number of threads).

    Args:
        seed: of the run.
        session: which of the run's training sessions this is; each has its own order of batches.
        state: where to keep the session. When the file is there the session goes on from it, and one that was
            finished only loads its weights.
        on_progress: called after each epoch; may raise to stop, and what is done is saved then.
        progress: show a progress bar of epochs.
        callback: makes, of the optimizer, what else happens after each update; its steps count from 1 over all epochs.
        report: called after each epoch; what it gives goes into the row.

    Returns:
        One row an epoch: epoch (from 1), loss (mean over the epoch's training examples), accuracy (test, percent), and
        what `report` gave.

    Raises:
        BadInput: an augmentation that these inputs do not have, no test examples, a network that is wholly frozen, or a
            file of another session.
        FloatingPointError: the loss is not finite.
    """
    examples.check(settings.augment)
    refuse_frozen(model)
    model.to(examples.mean.device)
    if examples.images:
        channels_last(model)
    optimizer = torch.optim.SGD(
        model.parameters(),
        settings.learning_rate,
        momentum=settings.momentum,
        weight_decay=settings.weight_decay,
        nesterov=settings.momentum > 0,
        foreach=True,  # the same bits as one tensor after the other, a third sooner
    )
    identity = {**asdict(settings), "seed": seed, "session": session, "data": examples.checksums()}
    hook, kept = None, optimizer
    if callback is not None:
        hook = callback(optimizer)
        identity, kept = identity | hook.identity(), Together(optimizer=optimizer, callback=hook)
    keeper = Session(state, identity, model, kept)
    rows = keeper.load(on_progress)
    epochs = range(len(rows), settings.epochs)
    for epoch in tqdm(epochs, initial=len(rows), total=settings.epochs, disable=not progress):
        loss = _epoch(model, optimizer, examples, settings, epoch, seed_of(seed, session, epoch), hook)
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} in epoch {epoch + 1}: training diverged; lower the rate")
        row = {"epoch": epoch + 1, "loss": loss, "accuracy": accuracy(model, examples, settings.precision)}
        rows.append(row | dict(report()))
        keeper.save_when_due(rows, on_progress, last=epoch + 1 == settings.epochs)
    model.eval()
    return rows


def accuracy(model: nn.Module, examples: Examples, precision: str = "float32", batch: int = 1000) -> float:
    """Compute the share of the test examples whose largest logit is their label, in percent.

    Raises:
        BadInput: there are none.
        FloatingPointError: the network gives what is no number, whose largest logit says nothing.
    """
    if not len(examples.test_labels):
        raise BadInput("there are no test examples to measure accuracy on: expected one or more")
    right = 0
    with measuring(model), autocast(examples.mean.device, precision):
        for inputs, labels in examples.test_batches(batch):
            right += int((predicted(model(inputs)) == labels).sum())
    return 100 * right / len(examples.test_labels)


def hold_out(examples: Examples, share: float, seed: int) -> tuple[Examples, Examples]:
    """Split the examples: without a random share of the training set, and with that share in place of the test set.

    Both parts are scaled as the whole training set is.

    Raises:
        BadInput: image files, or a share that leaves one part empty.
    """
    if isinstance(examples.train_inputs, Images):
        raise BadInput("a validation split of image files is not supported: load them as arrays")
    count = len(examples.train_labels)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed_of(seed, 0, 0, 3)))
    order = order.to(examples.train_labels.device)
    if not (0 < share < 1 and 0 < (number := round(share * count)) < count):
        raise BadInput(f"validation={share} of {count} training examples leaves one part empty")
    inputs, labels = examples.train_inputs, examples.train_labels
    out, rest = order[:number], order[number:]
    left = replace(examples, train_inputs=inputs[rest], train_labels=labels[rest])
    return left, replace(left, test_inputs=inputs[out], test_labels=labels[out])


def refuse_frozen(model: nn.Module, what: str = "network") -> None:
    """Raise BadInput where no parameter is trained."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadInput(f"all of the {what} is frozen: nothing of it would learn; thaw some of its weights")


def channels_last(model: nn.Module) -> None:
    """Lay the weights of convolutions out as they run fastest; coefficients that make up a weight stay as they are."""
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 4:
            tensor.data = tensor.data.to(memory_format=torch.channels_last)


def _epoch(
    model: nn.Module,
    optimizer: torch.optim.SGD,
    examples: Examples,
    settings: Training,
    epoch: int,
    seed: int,
    callback: Callback | None = None,
) -> float:
    """One pass over the training data; the mean loss."""
    model.train()
    torch.manual_seed(seed)  # dropout, where a model has it
    draw = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(examples.train_labels), generator=draw).to(examples.train_labels.device)
    batches = in_batches(order, settings.batch)
    total = torch.zeros((), device=order.device)
    drawn = examples.train_batches(batches, settings.augment, draw)
    for step, (inputs, labels) in enumerate(drawn):
        rate = learning_rate(settings, epoch + step / len(batches))
        for group in optimizer.param_groups:
            group["lr"] = rate
        with autocast(order.device, settings.precision):
            loss = F.cross_entropy(model(inputs), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if callback is not None:
            callback.step(epoch * len(batches) + step + 1)
        total += loss.detach() * len(labels)
    return float(total) / len(order)


def learning_rate(settings: Training, epochs: float) -> float:
    """Compute the rate after so many epochs (a fraction counts): linear warm-up times half a cosine.

    The warm-up is a thousandth of an epoch ahead, so that the first step, after 0 epochs, is not one of length 0.
    """
    warm = min(1.0, (epochs + 1e-3) / settings.warmup) if settings.warmup > 0 else 1.0
    return settings.learning_rate * warm * 0.5 * (1 + math.cos(math.pi * epochs / settings.epochs))
