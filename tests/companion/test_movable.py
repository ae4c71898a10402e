"""Figures that can be moved: a frame for each place of the slider, in one page that needs nothing else."""

import base64
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import matplotlib.pyplot as plt
import nbformat
import pytest
from matplotlib.figure import Figure
from PIL import Image

from lib import base
from lib.base import BadInput
from lib.companion import movable as module
from lib.companion.movable import movable

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
COLOURS = ("red", "lime", "blue")


def filled(number: int) -> Figure:
    """A figure of one colour."""
    return plt.figure(figsize=(1, 1), facecolor=COLOURS[number])


def three(**changes: object) -> str:
    settings = {"name": "x", "label": "colour", "captions": COLOURS, "draw": filled, "description": "a colour"}
    return movable(**settings | changes).data


def frames(page: str) -> list:
    return json.loads(re.search(r"const frames = (.*);\n", page)[1])


def colour(picture: str) -> tuple:
    return Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB").getpixel((5, 5))


def test_each_caption_has_its_own_frame():
    """Kept apart from the order in which they are drawn: red is red and blue is blue."""
    found = {caption: colour(picture) for caption, picture in frames(three())}
    assert found == {"red": (255, 0, 0), "lime": (0, 255, 0), "blue": (0, 0, 255)}


def test_it_starts_where_it_is_told():
    page = three(start=2)
    shown = re.search(r'<img src="data:image/png;base64,([^"]*)" alt="a colour"', page)[1]
    assert colour(shown) == (0, 0, 255)
    assert 'value="2"' in page
    assert "<output>blue</output>" in page


def test_the_same_figure_is_the_same_bytes_and_leaves_none_open():
    before = plt.get_fignums()  # another test's
    assert three() == three()
    assert plt.get_fignums() == before


def test_it_asks_no_other_host_for_anything():
    assert re.findall(r"(?:https?:)?//\w", re.sub(r'base64,[^"]*|"[A-Za-z0-9+/=]{40,}"', "", three())) == []


def test_a_caption_cannot_end_the_script():
    page = three(captions=["a", "b</script>", "c"])
    assert page.count("</script>") == 1
    assert frames(page)[1][0] == "b</script>"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"captions": ["one"]}, "1 frame cannot be moved"),
        ({"start": 3}, "start 3: expected 0 to 2"),
        ({"start": -1}, "start -1: expected 0 to 2"),
    ],
)
def test_bad_input_is_one_line(changes: dict, words: str):
    with pytest.raises(BadInput, match=words):
        three(**changes)


def test_too_many_bytes_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "LARGEST", 500)
    with pytest.raises(BadInput, match="500 are allowed"):
        three()


def test_each_part_has_a_figure_that_moves():
    """Notebook 00, the five papers' parts and the tools."""
    parts = set()
    for path in base.NOTEBOOKS.glob("*.ipynb"):
        cells = [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
        if any(re.search(r"^movable\(", source, re.MULTILINE) for source in cells):
            parts.add(path.stem[0])
    assert parts == set("0123456")


@pytest.mark.skipif(BROWSER is None, reason="no browser here: Debian's package chromium has one")
def test_moving_the_slider_moves_the_figure(tmp_path: Path):
    """In a real browser: the slider goes to the last frame, then the caption and the picture are the last one's."""
    page = three(captions=["first", "second", "third"])
    move = """<script>
      const slider = document.querySelector("input"), before = document.querySelector("img").src;
      slider.value = 2; slider.dispatchEvent(new Event("input"));
      const now = document.querySelector("img").src;
      document.title = document.querySelector("output").textContent + (now !== before) + now.slice(0, 22);
    </script>"""
    (tmp_path / "page.html").write_text(f"<html><body>{page}{move}</body></html>")
    words = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--dump-dom"]
    words += [f"--user-data-dir={tmp_path / 'profile'}", (tmp_path / "page.html").as_uri()]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert "<title>thirdtruedata:image/png;base64,</title>" in done.stdout
