"""Laws of `lib.pruners.schedules`: equation 1 and Algorithm 2 of paper 5, any score and pattern goes with them."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.pruners import Gradual, Once, RewardAware


def test_gradual_is_equation_1_at_each_pruning_and_constant_in_between():
    schedule = Gradual(final=0.8, initial=0.2, start=1000, every=100, times=4)
    written_out = {
        0: 0,
        999: 0,
        1000: 0.2,
        1099: 0.2,
        1100: 0.546875,  # 0.8 - 0.6 (3/4)^3
        1199: 0.546875,
        1200: 0.725,  # 0.8 - 0.6 (2/4)^3
        1300: 0.790625,  # 0.8 - 0.6 (1/4)^3
        1399: 0.790625,
        1400: 0.8,
        10**6: 0.8,
    }
    assert {step: schedule.target(step) for step in written_out} == pytest.approx(written_out)


def test_gradual_never_falls_slows_down_and_ends_at_exactly_its_final_sparsity():
    schedule = Gradual(final=0.95, every=7, times=9)
    targets = [schedule.target(step) for step in range(7 * 9 + 1)]
    jumps = [after - before for before, after in zip(targets[::7], targets[7::7], strict=False)]
    assert targets == sorted(targets)
    assert jumps == sorted(jumps, reverse=True)
    assert targets[-2] < targets[-1] == 0.95


def test_once_is_a_step():
    assert [Once(0.9).target(step) for step in (0, 1, 100)] == [0.9, 0.9, 0.9]
    assert [Once(0.9, at=5).target(step) for step in (0, 4, 5, 6)] == [0, 0, 0.9, 0.9]


def test_these_schedules_do_not_look_at_the_reward():
    for schedule in (Once(0.5, at=3), Gradual(0.5, every=2, times=2)):
        assert [schedule.target(step, reward=-1e9) for step in range(6)] == [schedule.target(step) for step in range(6)]


@pytest.mark.parametrize("value", [-0.1, 1, 1.2, float("nan")])
def test_a_sparsity_outside_0_to_1_is_refused_by_name(value):
    with pytest.raises(BadInput, match=rf"sparsity={value} is not in \[0, 1\)"):
        Once(value)
    with pytest.raises(BadInput, match=rf"final={value} is not in \[0, 1\)"):
        Gradual(value, every=1, times=1)
    with pytest.raises(BadInput, match=rf"initial={value} is not in \[0, 1\)"):
        Gradual(0.5, every=1, times=1, initial=value)


def test_a_ramp_that_does_not_rise_or_has_no_steps_is_refused():
    with pytest.raises(BadInput, match=r"initial=0\.6 is above final=0\.5"):
        Gradual(0.5, every=1, times=1, initial=0.6)
    for wrong in ({"every": 0}, {"times": 0}, {"every": -1}, {"every": float("nan")}, {"times": 2.5}):
        [(name, value)] = wrong.items()
        with pytest.raises(BadInput, match=f"^{name}={value}: expected a whole number, at least 1$"):
            Gradual(0.5, **({"every": 1, "times": 3} | wrong))


def test_a_step_may_be_a_tensor_as_an_optimizer_counts_them():
    assert Once(0.5, at=2).target(torch.tensor(3)) == 0.5
    assert Gradual(0.5, every=1, times=2).target(torch.tensor(2)) == 0.5


def test_weights_pruned_gradually_while_training_do_not_come_back_and_the_last_count_is_exact():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 2))
    inputs, optimizer = torch.randn(32, 10), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = Gradual(final=0.9, every=3, times=5, start=2)
    before = {name: torch.ones_like(score, dtype=torch.bool) for name, score in pruners.magnitude(model).items()}
    for step in range(20):
        target = schedule.target(step)
        masks = pruners.unstructured(pruners.magnitude(model), target, floor=0.05)
        pruners.attach(model, masks)
        assert pruners.sparsity(model) == round(240 * target) / 240
        assert all((mask <= before[name]).all() for name, mask in masks.items())
        before = masks
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    assert pruners.sparsity(model) == 0.9


# Reward-aware


def asked(schedule, rewards, start=0):
    """The targets when asked at each step from `start` on."""
    return [schedule.target(step, reward) for step, reward in enumerate(rewards, start)]


def algorithm_1(rewards, increase, every, start, limit):
    """As printed, line by line: targets after each step."""
    threshold, previous, targets = 0.0, 0.0, []
    for step, new in enumerate(rewards):
        if step % every == 0 and start < step and threshold < limit and new > previous:
            threshold += increase
        if new > previous:
            previous = new
        targets.append(threshold)
    return targets


def test_every_step_is_algorithm_1_as_printed():
    draw = torch.Generator().manual_seed(0)
    rewards = (torch.arange(200) / 20 + torch.randn(200, generator=draw)).tolist()
    schedule = RewardAware(0.125, every=2, start=7, limit=0.5, reference="every_step")
    expected = algorithm_1(rewards, 0.125, 2, 7, 0.5)
    assert asked(schedule, rewards) == expected
    assert expected[-1] == 0.5
    assert expected[7] == 0


def test_what_counts_as_higher_than_before():
    #         a chance: step 2,      4,      6,      8
    rewards = [1, 5, 5, 3, 4, 9, 6, 6, 7, 7]
    ways = {"record": [2], "every_step": [], "pruning": [2, 6, 8]}
    for reference, steps in ways.items():
        targets = asked(RewardAware(0.1, every=2, reference=reference), rewards)
        rises = [step for step in range(1, 10) if targets[step] > targets[step - 1]]
        assert rises == steps, reference


def test_where_rewards_are_measured_at_chances_the_first_two_ways_are_one():
    draw = torch.Generator().manual_seed(0)
    episodes = (1 + 3 * torch.randn(40, generator=draw)).cumsum(0).tolist()
    rewards = [-float("inf")] * 5 + [reward for reward in episodes for _ in range(5)]  # measured at multiples of 5
    one, other = (RewardAware(every=10, reference=name) for name in ("record", "every_step"))
    found = asked(one, rewards)
    assert found == asked(other, rewards)
    assert found[-1] > 0


def test_a_record_counts_once():
    assert asked(RewardAware(0.1, every=1), [0, 5, 5, 5, 6, 6]) == [0, 0.1, 0.1, 0.1, 0.2, 0.2]


def test_nothing_is_pruned_below_the_first_reference_or_without_a_reward_yet():
    inf = float("inf")
    assert asked(RewardAware(0.1, every=1), [-inf, -3, -2, -1]) == [0] * 4
    assert asked(RewardAware(0.1, every=1, initial_reward=-inf), [-inf, -inf, -3, -2]) == [0, 0, 0.1, 0.2]


def test_targets_do_not_drift_and_stop_at_the_limit():
    schedule = RewardAware(0.1, every=1, limit=0.75)
    targets = asked(schedule, range(12))
    assert targets == [0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.75, 0.75, 0.75]
    assert schedule.times == 8  # at the limit it does not prune any more


def test_it_goes_on_from_what_it_remembers():
    rewards = [1, 2, 1, 3, 2, 4]
    whole, first, second = (RewardAware(0.1, every=2) for _ in range(3))
    expected = asked(whole, rewards)
    asked(first, rewards[:3])
    second.load_state_dict(first.state_dict())
    assert asked(second, rewards[3:], start=3) == expected[3:]


def test_a_schedule_asked_without_a_reward_or_with_settings_that_cannot_be_is_refused():
    for reward in (None, float("nan")):
        with pytest.raises(BadInput, match=rf"at step 3 needs a reward \(-inf before the first\), not {reward}"):
            RewardAware().target(3, reward)
    for settings, line in (
        ({"increase": 0.0}, r"increase=0.0 is not in \(0, 1\)"),
        ({"limit": 1.0}, r"limit=1.0 is not in \[0, 1\)"),
        ({"every": 0}, "every=0: expected a whole number, at least 1"),
        ({"start": float("nan")}, "start=nan: expected a whole number, at least 0"),
        ({"reference": "best"}, "reference='best': known are record, every_step, pruning"),
        ({"initial_reward": float("nan")}, "initial_reward is not a number"),
    ):
        with pytest.raises(BadInput, match=line):
            RewardAware(**settings)


def test_each_round_removes_the_same_share_of_what_is_left():
    left = [1 - pruners.Iterative(0.936, 3).target(step) for step in range(5)]
    assert left == pytest.approx([0.4, 0.16, 0.064, 0.064, 0.064])
    assert [pruners.Iterative(0.7, 1).target(step) for step in range(3)] == [0.7] * 3
    with pytest.raises(BadInput, match="rounds=0: expected a whole number, at least 1"):
        pruners.Iterative(0.5, 0)
    with pytest.raises(BadInput, match=r"sparsity=1 is not in \[0, 1\)"):
        pruners.Iterative(1, 2)


def test_reward_aware_prunes_after_its_start_not_at_it():
    schedule = pruners.RewardAware(increase=0.1, every=10, start=20, limit=0.9)
    assert [schedule.target(step, reward) for step, reward in ((10, 1.0), (20, 2.0), (30, 3.0))] == [0, 0, 0.1]


def test_a_reward_that_came_just_before_a_stop_counts_afterwards():
    before = pruners.RewardAware(increase=0.1, every=10, start=0, limit=0.9)
    before.target(9, 5.0)
    after = pruners.RewardAware(increase=0.1, every=10, start=0, limit=0.9)
    after.load_state_dict(before.state_dict())
    assert before.target(10, 4.0) == after.target(10, 4.0) == 0


def test_reward_aware_pruning_takes_no_step_and_no_state_that_cannot_be():
    schedule = RewardAware(0.1, 10)
    for step in ("a", math.nan, -5, math.inf):
        with pytest.raises(BadInput, match="expected how many steps"):
            schedule.target(step, 1.0)
    for wrong in ({"times": -3}, {"highest": math.nan}, {"newest": "high"}):
        with pytest.raises(BadInput):
            schedule.load_state_dict({"highest": 0.0, "newest": 0.0, "times": 1} | wrong)
    schedule.target(10, np.float64(2.0))
    assert {type(value) for value in schedule.state_dict().values()} == {float, int}  # which checkpoints can hold
