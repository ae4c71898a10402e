"""Draw an agent's episode as pictures without a graphics card: where the parts of its body are, seen from the side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mujoco
import numpy as np

from lib.base import BadInput
from lib.data.environments import make


def film(
    act: Callable[[np.ndarray], np.ndarray], env: str, times: Sequence[int], seed: int = 0
) -> tuple[list[np.ndarray], float]:
    """Play one episode and keep some moments of it.

    Args:
        act: observations [n, o] -> actions [n, a].
        env: Gymnasium's name of a MuJoCo environment, such as "Hopper-v4".
        times: after how many steps a picture is taken, ascending; those after the episode's end are left out.

    Returns:
        The pictures, each [part, 5]: both ends (x, z, x, z) and the radius of each capsule of the body, in metres; and
        the return of the episode up to its end or the last time.

    Raises:
        BadInput: no times, or not in ascending order; no such environment.
    """
    if not times or list(times) != sorted(times) or times[0] < 0:
        raise BadInput(f"times must be steps of an episode in ascending order, these are {list(times)}")
    game = make(env)
    observation, _ = game.reset(seed=seed)
    pictures, total, over = [], 0.0, False
    for step in range(times[-1] + 1):
        if step in times:
            pictures.append(parts(game.unwrapped.model, game.unwrapped.data))
        if over or step == times[-1]:
            break
        observation, reward, terminal, timeout, _ = game.step(act(observation[None].astype(np.float32))[0])
        total, over = total + float(reward), terminal or timeout
    game.close()
    return pictures, total


def parts(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """Find the capsules of a body as it stands, [part, 5] as in `film`."""
    rows = []
    for geom in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_CAPSULE):
        centre, axis = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3)[:, 2]
        radius, half = model.geom_size[geom][:2]
        ends = centre - half * axis, centre + half * axis
        rows.append([ends[0][0], ends[0][2], ends[1][0], ends[1][2], radius])
    return np.array(rows)
