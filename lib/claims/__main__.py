"""Judge the claims of all papers on the runs of one scale: results/SCALE/claims.csv. Or keep README's table in step."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from lib import paths
from lib.claims import papers, readme
from lib.claims.judge import judge, scorecard
from lib.errors import BadInput
from lib.results import read_claims, write_csv
from lib.settings import SCALES


def main(words: list[str] | None = None) -> None:
    """The command line: judge a scale, or write the verdicts into the README."""
    parser = argparse.ArgumentParser("python -m lib.claims", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--scale", help=f"judge on the runs of this scale: {', '.join(SCALES)}")
    what.add_argument("--show", metavar="SCALE", help="print a line per claim, as judged at this scale")
    what.add_argument(
        "--largest", action="store_true", help="write results/claims.csv: each claim at its largest scale"
    )
    what.add_argument("--readme", action="store_true", help="write README.md's table from results/claims.csv")
    what.add_argument("--check", action="store_true", help="fail when README.md's table is out of step")
    parser.add_argument("--results", type=Path, default=paths.RESULTS, help="where results are (default: results/)")
    asked = parser.parse_args(words)
    try:
        if asked.largest:
            write_csv(scorecard(papers.read(), asked.results), asked.results / "claims.csv")
        elif asked.readme:
            readme.write(results=asked.results)
        elif asked.check:
            readme.check(results=asked.results)
        elif asked.show:
            show(known(asked.show), asked.results)
        else:
            table = judge(papers.read(), known(asked.scale), asked.results)
            write_csv(table, asked.results / asked.scale / "claims.csv")
            print(f"{asked.scale}: " + ", ".join(f"{n} {v}" for v, n in table.verdict.value_counts().items()))
    except BadInput as error:
        print(f"lib.claims: {error}", file=sys.stderr)
        sys.exit(2)


def known(scale: str) -> str:
    """The scale, if there is such a one."""
    if scale not in SCALES:
        raise BadInput(f"no scale {scale!r}; there are: {', '.join(SCALES)}")
    return scale


def show(scale: str, results: Path) -> None:
    """A line per claim."""
    for row in read_claims(scale, results).to_dict("records"):
        print(f"  {row['verdict']:11} {row['id']:32} {row['why']}")


if __name__ == "__main__":
    main()
