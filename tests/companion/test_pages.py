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
from lib.companion.csv_files import write_csv
from lib.companion.pages import front
from lib.companion.pages import program as pages
from lib.companion.pages.lessons import Lesson, read_lesson
from lib.companion.pages.markdown import linked, links, write_sources
from lib.companion.pages.program import write
from lib.companion.results import read_scorecard

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

# Put at the end of a copy of each page: what the browser made of it on a phone, outside of code.
LOOK = """<script>window.addEventListener("load", () => {
  const broken = [...document.images].filter(i => !i.complete || i.naturalWidth === 0).map(i => i.src);
  const images = document.images.length, equations = document.querySelectorAll("math").length;
  const moves = (e) => e.tagName !== "ARTICLE"
    && (/auto|scroll/.test(getComputedStyle(e).overflowX) || moves(e.parentElement));
  const all = [...document.querySelectorAll("article *")].filter(e => e.getBoundingClientRect().right > innerWidth + 1);
  const wide = all.filter(e => !moves(e)).map(e => e.outerHTML.slice(0, 100)).slice(0, 3);
  const asked = performance.getEntriesByType("resource").map(e => e.name).filter(name => !/^(file|data):/.test(name));
  document.querySelectorAll("pre, code, script, math annotation").forEach(e => e.remove());
  const text = document.body.innerText;
  parent.postMessage({name: "NAME", broken, images, equations, wide, asked, text}, "*");
});</script>"""
FRAMES = """<script>const seen = {}; addEventListener("message", ({data}) => {
  seen[data.name] = data;
  document.getElementById("report").textContent = JSON.stringify(seen);
});</script><pre id="report"></pre>"""
PHONE = 390  # pixels across


@pytest.fixture(scope="module")
def html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages") / "html"
    write(base.RESULTS, out)
    return out


def in_browser(page: Path, profile: Path) -> str:
    """What is in a page after a browser has run its scripts."""
    quiet = ["--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update"]
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", *quiet, "--disable-sync", "--dump-dom"]
    words += [f"--user-data-dir={profile}", "--virtual-time-budget=20000", page.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    return done.stdout


def look(pages: list[Path], profile: Path) -> dict[str, dict]:
    """What a browser shows of pages, by name, each in a frame as wide as a phone."""
    frames, copies = FRAMES, []
    for page in pages:
        copies.append(page.with_name(f"look-{page.name}"))
        copies[-1].write_text(page.read_text().replace("</body>", LOOK.replace("NAME", page.stem) + "</body>"))
        frames += f'<iframe src="look-{page.name}" width="{PHONE}" height="800"></iframe>'
    copies.append(pages[0].with_name("look.html"))
    copies[-1].write_text(frames)
    found = re.search(r'<pre id="report">(.*?)</pre>', in_browser(copies[-1], profile), re.DOTALL)
    for copy in copies:
        copy.unlink()
    return json.loads(unescape(found[1]))


needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser here: Debian's package chromium has one")


@needs_browser
def test_on_a_phone_a_browser_draws_all_and_nothing_is_too_wide(html: Path, tmp_path: Path):
    pages = sorted(path for path in html.glob("*.html") if path.name != "search.html")
    seen = look(pages, tmp_path)
    assert set(seen) == {path.stem for path in pages} >= {path.stem for path in base.NOTEBOOKS.glob("*.ipynb")}
    for what, nothing in (("broken", []), ("asked", []), ("wide", [])):
        assert {name: page[what] for name, page in seen.items() if page[what] != nothing} == {}, what
    assert all(seen[path.stem]["images"] for path in base.NOTEBOOKS.glob("*.ipynb"))
    raw = {name: re.findall(r"\$\S[^$\n]*\$|\\[a-zA-Z]+\{|\\\(|\\\[", page["text"]) for name, page in seen.items()}
    assert {name: found for name, found in raw.items() if found} == {}
    assert seen["20_two_four_pattern"]["equations"] >= 4


@needs_browser
def test_the_search_finds_a_word_without_a_server(html: Path, tmp_path: Path):
    copy = html / "look-search.html"  # an address with ?q= would do the same; not every file system has one
    start = '<script>history.replaceState(null, "", "?q=permutation")</script>'
    copy.write_text((html / "search.html").read_text().replace("<head>", "<head>" + start))
    seen = in_browser(copy, tmp_path)
    copy.unlink()
    assert 'href="22_permutation.html' in seen[seen.index('id="search-results"') :]


def test_nothing_is_fetched_from_another_host(html: Path):
    fetched = []
    for page in html.rglob("*.html"):
        text = page.read_text()
        fetched += re.findall(r'<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc="(https?:|//)[^"]*"', text)
        fetched += re.findall(
            r'<link\b[^>]*rel="(?:stylesheet|preload|preconnect|icon)"[^>]*href="(?:https?:|//)', text
        )
    for sheet in html.rglob("*.css"):
        fetched += re.findall(r"(?:@import\s*|url\()\s*[\"']?(?:https?:)?//[^)]*", sheet.read_text())
    assert fetched == []


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
    page = (html / "index.html").read_text()
    names = [path.stem for path in sorted(base.NOTEBOOKS.glob("*.ipynb"))]
    assert re.findall(r'<a class="card" href="(\w+)\.html"><img', page) == names
    assert "make repro" in page
    targets = Links(page).targets
    assert {"claims.html", "exercises.html", "glossary.html", "teaching.html", "slides/part_2.html"} <= set(targets)


def test_claims_and_exercises_are_two_clicks_from_the_first_page(html: Path):
    claims = read_scorecard(base.RESULTS)
    targets = {page: set(Links((html / f"{page}.html").read_text()).targets) for page in ("index", "exercises")}
    assert {f"claims.html#paper-{paper}" for paper in claims.paper} <= targets["index"]
    sources = [cell.source for path in base.NOTEBOOKS.glob("*.ipynb") for cell in nbformat.read(path, 4).cells]
    asked = {number for source in sources for number in re.findall(r"^\*\*(\d\d\.\d+)\*\* ", source, re.MULTILINE)}
    led = {target.partition("#exercise-")[2] for target in targets["exercises"] if "#exercise-" in target}
    assert led == asked
    assert len(asked) > 100


def test_every_claim_has_an_address_and_is_linked_to_and_fro(html: Path):
    claims = read_scorecard(base.RESULTS)
    page = (html / "claims.html").read_text()
    assert set(claims.id) <= Links(page).ids
    rows = {
        name: row for row in re.findall(r"<tr.*?</tr>", page, re.DOTALL) for name in re.findall(r'<a id="(.*?)">', row)
    }
    to = set()
    for notebook in html.glob("[0-9]*.html"):
        for target in Links(notebook.read_text()).targets:
            if target.startswith("claims.html#"):
                to.add((target.removeprefix("claims.html#"), notebook.stem))
    fro = {(name, back) for name, row in rows.items() for back in re.findall(r'href="(\d\d_\w+)\.html', row)}
    assert to == fro
    assert len({name for name, _ in to}) > 100


def test_previous_and_next_stay_within_a_part(html: Path):
    ways = {}
    for name in ("20_two_four_pattern", "21_sparse_gemm", "29_translate"):
        text = (html / f"{name}.html").read_text()
        ways[name[:2]] = [re.search(rf'class="{way}-page" href="([^"]+)"', text)[1] for way in ("prev", "next")]
    assert ways["20"] == ["index.html", "21_sparse_gemm.html"]
    assert ways["21"] == ["20_two_four_pattern.html", "22_permutation.html"]
    assert ways["29"] == ["28_beyond_two_four.html", "index.html"]


def test_a_row_is_linked_by_what_the_claim_says_unless_two_say_it():
    claims = pd.DataFrame({"id": ["a-1", "b", "c"], "says": ["x < y", "same", "same"]})
    assert links(claims) == {"<th>x &lt; y</th>": '<th><a href="claims.html#a-1">x &lt; y</a></th>'}


def test_a_row_whose_claim_has_quotation_marks_is_linked():
    """In the words in which pandas writes it."""
    said = 'the authors\' "own" way'
    table = nbformat.v4.new_output("display_data", {"text/html": pd.DataFrame({"x": [1]}, index=[said]).to_html()})
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("table", outputs=[table])])
    copy = linked(notebook, links(pd.DataFrame({"id": ["a"], "says": [said]})), {"a"})
    assert '<a href="claims.html#a">' in copy.cells[0].outputs[0].data["text/html"]


def test_what_was_found_is_said_of_this_checkouts_results_alone(html: Path, tmp_path: Path):
    assert "What was found" in (html / "index.html").read_text()
    row = read_scorecard().head(1).assign(verdict="not run", scale="", measured="")
    write_csv(row, tmp_path / "results" / "claims.csv")
    source = tmp_path / "source"
    source.mkdir()
    write_sources(tmp_path / "results", source)
    assert "What was found" not in (source / "index.md").read_text()
    assert row.id[0] in (source / "claims.md").read_text()


def lesson(name: str, short: str = "") -> Lesson:
    return Lesson(name, name, short, "", {})


def test_parts_come_in_their_order():
    text = front.index([lesson("00_first"), lesson("23_b"), lesson("23_c"), lesson("61_last")], [])
    assert re.findall(r"^\d\d_\S+$", text, re.MULTILINE) == ["00_first", "23_b", "23_c", "61_last"]
    assert ":caption: 'Paper 2: the 2:4 pattern'" in text
    assert "Paper 4" not in text


def test_a_card_says_the_first_sentence_of_what_was_found():
    found = "**Half** goes at 0.5 % cost; see [12](12_a.ipynb). More follows."
    assert "<small>Half goes at 0.5 % cost; see 12.</small>" in front.index([lesson("20_a", found)], [])
    assert front.first_sentence("word " * 100, longest=14) == "word word …"


def test_a_lesson_is_read_from_its_notebook():
    said = nbformat.v4.new_output("display_data", {"text/markdown": "**In short.** It holds."})
    drawn = nbformat.v4.new_output("display_data", {"image/svg+xml": "<svg><!-- Half goes --><!-- x --></svg>"})
    cells = [
        nbformat.v4.new_markdown_cell("# 20 · Title"),
        nbformat.v4.new_code_cell("say()", outputs=[drawn, said]),
        nbformat.v4.new_markdown_cell("## Exercises\n\n**20.1** (code) Write\nit.\n\n**20.2** What?"),
    ]
    found = read_lesson("20_a", nbformat.v4.new_notebook(cells=cells))
    assert (found.title, found.short) == ("20 · Title", "It holds.")
    assert found.picture.startswith("data:image/svg+xml;base64,")
    assert found.exercises == {"20.1": ("code", "Write\nit."), "20.2": ("", "What?")}
    copy = linked(nbformat.v4.new_notebook(cells=cells), {}, set())
    assert copy.cells[1].metadata.mystnb.image.alt == "Half goes"
    assert '<a id="exercise-20.2"></a>**20.2** What?' in copy.cells[2].source


def test_a_sentence_links_the_claims_it_rests_on_once_with_an_address():
    said = nbformat.v4.new_output("display_data", {"text/markdown": "So it is."})
    code = 'say("{a-b.value:.1f}", rests_on={"a-b": "differs"}, unknown="a-c")'
    cells = [nbformat.v4.new_code_cell(code, outputs=[said]) for _ in range(2)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    one, two = (cell.outputs[0].data["text/markdown"] for cell in linked(notebook, {}, {"a-b", "b"}).cells)
    assert one.endswith('Claims: <a id="claim-a-b" href="claims.html#a-b">a-b</a></span>')
    assert two.endswith('Claims: <a href="claims.html#a-b">a-b</a></span>')
    assert notebook.cells[0].outputs[0].data["text/markdown"] == "So it is."


def test_links_of_teaching_lead_to_pages_or_become_words():
    text = "[one](plans.md) [two](../notebooks/20_a.ipynb#x) [gone](../notebooks/99_z.ipynb) [all](../notebooks) [w](https://a.b)"
    led = front.teaching(text + " [up](README.md) [key](answers.py)", ["plans", "20_a", "teaching"])
    assert led == "[one](plans.md) [two](20_a.ipynb#x) gone [all](index.md) [w](https://a.b) [up](teaching.md) key"
    assert front.numbered("(20, 95) 20 (95 %)", ["20_a"]) == "([20](20_a.ipynb), 95) 20 (95 %)"


def test_commands_are_those_of_readme():
    with pytest.raises(BadInput, match="must hold '## Two commands'"):
        front.commands("# None")
    assert "make test" in front.commands(base.README.read_text())


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

    def build(source: Path, built: Path) -> None:
        for name in names:
            path = built / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("pages")

    monkeypatch.setattr(pages, "build", build)
    monkeypatch.setattr(pages, "write_sources", lambda results, source: ([lesson("00_a")], {}))
    return names


def test_a_folder_with_other_things_is_left_alone_and_pages_are_replaced(tmp_path: Path, quick: list[str]):
    thesis = tmp_path / "out" / "thesis.txt"
    thesis.parent.mkdir()
    thesis.write_text("mine")
    with pytest.raises(BadInput, match="holds other things than pages, which would be deleted: name an empty folder"):
        write(base.RESULTS, thesis.parent)
    assert thesis.read_text() == "mine"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]  # nothing is left beside it
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


def test_whoever_stops_the_pages_is_not_told_of_errors_in_them(tmp_path: Path, quick: list[str], monkeypatch):
    def stopped(source: Path, built: Path) -> None:
        raise KeyboardInterrupt

    write(base.RESULTS, tmp_path / "html")
    monkeypatch.setattr(pages, "build", stopped)
    with pytest.raises(SystemExit) as end:
        pages.main(["--out", str(tmp_path / "html")])
    assert end.value.code == 130
    assert (tmp_path / "html" / "index.html").read_text() == "pages"


def test_sphinx_lets_a_stop_through(tmp_path: Path, monkeypatch):
    source = tmp_path / "source"
    source.mkdir()
    (source / "index.md").write_text("# A page\n")
    (source / "conf.py").write_text("extensions = ['myst_parser']\n")
    monkeypatch.setattr("sphinx.application.Sphinx.build", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        pages.build(source, tmp_path / "built")
