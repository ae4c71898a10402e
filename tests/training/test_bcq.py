"""Laws of `lib.training.bcq`: the algorithm of one run, and that a stack, masks and targets change nothing of it."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput
from lib.training.agents import ACTING, SCORING, Draws, Transitions, draw_batch
from lib.training.bcq import BCQ, BCQSettings
from lib.training.offline import Pruning, Run, prune

OBSERVATIONS, BOUND = 6, [1.0, 0.5]
# widths of which each run's weights begin at a multiple of 16 bytes: BLAS rounds by a matrix's place in memory
SMALL = BCQSettings(hidden=(16, 12), vae_hidden=(16, 16), batch=8, target_samples=3, acting_samples=5, tau=0.1)
RUNS = [
    Run(0),
    Run(0, "snip", 0.5),
    Run(1, "snip", 0.9),
    Run(1, "grasp", 0.9),
    Run(0, "random", 0.5),
    Run(2, "magnitude", 0.75),
]


def data(dtype=torch.float32, count=60):
    draw = np.random.default_rng(0)
    terminals = (draw.random((count, 1)) < 0.1).astype(float)
    columns = [
        draw.standard_normal((count, OBSERVATIONS)),
        draw.uniform(-1, 1, (count, len(BOUND))) * BOUND,
        draw.standard_normal((count, 1)),
        draw.standard_normal((count, OBSERVATIONS)),
        terminals,
    ]
    return Transitions(*(torch.from_numpy(column).to(dtype) for column in columns))


def agent(runs, settings=SMALL, dtype=torch.float32, **pruning):
    found = BCQ(OBSERVATIONS, BOUND, [run.seed for run in runs], settings)
    prune(found, data(), runs, Pruning(8, 16, **pruning))
    if dtype == torch.float64:
        found.networks.double()
        found.start()
    return found


def masks_of(agent):
    """{name of a pruned weight: its mask}."""
    return {name: agent.masks[weight] for name, weight in agent.networks.named_parameters() if weight in agent.masks}


def updates(agent, count=4):
    """Losses of some updates."""
    dtype = next(agent.networks.parameters()).dtype
    draws = Draws(agent.seeds)
    return [
        agent.update(*draw_batch(agent, data(dtype), draws, agent.settings.batch, 9, step)) for step in range(count)
    ]


def weights(networks, run):
    """What one run computes with, {name: tensor}."""
    return {
        f"{path}.{kind}": getattr(layer, kind).detach()[run].clone()
        for path, layer in networks.named_modules()
        if hasattr(layer, "weight") and hasattr(layer, "bias")
        for kind in ("weight", "bias")
    }


def same(left, right):
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


# The algorithm, written again for one network: plain functions of a dictionary of weights, Adam and masks by hand


class Reference:
    """One run of BCQ, as in Fujimoto et al. 2018, Algorithm 1, with the settings of the authors' code."""

    def __init__(self, agent, run):
        self.s, self.limit = agent.settings, torch.tensor(BOUND, dtype=torch.float64)
        self.w = weights(agent.networks, run)
        self.masks = {name: mask[run] for name, mask in masks_of(agent).items()}
        self.targets = {name: tensor.clone() for name, tensor in self.w.items() if name.startswith(("actor", "critic"))}
        self.moments = {
            name: (torch.zeros_like(tensor), torch.zeros_like(tensor), 0) for name, tensor in self.w.items()
        }

    def mlp(self, w, name, x):
        for layer in range(3):
            x = F.linear(x, w[f"{name}.layers.{layer}.weight"], w[f"{name}.layers.{layer}.bias"])
            x = x if layer == 2 else x.relu()
        return x

    def decode(self, w, s, z):
        return self.limit * self.mlp(w, "decoder", torch.cat([s, z], 1)).tanh()

    def move(self, w, s, a):
        step = self.s.phi * self.limit * self.mlp(w, "actor", torch.cat([s, a], 1)).tanh()
        return torch.maximum(torch.minimum(a + step, self.limit), -self.limit)

    def step(self, loss, prefixes):
        names = [name for name in self.w if name.startswith(prefixes)]
        leaves = {name: self.w[name].clone().requires_grad_() for name in names}
        value = loss(self.w | leaves)
        value.backward()
        for name, leaf in leaves.items():
            gradient = leaf.grad * self.masks.get(name, 1)
            first, second, count = self.moments[name]
            first, second, count = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2, count + 1
            self.moments[name] = first, second, count
            change = (first / (1 - 0.9**count)) / ((second / (1 - 0.999**count)).sqrt() + 1e-8)
            self.w[name] = self.w[name] - self.s.learning_rate * change
        return value.item()

    def update(self, batch, noise):
        s, a, r, following, terminal = batch
        own, sampled, moved = noise

        def vae(w):
            encoded = self.mlp(w, "encoder", torch.cat([s, a], 1))
            mean, log_std = encoded[:, :4], encoded[:, 4:].clamp(-4, 15)
            found = self.decode(w, s, mean + log_std.exp() * own)
            return F.mse_loss(found, a) + 0.5 * (-0.5 * (1 + 2 * log_std - mean**2 - (2 * log_std).exp())).mean()

        def critic(w):
            best = []
            for i in range(len(s)):
                values = []
                for k in range(self.s.target_samples):
                    state, z = following[i : i + 1], sampled[i * self.s.target_samples + k].clamp(-0.5, 0.5)
                    action = self.move(self.targets, state, self.decode(self.w, state, z[None]))
                    pair = [self.mlp(self.targets, f"critic.{q}", torch.cat([state, action], 1)).item() for q in (0, 1)]
                    values.append(0.75 * min(pair) + 0.25 * max(pair))
                best.append(r[i].item() + (0.99 * max(values) if terminal[i] == 0 else 0.0))
            goal = torch.tensor(best, dtype=torch.float64)[:, None]
            return sum(F.mse_loss(self.mlp(w, f"critic.{q}", torch.cat([s, a], 1)), goal) for q in (0, 1))

        def actor(w):
            action = self.move(w, s, self.decode(self.w, s, moved.clamp(-0.5, 0.5)))
            return -self.mlp(self.w, "critic.0", torch.cat([s, action], 1)).mean()

        losses = {"vae": self.step(vae, ("encoder", "decoder"))}
        losses |= {"critic": self.step(critic, ("critic",)), "actor": self.step(actor, ("actor",))}
        for name, tensor in self.targets.items():
            self.targets[name] = (1 - self.s.tau) * tensor + self.s.tau * self.w[name]
        return losses


def test_in_float64_each_run_is_the_algorithm_written_for_one_network():
    ours = agent(RUNS, dtype=torch.float64)
    rivals = [Reference(ours, run) for run in range(len(RUNS))]
    draws = Draws(ours.seeds)
    for step in range(4):
        batch, noise = draw_batch(ours, data(torch.float64), draws, 8, 9, step)
        losses = ours.update(batch, noise)
        for run, rival in enumerate(rivals):
            expected = rival.update([column[run] for column in batch], [drawn[run] for drawn in noise])
            assert {name: loss[run].item() for name, loss in losses.items()} == pytest.approx(expected, abs=1e-10)
    for run, rival in enumerate(rivals):
        for found, expected in ((weights(ours.networks, run), rival.w), (weights(ours.targets, run), rival.targets)):
            assert found.keys() == expected.keys()
            for name, tensor in expected.items():
                torch.testing.assert_close(found[name], tensor, rtol=0, atol=1e-10, msg=name)


def test_a_run_does_not_depend_on_its_stack_bit_for_bit():
    whole = agent(RUNS)
    losses = updates(whole)
    observations = np.random.default_rng(1).standard_normal((len(RUNS), 3, OBSERVATIONS)).astype(np.float32)
    actions = whole.policy(4)(observations)
    for chosen in ([0], [2], [5], [3, 1], [4, 4, 0]):
        part = agent([RUNS[run] for run in chosen])
        for mine, theirs in zip(updates(part), losses, strict=True):
            assert all(torch.equal(loss, theirs[name][chosen]) for name, loss in mine.items())
        for place, run in enumerate(chosen):
            assert same(weights(part.networks, place), weights(whole.networks, run))
            assert same(weights(part.targets, place), weights(whole.targets, run))
        assert np.array_equal(part.policy(4)(observations[chosen]), actions[chosen])


def test_a_dense_run_among_masked_ones_is_an_unmasked_one():
    assert agent([Run(0)]).masks == {}
    alone, among = agent([Run(0)]), agent(RUNS)
    kept = agent([Run(0, "snip", 0.0)])
    assert all(mask.all() for mask in masks_of(kept).values())
    for one in (alone, among, kept):
        updates(one)
    assert same(weights(alone.networks, 0), weights(among.networks, 0))
    assert same(weights(alone.networks, 0), weights(kept.networks, 0))


def test_every_network_and_its_target_has_its_sparsity_and_keeps_its_zeros():
    ours = agent(RUNS)
    masks = {name: mask.clone() for name, mask in masks_of(ours).items()}
    updates(ours, 6)
    for networks in (ours.networks, ours.targets):
        for name in networks:
            for run, share in zip(RUNS, pruners.sparsity_per_run(networks[name]), strict=True):
                size = sum(layer.weight[0].numel() for layer in pruners.prunable(networks[name]))
                assert share == pytest.approx(round(run.sparsity * size) / size)
        for layer in pruners.prunable(networks):
            assert torch.equal(layer.weight != 0, masks[layer.name])


def test_runs_of_one_seed_start_alike_and_other_seeds_differ():
    ours = BCQ(OBSERVATIONS, BOUND, [0, 1, 0], SMALL)
    assert same(weights(ours.networks, 0), weights(ours.networks, 2))
    assert not any(
        torch.equal(a, b) for a, b in zip(*(weights(ours.networks, run).values() for run in (0, 1)), strict=True)
    )
    assert same(
        weights(ours.targets, 1),
        {k: v for k, v in weights(ours.networks, 1).items() if not k.startswith(("enc", "dec"))},
    )


def test_snip_masks_are_those_of_each_loss_by_an_explicit_mask():
    runs = [Run(3, "snip", 0.75)]
    ours, dense = agent(runs), BCQ(OBSERVATIONS, BOUND, [3], SMALL)
    batch, noise = draw_batch(dense, data(), Draws([3]), 8, SCORING, 0)
    groups = {"critic": ("critic",), "actor": ("actor",), "vae": ("encoder", "decoder")}
    for objective, names in groups.items():
        for name in names:
            layers = [m for m in dense.networks[name].modules() if hasattr(m, "weight")]
            ones = [torch.ones_like(layer.weight, requires_grad=True) for layer in layers]
            held = [layer.weight for layer in layers]
            for layer, one, weight in zip(layers, ones, held, strict=True):
                del layer.weight
                layer.weight = weight.detach() * one
            gradients = torch.autograd.grad(dense.objectives[objective].loss(batch, noise).sum(), ones)
            for layer, weight in zip(layers, held, strict=True):
                del layer.weight
                layer.weight = weight
            scores = torch.cat([gradient.abs().flatten() for gradient in gradients])
            kept = torch.cat([layer.weight.flatten() != 0 for layer in pruners.prunable(ours.networks[name])])
            assert int(kept.sum()) == len(scores) - round(0.75 * len(scores))
            assert scores[kept].min() >= scores[~kept].max()


def test_copied_critics_stay_equal_for_ever_and_own_ones_do_not():
    copied, own = agent(RUNS, BCQSettings(**vars(SMALL) | {"twins": "copied"})), agent(RUNS)
    for ours in (copied, own):
        updates(ours, 5)
    for networks in (copied.networks, copied.targets):
        first, second = (dict(critic.state_dict()) for critic in networks["critic"])
        assert same(first, second)
    assert pruners.sparsity_per_run(copied.networks["critic"][1])[2] == pytest.approx(0.9, abs=0.01)
    first, second = (dict(critic.state_dict()) for critic in own.networks["critic"])
    assert not same(first, second)


def test_only_weights_of_the_networks_have_masks_however_often_they_are_attached():
    ours = agent(RUNS, BCQSettings(**vars(SMALL) | {"twins": "copied"}))
    for _ in range(2):
        ours.attach(ours.attached())
        assert ours.masks.keys() == {layer.module.weight for layer in pruners.prunable(ours.networks)}


def test_the_vae_is_ranked_apart_or_together():
    apart, together = agent(RUNS[1:4]), agent(RUNS[1:4], BCQSettings(**vars(SMALL) | {"ranked": "together"}))
    for name in ("encoder", "decoder"):
        assert pruners.sparsity_per_run(apart.networks[name]) == pytest.approx([0.5, 0.9, 0.9], abs=0.01)
        assert abs(pruners.sparsity_per_run(together.networks[name])[0] - 0.5) > 0.02
    assert pruners.sparsity_per_run(together.networks) == pytest.approx([0.5, 0.9, 0.9], abs=0.01)


def test_it_acts_on_the_best_of_the_sampled_actions():
    ours = agent([Run(0), Run(1)], BCQSettings(**vars(SMALL) | {"acting_samples": 50}))
    observations = np.random.default_rng(1).standard_normal((2, 4, OBSERVATIONS)).astype(np.float32)
    actions = ours.policy(0)(observations)
    assert actions.shape == (2, 4, 2)
    assert actions.dtype == np.float32
    draws = Draws([0, 1]).restart(ACTING, 0)
    latent = draws.normals(4 * 50, 4, like=torch.zeros(())).clamp(-0.5, 0.5)
    rival = [Reference(ours, run) for run in range(2)]
    for run, row in np.ndindex(2, 4):
        w = {name: tensor for name, tensor in rival[run].w.items()}
        rival[run].limit = torch.tensor(BOUND)
        states = torch.from_numpy(observations[run, row]).expand(50, -1)
        tried = rival[run].move(w, states, rival[run].decode(w, states, latent[run, 50 * row : 50 * row + 50]))
        best = rival[run].mlp(w, "critic.0", torch.cat([states, tried], 1)).argmax()
        assert actions[run, row].tolist() == pytest.approx(tried[best].tolist(), abs=1e-6)
    assert (np.abs(actions) <= BOUND).all()


def test_a_moved_action_stays_within_its_bound():
    ours = agent([Run(0)], BCQSettings(**vars(SMALL) | {"phi": 0.5}))
    observations = np.random.default_rng(1).standard_normal((1, 4, OBSERVATIONS)).astype(np.float32)
    for name in ("decoder", "actor"):  # both push the action up as far as they can
        with torch.no_grad():
            ours.networks[name].layers[-1].bias.fill_(100)
    assert np.array_equal(ours.policy(0)(observations), np.broadcast_to(np.float32(BOUND), (1, 4, 2)))


def test_a_policy_is_the_same_for_its_step_and_is_not_changed_by_training():
    ours = agent(RUNS)
    observations = np.random.default_rng(1).standard_normal((len(RUNS), 3, OBSERVATIONS)).astype(np.float32)
    policy, first = ours.policy(2), ours.policy(2)(observations)
    state = {name: tensor.clone() for name, tensor in ours.networks.state_dict().items()}
    assert not np.array_equal(ours.policy(3)(observations), first)
    assert same(dict(ours.networks.state_dict()), state)
    updates(ours)
    assert np.array_equal(policy(observations), first)
    assert not np.array_equal(policy(observations), first)  # the stream of latents goes on


def test_bfloat16_is_near_float32_and_the_weights_stay_float32():
    exact, rough = agent(RUNS), agent(RUNS, BCQSettings(**vars(SMALL) | {"precision": "bfloat16"}))
    found = updates(rough, 1)[0]
    for name, loss in updates(exact, 1)[0].items():
        torch.testing.assert_close(found[name], loss, rtol=0.05, atol=0.02)
        assert not torch.equal(found[name], loss)
    assert {parameter.dtype for parameter in rough.networks.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"twins": "both"}, "twins='both': known are own, copied"),
        ({"ranked": "both"}, "ranked='both': known are apart, together, alone"),
        ({"latent_limit": -1.0}, r"latent_limit=-1.0 is not in \(0, inf\]"),
        ({"precision": "half"}, "precision='half': known are float32, bfloat16"),
        ({"discount": 1.1}, r"discount=1.1 is not in \[0, 1\]"),
        ({"batch": 0}, "BCQSettings: batch=0: expected a whole number, at least 1"),
        ({"batch": 99.5}, "BCQSettings: batch=99.5: expected a whole number, at least 1"),
        ({"target_samples": 0}, "BCQSettings: target_samples=0: expected a whole number, at least 1"),
        ({"acting_samples": 0.5}, "BCQSettings: acting_samples=0.5: expected a whole number, at least 1"),
        ({"learning_rate": math.nan}, r"BCQSettings: learning_rate=nan is not in \(0, inf\)"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, line):
    with pytest.raises(BadInput, match=line):
        BCQSettings(**settings)


def test_a_mask_of_a_critic_that_is_a_copy_is_refused():
    ours = agent(RUNS, BCQSettings(**vars(SMALL) | {"twins": "copied"}))
    mask = torch.zeros_like(dict(ours.networks.named_parameters())["critic.1.layers.0.weight"], dtype=torch.bool)
    with pytest.raises(BadInput, match=r"critic\.1\.layers\.0\.weight: the second critic is a copy of the first"):
        ours.attach({"critic.1.layers.0.weight": mask})
