"""Play Atari's games as the paper's reference 33 does (Gym's NoFrameskip-v4 with OpenAI's wrappers).

This is the one place that imports `ale-py`. Its licence is GPL-2.0, so it is an extra of the project:
`pip install ale-py`.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch

from lib.base import BadInput, refuse_uncounted

SKIP = 4  # frames that a button is held; the picture is the brighter of the last two, because sprites flicker
SIDE = 84
WAITS = 30  # at most so many frames pass before a new game is played
STICKY = 0.0  # the chance that the emulator repeats the last button instead; 0 as in NoFrameskip-v4
FRAMES = 400_000  # after which a game is over, as in NoFrameskip-v4, which has fewer for one game:
FEWER = {"space_invaders": 300_000}
NOTHING, FIRE = 0, 1  # buttons by their numbers in the emulator
SECOND = 2  # a place among the game's own buttons, whichever lies there: reference 33 presses it after FIRE


def available() -> bool:
    """Say whether `ale-py` is installed."""
    try:
        import ale_py  # noqa: F401
    except ImportError:
        return False
    return True


class Atari:
    """Play one game in the emulator.

    A step holds a button for four frames. After a lost life the game goes on; a new game begins with 1 to 30 frames of
    doing nothing. Where there is a button to fire it is pressed after each beginning, because nothing happens without,
    and then the game's next button, as reference 33 does. What is seen are 84 x 84 grey pixels, each the mean of the
    area that it covers.

    Args:
        name: of the game, such as "breakout".
        seed: of the emulator, and of how many frames pass before a new game.

    Raises:
        BadInput: a seed below 0, or `ale-py` is not installed, or has no such game.
    """

    def __init__(self, name: str, seed: int):
        refuse_uncounted(0, seed=seed)
        if not available():
            raise BadInput(f"{name} is not bricks, and the games of Atari need ale-py (GPL-2.0): pip install ale-py")
        from ale_py import ALEInterface, LoggerMode, roms

        if name not in (known := roms.get_all_rom_ids()):
            raise BadInput(f"no game {name!r}; there are: bricks, {', '.join(sorted(known))}")
        ALEInterface.setLoggerMode(LoggerMode.Error)
        self.emulator = ALEInterface()
        self.emulator.setInt("random_seed", seed % 2**31)
        self.emulator.setFloat("repeat_action_probability", STICKY)
        self.emulator.setInt("max_num_frames_per_episode", FEWER.get(name, FRAMES))
        self.emulator.loadROM(roms.get_rom_path(name))
        self.buttons = [button.value for button in self.emulator.getMinimalActionSet()]
        self.fires = len(self.buttons) >= 3 and self.buttons[1] == FIRE
        self.actions = len(self.buttons)
        self.draws = np.random.default_rng(seed)
        self.screens = np.zeros((2, *self.emulator.getScreenDims()), np.uint8)
        self.frame, self.over = np.zeros((SIDE, SIDE), np.uint8), True

    def begin(self) -> list[float]:
        """Begin anew after the game's end, else go on with the next life.

        Returns:
            The points of the frames that pass here, in order: of the game that is played on or begun, then of each that
            is begun because the one before has ended within them.
        """
        points = [0.0]
        if self.over:
            self._anew()
        else:
            points[-1] += self._hold(NOTHING)
        for button in (FIRE, SECOND) if self.fires else ():
            if self.over:
                self._anew()
                points.append(0.0)
            points[-1] += self._hold(self.buttons[button])
        if self.over:
            self._anew()
            points.append(0.0)
        return points

    def step(self, action: int) -> tuple[float, bool, bool]:
        """Hold a button for four frames: points, whether a life was lost, whether the game is over."""
        lives = self.emulator.lives()
        points = self._hold(self.buttons[action])
        return points, self.over or 0 < self.emulator.lives() < lives, self.over

    def _anew(self) -> None:
        self.emulator.reset_game()
        self.over = False
        for _ in range(int(self.draws.integers(1, WAITS + 1))):
            self.emulator.act(NOTHING)
        self.screens[0] = 0
        self.emulator.getScreenGrayscale(self.screens[1])
        self._see()

    def _hold(self, button: int) -> float:
        points = 0.0
        for frame in range(SKIP):
            points += self.emulator.act(button)
            if frame >= SKIP - 2:
                self.emulator.getScreenGrayscale(self.screens[frame - SKIP + 2])
            self.over = bool(self.emulator.game_over())
            if self.over:
                break
        self._see()
        return points

    def _see(self) -> None:
        height, width = self.screens.shape[1:]
        brighter = self.screens.max(0).astype(np.float32)
        self.frame = np.rint(areas(height, SIDE) @ brighter @ areas(width, SIDE).T).astype(np.uint8)

    def state_dict(self) -> dict:
        """Give all that the future of the game depends on, the emulator's random numbers too."""
        kept = self.emulator.cloneState(include_rng=True).serialize()
        return {
            "emulator": torch.frombuffer(bytearray(kept), dtype=torch.uint8),
            "random": self.draws.bit_generator.state,
            "screens": torch.from_numpy(self.screens.copy()),
            "frame": torch.from_numpy(self.frame.copy()),
            "over": self.over,
        }

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""
        from ale_py import ALEState

        self.emulator.restoreState(ALEState(content["emulator"].numpy().tobytes()))
        self.draws.bit_generator.state = content["random"]
        self.screens[:] = content["screens"].numpy()
        self.frame, self.over = content["frame"].numpy().copy(), content["over"]


@cache
def areas(pixels: int, fewer: int) -> np.ndarray:
    """Compute the matrix that averages a row of pixels over the areas of fewer ones, float32 [fewer, pixels]."""
    edges = np.linspace(0, pixels, fewer + 1)[:, None]
    left = np.arange(pixels)
    overlap = np.minimum(edges[1:], left + 1) - np.maximum(edges[:-1], left)
    return (overlap.clip(min=0) * fewer / pixels).astype(np.float32)
