"""What every public docstring of the library has to be, and each module's."""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

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
    "Note", "Open", "Order", "Permute", "Play", "Prune", "Put", "Read", "Rebuild", "Record", "Refuse", "Register",
    "Remove", "Reproduce", "Run", "Save", "Say", "Score", "Search", "Select", "Set", "Share", "Show", "Solve", "Split",
    "Start", "Step", "Stop", "Store", "Time", "Train", "Translate", "Turn", "Verify", "Write",
}  # fmt: skip


# With one of these does the docstring of a class begin as well; one that states a fact has a verb of FINITE instead.
CLASS_VERBS = VERBS | {
    "Add", "Be", "Begin", "Bring", "Convolve", "Copy", "Decide", "Describe", "Do", "Extend", "Follow", "Halve", "Let",
    "Mask", "Move", "Number", "Pass", "Repeat", "Replay", "Stack", "Take", "Tell",
}  # fmt: skip
FINITE = {
    "are", "come", "computes", "could", "do", "does", "earns", "ended", "gets", "has", "have", "is", "keeps", "knows",
    "learns", "lets", "name", "pass", "rests", "say", "speaks", "stands", "switch", "train", "was", "were",
}  # fmt: skip


def classes(tree: ast.AST) -> Iterator[ast.ClassDef]:
    """The public classes of a module, and those within them."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node
            yield from classes(node)


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


@pytest.mark.parametrize("sentence", ["Hold a clip.", "Each task is a network.", "`Int8` stands here, in pairs."])
def test_a_sentence_has_a_verb(sentence: str):
    assert has_a_verb(sentence)


@pytest.mark.parametrize("phrase", ["Where a clip is.", "Canvases and boxes on them.", "A network. It is small."])
def test_a_phrase_has_none(phrase: str):
    assert not has_a_verb(phrase)


def has_a_verb(text: str) -> bool:
    """Whether a docstring's first sentence begins with a verb, or states a fact."""
    words = re.findall(r"\w+", text.split(". ")[0])
    fact = words[0].lower() not in {"how", "that", "what", "when", "where", "which", "who"} and FINITE & set(words)
    return bool(words[0] in CLASS_VERBS or fact)


def test_the_docstring_of_a_public_class_is_a_sentence_with_a_verb():
    silent = []
    for path in sorted(base.ROOT.glob("lib/**/*.py")):
        for one in classes(ast.parse(path.read_text())):
            text = ast.get_docstring(one)
            if text and not has_a_verb(text):
                silent.append(f"{path.name} {one.name}: {text.splitlines()[0]}")
    assert silent == []


def raised(function: ast.FunctionDef, refusing: Mapping[str, str] = MappingProxyType({})) -> set[str]:
    """The names of the errors that a function lets out, raised by itself or by a helper; of those {name: error}.

    `program` makes a line of them.
    """
    left = {}
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            left[node] = ast.unparse(node.exc.func)
        elif isinstance(node, ast.Call) and (error := refusing.get(ast.unparse(node.func).split(".")[-1])):
            left[node] = error
    for node in ast.walk(function):
        if isinstance(node, ast.With) and any("program(" in ast.unparse(item) for item in node.items):
            caught = list(left.values())
        elif isinstance(node, ast.With) and any("suppress(" in ast.unparse(item) for item in node.items):
            caught = re.findall(r"\w+", ast.unparse(node.items[0]))
        elif isinstance(node, ast.Try):
            caught = [error for handler in node.handlers for error in handled(handler)]
        else:
            continue
        within = {inner for line in node.body for inner in ast.walk(line)}
        left = {raising: error for raising, error in left.items() if raising not in within or error not in caught}
    return set(left.values())


def refusers(tree: ast.AST) -> dict[str, str]:
    """The helpers of a module that are there to refuse, {name: the error that they raise}."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    refusing = [function for function in functions if re.match("_?(refuse|check)_", function.name)]
    return {function.name: error for function in refusing for error in raised(function)}


def handled(handler: ast.ExceptHandler) -> list[str]:
    """The names of what an `except` catches; of "Exception" those that the library raises."""
    names = [ast.unparse(node) for node in getattr(handler.type, "elts", [handler.type])]
    return [*names, *(["BadInput", "ValueError"] if "Exception" in names else [])]


def test_a_public_function_names_the_errors_that_it_raises_itself_or_by_a_helper_that_refuses():
    trees = {path: ast.parse(path.read_text()) for path in sorted(base.ROOT.glob("lib/**/*.py"))}
    helpers = {path: refusers(tree) for path, tree in trees.items()}
    known = {name: error for own in helpers.values() for name, error in own.items() if not name.startswith("_")}
    assert known["refuse_twice"] == "BadInput"
    silent = []
    for path, tree in trees.items():
        refusing = known | helpers[path]
        for function in functions(tree):
            said = ast.get_docstring(function) or ""
            unnamed = sorted(error for error in raised(function, refusing) if error not in said)
            silent += [f"{path.relative_to(base.ROOT)} {function.name}: {error}" for error in unnamed]
    assert silent == []


def test_the_docstring_of_a_module_begins_with_a_verb():
    first = {path: ast.get_docstring(ast.parse(path.read_text())) or "" for path in base.ROOT.glob("lib/**/*.py")}
    assert {path: text for path, text in first.items() if text.partition(" ")[0].strip(",") not in VERBS} == {}
