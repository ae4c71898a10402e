"""Make the answer key: each exercise's question, its solution, and the wrong answers that the checker knows.

    python teaching/answers.py > answers.md

Solutions are those that the project's tests run (tests/companion/solutions.py), questions those of the notebooks. A
function is printed as it stands there, under the name that the notebook asks for, after the helpers that it calls; a
test runs every solution as it is printed.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import CodeType

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "companion")]
HEAD = """# Answers

Made by `python teaching/answers.py`; do not hand out. The solutions need

```python
import math

import numpy as np
from scipy import stats
```

A typical wrong answer that is a function may use more of the library; the file that is named with it says what.
"""


def asked() -> tuple[dict[str, str], dict[str, str]]:
    """Read the notebooks: the text of each exercise, and the name of the function that it asks for, by its number."""
    texts, names = {}, {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            text = re.search(r"^\*\*(\d\d\.\d+)\*\* (.*)", cell.source, re.MULTILINE | re.DOTALL)
            if cell.cell_type == "markdown" and text:
                texts[text[1]] = text[2].strip()
            stub = re.search(r"^def (\w+)\(.*?^check\(\"(\d\d\.\d+)\"", cell.source, re.MULTILINE | re.DOTALL)
            if cell.cell_type == "code" and stub:
                names[stub[2]] = stub[1]
    return texts, names


def definition(function: Callable, name: str) -> str:
    """Write a function, a lambda too, as a definition of this name that stands at the left margin."""
    if function.__name__ != "<lambda>":
        source = textwrap.dedent(inspect.getsource(function)).strip()
        return re.sub(rf"\b{function.__name__}(?=\()", name, source)
    places = [(line, column) for line, _, column, _ in function.__code__.co_positions() if column]
    first = function.__code__.co_firstlineno
    there = [one for one in lambdas(inspect.getsourcefile(function)) if one.lineno == first]
    one = [one for one in there if holds(one.body, places)][-1]  # several may stand on one line, the innermost last
    return f"def {name}({ast.unparse(one.args)}):\n    return {ast.unparse(one.body)}"


@cache
def lambdas(path: str) -> list[ast.Lambda]:
    """Find all lambdas of a file, outer ones first."""
    return [node for node in ast.walk(ast.parse(Path(path).read_text())) if isinstance(node, ast.Lambda)]


def holds(node: ast.expr, places: list[tuple[int, int]]) -> bool:
    """Whether all places, (line, column), lie within an expression."""
    first, last = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return all(first <= place <= last for place in places)


def names(code: CodeType) -> set[str]:
    """Find the names that a piece of code uses, those of its comprehensions and inner functions included."""
    inner = (names(constant) for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*inner)


def helpers(function: Callable) -> dict[str, Callable]:
    """Find the functions of the same file that a function calls, and those that these call, the deepest first."""
    seen = {name: function.__globals__.get(name) for name in sorted(names(function.__code__))}
    found = {}
    for name, other in (seen | inspect.getclosurevars(function).nonlocals).items():
        if inspect.isfunction(other) and other is not function and other.__module__ == function.__module__:
            found |= helpers(other) | {name: other}
    return found


def shown(answer: object, name: str) -> str:
    """Show an answer: a number, or a function under the name that was asked for, after the helpers that it calls."""
    if not callable(answer):
        return f"`{answer}`"
    if not inspect.getsourcefile(answer).startswith(str(ROOT)):
        return f"`{answer.__module__}.{answer.__name__}`"
    called = helpers(answer)
    parts = [definition(one, helper) for helper, one in called.items()]
    given = inspect.getclosurevars(answer).nonlocals.items()
    settings = [f"{word} = {getattr(value, '__name__', value)}" for word, value in given if word not in called]
    parts += ["\n".join(settings)] if settings else []
    source = "\n\n\n".join([*parts, definition(answer, name)])
    return f"```python\n{source}\n```"


def key() -> str:
    """The whole answer key as Markdown."""
    from solutions import EXERCISES, SOLUTIONS

    (texts, names), text = asked(), HEAD
    for number, solution in SOLUTIONS.items():
        exercise, name = EXERCISES[number], names.get(number, "")
        text += f"\n## {number}\n\n{texts[number]}\n\n**Answer.**\n\n{shown(solution, name)}\n"
        if exercise.learned:
            text += f"\n*Told to whoever is right:* {exercise.learned}\n"
        for answer, why in exercise.wrong:
            wrong = shown(answer, name)
            code = wrong.startswith("```")
            text += f"\n**Wrong**, {file_of(answer) if code else wrong}: {why}\n" + f"\n{wrong}\n" * code
    return text


def file_of(function: Callable) -> str:
    """Name the file that a function stands in."""
    return f"a function of `{Path(inspect.getsourcefile(function)).relative_to(ROOT)}`"


def main(words: list[str] | None = None) -> None:
    """Run the command line: print the key."""
    argparse.ArgumentParser(
        "python teaching/answers.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(words)
    from lib import base  # the checkout is on the path by now, whoever runs this from elsewhere

    with base.program("answers.py"):
        print(key())


if __name__ == "__main__":
    main()
