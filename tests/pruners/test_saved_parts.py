"""What else than weights and masks a saved network computes with: its gates' slopes, and tables of groups."""

from pathlib import Path

import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.kernels.block_circulant import circulant
from lib.models.lenet import small_lenet
from lib.pruners import blocks, gates
from lib.pruners import groups as gs


@pytest.mark.parametrize("by_file", [True, False])
@pytest.mark.parametrize("kind", ["hard_sigmoid", "hard_concrete"])
def test_a_gated_network_that_is_loaded_is_the_same_function(kind: str, by_file: bool, tmp_path: Path):
    def network(seed: int, **settings) -> nn.Module:
        torch.manual_seed(seed)
        return gates.gated(small_lenet(), start=[8, 16, 40, 30], seed=seed, **settings).eval()

    model, loaded = network(1, kind=kind, tau=0.4), network(5)
    gates.set_k(model, 5.5)
    if by_file:
        pruners.save(model, tmp_path / "gated.safetensors")
        pruners.load(tmp_path / "gated.safetensors", loaded)
    else:
        loaded.load_state_dict(model.state_dict())
    images = torch.randn(4, 1, 8, 8)
    assert torch.equal(model(images), loaded(images))
    assert {(one.k, one.tau, one.kind) for one in gates.gates_of(loaded)} == {(5.5, 0.4, kind)}


def grouped(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))
    gs.group(model, {"0.weight": circulant(4), "2.weight": circulant(4)}, releasable=True)
    return model


def released() -> nn.Module:
    """A network whose first layer's blocks were released, and then pruned weight by weight."""
    model = grouped(0)
    pruners.attach(model, masks := gs.whole_groups(pruners.magnitude(model), 0.5))
    gs.regroup(model, {"0.weight": blocks.single(4)})
    pruners.attach(model, gs.whole_groups(pruners.magnitude(model), 0.7, within=masks))
    return model


def test_a_network_whose_groups_were_released_is_loaded_into_a_fresh_one(tmp_path: Path):
    model, loaded = released(), grouped(1)
    pruners.save(model, tmp_path / "released.safetensors")
    pruners.load(tmp_path / "released.safetensors", loaded)
    inputs = torch.randn(3, 8)
    assert torch.equal(model(inputs), loaded(inputs))
    masks, again = pruners.attached(model), pruners.attached(loaded)
    assert all(torch.equal(masks[name], again[name]) for name in masks)
    assert torch.equal(gs.tables(loaded)["0.weight"], blocks.single(4))


def test_what_cannot_be_attached_leaves_the_tables_as_they_were(tmp_path: Path):
    model, loaded = released(), grouped(1)
    pruners.save(model, tmp_path / "released.safetensors")
    with torch.inference_mode():
        held = loaded[2].parametrizations.weight
        held.original = nn.Parameter(held.original.detach().clone())
    before = {name: table.clone() for name, table in gs.tables(grouped(1)).items()}
    with pytest.raises(BadInput, match=r"^2\.weight was made under torch\.inference_mode"):
        pruners.load(tmp_path / "released.safetensors", loaded)
    assert all(torch.equal(gs.tables(loaded)[name], before[name]) for name in before)


def test_a_file_of_before_slopes_were_in_it_leaves_the_models_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    model, loaded = gates.gated(small_lenet(), seed=1), gates.gated(small_lenet(), k=3.0, seed=2)
    with monkeypatch.context() as before:
        before.delattr(gates.Gates, "get_extra_state")
        before.delattr(gates.Gates, "set_extra_state")
        pruners.save(model, tmp_path / "old.safetensors")
    pruners.load(tmp_path / "old.safetensors", loaded)
    assert all(torch.equal(one.phi, two.phi) for one, two in zip(*map(gates.gates_of, (model, loaded)), strict=True))
    assert {one.k for one in gates.gates_of(loaded)} == {3.0}


def test_a_model_that_was_made_for_inference_is_refused_before_its_tables_change(tmp_path: Path):
    pruners.save(released(), tmp_path / "released.safetensors")
    with torch.inference_mode():
        loaded = grouped(1)
    with pytest.raises(BadInput, match=r"^0\.weight was made under torch\.inference_mode"):
        pruners.load(tmp_path / "released.safetensors", loaded)
