"""What every public docstring of the library has to be."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import base

# With none of these does a sentence in the imperative begin, and with them most phrases without a verb do.
NO_VERBS = {
    "a", "all", "an", "and", "any", "as", "at", "between", "both", "by", "each", "every", "everything", "for", "from",
    "how", "in", "it", "its", "new", "no", "none", "nothing", "of", "on", "one", "only", "some", "that", "the", "these",
    "they", "this", "those", "three", "to", "two", "what", "when", "where", "whether", "which", "who", "whose", "why",
    "with", "within",
}  # fmt: skip


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """The public functions and methods of a module; what stands within a function is nobody's to call."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            if isinstance(node, ast.FunctionDef):
                yield node
            else:
                yield from functions(node)


@pytest.mark.parametrize(
    "package", sorted({path.relative_to(base.ROOT).parent for path in base.ROOT.glob("lib/**/*.py")})
)
def test_the_docstring_of_a_public_function_begins_with_a_verb(package: Path):
    silent = []
    for path in sorted((base.ROOT / package).glob("*.py")):
        for function in functions(ast.parse(path.read_text())):
            first = (ast.get_docstring(function) or "").split()[:1]
            if first and (not first[0].strip(",.:;").isalpha() or first[0].lower().strip(",.:;") in NO_VERBS):
                silent.append(f"{path.name} {function.name}: {first[0]} ...")
    assert silent == []
