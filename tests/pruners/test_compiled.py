"""A network that torch.compile has wrapped, and that has run, is read as the plain one: no hook goes unseen."""

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from lib import pruners
from lib.pruners import calibration, gates, sizes
from lib.pruners.permutation import permute
from lib.pruners.permutation.search import greedy

INPUTS = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))
BATCHES = [100 * INPUTS[:16], INPUTS[16:]]  # of two shapes; only that of the first is compiled


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


def whole() -> nn.Module:
    return torch.compile(net(), backend="eager")


def part() -> nn.Module:
    model = net()
    model[0] = torch.compile(model[0], backend="eager")
    return model


def in_place() -> nn.Module:
    model = net()
    model.compile(backend="eager")
    return model


def ran(compiled) -> nn.Module:
    torch._dynamo.reset()
    model = compiled()
    with torch.no_grad():
        model(BATCHES[0])
    return model


def masks(model: nn.Module) -> list[Tensor]:
    solver = pruners.SparseGPT(partial(pruners.n_of_m, n=2, m=4), width=4)
    return list(pruners.attached(pruners.one_shot(model, BATCHES, solver)).values())


@pytest.mark.parametrize("compiled", [whole, part, in_place])
def test_what_enters_the_layers_of_a_compiled_network_is_seen(compiled):
    model = ran(compiled)
    assert list(calibration.ranges(model, BATCHES).values()) == list(calibration.ranges(net(), BATCHES).values())
    assert list(sizes.positions(model, (16,)).values()) == [1, 1]
    for found, expected in (
        (pruners.wanda(model, BATCHES).values(), pruners.wanda(net(), BATCHES).values()),
        (masks(model), masks(net())),
    ):
        assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))


def test_scores_of_a_compiled_network_have_the_names_by_which_masks_are_attached_to_it():
    model = ran(whole)
    pruners.attach(model, pruners.n_of_m(pruners.wanda(model, BATCHES)))
    assert pruners.sparsity(model) == 0.5


def test_the_forward_pass_of_a_compiled_network_is_traced():
    permuted, table = permute(ran(whole), INPUTS, search=greedy)
    expected, same = permute(net(), INPUTS, search=greedy)
    assert table.equals(same)
    assert torch.equal(permuted(INPUTS), expected(INPUTS))
    gated = gates.gated(ran(whole))
    assert list(gated.state_dict()) == list(gates.gated(net()).state_dict())
    assert list(gates.harden(torch.compile(gated, backend="eager")).state_dict()) == list(net().state_dict())


def test_a_mask_on_a_compiled_layer_is_one_mask():
    model = part()
    pruners.attach(model, pruners.two_four(model))
    assert list(pruners.attached(model)) == ["0._orig_mod.weight", "2.weight"]
    assert pruners.refused(model) == {}
    assert pruners.sparsity(model) == 0.5
