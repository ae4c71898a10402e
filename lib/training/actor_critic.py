"""Train by A2C and PPO, two learners that share everything but their loss (Mnih et al. 2016; Schulman et al. 2017).

A number of games is played for a few steps, and the network learns from these steps once (A2C) or several times (PPO);
then they are forgotten. Settings and order of events are those of paper 5's reference 33 (Kostrikov's
pytorch-a2c-ppo-acktr-gail).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from tqdm import tqdm

from lib.base import BadInput, naming, refuse_outside, refuse_uncounted, refuse_unknown
from lib.models.game_player import ActorCritic, PlayerSizes
from lib.training import checkpoints
from lib.training.callbacks import Callback
from lib.training.precision import autocast, check
from lib.training.seeds import seed_of
from lib.training.vector_games import Games

STATE = "state.pt"


@dataclass(frozen=True)
class ActorCriticSettings:
    """Hold the settings of a learner; the defaults are those of A2C in reference 33.

    Attributes:
        learner: "a2c" or "ppo".
        games: how many are played side by side; `steps`: in each before the network learns.
        learning_rate: of RMSprop (a2c) or Adam (ppo).
        decay: whether the rate goes to zero along a line until the end of the training, as reference 33 has it for
            PPO on Atari's games, and not for A2C.
        discount: gamma.
        trace: lambda of the generalised advantage estimate; 1 is the return of n steps.
        value, entropy: weights of the loss of values and of the entropy that is rewarded.
        norm: gradients longer than this are shortened to it.
        clip: of ppo, how far the chance of an action, and a value, may move from what they were.
        epochs, parts: of ppo, how often the network learns from the same steps, and in how many parts.
        frames: that are seen at once.
        network: its sizes.
        precision: "float32", or "bfloat16" for autocast.
    """

    learner: str = "a2c"
    games: int = 16
    steps: int = 5
    learning_rate: float = 7e-4
    decay: bool = False
    discount: float = 0.99
    trace: float = 1.0
    value: float = 0.5
    entropy: float = 0.01
    norm: float = 0.5
    clip: float = 0.1
    epochs: int = 1
    parts: int = 1
    frames: int = 4
    network: PlayerSizes = field(default_factory=PlayerSizes)
    precision: str = "float32"

    def __post_init__(self):
        check(self.precision, "actor_critic")
        refuse_unknown(self, learner=LOSSES)
        with naming("actor_critic"):
            counts = ("games", "steps", "epochs", "parts", "frames")
            refuse_uncounted(**{name: getattr(self, name) for name in counts})
            refuse_outside("(0, 1]", learning_rate=self.learning_rate, discount=self.discount)
            refuse_outside("[0, 1]", trace=self.trace)
            refuse_outside("[0, inf)", value=self.value, entropy=self.entropy)
            refuse_outside("(0, inf]", norm=self.norm, clip=self.clip)
        if self.learner == "a2c" and self.epochs * self.parts > 1:
            raise BadInput(
                f"actor_critic: epochs={self.epochs}, parts={self.parts}: A2C learns from the same steps once, all "
                "in one part; expected 1 of each"
            )
        if self.learner == "ppo" and self.games * self.steps < 2:
            raise BadInput("actor_critic: PPO compares the advantages of two or more steps: more games, or more steps")
        if self.games * self.steps % self.parts:
            raise BadInput(
                f"actor_critic: {self.games} games of {self.steps} steps do not divide in {self.parts} parts"
            )


class Rollout(NamedTuple):
    """Hold steps to learn from, [n] but for the frames [n, frames, side, side]."""

    frames: Tensor
    actions: Tensor
    log_probs: Tensor  # that the actions had
    values: Tensor  # that were expected
    returns: Tensor
    advantages: Tensor  # of the returns over these values, see `standardised`; of PPO


def a2c_loss(logits: Tensor, values: Tensor, batch: Rollout, settings: ActorCriticSettings) -> Tensor:
    """Compute the loss of A2C: actions that returned more than expected become more likely (Mnih et al. 2016)."""
    log_probs, entropy = _log_probs(logits, batch.actions)
    advantages = batch.returns - values
    policy = -(advantages.detach() * log_probs).mean()
    return policy + settings.value * advantages.square().mean() - settings.entropy * entropy


def ppo_loss(logits: Tensor, values: Tensor, batch: Rollout, settings: ActorCriticSettings) -> Tensor:
    """Compute the loss of PPO: moving a chance by more than a share `clip` gains nothing (Schulman et al. 2017)."""
    log_probs, entropy = _log_probs(logits, batch.actions)
    advantages = batch.advantages
    ratio = (log_probs - batch.log_probs).exp()
    policy = -torch.minimum(ratio * advantages, ratio.clamp(1 - settings.clip, 1 + settings.clip) * advantages).mean()
    near = batch.values + (values - batch.values).clamp(-settings.clip, settings.clip)
    errors = torch.maximum((values - batch.returns).square(), (near - batch.returns).square())
    return policy + settings.value * errors.mean() - settings.entropy * entropy


def standardised(advantages: Tensor) -> Tensor:
    """Bring the advantages of all steps that are learned from, [n], to mean 0 and standard deviation 1.

    Reference 33 does so once, before the steps are divided into parts.
    """
    return (advantages - advantages.mean()) / (advantages.std() + 1e-5)


def _log_probs(logits: Tensor, actions: Tensor) -> tuple[Tensor, Tensor]:
    """Compute the log-probabilities of the actions, [n], and the mean entropy."""
    logarithms = logits.log_softmax(1)
    entropy = -(logarithms.exp() * logarithms).sum(1).mean()
    return logarithms.gather(1, actions[:, None])[:, 0], entropy


LOSSES: dict[str, Callable[[Tensor, Tensor, Rollout, ActorCriticSettings], Tensor]] = {"a2c": a2c_loss, "ppo": ppo_loss}


def returns(rewards: Tensor, ended: Tensor, values: Tensor, settings: ActorCriticSettings) -> Tensor:
    """Compute what followed each step, [step, game]: generalised advantages plus values.

    With lambda = 1 it is the return of n steps.

    Args:
        rewards, ended: [step, game]; nothing after an ended episode counts.
        values: expected at each step and after the last, [step + 1, game].
    """
    found, advantage = torch.empty_like(rewards), torch.zeros_like(rewards[0])
    for step in reversed(range(len(rewards))):
        goes_on = settings.discount * (1 - ended[step])
        surprise = rewards[step] + goes_on * values[step + 1] - values[step]
        advantage = surprise + goes_on * settings.trace * advantage
        found[step] = advantage + values[step]
    return found


class ActorCriticTrainer:
    """Train one network on the games that it plays.

    Attributes:
        network: to which blocks and masks may be attached before the trainer is made.
        steps: in all games so far; updates: how often the network has learned.
        rows: what `report` gave, see `train`.
    """

    def __init__(self, network: ActorCritic, games: Games, settings: ActorCriticSettings, seed: int, total: int):
        self.network, self.games, self.settings, self.seed, self.total = network, games, settings, seed, total
        kinds = {
            "a2c": lambda weights, rate: torch.optim.RMSprop(weights, rate, alpha=0.99, eps=1e-5),
            "ppo": lambda weights, rate: torch.optim.Adam(weights, rate, eps=1e-5),
        }
        self.optimizer = kinds[settings.learner](list(network.parameters()), settings.learning_rate)
        self.draws = np.random.default_rng(seed_of(seed, 1))
        self.steps, self.updates = 0, 0
        self.rows: list[dict] = []
        self.callback: Callback | None = None

    def update(self) -> None:
        """Play a few steps, learn from them, and let the callback do what is due."""
        batch = self._play()
        if self.settings.decay:
            for group in self.optimizer.param_groups:
                group["lr"] = self.settings.learning_rate * (1 - self.steps / self.total)
        self._learn(batch)
        self.steps += self.settings.steps * self.settings.games
        self.updates += 1
        if self.callback is not None:
            self.callback.step(self.updates)

    @torch.no_grad()
    def choose(self, seen: np.ndarray, draws: np.random.Generator) -> int:
        """Draw the button of one game as the agent is now; nothing of its training moves on.

        Args:
            seen: the last frames, uint8 [frames, side, side].
        """
        logits, _ = self._ask(torch.from_numpy(seen[None].copy()))
        return int(drawn(logits.log_softmax(1), draws))

    @torch.no_grad()
    def _play(self) -> Rollout:
        settings, games = self.settings, self.games
        kept: list[tuple[Tensor, ...]] = []
        with parametrize.cached():  # weights do not change here, so blocks and masks are applied once
            for _ in range(settings.steps):
                frames = torch.from_numpy(games.seen.copy())
                logits, values = self._ask(frames)
                logarithms = logits.log_softmax(1)
                actions = drawn(logarithms, self.draws)
                rewards, ended = games.step(actions.tolist())
                log_probs = logarithms.gather(1, actions[:, None])[:, 0]
                kept.append((frames, actions, log_probs, values, torch.from_numpy(rewards), torch.from_numpy(ended)))
            _, last = self._ask(torch.from_numpy(games.seen))
        frames, actions, log_probs, values, rewards, ended = (torch.stack(column) for column in zip(*kept, strict=True))
        found = returns(rewards, ended, torch.cat([values, last[None]]), settings)
        columns = (frames, actions, log_probs, values, found, found - values)
        return Rollout(*(column.flatten(0, 1) for column in columns))

    def _ask(self, frames: Tensor) -> tuple[Tensor, Tensor]:
        with autocast("cpu", self.settings.precision):
            logits, values = self.network(frames)
        return logits.float(), values.float()

    def _learn(self, batch: Rollout) -> None:
        settings, number = self.settings, len(batch.actions)
        if settings.learner == "ppo":
            batch = batch._replace(advantages=standardised(batch.advantages))
        for _ in range(settings.epochs):
            order = torch.arange(number) if settings.parts == 1 else torch.from_numpy(self.draws.permutation(number))
            for chosen in order.chunk(settings.parts):
                part = batch if settings.parts == 1 else Rollout(*(column[chosen] for column in batch))
                loss = LOSSES[settings.learner](*self._ask(part.frames), part, settings)
                self.optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(self.network.parameters(), settings.norm)
                if not torch.isfinite(norm):
                    raise FloatingPointError(f"the gradient's norm is {norm} after {self.steps} steps: lower the rate")
                self.optimizer.step()

    def earned(self, window: int) -> float:
        """Average the scores of the last games that have ended; minus infinity before the first."""
        latest = self.games.scores[-window:]
        return float(np.mean(latest)) if latest else -np.inf

    def state_dict(self) -> dict:
        """Give all that the training's future depends on."""
        return {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "games": self.games.state_dict(),
            "draws": self.draws.bit_generator.state,
            "steps": self.steps,
            "updates": self.updates,
            "rows": checkpoints.python(self.rows),
            "callback": None if self.callback is None else self.callback.state_dict(),
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""
        self.network.load_state_dict(content["network"])
        self.optimizer.load_state_dict(content["optimizer"])
        self.games.load_state_dict(content["games"])
        self.draws.bit_generator.state = content["draws"]
        self.steps, self.updates, self.rows = content["steps"], content["updates"], content["rows"]
        if self.callback is not None:
            self.callback.load_state_dict(content["callback"])

    def identity(self) -> dict:
        """Say what must be the same when a training goes on."""
        shapes = {name: list(tensor.shape) for name, tensor in self.network.state_dict().items()}
        own = {
            "network": shapes,
            "game": self.games.name,
            "seed": self.seed,
            "total": self.total,
            "settings": asdict(self.settings),
        }
        return own | ({} if self.callback is None else self.callback.identity())


def drawn(logarithms: Tensor, draws: np.random.Generator) -> Tensor:
    """Draw an action a row, [n], from logarithms of their chances, [n, action]."""
    uniform = torch.from_numpy(draws.random((len(logarithms), 1), np.float32))
    return (logarithms.exp().cumsum(1) < uniform).sum(1).clamp(max=logarithms.shape[1] - 1)


def start(
    game: str,
    seed: int,
    settings: ActorCriticSettings,
    total: int,
    prepare: Callable[[nn.Module], None] = lambda _: None,
) -> ActorCriticTrainer:
    """Make a training at its beginning.

    Args:
        total: steps of the whole training, on which the rate depends.
        prepare: called with the network before its optimizer is made, such as to put blocks in place.
    """
    games = Games(game, [seed_of(seed, 2, place) for place in range(settings.games)], settings.frames)
    torch.manual_seed(seed_of(seed, 0))
    network = ActorCritic(settings.frames, games.seen.shape[-1], games.actions, settings.network)
    prepare(network)
    return ActorCriticTrainer(network, games, settings, seed, total)


def train(
    trainer: ActorCriticTrainer,
    every: int,
    report: Callable[[], dict],
    folder: Path | None = None,
    on_progress: Callable[[], None] = lambda: None,
    check: Callable[[], None] = lambda: None,
    progress: bool = False,
) -> list[dict]:
    """Train until the total of steps is done; stopped or killed at any moment it goes on to the same rows.

    Args:
        every: steps from one row to the next, a multiple of what is played before the network learns.
        report: gives what goes into a row.
        folder: where to keep the session. When it holds one, training goes on from there.
        on_progress: called after each row; may raise to stop, and what is done is saved then.
        check: called after each update, of which a row has many; may raise to stop likewise.
        progress: show a progress bar of steps.

    Returns:
        The rows, each with the step it was made at.

    Raises:
        BadInput: steps that do not divide, or a folder with another session.
        FloatingPointError: a gradient is not finite.
    """
    once = trainer.settings.games * trainer.settings.steps
    if every < 1 or every % once or trainer.total % every:
        raise BadInput(
            f"every={every} must be a multiple of {once} above 0, and {trainer.total} steps in all one of it"
        )
    identity = {**trainer.identity(), "every": every}
    if folder is not None and (content := checkpoints.read(folder / STATE)) is not None:
        checkpoints.refuse_another(folder, content["identity"], identity)
        trainer.load_state_dict(content)
    for _ in trainer.rows:
        on_progress()

    def save() -> None:
        if folder is not None:
            checkpoints.write({"identity": identity, **trainer.state_dict()}, folder / STATE)

    rhythm = checkpoints.Rhythm()
    with tqdm(initial=trainer.steps, total=trainer.total, unit="step", disable=not progress) as bar:
        while trainer.steps < trainer.total:
            trainer.update()
            if due := trainer.steps % every == 0:  # not below: a state saved where `report` stops would lack its row
                trainer.rows.append({"step": trainer.steps, **report()})
            with rhythm.after_step(save, last=trainer.steps == trainer.total):
                check()
                if due:
                    on_progress()
            bar.update(once)
    return trainer.rows
