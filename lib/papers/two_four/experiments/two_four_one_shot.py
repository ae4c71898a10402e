"""Remove half of the weights in one shot, without any training, by three ways to choose them. Beyond paper 2.

A network is trained once; every row is a pruned copy of it:

    dense       nothing pruned
    magnitude   the smallest weights go, as in the workflow's step 2
    wanda       the smallest |weight| times norm of what enters it (Sun et al. 2023)
    sparsegpt   the cheapest by the inverse second moments of what enters, and the rest makes up for them (Frantar and
                Alistarh 2023)

in the patterns 2:4, 4:8 and 50 % (unstructured: Wanda within each row, the others within a layer, SparseGPT within 128
of its columns). N:M is tried a second time after a permutation of channels (`order`), found so that 2:4 keeps more of
the magnitude; what is 2:4 is also 4:8. Unstructured masks by score alone do not depend on the order. All see the same
calibration data, a few training examples, and so does INT8.

`bits` are the cross-entropy on the test data, in bits an example or a character; `accuracy` the share that is right, in
percent (of characters: foreseen). `masks` counts how many different sets of masks so many repetitions gave.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib import pruners
from lib.base import BadInput, Count, refuse_unknown
from lib.companion.sweep.context import Context
from lib.companion.sweep.settings import each_seed
from lib.data import text, vision
from lib.models import resnet, transformer
from lib.papers.two_four.experiments.two_phases import block_names
from lib.papers.two_four.experiments.variants import before_precision, masked_copy
from lib.pruners import calibration
from lib.pruners.permutation import anneal, permute
from lib.training.examples import Examples
from lib.training.language import windows
from lib.training.seeds import seed_of
from lib.training.steps import StepTraining, fit
from lib.training.supervised import Training, train

IMAGES: dict[str, Callable[[int], nn.Module]] = {  # from the number of classes
    "resnet20": resnet.resnet20,
    "small_resnet": resnet.small_resnet,
}
TEXTS: dict[str, Callable[[int, int], nn.Module]] = {  # from the number of symbols and the window
    "decoder": transformer.decoder,
    "small_decoder": transformer.small_decoder,
}
METHODS = ("magnitude", "wanda", "sparsegpt")
PATTERNS = {"2:4": (2, 4), "4:8": (4, 8), "50 %": None}
ORDERS = ("as trained", "permuted")
COLUMNS_AT_A_TIME = 128  # of unstructured SparseGPT
BATCH = 64

KEYS = ("data", "network", "seed")
INDEX = ("data", "network", "method", "pattern", "order", "seed")
COLUMNS = (*INDEX, "bits", "accuracy", "int8_bits", "int8_accuracy", "sparsity", "masks")

Batches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Task:
    """Describe one network on one data set: images with `training`, or a text with `first` and `window`.

    Attributes:
        seeds: how many, from 0.
        calibrated: how many training examples, or windows of the training text, the methods and INT8 see.
        repeats: how often each method is asked for its masks.
        proposals: of the search for an order of channels.
    """

    data: str
    network: str
    seeds: Count
    calibrated: Count
    repeats: Count
    proposals: Count
    training: Training | None = None
    first: StepTraining | None = None
    window: Count | None = None

    def __post_init__(self):
        if (self.training is None) == (self.first is None) or (self.first is None) != (self.window is None):
            raise BadInput(f"{self.network} on {self.data}: expected training (images), or first and window (a text)")
        known = (vision.names(), IMAGES) if self.first is None else (text.names(), TEXTS)
        refuse_unknown(self, data=known[0], network=known[1])


@dataclass(frozen=True)
class Settings:
    """List the tasks: each is a network on a data set."""

    tasks: tuple[Task, ...]


def configurations(settings: Settings) -> list[dict]:
    """Lay out the grid: a seed of a task each, with everything `run` needs."""
    return [{name: value for name, value in one.items() if value is not None} for one in each_seed(settings.tasks)]


def aliases(configuration: dict) -> list[dict]:
    """Return the form in which earlier sources keyed this configuration."""
    return before_precision(configuration, "first")


def units(configuration: dict) -> int:
    """Count the epochs, or the rows of training, and the pruned copies of one configuration."""
    first = configuration.get("first")
    trained = math.ceil(first["steps"] / first["every"]) if first else configuration["training"]["epochs"]
    return trained + len(list(kinds()))


def kinds() -> Iterator[tuple[str, str, str]]:
    """Method, pattern and order of each pruned copy; no order of channels matters to an unstructured mask."""
    for order in ORDERS:
        for pattern, n_of_m in PATTERNS.items():
            if order == "as trained" or n_of_m:
                yield from ((method, pattern, order) for method in METHODS)


def run(configuration: dict, context: Context) -> list[dict]:
    """Train one network and prune it in every way; one row a way."""
    trained = _of_text(configuration, context) if "first" in configuration else _of_images(configuration, context)
    networks = {"as trained": trained.model, "permuted": trained.permuted()}
    rows = [_row(configuration, trained, trained.model, ("dense", "none", "as trained"), 1)]
    for method, pattern, order in kinds():
        times = configuration["repeats"] if order == "as trained" else 1
        found = [pruned(networks[order], method, pattern, trained) for _ in range(times)]
        different = len({digest(pruners.attached(model)) for model in found})
        rows.append(_row(configuration, trained, found[0], (method, pattern, order), different))
        context.report_progress(f"{method} {pattern} {order}")
    return rows


def pruned(model: nn.Module, method: str, pattern: str, trained: Trained) -> nn.Module:
    """Prune a copy of the network by one of METHODS in one of PATTERNS."""
    n_of_m = PATTERNS[pattern]
    if n_of_m:
        chosen, width = partial(pruners.n_of_m, n=n_of_m[0], m=n_of_m[1]), n_of_m[1]
    else:
        scope = "row" if method == "wanda" else "layer"
        chosen, width = partial(pruners.unstructured, sparsity=0.5, scope=scope), COLUMNS_AT_A_TIME
    if method == "magnitude":
        return masked_copy(model, chosen(pruners.magnitude(model).only(trained.names)))
    solver = pruners.Wanda(chosen) if method == "wanda" else pruners.SparseGPT(chosen, width)
    return pruners.one_shot(model, trained.calibration, solver, trained.names)


def digest(masks: dict[str, Tensor]) -> str:
    """Take a fingerprint of masks: two sets have the same exactly if all masks are the same."""
    found = hashlib.sha256()
    for name in sorted(masks):
        found.update(name.encode() + masks[name].contiguous().cpu().numpy().tobytes())
    return found.hexdigest()


def quality(model: nn.Module, batches: Batches) -> dict[str, float]:
    """Measure cross-entropy in bits and the share that is right in percent, over all targets."""
    model.eval()
    lost, right, count = 0.0, 0, 0
    with torch.no_grad():
        for inputs, targets in batches:
            logits, targets = model(inputs).flatten(0, -2), targets.flatten()
            lost += float(F.cross_entropy(logits.double(), targets, reduction="sum"))
            right += int((logits.argmax(1) == targets).sum())
            count += len(targets)
    return {"bits": lost / count / math.log(2), "accuracy": 100 * right / count}


@dataclass
class Trained:
    """Hold a trained network, and what it is calibrated and tested on.

    Attributes:
        names: of the weights that are pruned.
        permuted: gives the network with its channels in another order.
    """

    model: nn.Module
    names: list[str]
    calibration: list[Tensor]
    test: Batches
    permuted: Callable[[], nn.Module]


def _row(configuration: dict, trained: Trained, model: nn.Module, kind: tuple[str, str, str], masks: int) -> dict:
    row = {name: configuration[name] for name in KEYS} | dict(zip(("method", "pattern", "order"), kind, strict=True))
    small = calibration.simulated(model, trained.calibration)
    int8 = {f"int8_{name}": value for name, value in quality(small, trained.test).items()}
    return row | quality(model, trained.test) | int8 | {"sparsity": pruners.sparsity(model), "masks": masks}


def _of_images(configuration: dict, context: Context) -> Trained:
    data, seed = vision.load(configuration["data"]), configuration["seed"]
    examples = Examples.of(data, context.device)
    torch.manual_seed(seed_of(seed))
    model = IMAGES[configuration["network"]](data.classes)
    training = Training(**configuration["training"])
    train(
        model,
        examples,
        training,
        seed,
        state=context.checkpoint("dense.pt"),
        on_progress=lambda: context.report_progress("dense"),
    )
    batches = list(examples.sample(configuration["calibrated"], BATCH, seed_of(seed, 2)))
    search = partial(anneal, proposals=configuration["proposals"], seed=seed_of(seed, 3))

    def permuted() -> nn.Module:
        return permute(model, batches[0][:2], search=search)[0]

    return Trained(model, pruners.eligible(model), batches, list(examples.test_batches(1000)), permuted)


def _of_text(configuration: dict, context: Context) -> Trained:
    play, seed, window = text.load(configuration["data"]), configuration["seed"], configuration["window"]
    parts = text.language(play)
    tokens = {part: torch.from_numpy(getattr(parts, part)).to(context.device) for part in text.PARTS}
    torch.manual_seed(seed_of(seed))
    model = TEXTS[configuration["network"]](len(play.symbols), window).to(context.device)
    schedule = StepTraining(**configuration["first"])
    draw = windows(tokens["train"], window, schedule.batch)
    fit(
        model,
        draw,
        schedule,
        seed,
        state=context.checkpoint("dense.pt"),
        on_progress=lambda: context.report_progress("dense"),
    )
    some = windows(tokens["train"], window, configuration["calibrated"])
    batches = list(some(torch.Generator().manual_seed(seed_of(seed, 2)))[0].split(BATCH))
    search = partial(anneal, proposals=configuration["proposals"], seed=seed_of(seed, 3))

    def permuted() -> nn.Module:
        """Block by block: what a block takes and gives stays in its order, its inner channels need not."""
        found = copy.deepcopy(model)
        width = found.head.in_features
        states = torch.randn(1, window, width, generator=torch.Generator().manual_seed(0)).to(context.device)
        for number, block in enumerate(found.decoder.blocks):
            found.decoder.blocks[number] = permute(block, states, search=search)[0]
        return found

    full = (len(tokens["test"]) - 1) // window * window
    pairs = (tokens["test"][begin : begin + full].view(-1, window).split(BATCH) for begin in (0, 1))
    return Trained(model, block_names(model), batches, list(zip(*pairs, strict=True)), permuted)
