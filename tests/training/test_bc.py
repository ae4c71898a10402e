"""Laws of `lib.training.bc`: the two algorithms called behaviour cloning."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.models.mlp import plain
from lib.training.agents import ACTING, Draws, Transitions, draw_batch, normalised
from lib.training.bc import BC, BCSettings, PlainBC, PlainBCSettings
from lib.training.bcq import BCQSettings
from lib.training.offline import Pruning, Run, prune

OBSERVATIONS, BOUND = 6, [1.0, 0.5]
VAE, PLAIN = BCSettings(hidden=(16, 12), batch=8), PlainBCSettings(hidden=(16, 12), batch=8)
RUNS = [Run(0), Run(0, "snip", 0.5), Run(1, "grasp", 0.9), Run(0, "random", 0.5)]


def data(count=60):
    draw = np.random.default_rng(0)
    observations = 3 + 5 * draw.standard_normal((count, OBSERVATIONS))
    actions = draw.uniform(-1, 1, (count, len(BOUND))) * BOUND
    columns = observations, actions, np.zeros((count, 1)), observations, np.zeros((count, 1))
    return Transitions(*(torch.from_numpy(column).float() for column in columns))


def agent(kind, runs=RUNS, **settings):
    seeds = [run.seed for run in runs]
    found = (
        BC(OBSERVATIONS, BOUND, seeds, BCSettings(**vars(VAE) | settings))
        if kind == "vae"
        else PlainBC(OBSERVATIONS, BOUND, seeds, PlainBCSettings(**vars(PLAIN) | settings))
    )
    prune(found, data(), runs, Pruning(8, 16))
    return found


def updates(agent, count=4):
    draws = Draws(agent.seeds)
    return [agent.update(*draw_batch(agent, data(), draws, 8, 9, step)) for step in range(count)]


def weights(agent, run):
    return [
        p.detach()[run].clone() for layer in pruners.prunable(agent.networks) for p in (layer.weight, layer.module.bias)
    ]


def seen(count=3, runs=4):
    return np.random.default_rng(1).standard_normal((runs, count, OBSERVATIONS)).astype(np.float32)


@pytest.mark.parametrize("kind", ["vae", "plain"])
def test_a_run_does_not_depend_on_its_stack_bit_for_bit(kind):
    whole = agent(kind)
    losses = updates(whole)
    actions = whole.policy(4)(seen())
    for chosen in ([0], [2], [3, 1], [1, 1, 0]):
        part = agent(kind, [RUNS[run] for run in chosen])
        for mine, theirs in zip(updates(part), losses, strict=True):
            assert all(torch.equal(loss, theirs[name][chosen]) for name, loss in mine.items())
        for place, run in enumerate(chosen):
            assert all(torch.equal(*pair) for pair in zip(weights(part, place), weights(whole, run), strict=True))
        assert np.array_equal(part.policy(4)(seen()[chosen]), actions[chosen])


@pytest.mark.parametrize("kind", ["vae", "plain"])
def test_masks_hold_and_a_dense_run_is_an_unmasked_one(kind):
    among, alone = agent(kind), agent(kind, [Run(0)])
    assert alone.masks == {}
    updates(among)
    updates(alone)
    assert pruners.sparsity_per_run(among.networks) == pytest.approx([0, 0.5, 0.9, 0.5], abs=0.01)
    assert all(torch.equal(*pair) for pair in zip(weights(among, 0), weights(alone, 0), strict=True))


def test_plain_cloning_is_regression_on_scaled_observations():
    every = Transitions(*(column.double() for column in data()))
    ours, draws = PlainBC(OBSERVATIONS, BOUND, [0, 5], PLAIN), Draws([0, 5])
    prepared, policy_of = normalised(every, PLAIN)
    ours.networks.double()
    ours.start()
    mean, std = every.observations.mean(0), every.observations.std(0, correction=0) + 1e-3
    scaled = (every.observations - mean) / std
    rivals = [plain(ours.networks["actor"], run) for run in range(2)]
    optimizers = [torch.optim.Adam(rival.parameters(), 3e-4) for rival in rivals]
    for step in range(5):
        places = draws.restart(9, step).integers(60, 8)
        losses = ours.update(*draw_batch(ours, prepared, draws, 8, 9, step))["actor"]
        for run, (rival, optimizer) in enumerate(zip(rivals, optimizers, strict=True)):
            loss = F.mse_loss(rival(scaled[places[run]]), every.actions[places[run]])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            assert losses[run].item() == pytest.approx(loss.item(), abs=1e-10)
    observations = seen(runs=2)
    for run, actions in enumerate(policy_of(ours.policy(0))(observations)):
        expected = rivals[run]((torch.from_numpy(observations[run]) - mean) / std).detach()
        np.testing.assert_allclose(actions, expected, atol=1e-6)


@pytest.mark.parametrize("settings", [BCSettings, BCQSettings, PlainBCSettings])
def test_data_are_scaled_once_for_every_agent_by_the_same_setting(settings):
    """And policies are asked with observations as they are, whatever they have learned from."""
    asked = lambda observations: observations  # noqa: E731
    raw, policy_of = normalised(data(), settings(normalise=False))
    assert all(torch.equal(*pair) for pair in zip(raw, data(), strict=True))
    assert np.array_equal(policy_of(asked)(seen()), seen())
    scaled, policy_of = normalised(data(), settings())
    assert scaled.observations.mean(0).abs().max() < 1e-6
    assert (scaled.observations.std(0, correction=0) - 1).abs().max() < 1e-3
    assert torch.equal(scaled.observations, scaled.next_observations)  # the same scale: these data have s' = s
    assert np.array_equal(policy_of(asked)(data().observations.numpy()[None]), scaled.observations.numpy()[None])


def test_the_decoder_acts_on_latents_within_a_quarter():
    ours = agent("vae")
    actions = ours.policy(2)(seen(200))
    latent = Draws(ours.seeds).restart(ACTING, 2).normals(200, 4, like=torch.zeros(())).clamp(-0.25, 0.25)
    assert (latent.abs() == 0.25).any()
    for run in range(len(RUNS)):
        inputs = torch.cat([torch.from_numpy(seen(200)[run]), latent[run]], 1)
        np.testing.assert_allclose(actions[run], plain(ours.networks["decoder"], run)(inputs).detach(), atol=1e-6)
    assert actions.dtype == np.float32
    assert (np.abs(actions) <= BOUND).all()


def test_the_vae_lowers_its_loss_by_adam_at_a_thousandth():
    ours = agent("vae", [Run(0)])
    before = weights(ours, 0)
    loss = ours.vae.loss
    batch, noise = draw_batch(ours, data(), Draws([0]), 8, 9, 0)
    expected = loss(batch.observations, batch.actions, noise[0])
    found = ours.update(batch, noise)
    assert torch.equal(found["vae"], expected.detach())
    moved = torch.cat([(old - new).abs().flatten() for old, new in zip(before, weights(ours, 0), strict=True)])
    assert moved.max().item() == pytest.approx(1e-3, rel=1e-3)  # Adam's first step: the rate, whatever the gradient
    losses = torch.cat([loss["vae"] for loss in updates(ours, 300)])
    assert losses[-20:].mean() < 0.8 * losses[:20].mean()


def test_encoder_and_decoder_are_ranked_apart_or_together():
    apart, together = agent("vae"), agent("vae", ranked="together")
    for name in ("encoder", "decoder"):
        assert pruners.sparsity_per_run(apart.networks[name])[1] == pytest.approx(0.5, abs=0.01)
        assert abs(pruners.sparsity_per_run(together.networks[name])[1] - 0.5) > 0.02
    assert pruners.sparsity_per_run(together.networks) == pytest.approx([0, 0.5, 0.9, 0.5], abs=0.01)


def test_both_kinds_have_the_sizes_of_their_sources():
    vae = BC(17, [1.0] * 6, [0])
    assert 4 * sum(parameter.numel() for parameter in vae.networks.parameters()) == 4_758_120
    actor = PlainBC(17, [1.0] * 6, [0]).networks["actor"]
    assert [tuple(layer.weight.shape) for layer in actor.layers] == [(1, 256, 17), (1, 256, 256), (1, 6, 256)]
    assert (BCSettings().batch, BCSettings().learning_rate) == (100, 1e-3)
    assert (PlainBCSettings().batch, PlainBCSettings().learning_rate) == (256, 3e-4)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(BadInput, match="PlainBCSettings: batch=0"):
        PlainBCSettings(batch=0)
    with pytest.raises(BadInput, match="BCSettings: ranked='one': known are apart, together, alone"):
        BCSettings(ranked="one")


def test_data_of_another_number_of_actions_are_refused():
    ours = agent("plain")
    columns = data()
    one = columns._replace(actions=columns.actions[:, :1])
    draws = Draws(ours.seeds)
    with pytest.raises(BadInput, match=f"the data have 1 actions, the agent {len(BOUND)}"):
        ours.update(*draw_batch(ours, one, draws, 8, 9, 0))
