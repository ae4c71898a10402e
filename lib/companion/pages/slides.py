"""Make slides from the executed notebooks: one deck a part, a file that needs nothing but itself.

    python -m lib.pages --slides

A rule chooses, so that a notebook is written once: its title and picture, *In short*, each **Guess first**, display
equations with the paragraph before them, the first figure of a cell at its largest scale, each **What happened**, short
functions that a cell shows, and *What to remember*. What is left out stands in SKIPPED. A cell tagged `slide` is shown
whole, one tagged `no-slide` not at all.
"""

from __future__ import annotations

import html
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from latex2mathml.converter import convert
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbformat import NotebookNode

from lib import base
from lib.base import BadInput
from lib.companion.notebook import read_notebook
from lib.companion.pages.lessons import is_movable, outputs_of, picture_of, title_of
from lib.companion.pages.parts import PARTS

SKIPPED = ("Exercises", "Read next", "Where we deviate")  # sections for the desk, not for the wall
SPOKEN = ("**In short", "**What happened", "**When it holds")  # paragraphs that are slides
GUESS = re.compile(r"\*\*Guess\s+first")  # and those that hold such a question
LINES = 24  # of a function that is still read from the last row
LETTERS = 520  # of a text at full size; a longer one is set smaller
WIDE = 100  # letters of LaTeX in an equation at full size
HERE = Path(__file__).parent


@dataclass(frozen=True)
class Slide:
    """Hold one slide.

    Attributes:
        kind: "title", "text", "figure" or "code", which decides how it is set.
        heading: of the section it is from, in Markdown.
        body: HTML.
        size: of its letters, 1 or less.
    """

    kind: str
    heading: str
    body: str
    size: float = 1.0


def read(results: Path) -> dict[str, NotebookNode]:
    """Read the executed notebooks under `results`, by name.

    Raises:
        BadInput: no notebook was executed there, or one is damaged.
    """
    notebooks = {path.stem: path for path in sorted((results / "notebooks").glob("*.ipynb"))}
    if not notebooks:
        raise BadInput(f"no executed notebooks under {results}; make repro")
    return {name: read_notebook(path) for name, path in notebooks.items()}


def write_decks(notebooks: Mapping[str, NotebookNode], out: Path) -> list[Path]:
    """Write a deck for each part that has notebooks.

    Args:
        notebooks: executed notebooks by name.
        out: a folder, made when absent; decks of the same names are replaced.
    """
    made = []
    for name, (title, mine) in decks(notebooks).items():
        base.writable(out)
        made.append(out / name)
        with base.atomic(made[-1]) as file:
            file.write(deck(title, mine).encode())
    return made


def decks(notebooks: Mapping[str, NotebookNode]) -> dict[str, tuple[str, dict[str, NotebookNode]]]:
    """Sort notebooks into decks: {file: (title, its notebooks by name)}, of the parts that have any."""
    found = {}
    for digit, title in PARTS.items():
        if mine := {name: notebook for name, notebook in notebooks.items() if name.startswith(digit)}:
            found[f"part_{digit}.html"] = title, mine
    return found


def deck(title: str, notebooks: Mapping[str, NotebookNode]) -> str:
    """Write a part's slides as one page of HTML, the contents first; addresses are #23, #23-1 and so on."""
    sections, contents = [], []
    for name, notebook in notebooks.items():
        number = name[:2]
        for place, slide in enumerate(slides(notebook)):
            address = f"{number}-{place}" if place else number
            sections.append(_section(address, slide))
            if not place:
                contents.append(f'<li><a href="#{number}">{_words(slide.heading)}</a></li>')
    first = Slide("title", title, f"<ul>{''.join(contents)}</ul>", _size("x" * 60 * len(contents)))
    page = (HERE / "slides.html").read_text()
    parts = {"title": html.escape(title), "style": (HERE / "slides.css").read_text()}
    parts |= {"script": (HERE / "slides.js").read_text(), "slides": "\n".join([_section("contents", first), *sections])}
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page)


def slides(notebook: NotebookNode) -> Iterator[Slide]:
    """Choose the slides of an executed notebook, see above."""
    heading = ""
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        if cell.cell_type == "code":
            if "no-slide" not in tags and heading not in SKIPPED:
                yield from _of_code(cell, heading, "slide" in tags)
            continue
        for part in re.split(r"^(?=#{1,2} )", cell.source, flags=re.MULTILINE):
            found = re.match(r"#{1,2} (.+)\n*", part)
            heading = found[1] if found else heading
            text = part[found.end() :] if found else part
            if part.startswith("# "):
                yield Slide("title", heading, _html(text.split("\n\n")[0]))
            elif "no-slide" not in tags and heading not in SKIPPED:
                yield from _of_text(text, heading, "slide" in tags)


def _of_text(text: str, heading: str, whole: bool) -> Iterator[Slide]:
    if text.strip() and (whole or heading == "What to remember"):
        yield Slide("text", heading, _html(text), _size(text))
        return
    paragraphs = [""] + [paragraph.strip() for paragraph in re.split(r"\n\s*\n", text)]
    for before, paragraph in itertools.pairwise(paragraphs):
        if paragraph.startswith(SPOKEN) or GUESS.search(paragraph):
            yield Slide("text", heading, _html(paragraph), _size(paragraph))
        elif paragraph.startswith("$$"):
            said = "" if before.startswith("$$") else before
            size = min(_size(said), max(0.6, WIDE / len(paragraph)))
            yield Slide("text", heading, _html(f"{said}\n\n{paragraph}"), size)


def _of_code(cell: NotebookNode, heading: str, whole: bool) -> Iterator[Slide]:
    drawn = scales = 0
    for data in outputs_of(cell):
        text = data.get("text/markdown", "")
        scales += bool(re.fullmatch(r"\*\*\w+ scale\*\*", text))
        if scales > 1:  # the largest scale comes first
            return
        if text.startswith("*From `"):
            code = text.split("```python\n")[-1].rstrip("`\n")
            if code.count("\n") < LINES:
                yield Slide("code", heading, f"<pre>{html.escape(code)}</pre>")
        elif text.startswith(SPOKEN) or (whole and text):
            yield Slide("text", heading, _html(text), _size(text))
        elif is_movable(data):
            yield Slide("figure", heading, data["text/html"])
        elif (picture := picture_of(data)) and (whole or not drawn):
            drawn += 1
            yield Slide("figure", heading, f'<img src="{picture}" alt="{html.escape(title_of(data))}">')
        elif whole and "text/html" in data:
            yield Slide("text", heading, data["text/html"])


def _section(address: str, slide: Slide) -> str:
    size = f' style="--size: {slide.size:.2f}"' if slide.size < 1 else ""
    level = "h1" if slide.kind == "title" else "h2"
    heading = f"<{level}>{_words(slide.heading)}</{level}>" if slide.heading else ""
    return f'<section class="{slide.kind}" id="{address}"{size}>{heading}<div>{slide.body}</div></section>'


def _size(text: str) -> float:
    """Say how large the letters of a text are: their number times the square of their size is what a slide holds."""
    return min(1.0, max(0.5, math.sqrt(LETTERS / max(1, len(text)))))


def _html(text: str) -> str:
    """Turn Markdown into HTML; equations become MathML, links to other notebooks plain words."""
    return _MARKDOWN.render(re.sub(r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text))


def _words(text: str) -> str:
    return _MARKDOWN.renderInline(text)


def _mathml(text: str, options: Mapping[str, bool]) -> str:
    return convert(text, display="block" if options["display_mode"] else "inline")


_MARKDOWN = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin, renderer=_mathml)
