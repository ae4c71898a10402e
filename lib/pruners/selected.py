"""Select layers by what a caller names: parameters, modules, patterns of names, types of layers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn

from lib.base import BadInput, type_of
from lib.pruners.weights import Prunable

Select = str | type | Collection[str | type] | None


def chosen(layers: Iterable[Prunable], select: Select, whys: Mapping[str, str], there: str) -> list[str]:
    """Return names of the layers that are selected, see `prunable`, in the order of the selection.

    Args:
        whys: why layers that are not among these are not.
        there: how the line that refuses what nobody has goes on before the names that there are.

    Raises:
        BadInput: nothing is selected, or by something that is neither a name, a pattern nor a type.
    """
    layers = list(layers)
    asked = [None] if select is None else words(select)
    wanted = [one for one in asked if not (isinstance(one, str) and one.startswith("!"))]
    left_out = [one[1:] for one in asked if isinstance(one, str) and one.startswith("!")]
    named: dict[str, None] = {}
    for one in wanted or [None]:
        named.update(dict.fromkeys(_matching(layers, one, whys, there)))
    gone = {name for one in left_out for name in _matching(layers, one, {}, there)}
    if not (names := [name for name in named if name not in gone]):
        raise BadInput(
            f"select={select!r} leaves out all that it selects; {there}: {', '.join(la.name for la in layers)}"
        )
    return names


def words(select: Select) -> list[str | type]:
    """Return the names, patterns and types that a selection consists of; None has none.

    Raises:
        BadInput: it is empty, or something else.
    """
    if select is None:
        return []
    several = isinstance(select, Collection) and not isinstance(select, (str, type, nn.Module, Tensor))
    asked = list(select) if several else [select]
    if not asked:
        raise BadInput("select is empty, so that no layer is selected: name some, or give None for all")
    if wrong := [one for one in asked if not isinstance(one, (str, type))]:
        found = type_of(wrong[0])
        raise BadInput(f"select: expected names, patterns of names or types of layers, one or a list, found {found}")
    return asked


def _matching(layers: Sequence[Prunable], one: str | type | None, whys: Mapping[str, str], there: str) -> list[str]:
    """Names of the layers that one word of a selection means."""
    if one is None:
        found = [layer.name for layer in layers]
    elif isinstance(one, type):
        found = [layer.name for layer in layers if isinstance(layer.module, one)]
    else:
        found = [
            n for n in (layer.name for layer in layers) if n == one or n.startswith(f"{one}.") or fnmatchcase(n, one)
        ]
    if not found:
        what = repr(one) if isinstance(one, str) else f"{one.__name__} layer" if one else "layer"
        if isinstance(one, str) and (known := next((n for n in whys if n == one or n.startswith(f"{one}.")), None)):
            raise BadInput(f"{known} cannot be pruned: {whys[known]}")
        raise BadInput(f"no {what}; {there}: {', '.join(layer.name for layer in layers)}")
    return found
