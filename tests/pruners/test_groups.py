"""Laws of group-sparse weights: what is shared stays shared, whole groups go, friendly changes do not jump."""

import copy
from functools import partial

import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.kernels import block_circulant as bc
from lib.models.mlp import MLP, generators, join, plain, take
from lib.pruners import blocks
from lib.pruners import groups as gs

FC, CONV = "fc.weight", "conv.weight"


class Net(nn.Module):
    """A convolution with 4 -> 8 channels and a layer of 8 -> 12, in float32."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.fc = nn.Conv2d(4, 8, 3), nn.Linear(8, 12)

    def forward(self, images):
        return self.fc(torch.tanh(self.conv(images)).mean((2, 3)))


def images():
    return torch.randn(6, 4, 5, 5, generator=torch.Generator().manual_seed(1))


def grouped(block=4, **settings):
    net = Net()
    gs.group(net, {FC: bc.circulant(block), CONV: bc.circulant(block)}, **settings)
    return net


def adam(model, steps=3):
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    return optimizer, train(model, optimizer, steps)


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        (model(images()) - 1).square().mean().backward()
        optimizer.step()


def weights(model):
    return {layer.name: layer.weight.clone() for layer in pruners.prunable(model)}


def is_in_groups(weight, table):
    matrices = weight.movedim((2, 3), (0, 1)) if weight.dim() == 4 else weight
    return torch.equal(bc.expand(bc.project(matrices, table), table, matrices.shape[-2:]), matrices)


def test_coefficients_are_the_parameters_and_their_weights_stay_shared_through_training():
    net = grouped()
    dense = sum(parameter.numel() for parameter in Net().parameters()) - 20  # without biases
    assert sum(parameter.numel() for parameter in net.parameters()) - 20 == dense / 4
    before = weights(net)
    adam(net)
    for name, weight in weights(net).items():
        assert not torch.equal(weight, before[name])
        assert is_in_groups(weight, bc.circulant(4))


def test_training_is_that_of_the_expanded_layer_with_gradients_summed_over_groups():
    net = grouped().double()
    x = images().double()
    (net(x) - 1).square().mean().backward()
    loose = copy.deepcopy(net)
    pruners.detach(loose)
    loose.zero_grad()
    (loose(x) - 1).square().mean().backward()
    gradient = net.fc.parametrizations.weight.original.grad
    torch.testing.assert_close(gradient, 4 * bc.project(loose.fc.weight.grad, bc.circulant(4)))
    gradient = net.conv.parametrizations.weight.original.grad
    kernel = loose.conv.weight.grad.movedim((2, 3), (0, 1))
    torch.testing.assert_close(gradient, 4 * bc.project(kernel, bc.circulant(4)))


def test_blocks_of_one_are_the_plain_layer():
    plain, one = Net(), grouped(1)
    _ = adam(plain), adam(one)
    assert all(torch.equal(weight, weights(plain)[name]) for name, weight in weights(one).items())


def test_drawn_coefficients_have_the_dense_layers_variance_and_projected_ones_a_share():
    torch.manual_seed(0)
    for start, share in (("drawn", 1.0), ("projected", 1 / 8)):
        layer = nn.Linear(256, 256)
        expected = layer.weight.var()
        gs.group(layer, {"weight": bc.circulant(8)}, start)
        assert (layer.weight.var() / expected).item() == pytest.approx(share, rel=0.05)
    weight = nn.Linear(8, 8)
    nearest = bc.project(weight.weight.detach(), bc.circulant(4))
    gs.group(weight, {"weight": bc.circulant(4)}, "projected")
    assert torch.equal(weight.parametrizations.weight.original, nearest)


def test_a_padded_edge_keeps_the_dense_variance():
    """In the last column of nine stands one weight of each coefficient, not four: it is not averaged, nor scaled."""
    torch.manual_seed(0)
    layer = nn.Linear(9, 4096)
    expected = layer.weight.var()
    gs.group(layer, {"weight": bc.circulant(4)}, pad=True)
    assert (layer.weight[:, 8].var() / expected).item() == pytest.approx(1, rel=0.1)
    assert (layer.weight[:, :8].var() / expected).item() == pytest.approx(1, rel=0.1)


def test_a_size_that_the_block_does_not_divide_is_padded_by_choice():
    layer = nn.Linear(17, 6)
    expected = layer.weight.var()
    gs.group(layer, {"weight": bc.circulant(4)}, pad=True)
    assert layer.parametrizations.weight.original.shape == (2, 5, 4)
    assert layer.weight.shape == (6, 17)
    assert is_in_groups(layer.weight, bc.circulant(4))
    assert (layer.weight.var() / expected).item() == pytest.approx(1, rel=0.5)
    masks = gs.whole_groups(pruners.magnitude(layer), 0.5, gs.tables(layer))
    pruners.attach(layer, masks)
    # 2 x 5 blocks, of which the last holds 2 of 4 coefficients: half of 38 are left
    assert (gs.coefficients(layer)["weight"] != 0).sum() == 19
    gs.group(other := nn.Linear(5, 5), {"weight": blocks.single(4)}, pad=True)  # most of its blocks are not there
    masks = gs.whole_groups(pruners.magnitude(other), 0.6, gs.tables(other))
    assert masks["weight"].sum() == 10


# Pruning


def test_whole_groups_go_the_smallest_first_and_exactly_as_many_as_asked():
    net = grouped()
    scores = pruners.magnitude(net)
    masks = gs.whole_groups(scores, 0.5, gs.tables(net))
    for name, mask in masks.items():
        kept = scores[name][mask]
        assert mask.sum() == mask.numel() / 2
        assert is_in_groups(mask.float(), bc.circulant(4))
        assert kept.min() >= scores[name][~mask].max()
    pruners.attach(net, masks)
    assert pruners.sparsity(net) == 0.5
    adam(net)
    assert all(torch.equal(weight != 0, masks[name]) for name, weight in weights(net).items())


def test_layers_that_are_not_selected_get_no_mask():
    net = grouped()
    masks = gs.whole_groups(pruners.magnitude(net), 0.5, select="fc")
    assert list(masks) == [FC]
    assert torch.equal(masks[FC], gs.whole_groups(pruners.magnitude(net), 0.5)[FC])


def test_single_weights_are_pruned_as_by_unstructured_and_scopes_are_its():
    net = Net()
    scores = pruners.magnitude(net)
    for scope in ("layer", "network"):
        expected = pruners.unstructured(scores, 0.3, scope)
        found = gs.whole_groups(scores, 0.3, {}, scope)
        assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_whole_groups_rank_scores_in_their_own_precision():
    """In float32 these scores would all be the same, and ties go by their place: the others would be kept."""
    scores = pruners.Scores({"weight": torch.linspace(1e-12, 0, 8, dtype=torch.float64).view(2, 4) + 1}, {})
    assert gs.whole_groups(scores, 0.5, {})["weight"].tolist() == [[True] * 4, [False] * 4]
    assert gs.whole_groups(pruners.Scores({"weight": 2 - scores["weight"]}, {}), 0.5, {})["weight"].tolist() == [
        [False] * 4,
        [True] * 4,
    ]


def test_snip_scores_a_coefficient_as_if_it_were_the_only_parameter():
    net = grouped().double()
    x = images().double()

    def loss(model):
        return (model(x) - 1).square().mean()

    scores = pruners.snip(net, loss)
    coefficients = net.fc.parametrizations.weight.original
    (gradient,) = torch.autograd.grad(loss(net), coefficients)
    torch.testing.assert_close(bc.project(scores[FC], bc.circulant(4)), (coefficients * gradient).abs().detach())


# The phase shift


@pytest.mark.parametrize("conversion", ["none", "block4_friendly_block2", "block2_friendly_block4"])
def test_releases_change_neither_weights_nor_function_and_then_free_them(conversion):
    first, *later = blocks.phases(4, conversion)
    net = Net()
    gs.group(net, {FC: first, CONV: first}, releasable=True)
    pruners.attach(net, gs.whole_groups(pruners.magnitude(net), 0.4, gs.tables(net)))
    optimizer, _ = adam(net)
    for table in later:
        before, function = weights(net), net(images())
        gs.regroup(net, {FC: table, CONV: table}, optimizers=[optimizer])
        assert all(torch.equal(weight, before[name]) for name, weight in weights(net).items())
        assert torch.equal(net(images()), function)
        masks = pruners.attached(net)
        train(net, optimizer, 2)
        for name, weight in weights(net).items():
            assert torch.equal(weight != 0, masks[name])
            assert is_in_groups(weight, table)
    assert not is_in_groups(weight, blocks.within(4, 2))


@pytest.mark.parametrize(
    ("first", "second"),
    [(blocks.friendly(6, 3), blocks.within(6, 3)), (bc.circulant(6), blocks.halved(bc.circulant(6)))],
)
def test_releases_of_float64_from_groups_of_three_change_no_weight(first, second):
    torch.manual_seed(0)
    layer = nn.Linear(48, 48).double()
    gs.group(layer, {"weight": first}, releasable=True)
    before = layer.weight.clone()
    gs.regroup(layer, {"weight": second})
    assert torch.equal(layer.weight, before)


def test_projection_takes_the_nearest_and_keeps_a_group_with_a_weight_left():
    first, second, _ = blocks.phases(4, "projection")
    net = nn.Linear(4, 4)
    gs.group(net, {"weight": first}, releasable=True)
    kept = torch.tensor([[[True, False, False, True]]])
    pruners.attach(net, {"weight": bc.expand(kept.float(), first, (4, 4)) > 0})
    a, d = net.weight[0, 0].item(), net.weight[0, 1].item()
    gs.regroup(net, {"weight": second})
    # [a d | 0 0] of which the diagonals of two: a, (d + 0) / 2 and 0, (d + 0) / 2
    top = [[a, d / 2, 0, d / 2], [d / 2, a, d / 2, 0]]
    expected = torch.tensor([*top, *[row[2:] + row[:2] for row in top]])
    torch.testing.assert_close(net.weight.detach(), expected)
    assert pruners.sparsity(net) == 0.25


def test_adams_state_is_carried_over_so_that_the_next_step_is_as_large():
    steps = {}
    for carry in gs.CARRIES:
        net = grouped(releasable=True)
        optimizer, _ = adam(net, 5)
        trained = net.fc.parametrizations.weight.original
        first, second = (optimizer.state[trained][name].clone() for name in ("exp_avg", "exp_avg_sq"))
        gs.regroup(net, {FC: blocks.single(4)}, optimizers=[optimizer], carry=carry)
        size = 4 if carry == "shared" else 1
        places = bc.circulant(4).flatten()
        torch.testing.assert_close(optimizer.state[trained]["exp_avg"], first[..., places] / size)
        torch.testing.assert_close(optimizer.state[trained]["exp_avg_sq"], second[..., places] / size**2)
        before = net.fc.weight.clone()
        train(net, optimizer, 1)
        steps[carry] = (net.fc.weight - before).abs().mean().item()
    net = grouped()
    optimizer, _ = adam(net, 5)
    before = net.fc.weight.clone()
    train(net, optimizer, 1)
    as_before = (net.fc.weight - before).abs().mean().item()
    assert steps["shared"] / as_before == pytest.approx(1, rel=0.1)
    assert steps["copied"] < 0.95 * as_before


def test_a_coefficient_that_keeps_its_only_weight_keeps_what_adam_remembers():
    """In a block that reaches over the end, a coefficient may stand for one weight, before the release and after."""
    layer = nn.Linear(9, 8, bias=False)
    gs.group(layer, {"weight": bc.circulant(4)}, pad=True, releasable=True)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        (4 * layer.weight.sum()).backward()
        optimizer.step()
    gs.regroup(layer, {"weight": blocks.single(4)}, optimizers=[optimizer])
    own = layer.parametrizations.weight
    first, second = (own[0](optimizer.state[own.original][name]) for name in ("exp_avg", "exp_avg_sq"))
    # five steps of a gradient of 4 for each weight, whether four shared a coefficient or one had its own
    torch.testing.assert_close(first, torch.full((8, 9), 4 * (1 - 0.9**5)))
    torch.testing.assert_close(second, torch.full((8, 9), 16 * (1 - 0.999**5)))


def test_what_is_removed_is_forgotten_by_the_optimizer():
    net = grouped(releasable=True)
    optimizer, _ = adam(net)
    pruners.attach(net, gs.whole_groups(pruners.magnitude(net), 0.5, gs.tables(net)))
    gs.forget(net, [optimizer])
    train(net, optimizer, 3)
    hidden = net.fc.parametrizations.weight.original
    assert torch.equal(hidden[..., :4] != 0, gs.coefficients(net)[FC] != 0)  # it has not moved behind the mask


# Stacks


def test_each_run_of_a_stack_is_pruned_and_released_by_itself_and_runs_can_be_taken():
    name, x = "layers.1.weight", torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))

    def stack(seeds):
        model = MLP((4, 8, 8, 2), generators(seeds))
        gs.group(model, {name: bc.circulant(4)}, releasable=True)
        return model

    def go(model, shares, release):
        pruners.attach(model, gs.whole_groups(pruners.magnitude(model).only([name]), shares, gs.tables(model)))
        optimizer = torch.optim.Adam(model.parameters(), 0.01)
        for step in range(4):
            if step == 2 and release is not None:
                gs.regroup(model, {name: blocks.single(4)}, release, [optimizer])
                again = gs.whole_groups(pruners.magnitude(model).only([name]), shares, gs.tables(model))
                pruners.attach(model, again)
            optimizer.zero_grad()
            (model(x[: model.runs]) - 1).square().mean((1, 2)).sum().backward()
            optimizer.step()
        return model

    together = go(stack([0, 1, 2]), [0.25, 0.5, 0.75], 1)
    assert [(layer == 0).float().mean() for layer in together.layers[1].weight] == [0.25, 0.5, 0.75]
    shared = [is_in_groups(weight, bc.circulant(4)) for weight in together.layers[1].weight]
    assert shared == [True, False, True]
    first = go(stack([0]), [0.25], None)
    assert torch.equal(first(x[:1]), together(x)[:1])
    part = take(together, [2, 1])
    assert torch.equal(part(x[[2, 1]]), together(x)[[2, 1]])
    assert torch.equal(join([take(together, [0]), take(together, [1, 2])])(x), together(x))
    torch.testing.assert_close(plain(together, 1)(x[1]), together(x)[1])


# Bad input


@pytest.mark.parametrize("layer", [nn.LSTM(8, 8), nn.Conv1d(8, 8, 3), nn.ConvTranspose2d(8, 8, 3)])
def test_blocks_are_those_of_a_linear_or_a_conv2d(layer):
    name = pruners.prunable(layer)[0].name
    with pytest.raises(BadInput, match=f"{name}: blocks are those of a Linear, a stack of them or a Conv2d"):
        gs.group(layer, {name: bc.circulant(4)})


def test_a_weight_that_an_embedding_shares_has_no_groups():
    model = nn.ModuleDict({"table": nn.Embedding(8, 8), "head": nn.Linear(8, 8, bias=False)})
    model["head"].weight = model["table"].weight
    with pytest.raises(BadInput, match=r"head\.weight is shared with another layer, which would read its coefficients"):
        gs.group(model, {"head.weight": bc.circulant(4)})


@pytest.mark.parametrize(
    ("optimizer", "powers"),
    [
        (partial(torch.optim.RMSprop, momentum=0.9), {"square_avg": 2, "momentum_buffer": 0}),
        (partial(torch.optim.Adam, amsgrad=True), {"exp_avg": 1, "exp_avg_sq": 2, "max_exp_avg_sq": 2}),
        (torch.optim.Adadelta, {"square_avg": 2, "acc_delta": 0}),  # the squares of steps
        (torch.optim.Rprop, {"prev": 1, "step_size": 0}),
        (torch.optim.ASGD, {"ax": 0}),  # the mean of the weights
    ],
)
def test_squares_of_gradients_and_what_is_none_are_known_in_every_optimizer(optimizer, powers):
    net = grouped(releasable=True)
    made = optimizer(net.parameters())
    train(net, made, 1)
    trained = net.fc.parametrizations.weight.original
    state = {values.data_ptr(): name for name, values in made.state[trained].items()}
    assert {state[values.data_ptr()]: power for values, power, _ in gs.moments(trained, [made])} == powers


def test_what_cannot_be_is_refused():
    net = Net()
    for name, table, line in (
        ("fc2.weight", bc.circulant(4), "no weight called 'fc2.weight'; there are: conv.weight, fc.weight"),
        (FC, bc.circulant(3), "fc.weight: block size 3 does not divide its 8 inputs; pad=True"),
        (FC, bc.circulant(5), "fc.weight: block size 5 does not divide its 12 outputs"),
    ):
        with pytest.raises(BadInput, match=line):
            gs.group(net, {name: table})
    with pytest.raises(BadInput, match="start='random': known are drawn, projected"):
        gs.group(net, {}, "random")
    masked = Net()
    pruners.attach(masked, {FC: torch.ones(12, 8, dtype=torch.bool)})
    with pytest.raises(BadInput, match=r"fc.weight has groups, a mask .* already: group first, then prune"):
        gs.group(masked, {FC: bc.circulant(4)})
    tight = grouped()
    with pytest.raises(BadInput, match=r"fc.weight has no groups in blocks of 4 with room for 16 coefficients"):
        gs.regroup(tight, {FC: blocks.single(4)})
    with pytest.raises(BadInput, match="has no groups in blocks of 2 with room"):
        gs.regroup(tight, {FC: blocks.single(2)})
    with pytest.raises(BadInput, match="carry='none': known are shared, copied"):
        gs.regroup(tight, {}, carry="none")
    with pytest.raises(BadInput, match=r"'conv.weight' cuts groups of weights that share a coefficient"):
        pruners.attach(tight, pruners.unstructured(pruners.random(tight, 0), 0.5))


@pytest.mark.parametrize("layer", [nn.Conv1d(4, 8, 3), nn.Conv3d(4, 8, 3)])
def test_whole_groups_of_a_convolution_are_those_of_its_own_shape(layer):
    model = nn.Sequential(layer)
    (mask,) = gs.whole_groups(pruners.magnitude(model), 0.5).values()
    assert mask.shape == layer.weight.shape
    assert int(mask.sum()) == mask.numel() // 2
