"""The table of claims in README.md, between two markers, always computed from the committed verdicts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from lib import paths
from lib.errors import BadInput
from lib.evaluation.statistics import NOT_RUN
from lib.results import read_claims, write_text

BEGIN, END = "<!-- claims: begin (python -m lib.claims --readme) -->", "<!-- claims: end -->"


def largest(results: Path = paths.RESULTS) -> pd.DataFrame:
    """For each claim the row of the largest scale that has a verdict, with that scale in a column."""
    chosen: dict[str, dict] = {}
    for scale in ("quick", "real", "paper"):  # a larger scale replaces a smaller one
        if not (results / scale / "claims.csv").exists():
            continue
        for row in read_claims(scale, results).to_dict("records"):
            if row["id"] not in chosen or row["verdict"] != NOT_RUN:
                chosen[row["id"]] = row | {"scale": scale if row["verdict"] != NOT_RUN else ""}
    if not chosen:
        raise BadInput("no scale has verdicts yet; python -m lib.claims --scale quick")
    return pd.DataFrame(chosen.values()).sort_values("paper", kind="stable", ignore_index=True)


def table(claims: pd.DataFrame) -> str:
    """The claims as a Markdown table."""
    lines = ["| paper | claim | printed | measured | verdict | scale, data |", "|---|---|---|---|---|---|"]
    for row in claims.to_dict("records"):
        cells = [row["paper"], f"{row['says']} ({row['where']})", row["printed"], _measured(row)]
        cells += [f"**{row['verdict']}**" if row["verdict"] != NOT_RUN else f"not run: {row['why']}"]
        cells += [", ".join(part for part in (row["scale"], row["data"]) if part)]
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def updated(text: str, claims: pd.DataFrame) -> str:
    """README's text with its table made anew."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise BadInput(f"README.md must hold the line {BEGIN!r} and, after it, {END!r}, once each")
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table(claims)}\n\n{END}{rest.split(END)[1]}"


def write(readme: Path = paths.README, results: Path = paths.RESULTS) -> None:
    """Bring the table up to date."""
    text = readme.read_text()
    new = updated(text, largest(results))
    if new != text:
        write_text(new, readme)


def check(readme: Path = paths.README, results: Path = paths.RESULTS) -> None:
    """Raise BadInput when the table is out of step with the committed verdicts."""
    if updated(readme.read_text(), largest(results)) != readme.read_text():
        raise BadInput("README.md's table of claims is out of step with results/; python -m lib.claims --readme")


def _measured(row: dict) -> str:
    if row["measured"] == "":
        return ""
    if int(row["seeds"]) == 0:
        return f"{float(row['measured']):.4g}"
    return f"{float(row['measured']):.2f} [{float(row['low']):.2f}, {float(row['high']):.2f}], {row['seeds']} seeds"
