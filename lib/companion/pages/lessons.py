"""Read what pages and slides take from an executed notebook: its title, picture, *In short* and exercises."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from nbformat import NotebookNode

SVG, PNG = "image/svg+xml", "image/png"
EXERCISE = re.compile(
    r"^\*\*(\d\d\.\d+)\*\* (?:\((compute|code|experiment)\)\s+)?(.+?)(?=\n\n|\Z)", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Lesson:
    """Hold what other pages say of a notebook.

    Attributes:
        name: of its file, such as "23_train_prune_retrain"; its page is `name`.html.
        title: its heading, with the number.
        short: what it found, in Markdown; empty where the notebook has no *In short*.
        picture: its first picture as the address of an image (data:), empty when it draws none.
        exercises: {number: (level, question in Markdown)}; the level is empty where none is said.
    """

    name: str
    title: str
    short: str
    picture: str
    exercises: dict[str, tuple[str, str]]


def read_lesson(name: str, notebook: NotebookNode) -> Lesson:
    """Read what other pages say of an executed notebook."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    heading = next((found[1] for source in sources if (found := re.search(r"^# (.+)$", source, re.MULTILINE))), name)
    said = (text for cell in notebook.cells for text in markdown_of(cell))
    short = next((text for text in said if text.startswith("**In short")), "")
    pictures = (picture for cell in notebook.cells for output in outputs_of(cell) if (picture := picture_of(output)))
    asked = {number: (level, text) for source in sources for number, level, text in EXERCISE.findall(source)}
    return Lesson(name, heading, re.sub(r"^\*\*In short\.?\*\*\.?\s*", "", short), next(pictures, ""), asked)


def outputs_of(cell: NotebookNode) -> Iterator[NotebookNode]:
    """Yield what a cell displayed, by kind of data; what it printed is left out."""
    yield from (output.data for output in cell.get("outputs", []) if "data" in output)


def markdown_of(cell: NotebookNode) -> Iterator[str]:
    """Yield the sentences that a code cell said."""
    yield from (data["text/markdown"] for data in outputs_of(cell) if "text/markdown" in data)


def is_movable(data: NotebookNode) -> bool:
    """Say whether an output is a figure with a slider (`lib.companion.movable`)."""
    return '<figure class="movable"' in data.get("text/html", "")


def picture_of(data: NotebookNode) -> str:
    """Return the picture of an output as an address that holds the whole picture, empty when it has none."""
    if SVG in data:
        return f"data:{SVG};base64,{base64.b64encode(data[SVG].encode()).decode()}"
    if PNG in data:
        return f"data:{PNG};base64,{data[PNG].strip()}"
    shown = re.search(r'<img src="(data:image/[^"]+)"', data["text/html"]) if is_movable(data) else None
    return shown[1] if shown else ""


def title_of(data: NotebookNode) -> str:
    """Return the longest line that is written in a figure: nearly always its title, which says what is seen."""
    written = re.findall(r"<!-- (.+?) -->", data.get(SVG, ""))
    return html.unescape(max(written, key=len, default=""))


def claims_of(cell: NotebookNode, known: Collection[str]) -> list[str]:
    """List the claims that a code cell names, each once and in its order."""
    if cell.cell_type != "code":
        return []
    named = re.findall(r"""["'{]([a-z][a-z0-9-]+)["'.:}]""", cell.source)
    return list(dict.fromkeys(name for name in named if name in known))
