"""Note when a criterion was written, and that it has stayed as it was: so a claim is not loosened afterwards.

Beside each claim that is measured stands a line such as

    criterion: {written_at: "9b11d19", checksum: "3fa9c1d2"}

with the commit at which the criterion was written and a checksum of all here that decides the verdict. Who changes one
changes the other, with `python -m lib.claims --written --because "why"`, and the reason stands there from then on and
in the tables. No history is needed to see it, so a shallow clone will do.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import yaml

from lib import base
from lib.base import BadInput

DECIDING = ("id", "kind", "measure", "holds_if", "presupposes", "ceiling", "caps", "data")  # of a claim, its verdict
COMMAND = 'python -m lib.claims --written --because "why"'


@dataclass(frozen=True)
class Criterion:
    """Hold when a claim's criterion was written.

    Attributes:
        written_at: the commit that was there when it was written.
        checksum: of the criterion, of this commit and of the reason (`checksum`).
        because: why an earlier criterion was changed; empty: there was none.
    """

    written_at: str
    checksum: str
    because: str = ""


def checksum(claim: Mapping[str, Any], written_at: str, because: str = "") -> str:
    """Compute the 8 hexadecimal digits that change with anything that decides the verdict of a claim.

    Args:
        claim: all its parts by name, such as `Paper.criteria` lists them.

    Raises:
        BadInput: a part that JSON cannot hold.
    """
    deciding = {name: claim[name] for name in DECIDING}
    try:
        text = json.dumps([deciding, written_at, because], sort_keys=True)
    except TypeError as error:  # a date, a set, keys of several kinds
        raise BadInput(f"claim {claim['id']}: expected texts, numbers, lists and mappings alone: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def changed(claim: Mapping[str, Any], criterion: Criterion) -> bool:
    """Say whether a claim is another than the one whose criterion this is."""
    return checksum(claim, criterion.written_at, criterion.because) != criterion.checksum


def refuse_changed(claims: Iterable[Mapping[str, Any]]) -> None:
    """Refuse claims whose criterion has been changed and not written anew.

    Raises:
        BadInput: the claim, and the command that writes it anew.
    """
    for claim in claims:
        criterion = claim["criterion"]
        if criterion is not None and changed(claim, criterion):
            since = f"is not the one that was written at {criterion.written_at}"
            raise BadInput(f"claim {claim['id']}: its criterion {since}; a change needs a reason: {COMMAND}")


def write(
    claims: Iterable[Mapping[str, Any]],
    text: str,
    written_at: str,
    because: str = "",
    earlier: Mapping[str, Criterion] | None = None,
) -> tuple[str, list[str]]:
    """Write the line `criterion` of each claim that is measured and has none or another.

    Args:
        claims: all parts of each by name, `criterion` among them.
        text: of claims.yaml, in which nothing but these lines changes.
        written_at: the commit of new lines.
        because: why criteria were changed; the reasons of earlier changes stay behind it.
        earlier: the criteria that are committed, by the claim's id, so that to delete a line is no way round a reason.

    Returns:
        The new text, and the ids of the claims whose line is new.

    Raises:
        BadInput: a criterion was changed and no reason is given, a reason that is not one line of text, or a claim
            whose id and criterion do not stand as this module writes them: one line each, one below the other.
    """
    if not because.isprintable():
        raise BadInput(f"because={because!r}: expected one line of text")
    found = []
    for claim in claims:
        criterion = claim["criterion"]
        if not claim["measure"] or (criterion is not None and not changed(claim, criterion)):
            continue
        before, at, reason = criterion or (earlier or {}).get(claim["id"]), written_at, ""
        if before is not None and not changed(claim, before):  # its line was deleted, nothing else
            at, reason = before.written_at, before.because
        elif before is not None:
            if not because:
                raise BadInput(f"claim {claim['id']}: its criterion was changed; say why: {COMMAND}")
            reason = because + (f"; before that: {before.because}" if before.because else "")
        parts = {"written_at": at, "checksum": checksum(claim, at, reason)}
        parts |= {"because": reason} if reason else {}
        line = ", ".join(f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in parts.items())
        old = "" if criterion is None else r" *criterion: \{.*\}\n"
        head = re.compile(rf"^( *)- id: {re.escape(claim['id'])}\n{old}", re.MULTILINE)
        text, count = head.subn(
            lambda match, line=line, name=claim["id"]: f"{match[1]}- id: {name}\n{match[1]}  criterion: {{{line}}}\n",
            text,
        )
        if count != 1:
            below = "" if criterion is None else ", and right below it the criterion, in one line too"
            expected = f"one line '- id: {claim['id']}', with nothing else on it{below}"
            raise BadInput(f"claim {claim['id']}: expected {expected}")
        found.append(claim["id"])
    return text, found


def commit(root: Path = base.ROOT) -> str:
    """Name the commit that the checkout stands on.

    Raises:
        BadInput: it is no git checkout.
    """
    done = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise BadInput(f"{root} is no git checkout: a criterion names the commit at which it was written")
    return done.stdout.strip()


def committed(name: str, folder: Path = base.PAPERS) -> dict[str, Criterion]:
    """Read the criteria of a paper as the last commit has them, by the claim's id; none where there is none."""
    command = ["git", "show", f"HEAD:./{name}/claims.yaml"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    try:
        content = yaml.safe_load(done.stdout) if done.returncode == 0 else None
    except yaml.YAMLError:  # a draft was committed, which held no criterion that anybody could have read
        content = None
    claims = content.get("claims") if isinstance(content, dict) else None
    known = {one.name for one in fields(Criterion)}
    found = {}
    for one in claims if isinstance(claims, list) else []:  # of a draft, too, what could be read
        criterion = one.get("criterion") if isinstance(one, dict) and "id" in one else None
        if isinstance(criterion, dict) and {"written_at", "checksum"} <= criterion.keys() <= known:
            found[one["id"]] = Criterion(**criterion)
    return found
