"""Laws of games of pixels: the project's own by hand, Atari's where they are installed, and states that go on."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from lib.base import BadInput
from lib.data import games
from lib.data.games import atari, bricks

needs_atari = pytest.mark.skipif(not atari.available(), reason="Atari's games need ale-py: pip install ale-py")


def begun(seed: int = 0) -> bricks.Bricks:
    game = bricks.Bricks(seed)
    game.begin()
    return game


def test_a_ball_breaks_bricks_for_a_point_each_and_comes_back():
    game = begun()
    game.ball, game.way = (4, 5), (-1, 1)
    assert game.step(bricks.STAY) == (0.0, False, False)
    assert (game.ball, game.way) == ((3, 6), (-1, 1))
    assert game.step(bricks.STAY)[0] == 1.0
    assert (game.ball, game.way) == ((3, 7), (1, 1))
    assert not game.wall[1, 7]
    assert int(game.wall.sum()) == 2 * bricks.SIZE - 1


def test_the_paddle_returns_the_ball_or_a_life_is_lost():
    game = begun()
    game.paddle, game.ball, game.way = 3, (8, 2), (1, 1)
    assert game.step(bricks.STAY) == (1.0, False, False)
    assert (game.ball, game.way) == ((8, 3), (-1, 1))
    game.paddle, game.ball, game.way = 6, (8, 2), (1, 1)
    assert game.step(bricks.LEFT) == (0.0, True, False)
    assert game.lives == 2
    game.begin()
    assert game.ball[0] == bricks.WALL.stop
    assert game.lives == 2


def test_sides_send_the_ball_back_and_an_empty_wall_is_built_again():
    game = begun()
    game.ball, game.way = (5, bricks.SIZE - 1), (1, 1)
    game.step(bricks.STAY)
    assert (game.ball, game.way) == ((6, bricks.SIZE - 2), (1, -1))
    game.wall[:] = False
    game.wall[1, 4] = True
    game.ball, game.way = (3, 3), (-1, 1)
    assert game.step(bricks.STAY)[0] == 1.0
    assert game.wall.all()


def test_a_game_is_over_after_its_lives_or_its_limit():
    game = begun()
    for left in (2, 1, 0):
        game.paddle, game.ball, game.way = 0, (8, 8), (1, 1)
        assert game.step(bricks.STAY)[1:] == (True, left == 0)
        game.begin()
    assert game.lives == bricks.LIVES
    game.steps = bricks.LIMIT - 1
    assert game.step(bricks.STAY)[2]


def test_the_picture_shows_ball_paddle_and_wall():
    game = begun()
    game.paddle, game.ball = 2, (5, 7)
    frame = game.frame
    assert frame.shape == (bricks.SIZE, bricks.SIZE)
    assert frame[5, 7] == bricks.BALL
    assert (frame[-1, 2:5] == bricks.BAT).all()
    assert (frame[bricks.WALL] == bricks.BRICK).all()
    assert int((frame > 0).sum()) == 1 + bricks.PADDLE + 2 * bricks.SIZE


def played(game: games.Game, steps: int, seed: int) -> list:
    draws, seen = np.random.default_rng(seed), []
    for _ in range(steps):
        points, lost, over = game.step(int(draws.integers(game.actions)))
        seen.append((points, lost, over, game.frame.tobytes()))
        if lost or over:
            game.begin()
    return seen


@pytest.mark.parametrize("name", ["bricks", pytest.param("breakout", marks=needs_atari)])
def test_a_kept_state_goes_on_to_the_same_bytes_in_another_game(name: str):
    game = games.make(name, 3)
    game.begin()
    played(game, 90, 0)
    kept = game.state_dict()
    after = played(game, 150, 1)
    other = games.make(name, 8)
    other.load_state_dict(kept)
    assert played(other, 150, 1) == after
    assert {lost for _, lost, _, _ in after} == {True, False}


@needs_atari
def test_atari_shows_84_grey_pixels_a_side_and_games_begin_at_different_frames():
    one, other = games.make("breakout", 0), games.make("breakout", 1)
    for game in (one, other):
        game.begin()
        assert (game.frame.shape, game.frame.dtype, game.actions) == ((84, 84), np.uint8, 4)
    assert one.emulator.getFrameNumber() != other.emulator.getFrameNumber()
    assert played(one, 20, 0) != played(other, 20, 0)


@needs_atari
def test_a_life_lost_ends_an_episode_but_the_last_one_ends_the_game():
    game = games.make("breakout", 0)
    game.begin()
    ends = [(lost, over) for _, lost, over, _ in played(game, 1200, 2) if lost or over]
    assert (True, False) in ends
    assert (True, True) in ends
    assert all(lost for lost, _ in ends)


def test_areas_are_averaged():
    assert atari.areas(4, 2).tolist() == [[0.5, 0.5, 0, 0], [0, 0, 0.5, 0.5]]
    assert atari.areas(3, 2) == pytest.approx(np.array([[2, 1, 0], [0, 1, 2]]) / 3)
    assert atari.areas(210, 84).sum(1) == pytest.approx(np.ones(84))


def test_without_ale_py_one_line_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(atari, "available", lambda: False)
    with pytest.raises(BadInput, match="breakout is not bricks, and the games of Atari need ale-py"):
        games.make("breakout", 0)


@pytest.mark.parametrize("name", ["bricks", pytest.param("breakout", marks=needs_atari)])
def test_a_seed_below_0_is_refused(name: str):
    with pytest.raises(BadInput, match="seed=-1: expected a whole number, at least 0"):
        games.make(name, -1)


@needs_atari
def test_after_each_beginning_fire_and_the_second_button_of_the_game_are_pressed(monkeypatch):
    game, held = games.make("breakout", 0), []
    hold = game._hold
    monkeypatch.setattr(game, "_hold", lambda button: held.append(button) or hold(button))
    game.begin()
    assert held == [game.buttons[1], game.buttons[2]] == [1, 3]  # of breakout the second one is the emulator's RIGHT


class Emulator:
    """Stand in for ALEInterface: it writes down what it is told, and shows a new shade each frame."""

    def __init__(self):
        self.told, self.pressed, self.shade = {}, [], 0

    def setInt(self, name: str, value: int) -> None:
        self.told[name] = value

    setFloat = setInt

    def act(self, button: int) -> float:
        self.pressed.append(button)
        self.shade = {0: 0, 1: 200, 2: 30, 3: 50}[len(self.pressed) % 4]  # the third of four is dim, the last dimmer
        return 1.0

    def getScreenGrayscale(self, screen: np.ndarray) -> None:
        screen[...] = self.shade

    def __getattr__(self, name: str):
        known = {"getMinimalActionSet": [SimpleNamespace(value=n) for n in (0, 1, 3, 4)], "getScreenDims": (210, 160)}
        return lambda *_, **__: known.get(name, 0)


def test_breakout_is_played_as_reference_33_has_it(monkeypatch):
    """No button sticks, a button is held for four frames, and the picture is the brighter of the last two."""
    ale = SimpleNamespace(ALEInterface=Emulator, LoggerMode=SimpleNamespace(Error=0))
    ale.roms = SimpleNamespace(get_all_rom_ids=lambda: ["breakout", "space_invaders"], get_rom_path=lambda name: name)
    Emulator.setLoggerMode = staticmethod(lambda mode: None)
    monkeypatch.setitem(sys.modules, "ale_py", ale)
    monkeypatch.setattr(atari, "available", lambda: True)
    game = games.make("breakout", 0)
    assert game.emulator.told["repeat_action_probability"] == 0
    assert game.emulator.told["max_num_frames_per_episode"] == 400_000
    assert games.make("space_invaders", 0).emulator.told["max_num_frames_per_episode"] == 300_000
    game.emulator.pressed.clear()
    points, lost, over = game.step(2)
    assert (points, lost, over) == (4.0, False, False)
    assert game.emulator.pressed == [3, 3, 3, 3]  # the third button of Breakout's is the emulator's fourth
    assert (game.frame == 50).all()  # frames three and four are 50 and 0


@needs_atari
def test_an_unknown_game_is_refused():
    with pytest.raises(BadInput, match="no game 'brakeout'; there are: bricks, adventure"):
        games.make("brakeout", 0)


class Held(atari.Atari):
    """Atari's game without an emulator: each button that is held earns a point, and some end the game."""

    fires, buttons = True, [0, 1, 2]

    def __init__(self, ends: list[int], over: bool):
        self.ends, self.over, self.held, self.begun = ends, over, 0, 0

    def _anew(self):
        self.over, self.begun = False, self.begun + 1

    def _hold(self, button):
        self.held += 1
        self.over = self.held in self.ends
        return 1.0


@pytest.mark.parametrize(
    ("ends", "over", "points", "begun"),
    [
        ([], True, [2.0], 1),  # a new game: fire and the second button
        ([], False, [3.0], 0),  # the next life: one more, without a button
        ([2], False, [2.0, 1.0], 1),  # the game ends while fire is held
        ([3], False, [3.0, 0.0], 1),
    ],
)
def test_points_of_a_beginning_are_told_game_by_game(ends, over, points, begun):
    game = Held(ends, over)
    assert game.begin() == points
    assert game.begun == begun
