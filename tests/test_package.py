"""What `pip install .` brings is enough for the library, and no file of lib is imported by what it imports."""

import ast
import re
import sys
import tomllib
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from lib import base
from lib.companion.sweep.imports import file_of, imported

PROJECT = tomllib.loads((base.ROOT / "pyproject.toml").read_text())["project"]
ROOMS = ("kernels", "models", "pruners")
PROGRAMS = ("lib.advise",)


def named(requirements: list[str]) -> set[str]:
    """The packages of requirements, as one imports them."""
    return {re.match(r"[\w-]+", one)[0].replace("-", "_") for one in requirements}


def library() -> list[str]:
    """The modules of the library that need no data, and the programs for a network of one's own."""
    files = [path for room in ROOMS for path in (base.ROOT / "lib" / room).rglob("*.py")]
    return [".".join(path.relative_to(base.ROOT).with_suffix("").parts) for path in files] + list(PROGRAMS)


def outside(tree: ast.AST) -> set[str]:
    """The packages that a module imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        found |= {name.split(".")[0] for name in names}
    return found - set(sys.stdlib_module_names) - {"lib"}


def parsed(path: Path) -> ast.Module:
    """A file without what it imports for type checkers alone."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node))]
    return tree


def test_the_library_imports_only_what_its_package_declares():
    """Followed from file to file, as `lib.companion.sweep.imports` does."""
    allowed = named(PROJECT["dependencies"]) | named(PROJECT["optional-dependencies"]["export"])
    needs, queue = {}, library()
    while queue:
        path = file_of(queue.pop())
        if path is not None and path not in needs:
            tree = parsed(base.ROOT / path)
            needs[path] = outside(tree) - allowed
            queue += imported(tree)
    assert len(needs) > 50
    assert {str(path): names for path, names in needs.items() if names} == {}


@pytest.mark.parametrize("part", ["dependencies", "companion"])
def test_the_lock_has_what_make_env_takes_within_its_range(part: str):
    from packaging.requirements import Requirement

    lines = [line for line in (base.ROOT / "requirements.txt").read_text().splitlines() if not line.startswith("#")]
    locked = [Requirement(line) for line in lines]
    wanted = PROJECT["dependencies"] if part == "dependencies" else PROJECT["optional-dependencies"]["companion"]
    for need in map(Requirement, wanted):
        pins = [one for one in locked if one.name.lower() == need.name.lower()]
        assert pins, f"{need.name} is not in requirements.txt: run make lock"
        assert all(need.specifier.contains(next(iter(pin.specifier)).version) for pin in pins)


def arrows(path: Path) -> set[Path]:
    """The files of lib whose names a file imports, wherever in it; of a package the part that is named alone."""
    names = []
    for node in ast.walk(ast.parse((base.ROOT / path).read_text())):
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [f"{node.module}.{alias.name}" for alias in node.names] if isinstance(node, ast.ImportFrom) else []
    found = [file_of(name) or file_of(name.rpartition(".")[0]) for name in names if name.startswith("lib.")]
    return {one for one in found if one is not None} - {path}


def test_no_file_is_imported_by_what_it_imports():
    """Late imports and those for type checkers count too."""
    files = [path.relative_to(base.ROOT) for path in (base.ROOT / "lib").rglob("*.py")]
    house = {path: arrows(path) for path in files}
    assert sum(map(len, house.values())) > len(files)
    assert list(TopologicalSorter(house).static_order())  # raises CycleError, which names the circle
