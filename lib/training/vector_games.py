"""Play games side by side, as a learner sees them: the last frames of each, and rewards of at most one point."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from lib.base import BadInput
from lib.data import games


class Games:
    """Play games of one kind side by side.

    An episode of the learner ends with each life, so that losing one counts; the score of a game counts all its lives.
    Where one ends the next begins within the same step, and the frames of before are gone.

    Args:
        name: of the game, see `games.make`.
        seeds: one a game.
        frames: how many of the last frames are seen at once.

    Attributes:
        seen: what each game shows now, uint8 [game, frames, side, side], the newest frame last.
        scores: of the games that have ended, in their order.
    """

    def __init__(self, name: str, seeds: Sequence[int], frames: int = 4):
        self.name = name
        self.games = [games.make(name, seed) for seed in seeds]
        self.actions = self.games[0].actions
        self.running, self.scores = np.zeros(len(self.games)), []
        for place in range(len(self.games)):
            self._begin(place)
        side = self.games[0].frame.shape[0]
        self.seen = np.zeros((len(self.games), frames, side, side), np.uint8)
        self.seen[:, -1] = [game.frame for game in self.games]

    def step(self, actions: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Press a button in each game: rewards -1, 0 or 1, and whether an episode has ended, float32 [game] each."""
        rewards, ended = np.zeros((2, len(self.games)), np.float32)
        for place, (game, action) in enumerate(zip(self.games, actions, strict=True)):
            points, lost, over = game.step(int(action))
            rewards[place] = np.sign(points)
            self.running[place] += points
            if over:
                self.scores.append(float(self.running[place]))
                self.running[place] = 0
            if lost or over:
                ended[place] = 1
                self.seen[place] = 0
                self._begin(place)
            self.seen[place, :-1] = self.seen[place, 1:]
            self.seen[place, -1] = game.frame
        return rewards, ended

    def _begin(self, place: int) -> None:
        """Begin a life or a game. What is earned in the frames that pass there counts in scores and is no reward, as
        nobody chose these buttons; reference 33 has it so, too.
        """
        first, *others = self.games[place].begin()
        self.running[place] += first
        for points in others:  # the game before has ended within these frames
            self.scores.append(float(self.running[place]))
            self.running[place] = points

    def state_dict(self) -> dict:
        """Give all that the future of the games depends on."""
        return {
            "games": [game.state_dict() for game in self.games],
            "seen": torch.from_numpy(self.seen.copy()),
            "running": self.running.tolist(),
            "scores": self.scores,
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""
        for game, state in zip(self.games, content["games"], strict=True):
            game.load_state_dict(state)
        self.seen[:] = content["seen"].numpy()
        self.running[:] = content["running"]
        self.scores = list(content["scores"])


def film(
    act: Callable[[np.ndarray], int], name: str, times: Sequence[int], seed: int = 0, frames: int = 4
) -> tuple[list[np.ndarray], float]:
    """Play one game and keep what is seen at some moments of it.

    Args:
        act: the last frames, uint8 [frames, side, side] -> a button.
        times: after how many steps a picture is taken, ascending; the game's end and those after it are left out.

    Returns:
        The pictures, uint8 [side, side] each, and the score up to the game's end or the last time.

    Raises:
        BadInput: no times, or not in ascending order.
    """
    if not times or list(times) != sorted(times) or times[0] < 0:
        raise BadInput(f"times must be steps of a game in ascending order, these are {list(times)}")
    games, pictures = Games(name, [seed], frames), []
    for step in range(times[-1] + 1):
        if games.scores:  # the next game has begun within the same step, and is what is seen
            break
        if step in times:
            pictures.append(games.seen[0, -1].copy())
        if step == times[-1]:
            break
        games.step([act(games.seen[0])])
    return pictures, games.scores[0] if games.scores else float(games.running[0])
