"""Clone behaviour: do what the data did. `BC` is paper 1's, a VAE's decoder; `PlainBC` a plain network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from lib.base import BadInput, Count, naming, refuse_outside
from lib.models.mlp import MLP, Bounded, generators
from lib.models.vae import VAE
from lib.training.agents import ACTING, INITIAL, Agent, Draws, Objective, Policy, Transitions, check
from lib.training.seeds import seed_of

RANKED = ("apart", "together", "alone")  # how a VAE's two networks are, see `BCSettings`


class VAESettings(Protocol):
    """Hold what the settings of every agent with a VAE have, see `BCSettings`."""

    latent_limit: float
    ranked: str


@dataclass(frozen=True)
class BCSettings:
    """Hold the settings of `BC`; the defaults are those of BCQ's VAE, because paper 1 gives both the same architecture.

    Attributes:
        hidden: neurons of the hidden layers of encoder and decoder.
        batch: transitions a step.
        learning_rate: of Adam.
        latent_limit: acting draws the latent from a standard normal within this limit.
        ranked: "apart": encoder and decoder are ranked each by itself (Algorithm 1); "together": the VAE is ranked as
            one network, as its "VAE neural network" can be read; "alone": apart, and GraSP's gradient and Hessian are
            of each network's weights alone, as Algorithm 1 can be read, too.
        normalise: learn from observations scaled by the data's mean and standard deviation, and act on such, see
            `agents.normalised`. The first author's public code, which does not prune, scales all data before it trains
            (SaminYeasar/Offline-Reinforcement-Learning-Algorithms, `replay_buffer.normalize_states()` in main.py).
        precision: "float32", or "bfloat16" for autocast.
    """

    hidden: tuple[Count, ...] = (750, 750)
    batch: int = 100
    learning_rate: float = 1e-3
    latent_limit: float = 0.25
    ranked: str = "apart"
    normalise: bool = True
    precision: str = "float32"

    def __post_init__(self):
        check(self)
        check_vae(self)


def check_vae(settings: VAESettings) -> None:
    """Refuse settings that no agent with a VAE can have.

    Raises:
        BadInput: an unknown `ranked`, or a `latent_limit` that is not above 0.
    """
    where = type(settings).__name__
    if settings.ranked not in RANKED:
        raise BadInput(f"{where}: ranked={settings.ranked!r}: known are {', '.join(RANKED)}")
    with naming(where):
        refuse_outside("(0, inf]", latent_limit=settings.latent_limit)


class BC(Agent):
    """Clone behaviour as in the code paper 1 cites (Kumar et al. 2019): a VAE's decoder, acting alone.

    Networks: encoder, decoder.

    Args:
        observations: how many numbers an observation has.
        bound: the largest action, [a].
        seeds: one a run.
    """

    def __init__(
        self,
        observations: int,
        bound: Sequence[float],
        seeds: Sequence[int],
        settings: BCSettings = BCSettings(),
        device: str = "cpu",
    ):
        draws = generators([seed_of(seed, INITIAL) for seed in seeds])
        self.vae = VAE(observations, torch.as_tensor(bound, dtype=torch.float32), draws, settings.hidden).to(device)
        objectives = {"vae": vae_objective(self.vae, settings.ranked)}
        super().__init__(nn.ModuleDict({**self.vae}), seeds, settings, objectives)

    def noise_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """Return the latents' noise [batch, latent]."""
        return [(batch, self.vae.latent)]

    def policy(self, step: int) -> Policy:
        """Return the decoder, on latents drawn near 0; see `Agent.policy`."""
        decoder, limit = self.snapshot()["decoder"], self.settings.latent_limit
        draws = Draws(self.seeds, self.device).restart(ACTING, step)

        def choose(observations: Tensor) -> Tensor:
            latent = draws.normals(observations.shape[1], self.vae.latent, like=observations).clamp(-limit, limit)
            return decoder(torch.cat([observations, latent], 2))

        return self.acting(choose)


def vae_objective(vae: VAE, ranked: str) -> Objective:
    """Make a VAE's loss; its noise is the first of the noises. The VAE's keys make encoder and decoder two networks.

    By default they are ranked apart and scored together: GraSP's gradient and Hessian are of the loss by the weights
    of both.
    """

    def loss(batch: Transitions, noise: list[Tensor]) -> Tensor:
        return vae.loss(batch.observations, batch.actions, noise[0])

    return Objective(loss, vae, nn.ModuleDict({"vae": vae}) if ranked == "together" else vae, ranked == "alone")


@dataclass(frozen=True)
class PlainBCSettings:
    """Hold the settings of `PlainBC`; the defaults are those of CORL (Tarasov et al. 2022).

    Attributes:
        hidden: neurons of the hidden layers.
        batch: transitions a step.
        learning_rate: of Adam.
        normalise: learn from scaled observations, as in `BCSettings`.
        precision: "float32", or "bfloat16" for autocast.
    """

    hidden: tuple[Count, ...] = (256, 256)
    batch: int = 256
    learning_rate: float = 3e-4
    normalise: bool = True
    precision: str = "float32"

    def __post_init__(self):
        check(self)


class PlainBC(Agent):
    """Clone behaviour as most libraries do: a network from observations to actions, squared error.

    Networks: actor.

    Args:
        observations, bound, seeds: as in `BC`.
    """

    def __init__(
        self,
        observations: int,
        bound: Sequence[float],
        seeds: Sequence[int],
        settings: PlainBCSettings = PlainBCSettings(),
        device: str = "cpu",
    ):
        bound = torch.as_tensor(bound, dtype=torch.float32)
        widths = (observations, *settings.hidden, len(bound))
        actor = MLP(widths, generators([seed_of(seed, INITIAL) for seed in seeds]), output=Bounded(bound))
        networks = nn.ModuleDict({"actor": actor}).to(device)
        super().__init__(networks, seeds, settings, {"actor": Objective(self.loss, networks, networks)})

    def noise_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """Return no shapes: its loss needs no noise."""
        return []

    def loss(self, batch: Transitions, noise: list[Tensor]) -> Tensor:
        """Compute the mean squared error of the actions, [run].

        Raises:
            BadInput: the data have another number of actions than the agent.
        """
        found = self.networks["actor"](batch.observations)
        if found.shape != batch.actions.shape:
            raise BadInput(f"the data have {batch.actions.shape[-1]} actions, the agent {found.shape[-1]}")
        return (found - batch.actions).square().mean((1, 2))

    def policy(self, step: int) -> Policy:
        """Return the network itself; see `Agent.policy`."""
        return self.acting(self.snapshot()["actor"])
