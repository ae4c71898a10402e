"""Watch what an experiment quantises: by which calibration, and whether the network that comes of it is asked."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest
import torch
from torch import nn

from lib.pruners import calibration


@contextmanager
def watched(experiment: ModuleType) -> Iterator[list[dict]]:
    """One entry a network that is quantised within: the calibrations of its inputs, and its answers so far."""
    made, methods = [], set()
    quantise, threshold = calibration.quantised, calibration.threshold

    def watch(model: nn.Module, amax: dict[str, float]) -> nn.Module:
        found = quantise(model, amax)
        assert any(isinstance(module, calibration.Int8) for module in found.modules())
        entry = {"methods": set(methods), "answers": 0}
        methods.clear()
        made.append(entry)

        def count(module: nn.Module, inputs: tuple, output: object) -> None:
            assert not module.training
            assert not torch.is_grad_enabled()
            entry["answers"] += 1

        for module in found.modules():
            if isinstance(module, calibration.Int8):
                module.register_forward_hook(count)
        return found

    def choose(histogram, method: str) -> float:
        methods.add(method)
        return threshold(histogram, method)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calibration, "quantised", watch)
        for module in (calibration, experiment):
            patch.setattr(module, "threshold", choose, raising=False)
        yield made
