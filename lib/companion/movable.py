"""Draw a figure that can be moved without a kernel: frames drawn beforehand, and a slider that chooses one.

The page needs nothing but itself: the frames are pictures inside it, and a dozen lines of JavaScript exchange them. It
works in Jupyter and on the pages alike; printed, it shows the frame it starts with.
"""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
from IPython.display import HTML
from matplotlib.figure import Figure
from PIL import Image

from lib.base import BadInput

LARGEST = 600_000  # bytes of a movable figure: an executed notebook stays below 1.5 MB
COLOURS = 96  # of a frame's palette; more is not seen in line drawings, and each costs bytes

PAGE = """<figure class="movable" id="{name}">
<img src="{first}" alt="{description}" style="max-width: 100%">
<figcaption><label>{label} <input type="range" min="0" max="{last}" value="{start}" style="width: min(24em, 60%)"
aria-label="{label}"></label> <output>{caption}</output></figcaption>
<script>
(() => {{
  const figure = document.getElementById("{name}"), slider = figure.querySelector("input");
  const frames = {frames};
  slider.addEventListener("input", () => {{
    const [caption, picture] = frames[slider.value];
    figure.querySelector("output").textContent = caption;
    figure.querySelector("img").src = "data:image/png;base64," + picture;
  }});
}})();
</script>
</figure>"""


def movable(
    name: str,
    label: str,
    captions: Sequence[str],
    draw: Callable[[int], Figure],
    description: str,
    start: int = 0,
    dots: int = 80,
) -> HTML:
    """Draw a figure once for each place of a slider and put the frames into one piece of HTML.

    Args:
        name: of the figure, unlike any other's on the page, such as "00-sparsity".
        label: says beside the slider what it moves, such as "weights removed".
        captions: one for each frame, shown beside the slider, such as "90 %".
        draw: makes the figure of a frame, by its number from 0; it is closed afterwards.
        description: says in a sentence what the figure shows, to whoever cannot see it.
        start: the frame that is shown before anybody moves the slider, and in print.
        dots: to an inch.

    Raises:
        BadInput: fewer than two frames, a start that is none of them, or more bytes than LARGEST in all.
    """
    if len(captions) < 2:
        raise BadInput(f"movable {name!r}: {len(captions)} frame cannot be moved; at least two are needed")
    if not 0 <= start < len(captions):
        raise BadInput(f"movable {name!r}: start {start}: expected 0 to {len(captions) - 1}")
    frames = [[caption, _picture(draw(number), dots)] for number, caption in enumerate(captions)]
    page = PAGE.format(
        name=html.escape(name),
        first=f"data:image/png;base64,{frames[start][1]}",
        description=html.escape(description),
        label=html.escape(label),
        last=len(frames) - 1,
        start=start,
        caption=html.escape(captions[start]),
        frames=json.dumps(frames).replace("</", "<\\/"),  # a caption must not end the script
    )
    if len(page) > LARGEST:
        raise BadInput(f"movable {name!r} has {len(page):,} bytes, {LARGEST:,} are allowed: fewer frames or dots")
    return HTML(page)


def _picture(figure: Figure, dots: int) -> str:
    """Draw a figure as a PNG with few colours, in base64; all frames of one size stay of one size."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dots, bbox_inches=None)
    plt.close(figure)
    small = io.BytesIO()
    Image.open(drawn).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
    return base64.b64encode(small.getvalue()).decode()
