"""Train by batch-constrained deep Q-learning (Fujimoto et al. 2018), stacked over runs and pruned before (paper 1)."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lib.base import BadInput, Count, naming, refuse_outside, refuse_uncounted
from lib.models.mlp import MLP, Bounded, generators
from lib.models.vae import VAE
from lib.training.agents import ACTING, INITIAL, Agent, Draws, Objective, Policy, Transitions, check
from lib.training.bc import check_vae, vae_objective
from lib.training.seeds import seed_of


@dataclass(frozen=True)
class BCQSettings:
    """Hold the settings of BCQ; the defaults are those of the authors' code.

    Attributes:
        hidden: neurons of the hidden layers of actor and critics.
        vae_hidden: neurons of the hidden layers of the VAE's encoder and decoder.
        batch: transitions a step.
        learning_rate: of Adam, for all networks.
        discount: gamma.
        tau: share of the way that the targets go towards the networks at each step.
        minimum_weight: lambda, the weight of the lower of the two critics in a target; the higher has the rest.
        phi: how far the actor may move a sampled action, as a share of the action bound.
        target_samples: actions sampled for each next state in a target.
        acting_samples: actions sampled to choose the best of when acting.
        latent_limit: latents are drawn from a standard normal within this limit.
        twins: "own": each critic has its own initial weights, and both are ranked together (public code); "copied":
            the second is a copy of the pruned first, Algorithm 1 taken literally. Copies receive the same gradients
            and stay equal for ever.
        ranked: "apart": the VAE's encoder and decoder are ranked each by itself (Algorithm 1); "together": as one
            network (public code); "alone": see `bc.BCSettings`.
        normalise: learn from scaled observations, as in `bc.BCSettings`.
        precision: "float32", or "bfloat16" for autocast.
    """

    hidden: tuple[Count, ...] = (400, 300)
    vae_hidden: tuple[Count, ...] = (750, 750)
    batch: int = 100
    learning_rate: float = 1e-3
    discount: float = 0.99
    tau: float = 0.005
    minimum_weight: float = 0.75
    phi: float = 0.05
    target_samples: int = 10
    acting_samples: int = 100
    latent_limit: float = 0.5
    twins: str = "own"
    ranked: str = "apart"
    normalise: bool = True
    precision: str = "float32"

    def __post_init__(self):
        check(self)
        check_vae(self)
        if self.twins not in ("own", "copied"):
            raise BadInput(f"BCQSettings: twins={self.twins!r}: known are own, copied")
        shares = ("discount", "tau", "minimum_weight", "phi")
        with naming("BCQSettings"):
            refuse_outside("[0, 1]", **{name: getattr(self, name) for name in shares})
            refuse_uncounted(target_samples=self.target_samples, acting_samples=self.acting_samples)


class BCQ(Agent):
    """Choose, among actions that the data would take here, moved a little, the one of the highest value.

    Networks: actor, critic (two networks), encoder, decoder.

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
        settings: BCQSettings = BCQSettings(),
        device: str = "cpu",
    ):
        bound = torch.as_tensor(bound, dtype=torch.float32)
        draws = generators([seed_of(seed, INITIAL) for seed in seeds])
        pair = observations + len(bound)
        actor = MLP((pair, *settings.hidden, len(bound)), draws, output=Bounded(bound))
        critic = nn.ModuleList(MLP((pair, *settings.hidden, 1), draws) for _ in range(2))
        vae = VAE(observations, bound, draws, settings.vae_hidden)
        networks = nn.ModuleDict({"actor": actor, "critic": critic, **vae}).to(device)
        self.vae, self.bound = vae, bound.to(device)
        ranked = critic if settings.twins == "own" else critic[:1]
        objectives = {
            "vae": vae_objective(vae, settings.ranked),
            "critic": Objective(self.critic_loss, critic, nn.ModuleDict({"critic": ranked})),
            "actor": Objective(self.actor_loss, actor, nn.ModuleDict({"actor": actor})),
        }
        super().__init__(networks, seeds, settings, objectives)

    def start(self) -> None:
        """Make optimizers, and targets equal to the networks."""
        if self.settings.twins == "copied":
            first = self.networks["critic"][0]
            for weight in self.networks["critic"][1].parameters():  # the twin of before, whose masks go with it
                self.masks.pop(weight, None)
            second = self.networks["critic"][1] = copy.deepcopy(first)
            pairs = zip(first.parameters(), second.parameters(), strict=True)
            self.masks |= {twin: self.masks[weight] for weight, twin in pairs if weight in self.masks}
        followed = nn.ModuleDict({name: self.networks[name] for name in ("actor", "critic")})
        self.targets = copy.deepcopy(followed).requires_grad_(False)
        self.pairs = list(self.targets.parameters()), list(followed.parameters())
        super().start()

    def attach(self, masks: Mapping[str, Tensor]) -> None:
        """Set the weights where a mask is False to zero, for good, and start anew, as `Agent.attach`.

        Raises:
            BadInput: also a mask of the second critic that is not the first's, where it is a copy of it.
        """
        if self.settings.twins == "copied":
            known = {**self.attached(), **masks}
            for name in (name for name in masks if name.startswith("critic.1.")):
                first = known.get(name.replace("critic.1.", "critic.0.", 1))
                if first is None or not torch.equal(first, masks[name]):
                    raise BadInput(f"{name}: the second critic is a copy of the first here; give critic.0's mask alone")
        super().attach(masks)

    def noise_shapes(self, batch: int) -> list[tuple[int, ...]]:
        """Return the shapes of the VAE's own latents, and those of the actions sampled for the targets and for the
        actor.
        """
        latent = self.vae.latent
        return [(batch, latent), (batch * self.settings.target_samples, latent), (batch, latent)]

    def critic_loss(self, batch: Transitions, noise: list[Tensor]) -> Tensor:
        """Compute the squared error of both critics, [run]; the target is the best of the sampled actions' values."""
        settings = self.settings
        with torch.no_grad():
            following = batch.next_observations.repeat_interleave(settings.target_samples, 1)
            actions = self._perturbed(self.targets["actor"], following, self._sampled(following, noise[1]))
            first, second = self._values(self.targets["critic"], following, actions)
            low, high = torch.minimum(first, second), torch.maximum(first, second)
            value = settings.minimum_weight * low + (1 - settings.minimum_weight) * high
            value = value.unflatten(1, (-1, settings.target_samples)).amax(2)
            target = batch.rewards + settings.discount * (1 - batch.terminals) * value
        found = self._values(self.networks["critic"], batch.observations, batch.actions)
        return sum((values - target).square().mean((1, 2)) for values in found)

    def actor_loss(self, batch: Transitions, noise: list[Tensor]) -> Tensor:
        """Compute minus the first critic's value of a sampled action after the actor has moved it, [run]."""
        with torch.no_grad():
            sampled = self._sampled(batch.observations, noise[2])
        moved = self._perturbed(self.networks["actor"], batch.observations, sampled)
        return -self._values(self.networks["critic"][:1], batch.observations, moved)[0].mean((1, 2))

    def update(self, batch: Transitions, noise: list[Tensor]) -> dict[str, Tensor]:
        """Update as `Agent.update` does; then the targets follow."""
        losses = super().update(batch, noise)
        with torch.no_grad():
            torch._foreach_lerp_(*self.pairs, self.settings.tau)
        return losses

    def policy(self, step: int) -> Policy:
        """Return the best of `acting_samples` moved actions; see `Agent.policy`."""
        networks, samples = self.snapshot(), self.settings.acting_samples
        draws = Draws(self.seeds, self.device).restart(ACTING, step)

        def choose(observations: Tensor) -> Tensor:
            repeated = observations.repeat_interleave(samples, 1)
            noise = draws.normals(repeated.shape[1], self.vae.latent, like=observations)
            latent = noise.clamp(-self.settings.latent_limit, self.settings.latent_limit)
            actions = networks["decoder"](torch.cat([repeated, latent], 2))
            actions = self._perturbed(networks["actor"], repeated, actions)
            values = self._values(networks["critic"][:1], repeated, actions)[0].unflatten(1, (-1, samples))
            best = values.argmax(2, keepdim=True).expand(-1, -1, -1, actions.shape[2])
            return actions.unflatten(1, (-1, samples)).gather(2, best).squeeze(2)

        return self.acting(choose)

    @property
    def modules(self) -> nn.ModuleDict:
        """Return the networks and their targets."""
        return nn.ModuleDict({"networks": self.networks, "targets": self.targets})

    def _sampled(self, observations: Tensor, noise: Tensor) -> Tensor:
        """Actions the data would take, from latents that are the noise within its limit."""
        return self.vae.decode(observations, noise.clamp(-self.settings.latent_limit, self.settings.latent_limit))

    def _perturbed(self, actor: MLP, observations: Tensor, actions: Tensor) -> Tensor:
        """Actions moved by at most phi of their bound, and still within it."""
        moved = actions + self.settings.phi * actor(torch.cat([observations, actions], 2))
        return torch.clamp(moved, -self.bound, self.bound)

    def _values(self, critic: nn.ModuleList, observations: Tensor, actions: Tensor) -> list[Tensor]:
        """The value of each observation and action by each of these networks, [run, batch, 1]."""
        inputs = torch.cat([observations, actions], 2)
        return [network(inputs) for network in critic]
