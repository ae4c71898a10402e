"""Show what a notebook has found at one scale, under that scale's name."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import Markdown, display
from matplotlib.figure import Figure


def show_at(scale: str, found: Figure | pd.DataFrame) -> None:
    """Display a figure or a table with the name of its scale above it; a figure is closed, so it is not drawn twice."""
    display(Markdown(f"**{scale} scale**"))
    display(found)
    if isinstance(found, Figure):
        plt.close(found)
