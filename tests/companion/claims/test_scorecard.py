"""Which of a claim's verdicts counts: that on the paper's own data, else that of the largest scale."""

from pathlib import Path

import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion.claims.scorecard import by_holm, largest, looked_first
from lib.companion.csv_files import write_csv
from lib.companion.results import CELLS, CLAIMS


def put(folder: Path, scale: str, *rows: dict, cells: tuple[int, ...] = ()) -> None:
    """Write claims with these parts, each with cells of so many seeds: of the claim's own, if nothing is said."""
    claims = [dict.fromkeys(CLAIMS, "") | {"id": "a", "paper": 1} | row for row in rows]
    write_csv(pd.DataFrame(claims), folder / scale / "claims.csv")
    each = [(row["id"], seeds) for row in claims if row["seeds"] != "" for seeds in cells or (row["seeds"],)]
    write_csv(pd.DataFrame(each, columns=["id", "seeds"]).reindex(columns=CELLS), folder / scale / "cells.csv")


def scored(folder: Path, scale: str, **verdicts: str) -> None:
    put(folder, scale, *({"id": name, "paper": 9 - i, "verdict": v} for i, (name, v) in enumerate(verdicts.items())))


def test_each_claim_shows_the_largest_scale_that_has_a_verdict(tmp_path: Path):
    scored(tmp_path, "quick", a="reproduced", b="reproduced", c="not run", d="not run")
    scored(tmp_path, "real", a="differs", b="not run", c="undecided", d="not run")
    found = largest(tmp_path)
    assert found.id.tolist() == ["d", "c", "b", "a"]  # by paper
    rows = {row["id"]: (row["verdict"], row["scale"]) for row in found.to_dict("records")}
    assert rows == {
        "a": ("differs", "real"),  # whatever it says
        "b": ("reproduced", "quick"),
        "c": ("undecided", "real"),
        "d": ("not run", ""),
    }


def test_a_claim_that_no_scale_ran_shows_what_the_largest_scale_with_runs_lacks(tmp_path: Path):
    reasons = {
        "quick": {
            "a": "needs coco, the quick scale has digits",
            "b": "needs coco",
            "c": "no runs of b at the quick scale",
        },
        "real": {
            "a": "needs coco, the real scale has mnist",
            "b": "no runs of a at the real scale",
            "c": "needs a GPU",
        },
    }
    for scale, whys in reasons.items():
        put(tmp_path, scale, *({"id": name, "verdict": "not run", "why": why} for name, why in whys.items()))
    assert largest(tmp_path).why.tolist() == [reasons["real"]["a"], reasons["quick"]["b"], reasons["real"]["c"]]


def test_a_verdict_on_one_seed_never_replaces_one_on_several(tmp_path: Path):
    for scale, seeds, verdict in (("quick", 5, "reproduced"), ("real", 1, "undecided")):
        row = {
            "seeds": seeds,
            "verdict": verdict,
            "measured": seeds / 4,
            "why": f"{seeds / 4} alone",
            "data": "mnist: a",
        }
        row |= {"note": "a stand-in" if scale == "quick" else ""}
        put(tmp_path, scale, row, row | {"id": "b"} | ({"verdict": "not run"} if scale == "quick" else {}))
    found = largest(tmp_path).to_dict("records")
    rows = {row["id"]: [row[name] for name in ("verdict", "scale", "note")] for row in found}
    assert rows == {
        "a": ["reproduced", "quick", "a stand-in; put aside: 0.25 alone, with mnist: a at the real scale"],
        "b": ["undecided", "real", ""],
    }


def test_of_two_verdicts_on_one_seed_the_larger_scale_counts(tmp_path: Path):
    for scale, verdict in (("quick", "reproduced"), ("real", "undecided")):
        put(tmp_path, scale, {"seeds": 1, "verdict": verdict})
    assert largest(tmp_path).iloc[0].verdict == "undecided"


@pytest.mark.parametrize(("real", "counts"), [((1, 5), "real"), ((1, 1), "quick")])
def test_one_seed_in_one_cell_does_not_put_several_in_another_aside(tmp_path: Path, real: tuple[int, ...], counts: str):
    put(tmp_path, "quick", {"seeds": 3, "verdict": "reproduced"})
    put(tmp_path, "real", {"seeds": 1, "verdict": "partly"}, cells=real)  # that of the worst cell, which is shown
    assert largest(tmp_path).scale.tolist() == [counts]


def test_without_verdicts_at_any_scale_there_is_a_line_that_says_how_to_get_them(tmp_path: Path):
    with pytest.raises(BadInput, match=r"no scale has verdicts yet; python -m lib\.claims"):
        largest(tmp_path)


def test_the_papers_own_data_go_before_a_stand_in_at_any_scale_with_any_number_of_seeds(tmp_path: Path):
    def on(scale: str, data: str, seeds: int, verdict: str) -> None:
        put(tmp_path, scale, {"seeds": seeds, "verdict": verdict, "why": f"{verdict} by {seeds}", "data": data})

    on("quick", "digits (stand-in): a", 5, "reproduced")
    on("real", "mnist: b", 1, "undecided")
    row = largest(tmp_path).iloc[0]
    assert (row.verdict, row.scale) == ("undecided", "real")
    assert row.note == "put aside: reproduced by 5, with digits (stand-in): a at the quick scale"
    on("quick", "mnist: b", 1, "differs")
    on("real", "cifar10 (stand-in): a; svhn (stand-in): a", 9, "reproduced")
    assert largest(tmp_path).verdict.tolist() == ["differs"]
    on("real", "cifar10 (stand-in): a; mnist: a", 9, "reproduced")  # at least in part
    assert largest(tmp_path).verdict.tolist() == ["reproduced"]


def test_a_note_that_owns_up_to_a_look_is_told_from_one_that_does_not():
    notes = {
        "written when the runs were known": True,
        "added after the quick runs had been seen": True,
        "the criterion was changed: the ground was the wrong one": True,
        "it first asked the runs that go on until sizes rest": True,
        "": False,
        "put aside: digits/small_lenet: 1.52, reproduced": False,
        "the paper does not say when stage 2 ends": False,
        "unknown to the paper; unseen data": False,
    }
    assert looked_first(pd.Series(notes.keys())).tolist() == list(notes.values())


def test_the_cells_of_a_claim_share_one_risk_by_holm():
    def cell(name: str, at: str, chance: float, verdict: str) -> dict:
        return {"id": name, "cell": at, "chance": chance, "verdict": verdict}

    cells = [
        cell("all", "a", 0.049, "reproduced"), cell("all", "b", 0.049, "reproduced"),  # chance would need both
        cell("loose", "a", 0.017, "reproduced"), cell("loose", "b", 1, "undecided"), cell("loose", "c", 1, "undecided"),
        cell("clear", "a", 0.016, "differs"), cell("clear", "b", 1, "undecided"), cell("clear", "c", 1, "undecided"),
        cell("behind", "a", 0.016, "differs"),  # the second has to be below 0.05 / 2, the first below 0.05 / 3
        cell("behind", "b", 0.024, "reproduced"), cell("behind", "c", 1, "undecided"),
        cell("none", "a", 0.03, "reproduced"), cell("none", "b", 0.04, "differs"),  # the first fails, so none may pass
        cell("one", "a", 0.04, "differs"), cell("one", "b", 0.04, "moot"),
        cell("exact", "a", 0, "differs"), cell("exact", "b", 1, "undecided"),
        cell("unknown", "a", float("nan"), "differs"), cell("unknown", "b", 1, "undecided"),
    ]  # fmt: skip
    assert by_holm(pd.DataFrame(cells)) == {
        "loose": "undecided",
        "clear": "differs",
        "behind": "partly",
        "none": "undecided",
        "exact": "differs",
        "unknown": "undecided",
    }
