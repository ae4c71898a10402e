"""Measure how large a pruned network is as a file, in each format: paper 1, Table 1 and figure 4. Real bytes,
written.
"""

from __future__ import annotations

import io
import math
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import BadInput
from lib.kernels import packed

State = Mapping[str, Tensor]


def dense(state: State, dtype: torch.dtype = torch.float32) -> int:
    """Measure torch.save of the state_dict as it is."""
    return _saved({name: tensor.to(dtype) for name, tensor in state.items()})


def coo(state: State) -> int:
    """Measure torch.save after `to_sparse()` on every tensor, as the paper did: two int64 indices a kept weight."""
    return _saved({name: tensor.to_sparse() for name, tensor in state.items()})


def csr(state: State) -> int:
    """Measure torch.save after `to_sparse_csr()`, an int64 index a kept weight and one a row; biases as they are."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta")
        # the column indices are a view of COO's pairs, all of which would be saved: a copy holds them alone
        return _saved({name: t.to_sparse_csr().clone() if t.dim() == 2 else t for name, t in state.items()})


def bitmap(state: State) -> int:
    """Measure torch.save of the kept weights and one bit a place; biases as they are."""
    parts = {}
    for name, tensor in state.items():
        if tensor.dim() == 2:
            nonzero = tensor != 0
            parts |= {
                f"{name}.places": torch.from_numpy(np.packbits(nonzero.numpy())),
                f"{name}.values": tensor[nonzero],
            }
        else:
            parts[name] = tensor
    return _saved(parts)


def coded(state: State, dtype: torch.dtype = torch.float32) -> int:
    """Measure a file of `lib.kernels.packed`: kept weights and an entropy-coded bitmap."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "packed"
        packed.save({name: tensor.to(dtype) for name, tensor in state.items()}, path)
        return path.stat().st_size


def floor(state: State, dtype: torch.dtype = torch.float32) -> int:
    """Compute, without a file, the fewest bytes that hold the kept values and tell which they are, layer by layer."""
    bits = 0.0
    for tensor in state.values():
        nonzeros = int((tensor != 0).sum())
        bits += nonzeros * 8 * dtype.itemsize + packed.floor_bits(tensor.numel(), nonzeros)
    return math.ceil(bits / 8)


FORMATS: dict[str, Callable[[State], int]] = {
    "dense": dense,
    "coo": coo,
    "csr": csr,
    "bitmap": bitmap,
    "packed": coded,
    "floor": floor,
    "dense_float16": partial(dense, dtype=torch.float16),
    "packed_float16": partial(coded, dtype=torch.float16),
    "floor_float16": partial(floor, dtype=torch.float16),
}


def _saved(parts: State) -> int:
    file = io.BytesIO()
    torch.save(dict(parts), file)
    return len(file.getvalue())


def bcq_networks(observations: int = 17, actions: int = 6) -> dict[str, nn.Module]:
    """Build the three networks of BCQ (Fujimoto et al. 2019), newly drawn from the seed 0: actor, twin critic, VAE.

    By default those of Table 1, whose sizes fit HalfCheetah and Walker2d (17, 6) and not Hopper (11, 3).
    """
    both = observations + actions
    layers = {
        "actor": {"l": (both, 400, 300, actions)},
        "critic": {"q1": (both, 400, 300, 1), "q2": (both, 400, 300, 1)},
        "vae": {"e": (both, 750, 750), "mean": (750, 2 * actions), "log_std": (750, 2 * actions)}
        | {"d": (observations + 2 * actions, 750, 750, actions)},
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return {
            network: nn.ModuleDict(
                {name: nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(sizes))) for name, sizes in parts.items()}
            )
            for network, parts in layers.items()
        }


def pruned(network: nn.Module, sparsity: float) -> dict[str, Tensor]:
    """Prune the state_dict of a network without the smallest of its weights; biases stay.

    They are ranked all together: the parts of a network (`bcq_networks`) are no networks of their own.
    """
    masks = pruners.unstructured(pruners.magnitude(network), sparsity, scope="global")
    state = {name: tensor.detach().clone() for name, tensor in network.state_dict().items()}
    return state | {name: state[name].masked_fill(~mask, 0) for name, mask in masks.items()}


@cache  # several claims ask for the same files
def megabytes(network: str, form: str, sparsity: float = 0.0) -> float:
    """Measure one cell of Table 1: the file of a BCQ network in a format, in 1e6 bytes. The unit is the paper's too.

    Which weights are gone matters little to the size; here they are the smallest of the network.

    Raises:
        BadInput: another network or format.
    """
    networks = bcq_networks()
    if network not in networks or form not in FORMATS:
        raise BadInput(f"{network} as {form}: known are {', '.join(networks)}, as {', '.join(FORMATS)}")
    return FORMATS[form](pruned(networks[network], sparsity)) / 1e6


def table(sparsities: Sequence[float], formats: Sequence[str] = tuple(FORMATS)) -> pd.DataFrame:
    """Compute table 1 and figure 4: columns network, format, sparsity, megabytes (1e6 bytes)."""
    rows = []
    for name, network in bcq_networks().items():
        for sparsity in sparsities:
            state = pruned(network, sparsity)
            rows += [(name, form, sparsity, FORMATS[form](state) / 1e6) for form in formats]
    return pd.DataFrame(rows, columns=["network", "format", "sparsity", "megabytes"])
