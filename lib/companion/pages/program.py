"""Write the executed notebooks as one linked set of pages: html/index.html. Nothing is executed."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

from lib import base
from lib.base import BadInput
from lib.companion.pages import slides
from lib.companion.pages.markdown import write_sources

MARK = ".pages"  # a file in a folder that this program made, so that it may be deleted


def main(words: list[str] | None = None) -> None:
    """Run the command line; a message of one line and status 2 for what cannot be."""
    parser = argparse.ArgumentParser("python -m lib.pages", description=__doc__)
    parser.add_argument("--results", type=Path, default=base.RESULTS, help="where executed notebooks are")
    parser.add_argument("--out", type=Path, help="where pages go (default: html/)")
    parser.add_argument("--slides", action="store_true", help="instead a deck for each part, into slides/ or --out")
    asked = parser.parse_args(words)
    out = (asked.out or base.ROOT / ("slides" if asked.slides else "html")).absolute()  # "." has no name
    with base.program("lib.pages"):
        made = write_slides(asked.results, out) if asked.slides else [write(asked.results, out)]
        print("\n".join(f"open {path}" for path in made))


def write(results: Path, out: Path) -> Path:
    """Make the pages anew from results/notebooks/ and return the front one.

    When something is wrong with them the old ones stay.

    They are built beside `out` and take its place by being renamed, so that it is whole whenever a process is killed.
    Of what was in it before only this program's own files go; another's are carried over.

    Raises:
        BadInput: a folder that holds anything but pages or cannot be replaced, another process that writes there, no
            notebooks or damaged ones, pages with errors.
    """
    _refuse(out)
    with base.locked(out, "lib.pages"):
        _write(results, out)
    return out / "index.html"


def write_slides(results: Path, out: Path) -> list[Path]:
    """Write a deck for each part of the executed notebooks into a folder, and return them.

    Raises:
        BadInput: a folder that holds anything but what this program made, another process that writes there, no
            notebooks or damaged ones.
    """
    _refuse(out)
    with base.locked(out, "lib.pages"):
        notebooks = slides.read(results)
        base.writable(out)
        # before the decks, so that it knows them when this is stopped between two
        (out / MARK).write_text("\n".join(sorted(_own(out) | slides.decks(notebooks).keys())))
        return slides.write_decks(notebooks, out)


def _refuse(out: Path) -> None:
    """Refuse what is no folder for pages, before anything is left beside it."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise BadInput(f"{out} is a {'link' if out.is_symlink() else 'file'}: name a folder, which may be absent")
    if out.exists() and not (out / MARK).exists() and any(out.iterdir()):
        raise BadInput(f"{out} holds other things than pages, which would be deleted: name an empty folder")


def _own(out: Path) -> set[str]:
    """The files in a folder that this program wrote there, by their relative names."""
    return set((out / MARK).read_text().splitlines()) if (out / MARK).exists() else set()


def _write(results: Path, out: Path) -> None:
    """What `write` does once it has the folder for itself."""
    _restore(out)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary)
        (source / "_static").mkdir()
        for name, folder in (("conf.py", source), ("pages.css", source / "_static")):
            shutil.copy(Path(__file__).with_name(name), folder)
        lessons, notebooks = write_sources(results, source)
        if not lessons:
            raise BadInput(f"no executed notebooks under {results}; make repro")
        built = source / "build" / "html"
        build(source, built)
        slides.write_decks(notebooks, built / "slides")
        new, old = _beside(out)
        shutil.rmtree(new, ignore_errors=True)
        shutil.copytree(built, new)
    (new / MARK).write_text("\n".join(_files(new)))
    if out.exists():
        own = _own(out)
        for name in _files(out):
            if name not in own and name != MARK and not (new / name).exists():
                (new / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(out / name, new / name)
        out.rename(old)
    new.rename(out)
    shutil.rmtree(old, ignore_errors=True)


def build(source: Path, built: Path) -> None:
    """Let Sphinx write the pages of a folder; what it would only warn of (a dead link, a broken equation) is an error.

    Raises:
        BadInput: the pages have errors.
    """
    # imported here: asking for help need not wait for it. Its own command would take Ctrl-C for such an error.
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace, patch_docutils

    with patch_docutils(source), docutils_namespace():
        try:
            app = Sphinx(source, source, built, source / "build" / "doctrees", "html", status=None, warningiserror=True)
            app.build()
        except SphinxError as error:
            raise BadInput(f"the pages have errors: {error}") from error
        if app.statuscode:
            raise BadInput("the pages have errors, named above")


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


if __name__ == "__main__":
    main()
