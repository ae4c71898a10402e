"""Show what a notebook has found at one scale, under that scale's name."""

from __future__ import annotations

import base64
import html
import io

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import HTML, Markdown, display
from matplotlib.figure import Figure


def show_at(scale: str, found: Figure | pd.DataFrame, fold: bool = False) -> None:
    """Display a figure or a table with the name of its scale above it; a figure is closed, so it is not drawn twice.

    Args:
        fold: show only a line that opens at a click. It is for the smaller scales of what stands above at a larger one.
    """
    if fold:
        said = f"<summary>The same at the {scale} scale</summary>"
        display(HTML(f"<details>{said}\n{_html(found)}\n</details>"))
    else:
        display(Markdown(f"**{scale} scale**"))
        display(found)
    if isinstance(found, Figure):
        plt.close(found)


def _html(found: Figure | pd.DataFrame) -> str:
    """A table's own HTML, or a figure as a picture inside the page."""
    if isinstance(found, pd.DataFrame):
        return found.to_html()
    drawn = io.BytesIO()
    found.savefig(drawn, format="svg", metadata={"Date": None})
    picture = base64.b64encode(drawn.getvalue()).decode()
    alt = html.escape(found.get_suptitle())
    return f'<img src="data:image/svg+xml;base64,{picture}" alt="{alt}" style="max-width: 100%">'
