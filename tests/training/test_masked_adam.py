"""Laws of the optimizer that knows the kept weights alone."""

import copy

import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.training.agents import TRAINING, Draws, Transitions, draw_batch
from lib.training.bc import BC, BCSettings
from lib.training.masked_adam import MaskedAdam


def trained(optimizer, parameters, masks, steps=5):
    """The parameters after a few steps on gradients that do not know of the masks."""
    draw = torch.Generator().manual_seed(1)
    for _ in range(steps):
        optimizer.zero_grad()
        for parameter in parameters:
            gradient = torch.randn(parameter.shape, generator=draw)
            parameter.grad = gradient if masks is None else gradient * masks.get(parameter, torch.tensor(True))
        optimizer.step()
    return [parameter.detach().clone() for parameter in parameters]


def setting():
    draw = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape, generator=draw)) for shape in ((2, 3, 5), (2, 3), (2, 1, 3))]
    masks = {
        parameter: torch.rand(parameter.shape, generator=draw) < 0.4 for parameter in (parameters[0], parameters[2])
    }
    with torch.no_grad():
        for parameter, mask in masks.items():
            parameter.mul_(mask)
    return parameters, masks


def test_it_is_adam_on_masked_gradients_and_removed_weights_stay_exactly_zero():
    parameters, masks = setting()
    ours = trained(MaskedAdam(parameters, masks, 0.01), parameters, None)
    assert all((ours[place][~masks[parameters[place]]] == 0).all() for place in (0, 2))
    rivals, masks = setting()
    theirs = trained(torch.optim.Adam(rivals, 0.01, foreach=True), rivals, masks)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], setting()[0][0])


def test_it_remembers_nothing_of_what_is_removed():
    parameters, masks = setting()
    optimizer = MaskedAdam(parameters, masks, 0.01)
    trained(optimizer, parameters, None, 1)
    sizes = sorted(len(state["exp_avg"].flatten()) for state in optimizer.state_dict()["state"].values())
    assert sizes == sorted([6, sum(int(mask.sum()) for mask in masks.values())])


def test_it_goes_on_where_it_was():
    parameters, masks = setting()
    optimizer = MaskedAdam(parameters, masks, 0.01)
    trained(optimizer, parameters, None, 3)
    state, then = copy.deepcopy(optimizer.state_dict()), [parameter.detach().clone() for parameter in parameters]
    whole = trained(optimizer, parameters, None, 2)
    others, masks = setting()
    again = MaskedAdam(others, masks, 0.01)
    again.load_state_dict(state)
    with torch.no_grad():
        for other, value in zip(others, then, strict=True):
            other.copy_(value)
    assert all(torch.equal(a, b) for a, b in zip(trained(again, others, None, 2), whole, strict=True))


def test_weights_may_be_set_behind_torchs_back_and_lie_in_memory_in_any_order():
    weight = torch.randn(4, 3, 3, 3).to(memory_format=torch.channels_last)
    mask = torch.rand(weight.shape) < 0.5
    ours, theirs = nn.Parameter(weight * mask), nn.Parameter((weight * mask).clone())
    optimizer, rival = MaskedAdam([ours], {ours: mask}, 0.01), torch.optim.Adam([theirs], 0.01, foreach=True)
    for _ in range(2):
        ours.data.fill_(5.0).mul_(mask)  # torch counts no change of a parameter's `data`
        theirs.data.copy_(ours.data)
        ours.grad = torch.randn(weight.shape)
        theirs.grad = ours.grad * mask
        optimizer.step()
        rival.step()
        assert torch.equal(ours, theirs)
    assert ours.is_contiguous(memory_format=torch.channels_last)


def test_a_masked_parameter_without_a_gradient_is_refused_before_anything_moves():
    parameters, masks = setting()
    optimizer = MaskedAdam(parameters, masks, 0.01)
    before = [parameter.detach().clone() for parameter in parameters]
    for parameter in parameters[:2]:
        parameter.grad = torch.ones_like(parameter)
    with pytest.raises(BadInput, match="a masked parameter has no gradient"):
        optimizer.step()
    assert all(torch.equal(parameter, value) for parameter, value in zip(parameters, before, strict=True))


def test_weights_that_somebody_else_sets_between_two_steps_are_where_it_goes_on():
    parameters, masks = setting()
    optimizer = MaskedAdam(parameters, masks, 0.01)
    trained(optimizer, parameters, None, 2)
    with torch.no_grad():
        for parameter in parameters:
            parameter.copy_(masks.get(parameter, torch.tensor(True)) * 5.0)
    trained(optimizer, parameters, None, 1)
    kept = torch.cat(
        [parameter[masks.get(parameter, torch.ones_like(parameter, dtype=torch.bool))] for parameter in parameters]
    )
    assert (kept - 5).abs().max() < 0.02
    assert all((parameter[~mask] == 0).all() for parameter, mask in masks.items())


def test_without_masks_it_is_adam():
    parameters, _ = setting()
    rivals, _ = setting()
    ours = trained(MaskedAdam(parameters, {}, 0.01), parameters, None)
    theirs = trained(torch.optim.Adam(rivals, 0.01, foreach=True), rivals, None)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_what_an_agent_prunes_is_zero_whatever_it_was():
    agent = BC(6, [1.0], [0], BCSettings(hidden=(8, 8), batch=8))
    masks = pruners.unstructured(pruners.magnitude(agent.networks), 0.5)
    name = next(iter(masks))
    weight = agent.networks.get_parameter(name)
    with torch.no_grad():
        weight[~masks[name]] = torch.nan
    agent.attach(masks)
    assert torch.equal(weight != 0, masks[name])


def test_masks_that_an_agent_holds_and_masks_on_its_layers_train_to_the_same_bits():
    draw = torch.Generator().manual_seed(0)
    seen = torch.randn(40, 6, generator=draw)
    none = torch.zeros(40, 1)
    data = Transitions(seen, torch.tanh(seen[:, :2]), none, seen, none)
    held, attached = (BC(6, [1.0, 1.0], [0, 1], BCSettings(hidden=(8, 8), batch=8)) for _ in range(2))
    masks = pruners.unstructured(pruners.magnitude(held.networks), [0.5, 0.8])
    held.attach(masks)
    pruners.attach(attached.networks, masks)
    attached.start()  # its optimizers, without masks
    draws = Draws([0, 1])
    for step in range(5):
        pair = draw_batch(held, data, draws, 8, TRAINING, step)
        one, other = held.update(*pair), attached.update(*pair)
        assert torch.equal(one["vae"], other["vae"])
    pairs = zip(pruners.prunable(held.networks), pruners.prunable(attached.networks), strict=True)
    assert all(torch.equal(mine.weight, theirs.weight) for mine, theirs in pairs)
    assert {name: mask.tolist() for name, mask in held.attached().items()} == {
        name: mask.tolist() for name, mask in masks.items()
    }


def test_masks_that_do_not_fit_an_agent_are_refused_in_one_line_and_change_nothing():
    agent = BC(6, [1.0, 1.0], [0, 1], BCSettings(hidden=(8, 8), batch=8))
    name, layer = next((one.name, one) for one in pruners.prunable(agent.networks))
    before, whole = layer.weight.detach().clone(), torch.ones(layer.weight.shape, dtype=torch.bool)
    for masks, line in (
        ({name: 0.5 * whole}, "is torch.float32, expected torch.bool"),
        ({name: whole[:1]}, "has shape .*, its parameter"),
        ({"encoder.none": whole}, "'encoder.none': the model's prunable parameters are"),
        ([whole], "masks are a list"),
    ):
        with pytest.raises(BadInput, match=line):
            agent.attach(masks)
    assert torch.equal(layer.weight, before)
    assert not agent.masks


def test_masks_that_are_no_masks_of_their_parameters_and_several_types_are_refused():
    weight = nn.Parameter(torch.ones(4, 4))
    with pytest.raises(BadInput, match=r"a mask is bool \[2, 2\], expected bool \[4, 4\]"):
        MaskedAdam([weight], {weight: torch.ones(2, 2, dtype=torch.bool)}, 0.01)
    with pytest.raises(BadInput, match=r"a mask is int64 \[4, 4\], expected bool"):
        MaskedAdam([weight], {weight: torch.ones(4, 4, dtype=torch.int64)}, 0.01)
    other = nn.Parameter(torch.ones(2, dtype=torch.float64))
    masks = {one: torch.ones_like(one, dtype=torch.bool) for one in (weight, other)}
    with pytest.raises(BadInput, match="masked parameters are float32 and float64: expected one type for all"):
        MaskedAdam([weight, other], masks, 0.01)


def test_what_is_remembered_of_other_masks_is_refused():
    weight = nn.Parameter(torch.zeros(4))
    rows = [torch.tensor([True, True, False, False]), torch.tensor([False, False, True, True])]
    one, other = (MaskedAdam([weight], {weight: mask}, 0.01) for mask in rows)
    with pytest.raises(BadInput, match="is of other masks"):
        other.load_state_dict(one.state_dict())
