"""Laws of games that are played side by side: episodes, frames, scores and films, on games of a few lines."""

import numpy as np
import pytest

from lib.base import BadInput
from lib.training.vector_games import Games, film


class Scripted:
    """A game that ends its lives and itself at steps that are known, and shows the number of its step."""

    actions = 2

    def __init__(self, *_):
        self.count = 0

    @property
    def frame(self):
        return np.full((6, 6), self.count, np.uint8)

    def begin(self):
        self.count += 50
        return [0.0]

    def step(self, action):
        self.count += 1
        return 5.0, self.count in (52, 103), self.count == 103


def test_an_episode_ends_with_each_life_its_frames_are_forgotten_and_scores_count_whole_games(monkeypatch):
    monkeypatch.setattr("lib.data.games.make", Scripted)
    games = Games("scripted", [0], frames=3)
    assert games.seen[0, :, 0, 0].tolist() == [0, 0, 50]
    rewards, ended = games.step([0])
    assert (rewards.tolist(), ended.tolist()) == ([1.0], [0.0])  # five points count as one
    assert games.seen[0, :, 0, 0].tolist() == [0, 50, 51]
    assert games.step([0])[1].tolist() == [1.0]
    assert games.seen[0, :, 0, 0].tolist() == [0, 0, 102]
    assert games.scores == []
    games.step([0])
    assert games.scores == [15.0]


class Paid:
    """A game that pays five points a step and is over after its third."""

    actions, frame = 2, np.zeros((6, 6), np.uint8)

    def __init__(self, *_):
        self.count = 0

    def begin(self):
        return [0.0]

    def step(self, action):
        self.count += 1
        return 5.0, False, self.count == 3

    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, content):
        self.count = content["count"]


class Busy(Paid):
    """Its second beginning earns two points, ends the game and earns three of the next one."""

    def begin(self):
        return [0.0] if self.count == 0 else [2.0, 3.0]

    def step(self, action):
        self.count += 1
        return 5.0, self.count == 1, False


def test_what_comes_while_a_life_begins_is_in_the_score_and_is_no_reward(monkeypatch):
    monkeypatch.setattr("lib.data.games.make", Busy)
    games = Games("busy", [0])
    rewards, ended = games.step([0])
    assert (rewards.tolist(), ended.tolist()) == ([1.0], [1.0])
    assert (games.scores, games.running.tolist()) == ([7.0], [3.0])


def test_games_go_on_with_the_points_they_had(monkeypatch):
    monkeypatch.setattr("lib.data.games.make", Paid)
    one, other = Games("paid", [0]), Games("paid", [1])
    one.step([0])
    other.load_state_dict(one.state_dict())
    for _ in range(2):
        other.step([0])
    assert other.scores == [15.0]


def test_a_film_keeps_moments_of_one_game_and_its_score(monkeypatch):
    monkeypatch.setattr("lib.data.games.make", Scripted)
    pictures, score = film(lambda seen: 0, "scripted", [0, 1, 2, 3, 50], frames=2)
    assert [int(picture[0, 0]) for picture in pictures] == [50, 51, 102]  # the game is over after three steps
    assert score == 15.0
    assert film(lambda seen: 0, "scripted", [1])[1] == 5.0
    for times in ([], [3, 1], [-1]):
        with pytest.raises(BadInput, match="ascending order"):
            film(lambda seen: 0, "scripted", times)


def test_a_film_of_a_seed_below_0_is_refused():
    with pytest.raises(BadInput, match="seed=-1: expected a whole number, at least 0"):
        film(lambda seen: 0, "bricks", [0], seed=-1)
