"""The pages, looked at by a real browser: every image is drawn, every link leads somewhere, no LaTeX is left raw."""

import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pandas as pd
import pytest

from lib import base
from lib.base import BadInput
from lib.companion.pages import program as pages
from lib.companion.pages.program import index, links, write
from lib.companion.results import read_scorecard

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Put at the end of a copy of the page: what the browser made of it, outside of code.
LOOK = """<script>window.addEventListener("load", () => {
  const broken = [...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.src);
  const images = document.images.length, equations = document.querySelectorAll("math").length;
  document.querySelectorAll("pre, code, script, math annotation").forEach(e => e.remove());
  const text = document.body.innerText;
  document.body.innerHTML = "";
  const report = document.createElement("pre");
  report.id = "report";
  report.textContent = JSON.stringify({broken, images, equations, text});
  document.body.append(report);
});</script>"""


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages") / "html"
    write(base.RESULTS, out)
    return out


def look(page: Path, profile: Path) -> dict:
    """What a browser shows of a page."""
    copy = page.with_name(f"look-{page.name}")
    copy.write_text(page.read_text().replace("</body>", LOOK + "</body>"))
    quiet = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", *quiet, "--disable-sync", "--dump-dom"]
    words += [f"--user-data-dir={profile}", "--virtual-time-budget=10000", copy.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    copy.unlink()
    found = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    return json.loads(unescape(found[1]))


@pytest.mark.skipif(BROWSER is None, reason="no browser here: Debian's package chromium has one")
def test_a_browser_draws_every_image_and_equation(html: Path, tmp_path: Path):
    seen = {page.stem: look(page, tmp_path) for page in sorted(html.glob("*_*.html"))}
    assert set(seen) >= {path.stem for path in base.NOTEBOOKS.glob("*.ipynb")}
    assert {name: page["broken"] for name, page in seen.items() if page["broken"]} == {}
    assert all(seen[path.stem]["images"] for path in base.NOTEBOOKS.glob("*.ipynb"))
    raw = {name: re.findall(r"\$\S[^$\n]*\$|\\[a-zA-Z]+\{|\\\(|\\\[", page["text"]) for name, page in seen.items()}
    assert {name: found for name, found in raw.items() if found} == {}
    assert seen["20_two_four_pattern"]["equations"] >= 4


class Links(HTMLParser):
    """The targets of links and images, and the ids they could lead to."""

    def __init__(self, text: str):
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list) -> None:
        named = dict(attrs)
        self.targets += [named[key] for key in ("href", "src") if named.get(key)]
        self.ids |= {named[key] for key in ("id", "name") if named.get(key)}


def test_every_link_leads_somewhere(html: Path):
    pages = {page.resolve(): Links(page.read_text()) for page in html.glob("*.html")}
    dead = []
    for page, tags in pages.items():
        for target in tags.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or target.startswith("data:"):
                continue
            aim = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            known = aim in pages and (not parts.fragment or unquote(parts.fragment) in pages[aim].ids)
            if not (known or (aim not in pages and aim.exists())):
                dead.append((page.name, target))
    assert dead == []


def test_the_first_page_leads_to_every_notebook_in_order(html: Path):
    targets = [t for t in Links((html / "index.html").read_text()).targets if re.match(r"\d\d_.*\.html$", t)]
    names = [path.stem for path in sorted(base.NOTEBOOKS.glob("*.ipynb"))]
    first = list(dict.fromkeys(Path(t).stem for t in targets))
    assert [name for name in first if name in names] == names


def test_every_claim_has_an_address_and_verdict_tables_lead_there(html: Path):
    claims = read_scorecard(base.RESULTS)
    assert set(claims.id) <= Links((html / "claims.html").read_text()).ids
    targets = {t for page in html.glob("[0-9]*.html") for t in Links(page.read_text()).targets}
    led = {t.removeprefix("claims.html#") for t in targets if t.startswith("claims.html#")}
    assert led <= set(claims.id)  # and lead somewhere, see above
    assert len(led) > 20
    assert "claims.html" in Links((html / "index.html").read_text()).targets


def test_a_row_is_linked_by_what_the_claim_says_unless_two_say_it():
    claims = pd.DataFrame({"id": ["a-1", "b", "c"], "says": ["x < y", "same", "same"]})
    assert links(claims) == {"<th>x &lt; y</th>": '<th><a href="claims.html#a-1">x &lt; y</a></th>'}


def test_parts_come_in_their_order():
    text = index(["61_last", "00_first", "23_c", "23_b"])
    assert re.findall(r"^\d\d_\S+$", text, re.MULTILINE) == ["00_first", "23_c", "23_b", "61_last"]
    assert ":caption: 'Paper 2: the 2:4 pattern'" in text
    assert "Paper 4" not in text


def test_a_dead_link_in_a_notebook_is_an_error(tmp_path: Path):
    folder = tmp_path / "notebooks"
    folder.mkdir(parents=True)
    cell = nbformat.v4.new_markdown_cell("# Title\n\n[nowhere](99_nowhere.ipynb)")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), folder / "00_a.ipynb")
    with pytest.raises(BadInput, match="the pages have errors"):
        write(tmp_path, tmp_path / "html")


def test_without_executed_notebooks_there_are_no_pages(tmp_path: Path):
    with pytest.raises(BadInput, match="make repro"):
        write(tmp_path, tmp_path / "html")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Sphinx's place is taken by a builder that writes the names in this list."""
    names = ["index.html"]

    def build(words: list[str]) -> int:
        for name in names:
            path = Path(words[-1]) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("pages")
        return 0

    monkeypatch.setattr(pages, "build_main", build)
    monkeypatch.setattr(pages, "copy_notebooks", lambda results, source, linked: ["00_a"])
    return names


def test_a_folder_with_other_things_is_left_alone_and_pages_are_replaced(tmp_path: Path, quick: list[str]):
    thesis = tmp_path / "out" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("mine")
    with pytest.raises(BadInput, match="holds other things than pages, which would be deleted: name an empty folder"):
        write(base.RESULTS, thesis.parent)
    assert thesis.read_text() == "mine"
    for _ in range(2):
        write(base.RESULTS, tmp_path / "new")
        assert (tmp_path / "new" / "index.html").read_text() == "pages"


def test_another_file_among_the_pages_stays_and_an_old_page_goes(tmp_path: Path, quick: list[str]):
    out = tmp_path / "html"
    quick.append("old/gone.html")
    write(base.RESULTS, out)
    (out / "mine").mkdir()
    (out / "mine" / "thesis.txt").write_text("mine")
    quick.remove("old/gone.html")
    write(base.RESULTS, out)
    found = sorted(path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file())
    assert found == [".pages", "index.html", "mine/thesis.txt"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".html.lock", "html"]


def test_killed_at_any_moment_there_are_the_old_pages_or_the_new(tmp_path: Path, quick: list[str], monkeypatch):
    """Each file operation of the program in turn is its last; then it is started again."""
    steps = [(pages.shutil, "copytree"), (pages.shutil, "copy2"), (Path, "rename"), (pages.shutil, "rmtree")]
    for owner, name in steps:
        for count in range(1, 4):
            out = tmp_path / f"{name}{count}" / "html"
            write(base.RESULTS, out)
            (out / "thesis.txt").write_text("mine")
            real, left = getattr(owner, name), [count]

            def killed(*words, real=real, left=left, **more):
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt
                return real(*words, **more)

            with monkeypatch.context() as patch:
                patch.setattr(owner, name, killed)
                try:
                    write(base.RESULTS, out)
                except KeyboardInterrupt:
                    there = [path for path in (out, out.with_name(".html.old.part")) if path.exists()]
                    assert (there[0] / "index.html").read_text() == "pages"
                    assert (there[0] / "thesis.txt").read_text() == "mine"
            write(base.RESULTS, out)
            assert {path.name for path in out.iterdir()} == {".pages", "index.html", "thesis.txt"}
            assert {path.name for path in out.parent.iterdir()} == {".html.lock", "html"}


def test_pages_do_not_replace_a_file_or_a_link_nor_are_written_by_two_at_once(tmp_path: Path, quick: list[str]):
    (tmp_path / "file").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(BadInput, match=f"{name} is a {name}: name a folder"):
            write(base.RESULTS, tmp_path / name)
    with base.locked(tmp_path / "html", "x"), pytest.raises(BadInput, match=r"lib\.pages is at work in .*html already"):
        write(base.RESULTS, tmp_path / "html")


def test_a_damaged_notebook_is_named(tmp_path: Path):
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks" / "00_a.ipynb").write_text("{")
    with pytest.raises(BadInput, match=r"00_a\.ipynb is no whole notebook"):
        write(tmp_path, tmp_path / "html")
