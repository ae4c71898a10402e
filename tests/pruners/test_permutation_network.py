"""Whole networks: the permuted one computes the same, keeps more, and says of each layer what was done to it."""

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from lib import pruners
from lib.base import BadInput
from lib.models import (
    densenet,
    game_player,
    lenet,
    mobilenet,
    recurrent,
    resnet,
    resnext,
    shufflenet,
    speaker_resnet,
    squeezenet,
    vgg,
)
from lib.pruners.permutation import anneal, greedy, permute
from lib.pruners.permutation import kept_magnitude as matrix_kept
from lib.pruners.permutation.same import outputs


class Attention(nn.Module):
    """Self-attention, written plainly."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        n, length, width = x.shape
        layers = (self.query, self.key, self.value)
        q, k, v = (layer(x).reshape(n, length, self.heads, -1).transpose(1, 2) for layer in layers)
        weights = (q @ k.transpose(-2, -1) / (width / self.heads) ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(n, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Encoder(nn.Module):
    """A Transformer encoder over tokens, with a class token and learned positions."""

    def __init__(self, words: int = 20, width: int = 32, heads: int = 4, classes: int = 6):
        super().__init__()
        self.embedding, self.position = nn.Embedding(words, width), nn.Parameter(torch.zeros(9, width))
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.layers = nn.Sequential(Layer(width, heads), Layer(width, heads))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position[: x.shape[1] + 1]
        return self.head(self.norm(self.layers(x))[:, 0])


FAMILIES = {
    "lenet": lenet.small_lenet,
    "resnet20": resnet.resnet20,
    "bottleneck": lambda: resnet.ResNet(1, (16, 32), (2, 1), 10, resnet.Bottleneck),
    "mobilenet": mobilenet.small_mobilenet_v2,
    "grouped": resnext.small_resnext,
    "densenet": densenet.small_densenet,
    "squeezenet": squeezenet.small_squeezenet,
    "shufflenet": shufflenet.small_shufflenet_v2,
    "vgg": vgg.small_vgg,
    "encoder": Encoder,
}


def example(name: str) -> Tensor:
    draw = torch.Generator().manual_seed(1)
    if name == "encoder":
        return torch.randint(20, (3, 8), generator=draw)
    return torch.randn(2, 3 if name == "resnet20" else 1, 8, 8, generator=draw)


def random_network(name: str) -> nn.Module:
    """Random weights, and norms as after a training: no statistic or affine parameter is one or zero."""
    torch.manual_seed(0)
    model = FAMILIES[name]()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.dim() == 1 and tensor.is_floating_point():
                tensor.uniform_(0.5, 1.5)
    return model.eval()


@pytest.mark.parametrize("name", FAMILIES)
def test_a_permuted_network_computes_the_same_and_keeps_more(name: str):
    model, inputs = random_network(name), example(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    permuted, report = permute(model, inputs, search=greedy)
    assert all(torch.equal(before[key], value) for key, value in model.state_dict().items())  # the model is not changed

    exact = [copy.deepcopy(network).double() for network in (model, permuted)]
    double = inputs.double() if inputs.is_floating_point() else inputs
    expected, found = (network(double).detach() for network in exact)
    assert torch.allclose(expected, found, rtol=0, atol=1e-5 * float(expected.abs().max()))

    sums = [kept(network, report.layer[report.kept_before.notna()]) for network in (model, permuted)]
    assert sums[1] > sums[0]
    assert report.permuted.any()
    moved = {name for name, value in permuted.state_dict().items() if not torch.equal(value, before[name])}
    assert set(report.layer[report.permuted]) <= moved


def kept(model: nn.Module, names) -> float:
    """The magnitude that the masks of 2:4 leave of some layers."""
    scores = pruners.magnitude(model).only(names)
    masks = pruners.n_of_m(scores, 2, 4)
    return sum(float(scores[name][masks[name]].double().sum()) for name in masks)


def test_the_report_says_what_the_masks_keep():
    model = random_network("grouped")
    permuted, report = permute(model, example("grouped"), search=greedy)
    for network, column in ((model, "kept_before"), (permuted, "kept_after")):
        for row in report[report[column].notna()].itertuples():
            weight = pruners.magnitude(network)[row.layer]
            assert getattr(row, column) == pytest.approx(100 * kept(network, [row.layer]) / float(weight.sum()))


def test_a_layer_alone_never_keeps_less_and_siblings_not_less_together():
    """conv2 of a residual block is the only one that reads its channels."""
    _, report = permute(random_network("resnet20"), example("resnet20"), search=greedy)
    alone = report[report.permuted & (report.why == "")]
    assert set(alone.layer) == {f"blocks.{i}.conv2.weight" for i in range(9)}
    assert (alone.kept_after > alone.kept_before).all()
    assert (alone.efficacy > 0).all()
    shared = report.set_index("layer").why["blocks.7.conv1.weight"]
    assert shared == "shares its order with blocks.8.conv1.weight, fc.weight"


@pytest.mark.parametrize("name", ["resnet20", "shufflenet", "grouped"])
def test_what_the_search_wins_is_what_the_layers_win(name: str):
    """Siblings are searched in one stack, and each search sees what those before it have moved."""
    won = []

    def search(weight: Tensor, movable: Tensor) -> Tensor:
        order = greedy(weight, movable=movable)
        won.append(matrix_kept(weight[:, order]) - matrix_kept(weight))
        return order

    model = random_network(name)
    permuted, report = permute(model, example(name), search=search)
    names = report.layer[report.kept_before.notna()]
    assert sum(won) == pytest.approx(kept(permuted, names) - kept(model, names), rel=1e-5)


def test_a_network_in_training_mode_stays_in_it():
    """Checked is what it computes in evaluation mode, where dropout does nothing."""
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.Linear(16, 4)).train()
    permuted, report = permute(model, torch.randn(3, 4), select=["3.weight"], search=greedy)
    assert report.permuted.any()
    assert all(module.training for module in (*model.modules(), *permuted.modules()))


def test_an_order_that_keeps_less_is_not_taken():
    """Columns sorted by size keep less than the order found before."""
    model, _ = permute(random_network("vgg"), example("vgg"), search=greedy)
    permuted, report = permute(model, example("vgg"), search=lambda weight, movable: weight.sum(0).argsort())
    assert not report.permuted.any()
    assert list(report.why[report.kept_before.notna()]) == [
        *["no better order was found"] * 3,
        "flattened: each channel is several columns, which stay together",
        "no better order was found",
    ]
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), permuted.parameters(), strict=True))


def test_only_the_layers_that_will_be_pruned_count():
    """The last layer gets the order that is best for it, although a convolution reads the same channels."""
    model, inputs = random_network("resnet20"), example("resnet20")
    _, report = permute(model, inputs, select=["fc.weight"], search=greedy)
    row = report.set_index("layer").loc["fc.weight"]
    weight = model.fc.weight.detach()
    assert row.permuted
    assert row.why == ""
    assert row.kept_after == pytest.approx(100 * matrix_kept(weight[:, greedy(weight)]) / float(weight.abs().sum()))
    others = report[report.layer != "fc.weight"]
    assert set(others.why) == {"not among the layers to prune"}
    assert others.kept_before.isna().all()


def test_heads_stay_and_say_so_while_their_inputs_share_an_order():
    _, report = permute(random_network("encoder"), example("encoder"), search=greedy)
    rows = report.set_index("layer")
    heads = rows.loc[["layers.0.attention.out.weight", "layers.1.attention.out.weight"]]
    assert heads.why.str.startswith("head structure").all()
    readers = [name for name in rows.index if name.split(".")[-2] in ("query", "key", "value", "head")]
    assert rows.permuted[readers].all()
    assert rows.permuted[["layers.0.mlp.0.weight", "layers.0.mlp.2.weight"]].all()


def test_the_groups_of_a_grouped_convolution_stay_together():
    model = random_network("grouped")
    permuted, _ = permute(model, example("grouped"), search=greedy)
    before, after = (network.blocks[1].conv2.weight.flatten(1).abs().sum(1) for network in (model, permuted))
    assert not torch.equal(before, after)
    for old, new in zip(before.chunk(4), after.chunk(4), strict=True):
        assert torch.allclose(old.sort().values, new.sort().values)


@pytest.mark.parametrize(
    ("model", "inputs", "layer", "why"),
    [
        (lenet.small_lenet(), (2, 1, 8, 8), "fc1.weight", "flattened"),
        (recurrent.small_lstm(), (2, 1, 8, 8), "recurrent.weight", "it meets a constant"),
        (nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4)), (2, 16), "0.weight", "the network's input"),
        (
            nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4)),
            (2, 4),
            "1.weight",
            "its inner dimension 6 is not a multiple",
        ),
    ],
    ids=["flattened", "recurrent", "input", "misfit"],
)
def test_a_layer_that_cannot_be_permuted_says_why(model: nn.Module, inputs: tuple[int, ...], layer: str, why: str):
    _, report = permute(model, torch.randn(inputs), select=[layer], search=greedy)
    row = report.set_index("layer").loc[layer]
    assert not row.permuted
    assert row.why.startswith(why)


def test_annealing_is_the_default_and_its_seed_decides():
    model, inputs = random_network("lenet"), example("lenet")
    first, again, other = (permute(model, inputs, search=partial(anneal, proposals=2000, seed=s))[0] for s in (1, 1, 2))
    assert torch.equal(first.fc2.weight, again.fc2.weight)
    assert not torch.equal(first.fc2.weight, other.fc2.weight)
    assert permute(model, inputs)[1].permuted.any()


def test_a_masked_model_and_unknown_layers_are_refused():
    model = lenet.small_lenet()
    with pytest.raises(BadInput, match=r"no 'fc9.weight'; there are: conv1.weight, "):
        permute(model, example("lenet"), select=["fc9.weight"])
    pruners.attach(model, pruners.n_of_m(pruners.magnitude(model).only(["fc1.weight"])))
    with pytest.raises(BadInput, match=r"fc1\.weight has a mask: permute before pruning"):
        permute(model, example("lenet"))


@pytest.mark.parametrize("kind", ["speaker", "player"])
def test_networks_that_widen_narrow_types_are_permuted_too(kind):
    """The result is checked in float64, which they must not cut down to float32."""
    torch.manual_seed(0)
    if kind == "speaker":
        model, inputs = speaker_resnet.NETWORKS["resnet18"](width=4), torch.randn(2, 16, 40)
    else:
        model, inputs = game_player.ActorCritic(4, 36, 3), torch.randint(256, (2, 4, 36, 36), dtype=torch.uint8)
    permuted, report = permute(model.eval(), inputs, search=greedy)
    assert bool(report.permuted.any())
    assert bool((report.kept_after.sum() > report.kept_before.sum()).all())
    for one, other in zip(outputs(model, inputs), outputs(permuted, inputs), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_a_network_that_makes_floats_of_bytes_is_permuted():
    class Bytes(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(3, 16, 3), nn.Conv2d(16, 16, 3)

        def forward(self, images):
            return self.second(torch.relu(self.first(images.float() / 255)))

    model, images = Bytes(), torch.randint(0, 255, (2, 3, 8, 8), dtype=torch.uint8)
    before = model(images)
    permuted = permute(model, images)
    torch.testing.assert_close((permuted[0] if isinstance(permuted, tuple) else permuted)(images), before)


def test_a_single_vector_is_followed_as_a_batch_of_one_is():
    torch.manual_seed(0)
    model, vector = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16)), torch.randn(16)
    found = [permute(copy.deepcopy(model), inputs, search=greedy) for inputs in (vector, vector[None])]
    assert found[0][1].permuted.tolist() == found[1][1].permuted.tolist() == [False, True]
    assert torch.allclose(found[0][0](vector), model(vector), atol=1e-5)


@pytest.mark.parametrize(("heavy", "light"), [("plain", "mixed"), ("mixed", "plain")])
def test_of_readers_that_see_channels_in_other_groups_the_one_with_the_largest_weights_decides(heavy: str, light: str):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.plain = nn.Conv2d(4, 32, 1), nn.Conv2d(32, 32, 1)
            self.shuffle, self.mixed = nn.ChannelShuffle(2), nn.Conv2d(32, 32, 1, groups=2)

        def forward(self, images: Tensor) -> Tensor:
            x = self.first(images)
            return self.plain(x) + self.mixed(self.shuffle(x))

    torch.manual_seed(0)
    model = Both().eval()
    model.get_submodule(heavy).weight.data.mul_(100)
    _, report = permute(model, torch.randn(2, 4, 3, 3), search=greedy)
    won = (report.kept_after - report.kept_before).set_axis(report.layer)
    assert won[f"{heavy}.weight"] > 2 > 1 > won[f"{light}.weight"]
