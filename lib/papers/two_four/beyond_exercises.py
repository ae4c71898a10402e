"""Check exercises beyond paper 2: notebook 28."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch

from lib import pruners
from lib.companion.exercises.checkers import Checker, function, number
from lib.pruners.one_shot import SparseGPT

STEP = Callable[[list[float], list[float], list[bool], float, float], list[float]]


def _kept_by_wanda(weights: list[float], norms: list[float]) -> float:
    magnitudes = torch.tensor([weights]).abs()
    return float(magnitudes[pruners.n_of_m({"w": magnitudes * torch.tensor(norms)}, 2, 4)["w"]].sum())


def _after_the_first_goes(moments: list[list[float]]) -> float:
    gone = torch.tensor([[False, True]])
    solver = SparseGPT(lambda scores: {"weight": gone}, width=2, dampening=0)
    return float(solver(torch.ones(1, 2, dtype=torch.float64), torch.tensor(moments, dtype=torch.float64))[0][0, 1])


def _stepped(term: Callable[[float, float, bool, float], float]) -> STEP:
    """A step by what is subtracted, times the rate: from a weight, its gradient, whether it is kept, and the decay."""

    def step(weights, gradients, mask, rate, decay):
        each = zip(weights, gradients, mask, strict=True)
        return [w - rate * term(w, g, kept, decay) for w, g, kept in each]

    return step


def _flip_rate(masks: list[list[bool]]) -> float:
    return 100 * _changes(masks) / (len(masks) - 1) / len(masks[0])


def _changes(masks: list[list[bool]]) -> int:
    pairs = pairwise(masks)
    return sum(a != b for one, other in pairs for a, b in zip(one, other, strict=True))


def _returns(masks: list[list[bool]]) -> float:
    """As `_flip_rate`, but only of entries that come back: a typical mistake."""
    pairs = pairwise(masks)
    back = sum(b and not a for one, other in pairs for a, b in zip(one, other, strict=True))
    return 100 * back / (len(masks) - 1) / len(masks[0])


def _agreement(dampening: float) -> float:
    """Compare masks of SparseGPT and of magnitude, in percent of their entries, on a weight and inputs by chance."""
    draw = torch.Generator().manual_seed(0)
    weight, inputs = torch.randn(32, 64, generator=draw), torch.randn(200, 64, generator=draw)
    two_four = partial(pruners.n_of_m, n=2, m=4)
    _, mask = SparseGPT(two_four, width=4, dampening=dampening)(weight, (inputs.T @ inputs).double())
    return 100 * float((mask == two_four({"w": weight.abs()})["w"]).float().mean())


EXERCISES: dict[str, Checker] = {
    "28.1": number(
        _kept_by_wanda([2.0, -1.0, 0.5, -3.0], [1.0, 4.0, 10.0, 0.5]),
        "Write down the four scores |weight| x norm first; the two highest stay.",
        wrong={
            5.0: "these are the two largest magnitudes; Wanda multiplies each by the norm of its input.",
            9.0: "these are the scores that stay; asked are the magnitudes of the weights.",
            -0.5: "add up magnitudes, without the sign.",
        },
        second="The scores are 2, 4, 5 and 1.5.",
        learned="The largest weight of the row goes, because its input is hardly ever there.",
    ),
    "28.2": number(
        _after_the_first_goes([[1.0, 0.5], [0.5, 1.0]]),
        "Invert the matrix of second moments, and put its first row into the equation for delta.",
        wrong={
            0.5: "that is delta, by how much the second weight changes.",
            1 + 0.5 / 1.01: "that is with the library's dampening of 0.01; take none.",
            1.0: "that is the second weight without the update.",
            2.0: "that would be right if both inputs were the same; they agree only by half.",
        },
        second="The inverse is [[4/3, -2/3], [-2/3, 4/3]], so delta = -1 / (4/3) x (-2/3).",
        learned="By least squares it is the same: the second input explains half of the first.",
    ),
    "28.3": function(
        _stepped(lambda w, g, kept, decay: g + (0.0 if kept else decay * w)),
        [
            ([4.0, -2.0, 8.0, 1.0], [1.0, 2.0, -4.0, 8.0], [True, False, True, False], 0.5, 0.25),
            ([4.0, -8.0], [2.0, 2.0], [False, False], 0.25, 0.5),
            ([4.0, -8.0], [2.0, 4.0], [True, True], 0.5, 0.5),
        ],
        "Every weight moves against its gradient; masked ones also move towards zero.",
        wrong=[
            (
                _stepped(lambda w, g, kept, decay: g * kept + (0.0 if kept else decay * w)),
                "the gradient goes straight through: masked weights get it too.",
            ),
            (_stepped(lambda w, g, kept, decay: g), "that is STE; SR-STE also draws masked weights towards zero."),
            (_stepped(lambda w, g, kept, decay: g + decay * w), "the decay is for masked weights alone."),
        ],
        second="w - rate * (g + decay * w * (not kept)), weight by weight.",
        learned="A masked weight that no gradient wants back fades away, so its group stops changing its mind.",
    ),
    "28.4": function(
        _flip_rate,
        [
            ([[True, True, False, False], [True, False, True, False], [True, False, True, False]],),
            ([[True, False], [False, True], [True, False]],),
            ([[True, True, False, False]] * 5,),
        ],
        "Compare each mask with the one before it; three masks are two steps.",
        wrong=[
            (
                lambda masks: _flip_rate(masks) * (len(masks) - 1) / len(masks),
                "divide by the number of steps, which is one less than the number of masks.",
            ),
            (_returns, "an entry that goes has changed as well as one that comes."),
            (lambda masks: _flip_rate([masks[0], masks[-1]]), "you compare the first with the last; count every step."),
        ],
        second="Count the entries that differ between neighbours; divide by steps and by entries; times 100.",
        learned="In a 2:4 mask flips come in pairs: one of a group comes, another goes.",
    ),
    "28.5": number(
        _agreement(1e9),
        "Count where the two masks are equal, and divide by the number of entries; in percent.",
        tolerance=0.01,
        wrong={
            50.0: "so many would agree by chance; compare the masks for the same weight.",
            1.0: "in percent, please.",
            0.0: "is one of the masks turned round? True means kept in both.",
        },
        second="With an enormous diagonal the inverse is a multiple of the identity: all inputs count the same.",
        learned="Without knowledge of the inputs SparseGPT is magnitude; dampening is distrust of what was seen.",
    ),
}
