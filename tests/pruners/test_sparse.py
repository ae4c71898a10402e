"""What `sparse` makes goes back: a trained copy is dense again, pruned further, saved, loaded into a plain model."""

from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.kernels.sparse_linear import SparseLinear

INPUTS = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8, bias=False), nn.Conv1d(1, 4, 3))


def run(model: nn.Module) -> torch.Tensor:
    return model[3](model[:3](INPUTS)[:, None])


def masked() -> nn.Sequential:
    model = net()
    pruners.attach(model, pruners.unstructured(pruners.magnitude(model), 0.8, floor=0.1))
    return model


def trained() -> nn.Sequential:
    """A sparse copy after a few steps, one of whose weights has come to be exactly zero."""
    model = pruners.sparse(masked())
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(3):
        optimizer.zero_grad()
        run(model).square().mean().backward()
        optimizer.step()
    with torch.no_grad():
        model[0].values[5] = 0
    return model


def test_a_trained_sparse_copy_is_dense_again_with_its_masks_and_computes_the_same():
    model = trained()
    assert not torch.allclose(model[2].values, pruners.sparse(masked())[2].values)  # it has learned
    model[0].values.requires_grad_(False)
    back = pruners.dense(model)
    assert torch.allclose(run(back), run(model), atol=1e-6)
    assert [type(layer).__mro__[1] for layer in back if hasattr(layer, "parametrizations")] == [
        nn.Linear,
        nn.Linear,
        nn.Conv1d,
    ]
    assert all(torch.equal(mask, pruners.attached(masked())[name]) for name, mask in pruners.attached(back).items())
    assert not back[0].parametrizations.weight.original.requires_grad
    assert back[2].bias is None
    assert isinstance(model[0], SparseLinear)  # what was handed over stays as it was
    fewer = pruners.unstructured(pruners.magnitude(back), 0.9, floor=0.05, within=pruners.attached(back))
    pruners.attach(back, fewer)
    assert pruners.sparsity(back) == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("form", ["bitmap", "two_four"])
def test_what_a_sparse_copy_has_learned_is_loaded_into_a_plain_model(form: str, tmp_path: Path):
    model, fresh = trained(), net()
    pruners.save(model, tmp_path / "a", form)
    pruners.load(tmp_path / "a", fresh)
    assert torch.allclose(run(fresh), run(model), atol=1e-6)
    assert pruners.attached(fresh).keys() == {"0.weight", "2.weight", "3.weight"}
    assert torch.allclose(run(pruners.sparse(fresh)), run(model), atol=1e-6)
    with pytest.raises(BadInput, match=r"a lacks 0\.by_input_ends: what pruners\.sparse has made .* the plain model"):
        pruners.load(tmp_path / "a", pruners.sparse(masked()))


def test_what_has_no_sparse_layer_and_what_would_lose_a_hook_is_refused():
    with pytest.raises(BadInput, match=r"^Sequential has no layer that pruners\.sparse has made$"):
        pruners.dense(masked())
    model = trained()
    model[2].register_forward_hook(lambda layer, inputs, outputs: None)
    with pytest.raises(BadInput, match=r"^2\.weight: its layer has hooks, .* remove them first$"):
        pruners.dense(model)


def test_a_hook_does_not_stand_in_the_way_of_a_file_and_a_layer_at_two_places_is_written_once(tmp_path: Path):
    model = trained()
    model.again = model[0]
    model[0].register_forward_hook(lambda layer, inputs, outputs: None)
    pruners.save(model, tmp_path / "a")
    fresh = net()
    fresh.again = fresh[0]
    pruners.load(tmp_path / "a", fresh)
    assert torch.allclose(run(fresh), run(model), atol=1e-6)
    with safe_open(tmp_path / "a", framework="pt") as file:
        assert not [name for name in file.keys() if name.startswith("again")]  # noqa: SIM118
