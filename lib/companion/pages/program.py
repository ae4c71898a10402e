"""Write the executed notebooks as one linked set of pages: html/index.html. Nothing is executed."""

from __future__ import annotations

import argparse
import html
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pandas as pd
from sphinx.cmd.build import build_main

from lib import base
from lib.base import BadInput
from lib.companion.claims import readme
from lib.companion.notebook import read_notebook
from lib.companion.results import read_scorecard

PARTS = {
    "0": "Start here",
    "1": "Paper 1: single-shot pruning before offline reinforcement learning",
    "2": "Paper 2: the 2:4 pattern",
    "3": "Paper 3: self-distillation for speaker verification",
    "4": "Paper 4: neural plasticity networks",
    "5": "Paper 5: group-sparse training",
    "6": "All papers together",
}
CLAIMS = "claims"  # the page of all claims, each with an address of its own: claims.html#rl-bc-95-snip
MARK = ".pages"  # a file in a folder that this program made, so that it may be deleted
INTRODUCTION = """# Sparsity, Reproduced

Five papers on smaller neural networks, rebuilt from their equations, run from numbered notebooks, and judged claim by
claim against what the papers printed. These pages are the executed notebooks. Every measured number on them was
computed.

What a page computes live uses data that ships with the software and takes seconds. What it reads from longer runs it
shows at every scale there is: *real* is public data, *quick* what two cores do in minutes.
"""


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser("python -m lib.pages", description=__doc__)
    parser.add_argument("--results", type=Path, default=base.RESULTS, help="where executed notebooks are")
    parser.add_argument("--out", type=Path, default=base.ROOT / "html", help="where pages go (default: html/)")
    asked = parser.parse_args(words)
    try:
        write(asked.results, asked.out)
    except BadInput as error:
        print(f"lib.pages: {error}", file=sys.stderr)
        sys.exit(2)
    print(f"open {asked.out / 'index.html'}")


def write(results: Path, out: Path) -> None:
    """Make the pages anew from results/notebooks/; when something is wrong with them the old ones stay.

    They are built beside `out` and take its place by being renamed, so that it is whole whenever a process is killed.
    Of what was in it before only this program's own files go; another's are carried over.

    Raises:
        BadInput: a folder that holds anything but pages or cannot be replaced, another process that writes there, no
            notebooks or damaged ones, pages with errors.
    """
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise BadInput(f"{out} is a {'link' if out.is_symlink() else 'file'}: name a folder, which may be absent")
    with base.locked(out, "lib.pages"):
        _write(results, out)


def _write(results: Path, out: Path) -> None:
    """What `write` does once it has the folder for itself."""
    _restore(out)
    if out.exists() and not (out / MARK).exists() and any(out.iterdir()):
        raise BadInput(f"{out} holds other things than pages, which would be deleted: name an empty folder")
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder)
        shutil.copy(Path(__file__).with_name("conf.py"), source)
        (source / "_static").mkdir()
        shutil.copy(Path(__file__).with_name("pages.css"), source / "_static")
        claims = read_scorecard(results) if (results / "claims.csv").exists() else None
        pages = copy_notebooks(results, source, {} if claims is None else links(claims))
        if not pages:
            raise BadInput(f"no executed notebooks under {results}; make repro")
        if claims is not None:
            (source / f"{CLAIMS}.md").write_text(readme.page(claims, addresses=True))
            pages.append(CLAIMS)
        (source / "index.md").write_text(index(pages))
        built = source / "build" / "html"
        # -W: what Sphinx would only warn of (a dead link, a broken equation) is an error here
        if build_main(["-q", "-W", "--keep-going", "-d", str(source / "build" / "doctrees"), str(source), str(built)]):
            raise BadInput("the pages have errors, named above")
        new, old = _beside(out)
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(built, new)
    (new / MARK).write_text("\n".join(_files(new)))
    if out.exists():
        own = set((out / MARK).read_text().splitlines()) if (out / MARK).exists() else set()
        for name in _files(out):
            if name not in own and name != MARK and not (new / name).exists():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(out / name, new / name)
        out.rename(old)
    new.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def _beside(out: Path) -> tuple[Path, Path]:
    """Where new pages wait until they are whole, and where the old ones go while the new ones take their place."""
    return out.with_name(f".{out.name}.new{base.PART}"), out.with_name(f".{out.name}.old{base.PART}")


def _restore(out: Path) -> None:
    """Clear up after a process that was killed: between its two renamings the old pages are aside."""
    new, old = _beside(out)
    if not out.exists() and old.exists():
        old.rename(out)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)


def _files(folder: Path) -> list[str]:
    """The files below a folder, by their relative names, sorted."""
    found = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    return sorted(path.relative_to(folder).as_posix() for path in found)


def copy_notebooks(results: Path, source: Path, linked: Mapping[str, str]) -> list[str]:
    """Copy the executed notebooks to where the pages are made from, and name them.

    Args:
        linked: {what stands at the head of a table's row, as HTML: what stands there instead}.
    """
    paths = sorted((results / "notebooks").glob("*.ipynb"))
    for path in paths:
        notebook = read_notebook(path)
        for output in (output for cell in notebook.cells for output in cell.get("outputs", [])):
            if table := output.get("data", {}).get("text/html"):
                output.data["text/html"] = re.sub(r"<th>.*?</th>", lambda head: linked.get(head[0], head[0]), table)
            if said := output.get("data", {}).get("text/markdown"):  # Sphinx leads links of outputs nowhere by itself
                output.data["text/markdown"] = re.sub(r"\]\((\d\d_\w+)\.ipynb\)", r"](\1.html)", said)
        nbformat.write(notebook, source / path.name)
    return [path.stem for path in paths]


def links(claims: pd.DataFrame) -> dict[str, str]:
    """Link the rows of verdict tables, which begin with what a claim says, to the claim on its page."""
    said = claims.drop_duplicates("says", keep=False)
    heads = zip(said.id, said.says.map(html.escape), strict=True)
    return {f"<th>{says}</th>": f'<th><a href="{CLAIMS}.html#{name}">{says}</a></th>' for name, says in heads}


def index(pages: list[str]) -> str:
    """Write the first page: an introduction and the notebooks in the order of the parts."""
    text = INTRODUCTION
    for digit, title in PARTS.items():
        mine = [page for page in pages if page.startswith(digit)]
        if mine:
            text += f"\n```{{toctree}}\n:caption: '{title}'\n:maxdepth: 1\n\n" + "\n".join(mine) + "\n```\n"
    if CLAIMS in pages:
        text += f"\n```{{toctree}}\n:caption: 'Every claim'\n:maxdepth: 1\n\n{CLAIMS}\n```\n"
    return text


if __name__ == "__main__":
    main()
