"""Hash what each kind of operation gives under `lib.companion.sweep.portable`, so that two processors can be compared.

    python -m lib.bench.same_bits       names the kinds that this processor computes otherwise than the committed table
    python -m lib.bench same_bits       writes this processor's rows beside those of others

A kind is what quick sweeps are made of: products, functions, sums, draws, one step of each network, a search, a voice,
an environment. Inputs are made from whole numbers, so they are the same everywhere; only the kinds named "draws" begin
with a generator's seed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pandas as pd

from lib import base
from lib.base import BadInput
from lib.companion.csv_files import read_csv
from lib.companion.sweep import portable
from lib.companion.sweep.provenance import describe

THREADS = 1
DEVICE = "cpu"
COLUMNS = ("numpy", "kind", "hash")
TABLE = base.RESULTS / "bench" / "same_bits.csv"

Arrays = Iterable  # of tensors, arrays and numbers
FUNCTIONS = """acos asin atan cos cosh erf erfc erfinv exp expm1 lgamma log log10 log1p log2 reciprocal rsqrt sigmoid
    sin sinh sqrt square tan tanh"""
POSITIVE = "lgamma log log10 log1p log2 reciprocal rsqrt sqrt"
WITHIN_ONE = "acos asin erfinv"
NUMPY_FUNCTIONS = "arctan cos cosh exp expm1 log log1p log2 reciprocal sin sqrt square tan tanh"


def run(device: str) -> list[dict]:
    """Hash all kinds in a process of its own, which begins under the portable settings; one row a kind.

    Raises:
        BadInput: that process has failed; its last words.
    """
    command = [sys.executable, "-m", "lib.bench.same_bits", "--hashes"]
    done = subprocess.run(command, env=os.environ | portable.SETTINGS, capture_output=True, text=True, cwd=base.ROOT)
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        raise BadInput(f"the process that hashes has failed: {said[-1]}")
    return [{"numpy": np.__version__, "kind": kind, "hash": found} for kind, found in json.loads(done.stdout).items()]


def hashes() -> dict[str, str]:
    """Hash each kind in this process: {kind: 12 hexadecimal digits}."""
    portable.prepare(portable.SETTINGS)
    return {kind: digest(make()) for kind, make in kinds().items()}


def differing(found: dict[str, str], table: pd.DataFrame) -> list[str]:
    """Name the kinds, in their order, whose hash no row of a table has."""
    known = set(zip(table.kind, table.hash, strict=True))
    return [kind for kind, value in found.items() if (kind, value) not in known]


def digest(arrays: Arrays) -> str:
    """Hash the bytes of tensors, arrays and numbers, in their order."""
    found = hashlib.sha256()
    for array in arrays:
        array = array.detach().numpy() if hasattr(array, "detach") else np.asarray(array)
        found.update(np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:12]


def numbers(*shape: int, seed: int = 1) -> np.ndarray:
    """Give numbers that look drawn evenly from [-1, 1), float32, from whole numbers alone (splitmix64)."""
    state = np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(
        seed << 40
    )
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    return ((state >> np.uint64(40)).astype(np.float32) / np.float32(2**23) - np.float32(1)).reshape(shape)


def kinds() -> dict[str, Callable[[], Arrays]]:
    """List the kinds of operations: what makes the arrays of each."""
    import torch

    def tensor(*shape: int, seed: int = 1) -> torch.Tensor:
        return torch.from_numpy(numbers(*shape, seed=seed).copy())

    found: dict[str, Callable[[], Arrays]] = {}
    for name in FUNCTIONS.split():
        found[f"torch {name}"] = lambda name=name: _function(torch, name, tensor)
    for name in NUMPY_FUNCTIONS.split():
        found[f"numpy {name}"] = lambda name=name: _numpy_function(name)
    found |= {f"torch {name}": lambda make=make: make(torch, tensor) for name, make in TORCH.items()}
    found |= {f"step of {name}": lambda name=name: _step(name, torch, tensor) for name in NETWORKS}
    return found | OTHERS


def _function(torch, name: str, tensor) -> Arrays:
    values = tensor(5003) if name in WITHIN_ONE.split() else 4 * tensor(5003)
    values = values.abs() + 1e-3 if name in POSITIVE.split() else values
    apply = getattr(torch, name)
    return [apply(values), apply(values.double()), apply(values[::3]), apply(values[1:8])]


def _numpy_function(name: str) -> Arrays:
    values = np.abs(4 * numbers(5003)) + np.float32(1e-3)
    apply = getattr(np, name)
    return [apply(values), apply(values.astype(np.float64)), apply(values[::3]), apply(values[1:8])]


def _products(torch, tensor) -> Arrays:
    for rows, inner, columns in (
        (64, 64, 64),
        (250, 80, 100),
        (100, 750, 750),
        (100, 11, 256),
        (16, 2, 100),
        (1, 256, 9),
    ):
        left, right = tensor(rows, inner).requires_grad_(), tensor(columns, inner, seed=2).requires_grad_()
        product = torch.nn.functional.linear(left, right, tensor(columns, seed=3))
        yield from (product, *torch.autograd.grad(product.square().sum(), (left, right)))
    yield from (tensor(300, 200).double() @ tensor(200, 90).double(), tensor(70, 33)[1:] @ tensor(33, seed=2))


def _stacked_products(torch, tensor) -> Arrays:
    for runs, rows, inner, columns in ((5, 100, 256, 256), (3, 100, 17, 6), (9, 1, 11, 64)):
        left, right = tensor(runs, rows, inner).requires_grad_(), tensor(runs, columns, inner, seed=2).requires_grad_()
        product = torch.baddbmm(tensor(runs, 1, columns, seed=3), left, right.mT)
        yield from (product, *torch.autograd.grad(product.square().sum(), (left, right)))
    yield torch.einsum("rbi,roi->rbo", tensor(3, 7, 17), tensor(3, 6, 17, seed=2))


def _convolutions(torch, tensor) -> Arrays:
    for batch, inputs, outputs, kernel, groups, size, stride in (
        (64, 1, 8, 5, 1, 8, 1), (64, 16, 32, 3, 1, 8, 2), (32, 16, 16, 3, 16, 8, 1), (32, 32, 64, 1, 1, 4, 1),
        (32, 32, 32, 3, 8, 4, 1), (8, 8, 16, 3, 1, 40, 2), (1, 8, 8, 3, 1, 40, 1), (3, 64, 64, 3, 1, 10, 1),
    ):  # fmt: skip
        x = tensor(batch, inputs, size, size).requires_grad_()
        weight = tensor(outputs, inputs // groups, kernel, kernel, seed=2).requires_grad_()
        y = torch.nn.functional.conv2d(x, weight, tensor(outputs, seed=3), stride, kernel // 2, groups=groups)
        first = torch.autograd.grad(y.square().sum(), (x, weight), create_graph=True)
        yield from (y, *first, *torch.autograd.grad(first[1].square().sum(), (x, weight)))  # GraSP differentiates twice


def _sums(torch, tensor) -> Arrays:
    x = tensor(7, 41, 123)
    yield from (x.sum(), x.sum(0), x.sum(1), x.sum(2), x.mean((0, 2)), x.var(), x.var(1), x.std(2), x.norm(), x.norm(1))
    yield from (x.cumsum(2), x.prod(2), x.double().sum(), x.softmax(2), x.log_softmax(1), x.logsumexp(0))
    yield from (x.quantile(0.3), x.median(), x.flatten().topk(9).values, x.amax(1), torch.linalg.vector_norm(x, dim=2))


def _norms(torch, tensor) -> Arrays:
    x = tensor(64, 16, 8, 8).requires_grad_()
    layers = (torch.nn.BatchNorm2d(16), torch.nn.AvgPool2d(2), torch.nn.MaxPool2d(2), torch.nn.AdaptiveAvgPool2d(1))
    for layer in (*layers, torch.nn.LayerNorm(8), torch.nn.GroupNorm(4, 16)):
        y = layer(x)
        yield from (y, *torch.autograd.grad(y.pow(3).sum(), x))
    yield torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear")


def _losses(torch, tensor) -> Arrays:
    scores, labels = tensor(64, 10).requires_grad_(), torch.arange(64) % 10
    functional = torch.nn.functional
    others = tensor(64, 10, seed=2)
    divergence = functional.kl_div(scores.log_softmax(1), others.softmax(1), reduction="batchmean")
    cosine = functional.cosine_similarity(scores, others).sum()
    for loss in (functional.cross_entropy(scores, labels), functional.mse_loss(scores, others), divergence, cosine):
        yield from (loss, *torch.autograd.grad(loss, scores))
    for activation in (functional.gelu, functional.softplus, functional.silu, functional.elu, functional.logsigmoid):
        y = activation(scores)
        yield from (y, *torch.autograd.grad(y.sum(), scores))


def _optimizers(torch, tensor) -> Arrays:
    adam = torch.optim.Adam
    for make in (
        lambda given: torch.optim.SGD(given, 0.1, momentum=0.9, nesterov=True, weight_decay=1e-4),
        lambda given: adam(given, 1e-3, foreach=True),
        lambda given: adam(given, 1e-3, fused=True),
        lambda given: torch.optim.AdamW(given, 1e-3, fused=True, weight_decay=0.1),
    ):
        values = [tensor(50, 60).requires_grad_(), tensor(7, seed=2).requires_grad_()]
        optimizer = make(values)
        for step in range(4):
            for value in values:
                value.grad = tensor(*value.shape, seed=10 + step)
            optimizer.step()
        yield from values


def _draws(torch, tensor) -> Arrays:
    draw = torch.Generator().manual_seed(3)
    yield from (torch.rand(999, generator=draw), torch.randn(999, generator=draw), torch.randn(7, generator=draw))
    yield from (torch.randperm(999, generator=draw), torch.randint(99, (99,), generator=draw))
    yield from (torch.bernoulli(tensor(999).abs(), generator=draw), torch.empty(99).bernoulli_(0.3, generator=draw))
    yield from (torch.empty(999).exponential_(generator=draw), torch.empty(99).uniform_(-1, 1, generator=draw))
    yield torch.multinomial(tensor(99).abs(), 30, True, generator=draw)
    yield torch.nn.init.kaiming_normal_(torch.empty(40, 30), generator=draw)


def _linear_algebra(torch, tensor) -> Arrays:
    matrix = tensor(30, 20).double()
    square = matrix.T @ matrix + torch.eye(20)
    yield from (torch.linalg.solve(square, matrix.T), torch.linalg.cholesky(square), torch.linalg.eigvalsh(square))
    yield from (torch.linalg.svdvals(matrix), torch.fft.rfft(tensor(5, 64)).real, tensor(99).pow(1.7).nan_to_num())


TORCH = {
    "products": _products,
    "stacked products": _stacked_products,
    "convolutions": _convolutions,
    "sums": _sums,
    "norms and pools": _norms,
    "losses": _losses,
    "optimizers": _optimizers,
    "draws": _draws,
    "linear algebra": _linear_algebra,
}


NETWORKS = (
    "small_lenet", "small_resnet", "small_resnext", "small_vgg", "small_lstm", "small_mobilenet_v2", "small_squeezenet",
    "small_shufflenet_v2", "moons_mlp", "small_decoder", "speaker_resnet18", "agents",
)  # fmt: skip


def _network(name: str, torch, tensor):
    """Make a network of the quick scale, and its inputs."""
    from lib.models import lenet, mlp, mobilenet, plain, recurrent, resnet, resnext, shufflenet, squeezenet, vgg
    from lib.models.speaker_resnet import SpeakerResNet
    from lib.models.transformer import small_decoder

    if name == "moons_mlp":
        return plain.moons_mlp(), tensor(250, 2)
    if name == "small_decoder":
        return small_decoder(30, 32), (torch.arange(16 * 32) * 7 % 30).reshape(16, 32)
    if name == "speaker_resnet18":
        return SpeakerResNet((2, 2, 2, 2), resnet.BasicBlock, 4), tensor(8, 80, 40)
    if name == "agents":
        return mlp.MLP((11, 256, 256, 3), mlp.generators((0, 1, 2))), tensor(3, 100, 11)
    for module in (lenet, recurrent, resnet, resnext, vgg, mobilenet, squeezenet, shufflenet):
        if hasattr(module, name):
            return getattr(module, name)(), tensor(64, 1, 8, 8)
    raise AssertionError(name)


def _step(name: str, torch, tensor) -> Arrays:
    """Two steps of a network from weights that are made here: what it puts out, its loss, its weights."""
    torch.manual_seed(0)
    network, inputs = _network(name, torch, tensor)
    with torch.no_grad():
        for place, parameter in enumerate(network.parameters()):
            if parameter.dim() > 1:
                parameter.copy_(tensor(*parameter.shape, seed=20 + place) / max(parameter[0].numel(), 1) ** 0.5)
    optimizer = torch.optim.SGD(network.parameters(), 0.01, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        outputs = network(inputs)
        loss = (outputs.flatten(0, -2) if outputs.dim() > 2 else outputs).logsumexp(1).square().mean()
        loss.backward()
        optimizer.step()
        yield from (outputs, loss)
    yield from (*network.parameters(), *network.buffers())
    yield network.eval()(inputs)


def _numpy_products() -> Arrays:
    x = numbers(300, 200)
    for y in (x, x.astype(np.float64)):
        yield from (y @ y.T, y @ y[0], y[0] @ y[1], np.einsum("ij,kj->ik", y, y), np.linalg.eigh(y.T @ y)[0])
        yield from (np.linalg.svd(y)[1], np.linalg.solve(y[:60, :60], y[:60]), np.linalg.norm(y, axis=1))


def _numpy_sums() -> Arrays:
    x = numbers(300, 201)
    for y in (x, x.astype(np.float64)):
        yield from (y.sum(), y.sum(0), y.mean(1), y.std(0), y.cumsum(), np.abs(y) ** 1.3, np.quantile(y, 0.3, axis=0))


def _numpy_draws() -> Arrays:
    draw = np.random.default_rng(3)
    yield from (draw.normal(size=999), draw.uniform(size=99), draw.permutation(99), draw.exponential(size=99))


def _scipy() -> Arrays:
    import scipy.linalg
    import scipy.optimize
    import scipy.signal
    import scipy.stats

    x = numbers(60, 60).astype(np.float64)
    square, wave = x @ x.T + np.eye(60), numbers(3000).astype(np.float64)
    yield from (scipy.linalg.solve(square, x), scipy.linalg.cholesky(square), scipy.linalg.eigh(square)[0])
    yield from (scipy.signal.lfilter([1, 0.3], [1, -0.7, 0.2], wave), scipy.signal.fftconvolve(wave, wave[:99]))
    yield from (scipy.stats.t.ppf(0.975, np.arange(1, 30)), scipy.optimize.linear_sum_assignment(x)[1])


def _compiled() -> Arrays:
    """What Numba compiles: orders of channels found by annealing."""
    import torch

    from lib.pruners.permutation import anneal
    from lib.pruners.permutation.both_sides import anneal_both

    weight = torch.from_numpy(numbers(32, 48).copy())
    yield anneal(weight, 20_000, seed=1)
    yield from anneal_both(weight, 20_000, seed=1)


def _sound() -> Arrays:
    from lib.data.speech import filterbank, voices

    sizes = voices.Sizes(train_speakers=1, test_speakers=1, sessions=1, utterances=1, seconds=1.0)
    (waves,) = voices.recordings(0, 1, sizes)
    yield from waves
    yield from (filterbank.log_mel(wave) for wave in waves)


def _environment(name: str) -> Iterator[np.ndarray]:
    from lib.data.environments import make

    game = make(name)
    yield game.reset(seed=3)[0]
    for step in range(200):
        action = numbers(*game.action_space.shape, seed=step) / 2 * game.action_space.high
        observation, reward, terminated, truncated, _ = game.step(action)
        yield from (observation, reward)
        if terminated or truncated:
            yield game.reset(seed=step)[0]


def _sets() -> Arrays:
    import sklearn.datasets

    yield from (sklearn.datasets.load_digits().data, sklearn.datasets.make_moons(200, noise=0.1, random_state=3)[0])


OTHERS: dict[str, Callable[[], Arrays]] = {
    "numpy products": _numpy_products,
    "numpy sums": _numpy_sums,
    "numpy draws": _numpy_draws,
    "scipy": _scipy,
    "numba's search": _compiled,
    "voices and filter banks": _sound,
    "digits and moons": _sets,
    **{
        name: lambda name=name: _environment(name)
        for name in ("HalfCheetah-v4", "Hopper-v4", "Walker2d-v4", "InvertedDoublePendulum-v4")
    },
}


def main() -> None:
    """Say which kinds this processor computes otherwise than all in the table, or with --hashes print its own."""
    about = "Say which kinds of operations this processor computes otherwise than those that gave the committed bits."
    parser = argparse.ArgumentParser("python -m lib.bench.same_bits", description=about)
    parser.add_argument("--hashes", action="store_true", help="print this processor's own hashes as JSON")
    own = parser.parse_args().hashes
    with base.program("lib.bench.same_bits"):
        if own:
            print(json.dumps(hashes()))
            return
        table = read_csv(TABLE, COLUMNS)  # refused before a minute is spent
        table = table[table.device != describe("cpu")]  # or a processor whose rows are there were compared with itself
        if table.empty:
            raise BadInput(f"{TABLE.name} has the rows of this processor alone, and none to compare it with")
        found = {row["kind"]: row["hash"] for row in run("cpu")}
        others = differing(found, table)
        print(f"{len(found) - len(others)} of {len(found)} kinds of operations give the same bits as {TABLE.name} has")
        for kind in others:
            print(f"  otherwise: {kind}")


if __name__ == "__main__":
    if "--hashes" in sys.argv:  # computed here, and not in a process of their own
        portable.settle()
    main()
