"""What every public docstring of the library has to be, and each module's."""

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

# With one of these does the docstring of a module begin: a title, such as "Residual networks", begins with a noun.
VERBS = {
    "Apply", "Ask", "Build", "Call", "Check", "Choose", "Clone", "Code", "Compare", "Compute", "Count", "Cut",
    "Draw", "Estimate", "Execute", "Expand", "Fill", "Find", "Gate", "Give", "Group", "Hash", "Hold", "Join",
    "Judge", "Keep", "Know", "Label", "Learn", "Link", "List", "Load", "Make", "Measure", "Multiply", "Name",
    "Note", "Open", "Order", "Permute", "Play", "Prune", "Put", "Read", "Rebuild", "Record", "Register", "Remove",
    "Reproduce", "Run", "Save", "Say", "Score", "Search", "Select", "Set", "Share", "Show", "Solve", "Split",
    "Start", "Step", "Stop", "Store", "Time", "Train", "Translate", "Turn", "Verify", "Write",
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


def raised(function: ast.FunctionDef) -> set[str]:
    """The names of the errors that a function itself raises and lets out; `program` makes a line of them."""
    left = {
        node: ast.unparse(node.exc.func)
        for node in ast.walk(function)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.With) and any("program(" in ast.unparse(item) for item in node.items):
            caught = list(left.values())
        elif isinstance(node, ast.Try):
            caught = [error for handler in node.handlers for error in handled(handler)]
        else:
            continue
        within = {inner for line in node.body for inner in ast.walk(line)}
        left = {raising: error for raising, error in left.items() if raising not in within or error not in caught}
    return set(left.values())


def handled(handler: ast.ExceptHandler) -> list[str]:
    """The names of what an `except` catches; of "Exception" those that the library raises."""
    names = [ast.unparse(node) for node in getattr(handler.type, "elts", [handler.type])]
    return [*names, *(["BadInput", "ValueError"] if "Exception" in names else [])]


def test_a_public_function_names_the_errors_that_it_raises():
    silent = []
    for path in sorted(base.ROOT.glob("lib/**/*.py")):
        for function in functions(ast.parse(path.read_text())):
            unnamed = sorted(error for error in raised(function) if error not in (ast.get_docstring(function) or ""))
            silent += [f"{path.relative_to(base.ROOT)} {function.name}: {error}" for error in unnamed]
    assert silent == []


def test_the_docstring_of_a_module_begins_with_a_verb():
    first = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in base.ROOT.glob("lib/**/*.py")}
    assert {path: text for path, text in first.items() if text.partition(" ")[0].strip(",") not in VERBS} == {}
