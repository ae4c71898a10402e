"""From runs to verdicts. Reads run files only; trains nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from lib import paths
from lib.claims.papers import Claim, Paper
from lib.errors import BadInput
from lib.evaluation import (
    accuracy,
    architectures,
    compression,
    files,
    gates,
    group_sparse,
    intensity,
    layers,
    memory,
    products,
    returns,
    speaker_costs,
    verification,
)
from lib.evaluation.statistics import (
    DIFFERS,
    NOT_RUN,
    UNDECIDED,
    VERDICTS,
    Interval,
    in_words,
    interval,
    together,
    verdict,
)
from lib.results import read_claims
from lib.settings import SCALES

MEASURES = {
    "accuracy": accuracy,
    "architectures": architectures,
    "compression": compression,
    "files": files,
    "gates": gates,
    "group_sparse": group_sparse,
    "intensity": intensity,
    "layers": layers,
    "memory": memory,
    "products": products,
    "returns": returns,
    "speaker_costs": speaker_costs,
    "verification": verification,
}


class Unmeasurable(BadInput):
    """The runs that are there do not hold what a claim is measured on."""


MISSING = "no runs of"  # how the reason of a claim begins whose experiment has no runs at a scale
COLUMNS = [
    "id", "paper", "where", "says", "printed", "measured", "low", "high", "seeds", "data", "verdict", "why", "note",
]  # fmt: skip


def judge(papers: list[Paper], scale: str, results: Path = paths.RESULTS) -> pd.DataFrame:
    """One row a claim, in the order of the papers, columns COLUMNS; nothing measured is empty."""
    rows: dict[str, dict] = {}
    for paper in papers:
        for claim in paper.claims:
            head = {"id": claim.id, "paper": paper.paper, "where": claim.where, "says": claim.says}
            judged = _judged(claim, paper, scale, results)
            rows[claim.id] = head | {"printed": claim.printed} | judged | {"note": claim.note}
        for claim in paper.claims:
            row, ground = rows[claim.id], rows.get(claim.presupposes)
            if ground and ground["verdict"] == DIFFERS and row["verdict"] != NOT_RUN:
                void = f'decides nothing, because it presupposes "{ground["says"]}", which differs here'
                row |= {"verdict": UNDECIDED, "note": "; ".join(part for part in (row["note"], void) if part)}
    return pd.DataFrame(rows.values(), columns=COLUMNS)


def largest(results: Path = paths.RESULTS) -> pd.DataFrame:
    """For each claim the row of the largest scale that has a verdict, with that scale in a column, by paper.

    One seed has no interval, so a verdict on one seed never replaces one on several; the note says what it measured.
    """
    chosen: dict[str, dict] = {}
    for scale in SCALES:  # a larger scale replaces a smaller one, a reason to be not run only one that says less
        if not (results / scale / "claims.csv").exists():
            continue
        for row in read_claims(scale, results).to_dict("records"):
            before = chosen.get(row["id"])
            if row["verdict"] == NOT_RUN:
                better = before is None or not (before["scale"] or row["why"].startswith(MISSING))
                found = ""
            else:
                alone = str(row["seeds"]) == "1" and before is not None and str(before["seeds"]) not in ("", "1")
                better = before is None or not (before["scale"] and alone)
                if not better:
                    one = f"{float(row['measured']):.4g} with {row['data']}, {scale} scale, one seed"
                    before["note"] = "; ".join(part for part in (before["note"], one) if part)
                found = scale
            if better:
                chosen[row["id"]] = row | {"scale": found}
    if not chosen:
        raise BadInput("no scale has verdicts yet; python -m lib.claims --scale quick")
    return pd.DataFrame(chosen.values()).sort_values("paper", kind="stable", ignore_index=True)


def scorecard(papers: list[Paper], results: Path = paths.RESULTS) -> pd.DataFrame:
    """`largest`, with each claim's kind and its criterion in words."""
    known = {claim.id: claim for paper in papers for claim in paper.claims}
    table = largest(results)
    gone = [name for name in table.id if name not in known]
    if gone:
        raise BadInput(f"claim {gone[0]} has a verdict but stands in no paper any more; python -m lib.claims --scale")
    claims = [known[name] for name in table.id]
    return table.assign(
        kind=[claim.kind for claim in claims],
        criterion=[in_words(claim.holds_if) if claim.holds_if else "" for claim in claims],
    )


def measure(claim: Claim, runs: pd.DataFrame | None) -> float | Mapping[str, float | Mapping[int, float] | Interval]:
    """What the claim's function says: one exact number, or for each cell one (benchmark) or one a seed (runs).

    From runs a cell may be an interval already, where there is more to it than seeds.
    """
    module, _, name = claim.measure["function"].partition(".")
    function = getattr(MEASURES.get(module), name, None)
    if function is None:
        raise BadInput(f"claim {claim.id}: no measure {claim.measure['function']!r} in lib/evaluation")
    arguments = {k: v for k, v in claim.measure.items() if k not in ("function", "run", "bench")}
    try:
        return function(**arguments) if runs is None else function(runs, **arguments)
    except TypeError as error:
        raise BadInput(f"claim {claim.id}: {error}") from error
    except BadInput as error:
        raise Unmeasurable(str(error)) from error


def _judged(claim: Claim, paper: Paper, scale: str, results: Path) -> dict:
    if claim.not_run:
        return _not_run(claim.not_run)
    if "bench" in claim.measure:
        return _judged_by_bench(claim, results)
    experiment = claim.measure.get("run")
    if experiment is None:
        exact = _exact(measure(claim, None))
        return _numbers(exact) | {"data": "arithmetic", "verdict": verdict(exact, claim.holds_if), "why": "exact"}
    path = results / scale / "runs" / f"{experiment}.csv"
    if not path.exists():
        return _not_run(f"{MISSING} {experiment} at the {scale} scale")
    runs = pd.read_csv(path)
    if runs.empty:
        return _not_run(f"no run of {experiment} is finished at the {scale} scale")
    used = sorted(set(runs.data if "data" in runs else runs.env))  # whoever learns online has data from there
    foreign, own = [name for name in used if name not in paper.data], claim.measure.get("data", paper.data)
    if claim.kind == "number" and foreign:
        return _not_run(f"an absolute number needs {' or '.join(own)}, the {scale} scale has {', '.join(used)}")
    if "data" in claim.measure and not set(own) & set(used):
        return _not_run(f"needs {' or '.join(own)}, the {scale} scale has {', '.join(used)}")
    try:
        found = measure(claim, runs)
    except Unmeasurable as error:  # a partial sweep may lack what a claim compares
        return _not_run(f"the runs of {experiment} at the {scale} scale: {error}")
    cells = {cell: v if isinstance(v, Interval) else interval(list(v.values())) for cell, v in found.items()}
    if not cells:
        return _not_run(f"needs {_asked(claim.measure)}; the runs of {experiment} at the {scale} scale do not have it")
    return _together(cells, claim, _described(cells, used, foreign))


def _asked(measure: Mapping[str, object]) -> str:
    """What a measure asks the runs for: "env Humanoid-v4, method gst, steps 1000000"."""
    asked = {**measure.get("chosen", {}), **measure}
    for name in ("function", "run", "chosen"):
        asked.pop(name, None)
    if isinstance(asked.get("against"), Mapping):
        asked |= {f"against {k}": v for k, v in asked.pop("against").items()}
    return ", ".join(f"{k} {' or '.join(map(str, v)) if isinstance(v, list) else v}" for k, v in asked.items())


def _described(cells: Iterable[str], used: list[str], foreign: list[str]) -> str:
    """On what a claim was judged: "cifar10 (stand-in): resnet20, vgg10". Cells are named "data/what", as most are."""
    parts = [cell.split("/") for cell in cells]
    on = {name: dict.fromkeys(what[0] for data, *what in parts if data == name and what) for name in used}
    texts = []
    for name in [name for name in used if on[name]] or used:
        text = f"{name} (stand-in)" if name in foreign else name
        texts.append(f"{text}: {', '.join(on[name])}" if on[name] else text)
    return "; ".join(texts)


def _judged_by_bench(claim: Claim, results: Path) -> dict:
    """Timings belong to no scale. A cell, named "device/...", is a median of many and taken as exact."""
    name, device = claim.measure["bench"], claim.measure["device"]
    path = results / "bench" / f"{name}.csv"
    found = measure(claim, pd.read_csv(path)) if path.exists() else {}
    if not found:
        needs = "needs a GPU with sparse tensor cores" if device == "cuda" else "not measured yet"
        return _not_run(f"{needs}; python -m lib.bench {name} --device {device}")
    cells = {cell: _exact(value) for cell, value in found.items()}
    return _together(cells, claim, data=", ".join(sorted({cell.split("/")[0] for cell in cells})))


def _together(cells: Mapping[str, Interval], claim: Claim, data: str) -> dict:
    """One verdict from several cells, and the numbers of the cell that is worst for the claim.

    That is the one with the worst mean of those with the worst verdict.
    """
    verdicts = {cell: verdict(measured, claim.holds_if) for cell, measured in cells.items()}
    worst = cells[min(cells, key=lambda cell: (-VERDICTS.index(verdicts[cell]), _margin(cells[cell], claim.holds_if)))]
    why = "; ".join(f"{cell}: {_text(cells[cell])}, {verdicts[cell]}" for cell in cells)
    return _numbers(worst) | {"data": data, "verdict": together(list(verdicts.values())), "why": why}


def _margin(measured: Interval, criterion: Mapping[str, object]) -> float:
    """How far the mean is inside the criterion; of cells with one verdict the smallest is shown."""
    kind, bound = next(iter(criterion.items()))
    if kind == "between":
        return min(measured.value - bound[0], bound[1] - measured.value)
    return measured.value - bound if kind in ("at_least", "above") else bound - measured.value


def _exact(value: float) -> Interval:
    return Interval(value, value, value, 0)


def _numbers(measured: Interval) -> dict:
    # adding 0.0 turns a rounded -0.0 into 0.0
    value, low, high = (round(x, 4) + 0.0 for x in (measured.value, measured.low, measured.high))
    return {"measured": value, "low": low, "high": high, "seeds": measured.seeds}


def _text(measured: Interval) -> str:
    numbers = _numbers(measured)
    if measured.seeds == 0:
        return f"{numbers['measured']:.4g}"
    if measured.seeds == 1:
        return f"{numbers['measured']:.4g} (one seed: no interval)"
    return f"{numbers['measured']:.4g} [{numbers['low']:.4g}, {numbers['high']:.4g}], {measured.seeds} seeds"


def _not_run(why: str) -> dict:
    return {"measured": "", "low": "", "high": "", "seeds": "", "data": "", "verdict": NOT_RUN, "why": why}
