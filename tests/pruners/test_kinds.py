"""Laws of `lib.pruners.kinds`: a weight is the matrix of its product, and nothing is taken for what it is not."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

from lib import pruners
from lib.base import BadInput
from lib.pruners import kinds
from lib.pruners.behind import computed
from lib.pruners.kinds import Layout

SHAPES = {
    "oi": (3, 8),
    "io": (8, 3),
    "oik": (3, 4, 5),
    "oikk": (3, 4, 2, 5),
    "oikkk": (3, 4, 1, 2, 3),
    "iot": (4, 3, 5),
    "iott": (4, 3, 2, 5),
    "eoi": (2, 3, 8),
    "eio": (2, 8, 3),
}


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("axes", SHAPES)
def test_a_tensor_goes_to_its_matrix_and_back(axes: str, groups: int):
    tensor, layout = torch.randn(SHAPES[axes]), Layout(axes, groups if axes.startswith("iot") else 1)
    matrix = layout.matrix(tensor)
    assert matrix.shape[1] == layout.reduction(tensor.shape)
    assert torch.equal(layout.tensor(matrix, tensor.shape), tensor)


def reads(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Which input channels each row of the matrix sums over, bool [rows, inner]: by the derivative of the output."""
    (found,) = pruners.prunable(layer)
    places = torch.zeros(found.weight.shape)
    for channel in range(x.shape[1]):
        weight = found.weight.clone().requires_grad_()
        alone = torch.zeros_like(x)
        alone[:, channel] = x[:, channel]
        output = torch.func.functional_call(layer, {"weight": weight}, (alone,))
        places += (channel + 1) * (torch.autograd.grad(output.sum(), weight)[0] != 0)
    return found.matrix(places)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(8, 2, 3, bias=False),
        nn.Conv2d(8, 4, (1, 3), groups=2, bias=False),
        nn.Conv3d(4, 2, (2, 1, 2), bias=False),
        nn.ConvTranspose1d(8, 2, 3, stride=2, bias=False),
        nn.ConvTranspose2d(4, 3, (2, 3), stride=2, padding=1, bias=False),
        nn.ConvTranspose2d(8, 6, 2, groups=2, bias=False),
        nn.ConvTranspose3d(4, 2, 2, bias=False),
    ],
    ids=str,
)
def test_four_neighbours_of_a_row_are_four_input_channels_of_the_same_sum(layer: nn.Module):
    """What is 2:4 is what the product sums over: at one place of the kernel, four channels in a row."""
    dims = layer.weight.dim() - 2
    found = reads(layer, torch.rand(2, layer.in_channels, *[6] * dims) + 1)
    blocks = found.reshape(-1, 4)
    assert bool((blocks[:, 1:] - blocks[:, :-1] == 1).all())
    assert bool((blocks[:, 0] % 4 == 1).all())


def test_the_matrix_of_a_transposed_convolution_times_its_inputs_is_what_is_added_up():
    torch.manual_seed(0)
    layer, x = nn.ConvTranspose2d(8, 3, 2, stride=2, bias=False), torch.randn(1, 8, 5, 4)
    (found,) = pruners.prunable(layer)
    columns = found.matrix() @ x.flatten(2)[0]  # [out * 2 * 2, positions]; without overlap nothing is added
    torch.testing.assert_close(F.fold(columns[None], (10, 8), 2, stride=2), layer(x))
    assert pruners.two_four(nn.ConvTranspose2d(16, 3, 2))["weight"].sum(0).eq(8).all()  # at each place 8 of 16 channels


def test_a_transposed_convolution_pruned_two_of_four_keeps_two_of_four_channels_in_every_sum():
    torch.manual_seed(0)
    layer = nn.ConvTranspose1d(16, 6, 3, stride=2, groups=1, bias=False)
    pruners.attach(layer, pruners.two_four(layer))
    kept = layer.weight.detach() != 0  # [in, out, kernel]
    assert bool((kept.unflatten(0, (4, 4)).sum(1) == 2).all())


def test_every_product_of_torchs_layers_is_found():
    model = nn.ModuleDict({"lstm": nn.LSTM(4, 4, 2, proj_size=2), "gru": nn.GRU(4, 4, bidirectional=True)})
    model["cell"], model["one"] = nn.LSTMCell(4, 4), nn.MultiheadAttention(8, 2)
    model["three"] = nn.MultiheadAttention(8, 2, kdim=4, vdim=6)
    names = {layer.name.partition(".")[2] for layer in pruners.prunable(model["lstm"])} | {
        layer.name for layer in pruners.prunable(model)
    }
    assert {name for name in names if "weight" in name} == {
        *(f"lstm.weight_{kind}_l{depth}" for kind in ("ih", "hh", "hr") for depth in (0, 1)),
        *(f"gru.weight_{kind}_l0{way}" for kind in ("ih", "hh") for way in ("", "_reverse")),
        "cell.weight_ih",
        "cell.weight_hh",
        "one.in_proj_weight",
        "one.out_proj.weight",
        *(f"three.{kind}_proj_weight" for kind in "qkv"),
        "three.out_proj.weight",
    }
    assert pruners.coverage(model) == 1
    assert pruners.refused(model) == {}


@pytest.mark.parametrize(
    "layer", [nn.LSTM(4, 4, 2, dropout=0.1), nn.GRU(4, 4, bidirectional=True), nn.RNN(4, 4)], ids=str
)
def test_masks_reach_torchs_recurrent_layers_which_remember_their_weights(layer: nn.Module):
    torch.manual_seed(0)
    x = torch.randn(5, 3, 4)
    masks = pruners.n_of_m(pruners.magnitude(layer))
    trained = dict(layer.named_parameters())
    pruned = copy.deepcopy(layer)
    with torch.no_grad():
        for name, mask in masks.items():
            getattr(pruned, name).mul_(mask)
    pruners.attach(layer, masks)
    for one in (layer, copy.deepcopy(layer).double().float()):
        torch.testing.assert_close(one.eval()(x)[0], pruned.eval()(x)[0])
    optimizer = torch.optim.SGD(trained.values(), 0.5, momentum=0.9)  # made of the parameters as they were
    for _ in range(2):
        optimizer.zero_grad()
        layer(x)[0].square().sum().backward()
        optimizer.step()
    assert all(bool((found.weight[~masks[found.name]] == 0).all()) for found in pruners.prunable(layer))
    output = layer.eval()(x)[0]
    assert not torch.allclose(output, pruned(x)[0])
    pruners.detach(layer)
    torch.testing.assert_close(layer(x)[0], output)
    assert dict(layer.named_parameters()).keys() == trained.keys()
    assert layer.weight_hh_l0 is trained["weight_hh_l0"]


class Standardised(nn.Conv2d):
    """A weight-standardised convolution: what a mask has made zero is not zero in the product."""

    def forward(self, x):
        weight = self.weight - self.weight.mean((1, 2, 3), keepdim=True)
        return self._conv_forward(x, weight, self.bias)


class Padded(nn.Conv2d):
    """A convolution that pads by itself and multiplies by the weight as it is."""

    def forward(self, x):
        return F.conv2d(F.pad(x, (1, 1, 1, 1)), self.weight, self.bias)


class Named(nn.Linear):
    """Nothing but another name."""


def test_a_layer_whose_forward_is_its_own_is_refused_by_name_and_the_rest_is_left():
    model = nn.Sequential(Standardised(4, 4, 3), nn.Conv2d(4, 4, 1), Named(4, 4))
    model.append(nn.Linear(4, 4))
    model[3].forward = lambda x: F.linear(x, model[3].weight.abs())
    assert [layer.name for layer in pruners.prunable(model)] == ["1.weight", "2.weight"]
    why = "which may change the weight before it multiplies: if it does not, say so by pruners.kinds.register"
    assert pruners.refused(model) == {
        "0.weight": f"Standardised is a Conv2d with a forward of its own, {why}",
        "3.weight": f"Linear is a Linear with its forward replaced, {why}",
    }
    with pytest.raises(BadInput, match=r"mask '0\.weight': Standardised is a Conv2d with a forward of its own"):
        pruners.attach(model, {"0.weight": torch.ones(4, 4, 3, 3).bool()})
    with pytest.raises(BadInput, match=r"0\.weight cannot be pruned: Standardised is a Conv2d with a forward"):
        pruners.prunable(model, "0")
    with pytest.warns(match=r"speaks of 16\.[0-9]+ % of the network's matrix weights, not of 0\.weight \(Standardised"):
        pruners.sparsity(model)
    assert pruners.coverage(model) == 32 / (144 + 16 + 32)


def test_a_rule_of_ones_own(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kinds, "KINDS", dict(kinds.KINDS))
    kinds.register(Padded, kinds.KINDS[nn.Conv2d])
    assert [layer.name for layer in pruners.prunable(nn.Sequential(Padded(4, 4, 3)))] == ["0.weight"]
    with pytest.raises(BadInput, match="Padded has a rule already"):
        kinds.register(Padded, {"weight": "oikk"})
    with pytest.raises(
        BadInput, match=r"weight='ox': expected a letter an axis, one of them i and one o, r first, of r \(run\)"
    ):
        kinds.register(Standardised, {"weight": "ox"})


def test_only_what_is_selected():
    model = nn.ModuleDict({"a": nn.Sequential(nn.Linear(4, 4), nn.Conv1d(4, 4, 1)), "b": nn.Linear(4, 4)})
    for select, names in {
        "a": ["a.0.weight", "a.1.weight"],
        "b.weight": ["b.weight"],
        "*.0.*": ["a.0.weight"],
        "!a": ["b.weight"],
        nn.Linear: ["a.0.weight", "b.weight"],
        (nn.Conv1d, "b"): ["a.1.weight", "b.weight"],
        (nn.Linear, "!b"): ["a.0.weight"],
    }.items():
        assert [layer.name for layer in pruners.prunable(model, select)] == names
        assert sorted(pruners.magnitude(model, select)) == names
        assert sorted(pruners.unstructured(pruners.magnitude(model), 0.5, select=select)) == names
        assert sorted(pruners.n_of_m(pruners.random(model, 0, select))) == names
    tensors = dict(pruners.magnitude(model, nn.Linear))
    assert list(pruners.n_of_m(tensors, select="a.*")) == ["a.0.weight"]
    assert list(pruners.transposable(tensors, select="a.*")) == ["a.0.weight"]
    assert list(pruners.transposable(pruners.magnitude(model), select="b")) == ["b.weight"]
    for table in (pruners.report, pruners.verify):
        whole = table(model).set_index("layer")
        assert list(whole.index) == ["a.0.weight", "a.1.weight", "b.weight", "total"]
        part = table(model, "b").set_index("layer")
        assert list(part.index) == ["b.weight", "total"]
        assert part.loc["b.weight"].equals(whole.loc["b.weight"])
        assert part.weights["total"] == 16
    assert list(pruners.empty_layers(model, 1.0, "a").layer) == ["a.0.weight", "a.1.weight"]
    for wrong, line in (
        (nn.Conv2d, "no Conv2d layer; there are: a.0.weight, "),
        ("c", "no 'c'; there are: a.0.weight"),
        ((), "select is empty, so that no layer is selected: name some, or give None for all"),
        (("a", "!*"), "leaves out all that it selects; there are: a.0.weight"),
        ([3], "select: expected names, patterns of names or types of layers, one or a list, found an int"),
        (model["b"], "one or a list, found a Linear"),
        ((name for name in ["a"]), "one or a list, found a generator"),
    ):
        with pytest.raises(BadInput, match=line):
            pruners.prunable(model, wrong)
        with pytest.raises(BadInput):
            pruners.transposable(tensors, select=wrong)
        for asks in (pruners.magnitude, pruners.report, pruners.verify, pruners.sparsity, pruners.two_four):
            with pytest.raises(BadInput):
                asks(model, wrong)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, parametrizations.weight_norm, parametrizations.spectral_norm])
def test_a_mask_lies_on_what_a_norm_of_weights_computes(norm):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(4, 8, 3), nn.ReLU(), nn.Conv1d(8, 4, 1))
    norm(model[0])
    x, trained = torch.randn(2, 4, 9), set(model.parameters())
    weight = computed(model[0], "weight").detach().clone()
    loss = lambda model: model(x).square().sum()  # noqa: E731
    scores = pruners.snip(model, loss)
    plain = copy.deepcopy(pruners.prunable(nn.Sequential(nn.Conv1d(4, 8, 3))))[0].module
    plain.weight.data, plain.bias.data = weight.clone(), model[0].bias.data
    other = nn.Sequential(plain, nn.ReLU(), model[2])
    if norm is not parametrizations.spectral_norm:  # which changes its estimate in training
        torch.testing.assert_close(scores["0.weight"], pruners.snip(other, loss)["0.weight"])
    assert set(pruners.grasp(model, loss)) == {"0.weight", "2.weight"}
    masks = pruners.n_of_m(pruners.magnitude(model))
    pruners.attach(model, masks)
    assert set(model.parameters()) == trained  # optimizers stay valid
    optimizer = torch.optim.SGD(trained, 0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss(model).backward()
        optimizer.step()
        assert bool((model[0].weight[~masks["0.weight"]] == 0).all())
    assert pruners.sparsity(model) == 0.5
    output = model.eval()(x)
    pruners.detach(model)
    torch.testing.assert_close(model(x), output)
    assert type(model[0].weight) is nn.Parameter


def test_to_look_at_a_model_in_training_leaves_its_norms_as_they_are():
    model = nn.Sequential(parametrizations.spectral_norm(nn.Linear(8, 8)), nn.Linear(8, 4)).train()
    before = copy.deepcopy(model.state_dict())
    for look in (pruners.prunable, pruners.report, pruners.sparsity, pruners.magnitude, pruners.verify):
        look(model)
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items()), look
    chain = model[0].parametrizations.weight
    for frozen, of_chain in ((True, True), (False, False)):  # each module has a mode of its own
        chain.training, chain[0].training = of_chain, not frozen
        for look in (pruners.sparsity, pruners.magnitude):
            look(model)
            assert (chain.training, chain[0].training) == (of_chain, not frozen)
            assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items()), look


def test_masks_of_torchs_own_pruning_are_taken_over():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)), torch.randn(3, 8)
    prune.l1_unstructured(model[0], "weight", 0.5)
    prune.random_unstructured(model[0], "weight", 0.5)  # of what is left
    trained = set(model.parameters())
    held = model[0].weight_mask.bool()
    assert pruners.attached(model).keys() == {"0.weight"}
    assert torch.equal(pruners.attached(model)["0.weight"], held)
    assert pruners.sparsity(model) == (48 / 96)
    loss = lambda model: model(x).square().sum()  # noqa: E731
    assert bool((pruners.snip(model, loss)["0.weight"][~held] == 0).all())
    output = model(x)
    pruners.attach(model, pruners.attached(model))
    assert set(model.parameters()) == trained
    assert not model[0]._forward_pre_hooks
    torch.testing.assert_close(model(x), output)
    pruners.detach(model)
    torch.testing.assert_close(model(x), output)


def test_frozen_weights_are_scored_and_stay_frozen():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(3, 4)
    loss = lambda model: model(x).square().sum()  # noqa: E731
    for score in (pruners.snip, pruners.grasp):
        free = score(model.requires_grad_(True), loss)
        model[0].requires_grad_(False)
        frozen = score(model, loss)
        assert all(torch.equal(free[name], frozen[name]) for name in free)
        assert not model[0].weight.requires_grad
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model)))
    assert not model[0].weight.requires_grad
    assert pruners.sparsity(model) == 0.5


def test_a_layer_that_the_loss_does_not_reach_is_left_out_by_name():
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    with pytest.warns(pruners.LeftOut, match=r"1\.weight is left out: the loss does not depend on it"):
        scores = pruners.snip(model, lambda model: model[0](torch.ones(4)).sum())
    assert [*scores] == ["0.weight"]
    with pytest.raises(BadInput, match=r"the loss does not depend on 1\.weight"):
        pruners.snip(model, lambda model: model[0](torch.ones(4)).sum(), select="1.weight")


def test_second_derivatives_of_attention_and_recurrence_are_those_of_plain_arithmetic():
    torch.manual_seed(0)
    attention, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(2, 5, 8)
    loss = lambda model: model(x, x, x, need_weights=False)[0].square().sum()  # noqa: E731
    with pytest.warns(pruners.Slower, match="grasp: attention is computed by the mathematical kernel"):
        scores = pruners.grasp(attention, loss)
    with pytest.warns(pruners.Slower):
        slow = pruners.grasp(attention, lambda model: model(x, x, x, need_weights=True)[0].square().sum())
    torch.testing.assert_close(scores, slow)
    lstm = nn.LSTM(8, 4)
    scores = pruners.grasp(lstm, lambda model: model(x)[0].square().sum())

    def gradients(weights):
        output = torch.func.functional_call(lstm, weights, (x,))[0].square().sum()
        return torch.autograd.grad(output, list(weights.values()), create_graph=True)

    with torch.backends.mkldnn.flags(enabled=False):
        weights = {name: p for name, p in lstm.named_parameters() if name.startswith("weight")}
        rest = {name: p for name, p in lstm.named_parameters() if name.startswith("bias")}
        norm = sum(g.square().sum() for g in gradients(weights | rest)[: len(weights)])
        expected = torch.autograd.grad(norm / 2, list(weights.values()))
    for (name, weight), product in zip(weights.items(), expected, strict=True):
        torch.testing.assert_close(scores[name], (weight * product).detach())


def test_a_function_without_a_second_derivative_is_refused_in_one_line():
    model = nn.Sequential(nn.Linear(4, 4), nn.Hardsigmoid())
    with pytest.raises(BadInput, match=r"torch has none of a function here: derivative for aten::hardsigmoid_backward"):
        pruners.grasp(model, lambda model: model(torch.randn(2, 4)).square().sum())


def test_bfloat16():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)).bfloat16(), torch.randn(3, 8).bfloat16()
    loss = lambda model: model(x).square().mean()  # noqa: E731
    for scores in (pruners.magnitude(model), pruners.snip(model, loss), pruners.grasp(model, loss)):
        for masks in (pruners.n_of_m(scores), pruners.unstructured(scores, 0.5), pruners.transposable(scores)):
            pruned = copy.deepcopy(model)
            pruners.attach(pruned, masks)
            assert pruners.sparsity(pruned) == 0.5
            assert pruned(x).dtype == torch.bfloat16


class LowRank(nn.Linear):
    """A Linear with a low-rank product beside its own (LoRA): more than its weight says."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__(inputs, outputs)
        self.narrow, self.wide = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return super().forward(inputs) + inputs @ self.narrow.T @ self.wide.T


def test_sparse_leaves_a_layer_alone_that_computes_more_than_its_product(monkeypatch):
    monkeypatch.setattr(kinds, "KINDS", dict(kinds.KINDS))
    kinds.register(LowRank, {"weight": "oi"})
    torch.manual_seed(0)
    model, inputs = nn.Sequential(LowRank(16, 16), nn.Linear(16, 4)), torch.randn(4, 16)
    pruners.attach(model, pruners.two_four(model, select=["0.weight"]))
    assert torch.allclose(pruners.sparse(model)(inputs), model(inputs), atol=1e-5)


@pytest.mark.parametrize("rule", [{"weight": "ori"}, {"weight": "ooi"}, {"weight": 3}])
def test_letters_that_are_no_layout_are_refused(rule):
    with pytest.raises(BadInput, match="expected a letter an axis, one of them i and one o, r first"):
        kinds.register(type("Own", (nn.Linear,), {"forward": lambda self, x: x}), rule)


@pytest.mark.parametrize(
    ("rule", "line"), [({"weigth": "oi"}, "Own has no 'weigth'"), ({"weight": "oikk"}, "weight has 2 axes")]
)
def test_a_rule_that_does_not_fit_its_layer_is_refused_when_the_layer_is_met(rule, line, monkeypatch):
    monkeypatch.setattr(kinds, "KINDS", dict(kinds.KINDS))

    class Own(nn.Linear):
        def forward(self, inputs):
            return inputs @ self.weight.t()

    kinds.register(Own, rule)
    with pytest.raises(BadInput, match=line):
        pruners.prunable(nn.Sequential(Own(4, 8), nn.Linear(8, 2)))
