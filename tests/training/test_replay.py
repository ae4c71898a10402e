"""The replay buffer: what it keeps, and in which order it gives it back."""

import torch

from lib.training.replay import Replay


def test_the_buffer_keeps_the_latest():
    replay = Replay(2, 3, (1, 1))
    for i in range(5):
        replay.add(torch.tensor([[i, 10 * i], [-i, 0]], dtype=torch.float32))
        assert len(replay) == min(i + 1, 3)
    first, second = replay.rows[:, :, :1], replay.rows[:, :, 1:]
    assert first.squeeze(2).tolist() == [[3, 4, 2], [-3, -4, -2]]
    assert second[0].ravel().tolist() == [30, 40, 20]
    assert replay.since(3)[:, 0, 0].tolist() == [3, 4]
