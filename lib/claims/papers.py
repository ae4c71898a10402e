"""The papers: lib/papers/*.yaml, read and checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import yaml

from lib import paths
from lib.errors import BadInput
from lib.evaluation.statistics import check_criterion
from lib.settings import build

KINDS = ("relation", "number", "arithmetic", "control")


@dataclass(frozen=True)
class Claim:
    """One claim of a paper.

    Attributes:
        where: section, table or figure.
        says: the claim in our words; printed: the number or words the paper gives.
        measure: {function: "module.name" in lib/evaluation, run: experiment or bench: benchmark (both left out for
            pure arithmetic), and the function's other arguments}; for a benchmark the device, cpu or cuda, is one.
        holds_if: the criterion (`lib.evaluation.statistics.check_criterion`).
        kind: "relation" (this above that, kept within so much) can be judged on stand-in data, "number" (an absolute
            value) only on the paper's own; "arithmetic" follows from a definition, without runs; "control" is a
            relation that the paper did not claim and a fair reader would ask for.
        note: what a reader of the verdict must know, such as a criterion that was written after a first look.
        not_run: why there is no measure; then measure and holds_if are left out.
        presupposes: the id of a claim of the same paper. Where that one differs this one decides nothing: that a small
            network beats a large one says little where small ones are better anyway.
    """

    id: str
    where: str
    says: str
    printed: str
    kind: str
    measure: dict = field(default_factory=dict)
    holds_if: dict = field(default_factory=dict)
    not_run: str = ""
    note: str = ""
    presupposes: str = ""

    def __post_init__(self):
        if self.kind not in KINDS:
            raise BadInput(f"claim {self.id}: kind {self.kind!r}: known are {', '.join(KINDS)}")
        if self.not_run:
            if self.measure or self.holds_if:
                raise BadInput(f"claim {self.id}: not_run says there is no measure, yet there is one")
            return
        if "function" not in self.measure:
            raise BadInput(f"claim {self.id}: measure needs a function, or not_run a reason")
        if {"run", "bench"} & set(self.measure) and self.kind == "arithmetic":
            raise BadInput(f"claim {self.id}: arithmetic follows from a definition, yet it names runs")
        if "bench" in self.measure and (self.kind == "number" or self.measure.get("device") not in ("cpu", "cuda")):
            raise BadInput(
                f"claim {self.id}: a benchmark names a device, cpu or cuda, and judges relations, not numbers"
            )
        try:
            check_criterion(self.holds_if)
        except BadInput as error:
            raise BadInput(f"claim {self.id}: {error}") from error


@dataclass(frozen=True)
class Table:
    """A table as the paper printed it; null where it has a dash."""

    id: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[list, ...]

    def __post_init__(self):
        wrong = [row for row in self.rows if len(row) != len(self.columns)]
        if wrong:
            raise BadInput(f"{self.id}: the row {wrong[0]} has {len(wrong[0])} cells, not {len(self.columns)}")


@dataclass(frozen=True)
class Slip:
    """Something the paper got wrong or left out: where, what it says, what was found."""

    where: str
    says: str
    found: str


@dataclass(frozen=True)
class Paper:
    """One paper: what it is, its tables as printed, what it claims, and which data it used (other is a stand-in)."""

    paper: int
    title: str
    authors: str
    year: int
    address: str
    data: tuple[str, ...]
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...] = ()
    slips: tuple[Slip, ...] = ()


def read(folder: Path = paths.PAPERS) -> list[Paper]:
    """All papers, by their number.

    Raises:
        BadInput: a file that is not as `Paper` says, two claims with one id, or one that presupposes none of its paper.
    """
    papers = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            content = yaml.safe_load(path.read_text())
        except yaml.YAMLError as error:
            raise BadInput(f"{path.name} is not YAML: {' '.join(str(error).split())}") from error
        papers.append(build(Paper, content, path.name))
    ids = [claim.id for paper in papers for claim in paper.claims]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise BadInput(f"claim {twice[0]} stands twice in {folder.name}/")
    for paper in papers:
        own = {claim.id for claim in paper.claims}
        if gone := [claim for claim in paper.claims if claim.presupposes and claim.presupposes not in own]:
            raise BadInput(f"claim {gone[0].id} presupposes {gone[0].presupposes!r}, which is no claim of its paper")
    return sorted(papers, key=lambda paper: paper.paper)
