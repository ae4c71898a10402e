"""Step environments together, one a run: no transition crosses an episode, and their state can be kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import gymnasium as gym
import mujoco
import numpy as np
import torch

from lib.base import BadInput
from lib.data.environments import make

PHYSICS = mujoco.mjtState.mjSTATE_INTEGRATION  # all that the next step depends on, the solver's warm start too
BODIES = ("xpos", "xipos")  # where bodies were half a step ago, from which some environments measure the way made


class Environments:
    """Hold one environment a run. When an episode ends, the next begins within the same step.

    Attributes:
        observations: what each run sees now, [run, o] float32.
        bound: the largest action, [a] float32.
    """

    def __init__(self, name: str, seeds: Sequence[int]):
        self.name = name
        mode = gym.vector.AutoresetMode.SAME_STEP  # so every step is a transition, and none leads to a new episode
        self.vector = gym.vector.SyncVectorEnv([partial(make, name) for _ in seeds], autoreset_mode=mode)
        self.bound = self.vector.single_action_space.high.astype(np.float32)
        self.observations = self.vector.reset(seed=list(seeds))[0].astype(np.float32)

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Step: actions [run, a] -> next observations [run, o], rewards [run], terminated [run], truncated [run].

        Where an episode ended the next observation is its last one, and `observations` the new episode's first.

        Raises:
            BadInput: an environment gave NaN or infinity.
        """
        observations, rewards, terminated, truncated, info = self.vector.step(actions)
        following = observations.copy()
        for run in np.flatnonzero(terminated | truncated):
            following[run] = info["final_obs"][run]
        for what, values in (("a reward", rewards), ("an observation", following)):
            if not np.isfinite(values).all():
                raise BadInput(f"{self.name} gave {what} that is not finite, for actions {actions.tolist()}")
        self.observations = observations.astype(np.float32)
        return following.astype(np.float32), rewards.astype(np.float32), terminated, truncated

    def state_dict(self) -> dict:
        """Return everything that the future of each environment depends on, so that it goes on bit for bit.

        Raises:
            BadInput: not a MuJoCo environment, of others the state is not known; or one without a limit of steps.
        """
        states = []
        for env in self.vector.envs:
            model, data = _physics(env, self.name)
            physics = np.empty(mujoco.mj_stateSize(model, PHYSICS))
            mujoco.mj_getState(model, data, physics, PHYSICS)
            arrays = {"physics": physics} | {name: getattr(data, name).copy() for name in BODIES}
            elapsed = _limit(env, self.name)._elapsed_steps
            counted = {"elapsed": elapsed, "random": env.unwrapped.np_random.bit_generator.state}
            states.append(counted | {name: torch.from_numpy(array) for name, array in arrays.items()})
        return {"environments": states, "observations": torch.from_numpy(self.observations)}

    def load_state_dict(self, content: dict) -> None:
        """Go on from where `state_dict` was called."""
        for env, state in zip(self.vector.envs, content["environments"], strict=True):
            model, data = _physics(env, self.name)
            mujoco.mj_setState(model, data, state["physics"].numpy(), PHYSICS)
            for name in BODIES:
                getattr(data, name)[:] = state[name].numpy()
            _limit(env, self.name)._elapsed_steps = state["elapsed"]
            env.unwrapped.np_random.bit_generator.state = state["random"]
        self.observations = content["observations"].numpy().copy()


def _physics(env: gym.Env, name: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    if not isinstance(env.unwrapped, gym.envs.mujoco.MujocoEnv):
        raise BadInput(f"{name}: only MuJoCo environments can be kept and gone on with; train it without a folder")
    return env.unwrapped.model, env.unwrapped.data


def _limit(env: gym.Env, name: str) -> gym.wrappers.TimeLimit:
    """The wrapper that counts an episode's steps."""
    while not isinstance(env, gym.wrappers.TimeLimit):
        if not isinstance(env, gym.Wrapper):
            raise BadInput(f"{name}: only environments with a limit of steps can be kept and gone on with")
        env = env.env
    return env
