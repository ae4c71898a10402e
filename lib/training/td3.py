"""Train by TD3 (Fujimoto et al. 2018, Addressing function approximation error in actor-critic methods), stacked over
seeds.

A run is an actor, two critics, an environment and a replay buffer. Runs of a stack are computed together and share
nothing: all that is random is drawn from the run's own seed, so a run's numbers are those it would have alone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

from lib.base import BadInput, Count, aside, naming, refuse_outside, refuse_uncounted
from lib.models.mlp import MLP, Bounded, generators
from lib.training import checkpoints
from lib.training.callbacks import Callback
from lib.training.precision import autocast, check
from lib.training.replay import Batch, Replay, ReplayLog
from lib.training.seeds import seed_of
from lib.training.vector_environments import Environments

STATE, LOG = "state.pt", "replay.log"  # a session on disk


@dataclass(frozen=True)
class TD3Settings:
    """Hold the settings of TD3; the defaults are those of the authors' code.

    Attributes:
        hidden: neurons of the hidden layers of actor and critics.
        batch: transitions a step.
        learning_rate: of Adam, for actor and critics.
        discount: gamma.
        tau: share of the way that the targets go towards the networks at each of the actor's steps.
        delay: steps of the critics for each of the actor.
        random_steps: steps of uniformly random actions, without learning, before everything else.
        exploration_noise: standard deviation of the noise on actions taken, as a share of the action bound.
        policy_noise, noise_clip: standard deviation and limit of the noise on the target's actions, likewise.
        buffer: transitions kept for replay.
        precision: "float32", or "bfloat16" for autocast while learning; the critics' last layer stays in float32.
    """

    hidden: tuple[Count, ...] = (256, 256)
    batch: int = 256
    learning_rate: float = 3e-4
    discount: float = 0.99
    tau: float = 0.005
    delay: int = 2
    random_steps: int = 25_000
    exploration_noise: float = 0.1
    policy_noise: float = 0.2
    noise_clip: float = 0.5
    buffer: int = 1_000_000
    precision: str = "float32"

    def __post_init__(self):
        check(self.precision, "td3")
        with naming("td3"):
            refuse_uncounted(batch=self.batch, delay=self.delay, random_steps=self.random_steps, buffer=self.buffer)
            noises = ("exploration_noise", "policy_noise", "noise_clip")
            refuse_outside("[0, inf)", **{name: getattr(self, name) for name in noises})
            refuse_outside("(0, 1]", learning_rate=self.learning_rate, tau=self.tau, discount=self.discount)


def networks(observations: int, bound: np.ndarray, seeds: Sequence[int], settings: TD3Settings) -> nn.ModuleDict:
    """Draw the actor and the two critics of each run from the run's seed: {"actor": MLP, "critics": two MLPs}.

    Args:
        observations: how many numbers an observation has.
        bound: the largest action, [a].
    """
    draws, actions = generators([seed_of(seed, 0) for seed in seeds]), len(bound)
    actor = MLP((observations, *settings.hidden, actions), draws, output=Bounded(torch.as_tensor(bound)))
    critics = [MLP((observations + actions, *settings.hidden, 1), draws) for _ in range(2)]
    return nn.ModuleDict({"actor": actor, "critics": nn.ModuleList(critics)})


class TD3:
    """Hold the networks of a stack of runs and how they learn.

    Masks may be attached to `networks` and `targets` at any time: the parameters remain the same objects.

    Args:
        networks: as `networks` makes them; the targets start as a copy.
    """

    def __init__(self, networks: nn.ModuleDict, settings: TD3Settings):
        self.settings, self.networks = settings, networks
        self.targets = copy.deepcopy(networks).requires_grad_(False)
        # lists from now on, because a mask that is attached changes the order in which a module names its parameters
        self.actor_parameters = list(networks["actor"].parameters())
        self.pairs = list(networks.parameters()), list(self.targets.parameters())
        self.optimizers = [
            torch.optim.Adam(networks[name].parameters(), settings.learning_rate, foreach=True)
            for name in ("critics", "actor")
        ]
        self.updates = 0

    def act(self, observations: np.ndarray) -> np.ndarray:
        """Return the actor's actions, without noise: [run, n, o] -> [run, n, a]."""
        rows = observations.shape[1]
        # of two or three rows BLAS rounds by their place in memory, as in `agents.Agent.acting`
        padded = F.pad(torch.from_numpy(observations).to(self.device), (0, 0, 0, -rows % 4 if rows > 1 else 0))
        with torch.no_grad():
            return self.networks["actor"](padded)[:, :rows].cpu().numpy()

    def update(self, batch: Batch, noise: Tensor) -> None:
        """Take one step of the critics, and every `delay` steps one of the actor and of the targets.

        Args:
            noise: standard normal numbers, [run, batch, a], for the smoothing of the target's actions.
        """
        settings, (actor, critics) = self.settings, self.networks.values()
        target_actor, target_critics = self.targets.values()
        critic_optimizer, actor_optimizer = self.optimizers
        bound = actor.output.bound
        mixed = autocast(self.device, settings.precision)
        with torch.no_grad(), mixed:
            noise = (settings.policy_noise * noise).clamp(-settings.noise_clip, settings.noise_clip) * bound
            actions = torch.clamp(target_actor(batch.following) + noise, -bound, bound)
            inputs = torch.cat([batch.following, actions], 2)
            value = torch.minimum(*(critic(inputs) for critic in target_critics))
            goal = batch.rewards + settings.discount * (1 - batch.terminated) * value
        inputs = torch.cat([batch.observations, batch.actions], 2)
        with mixed:  # each run's mean, then the sum of runs: so a run's gradient is that of the run alone
            loss = sum((critic(inputs) - goal).square().mean((1, 2)).sum() for critic in critics)
        critic_optimizer.zero_grad()
        loss.backward()
        critic_optimizer.step()
        self.updates += 1
        if self.updates % settings.delay == 0:
            with mixed:
                inputs = torch.cat([batch.observations, actor(batch.observations)], 2)
                loss = -critics[0](inputs).mean((1, 2)).sum()
            actor_optimizer.zero_grad()
            loss.backward(inputs=self.actor_parameters)  # and no gradients for the critic's weights
            actor_optimizer.step()
            sources, followers = self.pairs
            with torch.no_grad():
                torch._foreach_lerp_(followers, sources, settings.tau)

    @property
    def device(self) -> torch.device:
        """Say where the networks are."""
        return self.actor_parameters[0].device

    def state_dict(self) -> dict:
        """Return all that learning depends on. To load it, attach the same masks first."""
        return {
            "networks": self.networks.state_dict(),
            "targets": self.targets.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "updates": self.updates,
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""
        self.networks.load_state_dict(content["networks"])
        self.targets.load_state_dict(content["targets"])
        for optimizer, state in zip(self.optimizers, content["optimizers"], strict=True):
            optimizer.load_state_dict(state)
        self.updates = content["updates"]


class TD3Trainer:
    """Train a stack of runs: agent, environments, replay buffers and random generators, one step at a time.

    Attributes:
        steps: steps in the environment so far.
        returns: the returns of the training episodes that have ended, a list a run.
        callback: what else happens after each step, such as pruning; None: nothing.
    """

    def __init__(self, agent: TD3, environments: Environments, seeds: Sequence[int]):
        self.agent, self.environments, self.seeds = agent, environments, list(seeds)
        observations, actions = environments.observations.shape[1], len(environments.bound)
        widths = (observations, actions, 1, observations, 1)
        self.replay = Replay(len(seeds), agent.settings.buffer, widths, agent.device)
        self.log = ReplayLog(self.replay)
        self.draws = [np.random.default_rng(seed_of(seed, 1)) for seed in seeds]
        self.steps = 0
        self.returns: list[list[float]] = [[] for _ in seeds]
        self.unfinished = np.zeros(len(seeds))  # returns of the running episodes
        self.callback: Callback | None = None

    def step(self) -> None:
        """Take one step in each environment and, after the random steps, one of learning; then call the callback."""
        settings, environments = self.agent.settings, self.environments
        learning, seen, actions = self.steps >= settings.random_steps, environments.observations, self._actions()
        following, rewards, terminated, truncated = environments.step(actions)
        row = [seen, actions, rewards[:, None], following, terminated[:, None].astype(np.float32)]
        self.replay.add(torch.from_numpy(np.concatenate(row, 1)))
        self.unfinished += rewards
        for run in np.flatnonzero(terminated | truncated):
            self.returns[run].append(float(self.unfinished[run]))
            self.unfinished[run] = 0
        if learning:
            size, shape = len(self.replay), (settings.batch, actions.shape[1])
            places = np.stack([draw.integers(size, size=settings.batch) for draw in self.draws])
            noise = np.stack([draw.standard_normal(shape, np.float32) for draw in self.draws])
            device = self.agent.device
            self.agent.update(
                self.replay.batch(torch.from_numpy(places).to(device)), torch.from_numpy(noise).to(device)
            )
        self.steps += 1
        if self.callback is not None:
            self.callback.step(self.steps)

    def _actions(self) -> np.ndarray:
        """What each run does now, [run, a]: anything at first, then the actor's choice with noise."""
        settings, bound = self.agent.settings, self.environments.bound
        if self.steps < settings.random_steps:
            return np.stack([draw.uniform(-bound, bound).astype(np.float32) for draw in self.draws])
        noise = np.stack([draw.standard_normal(len(bound), np.float32) for draw in self.draws])
        actions = self.agent.act(self.environments.observations[:, None])[:, 0]
        return np.clip(actions + settings.exploration_noise * bound * noise, -bound, bound)

    def save(self, folder: Path) -> None:
        """Keep everything in a folder: `replay.log` grows by the new transitions, `state.pt` is replaced as a whole.

        The log is ignored beyond the steps that `state.pt` knows of, so a session may be killed at any moment.
        """
        folder.mkdir(parents=True, exist_ok=True)
        self.log.save(folder / LOG)
        checkpoints.write({"identity": self.identity(), "logged": self.log.pieces, **self.state_dict()}, folder / STATE)

    def load(self, folder: Path) -> None:
        """Go on from where `save` was called; on a CPU with as many threads, bit for bit.

        Without a session nothing changes. A damaged one is set aside and named, and nothing changes either.

        Raises:
            BadInput: another environment, other seeds, settings or shapes.
        """
        if (content := checkpoints.read(folder / STATE)) is None:
            return
        checkpoints.refuse_another(folder, content["identity"], self.identity())
        if damage := self.log.load(folder / LOG, content["logged"], content["steps"]):
            checkpoints.discard(folder / LOG, damage)
            aside(folder / STATE)
            return
        self.load_state_dict(content)

    def state_dict(self) -> dict:
        """Return everything but the transitions."""
        return {
            "agent": self.agent.state_dict(),
            "environments": self.environments.state_dict(),
            "draws": [draw.bit_generator.state for draw in self.draws],
            "steps": self.steps,
            "returns": self.returns,
            "unfinished": self.unfinished.tolist(),
            "callback": None if self.callback is None else self.callback.state_dict(),
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called; the transitions are loaded apart."""
        self.agent.load_state_dict(content["agent"])
        self.environments.load_state_dict(content["environments"])
        for draw, state in zip(self.draws, content["draws"], strict=True):
            draw.bit_generator.state = state
        self.steps = content["steps"]
        self.returns, self.unfinished = content["returns"], np.array(content["unfinished"])
        if self.callback is not None:
            self.callback.load_state_dict(content["callback"])

    def identity(self) -> dict:
        """Say what must be the same when a session goes on."""
        shapes = {name: list(tensor.shape) for name, tensor in self.agent.networks.state_dict().items()}
        settings = {**asdict(self.agent.settings), "hidden": list(self.agent.settings.hidden)}
        own = {"environment": self.environments.name, "seeds": self.seeds, "settings": settings, "networks": shapes}
        return own | ({} if self.callback is None else self.callback.identity())


def begin(
    env: str, seeds: Sequence[int], settings: TD3Settings, device: str = "cpu"
) -> tuple[nn.ModuleDict, Environments]:
    """Make what a stack of runs begins with: the networks and the environments, one a seed.

    Args:
        env: Gymnasium's name of an environment, such as "Hopper-v4".

    Raises:
        BadInput: no seeds, or an environment that is unknown or not one of numbers.
    """
    if not seeds:
        raise BadInput("a stack needs at least one seed")
    environments = Environments(env, [seed_of(seed, 2) for seed in seeds])
    return networks(environments.observations.shape[1], environments.bound, seeds, settings).to(device), environments


def start(env: str, seeds: Sequence[int], settings: TD3Settings, device: str = "cpu") -> TD3Trainer:
    """Make a stack of runs at its beginning; what a run will become depends on its seed alone."""
    stack, environments = begin(env, seeds, settings, device)
    return TD3Trainer(TD3(stack, settings), environments, seeds)


def train(
    trainer: TD3Trainer,
    steps: int,
    every_step: Callable[[TD3Trainer], None] = lambda trainer: None,
    folder: Path | None = None,
    progress: bool = False,
) -> None:
    """Train a stack until it has done so many steps.

    Args:
        every_step: called after each step; may evaluate, prune, or raise to stop. Where it raises the step counts as
            done and is saved, and a session that goes on does not call it for that step again: it raises when all else
            is done.
        folder: where to keep the session. When it holds one, training goes on from there.
        progress: show a progress bar of steps, with the latest training returns.

    Raises:
        BadInput: the folder's session is another, or has been trained for more steps than these.
    """
    if folder is not None:
        trainer.environments.state_dict()  # refused before hours of training, not at the first save
        trainer.load(folder)
    if trainer.steps > steps:
        where = "this stack" if folder is None else folder
        raise BadInput(f"{where} has been trained for {trainer.steps} steps already, more than the {steps} asked for")
    rhythm, save = checkpoints.Rhythm(), partial(trainer.save, folder) if folder is not None else lambda: None
    with tqdm(initial=trainer.steps, total=steps, unit="step", disable=not progress) as bar:
        while trainer.steps < steps:
            trainer.step()
            with rhythm.after_step(save, last=trainer.steps == steps):
                every_step(trainer)
            bar.update()
            if progress and all(trainer.returns):
                latest = np.mean([returns[-1] for returns in trainer.returns])
                bar.set_postfix_str(f"return {latest:.0f}", refresh=False)
