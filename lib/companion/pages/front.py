"""Write the first page, and the pages that look things up: all exercises, and what teachers find."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from lib import base
from lib.base import BadInput
from lib.companion.pages.lessons import Lesson
from lib.companion.pages.parts import PARTS

TEACHING = base.ROOT / "teaching"
CLAIMS = "claims"  # the page of all claims, each with an address of its own: claims.html#rl-bc-95-snip
EXERCISES = "exercises"  # the page of all exercises
LOOK_UP = {  # pages that are no notebooks, in the order of the menu
    CLAIMS: "Every claim",
    EXERCISES: "Exercises",
    "glossary": "Glossary",
    "teaching": "For teachers",
    "plans": "Lesson plans",
    "homework": "Homework",
    "reinforcement_learning": "Words of RL",
}
INTRODUCTION = """# Sparsity, Reproduced

Five papers on smaller neural networks, rebuilt from their equations, run from numbered notebooks, and judged claim by
claim against what the papers printed. These pages are the executed notebooks. Every measured number on them was
computed.
"""
SCALES = """What a page computes live uses data that ships with the software and takes seconds. What it reads from
longer runs it shows at every scale there is: *real* is public data, *quick* what two cores do in minutes.
"""


def index(lessons: Sequence[Lesson], others: Collection[str], found: str = "") -> str:
    """Write the first page: what was found, a gallery of the notebooks by part, and the two commands.

    Args:
        lessons: the notebooks.
        others: the pages of LOOK_UP that there are.
        found: sentences on what was found, in Markdown.
    """
    known = [name for name in LOOK_UP if name in others]
    text = [INTRODUCTION]
    if lessons:
        ways = [(f"{lessons[0].name}.html", "Start here"), *((f"{name}.html", LOOK_UP[name]) for name in known)]
        ways += [("search.html", "Search")]
        text += [f'<nav class="ways" aria-label="Ways in">{" ".join(_link(*way) for way in ways)}</nav>\n']
    if found:
        text += [f"## What was found\n\n{found}\n", _verdicts(CLAIMS in known)]
    text += ["## The notebooks\n", SCALES]
    for digit, title in PARTS.items():
        mine = [lesson for lesson in lessons if lesson.name.startswith(digit)]
        if mine:
            text += [
                f"### {title}\n",
                _more(digit, CLAIMS in known),
                _gallery(mine),
                _menu(title, (m.name for m in mine)),
            ]
    if known:
        text += [_menu("Look up", known)]
    text += [f"## Two commands\n\nIn a clone of the repository:\n\n{commands(base.README.read_text())}\n"]
    return "\n".join(text)


def commands(readme: str) -> str:
    """Return the block with the two commands from README's text.

    Raises:
        BadInput: there is none.
    """
    block = re.search(r"^## Two commands\n.*?^(```\n.*?^```)$", readme, re.MULTILINE | re.DOTALL)
    if block is None:
        raise BadInput(
            "README.md must hold '## Two commands' and after it a block between two lines of three backticks"
        )
    return block[1].replace("```", "```text", 1)  # a shell has no colours here


def exercises(lessons: Iterable[Lesson]) -> str:
    """Write the page of all exercises: a table a notebook, each question linked to its place."""
    text = [
        "# Exercises\n",
        "*Compute* takes minutes, *code* writes the method, *experiment* predicts first and then runs. In a notebook ",
    ]
    text[-1] += (
        '`check("20.1", answer)` says whether an answer is right and why a wrong one is wrong; `hint("20.1")` helps.\n'
    )
    for lesson in (lesson for lesson in lessons if lesson.exercises):
        text.append(f"## {lesson.title}\n\n| exercise | level | question |\n|---|---|---|")
        for number, (level, question) in lesson.exercises.items():
            asked = " ".join(question.split()).replace("|", "\\|")
            text.append(f"| {_link(f'{lesson.name}.html#exercise-{number}', number)} | {level} | {asked} |")
        text.append("")
    return "\n".join(text)


def teaching(text: str, names: Collection[str]) -> str:
    """Lead the links of a file in teaching/ to the pages; those to what is no page become plain text.

    Args:
        text: Markdown.
        names: the pages that there are; README.md is the page "teaching".
    """

    def lead(match: re.Match) -> str:
        words, target, place = match.groups()
        page = "teaching" if target == "README.md" else Path(target).stem
        page = "index" if target == "../notebooks" else page
        file = f"{page}.ipynb" if target.endswith(".ipynb") else f"{page}.md"
        return f"[{words}]({file}{place or ''})" if page in {*names, "index"} else words

    return re.sub(r"\[([^\]]+)\]\((?!https?:)([^)#]+)(#[^)]*)?\)", lead, text)


def numbered(text: str, names: Iterable[str]) -> str:
    """Link the numbers of notebooks in brackets, such as (31, 32), to their pages."""
    pages = {name[:2]: name for name in names}

    def lead(match: re.Match) -> str:
        return re.sub(r"\d\d", lambda n: f"[{n[0]}]({pages[n[0]]}.ipynb)" if n[0] in pages else n[0], match[0])

    return re.sub(r"\(\d\d(?:, \d\d)*\)", lead, text)


def first_sentence(text: str, longest: int = 220) -> str:
    """Return the first sentence of a text in Markdown as plain words, of at most about `longest` letters."""
    plain = re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", " ".join(text.split()))
    plain = re.sub(r"[*`$]", "", plain)
    sentence = re.split(r"(?<=[.!?])\s+(?=[A-Z])", plain)[0]
    return sentence if len(sentence) <= longest else sentence[:longest].rsplit(" ", 1)[0].rstrip(",;:") + " …"


def picture_file(lesson: Lesson) -> str:
    """Name the file of a notebook's picture in the gallery."""
    return f"{lesson.name}.{'svg' if 'image/svg' in lesson.picture else 'png'}"


def _link(target: str, words: str) -> str:
    return f'<a href="{target}">{html.escape(words)}</a>'


def _verdicts(linked: bool) -> str:
    text = "Numbers are means with their 95 % intervals, or from the lowest to the highest mean of several networks."
    return (
        f"{text} Every claim with its numbers: {_link(f'{CLAIMS}.html', 'all verdicts')}.\n" if linked else f"{text}\n"
    )


def _more(digit: str, claims: bool) -> str:
    """Link what a part has beside its notebooks: the claims of its paper, and slides."""
    ways = [(f"{CLAIMS}.html#paper-{digit}", f"claims of paper {digit}")] if claims and digit in "12345" else []
    ways += [(f"slides/part_{digit}.html", "slides")]
    return f'<p class="more">{" · ".join(_link(*way) for way in ways)}</p>\n'


def _gallery(lessons: Iterable[Lesson]) -> str:
    cards = []
    for lesson in lessons:
        picture = f'<img src="_static/pictures/{picture_file(lesson)}" alt="" loading="lazy">' if lesson.picture else ""
        short = f"<small>{html.escape(first_sentence(lesson.short))}</small>" if lesson.short else ""
        title = f"<strong>{html.escape(lesson.title)}</strong>"
        cards.append(f'<a class="card" href="{lesson.name}.html">{picture}{title}{short}</a>')
    return f'<div class="gallery">{"".join(cards)}</div>\n'


def _menu(title: str, names: Iterable[str]) -> str:
    """Write a part of the menu beside each page, which the page itself does not show."""
    return f"```{{toctree}}\n:caption: '{title}'\n:maxdepth: 1\n:hidden:\n\n" + "\n".join(names) + "\n```\n"
