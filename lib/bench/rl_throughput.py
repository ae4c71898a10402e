"""Count updates a second of BC, BCQ and TD3: stacks of runs against one run of straightforward code.

Both compute the same (a test compares their losses); what differs is how. `plain` is one network of ordinary layers, as
the authors' public code has it: autograd through everything and torch's default Adam. HalfCheetah's sizes, random data,
batches drawn within the timed update, no environment.

A stack of one is slower than plain code of BC on a processor. Its batched product leaves a weight's gradient
transposed, so it is copied once more before Adam reads it. The product of transposed factors would leave it as it
should lie, but it rounds otherwise under MKL_CBWR=COMPATIBLE, with which the quick results are the same on every
processor (tried).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.kernels.timing import in_turn
from lib.models.mlp import plain
from lib.training import td3
from lib.training.agents import Agent, Draws, Transitions, draw_batch
from lib.training.bc import BC, BCSettings
from lib.training.bcq import BCQ, BCQSettings
from lib.training.graphs import Graphed
from lib.training.replay import Batch

COLUMNS = ("algorithm", "implementation", "stack", "run_steps_per_second")
OBSERVATIONS, ACTIONS, TRANSITIONS = 17, 6, 100_000  # HalfCheetah; as many transitions as fit any cache badly
STACKS = (1, 8, 64)
THREADS = 1  # on a CPU, so that runs on machines with more cores can be compared


def run(device: str) -> list[dict]:
    """Return one row an algorithm, implementation and stack."""
    data = transitions(device)
    rows = []
    ways = {"bc": (stacked_bc, plain_bc), "bcq": (stacked_bcq, plain_bcq), "td3": (stacked_td3, plain_td3)}
    for algorithm, (stacked, single) in ways.items():
        rivals = {("plain", 1): single(data)}
        rivals |= {("stacked", stack): stacked(data, stack) for stack in STACKS}
        pairs = {key: partial(twice, update) for key, update in rivals.items()}
        times = in_turn(pairs)  # a recording as a CUDA graph is made at the fourth update
        rows += [
            {
                "algorithm": algorithm,
                "implementation": implementation,
                "stack": stack,
                "run_steps_per_second": 2 * 1000 * stack / milliseconds,
            }
            for (implementation, stack), milliseconds in times.items()
        ]
    return rows


def twice(update: Callable[[], object]) -> None:
    """Make two updates: every second one of TD3 moves the actor too, and a median of single ones is of one kind."""
    update()
    update()


def transitions(device: str, count: int = TRANSITIONS) -> Transitions:
    """Draw random data of HalfCheetah's shape."""
    draw = torch.Generator().manual_seed(0)
    widths = {"observations": OBSERVATIONS, "actions": ACTIONS, "rewards": 1, "next_observations": OBSERVATIONS}
    columns = {name: torch.randn(count, width, generator=draw) for name, width in widths.items()}
    columns["actions"] = columns["actions"].clamp(-1, 1)
    columns["terminals"] = torch.zeros(count, 1)
    return Transitions(**{name: column.to(device) for name, column in columns.items()})


def stacked_bc(data: Transitions, stack: int) -> Callable[[], object]:
    """Return an update of a stack of agents, each with its own seed."""
    return stacked_update(BC(OBSERVATIONS, [1.0] * ACTIONS, range(stack), BCSettings(), data.rewards.device), data)


def stacked_bcq(data: Transitions, stack: int) -> Callable[[], object]:
    """Return an update of a stack of agents, each with its own seed."""
    return stacked_update(BCQ(OBSERVATIONS, [1.0] * ACTIONS, range(stack), BCQSettings(), data.rewards.device), data)


def stacked_update(agent: Agent, data: Transitions) -> Callable[[], object]:
    """Return an update of a stack, its batches and noise drawn as training draws them."""
    device = data.rewards.device
    draws, steps = Draws(agent.seeds, device), iter(range(10**9))
    update = Graphed(agent.update) if device.type == "cuda" else agent.update
    return lambda: update(*draw_batch(agent, data, draws, agent.settings.batch, next(steps)))


def plain_bc(data: Transitions) -> Callable[[], object]:
    """Return an update of one agent in ordinary code."""
    agent = BareBC(BC(OBSERVATIONS, [1.0] * ACTIONS, [0], BCSettings(), data.rewards.device))
    return lambda: agent.update(sample(data, 100), torch.randn(100, 2 * ACTIONS, device=data.rewards.device))


def plain_bcq(data: Transitions) -> Callable[[], object]:
    """Return an update of one agent in ordinary code."""
    agent = PlainBCQ(BCQ(OBSERVATIONS, [1.0] * ACTIONS, [0], BCQSettings(), data.rewards.device))

    def step() -> None:
        batch = sample(data, 100)
        shapes = ((100, 2 * ACTIONS), (1000, 2 * ACTIONS), (100, 2 * ACTIONS))
        agent.update(batch, [torch.randn(shape, device=data.rewards.device) for shape in shapes])

    return step


def stacked_td3(data: Transitions, stack: int) -> Callable[[], object]:
    """Return an update of a stack of agents, each with its own seed."""
    device, settings = data.rewards.device, td3.TD3Settings()
    networks = td3.networks(OBSERVATIONS, torch.ones(ACTIONS).numpy(), range(stack), settings).to(device)
    agent, draws, steps = td3.TD3(networks, settings), Draws(range(stack), device), iter(range(10**9))

    def step() -> None:
        draws.restart(next(steps))
        batch = Batch(*data.batch(draws.integers(len(data.rewards), settings.batch)))
        agent.update(batch, draws.normals(settings.batch, ACTIONS, like=batch.rewards))

    return step


def plain_td3(data: Transitions) -> Callable[[], object]:
    """Return an update of one agent in ordinary code."""
    settings, device = td3.TD3Settings(), data.rewards.device
    networks = td3.networks(OBSERVATIONS, torch.ones(ACTIONS).numpy(), [0], settings).to(device)
    agent = PlainTD3(networks, settings)
    return lambda: agent.update(sample(data, settings.batch), torch.randn(settings.batch, ACTIONS, device=device))


def sample(data: Transitions, size: int) -> list[Tensor]:
    """Draw a batch for one agent."""
    places = torch.randint(len(data.rewards), (size,), device=data.rewards.device)
    return [column[places] for column in data]


def vae_loss(encoder: nn.Module, decoder: nn.Module, observations: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
    """Compute a VAE's loss as BCQ's public code does."""
    mean, log_std = encoder(torch.cat([observations, actions], 1)).chunk(2, 1)
    log_std = log_std.clamp(-4, 15)
    std = log_std.exp()
    seen = decoder(torch.cat([observations, mean + std * noise], 1))
    divergence = -0.5 * (1 + 2 * log_std - mean.pow(2) - std.pow(2)).mean()
    return F.mse_loss(seen, actions) + 0.5 * divergence


class BareBC:
    """Clone behaviour in one run, starting from the first run of a stack. (`training.bc.PlainBC` is another agent.)"""

    def __init__(self, agent: BC):
        self.encoder, self.decoder = (plain(agent.networks[name]) for name in ("encoder", "decoder"))
        parameters = [*self.encoder.parameters(), *self.decoder.parameters()]
        self.optimizer = torch.optim.Adam(parameters, agent.settings.learning_rate)

    def update(self, batch: list[Tensor], noise: Tensor) -> Tensor:
        """Take one step and return the loss before it."""
        observations, actions = batch[:2]
        loss = vae_loss(self.encoder, self.decoder, observations, actions, noise)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class PlainBCQ:
    """Train BCQ in one run, starting from the first run of a stack."""

    def __init__(self, agent: BCQ):
        names = ("actor", "encoder", "decoder")
        self.actor, self.encoder, self.decoder = (plain(agent.networks[name]) for name in names)
        self.critics = nn.ModuleList(plain(critic) for critic in agent.networks["critic"])
        self.actor_target, self.critics_target = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), 1e-3)
        self.critics_optimizer = torch.optim.Adam(self.critics.parameters(), 1e-3)
        self.vae_optimizer = torch.optim.Adam([*self.encoder.parameters(), *self.decoder.parameters()], 1e-3)

    def update(self, batch: list[Tensor], noise: list[Tensor]) -> dict[str, Tensor]:
        """Take one step of all three losses and return the losses before it."""
        observations, actions, rewards, following, terminals = batch
        loss = vae_loss(self.encoder, self.decoder, observations, actions, noise[0])
        self.vae_optimizer.zero_grad()
        loss.backward()
        self.vae_optimizer.step()

        with torch.no_grad():
            repeated = following.repeat_interleave(10, 0)
            tried = self.perturb(self.actor_target, repeated, self.sampled(repeated, noise[1]))
            first, second = (critic(torch.cat([repeated, tried], 1)) for critic in self.critics_target)
            value = 0.75 * torch.min(first, second) + 0.25 * torch.max(first, second)
            goal = rewards + (1 - terminals) * 0.99 * value.reshape(len(rewards), -1).max(1, keepdim=True)[0]
        values = [critic(torch.cat([observations, actions], 1)) for critic in self.critics]
        critic_loss = F.mse_loss(values[0], goal) + F.mse_loss(values[1], goal)
        self.critics_optimizer.zero_grad()
        critic_loss.backward()
        self.critics_optimizer.step()

        moved = self.perturb(self.actor, observations, self.sampled(observations, noise[2]))
        actor_loss = -self.critics[0](torch.cat([observations, moved], 1)).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        follow(self.critics_target, self.critics)
        follow(self.actor_target, self.actor)
        return {"vae": loss.detach(), "critic": critic_loss.detach(), "actor": actor_loss.detach()}

    def sampled(self, observations: Tensor, noise: Tensor) -> Tensor:
        """Return actions that the decoder proposes."""
        return self.decoder(torch.cat([observations, noise.clamp(-0.5, 0.5)], 1))

    def perturb(self, actor: nn.Module, observations: Tensor, actions: Tensor) -> Tensor:
        """Return actions moved a little by an actor."""
        return (actions + 0.05 * actor(torch.cat([observations, actions], 1))).clamp(-1, 1)


class PlainTD3:
    """Train TD3 in one run, starting from the first run of a stack."""

    def __init__(self, networks: nn.ModuleDict, settings: td3.TD3Settings):
        self.settings, self.updates = settings, 0
        self.actor = plain(networks["actor"])
        self.critics = nn.ModuleList(plain(critic) for critic in networks["critics"])
        self.actor_target, self.critics_target = copy.deepcopy(self.actor), copy.deepcopy(self.critics)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), settings.learning_rate)
        self.critics_optimizer = torch.optim.Adam(self.critics.parameters(), settings.learning_rate)

    def update(self, batch: list[Tensor], noise: Tensor) -> None:
        """Take one step of the critics, and at every second one of the actor."""
        observations, actions, rewards, following, terminals = batch
        with torch.no_grad():
            tried = (self.actor_target(following) + (0.2 * noise).clamp(-0.5, 0.5)).clamp(-1, 1)
            first, second = (critic(torch.cat([following, tried], 1)) for critic in self.critics_target)
            goal = rewards + (1 - terminals) * 0.99 * torch.min(first, second)
        values = [critic(torch.cat([observations, actions], 1)) for critic in self.critics]
        loss = F.mse_loss(values[0], goal) + F.mse_loss(values[1], goal)
        self.critics_optimizer.zero_grad()
        loss.backward()
        self.critics_optimizer.step()
        self.updates += 1
        if self.updates % self.settings.delay == 0:
            loss = -self.critics[0](torch.cat([observations, self.actor(observations)], 1)).mean()
            self.actor_optimizer.zero_grad()
            loss.backward()
            self.actor_optimizer.step()
            follow(self.critics_target, self.critics)
            follow(self.actor_target, self.actor)


def follow(target: nn.Module, source: nn.Module, tau: float = 0.005) -> None:
    """Move the target's parameters a little towards the source's."""
    for old, new in zip(target.parameters(), source.parameters(), strict=True):
        old.data.copy_(tau * new.data + (1 - tau) * old.data)
