"""Which channels may change places: whatever the graph does to them, an exchange within a space changes nothing."""

import copy
import random

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.pruners.permutation import channels, greedy, network


def exchanged(model: nn.Module, images: Tensor, seeds: int = 3) -> tuple[list[int], set[str]]:
    """Exchange channels at random within each space; `compare` raises if the function changes.

    Returns the sizes of the spaces, and the reasons why other channels stay.
    """
    ties = channels.read(model, (images,), unused="*")
    spaces = ties.spaces()
    for seed in range(seeds):
        rng = random.Random(seed)
        moves = {to: come for space in spaces for to, come in zip(space, rng.sample(space, len(space)), strict=True)}
        permuted = copy.deepcopy(model)
        network.apply(permuted, ties, moves)
        network.compare(model, permuted, (images,))
    reasons = {why for why in ties.fixed.values() if not why.startswith("the network's")}
    return sorted(len(space) for space in spaces), reasons


class Net(nn.Module):
    """A convolution to 8 channels, something odd, the mean over positions and a linear layer."""

    def __init__(self, body, width: int = 8, **parts):
        super().__init__()
        self.__dict__["body"] = body  # a plain function
        self.stem, self.fc = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(width, 5)
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, images: Tensor) -> Tensor:
        return self.fc(self.body(self, self.stem(images)).mean((2, 3)))


def conv(channels_in: int, channels_out: int, groups: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, 3, padding=1, groups=groups)


def plain(net, x):
    return net.b(x.relu())


def residual(net, x):
    y = net.a(x)
    y += x
    return net.b(F.max_pool2d(y, 2))


def depthwise(net, x):
    return net.b(net.norm(net.a(x)))


def gated(net, x):  # squeeze and excitation
    gate = net.l2(net.l1(x.mean((2, 3))).relu()).sigmoid()[:, :, None, None]
    return net.b(x * gate) + x


def shift(net, x):  # two channels move down, two to the left
    return net.b(torch.cat([x[:, :2].roll(1, 2), x[:, 2:4].roll(-1, 3), x[:, 4:]], 1))


def twice(net, x):  # the same channels as they are and after ReLU, in different places
    return net.b(torch.cat([x[:, :2], x.relu(), x[:, 2:]], 1))


def tied_elsewhere(net, x):  # x and y share an order because of their sum, and meet again between each other
    y = net.a(x)
    return net.b(torch.cat([x[:, :2], y, x[:, 2:]], 1)) + net.c(x + y)


def norm_between(net, x):  # the same with something in between that keeps channels apart by where they stand
    y = net.a(x)
    return net.c(net.b(net.norm(torch.cat([x[:, :2], y, x[:, 2:]], 1)))) + net.d(x + y)


def flattened(net, x):  # every channel becomes four columns
    return net.l(F.adaptive_avg_pool2d(x, 2).view(x.shape[0], -1))[:, :, None, None]


def split(net, x):
    a, b = torch.split(x, [3, 5], 1)
    return net.b(torch.cat([b, net.a(a)], 1))


def shuffled(net, x):
    n, c, h, w = x.shape
    mixed = torch.cat([net.a(x), x], 1).view(n, 2, c, h, w).transpose(1, 2).flatten(1, 2)
    return net.b(mixed[:, :c])


def called_twice(net, x):
    for _ in range(2):
        x = x + net.a(x).relu()
    return x


def two_layouts(net, x):  # one layer reads copies of x, then two tied values in turns
    y, z = net.a(x), net.c(x)
    turns = torch.cat([y[:, :2], z[:, 2:], z[:, :2], y[:, 2:]], 1)
    return net.b(torch.cat([x, x], 1)) + net.b(turns) + net.d(x + y + z)


def tokens(net, x):  # a layer norm and a gated MLP over channels that are the last axis for a while
    y = net.l2(net.l1(net.norm(x.permute(0, 2, 3, 1))).relu())
    return x + net.gamma[:, None, None] * y.permute(0, 3, 1, 2)


def grouped_norm(net, x):
    return net.b(net.norm(net.a(x)))


def sum_with_neighbours(net, x):
    return net.b(x + x.roll(1, 1))


def halves(net, x):
    return net.b(x.unflatten(1, (2, 4)).mean(1))


def to_places(net, x):
    return net.b(F.pixel_shuffle(x, 2))


def spatial_gate(net, x):
    return net.b(x * net.a(x)[:, :1].sigmoid())


def recurrent(net, x):
    return net.lstm(x.flatten(2).transpose(1, 2))[0].transpose(1, 2)[..., None]


def chosen_by_value(net, x):
    return net.b(x * x[:, x.mean((0, 2, 3)).argmax()][:, None])


CASES = {
    "plain": (Net(plain, b=conv(8, 8)), [8, 8], ""),
    "residual": (Net(residual, a=conv(8, 8), b=conv(8, 8)), [8, 8], ""),
    "depthwise": (Net(depthwise, a=conv(8, 8, 8), norm=nn.BatchNorm2d(8), b=conv(8, 8)), [8, 8], ""),
    "multiplier": (Net(depthwise, a=conv(8, 16, 8), norm=nn.BatchNorm2d(16), b=conv(16, 8)), [2] * 8 + [8], ""),
    "grouped": (Net(depthwise, a=conv(8, 8, 2), norm=nn.BatchNorm2d(8), b=conv(8, 8)), [4, 4, 4, 4, 8], ""),
    "gated": (Net(gated, l1=nn.Linear(8, 4), l2=nn.Linear(4, 8), b=conv(8, 8)), [4, 8], ""),
    "shift": (Net(shift, b=conv(8, 8)), [2, 2, 4, 8], ""),
    "twice": (Net(twice, b=conv(16, 8)), [8, 8], ""),
    "tied elsewhere": (Net(tied_elsewhere, a=conv(8, 8), b=conv(16, 8), c=conv(8, 8)), [8, 8], ""),
    "norm between": (
        Net(norm_between, a=conv(8, 8), norm=nn.BatchNorm2d(16), b=conv(16, 8), c=conv(8, 8), d=conv(8, 8)),
        [8, 8, 8],
        "",
    ),
    "flattened": (Net(flattened, l=nn.Linear(32, 8)), [8, 8], ""),
    "split": (Net(split, a=conv(3, 3), b=conv(8, 8)), [3, 3, 5, 8], ""),
    "shuffled": (Net(shuffled, a=conv(8, 8), b=conv(8, 8)), [4, 4, 4, 4, 8], ""),
    "called twice": (Net(called_twice, a=conv(8, 8)), [8], ""),
    "two layouts": (Net(two_layouts, a=conv(8, 8), b=conv(16, 8), c=conv(8, 8), d=conv(8, 8)), [8, 8], ""),
    "tokens": (
        Net(tokens, l1=nn.Linear(8, 16), l2=nn.Linear(16, 8), norm=nn.LayerNorm(8), gamma=nn.Parameter(torch.ones(8))),
        [8, 16],
        "",
    ),
    "group norm": (Net(grouped_norm, a=conv(8, 8), norm=nn.GroupNorm(2, 8), b=conv(8, 8)), [4, 4, 8, 8], ""),
    "neighbours": (
        Net(sum_with_neighbours, b=conv(8, 8)),
        [8],
        "channels of stem.weight meet each other in one number",
    ),
    "halves": (Net(halves, b=conv(4, 8)), [8], "channels of stem.weight meet each other in one number"),
    "to places": (Net(to_places, b=conv(2, 8)), [8], "channels of stem.weight meet each other in one number"),
    "spatial gate": (Net(spatial_gate, a=conv(8, 8), b=conv(8, 8)), [7, 8, 8], "one number for all channels"),
    "recurrent": (Net(recurrent, lstm=nn.LSTM(8, 8, batch_first=True)), [], "there is no rule for LSTM"),
    "by value": (Net(chosen_by_value, b=conv(8, 8)), [8], "there is no rule for argmax"),
}


def random_state(model: nn.Module, seed: int = 0) -> nn.Module:
    """Norms as after a training: no statistic or affine parameter is one or zero."""
    draw = torch.Generator().manual_seed(seed)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.dim() == 1 and tensor.is_floating_point():
            tensor.data = 0.5 + torch.rand(tensor.shape, generator=draw)
        elif tensor.is_floating_point():
            tensor.data = torch.randn(tensor.shape, generator=draw) / tensor[0].numel() ** 0.5
    return model


@pytest.mark.parametrize("case", CASES)
def test_channels_of_a_space_may_change_places(case: str):
    model, sizes, reason = CASES[case]
    images = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    found, reasons = exchanged(random_state(model), images)
    assert found == sizes
    assert any(why.startswith(reason) for why in reasons) if reason else not reasons


class Odd(nn.Module):
    """Two linear layers with a function in between, a plain tensor, and one like it as a buffer."""

    def __init__(self, between):
        super().__init__()
        self.__dict__["between"] = between
        self.a, self.b = nn.Linear(6, 32), nn.Linear(32, 5)
        self.plain = torch.linspace(0.5, 1, 32)
        self.register_buffer("registered", self.plain.clone())

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.between(self, self.a(x).relu()))


ODD = {
    "made in forward": (lambda net, h: h * torch.linspace(0.5, 1, 32), "a constant"),
    "plain attribute": (lambda net, h: h * net.plain, "a constant"),
    "one for all": (lambda net, h: h * torch.tensor([0.5]), ""),
    "buffer": (lambda net, h: h * net.registered, ""),
    "largest": (lambda net, h: h / h.max(-1, keepdim=True).values, "there is no rule for max, "),
    "sorted": (lambda net, h: torch.sort(h)[0], "there is no rule for sort, "),
}


@pytest.mark.parametrize("case", ODD)
def test_a_tensor_that_is_no_part_of_the_model_keeps_its_channels_in_order(case: str):
    between, reason = ODD[case]
    torch.manual_seed(0)
    model, inputs = Odd(between), torch.randn(3, 6)
    permuted, report = network.permute(model, inputs, select=["b.weight"], search=greedy)
    row = report.set_index("layer").loc["b.weight"]
    assert torch.allclose(model(inputs), permuted(inputs), rtol=0, atol=1e-5)
    assert row.why.startswith(reason) if reason else row.why == ""
    assert row.permuted == (not reason)
    assert torch.equal(model.a.weight, permuted.a.weight) == bool(reason)
    assert torch.equal(model.registered, permuted.registered) == (case != "buffer")


class Program(nn.Module):
    """A random program over 8 channels: sums, concatenations, shuffles, layers that are used several times."""

    def __init__(self, seed: int):
        super().__init__()
        rng = random.Random(seed)
        self.seed = seed
        self.stem, self.fc = nn.Conv2d(3, 8, 1), nn.Linear(16, 3)
        self.narrow = nn.ModuleList(nn.Conv2d(8, 8, 1, groups=rng.choice([1, 1, 1, 2, 8])) for _ in range(4))
        self.wide = nn.ModuleList(nn.Conv2d(16, 8, 1) for _ in range(2))
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(2))

    def forward(self, images: Tensor) -> Tensor:
        rng, values = random.Random(self.seed), [self.stem(images)]
        for _ in range(rng.randint(4, 12)):
            a, b, cut = rng.choice(values[-4:]), rng.choice(values[-4:]), rng.randint(1, 7)
            steps = [
                lambda a, b, cut: rng.choice(self.narrow)(a),
                lambda a, b, cut: rng.choice(self.narrow)(a).relu(),
                lambda a, b, cut: rng.choice(self.norms)(a),
                lambda a, b, cut: rng.choice(self.wide)(torch.cat([a[:, :cut], b, a[:, cut:]], 1)),
                lambda a, b, cut: a + b,
                lambda a, b, cut: a * b.mean((2, 3), keepdim=True),
                lambda a, b, cut: torch.cat([a[:, :cut], b[:, cut:]], 1),
                lambda a, b, cut: torch.cat([b[:, cut:], a[:, :cut]], 1),
                lambda a, b, cut: a.reshape(-1, 2, 4, 3, 3).transpose(1, 2).reshape(-1, 8, 3, 3),
                lambda a, b, cut: a.roll(1, rng.choice([1, 2])),
            ]
            values.append(rng.choice(steps)(a, b, cut))
        return self.fc(torch.cat([values[-1], values[-2]], 1).mean((2, 3)))


def test_random_programs_compute_the_same_after_any_exchange():
    images = torch.randn(1, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    sizes = [exchanged(random_state(Program(seed), seed), images, seeds=1)[0] for seed in range(25)]
    assert sum(bool(found) for found in sizes) > 15  # most of them have something to exchange


def test_a_wrong_tie_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """Without the tie of a residual sum, the two sides of it would be permuted apart."""
    monkeypatch.setattr(channels.Channels, "tie", lambda self, first, second: None)
    with pytest.raises(RuntimeError, match=r"an output changed by .*channels is wrong"):
        exchanged(random_state(CASES["residual"][0]), torch.randn(2, 3, 6, 6))


def test_a_model_that_cannot_be_traced_is_refused():
    with pytest.raises(BadInput, match=r"torch\.fx cannot trace Net: symbolically traced variables"):
        exchanged(Net(lambda net, x: x if x.sum() > 0 else -x), torch.randn(2, 3, 6, 6))
    with pytest.raises(BadInput, match=r"torch\.fx cannot trace Net: 'len' is not supported"):
        exchanged(Net(lambda net, x: sum(x[i] for i in range(len(x)))), torch.randn(2, 3, 6, 6))
