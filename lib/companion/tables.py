"""Make tables of the notebooks: from runs and verdicts to rows that a reader understands. Named as in the figures."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd

from lib.base import BadInput
from lib.companion import plots
from lib.companion.claims import papers
from lib.companion.claims.readme import headline
from lib.companion.results import read_cells

MEASURED = "measured [low, high]"
VERDICT = ("printed", MEASURED, "seeds", "verdict", "scale", "data")
SHORT = ("printed", MEASURED, "seeds", "verdict", "scale")  # what fits beside a long claim on a page
CELL = (MEASURED, "seeds", "verdict", "data")  # columns that each network of a claim has for itself
DRAWN = ("moons",)  # data that the paper describes and we draw: its points and their noise are not printed
TOGETHER = "together"  # the row of a claim's verdict, below those of its networks


def directions(ends: pd.DataFrame) -> pd.DataFrame:
    """Tabulate where each direction of paper 4 ends: one row a direction, in the figures' order.

    Args:
        ends: one row a direction and seed.

    Raises:
        BadInput: a direction that figures do not know.
    """
    plots.refuse_unnamed(ends.direction.unique(), plots.DIRECTIONS, "plots.DIRECTIONS")
    rows = []
    for direction in (name for name in plots.DIRECTIONS if name in set(ends.direction)):
        mine = ends[ends.direction == direction]
        rows.append(
            {
                "network": plots.DIRECTIONS[direction][0],
                "seeds": len(mine),
                "accuracy, %": plots.percent(mine.accuracy.tolist()),
                "weights": plots.with_interval(mine.parameters.tolist(), 0),
                "live weights": plots.with_interval(mine.parameters_live.tolist(), 0),
                "MFLOPs": round(mine.flops.mean() / 1e6, 3),
                f"architecture, seed {mine.seed.min()}": mine.sort_values("seed").architecture.iloc[0],
            }
        )
    return pd.DataFrame(rows)


def verdicts(claims: pd.DataFrame, columns: Sequence[str] = VERDICT, cells: pd.DataFrame | None = None) -> pd.DataFrame:
    """Tabulate verdicts by what the claims say: a row for each network, environment or device, in plain names.

    Where these do not agree one row more has the claim's own verdict. All numbers of a claim are rounded alike. Beside
    what was measured stands the number of seeds. Notes are long; notebook 61 has them as remarks.

    Args:
        claims: rows of the scorecard.
        columns: of the scorecard's and "measured [low, high]".
        cells: of these claims; by default those that were written with the scorecard.

    Raises:
        BadInput: a column that the scorecard lacks, or "measured", which is that of one of the cells.
    """
    cells = read_cells(claims) if cells is None else cells
    shown = list(columns)
    if "measured" in shown:  # of several cells that is the worst one's, and would stand beside another's name
        raise BadInput(f"the column 'measured' is a claim's, and rows are its cells: ask for {MEASURED!r}")
    if unknown := [name for name in shown if name not in (MEASURED, *claims)]:
        raise BadInput(f"the scorecard has no column {unknown[0]!r}; there are: {', '.join((*claims, MEASURED))}")
    if MEASURED in shown and "seeds" not in shown:
        shown.insert(shown.index(MEASURED) + 1, "seeds")
    rows = []
    for claim in claims.to_dict("records"):
        judged = _judged(claim, cells[cells.id == claim["id"]].to_dict("records")) if set(CELL) & set(shown) else [{}]
        about = {name: claim[name] for name in shown if name not in CELL}
        for number, one in enumerate(judged):  # what is said of the claim as a whole is said once
            said = about if number == 0 else dict.fromkeys(about, "")
            rows.append({"claim": claim["says"], "judged on": one.get("judged on", "")} | said | one)
    table = pd.DataFrame(rows, columns=["claim", "judged on", *shown])
    places = ["claim", "judged on"] if table["judged on"].any() else ["claim"]
    return table.set_index(places)[shown]


def network(cell: str) -> str:
    """Name in plain words what a claim is judged on, such as "cifar10/resnet20" or "recorded-expert/hopper/actor"."""
    first, *rest = cell.split("/")
    if rest and " " in first:  # a device, and what was timed on it
        device = re.sub(r"\(R\)|\(TM\)| Processor| CPU", "", first).replace(" @ ", ", ")
        return f"{_words(', '.join(rest))} ({device})"
    if rest and rest[0] in plots.NETWORKS and first in plots.DATA:
        return ", ".join([plots.task(first, rest[0]), *rest[1:]])
    if rest and first == "recorded-expert":  # everything offline is judged on our experts' recordings
        return _words(", ".join(rest))
    place, comma, method = cell.partition(", ")
    data, _, name = place.partition(" ")
    if data in plots.DATA and name in plots.NETWORKS:
        return f"{plots.task(data, name)}{comma}{_words(method)}"
    return _words(", ".join([first, *rest]))


def _words(text: str) -> str:
    """Replace names that code has by those of the figures, word by word."""
    known = plots.ENVIRONMENTS | plots.PARTS | {name: look[0] for name, look in plots.PRUNERS.items()}
    text = re.sub(r"[A-Za-z]\w*(-v\d)?", lambda word: known.get(re.sub(r"-v\d$", "", word[0]).lower(), word[0]), text)
    return text.replace("_", " ")


def _judged(claim: Mapping[str, object], cells: Sequence[Mapping[str, object]]) -> list[dict[str, str]]:
    """The rows of a claim: one for each of its cells and, of several, one for all of them together."""
    if not cells:
        lacks = f"would need {claim['needs']}" if claim.get("needs") else claim.get("why")
        said = f"{claim['verdict']}: {lacks}" if lacks else claim["verdict"]
        return [{"judged on": "", MEASURED: "", "seeds": "", "verdict": said, "data": ""}]
    digits = _digits(cells, _bounds().get(claim["id"], ()))
    rows = [
        {
            "judged on": network(cell["cell"]),
            MEASURED: _number(cell, digits),
            "seeds": str(cell["seeds"] or ""),
            "verdict": f"{cell['verdict']}: {cell['reason']}" if cell["reason"] else cell["verdict"],
            "data": _data(claim, cell["cell"]),
        }
        for cell in cells
    ]
    verdicts = [cell["verdict"] for cell in cells]
    if len(set(verdicts)) > 1:
        empty = dict.fromkeys((MEASURED, "seeds", "data"), "")
        rows.append(empty | {"judged on": TOGETHER, "verdict": headline(claim["verdict"], verdicts)})
    return rows


@cache
def _bounds() -> dict[str, list[float]]:
    """The numbers in each claim's criterion."""
    bounds = {claim.id: next(iter(claim.holds_if.values()), []) for paper in papers.read() for claim in paper.claims}
    return {name: bound if isinstance(bound, list) else [bound] for name, bound in bounds.items()}


def _digits(cells: Sequence[Mapping[str, object]], bounds: Sequence[float] = ()) -> int:
    """How many decimals show two figures of the widest interval that has ends and one of the narrowest, or three of a
    number without one; and so many that no end, as it is written, lies on another side of a bound or of 0 than it does.
    """
    widths = [float(cell["high"]) - float(cell["low"]) for cell in cells if int(cell["seeds"]) > 1]
    widths = [width for width in widths if math.isfinite(width)]
    sizes = [
        (size, figures) for size, figures in ((max(widths, default=0), 2), (min(widths, default=0), 1)) if size > 0
    ]
    sizes = sizes or [(max(abs(float(cell["measured"])) for cell in cells), 3)]
    wanted = [figures - 1 - math.floor(math.log10(size)) for size, figures in sizes if size > 0]
    digits = min(max([0, *wanted]), 4)
    ends = [end for cell in cells for end in (float(cell["low"]), float(cell["high"])) if math.isfinite(end)]
    pairs = [(end, bound) for end in ends for bound in (*bounds, 0.0)]
    while digits < 4 and any(np.sign(round(end, digits) - bound) != np.sign(end - bound) for end, bound in pairs):
        digits += 1
    return digits


def _number(cell: Mapping[str, object], digits: int) -> str:
    """Write "1.40 [1.06, 1.74]", without the ends where there is no interval."""
    ends = [float(cell[name]) for name in (("measured", "low", "high") if int(cell["seeds"]) > 1 else ("measured",))]
    value, *ends = (f"{round(end, digits) + 0.0:,.{digits}f}" for end in ends)  # adding 0.0 turns -0.0 into 0.0
    return f"{value} [{', '.join(ends)}]" if ends else value


def _data(claim: Mapping[str, object], cell: str) -> str:
    """Say whose data a cell stands on: the paper's, drawn like those, or a stand-in's; "" where it is none of these."""
    pieces = str(claim["data"]).split("; ")
    first = re.match(r"[^/, ]*", cell)[0]
    own = [piece for piece in pieces if piece.startswith(first)] if first else []
    said = own[0] if own else pieces[0]
    if "(stand-in)" in said:
        return "stand-in"
    if first in DRAWN and own:
        return "like the paper's, drawn here"
    timed = "/" in cell and " " in cell.split("/")[0]  # on a device, whose name has spaces
    return said if said == "arithmetic" else "the paper's" if own and not timed else ""
