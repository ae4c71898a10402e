"""Read the settings of an experiment at a scale from params.yaml, and lay them out as configurations.

`read_yaml` is how every YAML file of the project is read: what would be taken silently, or never end, is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from lib import base
from lib.base import BadInput

SCALES = ("quick", "real", "paper")
DEPTH = 100  # of lists and mappings in one another; libyaml's parser takes the process with it at some ten thousand
NODES = 200_000  # values of a file, those behind aliases counted each time; the project's largest file has 10,000


def read(experiment: str, scale: str, params: Path = base.PARAMS) -> dict:
    """Read the settings of one experiment at one scale, as params.yaml holds them.

    Raises:
        BadInput: no such file, scale or experiment, or as `read_yaml`.
    """
    known = _of_scale(scale, params)
    if experiment not in known:
        there = ", ".join(map(str, known)) or "nothing"
        raise BadInput(f"{params.name}: scale {scale} has no {experiment!r}; it has: {there}")
    return known[experiment]


def experiments(scale: str, params: Path = base.PARAMS) -> list[str]:
    """List the experiments that a scale has settings for, in the order of params.yaml.

    Raises:
        BadInput: no such file or scale, or as `read_yaml`.
    """
    return list(_of_scale(scale, params))


def _of_scale(scale: str, params: Path) -> Mapping:
    """Read all settings of a scale, by experiment."""
    if not params.exists():
        raise BadInput(f"{params} does not exist; it would hold the settings of every experiment")
    content = read_yaml(params)
    content = {} if content is None else content
    if not isinstance(content, Mapping):
        raise BadInput(f"{params.name}: expected scales by name, found {content!r}")
    if scale not in content:
        raise BadInput(f"no scale {scale!r} in {params.name}; there are: {', '.join(map(str, content)) or 'none'}")
    if not isinstance(content[scale], Mapping) or not content[scale]:
        raise BadInput(f"{params.name}: scale {scale} has no settings; expected experiments by name")
    return content[scale]


def each_seed(tasks: Iterable[Any]) -> list[dict]:
    """Lay out a grid: each seed of each task, with everything else that the task's settings say.

    Args:
        tasks: dataclasses with `seeds` among their fields, how many there are; `seed` is one of them, counted from 0.
    """
    found = []
    for task in tasks:
        content = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(task).items()}
        seeds = range(content.pop("seeds"))
        found += [{**content, "seed": seed} for seed in seeds]
    return found


def read_yaml(path: Path, called: str = "") -> Any:
    """Read what a YAML file holds: plain values, lists and mappings.

    Args:
        called: how errors name it; its own name, if nothing is said.

    Raises:
        BadInput: no readable file, no UTF-8, or as `parse_yaml`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInput(f"{called or path.name} is not UTF-8, a text file was expected") from error
    return parse_yaml(text, called or path.name)


def parse_yaml(text: str, called: str) -> Any:
    """Read what a text in YAML says: plain values, lists and mappings.

    Raises:
        BadInput: no YAML, a key that stands twice in one mapping, or aliases that stand for themselves or for more than
            NODES values.
    """
    try:
        _refuse_deep(text)
        return yaml.load(text, Loader=_Loader)
    except RecursionError as error:
        raise BadInput(f"{called}: lists or mappings are nested too deeply to be settings") from error
    except _Refused as error:
        raise BadInput(f"{called}, line {error.problem_mark.line + 1}: {error.problem}") from error
    except yaml.MarkedYAMLError as error:
        # libyaml counts a line after the last one, where what was opened is not closed
        line = f", line {min(error.problem_mark.line, text.count(chr(10))) + 1}" if error.problem_mark else ""
        raise BadInput(f"{called}{line} is not YAML: {error.problem}") from error
    except (yaml.YAMLError, ValueError, TypeError) as error:
        raise BadInput(f"{called} is not YAML: {str(error).splitlines()[0]}") from error


PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's, where it is there, is ten times as fast


class _Refused(yaml.MarkedYAMLError):
    """YAML that we do not take; `problem` says why, `problem_mark` where."""


def _refuse_deep(text: str) -> None:
    """Read the parser's events one by one, which nest nothing, and stop at lists and mappings that stand too deep."""
    deep = 0
    for event in yaml.parse(text, Loader=PARSER):
        deep += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if deep > DEPTH:
            raise RecursionError


class _Loader(PARSER):
    """YAML's safe subset, without keys that stand twice and without bombs."""

    def get_single_node(self) -> yaml.Node | None:
        node = super().get_single_node()
        if node is not None:
            _values(node, {})
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        known = set()
        for key, _ in node.value:  # as they stand in the file: what `<<` brings comes later, and may be overruled
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in known:
                    raise _Refused(problem=f"{key.value!r} stands there twice", problem_mark=key.start_mark)
                known.add(key.value)
        return super().construct_mapping(node, deep)


def _values(node: yaml.Node, sizes: dict[int, int]) -> int:
    """How many values a node stands for; `sizes` remembers those of each collection, 0 while it is being counted."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if id(node) not in sizes:
        sizes[id(node)] = 0
        parts = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        sizes[id(node)] = 1 + sum(_values(part, sizes) for part in parts)
    elif not sizes[id(node)]:
        raise _Refused(problem="an alias stands for itself", problem_mark=node.start_mark)
    if sizes[id(node)] > NODES:
        raise _Refused(problem=f"its aliases stand for more than {NODES:,} values", problem_mark=node.start_mark)
    return sizes[id(node)]
