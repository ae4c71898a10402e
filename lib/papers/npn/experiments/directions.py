"""Train a network in both directions of paper 4, section 6, and the fair rivals of what comes out.

    sparsify   the whole network, all gates open, through the three stages with k = 7 in the second
    expand     the same network with few gates open, the others dormant, with k = 0.5 in the second
    dense      the whole network as an ordinary one (k = infinity throughout)
    magnitude  the dense network after stage 1, its units cut by magnitude to sparsify's final sizes, trained further
    fresh      an ordinary network of sparsify's final sizes from a new initialisation
    sparsify_script, expand_script
               the first two by the schedule of the authors' code, which decides what the paper leaves open: when
               stage 2 ends, and what lets a unit be woken. It sets no k in stage 1, so gates begin at its layers' own,
               7, and learn from the first epoch on; where it expands, stage 2 has k = 1

All have the same seed and are trained for the same number of epochs in all; an expansion that ends by itself has fewer,
and one that is given a longer stage 2 may have more.
Where stage 2 lasts until sizes rest (`GatedTraining.rest`), the rivals are trained for as many epochs as sparsify was.
Dense starts its optimizer anew after stage 1, as magnitude has to. Expand holds out a part of the training examples as
its validation split; the others have none. A final size is the number of units that are live (column
architecture_live): where sparsify leaves a gate open whose other end is closed, its rivals do without that unit.

One configuration is one direction of one seed. Magnitude and fresh need sparsify's rows, and are trained after it; so
is dense where stage 2 lasts until sizes rest. That directions are independent costs a stage: magnitude trains dense's
first one again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import BadInput, Count, Range, refuse_twice
from lib.companion.sweep.context import Context
from lib.models.alexnet import alexnet
from lib.models.lenet import lenet5, small_lenet
from lib.pruners import gates
from lib.pruners.gates.structure import spread
from lib.training.examples import Examples
from lib.training.gated import GatedTraining, train
from lib.training.seeds import seed_of

KEYS = ("data", "network", "direction", "seed")
INDEX = (*KEYS, "epoch")
COLUMNS = (
    "data", "network", "direction", "stage", "seed", "epoch", "k", "accuracy", "regularised_loss", "architecture",
    "architecture_live", "parameters", "parameters_live", "flops",
)  # fmt: skip
NETWORKS: dict[str, Callable[[int], nn.Module]] = {  # those for images, from the number of classes
    "small_lenet": small_lenet,
    "lenet5": lenet5,
    "alexnet": alexnet,
}
CUT = ("magnitude", "fresh")  # to the sizes that sparsify ends with
RIVALS = ("dense", *CUT)
SCRIPTS = ("sparsify_script", "expand_script")
DIRECTIONS = ("sparsify", "expand", *RIVALS, *SCRIPTS)


@dataclass(frozen=True)
class Directions:
    """These settings say how one network is trained in all directions.

    Attributes:
        seeds: each gives all directions.
        every: rows are kept of epochs that are multiples of this, and of each stage's last.
        start: gates of each layer that are open when the expansion starts.
        sparsify, expand: their training; the rivals have sparsify's.
        sparsify_script, expand_script: their training by the schedule of the authors' code; left out, they are not run.
        script_dormant: -k phi of a dormant gate where expand_script starts; the code has 40. None: the paper's, 3.
        rivals: which of them are trained, some of RIVALS.
        shares: of the weights; a row is kept, besides, of the first epoch that leaves sparsify no more than each.
    """

    seeds: tuple[Annotated[int, Range(0)], ...]
    every: int
    start: tuple[Count, ...]
    sparsify: GatedTraining
    expand: GatedTraining
    sparsify_script: GatedTraining | None = None
    expand_script: GatedTraining | None = None
    script_dormant: float | None = None
    rivals: tuple[str, ...] = RIVALS
    shares: tuple[float, ...] = ()

    def __post_init__(self):
        refuse_twice(seeds=self.seeds, rivals=self.rivals)
        if odd := [name for name in self.rivals if name not in RIVALS]:
            raise BadInput(f"rivals={list(self.rivals)}: {odd[0]!r} is none; known are {', '.join(RIVALS)}")
        if not self.seeds or self.every < 1:
            raise BadInput(f"seeds={self.seeds} and every={self.every}: expected a seed and a step of at least 1")
        if odd := [share for share in self.shares if not 0 < share < 1]:
            raise BadInput(f"shares={list(self.shares)}: {odd[0]} is not between 0 and 1")
        if any(way is not None and way.expand is not grows for way, grows in self._ways()):
            raise BadInput("expand must be true in the settings of expand and false in those of sparsify")

    def _ways(self) -> list[tuple[GatedTraining | None, bool]]:
        """Each training, and whether it has to expand."""
        shrink, grow = (self.sparsify, self.sparsify_script), (self.expand, self.expand_script)
        return [(way, False) for way in shrink] + [(way, True) for way in grow]

    def configurations(self, data: str, network: str) -> list[dict]:
        """List the configurations, one a direction and seed, with all that `train_direction` needs, sparsify first."""
        found = []
        ways = {"sparsify": self.sparsify, "expand": self.expand} | dict.fromkeys(self.rivals, self.sparsify)
        ways |= {name: way for name in SCRIPTS if (way := getattr(self, name)) is not None}
        for direction, training in ways.items():
            grows = training.expand
            one = {"data": data, "network": network, "direction": direction, "every": self.every}
            one |= {"start": self.start if grows else (), "training": as_kept(training)}
            one |= {"shares": () if grows else self.shares}
            if direction == "expand_script" and self.script_dormant is not None:
                one["dormant"] = self.script_dormant
            found += [one | {"seed": seed} for seed in self.seeds]
        return found


def as_kept(training: GatedTraining) -> dict:
    """Write a training as configurations hold it: without `early_k` where it has none, as before there was a choice."""
    return {name: value for name, value in asdict(training).items() if name != "early_k" or value is not None}


def units(configuration: dict) -> int:
    """Count the epochs of training in one configuration, at most."""
    return sum(configuration["training"]["epochs"])


def needs(configuration: dict) -> dict | None:
    """Return the configuration whose rows must be there first, or None."""
    direction, rests = configuration["direction"], configuration["training"]["rest"] > 0
    asks = direction in CUT or (direction == "dense" and rests)  # for sizes, for epochs
    return configuration | {"direction": "sparsify"} if asks else None


def aliases(configuration: dict) -> list[dict]:
    """Return the earlier forms of a configuration: the same, without the settings that have been added since.

    An expansion has one alone, from when there was one rule for waking units. Before that it took a rising loss for a
    plateau too, so what was computed then is another thing.
    """
    training = dict(configuration["training"])
    if training.pop("wake_when") != "plateaus":
        return []
    found = [configuration | {"training": dict(training)}]
    if training["expand"] or training.pop("rest") or configuration.get("shares"):
        return found
    if training["tolerance"] == GatedTraining.tolerance:
        training["tolerance"] = 0.0  # the default then; only an expansion asks for it
    return [*found, {name: value for name, value in configuration.items() if name != "shares"} | {"training": training}]


def train_direction(
    configuration: dict,
    build: Callable[[], nn.Module],
    examples: Examples,
    context: Context,
    needed: Sequence[Mapping] = (),
) -> list[dict]:
    """Train one seed in one direction and return a row for each kept epoch, columns COLUMNS.

    Args:
        configuration: one of `Directions.configurations`.
        build: makes the whole network, untrained.
        needed: the rows of the configuration that `needs` names.

    Raises:
        BadInput: it needs rows, and has none.
    """
    direction, seed = configuration["direction"], configuration["seed"]
    training = GatedTraining(**configuration["training"])
    if needs(configuration) and not needed:
        raise BadInput(f"{direction} has the sizes or epochs of sparsify's end: it needs the rows of that direction")
    first = training.epochs[0]
    later = (max(row["epoch"] for row in needed) if needed else sum(training.epochs)) - first
    sessions = Sessions(
        {name: configuration[name] for name in KEYS},
        examples,
        configuration["every"],
        context,
        shares=configuration["shares"],
    )
    torch.manual_seed(seed_of(seed, 2) if direction == "fresh" else seed_of(seed))
    network = build()
    layers = gates.gateable(gates.trace(network))
    if direction in CUT:
        counts = live_units(max(needed, key=lambda row: row["epoch"])["architecture_live"], layers)

    def gated(network: nn.Module, start: Sequence[int | Tensor] | None = None) -> nn.Module:
        level = {"dormant": configuration["dormant"]} if "dormant" in configuration else {}
        return gates.gated(network, layers, k=training.first_k, start=start, seed=seed_of(seed, 1), **level)

    if direction not in RIVALS:
        sessions.train(direction, gated(network, configuration["start"] or None), training)
    elif direction == "fresh":
        small, left = cut(network, layers, largest(network, layers, counts))
        for module in small.modules():  # a layer's initial weights depend on its size, so they are drawn anew
            if isinstance(module, (nn.Linear, nn.Conv2d)) and module.weight.requires_grad:
                module.reset_parameters()
        sessions.train(direction, gated(small, left), replace(training, epochs=(first + later, 0, 0)))
    else:
        drops = tuple(drop - first for drop in training.drops)  # of the second session, which counts anew
        model, rest = gated(network), replace(training, epochs=(0, 0, later), drops=drops)
        sessions.train(direction, model, replace(training, epochs=(first, 0, 0)))
        if direction == "magnitude":
            sessions.rows.clear()  # so far it is dense
            plain = gates.harden(model)  # all gates are exactly 1: its weights as they are
            model = gated(*cut(plain, layers, largest(plain, layers, counts)))
        sessions.train(direction, model, rest, number=1, before=first)
    return sessions.rows


@dataclass
class Sessions:
    """Sessions train the networks of one seed and keep rows of them.

    Attributes:
        key: the columns that tell this configuration's rows from those of others; its seed among them.
        every: see `Directions`.
        taus: thresholds at which the network is measured, a row each with a column `tau`; none: the gates' own, without
            that column. See `gated.train`.
        shares: see there.
        rows: what has been recorded so far.
    """

    key: Mapping[str, object]
    examples: Examples
    every: int
    context: Context
    taus: Sequence[float] = ()
    shares: Sequence[float] = ()
    rows: list[dict] = field(default_factory=list)

    def train(
        self, direction: str, model: nn.Module, settings: GatedTraining, number: int = 0, before: int = 0
    ) -> None:
        """Train the model and record it.

        Args:
            number: which session of the direction this is.
            before: epochs that the network has been trained already.
        """
        state = self.context.checkpoint(f"{direction}_{number}.pt")
        history = train(
            model, self.examples, settings, self.key["seed"], number, state,
            on_progress=lambda: self.context.report_progress(direction),
            every=self.every, taus=self.taus, shares=self.shares,
        )  # fmt: skip
        columns = dict.fromkeys((*self.key, *(("tau",) if self.taus else ()), *COLUMNS))
        for row in history:
            if "accuracy" in row:
                found = {**row, **self.key, "direction": direction, "epoch": before + row["epoch"]}
                each = [{"tau": tau, **at} for tau, at in row["at"].items()] if self.taus else [{}]
                self.rows += [{name: (found | at)[name] for name in columns} for at in each]


def live_units(architecture: str, layers: Sequence[str]) -> list[int]:
    """Read the units of each gated layer from an architecture as `gates.architecture` writes it."""
    numbers = [int(number) for number in architecture.split("-")]
    return numbers if len(numbers) == len(layers) else numbers[1:-1]  # an MLP's inputs and outputs have no gates


def largest(network: nn.Module, layers: Sequence[str], counts: Sequence[int]) -> list[Tensor]:
    """Choose which units of each layer to keep, [units] bool: those whose weights there have the largest sum of |w|.

    Of a Linear its inputs, of a Conv2d its output channels (Li et al. 2016, the paper's reference 12); flattened
    positions are taken from kept channels, of each the largest first, so that none goes unread.
    """
    scores, sources = pruners.magnitude(network), channels(network, layers)
    masks: dict[str, Tensor] = {}
    for name, count in zip(layers, counts, strict=True):
        weights = scores[f"{name}.weight"].cpu()
        total = weights.sum(0) if weights.dim() == 2 else weights.sum((1, 2, 3))
        if name in sources:
            each = total.view(len(masks[sources[name]]), -1)
            each = torch.where(each == each.amax(1, keepdim=True), each + each.max(), each)
            total = torch.where(masks[sources[name]][:, None], each, -1).flatten()
        masks[name] = torch.zeros(len(total), dtype=torch.bool).index_fill(0, total.topk(count).indices, True)
    return list(masks.values())


def cut(network: nn.Module, layers: Sequence[str], units: Sequence[Tensor]) -> tuple[nn.Module, list[Tensor]]:
    """Cut the units that are not kept out of a network, and say which units of the smaller one shall be open.

    These are all but flattened positions of channels that stay: a position alone cannot be cut out of a convolution.

    Args:
        units: for each layer [units] bool: which of them are kept, from `largest`.
    """
    sources, masks = channels(network, layers), dict(zip(layers, units, strict=True))
    start = [torch.ones_like(units) if name in sources else units for name, units in masks.items()]
    model = gates.gated(network, layers, start=start)
    gates.set_k(model, gates.INFINITE)
    left = [
        units[spread(masks[sources[name]], len(units))] if name in sources else units[units]
        for name, units in masks.items()
    ]
    return gates.harden(model), left


def channels(network: nn.Module, layers: Sequence[str]) -> dict[str, str]:
    """Find which of the layers read flattened channels, and of which convolution among the layers."""
    found = gates.trace(network)
    sources = {name: found[name].source for name in layers if isinstance(found[name].module, nn.Linear)}
    return {
        name: source for name, source in sources.items()
        if source in layers and isinstance(found[source].module, nn.Conv2d)
    }  # fmt: skip
