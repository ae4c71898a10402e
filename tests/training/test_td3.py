"""Laws of TD3: one update written out, runs that do not know their stack, no step across episodes, exact resumption."""

import copy
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.models.mlp import plain
from lib.training import td3
from lib.training.replay import Batch
from lib.training.vector_environments import Environments
from tests.training.small_td3 import SMALL, equal, trainer


class Clock(gym.Env):
    """Observes [episode % 4, step] and is paid the step; every second episode ends at step 3, others are cut at 5."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float32)
    episode = -1

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.episode, self.time = self.episode + 1, 0
        return self.seen(), {}

    def step(self, action):
        assert abs(action[0]) <= 2
        self.time += 1
        return self.seen(), float(self.time), self.episode % 2 == 0 and self.time == 3, False, {}

    def seen(self):
        return np.array([self.episode % 4, self.time])


class Aim(gym.Env):
    """One step an episode: the closer the action is to minus half of what is seen, the better."""

    observation_space = gym.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.seen = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.seen, {}

    def step(self, action):
        return self.seen, -float((action[0] + self.seen[0] / 2) ** 2), True, False, {}


class Broken(Clock):
    """Gives no number at the second step."""

    what = "reward"

    def step(self, action):
        seen, reward, *rest = super().step(action)
        wrong = self.time == 2
        return (
            (seen * np.nan, reward, *rest) if wrong and self.what != "reward" else (seen, np.nan if wrong else 0, *rest)
        )


@pytest.fixture(scope="module", autouse=True)
def games():
    limits = {"Clock": (Clock, 5), "Aim": (Aim, None), "Broken": (Broken, 5)}
    for name, (kind, steps) in limits.items():
        gym.register(f"{name}-v0", kind, max_episode_steps=steps, disable_env_checker=True)
    yield
    for name in limits:
        del gym.registry[f"{name}-v0"]


# One update


def test_updates_are_those_of_the_paper_written_with_plain_networks_in_float64():
    settings = replace(SMALL, policy_noise=0.4, noise_clip=0.3, tau=0.1, discount=0.9, delay=3)
    bound, seeds = np.array([1.0, 2.0], np.float32), [5, 6]
    agent = td3.TD3(td3.networks(3, bound, seeds, settings).double(), settings)
    alone = [
        {
            name: plain(net, run)
            for name, net in (("actor", agent.networks["actor"]), *zip("12", agent.networks["critics"], strict=True))
        }
        for run in range(2)
    ]
    targets = copy.deepcopy(alone)
    critic_steps = [torch.optim.Adam([*n["1"].parameters(), *n["2"].parameters()], 1e-3) for n in alone]
    actor_steps = [torch.optim.Adam(n["actor"].parameters(), 1e-3) for n in alone]
    draw = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    for step in range(1, 8):
        ended = (random(2, 16, 1) > 0).double()
        batch = Batch(random(2, 16, 3), random(2, 16, 2), 5 * random(2, 16, 1), random(2, 16, 3), ended)
        noise = random(2, 16, 2)
        agent.update(batch, noise)
        for run, (nets, old) in enumerate(zip(alone, targets, strict=True)):
            seen, actions, rewards, following, terminated = (tensor[run] for tensor in batch)
            limit = torch.tensor([1.0, 2.0])
            with torch.no_grad():
                shift = torch.minimum(torch.maximum(0.4 * noise[run] * limit, -0.3 * limit), 0.3 * limit)
                chosen = torch.minimum(torch.maximum(old["actor"](following) + shift, -limit), limit)
                pair = torch.cat([following, chosen], 1)
                goal = rewards + 0.9 * (1 - terminated) * torch.minimum(old["1"](pair), old["2"](pair))
            pair = torch.cat([seen, actions], 1)
            critic_steps[run].zero_grad()
            sum(nn.functional.mse_loss(nets[k](pair), goal) for k in "12").backward()
            critic_steps[run].step()
            if step % 3 == 0:
                actor_steps[run].zero_grad()
                (-nets["1"](torch.cat([seen, nets["actor"](seen)], 1)).mean()).backward()
                actor_steps[run].step()
                for name in nets:
                    for new, kept in zip(nets[name].parameters(), old[name].parameters(), strict=True):
                        kept.data = 0.1 * new.data + 0.9 * kept.data
    for mine, theirs in ((agent.networks, alone), (agent.targets, targets)):
        for run, nets in enumerate(theirs):
            expected = [p for name in ("actor", "1", "2") for p in nets[name].parameters()]
            for found, wanted in zip(mine.parameters(), expected, strict=True):
                torch.testing.assert_close(found[run], wanted, rtol=0, atol=1e-10)


def test_masks_attached_in_training_hold_and_the_targets_still_follow():
    one = trainer("Hopper-v4", settings=replace(SMALL, random_steps=10))
    td3.train(one, 15)
    agent = one.agent
    name = "actor.layers.1.weight"
    mask = torch.rand(1, 8, 8, generator=torch.Generator().manual_seed(0)) > 0.5
    pruners.attach(agent.networks, {name: mask})
    layers = [nets["actor"].layers[1] for nets in (agent.networks, agent.targets)]
    before = layers[1].weight.clone()
    td3.train(one, 17)  # one step of the actor
    weight = layers[0].weight
    assert torch.equal(weight != 0, mask)
    assert not torch.equal(layers[1].weight, before)
    torch.testing.assert_close(layers[1].weight, before.lerp(layers[0].parametrizations.weight.original, 0.005))


def test_it_learns_to_aim():
    one = trainer("Aim-v0", (0, 1), td3.TD3Settings(hidden=(32, 32), batch=64, random_steps=100, learning_rate=3e-3))
    td3.train(one, 500)
    seen = np.tile(np.linspace(-1, 1, 21, dtype=np.float32)[:, None], (2, 1, 1))
    assert np.abs(one.agent.act(seen) + seen / 2).mean((1, 2)).max() < 0.1  # chance: 0.3 or more


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_bfloat16_is_in_the_hidden_layers_and_neither_in_values_nor_in_weights(precision):
    one = trainer("Aim-v0", settings=replace(SMALL, precision=precision))
    learned = [one.agent.networks["actor"], *one.agent.networks["critics"]]
    seen, values = [], []
    for net in [*learned, *one.agent.targets["critics"]]:
        net.layers[0].register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    for critic in one.agent.networks["critics"]:
        critic.register_forward_hook(lambda module, inputs, output: values.append(output.dtype))
    while one.steps <= SMALL.random_steps:
        seen.clear()  # what it does before it learns
        one.step()
    assert set(seen[1:]) == {getattr(torch, precision)}  # the first chose an action
    assert set(values) == {torch.float32}
    assert {parameter.dtype for parameter in one.agent.networks.parameters()} == {torch.float32}
    assert all(parameter.isfinite().all() for parameter in one.agent.networks.parameters())


# Steps


def test_no_transition_crosses_an_episode_and_only_true_ends_are_terminal():
    one = trainer()
    td3.train(one, 16)
    seen, actions, rewards, following, terminated = one.replay.batch(torch.arange(16)[None])
    episodes = [(0, 3), (1, 5), (2, 3), (3, 5)]  # number, length
    expected = [(k, step) for k, length in episodes for step in range(length)]
    assert seen[0].tolist() == [[k, step] for k, step in expected]
    assert following[0].tolist() == [[k, step + 1] for k, step in expected]
    assert rewards[0, :, 0].tolist() == [step + 1 for _, step in expected]
    assert terminated[0, :, 0].nonzero().ravel().tolist() == [2, 10]
    assert one.returns == [[6, 15, 6, 15]]
    assert actions.abs().max() <= 2


def test_random_steps_fill_the_bounds_and_learning_starts_after_them():
    one = trainer(settings=replace(SMALL, buffer=1000, random_steps=400))
    before = copy.deepcopy(one.agent.networks.state_dict())
    td3.train(one, 400)
    actions = one.replay.batch(torch.arange(400)[None]).actions
    assert actions.min() < -1.9
    assert actions.max() > 1.9
    assert actions.mean().abs() < 0.2
    after = one.agent.networks.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    one.step()
    assert one.agent.updates == 1


def test_after_them_the_actor_acts_with_noise_in_proportion_to_the_bound():
    settings = replace(SMALL, buffer=1000, random_steps=1, learning_rate=1e-12, exploration_noise=0.1)
    one = trainer(settings=settings)
    td3.train(one, 300)
    seen, actions, *_ = one.replay.batch(torch.arange(1, 300)[None])
    noise = actions[0].numpy() - one.agent.act(seen.numpy())[0]
    assert noise.std() == pytest.approx(0.2, rel=0.1)  # the bound is 2
    assert abs(noise.mean()) < 0.03


def test_each_run_draws_its_batches_from_all_of_its_buffer(monkeypatch):
    one = trainer(seeds=(0, 1), settings=replace(SMALL, batch=256, buffer=16, random_steps=16))
    drawn = []
    monkeypatch.setattr(one.agent, "update", lambda *given: drawn.append(given))
    td3.train(one, 17)
    ((batch, noise),) = drawn
    rows = [{tuple(row) for row in rows.tolist()} for rows in torch.cat(batch, 2)]
    assert rows == [{tuple(row) for row in kept.tolist()} for kept in one.replay.rows]
    assert not torch.equal(batch.observations[0], batch.observations[1])  # in another order
    assert noise.shape == (2, 256, 1)
    assert noise.std((1, 2)).tolist() == pytest.approx([1, 1], abs=0.15)


def test_a_run_does_not_depend_on_its_stack():
    settings = replace(SMALL, hidden=(17, 16))  # sizes that fill no vector register
    stack = trainer("Hopper-v4", (3, 1, 2), settings)
    td3.train(stack, 90)
    for place, seed in enumerate((3, 1, 2)):
        alone = trainer("Hopper-v4", (seed,), settings)
        td3.train(alone, 90)
        assert equal(alone, 0, stack, place)
    assert not torch.equal(stack.replay.rows[0], stack.replay.rows[1])


# Bad input


@pytest.mark.parametrize("what", ["reward", "observation"])
def test_numbers_that_are_none_are_refused(what, monkeypatch):
    monkeypatch.setattr(Broken, "what", what)
    with pytest.raises(BadInput, match=f"Broken-v0 gave an? {what} that is not finite"):
        td3.train(trainer("Broken-v0"), 5)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"batch": 0}, "batch=0: expected a whole number, at least 1"),
        ({"batch": 1.5}, "batch=1.5: expected a whole number, at least 1"),
        ({"tau": 0.0}, r"tau=0.0 is not in \(0, 1\]"),
        ({"policy_noise": -1.0}, r"policy_noise=-1.0 is not in \[0, inf\)"),
        ({"precision": "half"}, "precision='half': known are float32, bfloat16"),
    ],
)
def test_bad_settings_are_refused(change, line):
    with pytest.raises(BadInput, match=f"td3: {line}"):
        td3.TD3Settings(**change)


def test_unknown_and_unfit_environments_are_refused():
    with pytest.raises(BadInput, match="a stack needs at least one seed"):
        td3.start("Aim-v0", [], td3.TD3Settings())
    with pytest.raises(BadInput, match="no environment called 'Hoper-v4'"):
        Environments("Hoper-v4", [0])
    for moved in ("Hopper-v2", "phys2d/CartPole-v1"):  # Gymnasium knows their names and does not have them
        with pytest.raises(BadInput, match=f"^no environment called '{moved}': .+$"):
            Environments(moved, [0])
    with pytest.raises(BadInput, match="CartPole-v1: observations and actions must be vectors of numbers"):
        Environments("CartPole-v1", [0])


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5])
def test_actions_do_not_depend_on_the_stack_however_many_are_asked_for(rows):
    settings = replace(SMALL, hidden=(64, 64))
    stack, seen = trainer("Hopper-v4", (3, 1, 2), settings), np.random.default_rng(0).normal(size=(3, rows, 11))
    seen = seen.astype(np.float32)
    together = stack.agent.act(seen)
    for place, seed in enumerate((3, 1, 2)):
        alone = trainer("Hopper-v4", (seed,), settings).agent.act(seen[place : place + 1])
        np.testing.assert_array_equal(together[place], alone[0])


def test_an_environment_that_cannot_go_on_is_refused_where_it_is_kept(tmp_path):
    with pytest.raises(BadInput, match="Aim-v0: only MuJoCo environments can be kept"):
        td3.train(trainer("Aim-v0"), 5, folder=tmp_path / "other")
    assert not (tmp_path / "other").exists()
    gym.register("Endless-v0", "gymnasium.envs.mujoco.hopper_v4:HopperEnv")
    try:
        with pytest.raises(BadInput, match="Endless-v0: only environments with a limit of steps can be kept"):
            td3.train(trainer("Endless-v0"), 5, folder=tmp_path)
    finally:
        del gym.registry["Endless-v0"]


def test_the_targets_actions_with_their_noise_stay_within_the_bound():
    settings, bound = td3.TD3Settings(hidden=(8, 8), batch=4), np.array([1.0, 2.0], np.float32)
    agents = [td3.TD3(td3.networks(3, bound, [0], settings), settings) for _ in range(2)]
    torch.manual_seed(0)
    batch = Batch(*(torch.randn(1, 4, width) for width in (3, 2, 1, 3)), torch.zeros(1, 4, 1))
    for agent, noise in zip(agents, (0.0, 1.0), strict=True):
        agent.targets["actor"].layers[-1].bias.fill_(20.0)  # at the bound already: more is as good as nothing
        agent.update(batch, torch.full((1, 4, 2), noise))
    assert all(map(torch.equal, *(list(agent.networks["critics"].parameters()) for agent in agents)))
