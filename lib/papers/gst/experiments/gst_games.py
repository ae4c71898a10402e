"""Train agents that play from pixels group-sparsely (paper 5, section 4.4 and figure 9).

One configuration is one game, one learner (A2C or PPO), one seed, and one way of training:

    dense    the learner as it is
    rwp      reward-aware pruning of single weights
    regrow   the same, but what was set to zero is trained on and may grow again; only where a task asks for it
    gst      Algorithm 1 with reward-aware pruning, once a block size, shift and conversion

Breakout with A2C is the paper's own; Google Research Football, its other environment, no longer installs, so a second
game of Atari's stands in for it, and the quick scale has a game of the project's own. First and last layer are not
compressed; the last layer are both heads.

`return` is the mean score of the latest games of the training, which is what reference 33 draws, and, at each chance to
prune, the reward. `compression_ratio` is equation 3 averaged over the updates so far; beside it equation 2
(`ideal_ratio`), and equation 3 with a bitmap on coefficients (`coefficient_ratio`). `share` is P_comp / P_total.
`prune_every` is how many updates lie between two chances to prune, 0 for the dense agent. `buttons`, in the last row,
is one game that the trained agent plays, the same for all agents: a letter a step, "a" for the first button. `replay`
presses them again and shows the game.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd
from torch import nn

from lib import pruners
from lib.base import BadInput, Count
from lib.companion.sweep.context import Context
from lib.models.game_player import PlayerSizes
from lib.papers.gst.experiments import methods
from lib.papers.gst.experiments.algorithm import Compression, GroupSparseTraining, begin, share
from lib.papers.gst.experiments.methods import RATIOS, Blocks, RewardPruning
from lib.training import actor_critic
from lib.training.vector_games import film

FILMED, FILM_SEED = 300, 5  # steps of the game that is kept, and its seed

LIBRARIES = ("ale-py",)
KEYS = ("env", "learner", "method", "block", "shift", "conversion", "prune_every", "seed")
FIRST_EVERY = 100  # of the first pair on Breakout, whose file has no column prune_every
INDEX = (*KEYS, "step")
COLUMNS = (*INDEX, "return", "games", "sparsity", "phase", "share", *RATIOS, "buttons")


@dataclass(frozen=True)
class Task:
    """Describe one game and one learner.

    Attributes:
        env: the game, see `games.make`.
        seeds: how many, from 0.
        steps: in all games together; `every`: from one row to the next.
        window: of the latest games, whose mean score is the reward.
        learner: its settings.
        pruning: `every` counts updates.
        blocks: the ways of grouping, besides single weights.
        methods: those of single weights, some of METHODS and REGROW. A second rhythm on a game leaves out "dense": it
            would be trained twice.
    """

    env: str
    seeds: Count
    steps: Count
    every: Count
    learner: actor_critic.ActorCriticSettings
    pruning: RewardPruning
    blocks: tuple[Blocks, ...] = ()
    methods: tuple[str, ...] = ()
    window: Count = 100

    def __post_init__(self):
        once = self.learner.games * self.learner.steps
        if self.every % once or self.steps % self.every:
            raise BadInput(f"{self.env}: every={self.every} must be a multiple of {once}, and steps={self.steps} of it")
        methods.refuse_methods(self.blocks, self.methods)
        if not self.blocks and not self.methods:
            raise BadInput(f"{self.env}: neither methods nor blocks are listed, so there is nothing to train")
        if self.blocks or set(self.methods) - {"dense"}:
            self.pruning.refuse_never(self.steps // once)


@dataclass(frozen=True)
class Settings:
    """List the tasks, each a game and a learner."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed and a way of training of a task each, with everything `run` needs."""
    return [
        _with_rhythm(one)
        for task in settings.tasks
        for one in methods.each_method(task, learner=task.learner.learner, settings=asdict(task.learner))
    ]


def _with_rhythm(one: dict) -> dict:
    """Say how often a configuration prunes; the dense one never does, so it is the same whatever the task's pruning."""
    if one["method"] == "dense":
        return one | {"pruning": None, "prune_every": 0}
    return one | {"prune_every": one["pruning"]["every"]}


def aliases(configuration: dict) -> list[dict]:
    """List the earlier forms of a configuration: it did not name its rhythm, and the dense one had its task's."""
    earlier = {name: value for name, value in configuration.items() if name != "prune_every"}
    if configuration["method"] == "dense":
        earlier["pruning"] = asdict(RewardPruning(increase=0.01, every=FIRST_EVERY))
    return [earlier]


def upgrade(rows: pd.DataFrame) -> pd.DataFrame:
    """Add the column that an earlier file lacks."""
    if "prune_every" in rows:
        return rows
    return rows.assign(prune_every=(rows.method != "dense") * FIRST_EVERY)


def units(configuration: dict) -> int:
    """Count the rows of one configuration."""
    return configuration["steps"] // configuration["every"]


def run(configuration: dict, context: Context) -> list[dict]:
    """Train one agent in one way; one row every so many steps."""
    trainer, algorithm = begun(configuration)
    window, method = configuration["window"], configuration["method"]

    def report() -> dict:
        return {"return": trainer.earned(window), "games": len(trainer.games.scores), **algorithm.report()}

    history = actor_critic.train(
        trainer,
        configuration["every"],
        report,
        context.checkpoint("session"),
        on_progress=lambda: context.report_progress(f"{configuration['env']} {method}"),
        check=context.check,
    )
    key = {name: configuration[name] for name in KEYS} | {"share": share(trainer.network, layers(trainer.network))}
    last = len(history) - 1
    history = [row | {"buttons": buttons(trainer) if place == last else None} for place, row in enumerate(history)]
    return methods.rows(key, history, COLUMNS)


def buttons(trainer: actor_critic.ActorCriticTrainer) -> str:
    """Play one game with the agent as it is now, for at most FILMED steps: a letter for each button it presses."""
    pressed: list[str] = []
    draws = np.random.default_rng(FILM_SEED)

    def act(seen: np.ndarray) -> int:
        button = trainer.choose(seen, draws)
        pressed.append(chr(ord("a") + button))
        return button

    film(act, trainer.games.name, [FILMED], FILM_SEED, trainer.settings.frames)
    return "".join(pressed)


def replay(pressed: str, env: str, times: Sequence[int]) -> tuple[list[np.ndarray], float]:
    """Press the `buttons` of a kept game again: its pictures at some moments and its score, as `film` gives them.

    Args:
        pressed: a letter a step, as in the column `buttons`.
        env: the game they were pressed in.
        times: after how many steps a picture is taken, at most as many as there are letters.

    Raises:
        BadInput: a time after the last button; or see `film`.
    """
    if max(times, default=0) > len(pressed):
        raise BadInput(f"{len(pressed)} buttons are kept, so times may be 0 to {len(pressed)}, not {max(times)}")
    presses = iter(pressed)
    return film(lambda seen: ord(next(presses)) - ord("a"), env, times, FILM_SEED)


def begun(configuration: dict) -> tuple[actor_critic.ActorCriticTrainer, GroupSparseTraining]:
    """Make the training of a configuration at its beginning, blocks in place."""
    own = dict(configuration["settings"])
    settings = actor_critic.ActorCriticSettings(**own | {"network": PlayerSizes(**own["network"])})
    every, window = configuration["prune_every"], configuration["window"]
    found: list[Compression] = []

    def prepare(network: nn.Module) -> None:
        found.append(methods.compression(configuration, layers(network)))
        begin(network, found[0])

    trainer = actor_critic.start(configuration["env"], configuration["seed"], settings, configuration["steps"], prepare)
    trainer.callback = GroupSparseTraining(
        trainer.network,
        found[0],
        [methods.schedule(configuration)],
        [trainer.optimizer],
        reward=lambda step: None if not every or step % every else [trainer.earned(window)],
    )
    return trainer, trainer.callback


def layers(network: nn.Module) -> tuple[str, ...]:
    """List all weights but those of the first layer and of the heads."""
    names = [layer.name for layer in pruners.prunable(network)]
    return tuple(name for name in names[1:] if not name.startswith(("actor.", "critic.")))
