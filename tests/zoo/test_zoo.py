"""A zoo of small models with the structures that networks of others have, each through every step of `conftest`."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

from lib.pruners import kinds


class Model(nn.Module):
    """Layers by name, and a function of them and one input that is the forward pass."""

    def __init__(self, function: Callable, **layers: nn.Module | nn.Parameter):
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Tensor):
        return self.function(self, x)


class Pair(Model):
    """With two inputs."""

    def forward(self, a: Tensor, b: Tensor):
        return self.function(self, a, b)


class Standardised(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        mean, std = self.weight.mean((1, 2, 3), keepdim=True), self.weight.std((1, 2, 3), keepdim=True)
        return self._conv_forward(x, (self.weight - mean) / std, self.bias)


class Experts(nn.Module):
    """Each of three experts' weights stacked in one tensor."""

    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(3, 16, 8) / 3), nn.Parameter(torch.randn(3, 16, 8) / 3)

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        wide = torch.einsum("nti,nio->nto", x, self.up.mT[chosen]).relu()
        return torch.stack([one @ self.down[expert] for one, expert in zip(wide, chosen, strict=True)])


class Conv1D(nn.Module):
    """GPT-2's Linear, whose weight lies the other way round."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(inputs, outputs) / 3), nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x.view(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


def language_model() -> nn.Module:
    model = Model(lambda m, ids: m.head(m.mix(m.words(ids)).tanh()), words=nn.Embedding(12, 8), mix=nn.Linear(8, 8))
    model.head = nn.Linear(8, 12, bias=False)
    model.head.weight = model.words.weight
    return model


def unet(m: nn.Module, x: Tensor) -> Tensor:
    skip = m.a(x).relu()
    return m.c(torch.cat([skip, m.up(m.b(F.max_pool2d(skip, 2)).relu())], 1))


def normed(m: nn.Module, x: Tensor) -> Tensor:
    x = F.batch_norm(m.a(x), m.mean, m.var, m.scale, m.shift)
    return m.c(F.layer_norm(m.b(x.mean((2, 3))), (8,), m.scale))


def by_torch(model: nn.Module) -> nn.Module:
    prune.l1_unstructured(model[0], "weight", 0.5)
    return model


def old_norm(layer: nn.Module) -> nn.Module:
    with pytest.warns(FutureWarning):
        return nn.utils.weight_norm(layer)


def buffers(model: nn.Module, **tensors_by_name: Tensor) -> nn.Module:
    for name, tensor in tensors_by_name.items():
        model.register_buffer(name, tensor)
    return model


def siamese() -> nn.Module:
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    second.weight = first.weight
    return Pair(lambda m, a, b: m.c(m.a(a).tanh() * m.b(b).tanh() + m.a(b)), a=first, b=second, c=nn.Linear(8, 4))


def frozen(model: nn.Module) -> nn.Module:
    model.base.requires_grad_(False)
    return model


X, IMAGES, IDS = torch.randn(2, 5, 8), torch.randn(2, 4, 8, 8), torch.randint(12, (2, 5))
SEQUENCE = nn.Sequential
# name: what makes the model, its inputs, and the steps that are refused
ZOO: dict[str, tuple[Callable[[], nn.Module], object, set[str]]] = {
    "auxiliary head": (
        lambda: Model(
            lambda m, x: (m.head(y := m.b(m.a(x)).relu()), m.extra(y)) if m.training else m.head(m.b(m.a(x)).relu()),
            a=nn.Linear(8, 8), b=nn.Linear(8, 8), head=nn.Linear(8, 4), extra=nn.Linear(8, 4),
        ), X, set(),
    ),
    "tied head": (language_model, IDS, set()),
    "grouped convolutions": (
        lambda: SEQUENCE(
            nn.Conv2d(4, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=2), nn.Flatten(), nn.Linear(256, 4)
        ),
        IMAGES, set(),
    ),
    "depth-wise convolutions": (
        lambda: SEQUENCE(
            nn.Conv2d(4, 16, 1), nn.BatchNorm2d(16), nn.ReLU6(), nn.Conv2d(16, 16, 3, groups=16), nn.Conv2d(16, 8, 1)
        ), IMAGES, {"sparse"},
    ),
    "standardised convolution": (
        lambda: SEQUENCE(Standardised(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 1)), IMAGES, {"sparse"},
    ),
    "packed attention": (lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), X, {"permute"}),
    "attention with other keys": (
        lambda: Pair(lambda m, q, k: m.a(q, k, k)[0], a=nn.MultiheadAttention(8, 2, kdim=4, vdim=4, batch_first=True)),
        (X, X[..., :4]), {"int8"},
    ),
    "experts": (
        lambda: Pair(lambda m, x, chosen: m.b(m.a(x, chosen)), a=Experts(), b=nn.Linear(8, 4)),
        (X, torch.tensor([2, 0])), {"permute"},
    ),
    "recurrent, long memory": (
        lambda: Model(lambda m, x: m.head(m.rnn(x)[0]), rnn=nn.LSTM(8, 8, 2, batch_first=True), head=nn.Linear(8, 4)),
        X, set(),
    ),
    "recurrent, both ways": (
        lambda: Model(lambda m, x: m.head(m.rnn(x)[0]), rnn=nn.GRU(8, 4, bidirectional=True), head=nn.Linear(8, 4)),
        X, set(),
    ),
    "recurrent, cell by cell": (
        lambda: Model(
            lambda m, x: m.head(m.cell(x[1], (m.cell(x[0])))[0]), cell=nn.LSTMCell(8, 8), head=nn.Linear(8, 4)
        ),
        X, set(),
    ),
    "U-Net": (
        lambda: Model(
            unet, a=nn.Conv2d(4, 8, 3, padding=1), b=nn.Conv2d(8, 16, 3, padding=1),
            up=nn.ConvTranspose2d(16, 8, 2, 2), c=nn.Conv2d(16, 4, 1),
        ), IMAGES, {"sparse"},
    ),
    "functional norms": (
        lambda: buffers(
            Model(
                normed, a=nn.Conv2d(4, 8, 3), b=nn.Linear(8, 8), c=nn.Linear(8, 4),
                scale=nn.Parameter(torch.ones(8)), shift=nn.Parameter(torch.zeros(8)),
            ), mean=torch.zeros(8), var=torch.ones(8),
        ), IMAGES, set(),
    ),
    "norms of weights": (
        lambda: SEQUENCE(old_norm(nn.Conv1d(4, 8, 3)), nn.Tanh(), parametrizations.weight_norm(nn.Conv1d(8, 4, 1))),
        X[:, :4], {"sparse"},
    ),
    "spectral norm": (
        lambda: SEQUENCE(parametrizations.spectral_norm(nn.Linear(8, 8)), nn.Tanh(), nn.Linear(8, 4)), X, set(),
    ),
    "volumes": (
        lambda: SEQUENCE(nn.Conv3d(1, 8, 3), nn.BatchNorm3d(8), nn.ReLU(), nn.Conv3d(8, 4, 1)),
        torch.randn(2, 1, 4, 4, 4), {"sparse"},
    ),
    "pruned by torch": (lambda: by_torch(SEQUENCE(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))), X, {"permute"}),
    "low rank beside a frozen layer": (
        lambda: frozen(
            Model(lambda m, x: m.base(x) + m.b(m.a(x)), base=nn.Linear(8, 8), a=nn.Linear(8, 4), b=nn.Linear(4, 8))
        ), X, set(),
    ),
    "weights that functions read": (
        lambda: Model(
            lambda m, x: F.linear(F.linear(x, m.a.weight).tanh(), m.b.weight), a=nn.Linear(8, 8), b=nn.Linear(8, 8)
        ),
        X, {"int8"},
    ),
    "the same layer twice, and a twin": (siamese, (X, X.flip(0)), set()),
    "weights the other way round": (
        lambda: SEQUENCE(Conv1D(8, 16), nn.GELU(), Conv1D(16, 8), nn.Linear(8, 4)), X, {"permute"},
    ),
    "names for inputs": (
        lambda: Pair(lambda m, a, b: {"out": m.a(a).relu() + m.b(b)}, a=nn.Linear(8, 8), b=nn.Linear(8, 8)),
        {"a": X, "b": X.flip(0)}, set(),
    ),
    "bfloat16": (
        lambda: SEQUENCE(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)).bfloat16(), X.bfloat16(), {"sparse"},
    ),
}  # fmt: skip


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the models' own layers do with their weights."""
    monkeypatch.setattr(kinds, "KINDS", dict(kinds.KINDS))
    kinds.register(Experts, {"up": "eoi", "down": "eio"})
    kinds.register(Conv1D, kinds.fixed(affine=True, weight="io"))


@pytest.mark.filterwarnings("ignore::lib.pruners.LeftOut", "ignore::lib.pruners.Partial", "ignore::lib.pruners.Slower")
@pytest.mark.filterwarnings("ignore::lib.pruners.permutation.same.Unchecked")
@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize("name", ZOO)
def test_every_step_is_done_or_refused_in_one_line(name: str, outcomes: Callable):
    torch.manual_seed(0)
    make, inputs, refused = ZOO[name]
    found = outcomes(make(), inputs)
    assert {step: how for step, how in found.items() if how != "ok"} == dict.fromkeys(refused, "refused")
