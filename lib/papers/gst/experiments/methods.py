"""Set what every experiment of paper 5 sets: how blocks are made, and how reward-aware pruning goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lib import pruners
from lib.base import BadInput
from lib.papers.gst.experiments.algorithm import Compression

METHODS = ("dense", "rwp")  # of single weights; blocks are the method gst
REGROW = "regrow"  # rwp under the other reading of "zeroize", see `algorithm.Compression`; only where it is asked for
GROUPING = ("block", "shift", "conversion")
RATIOS = {"compression_ratio": "weights", "ideal_ratio": "none", "coefficient_ratio": "coefficients"}  # and bitmaps


@dataclass(frozen=True)
class RewardPruning:
    """Hold the settings of `pruners.RewardAware` but its start."""

    increase: float = 0.01
    every: int = 5_000
    limit: float = 0.95
    initial_reward: float = 0.0
    reference: str = "record"

    def __post_init__(self):
        self.schedule()  # refuses what cannot be pruned by

    def refuse_never(self, updates: int) -> None:
        """Refuse a training of so many updates that ends before the first chance to prune.

        Raises:
            BadInput: it does.
        """
        if self.every > updates:
            raise BadInput(f"pruning: every={self.every} is beyond the training's {updates} updates: nothing is pruned")

    def schedule(self, begin: int = 0) -> pruners.RewardAware:
        """Make reward-aware pruning from this step on."""
        return pruners.RewardAware(self.increase, self.every, begin, self.limit, self.initial_reward, self.reference)


@dataclass(frozen=True)
class Blocks:
    """Describe how weights are grouped, see `algorithm.Compression`."""

    block: int
    shift: float
    conversion: str = "none"

    def check(self) -> None:
        """Refuse what is no grouping.

        Raises:
            BadInput: single weights, which are methods of their own, or a conversion that there is not.
        """
        Compression(("any",), self.block, self.shift, self.conversion)
        if self.block == 1 or self.shift == 0:
            raise BadInput("blocks of one weight are trained anyway; ask for larger ones and a shift")


SINGLE = Blocks(1, 0.0)  # weights that share nothing: dense networks, and reward-aware pruning alone


def refuse_methods(blocks: Iterable[Blocks], methods: Iterable[str] = ()) -> None:
    """Refuse groupings that there are not, and methods of single weights that nobody knows.

    Raises:
        BadInput: the first of them.
    """
    known = (*METHODS, REGROW)
    if unknown := [name for name in methods if name not in known]:
        raise BadInput(f"methods: {unknown[0]!r} is unknown; known are {', '.join(known)}")
    for one in blocks:
        one.check()


def each_method(task: Any, **own: Any) -> list[dict]:
    """Lay out a task's seeds and methods, single weights before blocks, with everything `run` needs.

    Args:
        task: a dataclass with `seeds`, `methods` and `blocks` among its fields.
        own: values to put beside those of its fields, or in their place.
    """
    shared = {name: value for name, value in asdict(task).items() if name not in ("seeds", "blocks", "methods")}
    methods = [{"method": method, **asdict(SINGLE)} for method in task.methods]
    methods += [{"method": "gst", **asdict(one)} for one in task.blocks]
    return [shared | own | method | {"seed": seed} for seed in range(task.seeds) for method in methods]


def compression(configuration: Mapping, layers: Sequence[str]) -> Compression:
    """Say what a configuration of `each_method` compresses: nothing where it trains the dense network."""
    if configuration["method"] == "dense":
        return Compression()
    grouping = {name: configuration[name] for name in GROUPING}
    return Compression(layers, **grouping, regrow=configuration["method"] == REGROW)


def schedule(configuration: Mapping) -> pruners.Schedule:
    """Say when and how much a configuration of `each_method` prunes."""
    if configuration["method"] == "dense":
        return pruners.Once(0.0)
    return RewardPruning(**configuration["pruning"]).schedule()


def rows(key: Mapping, history: Sequence[dict], columns: Sequence[str]) -> list[dict]:
    """Make rows of a history whose reports are those of `GroupSparseTraining`, each with the key and these columns."""
    named = [{**key, **row, **{name: row[f"ratio_{bitmap}"] for name, bitmap in RATIOS.items()}} for row in history]
    return [{name: row[name] for name in columns} for row in named]
