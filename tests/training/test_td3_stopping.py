"""Stop a stack of TD3 anywhere and go on: the same numbers, and a damaged or another session is named."""

from dataclasses import replace

import numpy as np
import pytest

from lib.base import BadInput
from lib.training import checkpoints, td3
from lib.training.vector_environments import Environments
from tests.training.small_td3 import SMALL, equal, trainer


@pytest.mark.parametrize("env", ["HalfCheetah-v4", "Walker2d-v4", "Humanoid-v4"])
def test_environments_go_on_bit_for_bit_over_the_end_of_an_episode(env):
    one, other = Environments(env, [0, 1]), Environments(env, [2, 3])
    draw, ends = np.random.default_rng(0), 0

    def actions():
        return draw.uniform(-one.bound, one.bound, (2, len(one.bound))).astype(np.float32)

    for _ in range(990 if env == "HalfCheetah-v4" else 12):
        one.step(actions())
    other.load_state_dict(one.state_dict())
    assert np.array_equal(one.observations, other.observations)
    for _ in range(60):
        chosen = actions()
        found, expected = other.step(chosen), one.step(chosen)
        assert all(np.array_equal(*pair) for pair in zip(found, expected, strict=True))
        assert np.array_equal(one.observations, other.observations)
        ends += (expected[2] | expected[3]).sum()
    assert ends >= 2


@pytest.mark.parametrize("env", ["Hopper-v4", "HalfCheetah-v4"])
def test_a_stopped_session_goes_on_bit_for_bit(env, tmp_path, monkeypatch):
    whole = trainer(env, (0, 1))
    td3.train(whole, 150)

    def stop(now):
        if now.steps == 131:
            raise InterruptedError

    first = trainer(env, (0, 1))
    td3.train(first, 20, folder=tmp_path)  # before learning
    second = trainer(env, (0, 1))
    with pytest.raises(InterruptedError):
        td3.train(second, 150, stop, tmp_path)  # the buffer of 70 has gone round
    with (tmp_path / td3.LOG).open("ab") as log:
        log.write(b"of a session that was killed while it wrote")
    third = trainer(env, (0, 1))
    monkeypatch.setattr(checkpoints, "SAVE_SECONDS", 0)
    td3.train(third, 150, folder=tmp_path)
    assert third.steps == 150
    assert all(equal(whole, run, third, run) for run in (0, 1))


def test_a_stack_that_is_kept_in_another_folder_begins_a_new_log_there(tmp_path):
    whole, moved = trainer("Hopper-v4"), trainer("Hopper-v4")
    td3.train(whole, 90)
    td3.train(moved, 10, folder=tmp_path / "a")
    td3.train(moved, 80, folder=tmp_path / "b")  # the buffer of 70 has gone round
    resumed = trainer("Hopper-v4")
    td3.train(resumed, 90, folder=tmp_path / "b")
    assert equal(whole, 0, resumed, 0)
    (tmp_path / "b" / td3.LOG).unlink()
    resumed.save(tmp_path / "b")
    again = trainer("Hopper-v4")
    again.load(tmp_path / "b")
    assert equal(whole, 0, again, 0)


def test_another_session_is_refused(tmp_path):
    td3.train(trainer("Hopper-v4"), 5, folder=tmp_path)
    for other in (trainer("Hopper-v4", (1,)), trainer("Hopper-v4", settings=replace(SMALL, tau=0.1))):
        with pytest.raises(BadInput, match=r"is a session with other settings \((seeds|settings)\): move it away"):
            td3.train(other, 9, folder=tmp_path)


def test_fewer_steps_than_the_folder_has_are_refused(tmp_path):
    td3.train(trainer("Hopper-v4"), 5, folder=tmp_path)
    with pytest.raises(BadInput, match="has been trained for 5 steps already, more than the 4 asked for"):
        td3.train(trainer("Hopper-v4"), 4, folder=tmp_path)
    again = trainer("Hopper-v4")
    td3.train(again, 5, folder=tmp_path)
    assert again.steps == 5


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGES = {
    "state": (td3.STATE, flipped, "wrong checksum"),
    "a bit of the log": (td3.LOG, flipped, "wrong checksum of steps"),
    "zeros for the log": (td3.LOG, lambda log: log.write_bytes(bytes(log.stat().st_size)), "wrong checksum of steps 1"),
    "the log's end": (td3.LOG, lambda log: log.write_bytes(log.read_bytes()[:-1]), "it ends before step 5"),
    "the log": (td3.LOG, lambda log: log.unlink(), "it is gone"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_session_is_named_and_starts_anew(tmp_path, damage, capsys):
    undisturbed = trainer("Hopper-v4")
    td3.train(undisturbed, 9)
    td3.train(trainer("Hopper-v4"), 5, folder=tmp_path)
    name, spoil, why = DAMAGES[damage]
    spoil(tmp_path / name)
    again = trainer("Hopper-v4")
    td3.train(again, 9, folder=tmp_path)
    said = capsys.readouterr().err
    assert said.startswith(f"{tmp_path / name} is damaged ({why}")
    assert said.endswith("its run starts anew\n")
    assert equal(undisturbed, 0, again, 0)
