"""Share what the agents that learn from fixed data have in common: stacked networks, objectives, batches and noise.

All that is random is drawn from a run's seed, so runs of one seed start from the same weights and see the same batches
and noise, whatever has been pruned from them and whatever else is in their stack. (Bit for bit on a CPU, that is, where
widths and batches are such that each run's matrices begin at multiples of 16 bytes, as multiples of four do.)
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import naming, refuse_outside, refuse_uncounted
from lib.data.offline_rl.bundle import Bundle
from lib.pruners import prunable
from lib.pruners.masks import checked
from lib.training import precision
from lib.training.masked_adam import MaskedAdam
from lib.training.seeds import seed_of

# What a run's random numbers are for: each has a stream of its own, but a random mask has that of the batches that
# the other scores are asked about, which it does not look at.
INITIAL, SCORING, TRAINING, ACTING, SHUFFLING = range(5)
Policy = Callable[[np.ndarray], np.ndarray]


class AgentSettings(Protocol):
    """Hold what the settings of every agent have; `normalise` is for who prunes and trains it, see `normalised`."""

    batch: int
    learning_rate: float
    normalise: bool
    precision: str


def check(settings: AgentSettings) -> None:
    """Refuse settings that no agent can have.

    Raises:
        BadInput: a batch below 1, a rate that is not above 0 and finite, or an unknown precision.
    """
    where = type(settings).__name__
    with naming(where):
        refuse_uncounted(batch=settings.batch)
        refuse_outside("(0, inf)", learning_rate=settings.learning_rate)
    precision.check(settings.precision, where)


class Transitions(NamedTuple):
    """Hold (s, a, r, s') as tensors: all data [n, width], or a batch of each run [run, batch, width].

    `terminals` is 1.0 where no return follows; after a timeout, which cuts an episode short, it is 0.0.
    """

    observations: Tensor
    actions: Tensor
    rewards: Tensor
    next_observations: Tensor
    terminals: Tensor

    @classmethod
    def of(cls, bundle: Bundle, device: str = "cpu") -> Transitions:
        """Make them from a `lib.data.offline_rl` bundle, as float32."""
        arrays = (np.asarray(getattr(bundle, name), np.float32) for name in cls._fields)
        return cls(*(torch.from_numpy(array.reshape(len(array), -1).copy()).to(device) for array in arrays))

    def batch(self, places: Tensor) -> Transitions:
        """Return the transitions at these places, [run, batch]."""
        return Transitions(*(column[places] for column in self))


class Scale(NamedTuple):
    """Bring observations to mean 0 and standard deviation 1 over the data."""

    mean: Tensor
    std: Tensor

    @classmethod
    def of(cls, observations: Tensor) -> Scale:
        """Measure it on all the observations there are, [n, width]."""
        return cls(observations.mean(0), observations.std(0, correction=0) + 1e-3)  # some never change

    def __call__(self, observations: Tensor) -> Tensor:
        """Scale observations, [..., width]."""
        return (observations - self.mean) / self.std

    def data(self, data: Transitions) -> Transitions:
        """Scale the observations of transitions."""
        return data._replace(observations=self(data.observations), next_observations=self(data.next_observations))

    def policy(self, policy: Policy) -> Policy:
        """Let what has learned from scaled observations be asked with observations as they are."""
        return lambda seen: policy(self(torch.from_numpy(seen).to(self.mean.device)).cpu().numpy())


def normalised(data: Transitions, settings: AgentSettings) -> tuple[Transitions, Callable[[Policy], Policy]]:
    """Scale the data once, before anything is scored or trained, if an agent's settings ask for it (`normalise`).

    Returns:
        What is to be pruned and trained on, and what makes of the agent's policy one that is asked with observations as
        they are.
    """
    if not settings.normalise:
        return data, lambda policy: policy
    scale = Scale.of(data.observations)
    return scale.data(data), scale.policy


class Draws:
    """Draw random numbers for a stack, drawn once a seed: runs of the same seed get the same ones."""

    def __init__(self, seeds: Sequence[int], device: torch.device | str = "cpu"):
        distinct = sorted(set(seeds))
        self.generators = {seed: torch.Generator(device) for seed in distinct}
        self.which = torch.tensor([distinct.index(seed) for seed in seeds], device=device)

    def restart(self, *parts: int) -> Draws:
        """Begin the stream called `parts`, such as (TRAINING, step)."""
        for seed, generator in self.generators.items():
            generator.manual_seed(seed_of(seed, *parts))
        return self

    def integers(self, high: int, *shape: int) -> Tensor:
        """Draw integers below `high`, [run, *shape]."""
        return self._stack(
            torch.randint(high, shape, generator=generator, device=generator.device)
            for generator in self.generators.values()
        )

    def normals(self, *shape: int, like: Tensor) -> Tensor:
        """Draw standard normal numbers, [run, *shape], of the dtype of `like`; drawn in float32 whatever that is."""
        return self._stack(
            torch.randn(shape, generator=generator, device=generator.device) for generator in self.generators.values()
        ).to(like.dtype)

    def _stack(self, drawn: Iterable[Tensor]) -> Tensor:
        return torch.stack(list(drawn))[self.which]


class Objective(NamedTuple):
    """Describe one of an agent's losses.

    Attributes:
        loss: of a batch and its noise, [run].
        trained: the networks it trains; whatever else it uses is held as it is.
        ranked: the weights it scores; each of these networks is ranked by itself.
        alone: whether each is scored by itself, too, as if the loss had no other weights. A score by first derivatives
            is the same either way; GraSP's gradient and Hessian lose what one network's weights do to another's.
    """

    loss: Callable[[Transitions, list[Tensor]], Tensor]
    trained: nn.Module
    ranked: nn.ModuleDict
    alone: bool = False


class Agent(ABC):
    """Hold what all agents have in common: objectives that are lowered in turn, one Adam each.

    Args:
        networks: of all runs, by name.
        seeds: one a run.
        settings: has batch, learning_rate and precision.
        objectives: by name, in the order in which an update lowers them.

    Attributes:
        masks: of the weights that were pruned, {parameter: bool tensor, True = kept}.
    """

    def __init__(
        self, networks: nn.ModuleDict, seeds: Sequence[int], settings: AgentSettings, objectives: dict[str, Objective]
    ):
        self.networks, self.seeds, self.settings, self.objectives = networks, list(seeds), settings, objectives
        self.pruning: dict | None = None  # how it was pruned, which a kept training must agree with
        self.masks: dict[nn.Parameter, Tensor] = {}
        self.start()

    @property
    def device(self) -> torch.device:
        """Say where the networks are."""
        return next(self.networks.parameters()).device

    def start(self) -> None:
        """Make what is derived from the networks as they are now: the optimizers here, targets in subclasses."""
        self.parameters = {name: list(objective.trained.parameters()) for name, objective in self.objectives.items()}
        self.optimizers = {
            name: MaskedAdam(parameters, self.masks, self.settings.learning_rate, self.device.type == "cuda")
            for name, parameters in self.parameters.items()
        }

    def attached(self) -> dict[str, Tensor]:
        """Return the masks of the weights that were pruned, {parameter name in `networks`: bool tensor}."""
        layers = prunable(self.networks)
        held = {layer.name: self.masks.get(layer.module.weight) for layer in layers}
        return {name: mask.clone() for name, mask in held.items() if mask is not None}

    def attach(self, masks: Mapping[str, Tensor]) -> None:
        """Set the weights where a mask is False to zero, for good, and start anew.

        So an agent holds its masks by itself (`pruners.Holder`). They are for all of the training, so they need not be
        multiplied with the weights each time, as those of `pruners.attach` are: the optimizers know the kept weights
        alone (`MaskedAdam`), and what nothing moves stays at zero.

        Args:
            masks: {parameter name in `networks`: bool tensor, True = kept}; masks of other weights stay.

        Raises:
            BadInput: as `pruners.attach`.
        """
        layers = checked(self.networks, masks)
        of_weights = {layers[name].module.weight: mask for name, mask in masks.items()}
        self.masks = self.masks | {weight: mask.to(weight.device, copy=True) for weight, mask in of_weights.items()}
        with torch.no_grad():
            for weight, mask in self.masks.items():
                weight.masked_fill_(~mask, 0.0)  # a product would keep NaN and infinity
        self.start()

    @abstractmethod
    def noise_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """Return the shapes, for each run, of the normal numbers that the losses of a batch of this size need."""

    @abstractmethod
    def policy(self, step: int) -> Policy:
        """Say how the agent as it is now acts: observations [run, n, s] -> actions [run, n, a], float32 arrays.

        Further training does not change the policy.

        Args:
            step: names the stream of random numbers of a policy that draws some.
        """

    def update(self, batch: Transitions, noise: list[Tensor]) -> dict[str, Tensor]:
        """Take one step of each objective, in their order; return the losses before it, {objective: [run]}."""
        losses = {}
        for name, objective in self.objectives.items():
            optimizer = self.optimizers[name]
            optimizer.zero_grad()
            with precision.autocast(self.device, self.settings.precision):
                loss = objective.loss(batch, noise)
            # runs are independent, so the sum of losses gives each the gradients of its own
            loss.sum().backward(inputs=self.parameters[name])
            optimizer.step()
            losses[name] = loss.detach()
        return losses

    def acting(self, choose: Callable[[Tensor], Tensor]) -> Policy:
        """Make a policy of arrays from one of tensors."""

        def act(observations: np.ndarray) -> np.ndarray:
            rows = observations.shape[1]
            # BLAS rounds by a matrix's place in memory; with rows by fours a run's is alike in every stack
            padded = F.pad(torch.from_numpy(observations).to(self.device), (0, 0, 0, -rows % 4))
            with torch.no_grad(), precision.autocast(self.device, self.settings.precision):
                return choose(padded)[:, :rows].float().cpu().numpy()

        return act

    def snapshot(self) -> nn.ModuleDict:
        """Copy the networks to act with."""
        return copy.deepcopy(self.networks).requires_grad_(False)

    @property
    def modules(self) -> nn.ModuleDict:
        """Return all that has weights: the networks, and targets in subclasses."""
        return nn.ModuleDict({"networks": self.networks})


def draw_batch(
    agent: Agent, data: Transitions, draws: Draws, size: int, *stream: int
) -> tuple[Transitions, list[Tensor]]:
    """Draw a batch for each run, with replacement, and the noise that the agent's losses need."""
    draws.restart(*stream)
    batch = data.batch(draws.integers(len(data.rewards), size))
    return batch, [draws.normals(*shape, like=batch.rewards) for shape in agent.noise_shapes(size)]
