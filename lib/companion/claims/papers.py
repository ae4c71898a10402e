"""Read and check the claims of the papers, lib/papers/NAME/claims.yaml."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

from lib import base
from lib.base import BadInput, Count, build, refuse_twice, refuse_unknown
from lib.companion.claims.written import Criterion, refuse_changed
from lib.companion.statistics import check_criterion
from lib.companion.sweep.settings import SCALES, read_yaml

KINDS = ("relation", "number", "arithmetic", "control")


@dataclass(frozen=True)
class Claim:
    """Hold one claim of a paper.

    Attributes:
        where: section, table or figure.
        says: the claim in our words; printed: the number or words the paper gives.
        measure: {function: its name in the paper's measures.py, run: experiment or bench: benchmark (both left out
            where a definition is enough), and the function's other arguments}; for a benchmark the device, cpu or
            cuda, is one.
        holds_if: the criterion (`lib.companion.statistics.check_criterion`).
        kind: "relation" (this above that, kept within so much) can be judged on stand-in data, "number" (an absolute
            value) only on the paper's own; "arithmetic" follows from a definition or from how the code is built (its
            note names the condition, where there is one); "control" is a relation that the paper did not claim and a
            fair reader would ask for.
        needs: what runs must hold before it can be judged, in a reader's words ("1,000,000 steps of Humanoid"); empty:
            the judge's own words serve.
        note: what a reader of the verdict must know, such as a criterion that was written after a first look.
        not_run: why there is no measure; then measure and holds_if are left out.
        presupposes: ids of claims of the same paper, one or a list. Where one of them differs this one is moot: that
            a small network beats a large one says little where small ones are better anyway. Where one is open itself
            this one's verdict stands, and its reason says so.
        ceiling: the largest value that there can be; what has reached it with every seed decides nothing.
        caps: values at which the schedule stops a count; what stands at one with every seed decides nothing.
        data: what the paper used for this claim, where it is not among what it used for the others; empty: it is.
        criterion: when what decides the verdict was written (`lib.companion.claims.written`).
    """

    id: str
    where: str
    says: str
    printed: str
    kind: str
    measure: dict = field(default_factory=dict)
    holds_if: dict = field(default_factory=dict)
    not_run: str = ""
    needs: str = ""
    note: str = ""
    presupposes: tuple[str, ...] = ()
    ceiling: float | None = None
    caps: tuple[float, ...] = ()
    data: tuple[str, ...] = ()
    criterion: Criterion | None = None

    def __post_init__(self):
        if self.kind not in KINDS:
            raise BadInput(f"claim {self.id}: kind {self.kind!r}: known are {', '.join(KINDS)}")
        if self.not_run:
            if self.measure or self.holds_if:
                raise BadInput(f"claim {self.id}: not_run says there is no measure, yet there is one")
            return
        if "function" not in self.measure:
            raise BadInput(f"claim {self.id}: measure needs a function, or not_run a reason")
        for what in self.measure.keys() & {"function", "run", "bench"}:
            name = self.measure[what]
            if not isinstance(name, str) or (what != "function" and not re.fullmatch(r"\w+", name)):  # never a path
                raise BadInput(f"claim {self.id}: {what} {name!r}: expected a plain name")
        data = self.measure.get("data", [])
        if not isinstance(data, list) or not all(isinstance(name, str) for name in data):
            raise BadInput(f"claim {self.id}: data {data!r:.40}: expected a list of names, such as [mnist]")
        if {"run", "bench"} <= self.measure.keys():
            raise BadInput(f"claim {self.id}: measured on a run or on a benchmark, not on both")
        if not ({"run", "bench"} & set(self.measure)) and (self.ceiling is not None or self.caps):
            raise BadInput(f"claim {self.id}: a ceiling or a cap is one of runs, yet it names none")
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
    """Hold a table as the paper printed it; null where it has a dash."""

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
    """Hold something the paper got wrong or left out: where, what it says, what was found."""

    where: str
    says: str
    found: str


@dataclass(frozen=True)
class Added:
    """Hold that an experiment got seeds after a look at the first ones, which every claim on its runs then owns up to.

    Attributes:
        scale: whose runs these are.
        note: which seeds, and after which.
    """

    run: str
    scale: str
    note: str

    def __post_init__(self):
        refuse_unknown(self, scale=SCALES)


@dataclass(frozen=True)
class Paper:
    """Hold one paper: what it is, its tables as printed, what it claims, and which data it used (other is a stand-in).

    Attributes:
        added: runs with seeds that were added after a look.
        name: of its folder, where its measures are.
    """

    paper: Count
    title: str
    authors: str
    year: int
    address: str
    data: tuple[str, ...]
    claims: tuple[Claim, ...]
    tables: tuple[Table, ...] = ()
    slips: tuple[Slip, ...] = ()
    added: tuple[Added, ...] = ()
    name: str = ""

    def __post_init__(self):
        runs = {claim.measure.get("run") for claim in self.claims}
        if lost := [one.run for one in self.added if one.run not in runs]:
            raise BadInput(f"added: no claim is measured on runs of {lost[0]!r}, so nobody would read its note")

    def criteria(self) -> list[dict[str, Any]]:
        """List all parts of each claim by name, with the data that the paper used for it: other data is a stand-in."""
        return [vars(claim) | {"data": claim.data or self.data} for claim in self.claims]


def read(folder: Path = base.PAPERS, changed: bool = False) -> list[Paper]:
    """Read all papers, by their number.

    Args:
        changed: whether criteria may be other than they were when they were written.

    Raises:
        BadInput: a file that is not as `Paper` says, two claims with one id, or one that presupposes none of its paper
            or, in the end, itself, or one whose criterion is not the one that was written.
    """
    papers = []
    for path in sorted(folder.glob("*/claims.yaml")):
        name = path.parent.name
        content = read_yaml(path, f"{name}/claims.yaml")
        papers.append(replace(build(Paper, _in_lists(content), f"{name}/claims.yaml"), name=name))
    refuse_twice(paper=sorted(paper.paper for paper in papers))
    ids = [claim.id for paper in papers for claim in paper.claims]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise BadInput(f"claim {twice[0]} stands twice in {folder.name}/")
    for paper in papers:
        grounds_first(paper)
        if not changed:
            refuse_changed(paper.criteria())
    return sorted(papers, key=lambda paper: paper.paper)


def grounds_first(paper: Paper) -> list[Claim]:
    """Sort a paper's claims so that each comes after what it presupposes.

    Raises:
        BadInput: a claim that presupposes none of its paper or, in the end, itself.
    """
    known = {claim.id: claim for claim in paper.claims}
    for claim in paper.claims:
        refuse_twice(**{f"claim {claim.id} presupposes": claim.presupposes})
        for ground in claim.presupposes:
            if ground not in known:
                raise BadInput(f"claim {claim.id} presupposes {ground!r}, which is no claim of its paper")
    try:
        order = TopologicalSorter({claim.id: claim.presupposes for claim in paper.claims}).static_order()
        return [known[name] for name in order]
    except CycleError as error:
        raise BadInput(f"claim {error.args[1][0]} presupposes itself: {' <- '.join(error.args[1])}") from error


def _in_lists(content: object) -> object:
    """A single id that a claim presupposes, as a list of one; whatever else there is stays for `build` to judge."""
    claims = content.get("claims") if isinstance(content, dict) else []
    for claim in claims if isinstance(claims, list) else []:
        if isinstance(claim, dict) and isinstance(claim.get("presupposes"), str):
            claim["presupposes"] = [claim["presupposes"]]
    return content
