"""Make games of pixels that an agent plays with a few buttons: `make(name, seed)`.

"bricks" is the project's own and needs nothing. Every other name is one of Atari's games, such as "breakout" or "pong";
they come with `ale-py`, which is an extra of the project, because its licence is GPL-2.0.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

BRICKS = "bricks"


class Game(Protocol):
    """Be one game that can be played for ever; its state can be kept, so that it goes on to the same bytes.

    Attributes:
        actions: how many buttons there are.
        frame: what is seen now, uint8 [height, width].
    """

    actions: int
    frame: np.ndarray

    def begin(self) -> list[float]:
        """Go on after a lost life, or begin anew after the game's end; call it before the first step too.

        Returns:
            The points that come meanwhile; a further number for each game that is begun because one has ended within.
        """

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Press a button: the points that it earned, whether a life was lost, and whether the game is over."""

    def state_dict(self) -> dict:
        """Give all that the future of the game depends on."""

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""


def make(name: str, seed: int) -> Game:
    """Make the game of this name; all that is random in it is drawn from the seed.

    Raises:
        BadInput: a seed below 0, or Atari's games are not installed, or have none of this name.
    """
    if name == BRICKS:
        from lib.data.games.bricks import Bricks

        return Bricks(seed)
    from lib.data.games.atari import Atari

    return Atari(name, seed)
