"""Measure what using a speaker network costs: time an utterance and size of a file (paper 3, section 5).

A student that was distilled is an ordinary ResNet18: its self-teacher is gone, and its rows here are those of any
ResNet18. With the self-teacher kept, which nobody would, it costs what the row "resnet18 with self-teacher" says. The
2:4 form has two of four weights removed in every layer that fits. No processor skips them, so it takes as long as the
dense one; what it saves here is bytes.
"""

from __future__ import annotations

import torch
from torch import nn

from lib import pruners
from lib.bench.calls import inference
from lib.data.speech.filterbank import BANDS
from lib.kernels.timing import in_turn
from lib.models.bifpn import SelfTeacher, SelfTeacherEmbedding
from lib.models.speaker_resnet import NETWORKS
from lib.pruners.sizes import sizes

COLUMNS = ("network", "form", "frames", "ms", "ratio_to_resnet34", "megabytes")
LENGTHS = (300, 1000)  # frames of an utterance: 3 and 10 seconds


def run(device: str) -> list[dict]:
    """Time each network and form on each length of utterance, one row each; a batch is one utterance."""
    torch.manual_seed(0)
    networks: dict[tuple[str, str], nn.Module] = {(name, "dense"): build() for name, build in NETWORKS.items()}
    networks["resnet18", "two_four"] = pruned(NETWORKS["resnet18"]())
    student = NETWORKS["resnet18"]()
    networks["resnet18 with self-teacher", "dense"] = SelfTeacherEmbedding(student, SelfTeacher(student.channels))
    rows = []
    for frames in LENGTHS:
        features = torch.randn(1, frames, BANDS, device=device)
        times = in_turn({key: inference(network.to(device).eval(), features) for key, network in networks.items()})
        for (name, form), ms in times.items():
            stored = sizes(networks[name, form], (frames, BANDS), value_bits=32)
            rows.append(
                {
                    "network": name,
                    "form": form,
                    "frames": frames,
                    "ms": ms,
                    "ratio_to_resnet34": ms / times["resnet34", "dense"],
                    "megabytes": stored[f"bytes_{form}"] / 1e6,
                }
            )
    return rows


def pruned(network: nn.Module) -> nn.Module:
    """Remove two of every four weights where the pattern fits, as plain zeros: a mask would take time of its own."""
    pruners.attach(network, pruners.two_four(network))
    pruners.detach(network)
    return network
