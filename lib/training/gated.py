"""Train a gated network through the three stages of paper 4: one loop, one optimizer, and k says what happens.

    stage 1   k = infinity: an ordinary network learns (section 3.2)
    stage 2   k = 7 to sparsify, 0.5 to expand: weights and gates learn together (sections 2 and 4)
    stage 3   k = infinity: the architecture found is fixed and fine-tuned (section 3.3)

Adam at rate 1e-3 for weights and phi (section 6). What Adam remembers of phi is forgotten between stages: its momentum
would move gates that have no gradient any more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from numbers import Real
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from lib.base import BadInput, Count, naming, refuse_outside, refuse_uncounted
from lib.pruners import gates
from lib.training.checkpoints import Session
from lib.training.examples import AUGMENTS, Examples, in_batches
from lib.training.precision import autocast, check
from lib.training.seeds import seed_of
from lib.training.supervised import accuracy, channels_last, hold_out

WAKE_WHEN = ("plateaus", "falls")  # the loss on the validation split


@dataclass(frozen=True)
class GatedTraining:
    """These settings say how one session goes through all stages.

    Attributes:
        epochs: of the three stages; of the second at most, where `rest` or the end of an expansion shortens it.
        lambdas: one a gated layer, in the order of the forward pass; the lambda of equation 1 is this over N, the
            number of training examples, those held out included. In practice gates pay for each weight they switch.
        k: slope in stage 2.
        batch: examples a step.
        learning_rate: of Adam. The paper says "initial" and no more; `drops` are epochs after which it is divided by
            ten (the authors' code: 400 of 500 for LeNet-5, 1,000 of 2,000 for the moons).
        gate_speed: the rate of phi over that of the weights; 1 in the paper. phi moves by about its rate a step, so
            where an epoch has few steps no gate would close in time.
        estimator: of phi's gradient, a key of gates.ESTIMATORS.
        expand: in stage 2 wake dormant units, one a layer, when the regularised loss on the validation split plateaus
            and the layer has no redundant unit; else gates only learn.
        wake_when: the loss "plateaus", as section 4 has it, or "falls" below all that stage 2 has had, as the authors'
            code has it (but there not after its first epoch, and after its last, too); then stage 2 takes its epochs,
            whether or not a unit can be woken.
        validation: share of the training examples that is held out for that (expansion only).
        patience, tolerance: when a loss plateaus, see gates.plateaus; counted anew after each expansion.
        level: k phi of a woken unit, above 0: its gate begins open.
        rest: stage 2 ends when sizes have not changed for so many epochs, see gates.at_rest; 0: it takes its epochs.
            It is not for an expansion, whose end section 4 states: the loss plateaus and no unit can be woken.
        early_k: slope in stage 1, where gates then learn; None: infinite, as section 3 has it, and they do not.
        augment, precision: as in `supervised.Training`.
    """

    epochs: tuple[int, ...]
    lambdas: tuple[float, ...]
    k: float
    batch: int
    learning_rate: float = 1e-3
    drops: tuple[Count, ...] = ()
    gate_speed: float = 1.0
    estimator: str = "arm"
    expand: bool = False
    wake_when: str = "plateaus"
    validation: float = 0.1
    patience: int = 5
    tolerance: float = 0.01
    level: float = 3.0
    augment: str = "none"
    precision: str = "float32"
    rest: int = 0
    early_k: float | None = None

    def __post_init__(self):
        if not isinstance(self.epochs, Sequence) or len(self.epochs) != 3:
            raise BadInput(f"gated training: epochs={self.epochs}: expected three stages")
        with naming("gated training"):
            refuse_uncounted(0, **{f"epochs[{place}]": count for place, count in enumerate(self.epochs)})
            refuse_uncounted(epochs=sum(self.epochs), batch=self.batch, patience=self.patience)
            refuse_uncounted(0, rest=self.rest)
        gates.check_k(self.k)
        if self.early_k is not None:
            gates.check_k(self.early_k)
        rates = self.lambdas if isinstance(self.lambdas, Sequence) else [None]
        if not all(isinstance(rate, Real) and math.isfinite(rate) for rate in rates):
            raise BadInput(f"gated training: lambdas={self.lambdas} must be finite numbers, one a gated layer")
        with naming("gated training"):
            refuse_outside("(0, inf)", learning_rate=self.learning_rate, gate_speed=self.gate_speed, level=self.level)
            refuse_outside("(0, 1)", validation=self.validation)
            refuse_outside("[0, inf]", tolerance=self.tolerance)
        if self.estimator not in gates.ESTIMATORS:
            known = ", ".join(gates.ESTIMATORS)
            raise BadInput(f"gated training: estimator={self.estimator!r}: known are {known}")
        if self.wake_when not in WAKE_WHEN or (self.wake_when != "plateaus" and not self.expand):
            given = f"wake_when={self.wake_when!r}, expand={self.expand}"
            raise BadInput(f"gated training: {given}: known are {', '.join(WAKE_WHEN)}, and the first without expand")
        if self.rest and self.expand:
            raise BadInput(f"gated training: rest={self.rest}, expand=True: expected 0 for an expansion")
        if self.augment not in AUGMENTS:
            raise BadInput(f"gated training: augment={self.augment!r}: known are {', '.join(AUGMENTS)}")
        check(self.precision, "gated training")

    @property
    def first_k(self) -> float:
        """Give the slope of the first stage in which gates learn, for which they are initialised."""
        return self.k if self.early_k is None else self.early_k


def train(
    model: nn.Module,
    examples: Examples,
    settings: GatedTraining,
    seed: int,
    session: int = 0,
    state: Path | None = None,
    on_progress: Callable[[], None] = lambda: None,
    every: int = 1,
    taus: Sequence[float] = (),
    shares: Sequence[float] = (),
) -> list[dict]:
    """Train a gated network in place; it is left in evaluation mode, ready for `gates.harden`.

    All randomness of an epoch (order, augmentation, dropout, gates, woken units) is drawn from (seed, session, epoch).
    A session that was stopped goes on with the same numbers, bit for bit on a CPU with the same number of threads.

    Args:
        model: from `gates.gated`, initialised for the settings' k.
        state, on_progress: as in `supervised.train`.
        every: the network is measured after epochs that are multiples of this, and after each stage's last.
        taus: thresholds of equation 13 at which it is measured besides. Training does not ask for tau before stage 3,
            which keeps what is open at the gates' own; an expansion does, so it has that alone.
        shares: shares of the weights at the start. In stage 2 the network is measured besides after the first epoch
            that leaves it no more than such a share.

    Returns:
        One row an epoch: epoch (from 1), stage, k, regularised_loss (equation 8, mean over the epoch's batches as
        drawn), validation_loss (regularised, None where it is not needed), woken (units woken after this epoch; none
        after the stage's last, which would not train them with their gates), ended (stage 2 ends here, before its
        epochs are over), open (in stage 2: the open gates of each layer, in the order of the lambdas), share
        (in stage 2, with `shares`: of the weights at the start, those left), dense (with `shares`: how many they were),
        and where the network was measured, before units were woken: accuracy (test, percent, gates by their test-time
        rule), architecture, architecture_live, parameters, parameters_live, flops (see `gates.architecture` and
        `sizes`), and with taus `at`: {tau: the same columns}.

    Raises:
        BadInput: lambdas that do not fit the gated layers, gates of another estimator, an expansion without dormant
            units, a layer whose gates have all closed, a file of another session, an `every` that counts nothing.
        FloatingPointError: the loss is not finite.
    """
    examples.check(settings.augment)
    refuse_uncounted(every=every)
    taus, shares = tuple(map(float, taus)), tuple(map(float, shares))
    rates = [value / len(examples.train_labels) for value in settings.lambdas]
    _check(model, rates, settings, taus)
    model.to(examples.mean.device)
    if examples.images:
        channels_last(model)
    layers = gates.trace(model, examples.shape)
    held = hold_out(examples, settings.validation, seed) if settings.expand else (examples, None)
    optimizer = _optimizer(model, settings)
    kinds = [f"{one.kind}, tau {one.tau}" for one in gates.gates_of(model)]
    measured = partial(_measured, model, examples, layers, settings.precision, taus)
    identity = asdict(settings) | {"seed": seed, "session": session, "every": every, "gates": kinds}
    identity |= {"data": examples.checksums()}
    identity |= {"taus": list(taus)} if taus else {}
    identity |= {"shares": list(shares)} if shares else {}
    dense = gates.sizes(layers)["parameters"] if shares else None
    keeper = Session(state, identity, model, optimizer)
    rows = keeper.load(on_progress)
    if rows:  # then the model may have left its start behind; rows of before this column have no "dense"
        dense = rows[0].get("dense", dense)
    elif settings.expand and any(bool(one.awake.all()) for one in gates.gates_of(model)):
        raise BadInput(
            "gated training: an expansion needs dormant units in every gated layer: start with fewer open ones"
        )
    early = gates.INFINITE if settings.early_k is None else settings.early_k
    slopes = {1: early, 2: settings.k, 3: gates.INFINITE}
    progress = _Progress(settings.epochs)
    for row in rows:
        progress.add(row)
    while stage := progress.stage():
        epoch = len(rows)
        k = slopes[stage]
        if stage == 3 and rows and rows[-1]["stage"] != 3:  # stage 1 has moved gates, too, if it has an early k
            gates.fix(model, rows[-1]["k"])
        gates.set_k(model, k)
        _set_rates(optimizer, settings, epoch, begins=not rows or rows[-1]["stage"] != stage)
        settled = gates.settled(model)  # then phi has no gradient (equation 16), and there is nothing to draw
        loss = _epoch(model, optimizer, held[0], settings, rates, settled, seed_of(seed, session, epoch))
        if not math.isfinite(loss):
            raise FloatingPointError(f"the loss is {loss} in epoch {epoch + 1}: training diverged; lower the rate")
        last = progress.left[stage] == 1
        row = {"epoch": epoch + 1, "stage": stage, "k": k, "regularised_loss": loss}
        row |= {"validation_loss": None, "woken": 0, "ended": False, "open": None, "share": None}
        row |= {"dense": dense} if shares else {}
        if stage == 2:
            row["open"] = [int(one.is_open().sum()) for one in gates.gates_of(model)]
            row["ended"] = bool(settings.rest) and gates.at_rest([*progress.open, row["open"]], settings.rest)
            row["share"] = gates.sizes(layers)["parameters"] / dense if shares else None
        passes = row["share"] is not None and any(row["share"] <= share < progress.share for share in shares)
        if due := last or row["ended"] or passes or row["epoch"] % every == 0:
            row |= measured()
        if settings.expand and stage == 2:
            row["validation_loss"] = _validation_loss(model, held[1], settings, rates)
            if not last and progress.wakes(row["validation_loss"], settings):
                draw = torch.Generator().manual_seed(seed_of(seed, session, epoch, 2))
                row["woken"] = len(gates.expand(layers, draw, settings.level))
                row["ended"] = row["woken"] == 0 and settings.wake_when == "plateaus"
                if row["ended"] and not due:
                    row |= measured()
        rows.append(row)
        progress.add(row)
        keeper.save_when_due(rows, on_progress, last=progress.stage() == 0)
    gates.set_k(model, rows[-1]["k"])
    model.eval()
    return rows


def _optimizer(model: nn.Module, settings: GatedTraining) -> torch.optim.Adam:
    """Adam with two groups, weights and gates: one fused call instead of dozens of small ones. What is fixed has no
    gradient and is left out.
    """
    learned = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
    weights = [value for name, value in learned if not name.endswith("gates.phi")]
    phis = [one.phi for one in gates.gates_of(model)]
    return torch.optim.Adam([{"params": weights}, {"params": phis}], settings.learning_rate, fused=True)


def _set_rates(optimizer: torch.optim.Adam, settings: GatedTraining, epoch: int, begins: bool) -> None:
    """Set what the epoch learns by; where a stage begins, the gates forget their moments."""
    for group, speed in zip(optimizer.param_groups, (1.0, settings.gate_speed), strict=True):
        group["lr"] = speed * settings.learning_rate * 0.1 ** sum(epoch >= drop for drop in settings.drops)
    for phi in optimizer.param_groups[1]["params"] if begins else ():
        optimizer.state.pop(phi, None)


def _measured(
    model: nn.Module,
    examples: Examples,
    layers: dict[str, gates.Layer],
    precision: str,
    taus: Sequence[float] = (),
) -> dict:
    """The columns of a row that say how well the network does now, and how large it is."""
    found = {"accuracy": accuracy(model, examples, precision), "architecture": gates.architecture(layers)}
    found |= {"architecture_live": gates.architecture(layers, only_live=True), **gates.sizes(layers)}
    at = {}
    for tau in taus:
        with gates.testing_at(gates.gates_of(model), tau):
            at[tau] = _measured(model, examples, layers, precision)
    return found | ({"at": at} if taus else {})


class _Progress:
    """Where a session is: epochs left in each stage, the validation losses since units were last woken and the lowest
    of all, the open gates after each epoch of stage 2, and the smallest share of the weights so far.
    """

    def __init__(self, epochs: tuple[int, ...]):
        self.left = dict(enumerate(epochs, 1))
        self.losses: list[float] = []
        self.lowest = math.inf
        self.open: list[list[int]] = []
        self.share = math.inf

    def add(self, row: dict) -> None:
        self.left[row["stage"]] = 0 if row["ended"] else self.left[row["stage"]] - 1
        if row["validation_loss"] is not None:
            self.lowest = min(self.lowest, row["validation_loss"])
        if row["woken"]:
            self.losses = []
        elif row["validation_loss"] is not None:
            self.losses.append(row["validation_loss"])
        if row["open"] is not None:
            self.open.append(row["open"])
        if row["share"] is not None:
            self.share = min(self.share, row["share"])

    def wakes(self, loss: float, settings: GatedTraining) -> bool:
        """Whether this validation loss lets units be woken: it has come to rest with this one, or is the lowest."""
        if settings.wake_when == "falls":
            return loss < self.lowest
        return gates.plateaus([*self.losses, loss], settings.patience, settings.tolerance)

    def stage(self) -> int:
        """The stage of the next epoch, 0 when all are done."""
        return next((stage for stage, count in self.left.items() if count), 0)


def _check(model: nn.Module, rates: list[float], settings: GatedTraining, taus: Sequence[float]) -> None:
    gates.penalty(model, rates)
    found = gates.gates_of(model)
    binary = [gates.KINDS[one.kind].binary for one in found]
    if not all(fits is (settings.estimator != "hard_concrete") for fits in binary):
        kinds = ", ".join(sorted({one.kind for one in found}))
        raise BadInput(f"gated training: estimator={settings.estimator!r} does not fit gates of kind {kinds}")
    if odd := [tau for tau in taus if not 0 <= tau < 1]:
        raise BadInput(f"gated training: taus={list(taus)}: {odd[0]} is not in [0, 1)")
    if settings.expand and {*taus} - {one.tau for one in found}:
        raise BadInput(
            f"gated training: taus={list(taus)}: an expansion asks for tau, measure it at the gates' own alone"
        )


def _epoch(
    model: nn.Module,
    optimizer: torch.optim.Adam,
    examples: Examples,
    settings: GatedTraining,
    rates: list[float],
    settled: bool,
    seed: int,
) -> float:
    """One pass over the training data; the mean regularised loss."""
    model.train()
    for generator in gates.generators(examples.mean.device):  # dropout, where a model has it
        generator.manual_seed(seed)  # torch.manual_seed takes a millisecond, as long as an epoch of the moons
    draw, gates_draw = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed_of(seed, 1))
    order = torch.randperm(len(examples.train_labels), generator=draw).to(examples.train_labels.device)
    total = torch.zeros((), device=order.device)
    estimate = gates.plain if settled else gates.ESTIMATORS[settings.estimator]
    cost = gates.penalty(model, rates).detach()
    for inputs, labels in examples.train_batches(in_batches(order, settings.batch), settings.augment, draw):

        def loss(network: nn.Module, inputs=inputs, labels=labels) -> torch.Tensor:
            with autocast(order.device, settings.precision):
                return F.cross_entropy(network(inputs), labels)

        optimizer.zero_grad(set_to_none=True)
        value = estimate(model, loss, gates_draw)
        if not settled:
            cost = gates.penalty(model, rates)
            if cost.requires_grad:
                cost.backward()
        optimizer.step()
        total += (value + cost).detach() * len(labels)
    return float(total) / len(order)


@torch.no_grad()
def _validation_loss(model: nn.Module, held: Examples, settings: GatedTraining, rates: list[float]) -> float:
    """Equation 8 on the held-out examples, with the gates' test-time values in place of the expectation."""
    model.eval()
    total = 0.0
    with autocast(held.mean.device, settings.precision):
        for inputs, labels in held.test_batches(1000):
            total += float(F.cross_entropy(model(inputs), labels, reduction="sum"))
    return total / len(held.test_labels) + float(gates.penalty(model, rates))
