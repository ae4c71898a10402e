"""Slides: what a notebook gives, and that arrow keys move in a real browser, without a network."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import nbformat
import pytest

from lib import base
from lib.companion.notebook import read_notebook
from lib.companion.pages import program as pages
from lib.companion.pages import slides
from lib.companion.pages.slides import deck, write_decks

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SVG = {"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>"}


def said(text: str) -> nbformat.NotebookNode:
    return nbformat.v4.new_output("display_data", {"text/markdown": text})


def drawn() -> nbformat.NotebookNode:
    return nbformat.v4.new_output("display_data", dict(SVG))


def notebook(*cells: nbformat.NotebookNode) -> nbformat.NotebookNode:
    return nbformat.v4.new_notebook(cells=list(cells))


def code(*outputs: nbformat.NotebookNode, tags: tuple[str, ...] = ()) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell("draw()", outputs=list(outputs), metadata={"tags": list(tags)})


def text(source: str, tags: tuple[str, ...] = ()) -> nbformat.NotebookNode:
    return nbformat.v4.new_markdown_cell(source, metadata={"tags": list(tags)})


def kinds(*cells: nbformat.NotebookNode) -> list[tuple[str, str]]:
    return [(slide.kind, slide.heading) for slide in slides.slides(notebook(*cells))]


def test_a_lesson_becomes_title_picture_answer_guess_and_what_to_remember():
    found = list(
        slides.slides(
            notebook(
                text("# 20 · Title\n\n*Paper 2*\n\nMore words."),
                code(drawn(), said("**In short.** It holds.")),
                text("## Idea\n\nWords.\n\nMore of them. **Guess\nfirst:** which?\n\nThe loss is\n\n$$a^2$$\n\nWords."),
                text("## Where we deviate\n\n**Guess first:** nothing."),
                text("## What to remember\n\n* One.\n* Two."),
            )
        )
    )
    assert [slide.kind for slide in found] == ["title", "figure", "text", "text", "text", "text"]
    assert found[0].heading == "20 · Title"
    assert "Paper 2" in found[0].body
    assert "More" not in found[0].body
    assert "<math" in found[4].body
    assert "The loss is" in found[4].body
    assert found[5].body.count("<li>") == 2


def test_only_the_largest_scale_and_the_first_figure_of_a_cell_are_shown():
    one = [said("**real scale**"), drawn(), drawn(), said("**quick scale**"), drawn(), said("**What happened.** No.")]
    assert kinds(text("# T"), code(*one)) == [("title", "T"), ("figure", "T")]
    assert kinds(text("## T"), code(drawn(), said("**What happened.** Yes."))) == [("figure", "T"), ("text", "T")]


def test_a_short_function_is_shown_and_a_long_one_is_not():
    found = list(slides.slides(notebook(code(said("*From `lib/a.py`:*\n\n```python\ndef f(x): return x < 1\n```")))))
    assert [slide.body for slide in found] == ["<pre>def f(x): return x &lt; 1</pre>"]
    assert kinds(code(said("*From `lib/a.py`:*\n\n```python\n" + "x\n" * 40 + "```"))) == []


def test_tags_add_a_cell_and_leave_one_out():
    assert kinds(text("## A\n\nWords.", ("slide",))) == [("text", "A")]
    assert kinds(code(drawn(), tags=("no-slide",))) == []
    assert kinds(code(drawn(), drawn(), said("Words."), tags=("slide",))) == [
        ("figure", ""),
        ("figure", ""),
        ("text", ""),
    ]


def test_a_long_equation_is_set_smaller():
    short, long = slides.slides(notebook(text("## A\n\n$$a + b$$\n\nWords.\n\n$$" + "a + b" * 30 + "$$")))
    assert short.size == 1
    assert 0.6 <= long.size < 0.7


def test_long_text_is_set_smaller_and_links_to_notebooks_are_words():
    (slide,) = slides.slides(notebook(code(said("**What happened.** [12](12_a.ipynb) " + "word " * 300))))
    assert 0.5 <= slide.size < 0.7
    assert "href" not in slide.body
    assert "12 word" in slide.body


@pytest.fixture(scope="module")
def decks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    paths = sorted((base.RESULTS / "notebooks").glob("*.ipynb"))
    made = write_decks({path.stem: read_notebook(path) for path in paths}, tmp_path_factory.mktemp("slides"))
    return {path.stem: path for path in made}


def test_there_is_a_deck_for_each_part_with_each_notebook_in_it(decks: dict[str, Path]):
    for path in base.NOTEBOOKS.glob("*.ipynb"):
        text = decks[f"part_{path.name[0]}"].read_text()
        assert f'<section class="title" id="{path.name[:2]}">' in text
        assert len(re.findall(rf'<section class="\w+" id="{path.name[:2]}-', text)) >= 2


def test_a_deck_needs_nothing_but_itself(decks: dict[str, Path]):
    for path in decks.values():
        text = re.sub(r"data:image/[^\"]+", "data:", path.read_text())
        assert re.findall(r'(?:src|href)="(?!data:|#|https?://)[^"]*"', text) == []
        assert re.findall(r'<(?:link|script src|iframe|img src="http)|@import|url\(', text) == []
        assert {k for k in re.findall(r"\{\{\w+\}\}", text)} == set()


PRESS = """<script>addEventListener("load", async () => {
  const seen = [], now = () => document.querySelector("section.now").id;
  const sections = [...document.querySelectorAll("section")];
  const visible = () => sections.filter(s => getComputedStyle(s).visibility === "visible").length;
  const press = key => {
    document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
    seen.push(now());
  };
  seen.push(now());
  ["ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home", "ArrowLeft"].forEach(press);
  document.getElementById("on").click();
  seen.push(now());
  const pictures = [...document.images];
  await Promise.all(pictures.map(picture => picture.decode().catch(() => {})));
  const broken = pictures.filter(p => p.naturalWidth === 0).length;
  const report = {seen, one: visible(), total: sections.length, broken, hash: location.hash};
  document.body.innerHTML = "<pre id=report></pre>";
  document.getElementById("report").textContent = JSON.stringify(report);
});</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no browser here: Debian's package chromium has one")
def test_arrow_keys_move_in_a_browser(tmp_path: Path):
    lesson = notebook(text("# 20 · Title\n\n*Paper*"), code(drawn()), text("## What to remember\n\nThat."))
    page = tmp_path / "deck.html"
    page.write_text(deck("Part", {"20_a": lesson}).replace("</body>", PRESS + "</body>"))
    words = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
    ]
    words += ["--dump-dom", f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=5000", page.as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    found = re.search(r'<pre id="report">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    report = json.loads(unescape(found[1]))
    assert report["seen"] == ["contents", "20", "20-1", "20", "20-2", "20-2", "contents", "contents", "20"]
    assert (report["one"], report["total"], report["hash"], report["broken"]) == (1, 4, "#20", 0)


def test_without_notebooks_there_are_no_slides(tmp_path: Path, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit):
        pages.main(["--slides", "--results", str(tmp_path), "--out", str(tmp_path / "out")])
    assert "make repro" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_slides_go_into_a_folder_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.setattr(pages.slides, "read", lambda results: {"20_a": notebook(text("# A"))})
    out = tmp_path / "mine"
    out.mkdir()
    (out / "part_2.html").write_text("mine")
    with pytest.raises(SystemExit) as stop:
        pages.main(["--slides", "--out", str(out)])
    assert (stop.value.code, (out / "part_2.html").read_text()) == (2, "mine")
    assert "holds other things than pages" in capsys.readouterr().err
    (out / "part_2.html").unlink()
    for _ in range(2):
        pages.main(["--slides", "--out", str(out)])
    assert (out / pages.MARK).read_text() == "part_2.html"
    assert "<section" in (out / "part_2.html").read_text()
    with base.locked(out, "lib.pages"), pytest.raises(SystemExit):
        pages.main(["--slides", "--out", str(out)])
    assert "lib.pages is at work in" in capsys.readouterr().err


def test_stopped_between_two_decks_it_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        pages.slides, "read", lambda results: {name: notebook(text("# A")) for name in ("00_a", "20_b")}
    )
    made = slides.deck

    def stopped(title: str, notebooks: dict) -> str:
        if "20_b" in notebooks:
            raise KeyboardInterrupt
        return made(title, notebooks)

    with monkeypatch.context() as patch:
        patch.setattr(slides, "deck", stopped)
        with pytest.raises(SystemExit):
            pages.main(["--slides", "--out", str(tmp_path / "out")])
    assert (tmp_path / "out" / "part_0.html").exists()
    pages.main(["--slides", "--out", str(tmp_path / "out")])
    assert {path.name for path in (tmp_path / "out").glob("*.html")} == {"part_0.html", "part_2.html"}
