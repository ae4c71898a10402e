"""params.yaml holds the settings of every experiment at each scale; here they become checked dataclasses."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from lib import paths
from lib.errors import BadInput

SCALES = ("quick", "real", "paper")
T = TypeVar("T")


def read(experiment: str, scale: str, params: Path = paths.PARAMS) -> dict:
    """The settings of one experiment at one scale, as params.yaml holds them."""
    if not params.exists():
        raise BadInput(f"{params} does not exist; it would hold the settings of every experiment")
    try:
        content = yaml.safe_load(params.read_text()) or {}
    except yaml.YAMLError as error:
        raise BadInput(f"{params.name} is not YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(content, Mapping):
        raise BadInput(f"{params.name}: expected scales by name, found {content!r}")
    if scale not in content:
        raise BadInput(f"no scale {scale!r} in {params.name}; there are: {', '.join(content)}")
    known = content[scale] if isinstance(content[scale], Mapping) else {}
    if experiment not in known:
        raise BadInput(f"{params.name}: scale {scale} has no {experiment!r}; it has: {', '.join(known) or 'nothing'}")
    return known[experiment]


def build(cls: type[T], content: Any, where: str) -> T:
    """A dataclass from a mapping, nested ones and tuples of them too; names and kinds of values are checked.

    Args:
        where: how an error names the place, such as "quick.two_four_workflow".
    """
    if not isinstance(content, Mapping):
        raise BadInput(f"{where}: expected settings by name, found {content!r}")
    known = {field.name: field for field in fields(cls)}
    unknown = [name for name in content if name not in known]
    if unknown:
        raise BadInput(f"{where}: unknown setting {unknown[0]!r}; known are {', '.join(known)}")
    required = [n for n, f in known.items() if f.default is MISSING and f.default_factory is MISSING]
    missing = [name for name in required if name not in content]
    if missing:
        raise BadInput(f"{where}: setting {missing[0]!r} is missing")
    kinds = get_type_hints(cls)
    values = {name: _value(kinds[name], value, f"{where}.{name}") for name, value in content.items()}
    try:
        return cls(**values)
    except BadInput as error:
        raise BadInput(f"{where}: {error}") from error


def refuse_unknown(task: Any, **known: Collection[str]) -> None:
    """Refuse names that nobody knows: `refuse_unknown(self, data=vision.names(), network=NETWORKS)`.

    Raises:
        BadInput: what the task has under one of these names is not among those known.
    """
    for field, names in known.items():
        if (value := getattr(task, field)) not in names:
            raise BadInput(f"{field} {value!r}: known are {', '.join(names)}")


def refuse_twice(**lists: Sequence) -> None:
    """Refuse lists with a value twice, which would be trained twice for one row: `refuse_twice(kept=self.kept)`.

    Raises:
        BadInput: the setting and the value.
    """
    for name, values in lists.items():
        if twice := [value for place, value in enumerate(values) if value in values[:place]]:
            raise BadInput(f"{name}={list(values)}: {twice[0]!r} stands there twice, expected each value once")


def _value(kind: Any, value: Any, where: str) -> Any:
    if is_dataclass(kind):
        return build(kind, value, where)
    if get_origin(kind) in (Union, UnionType):  # of one kind and None
        return None if value is None else _value(next(k for k in get_args(kind) if k is not NoneType), value, where)
    if get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise BadInput(f"{where}: expected a list, found {value!r}")
        return tuple(_value(get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(value))
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(kind, type) and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise BadInput(f"{where}: expected {kind.__name__}, found {value!r}")
    return value
