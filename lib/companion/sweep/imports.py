"""Find which of the project's files a module really uses, and compute one hash over them.

The sweep's store is keyed by this hash, provenance names it, and a test holds the stages of dvc.yaml to it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable
from pathlib import Path

from lib import base
from lib.base import BadInput


def closure(*modules: str, root: Path = base.ROOT) -> list[Path]:
    """Find the files under lib/ that importing these modules runs, relative to the root, sorted.

    Read from the text: imports inside functions count, and so does each package's __init__ on the way. Modules must
    be named absolutely ("lib.companion.sweep"); the project has no relative imports. With a module come the files that
    it names as `Path(__file__).with_name("...")`, of a folder all in it.

    Raises:
        BadInput: one of these modules is not there.
    """
    for name in modules:
        if file_of(name, root) is None:
            raise BadInput(f"no module {name!r} under {root}")
    found: set[Path] = set()
    queue = list(modules)
    while queue:
        name = queue.pop()
        parts = name.split(".")
        for depth in range(1, len(parts) + 1):
            path = file_of(".".join(parts[:depth]), root)
            if path is not None and path not in found:
                tree = ast.parse((root / path).read_text())
                found |= {path, *beside(path, tree, root)}
                queue += imported(tree)
    return sorted(found)


def beside(module: Path, tree: ast.AST, root: Path = base.ROOT) -> list[Path]:
    """Find the files that a parsed module names as `Path(__file__).with_name("...")`, relative to the root."""
    found: list[Path] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Path(__file__).with_name":
            named = root / module.with_name(ast.literal_eval(node.args[0]))
            files = [named] if named.is_file() else [path for path in named.rglob("*") if path.is_file()]
            found += [path.relative_to(root) for path in files]
    return found


def imported(tree: ast.AST) -> list[str]:
    """Find the names that a parsed module imports from lib; `from lib.a import b` may be the module lib.a.b, so both
    count.
    """
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module] + [f"{node.module}.{alias.name}" for alias in node.names]
    return [name for name in names if name.split(".")[0] == "lib"]


def fingerprint(files: Iterable[Path], root: Path = base.ROOT) -> str:
    """Compute the sha256 over names and contents of the files, in hexadecimal."""
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(f"{path.as_posix()}\0".encode() + (root / path).read_bytes() + b"\0")
    return digest.hexdigest()


def file_of(module: str, root: Path = base.ROOT) -> Path | None:
    """Find the file of a module, relative to the root; None when the name is no module (a function, say)."""
    base = Path(*module.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if (root / path).is_file():
            return path
    return None
