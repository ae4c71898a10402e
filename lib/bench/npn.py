"""Time what gates cost in training, and what cutting closed ones brings in inference (paper 4).

A training step with ARM has two forward passes instead of one, so three units of work (forward 1, backward 2) become
four at least. To that come small operations on the gates of each layer, as many whatever the batch: two draws, the
estimate, the penalty. Beside LeNet-5's step on 16 images they are felt. Weights and images are kept as training keeps
them (`channels_last`).

Inference is measured on the architectures that the paper ends with, with the gates cut out; beside it stands what their
FLOPs promise: the dense network's time, scaled.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.bench.calls import dense_step, inference
from lib.kernels.timing import in_turn
from lib.models.alexnet import alexnet
from lib.models.lenet import lenet5
from lib.pruners import gates

COLUMNS = ("network", "implementation", "batch", "ms", "ratio_to_dense")
THREADS = 1  # on a CPU, so that runs on machines with more cores can be compared
BLOCK = 10  # steps a turn: training takes one after the other, with its weights at hand
NETWORKS = {  # where the paper's sparsification ends (tables 1 and 2), and the shape of an example
    "lenet5": (lenet5, (7, 9, 109, 30), (1, 28, 28)),
    "alexnet": (alexnet, (89, 161, 131, 91, 57, 92, 299, 3486), (3, 32, 32)),
}


def run(device: str) -> list[dict]:
    """Measure all and return a row a network, implementation and batch; inference is compared with dense inference."""
    rows = []
    for name, (build, ends, shape) in NETWORKS.items():
        torch.manual_seed(0)
        dense = build().to(device, memory_format=torch.channels_last)
        gated = gates.gated(dense)
        small = gates.gated(dense, start=ends)
        gates.set_k(small, gates.INFINITE)
        hardened = gates.harden(small).to(memory_format=torch.channels_last)
        before, after = (gates.sizes(gates.trace(model, shape))["flops"] for model in (gated, small))

        def record(batch: int, times: dict[str, float], against: str, name: str = name) -> None:
            for key, ms in times.items():
                row = {"network": name, "implementation": key, "batch": batch, "ms": ms}
                rows.append(row | {"ratio_to_dense": ms / times[against]})

        for batch in (16, 128):
            images, labels = drawn(batch, shape, device), torch.randint(10, (batch,), device=device)
            rivals = {"dense": dense_step(dense, images, labels), "gated": gated_step(gated, images, labels)}
            record(batch, in_turn(rivals, block=BLOCK), "dense")
        dense.eval()
        for batch in (1, 128):
            images = drawn(batch, shape, device)
            rivals = {"dense inference": inference(dense, images), "hardened inference": inference(hardened, images)}
            times = in_turn(rivals, block=BLOCK)
            times["promised by FLOPs"] = times["dense inference"] * after / before
            record(batch, times, "dense inference")
    return rows


def drawn(batch: int, shape: tuple[int, ...], device: str) -> Tensor:
    """Draw images [batch, *shape], the channels of a pixel beside one another."""
    return torch.randn(batch, *shape, device=device).to(memory_format=torch.channels_last)


def gated_step(model: nn.Module, images: Tensor, labels: Tensor) -> Callable[[], None]:
    """Make a function that takes one training step of stage 2: ARM, the penalty, the update."""
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)
    draw = torch.Generator().manual_seed(0)
    lambdas = [1e-9] * len(gates.gates_of(model))

    def call() -> None:
        optimizer.zero_grad(set_to_none=True)
        gates.arm(model, lambda network: F.cross_entropy(network(images), labels), draw)
        gates.penalty(model, lambdas).backward()
        optimizer.step()

    return call
