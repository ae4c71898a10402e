"""Say before pruning what each layer would gain on this machine from 2:4, from unstructured zeros and from int8.

    from lib.advise import advise
    advise(model, batch=64, shape=(3, 32, 32))
    advise(model, inputs=tokens)                        # whatever the model is called with

Speed depends on the processor and the shapes, not on the values, so each layer's own shapes are measured, in turn.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from statistics import median

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib import base, pruners
from lib.base import BadInput, atomic, to_write, type_of
from lib.kernels import two_four
from lib.kernels.products import csr, csr_linear, int8_linear, padded, quantised
from lib.kernels.timing import rounds
from lib.pruners import kinds
from lib.pruners.counted import refuse_shapeless, values
from lib.pruners.inputs import Inputs, batch_of, example
from lib.pruners.layers import matrices, survey
from lib.pruners.selected import Select
from lib.pruners.uses import uses
from lib.pruners.weights import Prunable

COLUMNS = ("layer", "m", "n", "k", "sparsity", "batch", "dense_ms", "int8_ms", "two_four_ms", "csr_ms", "use", "why")
METHODS = {"dense": "dense", "int8": "int8", "two_four": "2:4", "csr": "CSR"}
TIE = "no difference"  # the answer where timings overlap: whatever is kept, nothing is lost
CLEARLY = 1.05  # how many times as fast as dense another way must be before it is advised; less is noise
FEW_CHANNELS = 256


def advise(
    model: nn.Module,
    batch: int | None = None,
    device: str = "cpu",
    shape: Sequence[int] | None = None,
    seconds: float = 0.5,
    inputs: Inputs = None,
    select: Select = None,
) -> pd.DataFrame:
    """Time each layer's matrix product dense, int8, 2:4 and in CSR, and say which of them to use.

    Weights that are not 2:4 yet are pruned for the measurement; CSR has the zeros that the weight has now. int8 stays
    dense and includes quantising the activations. A convolution is measured as the matrix product it amounts to (paper
    2, section 3.2: m = outputs, k = inputs x kernel, n = batch x positions), on both sides without the cost of laying
    it out so. On a CPU the products are float32's, on a GPU float16's.

    How often a layer is used is watched in a pass of the model, so that a weight which only a function reads, as
    attention reads that of its `out_proj`, is counted like any other.

    Args:
        batch: examples at once; of `inputs`, as many as these hold.
        shape: of one example, without the batch axis. It tells how often each layer is used. With neither it nor
            inputs each layer is used once, which only a Linear can be.
        seconds: of measuring, for each layer.
        inputs: a batch of what the model is called with, see `pruners.inputs`, in place of batch and shape.
        select: as `pruners.prunable`.

    Returns:
        A row a layer, columns COLUMNS: m, n, k of its product, milliseconds, `use` (one of METHODS, or TIE), and
        `why`. What has a matrix and cannot be pruned has a row with the reason.

    Raises:
        BadInput: no batch or one below 1, a convolution without a shape, inputs that the model cannot take, weights
            without finite values, more rows than fit into memory, or as `two_four.backend`.
    """
    if inputs is not None and shape is not None:
        raise BadInput("give inputs, or the shape of one example, not both")
    if inputs is not None and batch not in (None, batch_of(inputs)):
        raise BadInput(f"batch={batch}: the inputs hold {batch_of(inputs)} examples, which is the batch then")
    batch = batch_of(inputs) if inputs is not None else batch
    if not isinstance(batch, Integral) or isinstance(batch, bool) or batch < 1:
        raise BadInput(f"batch={batch!r}: at least one example is needed, a whole number of them")
    if not isinstance(seconds, Real) or not 0 <= seconds < math.inf:
        raise BadInput(f"seconds={seconds!r}: expected a finite time for each layer")
    if shape is not None and not (
        isinstance(shape, Sequence) and all(isinstance(n, Integral) and n > 0 for n in shape)
    ):
        raise BadInput(f"shape={shape!r:.60}: expected whole numbers above 0, of one example, such as (3, 32, 32)")
    device = str(device)
    if device not in ("cpu", "cuda") or (device == "cuda" and not torch.cuda.is_available()):
        raise BadInput(f"device={device!r}: expected cpu, or cuda where torch finds a GPU")
    dtype = torch.float32 if device == "cpu" else torch.float16
    two_four.backend(dtype, device)
    layers = matrices(model, select)
    refuse_shapeless(model)
    for name, weight in values(layers).items():
        if not bool(torch.isfinite(weight).all()):
            raise BadInput(f"{name} holds numbers that are not finite")
    used, idle = _counted(model, layers, batch, shape, inputs)
    rows = []
    for layer in layers:
        matrix, groups = _single(layer), getattr(layer.module, "groups", 1)
        own, matrix = matrix.dtype, matrix.to(device, dtype)
        m, k, n = len(matrix) // groups, matrix.shape[1], math.ceil(used.get(layer.name, 0))
        row = {"layer": layer.name, "m": m, "n": n, "k": k, "batch": batch}
        row["sparsity"] = float((matrix == 0).double().mean())
        if groups > 1 or n == 0:
            why = idle[layer.name] if n == 0 else f"{groups} groups: small products, no sparse one for them"
            rows.append(row | {"use": "dense", "why": why})
        else:
            times = _times(layer.name, matrix, n, seconds)
            backend = two_four.backend(dtype, device, n, m * k)
            found = verdict(times, backend, rule_of_thumb(layer, n), row["sparsity"] > 0)
            if own != dtype:
                found["why"] += f"; timed in {str(dtype)[6:]}, the layer is {str(own)[6:]}"
            rows.append(row | {f"{key}_ms": median(each) for key, each in times.items()} | found)
    rest = survey(model)[1] if select is None else []
    rows += [{"layer": one.name, "batch": batch, "use": "dense", "why": one.why} for one in rest]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def measure(matrix: Tensor, n: int, seconds: float) -> dict[str, list[float]]:
    """Measure each of METHODS for n rows of activations, milliseconds of each round."""
    x = torch.randn(n, matrix.shape[1], device=matrix.device).to(matrix.dtype)
    wide = padded(matrix, 1, 4)
    pruned = wide * pruners.n_of_m({"weight": wide.abs()})["weight"]
    rivals = {
        "dense": partial(F.linear, x, matrix),
        "int8": partial(int8_linear, x, quantised(matrix)),
        "two_four": partial(two_four.linear, x, two_four.compressed(pruned[:, : matrix.shape[1]].contiguous())),
        "csr": partial(csr_linear, x, csr(matrix)),
    }
    return rounds(rivals, seconds)


def _times(layer: str, matrix: Tensor, n: int, seconds: float) -> dict[str, list[float]]:
    """What `measure` says; a batch that is too large for the machine is refused by the layer at which it is."""
    try:
        return measure(matrix, n, seconds)
    except (RuntimeError, TypeError) as error:  # torch has no class of its own for what a CPU lacks
        if not re.search("alloc|overflow|out of memory", str(error), re.IGNORECASE):
            raise
        raise BadInput(f"{layer}: {n:,} rows do not fit into memory; a smaller --batch") from error


def verdict(times: Mapping[str, Sequence[float]], backend: str, thumb: str = "", sparse: bool = True) -> dict[str, str]:
    """Return {use, why}: the fastest way if it is clearly faster than dense, and how the others compare with dense.

    Clearly is: with 95 % confidence the median over rounds of the ratio of both times, taken in the same round, is
    above CLEARLY. A way that is not, and that may be as fast as dense with the same confidence, is a tie. Where 2:4 is
    computed densely it is never advised, and no tie either: it is the same product. Nor is CSR where no weight is zero:
    it reads more than the dense product does, so that it can be ahead only by an accident of the timing.

    Args:
        times: milliseconds of each round of each of METHODS.
        backend: how the 2:4 product was computed; "dense" means that there was no sparse one to take.
        thumb: a rule of thumb that applies.
        sparse: whether a weight is zero.
    """
    gains = {method: median(times["dense"]) / median(each) for method, each in times.items() if method != "dense"}
    least = {method: surely(times["dense"], times[method]) for method in gains}
    most = {method: 1 / surely(times[method], times["dense"]) for method in gains}
    hopeless = {"two_four": backend == "dense", "csr": not sparse}
    real = [method for method in gains if not hopeless.get(method)]
    able = [method for method in real if least[method] > CLEARLY]
    close = [method for method in real if most[method] >= 1] if not able else []
    use = max(able, key=gains.get) if able else TIE if close else "dense"
    told = ", ".join(f"{METHODS[method]} {gain:.2f} x" for method, gain in gains.items())
    why = f"{METHODS[use]} is the fastest" if able else "dense is faster here"
    if close:
        why = "no way is clearly faster than dense here"
        told += "; within the noise " + ", ".join(f"{METHODS[m]} {least[m]:.2f} to {most[m]:.2f} x" for m in close)
    by_dense = "; 2:4 is computed densely, no sparse product is faster here" if backend == "dense" else ""
    return {"use": use, "why": f"{why} (speed relative to dense: {told}){by_dense}" + (f"; {thumb}" if thumb else "")}


def surely(dense: Sequence[float], other: Sequence[float]) -> float:
    """Bound from below, with 97.5 % confidence, the median of how many times as fast as dense another way is.

    The bound is an order statistic of the ratios, whatever their distribution; of five rounds or fewer the lowest.
    """
    ratios = sorted(one / two for one, two in zip(dense, other, strict=True))
    count, below, way, ways = len(ratios), 0, 1, 1  # of 2^count ways to fall below or above the median, so many
    while 40 * ways < 2**count:  # have as few below: at most 2.5 %
        way = way * (count - below) // (below + 1)
        below, ways = below + 1, ways + way
    return ratios[max(below, 1) - 1]


def rule_of_thumb(layer: Prunable, n: int) -> str:
    """Name the rule of thumb about 2:4 that applies to a product with n columns, and whose figure it is."""
    letters, shape = layer.layout.axes, layer.weight.shape
    channels = min(shape[layer.layout.input], shape[layer.layout.output])
    if {"k", "t"} & set(letters) and channels < FEW_CHANNELS:
        figure = "TensorRT's developers measured it (issues 3849 and 4065)"
        return f"rule of thumb: sparse convolutions gain from about {FEW_CHANNELS} channels on GPUs, {figure}"
    if n == 1:
        figure = "decoding was 12 % slower by 2:4 (pytorch/tutorials 3505)"
        return f"rule of thumb: a product with one column only reads weights, on a GPU {figure}"
    return ""


def _counted(
    model: nn.Module, layers: Sequence[Prunable], batch: int, shape: Sequence[int] | None, inputs: Inputs
) -> tuple[dict[str, float], dict[str, str]]:
    """How many columns each product has in evaluation mode, and why a layer has none."""
    if inputs is None and shape is None:
        for layer in layers:
            if layer.layout.axes != "oi" or not kinds.find(layer.module)[0].affine:
                kind, form = type_of(layer.module), "--shape CHANNELS,HEIGHT,WIDTH, in Python shape=(...)"
                what = "image" if {"k", "t"} & set(layer.layout.axes) else "inputs"
                form = form if what == "image" else "inputs=, in Python"
                raise BadInput(f"{layer.name} is {kind}, its product depends on the {what}: give {form}")
        return {layer.name: batch for layer in layers}, {}
    one = example(model, shape) if inputs is None else inputs
    times = batch if inputs is None else 1
    try:
        used = {name: times * count for name, count in uses(model, one, layers).items()}
    except Exception as error:  # whatever the model's own code raises
        what = "these inputs" if shape is None else f"an input of shape {','.join(map(str, shape))}"
        cure = "" if shape is None else "; if it takes tokens or several inputs, give inputs=, in Python"
        raise BadInput(f"{type(model).__name__} cannot take {what}: {_line(error.__cause__ or error)}{cure}") from error
    if not (idle := [layer.name for layer in layers if layer.name not in used]):
        return used, {}
    try:
        trained = uses(model, one, layers, training=True)
    except Exception as error:  # whatever the model's own code raises, such as for want of targets
        why = f"not reached by these inputs in evaluation mode, and training mode cannot be run: {error}"
        return used, dict.fromkeys(idle, why.splitlines()[0])
    said = {True: "used in training mode only", False: "not reached by these inputs, in neither mode"}
    return used, {name: said[name in trained] for name in idle}


def _single(layer: Prunable) -> Tensor:
    """The matrix of a layer's product; of stacked experts that of the first."""
    matrix = layer.matrix()
    experts = layer.weight.shape[layer.layout.axes.index("e")] if "e" in layer.layout.axes else 1
    return matrix[: len(matrix) // experts]


def main(words: list[str] | None = None) -> None:
    """Run the command line: build a model, measure it, and print a row a layer."""
    parser = argparse.ArgumentParser("python -m lib.advise", description=__doc__.splitlines()[0])
    parser.add_argument("model", metavar="MODULE:FACTORY", help="a module or a .py file, and what in it builds a model")
    parser.add_argument("--batch", type=int, default=1, help="examples at once (default: 1)")
    parser.add_argument("--shape", help="of one example, without the batch axis, such as 3,32,32")
    parser.add_argument("--select", nargs="+", help="names of layers, or patterns of names (default: all)")
    parser.add_argument("--device", default="cpu", help="cpu or cuda (default: cpu)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of measuring, for each layer (default: 0.5)")
    parser.add_argument("--csv", type=Path, help="write the whole table, times included, to this file too")
    asked = parser.parse_args(words)
    with base.program("lib.advise"):
        shape = None if asked.shape is None else _shape(asked.shape)
        model = built(asked.model)
        csv = None if asked.csv is None else to_write(asked.csv)
        table = advise(model, asked.batch, asked.device, shape, asked.seconds, select=asked.select)
        if csv is not None:
            with atomic(csv) as file:
                file.write(table.to_csv(index=False).encode())
        widths = {name: max(len(name), *map(len, table[name])) for name in ("layer", "use")}
        for layer, use, why in [("layer", "use", "why"), *zip(table.layer, table.use, table.why, strict=True)]:
            print(f"{layer:{widths['layer']}}  {use:{widths['use']}}  {why}")


def built(name: str) -> nn.Module:
    """Build the model that MODULE:FACTORY names: a module or a .py file, and a function, a class or a model in it.

    A file finds what lies beside it, as if it were run itself: its folder is the first of `sys.path` from now on,
    because a model may import only when it is called.

    Raises:
        BadInput: what is missing, or what the code there raises.
    """
    where, colon, factory = name.rpartition(":")
    if not (colon and where and factory):
        raise BadInput(f"{name!r}: expected MODULE:FACTORY, such as lib.models.resnet:small_resnet or net.py:build")
    try:
        if where.endswith(".py"):
            if not Path(where).is_file():
                raise BadInput(f"{where} is no file")
            sys.path.insert(0, str(Path(where).resolve().parent))
            # a name like __main__, so that a file called random.py takes no other module's place
            spec = importlib.util.spec_from_file_location("__advised__", where)
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # where a dataclass looks up what its annotations mean
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(where)
        if not hasattr(module, factory):
            raise BadInput(f"{where} has no {factory!r}")
        found = getattr(module, factory)
        model = found if isinstance(found, nn.Module) else found()
    except BadInput:
        raise
    except (Exception, SystemExit) as error:  # whatever a stranger's code raises
        raise BadInput(f"{name} cannot be built: {_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise BadInput(f"{name} gives {type_of(model)}, expected a torch.nn.Module")
    return model


def _shape(text: str) -> tuple[int, ...]:
    """The sizes of one example from numbers with commas between them."""
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise BadInput(f"--shape {text}: expected whole numbers above 0 with commas between them, such as 3,32,32")
    return shape


def _line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


if __name__ == "__main__":
    main()
