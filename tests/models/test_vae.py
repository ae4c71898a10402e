"""Laws of `lib.models.vae`: the autoencoder's shapes, loss and limits, against an ordinary network's arithmetic."""

import pytest
import torch
from torch.nn import functional as F

from lib.models.mlp import generators, plain
from lib.models.vae import VAE

BOUND = torch.tensor([1.0, 0.5])
RUNS, BATCH, OBSERVATIONS = 3, 4, 5


def model(**settings):
    return VAE(OBSERVATIONS, BOUND, generators(range(RUNS)), **({"hidden": (8, 8)} | settings))


def inputs(dtype=torch.float32):
    draw = torch.Generator().manual_seed(0)
    shapes = (OBSERVATIONS, len(BOUND), 2 * len(BOUND))
    observations, actions, noise = (torch.randn(RUNS, BATCH, width, generator=draw, dtype=dtype) for width in shapes)
    return observations, actions.clamp(-BOUND, BOUND), noise


def test_the_sizes_of_the_paper_on_half_cheetah_take_4758120_bytes():
    vae = VAE(17, torch.ones(6), generators([0]))
    assert 4 * sum(parameter.numel() for parameter in vae.parameters()) == 4_758_120
    assert [tuple(layer.weight.shape) for layer in vae["encoder"].layers] == [(1, 750, 23), (1, 750, 750), (1, 24, 750)]
    assert [tuple(layer.weight.shape) for layer in vae["decoder"].layers] == [(1, 750, 29), (1, 750, 750), (1, 6, 750)]


def test_a_run_is_an_ordinary_autoencoder():
    vae, (observations, actions, noise) = model().double(), inputs(torch.float64)
    found, mean, log_std = vae(observations, actions, noise)
    losses = vae.loss(observations, actions, noise)
    for run in range(RUNS):
        encoded = plain(vae["encoder"], run)(torch.cat([observations[run], actions[run]], 1))
        expected_mean, expected_log_std = encoded[:, :4], encoded[:, 4:]
        std = expected_log_std.exp()
        seen = plain(vae["decoder"], run)(torch.cat([observations[run], expected_mean + std * noise[run]], 1))
        torch.testing.assert_close(mean[run], expected_mean)
        torch.testing.assert_close(log_std[run], expected_log_std)
        torch.testing.assert_close(found[run], seen)
        ours, normal = torch.distributions.Normal(expected_mean, std), torch.distributions.Normal(0.0, 1.0)
        divergence = torch.distributions.kl_divergence(ours, normal).mean()
        torch.testing.assert_close(losses[run], F.mse_loss(seen, actions[run]) + 0.5 * divergence)


def test_actions_stay_within_their_bounds():
    vae, (observations, _, noise) = model(), inputs()
    assert (vae.decode(observations, 1e4 * noise).abs() <= BOUND).all()
    assert vae.decode(observations, 1e4 * noise).abs().amax((0, 1)).tolist() == pytest.approx(BOUND.tolist(), rel=1e-2)


def test_the_logarithmic_standard_deviation_is_limited():
    vae, (observations, actions, noise) = model(), inputs()
    with torch.no_grad():
        vae["encoder"].layers[-1].bias[:, 4:] = torch.tensor([-100.0, -5, 100, 0])
    log_std = vae(observations, actions, noise)[2]
    assert log_std[..., 0].unique().tolist() == [-4]
    assert log_std[..., 2].unique().tolist() == [15]
    assert torch.isfinite(vae.loss(observations, actions, noise)).all()


def test_the_latent_is_twice_the_actions_or_as_asked():
    assert model().latent == 4
    vae = model(latent=3, hidden=(6,))
    assert vae["encoder"].layers[-1].weight.shape == (RUNS, 6, 6)
    assert vae["decoder"].layers[0].weight.shape == (RUNS, 6, OBSERVATIONS + 3)
