"""For teachers: the answer key has every exercise, plans and guide lead to files that exist."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat import v4

from lib import base
from lib.companion import exercises

FOLDER = base.ROOT / "teaching"


@pytest.fixture(scope="module")
def key() -> dict[str, str]:
    """The answer key's text of each exercise, and what stands before the first of them."""
    done = subprocess.run([sys.executable, str(FOLDER / "answers.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    head, *parts = re.split(r"^## (\d\d\.\d+)$", done.stdout, flags=re.MULTILINE)
    return {"head": head} | dict(zip(parts[::2], parts[1::2], strict=True))


def code(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_answer_key_has_every_exercise_with_its_question(key: dict[str, str]):
    asked = []
    for path in sorted(base.NOTEBOOKS.glob("*.ipynb")):
        asked += [name for name in exercises.module_of(path.stem[:2]).EXERCISES if name.startswith(path.stem[:2])]
    assert sorted(key.keys() - {"head"}) == sorted(asked)
    short = [name for name in asked if "**Answer.**" not in key[name] or len(key[name]) < 60]
    assert short == []


def test_every_solution_of_the_answer_key_runs_as_it_is_printed_and_is_right(key: dict[str, str]):
    (imports,) = code(key["head"])
    wrong, ran = {}, 0
    for name in key.keys() - {"head"}:
        answer, *rest = key[name].split("**Wrong**")
        exercise = exercises.module_of(name).EXERCISES[name]
        for piece in [piece for text in rest for piece in code(text)]:
            compile(piece, name, "exec")
        for piece in code(answer):  # in a room of its own: what one solution defines helps no other
            room = {}
            exec(imports, room)
            exec(piece, room)
            wrong[name], ran = exercise(room[re.findall(r"^def (\w+)", piece, re.MULTILINE)[-1]]), ran + 1
    assert ran > 50
    assert {name: why for name, why in wrong.items() if why} == {}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.name)
def test_every_link_leads_to_a_file(path):
    links = [link for link in re.findall(r"\]\(([^)#]+)", path.read_text()) if not link.startswith("http")]
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_glossary_is_sorted_and_says_each_word_once():
    words = re.findall(r"^\* \*\*([^*]+)\*\*", (FOLDER / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) > 50
    assert words == sorted(set(words), key=str.lower)


def test_collecting_counts_what_the_checker_said_and_not_what_somebody_typed():
    spec = importlib.util.spec_from_file_location("collect", FOLDER / "collect.py")
    collect = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(collect)

    def cell(source: str, text: str):
        return v4.new_code_cell(source, outputs=[v4.new_output("stream", text=text)] if text else [])

    notebook = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("Exercise 20.1: right. I did it."),
            cell('check("20.1", 5)', "Exercise 20.1: not yet. Hint: ...\n"),
            cell('check("20.2", 11)', "Exercise 20.2: right. A group has six patterns.\n"),
            cell(
                'check("20.3", 1)\nprint("Exercise 20.3: right.")', "Exercise 20.3: not yet.\nExercise 20.3: right.\n"
            ),
            cell('print("Exercise 20.4: right.")', "Exercise 20.4: right.\n"),
            cell('def f(x):\n    return x\n\n\ncheck("20.5", f)', "Exercise 20.5: right.\n"),
            cell('check("20.6", ...)  # check("20.6", function)', ""),
            cell('if True:\n    check("20.7", 3)', "Exercise 20.7: right.\n"),
            v4.new_markdown_cell("**20.8** (compute) Its cell is gone."),
        ]
    )
    assert collect.verdicts(notebook) == {
        "20.1": "not yet",
        "20.2": "right",
        "20.3": "look at it",
        "20.5": "right",
        "20.6": "no output",
        "20.7": "look at it",
        "20.8": "no check",
    }


def test_a_file_that_is_no_notebook_is_named_and_the_others_are_told_of(tmp_path: Path):
    (tmp_path / "empty.ipynb").write_text("")
    (tmp_path / "odd.ipynb").write_text('{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": 3}')
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "done.ipynb")
    names = ["absent.ipynb", "empty.ipynb", ".", "odd.ipynb", "done.ipynb"]
    command = [sys.executable, FOLDER / "collect.py", *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr, lines[-1]) == (1, "", "done.ipynb: 0 of 0 right")
    assert [line.split(": ")[0] for line in lines[:4]] == names[:4]
    assert all(": no notebook that can be read (" in line for line in lines[:4])
