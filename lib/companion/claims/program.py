"""Judge the claims of all papers: verdicts of every scale that has runs, the scorecard, and what README says of them.

Written are results/SCALE/claims.csv and cells.csv, results/claims.csv and claims.md, and README.md's computed parts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from lib import base
from lib.base import BadInput, writable
from lib.companion.claims import papers, readme, written
from lib.companion.claims.judge import judge, refuse_misspelt
from lib.companion.claims.scorecard import scorecard
from lib.companion.csv_files import csv_text, write_csv, write_text
from lib.companion.sweep.settings import SCALES


def main(words: list[str] | None = None) -> None:
    """Run the command line: judge, or check that what is written is in step."""
    parser = argparse.ArgumentParser("python -m lib.claims", description=__doc__)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--scale", help=f"write only the verdicts of this scale: {', '.join(SCALES)}")
    what.add_argument(
        "--check", action="store_true", help="fail when results/claims.csv, claims.md or README.md lags behind"
    )
    what.add_argument("--written", action="store_true", help="write when new and changed criteria were written")
    parser.add_argument("--because", default="", metavar="WHY", help="with --written: why criteria were changed")
    parser.add_argument("--results", type=Path, default=base.RESULTS, help="where results are (default: results/)")
    asked = parser.parse_args(words)
    # README.md tells of this checkout's results, and of no others
    page = base.README if asked.results.resolve() == base.RESULTS.resolve() else None
    with base.program("lib.claims"):
        if asked.because and not asked.written:
            raise BadInput("--because says why criteria were changed: it needs --written")
        if asked.check:
            check(page, asked.results)
        elif asked.written:
            write_criteria(asked.because)
        elif asked.scale:
            write_scale(known(asked.scale, asked.results), papers.read(), asked.results)
        else:
            write_all(asked.results, page)


def write_all(results: Path = base.RESULTS, page: Path | None = base.README, template: Path = readme.FOUND) -> None:
    """Judge every scale that has runs, or had some, and write all that follows from the verdicts.

    Args:
        page: README.md; None leaves it alone.

    Raises:
        BadInput: no scale has runs, or as `papers.read`, `judge`, `scorecard` and `readme.write`.
    """
    scales = [scale for scale in SCALES if begun(scale, results)]
    if not scales:
        raise BadInput("no scale has runs yet; python -m lib.sweep EXPERIMENT --scale quick")
    there = papers.read()
    for scale in scales:
        write_scale(scale, there, results)
    write_csv(scorecard(there, results), results / "claims.csv")
    readme.write(page, results, template)


def check(page: Path | None = base.README, results: Path = base.RESULTS) -> None:
    """Check that results/claims.csv is in step with the verdicts of all scales, and with it claims.md and README.md.

    Raises:
        BadInput: one of them is not, or as `scorecard` and `readme.check`.
    """
    table = results / "claims.csv"
    if not table.exists():
        raise BadInput(f"{table} is not there; python -m lib.claims")
    if csv_text(scorecard(papers.read(), results)) != table.read_text(encoding="utf-8"):
        raise BadInput(f"{table} is out of step with the verdicts of a scale; python -m lib.claims")
    readme.check(page, results)


def write_criteria(because: str = "", folder: Path = base.PAPERS) -> None:
    """Write beside each new or changed criterion when it was written, and print which these are.

    Raises:
        BadInput: a claim is measured by an unknown function, or on the run of no experiment.
    """
    there = papers.read(folder, changed=True)
    texts = {paper.name: (folder / paper.name / "claims.yaml").read_text() for paper in there}
    at, new = written.commit(), []
    for paper in there:
        earlier = written.committed(paper.name, folder)
        texts[paper.name], ids = written.write(paper.criteria(), texts[paper.name], at, because, earlier)
        refuse_misspelt(paper, ids)
        new += ids
    for name, text in texts.items():  # when all of them could be written
        if text != (path := folder / name / "claims.yaml").read_text():
            write_text(text, path)
    print(f"{len(new)} criteria written at {at}" + (": " if new else "") + ", ".join(new))


def write_scale(scale: str, judged: Sequence[papers.Paper], results: Path) -> None:
    """Judge the claims of these papers at one scale, write its verdicts and their cells, and print the counts."""
    writable(results / scale)
    claims, cells = judge(judged, scale, results)
    write_csv(claims, results / scale / "claims.csv")
    write_csv(cells, results / scale / "cells.csv")
    print(f"{scale}: " + ", ".join(f"{n} {v}" for v, n in claims.verdict.value_counts().items()))


def known(scale: str, results: Path = base.RESULTS) -> str:
    """Return the scale if there is such a one, and if it has runs, or had some.

    Raises:
        BadInput: there is none, or it has none.
    """
    if scale not in SCALES:
        raise BadInput(f"no scale {scale!r}; there are: {', '.join(SCALES)}")
    if not begun(scale, results):
        raise BadInput(f"no runs at scale {scale} yet; python -m lib.sweep EXPERIMENT --scale {scale}")
    return scale


def begun(scale: str, results: Path) -> bool:
    """Say whether a scale has runs, or verdicts that may stand on runs which are gone."""
    return any((results / scale / "runs").glob("*.csv")) or (results / scale / "claims.csv").exists()


if __name__ == "__main__":
    main()
