"""Compute what README.md and results/claims.md say of the claims from results/claims.csv.

README's parts stand between markers: sentences on what was found (their words in lib/papers/found.md, their numbers
from the verdicts), and how many claims have which verdict. Every claim stands in results/claims.md, a table a paper.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from lib import base
from lib.base import BadInput
from lib.companion.claims.judge import text_of
from lib.companion.claims.scorecard import looked_first
from lib.companion.csv_files import write_text
from lib.companion.results import read_cells, read_scorecard
from lib.companion.statistics import MOOT, NOT_RUN, PARTLY, REPRODUCED, VERDICTS, Interval

FOUND = base.PAPERS / "found.md"
# Arithmetic of a definition can hardly fail, and controls are our questions: neither counts as a paper's success.
GROUPS = {"relation": "measured", "number": "measured", "arithmetic": "arithmetic", "control": "our controls"}
HEAD = """# Every claim and its verdict

What the papers say, and what was measured here, in the unit that the claim names. `python -m lib.claims` computes this
page from the runs; a criterion that was written after its result had been seen says so. Each network, environment or
device is a line of its own within a claim.

- *reproduced*: the whole 95 % interval over seeds (paper 3: seeds and test speakers) satisfies the criterion
- *differs*: none of it does
- *undecided*: it straddles the criterion; there is one seed, which has no interval; or the number is void, because all
  seeds agree to the last digit or stand at a ceiling or a cap. How many seeds would decide is an estimate from the mean
  and the standard deviation of today
- *partly*: some networks or environments are reproduced, others not
- *moot*: what the claim presupposes does not hold here
- *not run*: what it needs is said

A verdict on the paper's own data goes before one on a stand-in; then the largest scale counts. On a stand-in only
relations are judged. Timings are medians without an interval."""


def begin(part: str) -> str:
    """Return the line in README.md at which a computed part begins."""
    return f"<!-- {part}: begin (python -m lib.claims) -->"


def end(part: str) -> str:
    """Return the line in README.md at which a computed part ends."""
    return f"<!-- {part}: end -->"


def table(claims: pd.DataFrame, cells: pd.DataFrame, shown_in: Mapping[str, str] | None = None) -> str:
    """Write the claims as a Markdown table, each cell of a claim on a line of its own.

    Args:
        cells: of these claims, as `read_cells` gives them.
        shown_in: {claim's id: links to the notebooks that name it}; when given, each claim can be linked to by its id.
    """
    lines = ["| claim | printed | measured | criterion | verdict | scale, data |", "|---|---|---|---|---|---|"]
    verdicts = cells.groupby("id").verdict.agg(list)
    for row in claims.to_dict("records"):
        ran = row["verdict"] != NOT_RUN
        address = "" if shown_in is None else f'<a id="{row["id"]}"></a>'
        places = f"; notebook {shown_in[row['id']]}" if shown_in and shown_in[row["id"]] else ""
        texts = [
            f"{address}{row['says']} ({row['where']}; `{row['id']}`{places})",
            row["printed"],
            measured_text(row, "<br>"),
        ]
        texts += [row["criterion"] + (f" ({row['note']})" if row["note"] else "")]
        texts += [f"**{headline(row['verdict'], verdicts[row['id']])}**" if ran else f"not run: {_lacks(row)}"]
        scale = row["scale"] if "runs" not in row or row["runs"] else ""  # a definition or a timing belongs to none
        texts += [", ".join(part for part in (scale, row["data"]) if part)]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in texts) + " |")
    return "\n".join(lines)


def counts(claims: pd.DataFrame) -> pd.DataFrame:
    """Count how many claims have which verdict: a row a paper and group of GROUPS, a column a verdict."""
    groups = pd.Categorical(claims.kind.map(GROUPS), list(dict.fromkeys(GROUPS.values())))
    found = pd.crosstab([claims.paper, groups], claims.verdict).rename_axis(index=["paper", "group"])
    return found.reindex(columns=list(VERDICTS), fill_value=0)


def summary(claims: pd.DataFrame) -> str:
    """Write `counts` as a Markdown table."""
    lines = [f"| paper | claims | {' | '.join(VERDICTS)} |", "|---" * (len(VERDICTS) + 2) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in counts(claims).reset_index().values]
    return "\n".join(lines)


def totals(claims: pd.DataFrame) -> str:
    """Write in four sentences how many claims of the papers have which verdict, and on what the good ones stand."""
    measured, arithmetic = (
        counts(claims).reindex([group], level="group").sum() for group in ("measured", "arithmetic")
    )
    numbers = ", ".join(f"{measured[verdict]} *{verdict}*" for verdict in VERDICTS)
    judged = claims[(claims.kind.map(GROUPS) == "measured") & ~claims.verdict.isin([MOOT, NOT_RUN])]
    good = judged[judged.verdict == REPRODUCED]
    late, late_good = (int(looked_first(rows.note).sum()) for rows in (judged, good))
    toy = int((good.scale == "quick").sum())
    first = f"The papers' claims, some of them against a fairer rival, make {measured.sum()} rows that need runs: "
    second = f"Of the reproduced {toy} stand on the quick scale alone."
    third = f"{late} of the {len(judged)} judged ({late_good} of the reproduced) were written, changed or given seeds "
    third += "after a look at some runs, and say so."
    return f"{first}{numbers}. {second} {third} Of {arithmetic.sum()} arithmetic rows {arithmetic[VERDICTS[0]]} hold."


def page(claims: pd.DataFrame, cells: pd.DataFrame, shown_in: Mapping[str, str] | None = None) -> str:
    """Write results/claims.md: how to read it, the counts, and a table a paper; arguments as of `table`."""
    parts = [HEAD, summary(claims)]
    for paper, mine in claims.groupby("paper"):
        address = "" if shown_in is None else f'<a id="paper-{paper}"></a>\n\n'
        parts.append(f"{address}## Paper {paper}: {len(mine)} claims\n\n{table(mine, cells, shown_in)}")
    return "\n\n".join(parts) + "\n"


def found(template: str, claims: pd.DataFrame, cells: pd.DataFrame) -> str:
    """Fill the sentences on what was found with their numbers.

    Args:
        template: text in which {claim-id: verdict} stands for what was measured, and which rests on that verdict.
            {claim-id: verdict | .1f} says how numbers are written (by default .3g; - writes none, and the sentence
            rests on the verdict all the same). A minus before the id changes their sign; {claim-id.low: verdict} is
            the lowest end of the intervals instead, {claim-id.high: verdict} the highest. {claim-id@network: verdict}
            is the claim's cell of this network or environment, the last part of its name behind a slash or a comma,
            and rests on the verdict of that cell.
        cells: columns id, cell, measured, low, high, seeds and verdict, at the scale that counts for each claim.

    Raises:
        BadInput: a claim or a cell that there is none of, that was not measured or that has another verdict, so that
            the sentence must be written anew; or what is written in another way than these.
    """
    rows = claims.set_index("id")

    def number(match: re.Match) -> str:
        minus, name, cell, which, expected, form = match.groups()
        if name not in rows.index:
            raise BadInput(f"found.md names claim {name}, which there is none of")
        mine, now = cells[cells.id == name], rows.verdict[name]
        if cell:
            mine = mine[mine.cell.str.split("/|, ", regex=True).str[-1] == cell]
            if len(mine) != 1:
                raise BadInput(f"found.md names {cell} of claim {name}, which has {len(mine)} cells of that name")
            name, now = f"{name}@{cell}", mine.verdict.iloc[0]
        if now != expected:
            raise BadInput(f"found.md rests on {name} being {expected!r}; it is {now!r} now: write the sentence anew")
        if form == "-":
            return ""
        if mine.empty:
            raise BadInput(f"found.md asks for a number of claim {name}, of which nothing was measured")
        sign, form = -1 if minus else 1, form or ".3g"
        if which:
            return format(sign * (mine.low.min() if which == ".low" else mine.high.max()), form)
        if len(mine) > 1:
            ends = sorted(sign * mine.measured)
            return " to ".join(dict.fromkeys(format(end, form) for end in (ends[0], ends[-1])))
        one = mine.iloc[0]
        between = sorted([sign * one.low, sign * one.high])
        interval = ", ".join(format(end, form) for end in between)
        return format(sign * one.measured, form) + (
            f" [{interval}]" if one.seeds > 1 or (one.seeds == 1 and math.isfinite(one.low)) else ""
        )

    place = r"\{(-?)([\w-]+)(?:@([\w -]+))?(\.low|\.high)?: ([a-z ]+?)(?: \| (\S+))?\}"
    try:
        text = re.sub(place, number, template).strip()
    except BadInput:
        raise
    except ValueError as error:  # of `format`
        raise BadInput(f"found.md: {error}; expected a format such as .1f") from error
    if left := re.search(r"\{[^}]*\}?|\}", text):
        raise BadInput(f"found.md has {left[0]!r:.60}: expected {{claim-id: verdict}} or {{claim-id: verdict | .1f}}")
    return text


def updated(text: str, parts: Mapping[str, str]) -> str:
    """Make the computed parts of README's text anew.

    Raises:
        BadInput: the text does not hold the two lines of each part, once each and in their order.
    """
    for part, content in parts.items():
        first, last = begin(part), end(part)
        if text.count(first) != 1 or text.count(last) != 1 or text.index(first) > text.index(last):
            raise BadInput(f"README.md must hold the line {first!r} and, after it, {last!r}, once each")
        before, rest = text.split(first)
        text = f"{before}{first}\n\n{content}\n\n{last}{rest.split(last)[1]}"
    return text


def write(readme: Path | None = base.README, results: Path = base.RESULTS, template: Path = FOUND) -> None:
    """Bring README's parts and results/claims.md up to date.

    Args:
        readme: None where the results are not those that README tells of.

    Raises:
        BadInput: there is no README or no verdict, or as `found` and `updated`.
    """
    for path, text in _texts(readme, results, template).items():
        if not path.exists() or path.read_text() != text:
            write_text(text, path)


def check(readme: Path | None = base.README, results: Path = base.RESULTS, template: Path = FOUND) -> None:
    """Check that README's parts (None: there are none) and results/claims.md are in step with the verdicts.

    Raises:
        BadInput: one of them is not, or as `write`.
    """
    for path, text in _texts(readme, results, template).items():
        if not path.exists() or path.read_text() != text:
            raise BadInput(f"{path.name} is out of step with results/claims.csv; python -m lib.claims")


def _texts(readme: Path | None, results: Path, template: Path) -> dict[Path, str]:
    if readme is not None and not readme.exists():
        raise BadInput(f"{readme} does not exist; it would hold the counts of the claims")
    claims = read_scorecard(results)
    cells = read_cells(claims, results)
    every_claim = {results / "claims.md": page(claims, cells)}
    if readme is None:
        return every_claim
    counted = f"{totals(claims)}\n\n{summary(claims)}"
    parts = {"found": found(template.read_text(), claims, cells), "counts": counted}
    return {readme: updated(readme.read_text(), parts), **every_claim}


def _lacks(row: Mapping[str, str]) -> str:
    """Say why a claim was not run and, where the ledger has it, what that would take."""
    return f"{row['why']}; it would need {row['needs']}" if row["needs"] else row["why"]


def numbers_text(row: Mapping[str, object]) -> str:
    """Write a row's number with its interval, "" where it has none."""
    if row["measured"] == "":
        return ""
    return text_of(Interval(*(float(row[name]) for name in ("measured", "low", "high")), int(row["seeds"])))


def headline(verdict: str, each: Sequence[str]) -> str:
    """Write a claim's verdict and, where those of its cells are not `each` the same, of how many it is.

    Returns:
        Such as "reproduced (1 of 2; 1 moot)".
    """
    if set(each) <= {verdict}:
        return verdict
    which, word = (REPRODUCED, f" {REPRODUCED}") if verdict == PARTLY else (verdict, "")
    moot = f"; {each.count(MOOT)} {MOOT}" if MOOT in each else ""
    return f"{verdict} ({each.count(which)} of {len(each)}{word}{moot})"


def measured_text(row: Mapping[str, object], between: str = "; ") -> str:
    """Write what was measured: of one cell its number and what it lacks, of several all of them with their verdicts.

    Args:
        between: what stands between two cells.
    """
    if row["measured"] == "":
        return ""
    if int(row["cells"]) > 1:
        return row["why"].replace("; ", between)
    return "; ".join(part for part in (numbers_text(row), row["needs"]) if part)
