"""Make the answer key: each exercise's question, its solution, and the wrong answers that the checker knows.

    python teaching/answers.py > answers.md

Solutions are those that the project's tests run (tests/companion/solutions.py), questions those of the notebooks.
"""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "companion")]


def questions() -> dict[str, str]:
    """The text of each exercise, by its number, as the notebooks ask it."""
    found = {}
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, as_version=4).cells:
            asked = re.search(r"^\*\*(\d\d\.\d+)\*\* (.*)", cell.source, re.MULTILINE | re.DOTALL)
            if cell.cell_type == "markdown" and asked:
                found[asked[1]] = asked[2].strip()
    return found


def shown(solution: object) -> str:
    """A solution as text: a number, or a function as it stands in the tests."""
    if not callable(solution):
        return f"`{solution}`"
    source = inspect.cleandoc(inspect.getsource(solution)).strip().rstrip(",")
    return f"```python\n{source}\n```"


def key() -> str:
    """The whole answer key as Markdown."""
    from solutions import EXERCISES, SOLUTIONS

    asked, text = questions(), "# Answers\n\nMade by `python teaching/answers.py`; do not hand out.\n"
    for number, solution in SOLUTIONS.items():
        exercise = EXERCISES[number]
        text += f"\n## {number}\n\n{asked[number]}\n\n**Answer.** {shown(solution)}\n"
        if exercise.learned:
            text += f"\n*Told to whoever is right:* {exercise.learned}\n"
        for answer, why in exercise.wrong:
            wrong = "a function" if callable(answer) else f"`{answer}`"
            text += f"\n* wrong, {wrong}: {why}"
        text += "\n" if exercise.wrong else ""
    return text


if __name__ == "__main__":
    print(key())
