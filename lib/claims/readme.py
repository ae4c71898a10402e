"""The tables of claims in README.md, between two markers, always computed from results/claims.csv."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from lib import paths
from lib.errors import BadInput
from lib.evaluation.statistics import DIFFERS, NOT_RUN, PARTLY, REPRODUCED, UNDECIDED
from lib.results import read_scorecard, write_text

BEGIN, END = "<!-- claims: begin (python -m lib.claims --readme) -->", "<!-- claims: end -->"
VERDICTS = [REPRODUCED, PARTLY, UNDECIDED, DIFFERS, NOT_RUN]


def table(claims: pd.DataFrame) -> str:
    """The claims as a Markdown table."""
    lines = [
        "| paper | claim | printed | measured | criterion | verdict | scale, data |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in claims.to_dict("records"):
        ran = row["verdict"] != NOT_RUN
        cells = [row["paper"], f"{row['says']} ({row['where']})", row["printed"], measured_text(row)]
        cells += [row["criterion"] + (f" ({row['note']})" if row["note"] else "")]
        cells += [f"**{row['verdict']}**" if ran else f"not run: {row['why']}"]
        cells += [", ".join(part for part in (row["scale"], row["data"]) if part)]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def summary(claims: pd.DataFrame) -> str:
    """How many claims of each paper have which verdict, as a Markdown table."""
    counts = pd.crosstab(claims.paper, claims.verdict).reindex(columns=VERDICTS, fill_value=0)
    lines = [f"| paper | {' | '.join(VERDICTS)} |", "|---" * (len(VERDICTS) + 1) + "|"]
    lines += [
        f"| {paper} | {' | '.join(map(str, row))} |" for paper, row in zip(counts.index, counts.values, strict=True)
    ]
    return "\n".join(lines)


def tables(claims: pd.DataFrame) -> str:
    """The summary, and below it a table a paper, folded up."""
    parts = [summary(claims)]
    for paper, mine in claims.groupby("paper"):
        head = f"<details><summary>Paper {paper}: {len(mine)} claims</summary>"
        parts.append(f"{head}\n\n{table(mine)}\n\n</details>")
    return "\n\n".join(parts)


def updated(text: str, claims: pd.DataFrame) -> str:
    """README's text with its tables made anew."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise BadInput(f"README.md must hold the line {BEGIN!r} and, after it, {END!r}, once each")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{tables(claims)}\n\n{END}{rest.split(END)[1]}"


def write(readme: Path = paths.README, results: Path = paths.RESULTS) -> None:
    """Bring the table up to date."""
    text = _read(readme)
    new = updated(text, read_scorecard(results))
    if new != text:
        write_text(new, readme)


def check(readme: Path = paths.README, results: Path = paths.RESULTS) -> None:
    """Raise BadInput when the table is out of step with the committed verdicts."""
    text = _read(readme)
    if updated(text, read_scorecard(results)) != text:
        raise BadInput(
            "README.md's table of claims is out of step with results/claims.csv; python -m lib.claims --readme"
        )


def _read(readme: Path) -> str:
    if not readme.exists():
        raise BadInput(f"{readme} does not exist; it would hold the table of claims")
    return readme.read_text()


def measured_text(row: Mapping[str, object]) -> str:
    """What was measured, with its interval: "-0.08 [-0.36, 0.20], 5 seeds"."""
    if row["measured"] == "":
        return ""
    if int(row["seeds"]) == 0:
        return f"{float(row['measured']):.4g}"
    if int(row["seeds"]) == 1:
        return f"{float(row['measured']):.2f} (one seed: no interval)"
    return f"{float(row['measured']):.2f} [{float(row['low']):.2f}, {float(row['high']):.2f}], {row['seeds']} seeds"
