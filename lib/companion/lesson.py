"""Say and show in a notebook: sentences whose numbers are computed, and functions of the library as they stand.

    say(
        "At 95 % sparsity SNIP keeps {rl-bc-95-snip.value:.0%} of the dense return, chance {chance:.0%}.",
        rests_on={"rl-bc-95-snip": "differs"},
        chance=share,
    )

The sentence takes its numbers from the ledger of claims and from what the notebook has computed. It names the verdicts
it rests on, so that executing the notebook fails when one of them has changed sides and the sentence has to be written
anew.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from string import Formatter

import pandas as pd

from lib import base
from lib.base import BadInput
from lib.companion.results import read_cells, read_scorecard
from lib.companion.statistics import VERDICTS, Interval

# Words with which a sentence leaves its answer to the reader, as regular expressions. A result says what happened.
HEDGES = (
    r"\bwhere (one|an interval|intervals)\b",
    r"\bwhere it (is|was|does|holds|excludes|contains|covers)\b",
    r"\bcompare the (rows|numbers|curves|figures)\b",
    r"\bif (the interval|intervals|it does|they do)\b",
    r"\bnobody can tell\b",
    r"\bmay (or may|have)\b",
    r"\bmay be\b[^.;:]* or\b",
    r"\bit (all )?depends\b",
    r"\blook at the (rows|numbers|curves|figures|table|intervals)\b",
    r"\beither\b[^.;:]* or\b",
    r"\b(see|judge|decide) for yourself\b",
)


class ChangedFinding(BadInput):
    """A sentence rests on a verdict that the runs do not give any more."""


@dataclass(frozen=True)
class Measured:
    """Hold a number with its interval; a sentence prints it as "0.14 [0.11, 0.16]".

    A format such as `.0%` or `.1f` holds for the value and both ends. What is exact, or has one seed only, has no ends.
    """

    value: float
    low: float
    high: float
    seeds: int

    @property
    def minus(self) -> Measured:
        """Turn the sign: of a difference, how far the first lies below the second."""
        return Measured(-self.value, -self.high, -self.low, self.seeds)

    def __format__(self, form: str) -> str:
        form = re.sub(r"^(.?[<>=^])?[+ -]?", r"\g<0>z", form or ".2f")  # z: no "-0.0"
        if self.seeds < 2:
            return format(self.value, form)
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}]"


def timed(row: Mapping[str, float]) -> Measured:
    """Read how many times as fast a row of a benchmark is (columns "speedup", "speedup_low" and "speedup_high").

    What stands in brackets then are the quartiles of single calls, see `lib.kernels.timing.times_as_fast`.
    """
    many = 2  # calls enough for ends
    return Measured(*(float(row[name]) for name in ("speedup", "speedup_low", "speedup_high")), seeds=many)


def sentence(
    text: str, rests_on: Mapping[str, str] | None = None, claims: pd.DataFrame | None = None, **values: object
) -> str:
    """Fill computed numbers into a sentence, after checking the verdicts that it rests on.

    Args:
        text: with places such as {claim-id} (value and interval), {claim-id.value:.0%}, {claim-id.minus:.2f} (the sign
            turned) and {name:.1f}. Of a claim about several networks or environments {claim-id@resnet20} is the cell
            of one, and {claim-id@worst} the one that is worst for the claim, which a sentence has to say.
        rests_on: {claim's id: its verdict}. Every claim that the text takes a number from has to be named here.
        claims: the ledger; by default that of `results/claims.csv`, each claim at the scale that counts.
        values: numbers, words or `Interval`s by name.

    Raises:
        ChangedFinding: a claim has another verdict now.
        BadInput: a place that nothing fills, a claim that does not exist or is not named in `rests_on`, one of several
            cells of which the place does not say which, or a phrase of HEDGES, which leaves the answer to the reader.
    """
    rests_on = rests_on or {}
    if not isinstance(rests_on, Mapping):
        raise BadInput(f"rests_on={rests_on!r:.60}: expected a verdict for each claim, {{'its id': 'reproduced'}}")
    try:
        names = {re.split(r"[.\[]", place)[0] for _, place, _, _ in Formatter().parse(text) if place is not None}
    except ValueError as error:
        raise BadInput(f"{error}; a brace that is meant as one stands there twice: {text}") from error
    if found := hedged(text):
        raise BadInput(f"the sentence says {found!r} instead of what happened: {text}")
    ledger = {}
    if rests_on:
        claims = read_scorecard(base.RESULTS) if claims is None else claims
        ledger = {row["id"]: row for row in claims.to_dict("records")}
    for name, verdict in rests_on.items():
        if name not in ledger:
            raise BadInput(f"no claim {name!r} in the ledger; python -m lib.claims writes it")
        if verdict not in VERDICTS:
            raise BadInput(f"rests_on: {verdict!r} of claim {name} is no verdict; there are: {', '.join(VERDICTS)}")
        if (now := ledger[name]["verdict"]) != verdict:
            raise ChangedFinding(f"claim {name} is {now!r} now, the sentence rests on {verdict!r}: {text}")
    if loose := sorted(one for one in names - values.keys() if one.partition("@")[0] not in rests_on):
        raise BadInput(f"{{{loose[0]}}} is neither a value that was given nor a claim named in rests_on: {text}")
    filled = {name: _of_claim(name, ledger[name.partition("@")[0]]) for name in names - values.keys()}
    filled |= {
        name: Measured(v.value, v.low, v.high, v.seeds) if isinstance(v, Interval) else v for name, v in values.items()
    }
    try:
        return text.format_map(filled)
    except (ValueError, AttributeError, TypeError, LookupError) as error:
        raise BadInput(f"a place of the sentence cannot be filled ({error}): {text}") from error


def hedged(text: str) -> str:
    """Find the first words with which a text leaves its answer to the reader; "" where there are none."""
    flat = re.sub(r"\s+", " ", text)
    found = (re.search(hedge, flat, re.IGNORECASE) for hedge in HEDGES)
    return next((match[0] for match in found if match), "")


def listed(words: Iterable[object], form: str = "", last: str = "and") -> str:
    """Write a list as a sentence does: "a", "a and b", "a, b and c".

    Args:
        form: how each is written, as in `format`: ".0f" for numbers without decimals.
        last: the word before the last one, "and" or "or".

    Raises:
        BadInput: there is nothing to list.
    """
    words = [format(word, form) for word in words]
    if not words:
        raise BadInput("there is nothing to list: expected one word or more")
    *first, end = words
    return f"{', '.join(first)} {last} {end}" if first else end


def say(text: str, rests_on: Mapping[str, str] | None = None, **values: object) -> None:
    """Show a sentence in the notebook as Markdown; arguments and errors as in `sentence`."""
    from IPython.display import Markdown, display

    display(Markdown(sentence(text, rests_on, **values)))


def show(*functions: Callable) -> None:
    """Show functions or classes as they stand in the library, so that page and library never differ.

    Raises:
        BadInput: something else, which has no source.
    """
    from IPython.display import Markdown, display

    for one in functions:
        if not (inspect.isfunction(one) or inspect.isclass(one)):
            raise BadInput(f"show takes functions and classes of the library, this is {one!r}")
        where = inspect.getmodule(one).__name__.replace(".", "/")
        display(Markdown(f"*From `{where}.py`:*\n\n```python\n{inspect.getsource(one).rstrip()}\n```"))


def _of_claim(name: str, row: Mapping[str, object]) -> Measured:
    """The number that a place takes from a claim: its own, or that of the cell after the @, see `sentence`."""
    claim, _, cell = name.partition("@")
    if cell in ("", "worst"):
        if not cell and (count := int(row.get("cells") or 1)) > 1:
            raise BadInput(f"claim {claim} has {count} cells: write which, {{{claim}@worst}} or one of them")
        return _measured(row)
    cells = read_cells(pd.DataFrame([row]))
    mine = cells[(cells.id == claim) & (cells.cell.str.rsplit("/", n=1).str[-1] == cell)]
    if len(mine) != 1:
        there = ", ".join(cells.cell[cells.id == claim])
        raise BadInput(f"claim {claim} has {len(mine)} cells named {cell!r}; there are: {there}")
    return _measured(mine.iloc[0].to_dict())


def _measured(row: Mapping[str, object]) -> Measured:
    if row["measured"] in ("", None):
        raise BadInput(f"claim {row['id']} has no number ({row['verdict']}): a sentence cannot take one from it")
    low, high = (float(row[end]) if row[end] != "" else float("nan") for end in ("low", "high"))
    return Measured(float(row["measured"]), low, high, int(row["seeds"]))
