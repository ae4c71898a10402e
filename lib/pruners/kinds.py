"""Know the kinds of layers: which tensors of a layer enter matrix products, and along which axes those products sum.

This is the one place that knows types of layers. A type that is not here is refused by name, and so is a subclass
whose `forward` is not that of the class which is here: it may change the weight before it multiplies by it, as a
weight-standardised convolution does, and a mask would then promise zeros that the product does not see.

    pruners.kinds.register(MyExperts, {"up": "eoi", "down": "eoi"})       # a rule for a type of one's own
    pruners.kinds.register(PaddedConv2d, pruners.kinds.KINDS[nn.Conv2d])  # its forward multiplies by the weight itself
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from lib.base import BadInput
from lib.kernels.sparse_linear import SparseLinear
from lib.models.mlp import StackedLinear

LETTERS = {"r": "run", "e": "expert", "o": "output", "t": "kernel, not summed", "k": "kernel, summed", "i": "input"}


@dataclass(frozen=True)
class Layout:
    """Say what each axis of a weight is, a letter each (`LETTERS`), such as "oikk" of a Conv2d.

    A weight is the left matrix of a product, [rows, reduction]. The product sums over the axes `i` and `k`, and over
    input channels fastest, the order in which sparse hardware reads them (paper 2, sections 3.2 and 4.2: GEMM-K is
    C x R x S). All others are rows: each number of the output sums along one row. A transposed convolution "iott"
    multiplies each input position by a matrix [out x R x S, in] and adds up the results where they overlap, so that
    its product sums over the input channels alone.

    Attributes:
        axes: the letters.
        groups: of a transposed convolution, whose first axis then holds the input channels of one group after the
            other. Other layouts of grouped layers need it not, as their axis `i` is that of one group.
    """

    axes: str
    groups: int = 1

    def matrix(self, tensor: Tensor) -> Tensor:
        """Return a weight, or scores like it, as [rows, reduction].

        Raises:
            BadInput: it is a stack, which has a matrix a run.
        """
        if self.stacked:
            raise BadInput(
                f"a stack {list(tensor.shape)} has a matrix for each run: take one run (lib.models.mlp.plain)"
            )
        if self.axes == "oi":
            return tensor
        axes = self._split(tensor)
        rows, sums = self._order()
        return axes.permute(*rows, *sums).flatten(len(rows)).flatten(0, -2)

    def tensor(self, matrix: Tensor, shape: Iterable[int]) -> Tensor:
        """Invert `matrix` for a tensor of the given shape."""
        shape = torch.Size(shape)
        if self.axes == "oi":
            return matrix
        whole = self._split(torch.empty(shape, device="meta")).shape
        order = [axis for part in self._order() for axis in part]
        back = [order.index(axis) for axis in range(len(order))]
        return matrix.reshape([whole[axis] for axis in order]).permute(back).reshape(shape)

    def reduction(self, shape: torch.Size) -> int:
        """Return GEMM-K of a weight of that shape: how many products each number of the output sums."""
        lengths = [length for letter, length in zip(self.axes, shape, strict=True) if letter in "ki"]
        return torch.Size(lengths).numel() // self.groups

    def outputs(self, shape: torch.Size) -> int:
        """Count how many output channels a weight of that shape has; consecutive rows of the matrix belong to one."""
        lengths = [length for letter, length in zip(self.axes, shape, strict=True) if letter in "eo"]
        return torch.Size(lengths).numel() * self.groups

    @property
    def stacked(self) -> bool:
        """Tell whether the weight holds a network a run."""
        return "r" in self.axes

    @property
    def input(self) -> int:
        """Return the axis of the input channels."""
        return self.axes.index("i")

    @property
    def output(self) -> int:
        """Return the axis of the output channels."""
        return self.axes.index("o")

    def _split(self, tensor: Tensor) -> Tensor:
        """The tensor with an axis of groups of its own in front."""
        return tensor.unflatten(0, (self.groups, -1)) if self.groups > 1 else tensor

    def _order(self) -> tuple[list[int], list[int]]:
        """The axes of the rows and those of the sums, with that of the groups."""
        letters = ("g" if self.groups > 1 else "") + self.axes
        axes = {kind: [axis for axis, letter in enumerate(letters) if letter in kind] for kind in ("geot", "k", "i")}
        return axes["geot"], axes["k"] + axes["i"]


def layout_of(tensor: Tensor) -> Layout:
    """Guess the layout of a tensor of which only the shape is known: of a Linear, a stack of them or a Conv2d.

    Raises:
        BadInput: it has another number of axes than 2, 3 or 4.
    """
    if tensor.dim() not in (2, 3, 4):
        raise BadInput(f"scores of a Linear have 2 axes and of a Conv2d 4, these have {tensor.dim()}")
    return Layout({2: "oi", 3: "roi", 4: "oikk"}[tensor.dim()])


@dataclass(frozen=True)
class Kind:
    """Say how layers of a type multiply by their weights.

    Attributes:
        weights: gives {attribute: layout} of a layer.
        calls: methods that compute the product; a subclass with one of its own is another kind of layer.
        channels: how many axes of the output follow that of the channels.
        affine: `forward` is the product with `weight` plus `bias` and nothing else, so that codes can stand for it.
        sparse: only what is left of the weights is held, so that no more can be pruned, and tables can read them.
    """

    weights: Callable[[nn.Module], Mapping[str, Layout]]
    calls: tuple[str, ...] = ("forward",)
    channels: int = 0
    affine: bool = False
    sparse: bool = False


def fixed(affine: bool = False, **layouts: str) -> Kind:
    """Make a kind whose layers have these weights: `fixed(weight="oi")`.

    Raises:
        BadInput: letters that are no layout.
    """
    for attribute, axes in layouts.items():
        fits = isinstance(axes, str) and not set(axes) - set(LETTERS) and axes.count("i") == axes.count("o") == 1
        if not fits or "r" in axes[1:]:
            known = ", ".join(f"{letter} ({what})" for letter, what in LETTERS.items())
            raise BadInput(
                f"{attribute}={axes!r}: expected a letter an axis, one of them i and one o, r first, of {known}"
            )
    return Kind(lambda module: {attribute: Layout(axes) for attribute, axes in layouts.items()}, affine=affine)


def _convolution(axes: int) -> Kind:
    return Kind(lambda module: {"weight": Layout("oi" + "k" * axes)}, ("forward", "_conv_forward"), axes, affine=True)


def _transposed(axes: int) -> Kind:
    return Kind(lambda module: {"weight": Layout("io" + "t" * axes, module.groups)}, channels=axes, affine=True)


def _recurrent(module: nn.RNNBase) -> dict[str, Layout]:
    return {name: Layout("oi") for name in module._flat_weights_names if name.startswith("weight_")}


def _attention(module: nn.MultiheadAttention) -> dict[str, Layout]:
    """What comes in; `out_proj` is a Linear, which attention only reads the weight of."""
    whole = ["in_proj_weight"] if module._qkv_same_embed_dim else ["q_proj_weight", "k_proj_weight", "v_proj_weight"]
    return dict.fromkeys(whole, Layout("oi"))


def _experts(module: nn.Module) -> dict[str, Layout]:
    """The experts of transformers, which say by `is_transposed` how their stacked weights lie."""
    axes = "eio" if module.is_transposed else "eoi"
    names = [
        name for name in ("gate_up_proj", "up_proj", "down_proj") if isinstance(getattr(module, name, None), Tensor)
    ]
    return dict.fromkeys(names, Layout(axes))


_LINEAR, _CONV2D = fixed(affine=True, weight="oi"), _convolution(2)

# By type, or by name where the type's package need not be there.
KINDS: dict[type | str, Kind] = {
    nn.Linear: _LINEAR,
    nn.Conv1d: _convolution(1),
    nn.Conv2d: _CONV2D,
    nn.Conv3d: _convolution(3),
    nn.ConvTranspose1d: _transposed(1),
    nn.ConvTranspose2d: _transposed(2),
    nn.ConvTranspose3d: _transposed(3),
    StackedLinear: fixed(weight="roi"),
    SparseLinear: replace(_LINEAR, sparse=True),
    nn.LSTM: Kind(_recurrent),
    nn.GRU: Kind(_recurrent),
    nn.RNN: Kind(_recurrent),
    nn.LSTMCell: fixed(weight_ih="oi", weight_hh="oi"),
    nn.GRUCell: fixed(weight_ih="oi", weight_hh="oi"),
    nn.RNNCell: fixed(weight_ih="oi", weight_hh="oi"),
    nn.MultiheadAttention: Kind(_attention),
    "transformers.pytorch_utils.Conv1D": fixed(affine=True, weight="io"),
    # forwards of their own that multiply by the weight as it is: they pad, or convert for scripts
    "timm.layers.conv2d_same.Conv2dSame": _CONV2D,
    "timm.layers.linear.Linear": _LINEAR,
}
LOOKUPS = (nn.Embedding, nn.EmbeddingBag)
VECTORS = (nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, nn.modules.batchnorm._NormBase)


def register(type_: type | str, kind: Kind | Mapping[str, str]) -> None:
    """Say how layers of a type multiply by their weights.

    Args:
        type_: the class, or its name with its module's.
        kind: of `KINDS`, or {attribute: letters} as in `Layout`.

    Raises:
        BadInput: no type, a type that is known already, no kind, or letters that are no layout.
    """
    if not isinstance(type_, (type, str)):
        raise BadInput(f"register({type_!r:.40}): expected a type of layers, or its name with its module's")
    if not isinstance(kind, Kind) and not (isinstance(kind, Mapping) and kind):
        raise BadInput(f"register({_name(type_)}): kind={kind!r:.40}: expected a Kind, or {{attribute: letters}}")
    if type_ in KINDS:
        raise BadInput(f"{_name(type_)} has a rule already")
    KINDS[type_] = kind if isinstance(kind, Kind) else fixed(**kind)


def find(module: nn.Module) -> tuple[Kind | None, str]:
    """Find the kind of a layer; or None, and why there is none."""
    mine = type(module)
    for base in mine.__mro__:
        kind = KINDS.get(base) or KINDS.get(f"{base.__module__}.{base.__qualname__}")
        if kind is None:
            continue
        for name in kind.calls:
            if getattr(mine, name) is not getattr(base, name) or name in vars(module):
                own = f"a {name} of its own" if name not in vars(module) else f"its {name} replaced"
                why = (
                    f"{_plain(mine)} is a {base.__name__} with {own}, which may change the weight before it multiplies"
                )
                return None, f"{why}: if it does not, say so by pruners.kinds.register"
        if isinstance(module, nn.RNNBase) and parametrize.is_parametrized(module) and not _rereads(module):
            return None, f"torch's {base.__name__} does not see its parametrizations: take them off"
        return kind, ""
    if isinstance(getattr(module, "is_transposed", None), bool) and isinstance(
        getattr(module, "down_proj", None), Tensor
    ):
        return Kind(_experts), ""
    return None, f"there is no rule for what {_plain(mine)} does with it: give one by pruners.kinds.register"


def reread(module: nn.Module) -> None:
    """Let a layer that remembers its weights, as torch's recurrent ones do, read them anew at each use."""
    if isinstance(module, nn.RNNBase):
        if parametrize.is_parametrized(module):  # which has a class of its own
            type(module)._flat_weights = property(_read_flat, lambda self, weights: None)
        else:
            module._init_flat_weights()


def _rereads(module: nn.RNNBase) -> bool:
    return isinstance(vars(type(module)).get("_flat_weights"), property)


def _read_flat(module: nn.RNNBase) -> list[Tensor | None]:
    return [getattr(module, name, None) for name in module._flat_weights_names]


def _plain(type_: type) -> str:
    """The class's name, without what a parametrization puts before it."""
    return type_.__name__.removeprefix("Parametrized") or type_.__name__


def _name(type_: type | str) -> str:
    return type_ if isinstance(type_, str) else type_.__name__
