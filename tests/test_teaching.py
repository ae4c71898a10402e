"""For teachers: the answer key has every exercise, plans and guide lead to files that exist."""

import re
import subprocess
import sys

import pytest

from lib import base
from lib.companion import exercises

FOLDER = base.ROOT / "teaching"


def test_the_answer_key_has_every_exercise_with_its_question():
    done = subprocess.run([sys.executable, str(FOLDER / "answers.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    parts = dict(re.findall(r"^## (\d\d\.\d+)\n\n(.*?)(?=^## |\Z)", done.stdout, re.MULTILINE | re.DOTALL))
    asked = []
    for path in sorted(base.NOTEBOOKS.glob("*.ipynb")):
        asked += [name for name in exercises.module_of(path.stem[:2]).EXERCISES if name.startswith(path.stem[:2])]
    assert sorted(parts) == sorted(asked)
    assert [name for name, text in parts.items() if "**Answer.**" not in text or len(text) < 60] == []
    assert "return" in parts["23.3"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda path: path.name)
def test_every_link_leads_to_a_file(path):
    links = [link for link in re.findall(r"\]\(([^)#]+)", path.read_text()) if not link.startswith("http")]
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_glossary_is_sorted_and_says_each_word_once():
    words = re.findall(r"^\* \*\*([^*]+)\*\*", (FOLDER / "glossary.md").read_text(), re.MULTILINE)
    assert len(words) > 50
    assert words == sorted(set(words), key=str.lower)
