"""Laws of A2C and PPO: returns and losses by hand, episodes that end, learning, and sessions that go on."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from lib import pruners
from lib.base import BadInput
from lib.models.game_player import ActorCritic, PlayerSizes
from lib.pruners import prunable
from lib.training import actor_critic, checkpoints
from lib.training.actor_critic import (
    ActorCriticSettings,
    Rollout,
    a2c_loss,
    ppo_loss,
    returns,
    standardised,
    start,
    train,
)

TINY = PlayerSizes((4, 4), (3, 3), (2, 1), 8)
A2C = ActorCriticSettings(games=3, steps=4, network=TINY, frames=2)
PPO = replace(A2C, learner="ppo", epochs=2, parts=3, trace=0.9)


def test_the_return_of_n_steps_stops_where_an_episode_ends():
    rewards = torch.tensor([[1.0, 0.0], [0.0, 2.0], [4.0, 0.0]])
    ended = torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    values = torch.tensor([[9.0, 9.0], [9.0, 9.0], [9.0, 9.0], [8.0, 6.0]])
    found = returns(rewards, ended, values, replace(A2C, discount=0.5, trace=1.0))
    assert found.tolist() == [[1 + 0.25 * 4 + 0.125 * 8, 0.5 * 2], [0.5 * 4 + 0.25 * 8, 2], [4 + 0.5 * 8, 0.5 * 6]]


def test_generalised_advantages_are_discounted_surprises():
    rewards, ended = torch.tensor([[1.0], [2.0]]), torch.zeros(2, 1)
    values = torch.tensor([[3.0], [4.0], [5.0]])
    found = returns(rewards, ended, values, replace(A2C, discount=0.5, trace=0.25))
    last = 2 + 0.5 * 5 - 4
    assert found[:, 0].tolist() == [3 + (1 + 0.5 * 4 - 3) + 0.5 * 0.25 * last, 4 + last]


def batch() -> tuple[torch.Tensor, torch.Tensor, Rollout]:
    logits = torch.tensor([[0.0, 0.0], [np.log(3.0), 0.0]], dtype=torch.float32)
    before = torch.tensor([[np.log(3.0), 0.0], [0.0, 0.0]], dtype=torch.float32).log_softmax(1)
    columns = [torch.tensor(column) for column in ([0, 0], [1.0, 0.0], [3.0, 0.5], [2.0, -0.75])]
    kept = Rollout(torch.zeros(2), columns[0], before[:, 0], *columns[1:])
    return logits, torch.tensor([2.0, 1.0]), kept


def test_the_loss_of_a2c_by_hand():
    logits, values, kept = batch()
    policy = -(1.0 * np.log(0.5) + -0.5 * np.log(0.75)) / 2
    entropy = (np.log(2) - 0.75 * np.log(0.75) - 0.25 * np.log(0.25)) / 2
    expected = policy + 0.5 * (1.0 + 0.25) / 2 - 0.01 * entropy
    assert float(a2c_loss(logits, values, kept, A2C)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_loss_of_ppo_by_hand(sign: int):
    """With one sign both steps move freely, with the other both meet a bound, the lower and the upper one."""
    logits, values, kept = batch()
    settings = replace(PPO, clip=0.1)
    advantages = sign * np.array([2.0, -0.75])
    kept = kept._replace(advantages=torch.tensor(advantages).float())
    ratio = np.array([0.5 / 0.75, 0.75 / 0.5])
    policy = -np.minimum(ratio * advantages, ratio.clip(0.9, 1.1) * advantages).mean()
    near = np.array([1 + 0.1, 0 + 0.1])
    errors = np.maximum([1.0, 0.25], (near - np.array([3.0, 0.5])) ** 2).mean()
    entropy = (np.log(2) - 0.75 * np.log(0.75) - 0.25 * np.log(0.25)) / 2
    assert float(ppo_loss(logits, values, kept, settings)) == pytest.approx(
        policy + 0.5 * errors - 0.01 * entropy, rel=1e-5
    )


def test_advantages_are_brought_to_one_scale_over_all_steps_before_these_are_divided(monkeypatch):
    found = []
    monkeypatch.setitem(
        actor_critic.LOSSES, "ppo", lambda *given: (found.append(given[2].advantages), ppo_loss(*given))[1]
    )
    trainer = start("bricks", 0, replace(PPO, games=8, steps=8, parts=4, epochs=1), 64)
    trainer.update()
    assert [len(part) for part in found] == [16] * 4
    whole = torch.cat(found)
    assert (float(whole.mean()), float(whole.std())) == pytest.approx((0, 1), abs=1e-3)
    assert max(abs(float(part.mean())) for part in found) > 0.05  # a part by itself has another mean
    assert standardised(torch.tensor([1.0, 3.0])).tolist() == pytest.approx([-(0.5**0.5), 0.5**0.5], rel=1e-4)


def test_the_optimizers_are_those_of_reference_33():
    a2c, ppo = (start("bricks", 0, settings, 48).optimizer for settings in (A2C, PPO))
    assert (type(a2c), type(ppo)) == (torch.optim.RMSprop, torch.optim.Adam)
    assert (a2c.defaults["alpha"], a2c.defaults["eps"], ppo.defaults["eps"]) == (0.99, 1e-5, 1e-5)


@pytest.mark.parametrize("norm", [1e-3, 1e-2])
def test_a_longer_gradient_is_shortened(norm, monkeypatch):
    trainer, lengths = start("bricks", 0, replace(A2C, norm=norm), 48), []

    def measure():
        gradients = [weight.grad.flatten() for weight in trainer.network.parameters()]
        lengths.append(float(torch.cat(gradients).norm()))

    monkeypatch.setattr(trainer.optimizer, "step", measure)
    trainer.update()
    assert lengths == [pytest.approx(norm, rel=1e-3)]


def test_the_network_is_that_of_reference_33():
    torch.manual_seed(0)
    network = ActorCritic(4, 84, 4)
    shapes = [tuple(layer.weight.shape) for layer in prunable(network)]
    assert shapes == [(32, 4, 8, 8), (64, 32, 4, 4), (32, 64, 3, 3), (512, 1568), (4, 512), (1, 512)]
    logits, values = network(torch.zeros(2, 4, 84, 84, dtype=torch.uint8))
    assert (logits.shape, values.shape) == ((2, 4), (2,))
    gram = network.hidden.weight @ network.hidden.weight.T
    assert torch.allclose(gram, 2 * torch.eye(512), atol=1e-4)
    for layer, gain in ((network.actor, 0.01), (network.critic, 1.0)):
        gram = layer.weight @ layer.weight.T
        assert torch.allclose(gram, gain**2 * torch.eye(len(gram)), atol=1e-6)
    with pytest.raises(BadInput, match="leave no pixel"):
        ActorCritic(4, 5, 4)
    with pytest.raises(BadInput, match="as many as the convolutions, at least 1"):
        PlayerSizes((), (), ())


@pytest.mark.parametrize(
    ("dtype", "wide"),
    [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)],
)
def test_the_network_computes_in_the_type_of_its_weights_and_answers_in_float32_or_wider(dtype, wide):
    network = ActorCritic(4, 36, 3).to(dtype)
    logits, values = network(torch.full((2, 4, 36, 36), 200, dtype=torch.uint8))
    assert (logits.dtype, values.dtype) == (wide, wide)


def rows(settings: ActorCriticSettings, folder=None, on_progress=lambda: None, total=48) -> list[dict]:
    trainer = start("bricks", 1, settings, total)

    def report() -> dict:
        return {"weights": sum(float(weight.detach().sum()) for weight in trainer.network.parameters())}

    return train(trainer, 12, report, folder, on_progress)


@pytest.mark.parametrize("settings", [A2C, PPO])
def test_a_training_that_was_stopped_goes_on_to_the_same_numbers(settings, tmp_path):
    class Stopped(Exception):
        pass

    def impatient():
        impatient.calls += 1
        if impatient.calls == 2:
            raise Stopped

    impatient.calls = 0
    whole = rows(settings)
    assert len({row["weights"] for row in whole}) == 4
    with pytest.raises(Stopped):
        rows(settings, tmp_path, impatient)
    assert rows(settings, tmp_path) == whole
    with pytest.raises(BadInput, match="session with other settings"):
        rows(replace(settings, entropy=0.1), tmp_path)


def test_a_training_is_stopped_between_two_rows_and_loses_nothing(tmp_path):
    class Stopped(Exception):
        pass

    def stop_at_36():  # a row is made every 24 steps, an update has 12
        if trainer.steps == 36:
            raise Stopped

    def report():
        return {"weights": sum(float(weight.detach().sum()) for weight in trainer.network.parameters())}

    trainer = start("bricks", 1, A2C, 48)
    whole = train(trainer, 24, report)
    trainer = start("bricks", 1, A2C, 48)
    with pytest.raises(Stopped):
        train(trainer, 24, report, tmp_path, check=stop_at_36)
    trainer, played = start("bricks", 1, A2C, 48), []
    assert train(trainer, 24, report, tmp_path, check=lambda: played.append(trainer.steps)) == whole
    assert played == [48]


def test_a_report_that_is_interrupted_loses_no_row(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints, "SAVE_SECONDS", 0)

    def report():
        report.calls += 1
        if report.calls == 2:
            raise KeyboardInterrupt
        return {}

    report.calls = 0
    with pytest.raises(KeyboardInterrupt):
        train(start("bricks", 1, A2C, 48), 12, report, tmp_path)
    found = train(start("bricks", 1, A2C, 48), 12, report, tmp_path)
    assert [row["step"] for row in found] == [12, 24, 36, 48]


def test_the_rate_falls_along_a_line_where_it_is_asked_to():
    assert not ActorCriticSettings().decay  # reference 33 has it for PPO alone
    trainer = start("bricks", 0, replace(A2C, learning_rate=0.1, decay=True), 48)
    seen = []
    for _ in range(4):
        trainer.update()
        seen.append(trainer.optimizer.param_groups[0]["lr"])
    assert seen == pytest.approx([0.1, 0.075, 0.05, 0.025])


def test_the_callback_is_called_after_each_update():
    class Counting:
        def __init__(self):
            self.calls = []

        def step(self, step):
            self.calls.append(step)

    trainer = start("bricks", 0, A2C, 48)
    trainer.callback = Counting()
    for _ in range(3):
        trainer.update()
    assert trainer.callback.calls == [1, 2, 3]


def test_an_action_is_drawn_by_its_chance(monkeypatch):
    trainer = start("bricks", 0, replace(A2C, games=1, steps=1), 48)
    chances = torch.tensor([[0.2, 0.5, 0.3]])
    pressed = []
    monkeypatch.setattr(trainer, "_ask", lambda frames: (chances.log(), torch.zeros(1)))
    monkeypatch.setattr(
        trainer.games, "step", lambda actions: (pressed.extend(actions), np.zeros((2, 1), np.float32))[1]
    )
    for _ in range(2000):
        trainer._play()
    assert np.bincount(pressed) / 2000 == pytest.approx([0.2, 0.5, 0.3], abs=0.03)


def test_a_coin_that_pays_is_learned(monkeypatch):
    """The button that the picture shows gives a point: a network that learns presses it nearly always."""

    class Coin:
        actions = 2

        def __init__(self, seed):
            self.draws = np.random.default_rng(seed)
            self.begin()

        def begin(self):
            self.side = int(self.draws.integers(2))
            self.frame = np.full((8, 8), 255 * self.side, np.uint8)
            return [0.0]

        def step(self, action):
            points = 1.0 if action == self.side else -1.0
            self.begin()
            return points, True, True

    monkeypatch.setattr("lib.data.games.make", lambda name, seed: Coin(seed))
    for settings in (A2C, replace(PPO, parts=2)):
        settings = replace(settings, games=8, learning_rate=0.01, decay=False, frames=1)
        trainer = start("coin", 0, settings, 10**6)
        for _ in range(60):
            trainer.update()
        assert trainer.earned(200) > 0.8


def test_what_cannot_be_is_refused():
    for change, line in (
        ({"learner": "a3c"}, "learner 'a3c': known are a2c, ppo"),
        ({"games": 0}, "actor_critic: games=0: expected a whole number, at least 1"),
        ({"steps": 2.5}, "actor_critic: steps=2.5: expected a whole number, at least 1"),
        ({"discount": 1.5}, r"discount=1.5 is not in \(0, 1\]"),
        ({"trace": -0.1}, r"trace=-0.1 is not in \[0, 1\]"),
        ({"parts": 5, "learner": "ppo"}, "3 games of 4 steps"),
        ({"epochs": 4}, "epochs=4, parts=1: A2C learns from the same steps once, all in one part; expected 1 of each"),
        ({"parts": 2}, "epochs=1, parts=2: A2C learns"),
        ({"precision": "int4"}, "precision='int4': known are"),
        ({"value": math.nan}, r"value=nan is not in \[0, inf\)"),
        ({"entropy": -1.0}, r"entropy=-1.0 is not in \[0, inf\)"),
        ({"norm": 0.0}, r"norm=0.0 is not in \(0, inf\]"),
        ({"clip": -1.0}, r"clip=-1.0 is not in \(0, inf\]"),
        ({"learner": "ppo", "games": 1, "steps": 1}, "PPO compares the advantages of two or more steps"),
    ):
        with pytest.raises(BadInput, match=line):
            replace(A2C, **change)
    for every in (10, 0, -12):
        with pytest.raises(BadInput, match=f"every={every} must be a multiple of 12 above 0"):
            train(start("bricks", 0, A2C, 48), every, dict)
    for change, given in (
        ({"strides": (2, 0)}, r"strides\[1\]=0"),
        ({"channels": (4, -1)}, r"channels\[1\]=-1"),
        ({"kernels": (0.5, 3)}, r"kernels\[0\]=0.5"),
        ({"hidden": 0}, "hidden=0"),
    ):
        with pytest.raises(BadInput, match=f"network: {given}: expected a whole number, at least 1"):
            replace(TINY, **change)
    assert actor_critic.LOSSES.keys() == {"a2c", "ppo"}


def test_a_session_of_another_network_or_with_other_rows_is_refused_and_nothing_is_loaded(tmp_path):
    train(start("bricks", 0, A2C, 24), 12, dict, tmp_path)
    with pytest.raises(BadInput, match=r"\(every\)"):
        train(start("bricks", 0, A2C, 24), 24, dict, tmp_path)

    def pruned(network):
        pruners.attach(network, {layer.name: torch.ones_like(layer.weight) > 0 for layer in prunable(network)})

    other = start("bricks", 0, A2C, 24, prepare=pruned)
    before = {name: tensor.clone() for name, tensor in other.network.state_dict().items()}
    with pytest.raises(BadInput, match=r"\(network\)"):
        train(other, 12, dict, tmp_path)
    assert all(torch.equal(tensor, before[name]) for name, tensor in other.network.state_dict().items())


def test_the_critic_of_a2c_learns_from_its_errors_alone():
    logits, values = torch.randn(6, 3, requires_grad=True), torch.randn(6, requires_grad=True)
    actions, returns = torch.tensor([0, 1, 2, 0, 1, 2]), torch.randn(6)
    batch = Rollout(torch.zeros(6), actions, torch.zeros(6), values.detach(), returns, torch.zeros(6))
    a2c_loss(logits, values, batch, ActorCriticSettings(value=0.5)).backward()
    torch.testing.assert_close(values.grad, 0.5 * 2 * (values.detach() - returns) / 6)


def test_each_game_of_a_training_has_a_seed_of_its_own(monkeypatch):

    seen = []

    class Stop(Exception):
        pass

    def games(game, seeds, frames):
        seen.append(tuple(seeds))
        raise Stop

    monkeypatch.setattr(actor_critic, "Games", games)
    for seed in (0, 1):
        with pytest.raises(Stop):
            actor_critic.start("catch", seed, ActorCriticSettings(games=8), 1000)
    assert len({*seen[0], *seen[1]}) == 16
