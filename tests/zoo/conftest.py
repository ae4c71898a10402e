"""The steps that a model goes through in the zoo: each is done, or refused in one clear line.

Never raw (an error of torch's from the inside), never wrong (a mask that a product does not see, another function).
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lib import pruners
from lib.advise import advise
from lib.base import BadInput
from lib.pruners import calibration
from lib.pruners.behind import behind
from lib.pruners.inputs import call, duplicate, tensors
from lib.pruners.permutation import permute
from lib.pruners.permutation.search import greedy

# The steps. Each takes a model and its inputs, and raises: BadInput where it refuses, AssertionError where it is wrong.


def outputs(model: nn.Module, inputs: object) -> list[Tensor]:
    with torch.no_grad():
        return [one.float() for one in tensors(call(model.eval(), inputs)) if one.is_floating_point()]


def same(found: list[Tensor], expected: list[Tensor], tolerance: float = 1e-3) -> None:
    for one, other in zip(found, expected, strict=True):
        assert float((one - other).abs().max()) <= tolerance * (1 + float(other.abs().max())), "another function"


def loss_of(inputs: object) -> Callable[[nn.Module], Tensor]:
    return lambda model: sum(o.float().square().mean() for o in tensors(call(model, inputs)) if o.is_floating_point())


def fitting(model: nn.Module) -> list[str]:
    return [layer.name for layer in pruners.prunable(model) if layer.inner % 4 == 0]


def two_four(model: nn.Module) -> dict[str, Tensor]:
    return pruners.n_of_m(pruners.magnitude(model, fitting(model)))


def masked(model: nn.Module) -> nn.Module:
    model = duplicate(model)
    pruners.attach(model, two_four(model))
    return model


def step_prunable(model: nn.Module, inputs: object) -> None:
    layers = pruners.prunable(model)
    assert len({id(p) for layer in layers for p in behind(layer.module)[layer.attribute]}) >= len(layers)
    assert not {layer.name for layer in layers} & pruners.refused(model).keys()
    for layer in layers:
        assert torch.equal(layer.layout.tensor(layer.matrix(), layer.weight.shape), layer.weight)


def step_magnitude(model: nn.Module, inputs: object) -> None:
    assert len(pruners.magnitude(model)) == len(pruners.prunable(model))


def step_snip(model: nn.Module, inputs: object) -> None:
    scores = pruners.snip(duplicate(model).train(), loss_of(inputs))
    assert all(bool(torch.isfinite(score).all()) for score in scores.values())


def step_grasp(model: nn.Module, inputs: object) -> None:
    scores = pruners.grasp(duplicate(model).eval(), loss_of(inputs))
    assert any(bool(score.any()) for score in scores.values())


def step_patterns(model: nn.Module, inputs: object) -> None:
    scores, before = pruners.magnitude(model), pruners.attached(model)
    masks = pruners.unstructured(scores, 0.5)
    zeros, count = sum(int((~mask).sum()) for mask in masks.values()), sum(m.numel() for m in masks.values())
    assert zeros == round(0.5 * count) or before
    for name, mask in two_four(model).items():
        assert bool((scores.layers[name].matrix(mask).reshape(-1, 4).sum(1) == 2).all())


def step_attach(model: nn.Module, inputs: object) -> None:
    """What is removed is not seen: however the numbers behind it change, the outputs do not."""
    pruned = masked(model)
    before = outputs(pruned, inputs)
    moved = 0
    for layer in pruners.prunable(pruned):
        mask, parameters = pruners.attached(pruned).get(layer.name), behind(layer.module)[layer.attribute]
        if mask is None:
            continue
        assert bool((layer.weight[~mask] == 0).all()), "a mask that the layer does not see"
        if len(parameters) == 1 and parameters[0].shape == mask.shape and "Spectral" not in str(layer.module):
            with torch.no_grad():
                parameters[0].add_(~mask, alpha=3.0)
            moved += 1
    assert moved or all(len(behind(layer.module)[layer.attribute]) > 1 for layer in pruners.prunable(pruned))
    same(outputs(pruned, inputs), before, 1e-6)


def step_train(model: nn.Module, inputs: object) -> None:
    pruned, masks = masked(model), two_four(model)
    optimizer = torch.optim.SGD([p for p in pruned.parameters() if p.requires_grad], 0.01, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(inputs)(pruned.train()).backward()
        optimizer.step()
    assert all(bool((la.weight[~masks[la.name]] == 0).all()) for la in pruners.prunable(pruned) if la.name in masks)


def step_permute(model: nn.Module, inputs: object) -> None:
    permuted, _ = permute(model, inputs, select=fitting(model), search=greedy)
    same(outputs(permuted, inputs), outputs(model, inputs))


def step_sparse(model: nn.Module, inputs: object) -> None:
    pruned = masked(model)
    same(outputs(pruners.sparse(pruned), inputs), outputs(pruned, inputs))


def step_int8(model: nn.Module, inputs: object) -> None:
    pruned = masked(model)
    small = calibration.simulated(pruned, [inputs], "max")
    masks = pruners.attached(pruned)
    for path, layer in small.named_modules():
        if (
            isinstance(layer, calibration.Int8)
            and (mask := masks.get(f"{path}.weight" if path else "weight")) is not None
        ):
            assert bool((layer.codes[~mask] == 0).all()), "a zero that has become another code"
    same(outputs(small, inputs), outputs(pruned, inputs), 0.25)


def step_advise(model: nn.Module, inputs: object) -> None:
    table = advise(duplicate(model), inputs=inputs, seconds=0)
    assert set(table.layer) >= {layer.name for layer in pruners.prunable(model)}
    reached = pruners.snip(duplicate(model).eval(), loss_of(inputs))
    idle = set(table.layer[table.n == 0])
    assert not {name for name in reached if reached[name].any()} & idle, "said to be idle, and is not"


def step_export(model: nn.Module, inputs: object) -> None:
    pruned = masked(model).eval()
    args = inputs if isinstance(inputs, tuple) else () if isinstance(inputs, dict) else (inputs,)
    kwargs = dict(inputs) if isinstance(inputs, dict) else {}
    program = torch.export.export(pruned, args, kwargs, strict=False)
    with torch.no_grad():
        found = [one.float() for one in tensors(program.module()(*args, **kwargs)) if one.is_floating_point()]
    same(found, outputs(pruned, inputs))


def step_detach(model: nn.Module, inputs: object) -> None:
    pruned = masked(model)
    expected, zeros = outputs(pruned, inputs), {la.name: la.weight == 0 for la in pruners.prunable(pruned)}
    pruners.detach(pruned)
    same(outputs(pruned, inputs), expected, 1e-6)
    assert pruners.attached(pruned) == {}
    assert all(torch.equal(layer.weight == 0, zeros[layer.name]) for layer in pruners.prunable(pruned))


STEPS = {name[5:]: step for name, step in globals().items() if name.startswith("step_")}


def outcome(step: Callable, model: nn.Module, inputs: object) -> str:
    """ok, refused, raw or wrong, and the line that was said."""
    try:
        step(duplicate(model), inputs)
    except BadInput as error:
        return "refused" if "\n" not in str(error) and len(str(error)) < 400 else f"raw: {error}"
    except AssertionError as error:
        return f"wrong: {error}".splitlines()[0]
    except Exception as error:  # the point of this test
        return f"raw: {type(error).__name__}: {error}".splitlines()[0]
    return "ok"


@pytest.fixture(scope="session")
def outcomes() -> Callable[[nn.Module, object], dict[str, str]]:
    """Every step of a model, and how it ended."""
    return lambda model, inputs: {name: outcome(step, model, inputs) for name, step in STEPS.items()}
