"""Write what Sphinx makes the pages from: executed notebooks with links to and fro, and pages that look things up."""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import nbformat
import pandas as pd

from lib import base
from lib.companion.claims import readme
from lib.companion.notebook import read_notebook
from lib.companion.pages import front
from lib.companion.pages.lessons import EXERCISE, Lesson, claims_of, outputs_of, read_lesson, title_of
from lib.companion.results import read_cells, read_scorecard

SHOWN = ("text/html", "text/markdown")
OPEN = "parameters"  # the tag of the first code cell, which imports; on the pages it is folded as plotting is


def write_sources(results: Path, source: Path) -> tuple[list[Lesson], dict[str, nbformat.NotebookNode]]:
    """Write the sources of all pages but the slides.

    Args:
        results: where executed notebooks and verdicts are.
        source: an empty folder.

    Returns:
        What the pages say of each notebook, and the notebooks by name; none of either when there are none.
    """
    notebooks = {path.stem: read_notebook(path) for path in sorted((results / "notebooks").glob("*.ipynb"))}
    claims = read_scorecard(results) if (results / "claims.csv").exists() else None
    ids = set() if claims is None else set(claims.id)
    lessons = [read_lesson(name, notebook) for name, notebook in notebooks.items()]
    rows = {} if claims is None else links(claims)
    copies = {name: linked(notebook, rows, ids) for name, notebook in notebooks.items()}
    for name, copy in copies.items():
        nbformat.write(copy, source / f"{name}.ipynb")
    pictures = source / "_static" / "pictures"
    pictures.mkdir(parents=True)
    for lesson in (lesson for lesson in lessons if lesson.picture):
        (pictures / front.picture_file(lesson)).write_bytes(base64.b64decode(lesson.picture.partition(",")[2]))
    pages, found = {}, ""
    if claims is not None:
        cells = read_cells(claims, results)
        pages[front.CLAIMS] = readme.page(claims, cells, shown_in(copies, claims.id))
        if results.resolve() == base.RESULTS.resolve():  # the sentences are on this checkout's results
            found = readme.found(readme.FOUND.read_text(), claims, cells)
    if any(lesson.exercises for lesson in lessons):
        pages[front.EXERCISES] = front.exercises(lessons)
    pages |= teaching([lesson.name for lesson in lessons])
    pages["index"] = front.index(lessons, pages, found)
    for name, text in pages.items():
        (source / f"{name}.md").write_text(text)
    return lessons, notebooks


def linked(notebook: nbformat.NotebookNode, rows: Mapping[str, str], claims: set[str]) -> nbformat.NotebookNode:
    """Copy a notebook for the pages: linked to the claims, with an address for each exercise and words for each figure.

    Args:
        rows: {what stands at the head of a table's row, as HTML: what stands there instead}.
        claims: the ids of all claims.
    """
    notebook = nbformat.from_dict(notebook)
    seen: set[str] = set()
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = EXERCISE.sub(r'<a id="exercise-\1"></a>\g<0>', cell.source)
            continue
        tags = cell.metadata.get("tags", [])
        if OPEN in tags:
            cell.metadata["tags"] = [*tags, "hide-input"]
        said = None
        for data in outputs_of(cell):
            if table := data.get("text/html"):
                data["text/html"] = re.sub(r"<th( [^>]*)?>(.*?)</th>", lambda head: _linked_head(head, rows), table)
            if text := data.get("text/markdown"):  # Sphinx leads links of outputs nowhere by itself
                data["text/markdown"] = re.sub(r"\[([^]]+)\]\((\d\d_\w+)\.ipynb\)", r'<a href="\2.html">\1</a>', text)
                said = data
            if title := title_of(data):
                cell.metadata["mystnb"] = {"image": {"alt": title}}
        if said is not None and (named := claims_of(cell, claims)):
            said["text/markdown"] += "\n\n" + _rests_on(named, seen)
    return notebook


def _linked_head(head: re.Match, rows: Mapping[str, str]) -> str:
    """The head of a row, linked to its claim; one that stands before several rows says so in its attributes."""
    attributes, said = head[1] or "", head[2]
    return rows.get(f"<th>{said}</th>", head[0]).replace("<th>", f"<th{attributes}>", 1)


def _rests_on(named: Iterable[str], seen: set[str]) -> str:
    """Link the claims that a sentence names; the first link to a claim on a page has an address of its own."""
    ways = []
    for name in named:
        address = "" if name in seen else f' id="claim-{name}"'
        seen.add(name)
        ways.append(f'<a{address} href="{front.CLAIMS}.html#{name}">{name}</a>')
    return f'<span class="rests-on">Claims: {", ".join(ways)}</span>'


def links(claims: pd.DataFrame) -> dict[str, str]:
    """Link the rows of verdict tables, which begin with what a claim says, to the claim on its page."""
    said = claims.drop_duplicates("says", keep=False)
    escaped = [html.escape(text, quote=False) for text in said.says]  # as pandas writes it
    heads = zip(said.id, escaped, strict=True)
    return {f"<th>{says}</th>": f'<th><a href="{front.CLAIMS}.html#{name}">{says}</a></th>' for name, says in heads}


def shown_in(copies: Mapping[str, nbformat.NotebookNode], claims: Iterable[str]) -> dict[str, str]:
    """Link each claim back to the notebooks that link to it.

    Args:
        copies: linked notebooks by name.
        claims: the ids of all claims.

    Returns:
        {id: links as HTML, empty when no notebook links to the claim}.
    """
    back: dict[str, list[str]] = {name: [] for name in claims}
    for page, notebook in copies.items():
        texts = [data.get(kind, "") for cell in notebook.cells for data in outputs_of(cell) for kind in SHOWN]
        for name in dict.fromkeys(re.findall(rf'"{front.CLAIMS}\.html#([^"]+)"', "".join(texts))):
            address = f"#claim-{name}" if f'id="claim-{name}"' in "".join(texts) else ""
            back[name].append(f'<a href="{page}.html{address}">{page[:2]}</a>')
    return {name: ", ".join(ways) for name, ways in back.items()}


def teaching(names: Sequence[str]) -> dict[str, str]:
    """Read the files of teaching/ as pages: {name: Markdown}. README.md is the page "teaching"."""
    texts = {path.stem: path.read_text() for path in sorted(front.TEACHING.glob("*.md"))}
    pages = {"teaching" if name == "README" else name: text for name, text in texts.items()}
    pages = {name: pages[name] for name in front.LOOK_UP if name in pages}
    led = {name: front.teaching(text, [*names, *pages]) for name, text in pages.items()}
    if "glossary" in led:
        led["glossary"] = front.numbered(led["glossary"], names)
    return led
