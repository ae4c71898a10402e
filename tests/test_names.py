"""One name for one thing: modules, classes, and where a name is imported from."""

import ast
from pathlib import Path

from lib import base

MODULES = {
    ".".join(path.relative_to(base.ROOT).with_suffix("").parts): ast.parse(path.read_text())
    for path in (base.ROOT / "lib").rglob("*.py")
}
ROOMS = ("lib.data", "lib.kernels", "lib.models", "lib.pruners", "lib.training")  # what is taught, without its papers


def defined(tree: ast.Module) -> set[str]:
    """The names that a module defines, by a statement of its own."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_no_two_modules_share_a_name_unless_they_play_the_same_part():
    """The same part: in two papers' folders, or a program that users start (lib/NAME.py) and what it calls."""
    places: dict[str, list[Path]] = {}
    for path in (base.ROOT / "lib").rglob("*.py"):
        if path.stem not in ("__init__", "__main__", "program"):  # of a package; `program` is a package's command line
            alike = path.relative_to(base.PAPERS).parts[1:] if path.is_relative_to(base.PAPERS) else path.parts
            if path.parent != base.ROOT / "lib":  # users' names: lib.notebook, lib.compare, lib.exercises
                places.setdefault(path.name, []).append(Path(*alike))
    assert {name for name, parts in places.items() if len(set(parts)) > 1} == set()


def test_a_class_name_means_one_thing_in_the_library():
    places: dict[str, list[str]] = {}
    for module, tree in MODULES.items():
        for node in tree.body if module.startswith(ROOMS) else ():
            alias = isinstance(node, ast.Assign) and isinstance(node.value, ast.Subscript)  # Loss = Callable[...]
            name = node.name if isinstance(node, ast.ClassDef) else node.targets[0].id if alias else "_"
            if not name.startswith("_"):
                places.setdefault(name, []).append(module)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_names_are_imported_from_the_module_that_defines_them():
    """A package hands on what its modules define; a module hands on nothing."""
    passed_on = [
        (module, node.module, alias.name)
        for module, tree in MODULES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in MODULES
        for alias in node.names
        if alias.name not in defined(MODULES[node.module])
    ]
    assert passed_on == []
