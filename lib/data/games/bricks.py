"""Play a small game of the kind of Breakout, for the quick scale: a paddle, a ball and a wall, on 10 x 10 pixels."""

from __future__ import annotations

import numpy as np

from lib.base import refuse_uncounted

SIZE, PADDLE, LIVES, LIMIT = 10, 3, 3, 300
WALL = slice(1, 3)  # the rows that are bricks at first
STAY, LEFT, RIGHT = range(3)
BALL, BAT, BRICK = 255, 200, 128


class Bricks:
    """Move a ball by one pixel a step along a diagonal; a brick that it hits is gone and earns a point. Where it
    bounces up or down it moves sideways only, and may then lie on a brick that stays.

    The ball comes back from the sides, from above, from bricks and from the paddle in the last row, which moves by one
    pixel a step. To be learned within seconds the game also gives a point for each ball that the paddle returns, which
    no game of Atari's does. Where the ball meets no paddle a life is lost, and a new ball starts below the wall. A wall
    without bricks is built again. The game is over after the last life, or after LIMIT steps.

    Args:
        seed: of the places and directions of new balls.

    Raises:
        BadInput: a seed below 0.
    """

    actions = 3

    def __init__(self, seed: int):
        refuse_uncounted(0, seed=seed)
        self.draws = np.random.default_rng(seed)
        self.over = True
        self.wall = np.zeros((WALL.stop - WALL.start, SIZE), bool)
        self.lives, self.steps, self.paddle = 0, 0, 0
        self.ball, self.way = (0, 0), (1, 1)

    def begin(self) -> list[float]:
        """Start a new ball; after the game's end a new wall and all lives. No step passes, so there are no points."""
        if self.over:
            self.wall[:], self.lives, self.steps, self.over = True, LIVES, 0, False
            self.paddle = int(self.draws.integers(SIZE - PADDLE + 1))
        self.ball = WALL.stop, int(self.draws.integers(SIZE))
        self.way = 1, int(self.draws.choice([-1, 1]))
        return [0.0]

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Move the paddle, then the ball: points, whether a life was lost, whether the game is over."""
        self.paddle = min(max(self.paddle + (action == RIGHT) - (action == LEFT), 0), SIZE - PADDLE)
        self.steps += 1
        (row, column), (down, right) = self.ball, self.way
        if not 0 <= column + right < SIZE:
            right = -right
        column += right
        if row + down < 0:
            down = 1
        points, lost = 0.0, False
        if WALL.start <= row + down < WALL.stop and self.wall[row + down - WALL.start, column]:
            self.wall[row + down - WALL.start, column] = False
            points, down = 1.0, -down
        elif row + down == SIZE - 1 and self.paddle <= column < self.paddle + PADDLE:
            points, down = 1.0, -1
        elif row + down == SIZE - 1:
            lost = True
        else:
            row += down
        self.ball, self.way = (row, column), (down, right)
        if not self.wall.any():
            self.wall[:] = True
        self.lives -= lost
        self.over = self.lives == 0 or self.steps == LIMIT
        return points, lost, self.over

    @property
    def frame(self) -> np.ndarray:
        """Draw what is seen now, uint8 [10, 10]."""
        picture = np.zeros((SIZE, SIZE), np.uint8)
        picture[WALL][self.wall] = BRICK
        picture[-1, self.paddle : self.paddle + PADDLE] = BAT
        picture[self.ball] = BALL
        return picture

    def state_dict(self) -> dict:
        """Give all that the future of the game depends on."""
        return {
            "random": self.draws.bit_generator.state,
            "wall": self.wall.tolist(),
            "rest": [self.over, self.lives, self.steps, self.paddle, *self.ball, *self.way],
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""
        self.draws.bit_generator.state = content["random"]
        self.wall[:] = content["wall"]
        self.over, self.lives, self.steps, self.paddle, row, column, down, right = content["rest"]
        self.ball, self.way = (row, column), (down, right)
