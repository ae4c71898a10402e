"""The tables of claims in README.md, between two markers, always computed from results/claims.csv."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from lib import paths
from lib.errors import BadInput
from lib.evaluation.statistics import NOT_RUN, VERDICTS
from lib.results import read_scorecard, write_text

BEGIN, END = "<!-- claims: begin (python -m lib.claims --readme) -->", "<!-- claims: end -->"
# Arithmetic of a definition can hardly fail, and controls are our questions: neither counts as a paper's success.
GROUPS = {"relation": "measured", "number": "measured", "arithmetic": "arithmetic", "control": "our controls"}


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


def counts(claims: pd.DataFrame) -> pd.DataFrame:
    """How many claims have which verdict: a row a paper and group of GROUPS, a column a verdict."""
    groups = pd.Categorical(claims.kind.map(GROUPS), list(dict.fromkeys(GROUPS.values())))
    found = pd.crosstab([claims.paper, groups], claims.verdict).rename_axis(index=["paper", "group"])
    return found.reindex(columns=list(VERDICTS), fill_value=0)


def summary(claims: pd.DataFrame) -> str:
    """`counts` as a Markdown table."""
    lines = [f"| paper | claims | {' | '.join(VERDICTS)} |", "|---" * (len(VERDICTS) + 2) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in counts(claims).reset_index().values]
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
