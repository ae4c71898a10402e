"""Build the conditional variational autoencoder of BCQ and behaviour cloning: which actions do the data take here?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from lib.models.mlp import MLP, Bounded

LOG_STD = (-4.0, 15.0)  # limits of the latent's logarithmic standard deviation, for numerical stability


class VAE(nn.ModuleDict):
    """Hold a stack of autoencoders of actions given observations, with the two networks "encoder" and "decoder".

    The encoder's last layer gives the latent's mean (first half of its outputs) and logarithmic standard deviation.

    Args:
        observations: how many numbers an observation has.
        bound: the largest action, [a].
        draws: one generator a run, see `lib.models.mlp.generators`.
        hidden: neurons of the hidden layers of each network.
        latent: size of the latent; None: twice the actions.
    """

    def __init__(
        self,
        observations: int,
        bound: Tensor,
        draws: Sequence[torch.Generator],
        hidden: Sequence[int] = (750, 750),
        latent: int | None = None,
    ):
        actions = len(bound)
        self.latent = 2 * actions if latent is None else latent
        encoder = MLP((observations + actions, *hidden, 2 * self.latent), draws)
        decoder = MLP((observations + self.latent, *hidden, actions), draws, output=Bounded(bound))
        super().__init__({"encoder": encoder, "decoder": decoder})

    def forward(self, observations: Tensor, actions: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the actions seen through the latent, and the latent's mean and logarithmic standard deviation.

        Args:
            observations, actions: [run, batch, .].
            noise: standard normal numbers, [run, batch, latent].
        """
        mean, log_std = self["encoder"](torch.cat([observations, actions], 2)).chunk(2, 2)
        log_std = log_std.clamp(*LOG_STD)
        return self.decode(observations, mean + log_std.exp() * noise), mean, log_std

    def decode(self, observations: Tensor, latent: Tensor) -> Tensor:
        """Decode [run, batch, s], [run, batch, latent] -> actions [run, batch, a]."""
        return self["decoder"](torch.cat([observations, latent], 2))

    def loss(self, observations: Tensor, actions: Tensor, noise: Tensor) -> Tensor:
        """Compute the squared error of the actions + 0.5 x divergence of the latent from a standard normal, [run].

        Both are means over the batch and over actions or latents, as in BCQ's public code. Arguments as in `forward`.
        """
        seen, mean, log_std = self(observations, actions, noise)
        divergence = -0.5 * (1 + 2 * log_std - mean.square() - (2 * log_std).exp())
        return (seen - actions).square().mean((1, 2)) + 0.5 * divergence.mean((1, 2))
