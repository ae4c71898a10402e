"""Train an expert of the project's own with TD3, and save it: `python -m lib.papers.offline_rl.experts ENV`.

    python -m lib.papers.offline_rl.experts Hopper-v4 --steps 400000  # hours; stopped, it goes on with the same command
    python -m lib.papers.offline_rl.experts Hopper-v4 --keep          # into lib/data/experts/, also while it trains

While it trains, .sweep/experts/ENV-SEED/ holds the session (state.pt, replay.log), its learning curve (curve.csv) and
two snapshots of the actor:

expert  the best so far. Every EVERY steps the actor plays EPISODES episodes; one that earns more than the best is
        played CONFIRM fresh episodes, and becomes the best if it earns more in those too.
medium  the first whose mean return, in EPISODES episodes and in CONFIRM fresh ones, lies from a third to a half of the
        target on D4RL's normalised scale.

Both are rounded to float16, and confirmed so. As the best of many is chosen by its luck too, what `--keep` writes on
the card comes from CONFIRM episodes that had no part in any choice.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from time import monotonic

import numpy as np
import pandas as pd
import torch
import yaml

from lib import base
from lib.base import BadInput
from lib.companion.csv_files import read_csv, write_csv, write_text
from lib.companion.sweep.context import Stopped
from lib.companion.sweep.settings import read_yaml
from lib.data import policies
from lib.data.environments import normalised_return
from lib.models.mlp import MLP
from lib.training import td3
from lib.training.rollouts import rollouts
from lib.training.seeds import seed_of

FOLDER = base.STORE / "experts"
TARGETS = {"HalfCheetah-v4": 8000.0, "Hopper-v4": 2800.0, "Walker2d-v4": 3500.0}  # mean returns to reach
SETTINGS = td3.TD3Settings(batch=128)  # a step with 256, the default, takes 1.7 times as long
TUNED = ("batch", "random_steps", "learning_rate", "exploration_noise")  # what the program can be asked to change
EVERY, EPISODES, CONFIRM = 5_000, 10, 20
EVALUATION, CONFIRMATION, CARD = 3, 4, 5  # streams of random numbers of their own (TD3 has 0 to 2)
READINGS = 3  # how often `keep` reads a session that writes meanwhile
PACKAGES = ("torch", "gymnasium", "mujoco", "numpy")


class Enough(Exception):
    """The best snapshot earns what was asked for."""


class Session:
    """Hold what is known of one training session besides its state: the learning curve and the snapshots, on disk.

    It is called after each step of training.

    Raises:
        Stopped: `stop` has been set.
        Enough: the best snapshot earns enough.
    """

    def __init__(self, env: str, seed: int, settings: td3.TD3Settings, folder: Path, every: int, enough: float):
        self.env, self.seed, self.folder, self.every, self.enough = env, seed, folder, every, enough
        self.curve: list[dict] = []
        self.snapshots: dict[str, dict] = {}
        self.settings = {**asdict(settings), "hidden": list(settings.hidden)}
        self.stop = False
        self.since = monotonic(), 0
        if (folder / "session.yaml").exists():
            self.snapshots = read_session(folder)["snapshots"]
            self.curve = read_curve(folder).to_dict("records")

    def __call__(self, trainer: td3.TD3Trainer) -> None:
        if trainer.steps % self.every == 0:
            self.evaluate(trainer)
        if self.best() >= self.enough:
            raise Enough
        if self.stop:
            raise Stopped

    def best(self) -> float:
        """Return the confirmed mean return of the best snapshot so far."""
        return self.snapshots.get("expert", {"return": -np.inf})["return"]

    def evaluate(self, trainer: td3.TD3Trainer) -> None:
        """Play the evaluation episodes, keep the snapshot if it deserves it, and say so in a line."""
        step, began = trainer.steps, monotonic()
        mean = self._mean(trainer.agent.act, EVALUATION, step, EPISODES)
        # a session that was killed may have been here before
        self.curve = [row for row in self.curve if row["step"] < step] + [{"step": step, "return": mean}]
        better, medium = mean > self.best(), "medium" not in self.snapshots and self._is_medium(mean)
        if better or medium:
            policy = policy_of(trainer.agent.networks["actor"])
            confirmed = self._mean(stacked(policy), CONFIRMATION, step, CONFIRM)
            if better and confirmed > self.best():
                self._keep("expert", policy, step, confirmed)
            if medium and self._is_medium(confirmed):
                self._keep("medium", policy, step, confirmed)
        write_csv(pd.DataFrame(self.curve), self.folder / "curve.csv")
        self._write()
        (then, steps), self.since = self.since, (monotonic(), step)
        speed = f"{(step - steps) / (began - then):.0f} steps/s" if steps else "starting"
        latest = f"{trainer.returns[0][-1]:.0f}" if trainer.returns[0] else "-"
        best = ", ".join(f"{name} {s['return']:.0f} at {s['step']:,}" for name, s in self.snapshots.items())
        print(
            f"{self.env} seed {self.seed}  step {step:,}  return {mean:.0f}  in training {latest}  {speed}  {best}",
            flush=True,
        )

    def _mean(self, act: Callable[[np.ndarray], np.ndarray], stream: int, step: int, episodes: int) -> float:
        return float(rollouts(act, self.env, [seed_of(self.seed, stream, step)], episodes).mean())

    def _is_medium(self, mean: float) -> bool:
        share = normalised_return(self.env, mean) / normalised_return(self.env, TARGETS[self.env])
        return 1 / 3 <= share <= 1 / 2

    def _keep(self, name: str, policy: policies.MLPPolicy, step: int, mean: float) -> None:
        policies.save(policy, self.folder / f"{name}.npz")
        self.snapshots[name] = {"step": step, "return": mean}

    def _write(self) -> None:
        content = {"environment": self.env, "seed": self.seed, "settings": self.settings, "snapshots": self.snapshots}
        write_text(yaml.safe_dump(content, sort_keys=False), self.folder / "session.yaml")


def policy_of(actor: MLP, run: int = 0) -> policies.MLPPolicy:
    """Turn one run's actor into a policy, its numbers rounded to float16."""
    arrays = [
        [getattr(layer, name)[run].detach().cpu().half().float().numpy() for layer in actor.layers]
        for name in ("weight", "bias")
    ]
    return policies.MLPPolicy(*arrays, actor.output.bound.cpu().numpy())


def stacked(policy: policies.MLPPolicy) -> Callable[[np.ndarray], np.ndarray]:
    """Hold a policy as the only run of a stack: [1, n, o] -> [1, n, a]."""
    return lambda observations: policy(observations[0])[None]


def read_session(folder: Path) -> dict:
    """Read what `Session` has written to session.yaml. BadInput if there is nothing yet, or the file is damaged."""
    if not (folder / "session.yaml").exists():
        raise BadInput(f"no session in {folder}; its first evaluation comes after {EVERY:,} steps")
    content = read_yaml(folder / "session.yaml")
    try:
        readable = {"settings", "snapshots"} <= content.keys() and all(
            isinstance(one["step"], int) and np.isfinite(one["return"]) for one in content["snapshots"].values()
        )
    except (AttributeError, KeyError, TypeError):
        readable = False
    if not readable:
        raise BadInput(f"{folder / 'session.yaml'} is damaged: move {folder} away to start anew")
    return content


def read_curve(folder: Path) -> pd.DataFrame:
    """Read the learning curve so far, columns step and return. BadInput if the file is damaged."""
    curve = read_csv(folder / "curve.csv", ("step", "return"))
    if not np.isfinite(curve.select_dtypes("number").reindex(columns=["step", "return"])).all(axis=None):
        raise BadInput(f"{folder / 'curve.csv'} is damaged: move {folder} away to start anew")
    return curve


def train(
    env: str,
    steps: int,
    seed: int,
    settings: td3.TD3Settings,
    folder: Path,
    every: int = EVERY,
    enough: float = np.inf,
) -> None:
    """Train, or go on, until so many steps, or until the best snapshot earns enough; a signal saves and stops.

    Raises:
        Stopped: SIGTERM or Ctrl-C.
        BadInput: settings that cannot be, a damaged session, or another process that trains in the folder.
    """
    if steps < 1 or seed < 0 or np.isnan(enough):
        raise BadInput(f"steps={steps}, seed={seed}, enough={enough}: expected at least 1, at least 0, and a return")
    base.writable(folder)
    with base.locked(folder, f"the training of {env}, seed {seed},"):
        _train(env, steps, seed, settings, folder, every, enough)


def _train(env: str, steps: int, seed: int, settings: td3.TD3Settings, folder: Path, every: int, enough: float) -> None:
    """What `train` does once it has the folder for itself."""
    trainer = td3.start(env, [seed], settings)
    session = Session(env, seed, settings, folder, every, enough)

    def stop(*_) -> None:
        session.stop = True

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        td3.train(trainer, steps, session, folder, progress=sys.stderr.isatty())
    except Enough:
        print(f"{env}: {session.best():.0f} is enough", flush=True)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def keep(env: str, seed: int, folder: Path, experts: Path = policies.EXPERTS) -> policies.Card:
    """Write the snapshots there are, their card and the learning curve so far to `experts`/ENV.

    BadInput: no medium or no expert snapshot yet, or new ones whenever they are read.
    """
    for _ in range(READINGS):  # the training may write while this reads
        session = read_session(folder)
        absent = [name for name in policies.WHICH if name not in session["snapshots"]]
        if absent:
            raise BadInput(f"the session in {folder} has no {absent[0]} snapshot yet: train it longer")
        played, snapshots = {}, {}
        for name in policies.WHICH:
            played[name] = policy = policies.read(folder / f"{name}.npz")
            returns = rollouts(stacked(policy), env, [seed_of(seed, CARD)], CONFIRM)
            mean, score = float(returns.mean()), float(normalised_return(env, returns.mean()))
            numbers = (round(float(x), 2) for x in (mean, returns.std(ddof=1), score))
            snapshots[name] = policies.Snapshot(session["snapshots"][name]["step"], *numbers)
        if read_session(folder)["snapshots"] == session["snapshots"]:
            break
    else:
        raise BadInput(f"the session in {folder} had new snapshots at each of {READINGS} readings: keep them later")
    curve, place = read_curve(folder), experts / env
    for name, policy in played.items():
        policies.save(policy, place / f"{name}.npz")
    card = policies.Card(
        environment=env,
        steps=int(curve.step.iloc[-1]),
        seed=seed,
        episodes=CONFIRM,
        target=TARGETS[env],
        **snapshots,
        versions={name: version(name) for name in PACKAGES},
        settings=session["settings"],
    )
    write_csv(curve, place / "curve.csv")
    write_text(yaml.safe_dump(asdict(card), sort_keys=False), place / "card.yaml")
    return card


def main(words: list[str] | None = None) -> int:
    """Run the program and return 0, or 143 when a signal stopped it; what cannot be ends it as `base.program` says."""
    parser = argparse.ArgumentParser(
        "python -m lib.papers.offline_rl.experts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("env", help=f"one of {', '.join(TARGETS)}")
    parser.add_argument("--steps", type=int, default=1_000_000, help="steps to train in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--enough", type=float, default=np.inf, help="stop when the best snapshot's return reaches this"
    )
    for name in TUNED:
        value, option = getattr(SETTINGS, name), name.replace("_", "-")
        parser.add_argument(f"--{option}", type=type(value), default=value, help="of TD3 (default: %(default)s)")
    parser.add_argument("--keep", action="store_true", help="train nothing; write what there is to lib/data/experts/")
    asked = parser.parse_args(words)
    with base.program("lib.papers.offline_rl.experts"):
        env = asked.env
        if env not in TARGETS:
            raise BadInput(f"no target for {env!r}; there are for: {', '.join(TARGETS)}")
        folder = FOLDER / f"{env}-{asked.seed}"
        torch.set_num_threads(1)  # the networks are small: more threads only wait for each other
        try:
            if asked.keep:
                card = keep(env, asked.seed, folder)
                print(f"{env}: expert {card.expert.mean_return:.0f} ± {card.expert.sd:.0f}, target {card.target:.0f}")
            else:
                chosen = replace(SETTINGS, **{name: getattr(asked, name) for name in TUNED})
                train(env, asked.steps, asked.seed, chosen, folder, enough=asked.enough)
        except Stopped:
            print(f"stopped; the same command goes on from {folder.relative_to(base.ROOT)}", flush=True)
            return 143
    return 0


if __name__ == "__main__":
    sys.exit(main())
