"""Compute the sha256 of each run file of a scale: what a table of verdicts says about the files behind it.

The pipeline of the quick scale must not stand on a file that a stage of the real scale writes (DVC would run that
stage). It stands on results/real/claims.csv, which has these digests in it and so changes with every run file.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from lib import base


def digests(scale: str, results: Path = base.RESULTS) -> dict[str, str]:
    """Compute the sha256 of each run file of a scale, in hexadecimal: {experiment: digest}, sorted by experiment.

    A scale without runs has none.
    """
    files = sorted((results / scale / "runs").glob("*.csv"))
    return {path.stem: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
