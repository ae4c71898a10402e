"""Laws of `lib.companion.diagrams`: every box and arrow that is named is drawn, and nothing else."""

import matplotlib.pyplot as plt
import pytest

from lib.base import BadInput
from lib.companion.diagrams import diagram

BOXES = {"s": (0.1, 0.5, "state", "data"), "d": (0.5, 0.5, "decoder", "network"), "l": (0.9, 0.5, "loss", "loss")}


def test_boxes_and_arrows_are_drawn():
    figure = diagram(BOXES, [("s", "d"), ("d", "l", "compared")])
    texts = [one.get_text() for one in figure.axes[0].texts]
    assert [text for text in texts if text] == ["state", "decoder", "loss", "compared"]
    assert sum(one.arrow_patch is not None for one in figure.axes[0].texts if hasattr(one, "arrow_patch")) == 2
    plt.close(figure)


@pytest.mark.parametrize(
    ("boxes", "arrows", "what"),
    [
        (BOXES | {"x": (0, 0, "x", "cloud")}, [], "kind 'cloud': known are data, network, loss"),
        (BOXES, [("s", "q")], "no box 'q'; there are: s, d, l"),
    ],
)
def test_what_cannot_be_drawn_is_refused(boxes, arrows, what):
    with pytest.raises(BadInput, match=what):
        diagram(boxes, arrows)
    plt.close("all")
