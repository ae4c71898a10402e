"""Find for each claim the verdict that counts: on the paper's own data where there is one, else at the largest
scale.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from lib import base
from lib.base import BadInput
from lib.companion import statistics
from lib.companion.claims.judge import MISSING
from lib.companion.claims.papers import Paper
from lib.companion.results import read_cells, read_claims
from lib.companion.statistics import MOOT, NOT_RUN, REPRODUCED, UNDECIDED, in_words, together
from lib.companion.sweep.settings import SCALES

# what a note says where something was written or changed after a look
LOOKED = (
    r"\b(?:known|seen|in sight|looked at|the criterion was changed|was added after|were added after|first asked|"
    r"changed after|had been met|first look|tried it)\b"
)


def largest(results: Path = base.RESULTS) -> pd.DataFrame:
    """Find for each claim the row of the scale that counts, with that scale in a column, by paper.

    The paper's own data go before a stand-in, at any scale and with any number of seeds. Among rows that are alike in
    this the larger scale counts, but one seed in every cell, which has no interval, never replaces several. What a row
    has put aside for one of these two reasons stands in its note.

    Raises:
        BadInput: no scale has verdicts, or as `read_claims` and `read_cells`.
    """
    chosen: dict[str, dict] = {}
    most: dict[tuple[str, str], int] = {}  # the seeds of the cell that has the most, by scale and claim
    for scale in SCALES:  # a larger scale replaces a smaller one, a reason to be not run only one that says less
        if not (results / scale / "claims.csv").exists():
            continue
        claims = read_claims(scale, results)
        seeds = read_cells(claims.assign(scale=scale), results).groupby("id").seeds.max()
        most |= {(scale, name): number for name, number in seeds.items()}
        for row in claims.to_dict("records"):
            before, ran = chosen.get(row["id"]), row["verdict"] != NOT_RUN
            new = row | {"scale": scale if ran else ""}
            if before is None or not before["scale"]:
                if ran or before is None or not row["why"].startswith(MISSING):
                    chosen[row["id"]] = new
            elif ran:
                chosen[row["id"]] = _of_two(before, new, most)
    if not chosen:
        raise BadInput("no scale has verdicts yet; python -m lib.claims")
    return pd.DataFrame(chosen.values()).sort_values("paper", kind="stable", ignore_index=True)


def scorecard(papers: list[Paper], results: Path = base.RESULTS) -> pd.DataFrame:
    """Add to `largest` each claim's kind and its criterion in words.

    Raises:
        BadInput: a verdict of a claim that stands in no paper, a claim without a row at any scale, or as `largest`.
    """
    known = {claim.id: claim for paper in papers for claim in paper.claims}
    table = largest(results)
    gone = [name for name in table.id if name not in known]
    if gone:
        raise BadInput(f"claim {gone[0]} has a verdict but stands in no paper any more; python -m lib.claims")
    if lost := [name for name in known if name not in set(table.id)]:
        raise BadInput(f"claim {lost[0]} has no row at any scale, though it stands in a paper; python -m lib.claims")
    claims = [known[name] for name in table.id]
    return table.assign(
        kind=[claim.kind for claim in claims],
        criterion=[in_words(claim.holds_if) if claim.holds_if else "" for claim in claims],
    )


def looked_first(notes: pd.Series) -> pd.Series:
    """Tell of each note of a claim whether it owns up to a look: that the row, its criterion, what it presupposes or
    some of its seeds were written, changed or added when some of its runs, be it at another scale, had been seen.
    """
    return notes.str.contains(LOOKED)


def by_holm(cells: pd.DataFrame, risk: float = 0.05) -> dict[str, str]:
    """Find the verdict of each claim of several cells if these shared one risk to be decided by chance.

    A claim is partly reproduced, or differs, as soon as one of its cells is decided; so the more cells, the more often
    chance decides one. By Holm's rule (`statistics.by_holm`) those cells are undecided that are not clear enough. How
    clear a cell is stands in its column `chance`; one of which it is not known counts as not clear. Moot cells do not
    count, and a claim that all of its cells reproduce is left as it is: it is false where one cell is, and then that
    cell's interval has to be mistaken, whose risk is the same however many others there are.

    Args:
        cells: as `read_cells` gives them, each claim's of one scale.
    """
    found = {}
    for name, mine in cells[cells.verdict != MOOT].groupby("id", sort=False):
        if len(mine) > 1 and set(mine.verdict) != {REPRODUCED}:
            rows = mine.to_dict("records")
            chances = pd.to_numeric(mine.chance).fillna(1.0).to_numpy()
            stands = statistics.by_holm(chances) <= risk
            found[name] = together(
                [row["verdict"] if one else UNDECIDED for row, one in zip(rows, stands, strict=True)]
            )
    return found


def _of_two(smaller: dict, larger: dict, most: Mapping[tuple[str, str], int]) -> dict:
    """The row that counts of two that were measured, the second at the larger scale.

    Args:
        most: the seeds of the cell that has the most, by scale and claim.
    """
    if _own(smaller) != _own(larger):
        first, second = (smaller, larger) if _own(smaller) else (larger, smaller)
        return _noting(first, second)
    one_smaller, one_larger = (most.get((row["scale"], row["id"])) == 1 for row in (smaller, larger))
    if one_larger and not one_smaller:
        return _noting(smaller, larger)
    return larger


def _own(row: dict) -> bool:
    """Whether a row was measured on data of the paper's, at least in part."""
    return any("(stand-in)" not in part for part in row["data"].split("; "))


def _noting(row: dict, aside: dict) -> dict:
    found = f"put aside: {aside['why']}, with {aside['data']} at the {aside['scale']} scale"
    return row | {"note": "; ".join(part for part in (row["note"], found) if part)}
