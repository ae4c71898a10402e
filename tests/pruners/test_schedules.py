"""Laws of `lib.pruners.schedules`: equation 1 of paper 5, and that any score and pattern go with it."""

import pytest
import torch
from torch import nn

from lib import pruners
from lib.errors import BadInput
from lib.pruners import Gradual, Once


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
    for every, times in ((0, 1), (1, 0), (-1, 3)):
        with pytest.raises(BadInput, match=rf"every={every}, times={times}\): both must be at least 1"):
            Gradual(0.5, every, times)


def test_weights_pruned_gradually_while_training_do_not_come_back_and_the_last_count_is_exact():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 2))
    inputs, optimizer = torch.randn(32, 10), torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    schedule = Gradual(final=0.9, every=3, times=5, start=2)
    before = {name: torch.ones_like(score, dtype=torch.bool) for name, score in pruners.magnitude(model).items()}
    for step in range(20):
        target = schedule.target(step)
        masks = pruners.unstructured(pruners.magnitude(model), target)
        pruners.attach(model, masks)
        assert pruners.sparsity(model) == round(240 * target) / 240
        assert all((mask <= before[name]).all() for name, mask in masks.items())
        before = masks
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
    assert pruners.sparsity(model) == 0.9
