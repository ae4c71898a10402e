"""From runs small enough to judge by eye to the rows of claims.csv."""

import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from lib import base
from lib.base import BadInput
from lib.companion.claims import papers, program, readme
from lib.companion.claims.judge import judge, measure
from lib.companion.claims.papers import Claim, Paper
from lib.companion.claims.program import main
from lib.companion.claims.scorecard import scorecard
from lib.companion.csv_files import write_csv
from lib.companion.results import CELLS as CELL_COLUMNS
from lib.companion.results import CLAIMS

HALF = 12.706204736 * 0.5  # t with 1 degree of freedom times the standard error of two values that are 1 apart


def claim(kind: str = "relation", holds_if: dict | None = None, **measured) -> Claim:
    about = measured or {"function": "difference", "run": "rl", "variant": "new", "against": "old"}
    return Claim("c", "section 1", "it works", "44 %", kind, about, holds_if or {"at_least": -1})


def paper(*claims: Claim, name: str = "two_four") -> Paper:
    return Paper(3, "t", "a", 2021, "https://x", ("imagenet", "coco"), claims, name=name)


def runs(folder: Path, cells: dict[tuple[str, str], tuple[list[float], list[float]]], scale: str = "quick") -> Path:
    """A run file: {(data, network): (accuracies of old by seed, accuracies of new by seed)}."""
    rows = [
        {"data": data, "network": network, "variant": variant, "seed": seed, "epoch": 1, "accuracy": value}
        for (data, network), both in cells.items()
        for variant, values in zip(("old", "new"), both, strict=True)
        for seed, value in enumerate(values)
    ]
    write_csv(pd.DataFrame(rows), folder / scale / "runs" / "rl.csv")
    return folder


def judged(results: Path, *claims: Claim, scale: str = "quick", name: str = "two_four") -> dict:
    table, cells = judge([paper(*claims, name=name)], scale, results)
    assert list(table.columns) == list(CLAIMS)
    assert list(cells.columns) == list(CELL_COLUMNS)
    assert len(table) == len(claims)
    return table.iloc[0].to_dict()


def test_differences_are_judged_pair_by_pair(tmp_path: Path):
    # over seeds the accuracies spread by 80 points, seed by seed the difference is 0.5, 0.4 and 0.6
    results = runs(tmp_path, {("imagenet", "a"): ([10.0, 50.0, 90.0], [10.5, 50.4, 90.6])})
    row = judged(results, claim(holds_if={"above": 0}))
    ends = pytest.approx((0.2516, 0.7484), abs=1e-4)  # t(2) = 4.3027
    assert (row["measured"], (row["low"], row["high"]), row["seeds"]) == (0.5, ends, 3)
    assert (row["verdict"], row["data"]) == ("reproduced", "imagenet: a")
    told = [row[name] for name in ("id", "paper", "where", "says", "printed")]
    assert told == ["c", 3, "section 1", "it works", "44 %"]


def test_the_interval_decides_not_the_mean(tmp_path: Path):
    results = runs(tmp_path, {("imagenet", "a"): ([50.0, 50.0], [51.0, 52.0])})  # differences 1 and 2
    row = judged(results, claim(holds_if={"above": 0}))
    assert row["verdict"] == "undecided"
    assert (row["measured"], row["low"], row["high"]) == (1.5, pytest.approx(1.5 - HALF), pytest.approx(1.5 + HALF))
    assert judged(results, claim(holds_if={"at_least": -5}))["verdict"] == "reproduced"
    assert judged(results, claim(holds_if={"above": 8}))["verdict"] == "differs"


def test_one_seed_decides_nothing_and_the_row_says_why(tmp_path: Path):
    row = judged(runs(tmp_path, {("imagenet", "a"): ([50.0], [90.0])}), claim(holds_if={"above": 0}))
    assert (row["verdict"], row["measured"], row["low"], row["high"]) == ("undecided", 40.0, -math.inf, math.inf)
    assert "one seed: no interval" in row["why"]


def test_on_stand_in_data_relations_are_judged_and_numbers_are_not(tmp_path: Path):
    results = runs(tmp_path, {("digits", "a"): ([50.0, 50.0], [49.99, 50.01])})
    row = judged(results, claim())
    assert (row["verdict"], row["data"]) == ("reproduced", "digits (stand-in): a")
    row = judged(results, claim(kind="number"))
    assert row["verdict"] == "not run"
    assert row["why"] == "an absolute number needs imagenet or coco, the quick scale has digits"
    assert {row[name] for name in ("measured", "low", "high", "seeds")} == {""}


def test_on_the_papers_own_data_numbers_are_judged_whatever_other_data_stand_beside_them(tmp_path: Path):
    own, other = {("coco", "a"): ([50.0, 50.0], [49.99, 50.01])}, {("digits", "a"): ([50.0, 50.0], [39.99, 40.01])}
    for cells in (own, own | other):
        row = judged(runs(tmp_path, cells), claim(kind="number"))
        assert (row["verdict"], row["cells"], row["data"]) == ("reproduced", 1, "coco: a")


CELLS = {
    ("digits", "bad"): ([50.0, 50.0], [39.99, 40.01]),
    ("digits", "good"): ([50.0, 50.0], [52.99, 53.01]),
    ("moons", "best"): ([50.0, 50.0], [58.99, 59.01]),
}


def test_of_runs_that_learn_online_the_environment_is_the_data(tmp_path: Path):
    results = runs(tmp_path, {("imagenet", "a"): ([1.0, 2.0], [3.0, 4.0])})
    path = results / "quick" / "runs" / "rl.csv"
    way = {"block": 1, "shift": 0.0, "conversion": "none", "start": 0, "reward": "training", "seed": 0, "step": 10}
    rows = [{"env": "pole", "method": "rwp", **way, "return": 1.0, "compression_ratio": 0.5}]
    write_csv(pd.DataFrame(rows), path)
    about = {"function": "average_ratio", "run": "rl", "chosen": {"method": "rwp"}}
    row = judged(results, claim(**about), name="gst")
    assert (row["measured"], row["data"]) == (50.0, "pole (stand-in)")


def test_a_measure_may_give_intervals_that_stand_on_more_than_seeds(tmp_path: Path):
    # seeds agree, so that Student's t over them would have no width; draws of the speakers do not
    rows = [
        {"data": "coco", "trials": "t", "width": 4, "epoch": 8, "network": "a", "teacher": "self", "distillation": kind}
        | {"seed": seed, "draw": draw, "eer": 20.0 if kind == "none" else eer}
        for kind in ("none", "both")
        for seed in (0, 1)
        for draw, eer in enumerate([10.0, 5.0, 20.0])
    ]
    write_csv(pd.DataFrame(rows), tmp_path / "quick" / "runs" / "rl.csv")
    about = {"function": "improvement", "run": "rl", "systems": ["a/self/both"], "over": ["a/self/none"]}
    row = judged(tmp_path, claim(holds_if={"above": 0}, **about), name="skdfe")
    assert (row["measured"], row["seeds"], row["verdict"]) == (50.0, 2, "undecided")
    assert row["low"] < 0 < 99 < row["high"]
    assert row["why"].startswith("coco/t, width 4: 50 [")


def test_only_data_that_a_claim_is_measured_on_are_named(tmp_path: Path):
    about = {"function": "difference", "run": "rl", "variant": "new", "against": "old"}
    row = judged(runs(tmp_path, CELLS), claim(**about, only={"data": "moons"}))
    assert (row["verdict"], row["data"]) == ("reproduced", "moons (stand-in): best")


def test_cells_that_split_are_partly_and_each_is_named(tmp_path: Path):
    row = judged(runs(tmp_path, CELLS), claim())
    assert row["verdict"] == "partly"
    assert row["data"] == "digits (stand-in): bad, good; moons (stand-in): best"
    assert row["why"] == (
        "digits/bad: -10 [-10.13, -9.873], 2 seeds, differs; digits/good: 3 [2.873, 3.127], 2 seeds, reproduced; "
        "moons/best: 9 [8.873, 9.127], 2 seeds, reproduced"
    )


@pytest.mark.parametrize(
    ("criterion", "worst"),
    [
        ({"at_least": -1}, -10.0),
        ({"above": -99}, -10.0),
        ({"at_most": 1}, 9.0),
        ({"below": 99}, 9.0),
        ({"between": [-12, 9.5]}, 9.0),  # 0.5 from the upper bound; the lowest cell is 2 from the lower one
        ({"between": [-10.1, 20]}, -10.0),
    ],
)
def test_the_cell_that_is_shown_is_the_worst_for_the_criterion(tmp_path: Path, criterion: dict, worst: float):
    assert judged(runs(tmp_path, CELLS), claim(holds_if=criterion))["measured"] == worst


def test_a_cell_that_differs_is_shown_before_a_wider_one_that_is_undecided(tmp_path: Path):
    cells = {("digits", "sure"): ([50.0, 50.0], [45.99, 46.01]), ("digits", "unsure"): ([50.0, 50.0], [40.0, 58.0])}
    row = judged(runs(tmp_path, cells), claim())
    assert (row["measured"], row["verdict"]) == (-4.0, "differs")


def test_a_wide_interval_is_worse_than_a_low_mean(tmp_path: Path):
    cells = {("digits", "sure"): ([50.0, 50.0], [50.99, 51.01]), ("digits", "unsure"): ([50.0, 50.0], [52.0, 53.0])}
    row = judged(runs(tmp_path, cells), claim())
    assert (row["measured"], row["verdict"]) == (2.5, "partly")


def test_of_two_cells_with_one_verdict_the_worse_mean_is_shown(tmp_path: Path):
    cells = {("digits", "sure"): ([50.0, 50.0], [48.5, 49.5]), ("digits", "unsure"): ([50.0, 50.0], [40.0, 61.0])}
    row = judged(runs(tmp_path, cells), claim())
    assert (row["measured"], row["verdict"]) == (-1.0, "undecided")


def test_what_has_no_width_decides_nothing_unless_it_follows_by_construction(tmp_path: Path):
    results = runs(tmp_path, {("digits", "a"): ([50.0, 50.0], [51.0, 51.0])})
    for bound in (0, 5):
        row = judged(results, claim(holds_if={"above": bound}))
        assert (row["verdict"], row["low"], row["high"]) == ("undecided", 1.0, 1.0)
        assert "all seeds give the same number" in row["why"]
    assert judged(results, claim("arithmetic", {"above": 0}))["verdict"] == "reproduced"


def test_what_stands_at_a_ceiling_or_a_cap_with_every_seed_decides_nothing(tmp_path: Path):
    results = runs(tmp_path, {("digits", "a"): ([50.0, 50.0], [149.0, 150.0])})  # differences 99 and 100
    mine = claim(holds_if={"at_least": 50})
    for change, reason in (
        ({}, ""),
        ({"ceiling": 100.0}, ""),  # one seed is below
        ({"ceiling": 99.0}, "at the ceiling, 99"),
        ({"caps": (99.0,)}, ""),
        ({"caps": (99.0, 100.0)}, "at the cap of the schedule, 99 or 100"),
    ):
        row = judged(results, replace(mine, **change))
        assert (row["verdict"], row["needs"]) == ("undecided" if reason else "reproduced", reason)


def test_what_is_undecided_says_how_many_seeds_would_decide(tmp_path: Path):
    row = judged(runs(tmp_path, {("digits", "a"): ([50.0] * 3, [51.0, 52.0, 53.0])}), claim(holds_if={"above": 0}))
    # mean 2, deviation 1: 4.30 / sqrt(3) > 2 > 3.18 / sqrt(4)
    assert row["needs"] == "about 4 seeds would decide"
    assert row["why"].endswith("3 seeds, undecided (about 4 seeds would decide)")


def test_of_several_undecided_cells_the_first_to_be_decided_and_all_of_them_are_forecast(tmp_path: Path):
    near, far, on = [51.0, 52.0, 53.0], [49.0, 51.0, 53.0], [49.0, 50.0, 51.0]  # the last one's mean lies on the bound
    cells = {("digits", "a"): ([50.0] * 3, near), ("digits", "b"): ([50.0] * 3, far)}
    found = judged(runs(tmp_path, cells), claim(holds_if={"above": 0}))
    assert found["needs"] == "about 4 seeds would decide one cell, about 18 every one"
    cells[("digits", "c")] = ([50.0] * 3, on)
    found = judged(runs(tmp_path, cells), claim(holds_if={"above": 0}))
    assert found["needs"] == "about 4 seeds would decide one cell, more seeds alone would not decide every one"


def test_every_cell_is_a_row_and_the_claim_counts_them(tmp_path: Path):
    table, cells = judge([paper(claim())], "quick", runs(tmp_path, CELLS))
    assert table.cells.tolist() == [3]
    assert cells.cell.tolist() == ["digits/bad", "digits/good", "moons/best"]
    assert cells.measured.tolist() == [-10.0, 3.0, 9.0]
    assert cells.verdict.tolist() == ["differs", "reproduced", "reproduced"]


def test_a_verdict_names_its_run_file_by_its_checksum(tmp_path: Path):
    row = judged(runs(tmp_path, CELLS), claim())
    assert re.fullmatch(r"rl\.csv [0-9a-f]{12}", row["runs"])
    runs(tmp_path, {("digits", "bad"): ([50.0], [40.0])})
    assert judged(tmp_path, claim())["runs"] not in ("", row["runs"])


def test_whatever_there_are_no_runs_for_is_not_run_and_the_row_says_why(tmp_path: Path):
    assert judged(tmp_path, claim())["why"] == "no runs of rl at the quick scale"
    path = runs(tmp_path, {("digits", "a"): ([50.0], [50.0])}) / "quick" / "runs" / "rl.csv"
    table = pd.read_csv(path)
    write_csv(table.assign(seed=[0, 1]), path)  # no seed has both variants
    why = "needs variant new, against old; the runs of rl at the quick scale do not have it"
    assert judged(tmp_path, claim())["why"] == why
    row = judged(tmp_path, replace(claim(), needs="the same seed twice"))
    assert (row["why"], row["needs"]) == (why, "the same seed twice")
    write_csv(table[:0], path)  # a budget that ended before the first configuration
    row = judged(tmp_path, claim())
    assert (row["verdict"], row["why"]) == ("not run", "no run of rl is finished at the quick scale")


def test_a_claim_without_a_measure_gives_its_own_reason(tmp_path: Path):
    row = judged(tmp_path, Claim("c", "w", "s", "p", "number", not_run="needs a GPU"))
    assert (row["verdict"], row["why"], row["measured"]) == ("not run", "needs a GPU", "")


def test_arithmetic_is_exact_and_needs_no_runs(tmp_path: Path):
    about = {"function": "saved", "form": "two_four", "value_bits": 16}
    row = judged(tmp_path, claim(holds_if={"between": [43.5, 44.5]}, **about))
    assert [row[n] for n in ("measured", "low", "high", "seeds", "data")] == [43.75, 43.75, 43.75, 0, "arithmetic"]
    assert (row["verdict"], row["why"]) == ("reproduced", "43.75, reproduced")
    assert judged(tmp_path, claim(holds_if={"at_least": 43.76}, **about))["verdict"] == "differs"


SPEED = {"function": "speedup", "bench": "gemm", "device": "cuda", "dtype": "int8", "min_k": 512}


def test_a_benchmark_judges_each_product_and_names_its_devices(tmp_path: Path):
    columns = ["device", "backend", "dtype", "m", "n", "k", "pattern", "sparsity", "speedup"]
    rows = [
        ("H200", "cutlass", "int8", 8, 8, k, "2:4", 0.5, gain) for k, gain in ((256, 0.5), (512, 1.5), (1024, 1.75))
    ]
    rows += [("a processor", "select", "int8", 8, 8, 512, "2:4", 0.5, 1.0)]
    write_csv(pd.DataFrame(rows, columns=columns), tmp_path / "bench" / "gemm.csv")
    for scale in ("quick", "real"):  # timings belong to no scale
        row = judged(tmp_path, claim(holds_if={"at_least": 1.6}, **SPEED), scale=scale)
        assert [row[name] for name in ("measured", "low", "high", "seeds")] == [1.5, 1.5, 1.5, 0]  # the worst product
        assert (row["verdict"], row["data"]) == ("partly", "H200")
        assert row["why"] == "H200/int8 8 x 8 x 512: 1.5, differs; H200/int8 8 x 8 x 1024: 1.75, reproduced"
    assert judged(tmp_path, claim(holds_if={"at_least": 1.5}, **SPEED))["verdict"] == "reproduced"
    here = judged(tmp_path, claim(holds_if={"above": 2}, **SPEED | {"device": "cpu"}))
    assert (here["verdict"], here["data"]) == ("differs", "a processor")


def test_what_was_not_timed_is_not_run_and_says_which_command_does_it(tmp_path: Path):
    def why(device: str) -> tuple[str, str]:
        row = judged(tmp_path, claim(**SPEED | {"device": device}))
        return row["verdict"], row["why"]

    needs_gpu = ("not run", "needs a GPU with sparse tensor cores; python -m lib.bench gemm --device cuda")
    assert why("cuda") == needs_gpu
    assert why("cpu") == ("not run", "not measured yet; python -m lib.bench gemm --device cpu")
    columns = ["device", "backend", "dtype", "m", "n", "k", "pattern", "sparsity", "speedup"]
    row = ("a processor", "select", "int8", 8, 8, 512, "2:4", 0.5, 1.0)
    write_csv(pd.DataFrame([row], columns=columns), tmp_path / "bench" / "gemm.csv")
    assert why("cuda") == needs_gpu


@pytest.mark.parametrize(
    ("about", "line"),
    [
        ({"function": "svaed"}, "claim c: no measure 'svaed' in lib/papers/two_four/measures.py"),
        ({"function": "memory.saved"}, "claim c: no measure 'memory.saved' in lib/papers/two_four/measures.py"),
        ({"function": "saved", "bits": 16}, "claim c: saved() got an unexpected keyword argument 'bits'"),
        (
            {"function": "difference", "variant": "a", "against": "b"},
            "claim c: difference() missing 1 required",
        ),
    ],
)
def test_a_measure_that_cannot_be_called_is_refused_with_the_claim(about: dict, line: str):
    with pytest.raises(BadInput) as error:
        measure(claim(**about), paper(), None)
    assert str(error.value).startswith(line)


@pytest.mark.parametrize("name", ["", "nobody"])
def test_a_paper_without_measures_is_refused(name: str):
    with pytest.raises(BadInput, match="no measure 'saved' in lib/papers/"):
        measure(claim(function="saved"), paper(name=name), None)


def test_runs_that_lack_what_a_claim_compares_do_not_stop_the_others(tmp_path: Path):
    results = runs(tmp_path, {("imagenet", "a"): ([50.0, 50.0], [51.0, 51.0])})
    about = {"function": "difference", "run": "rl", "variant": "never", "against": "old"}
    row = judged(results, claim(**about))
    assert row["verdict"] == "not run"
    assert row["why"].startswith("the runs of rl at the quick scale: ")


def test_a_run_that_ends_in_nan_stops_the_judge_and_is_not_taken_for_one_that_is_missing(tmp_path: Path):
    """Else a verdict of a smaller scale would take its place, and nobody would know."""
    results = runs(tmp_path, {("imagenet", "a"): ([50.0, 50.0], [51.0, math.nan])}, "real")
    line = r"^claim c, rl\.csv at the real scale: the run of data imagenet, network a, seed 1 ends without a number in"
    with pytest.raises(BadInput, match=line):
        judged(results, claim(), scale="real")


def test_the_program_writes_the_same_bytes_every_time(tmp_path: Path):
    shutil.copytree(base.RESULTS / "quick" / "runs", tmp_path / "quick" / "runs")
    main(["--scale", "quick", "--results", str(tmp_path)])
    names = ("claims.csv", "cells.csv")
    first = [(tmp_path / "quick" / name).read_bytes() for name in names]
    assert first[0].startswith(
        b"id,paper,where,says,printed,measured,low,high,seeds,cells,data,verdict,needs,why,note,runs\n"
    )
    main(["--scale", "quick", "--results", str(tmp_path)])
    assert [(tmp_path / "quick" / name).read_bytes() for name in names] == first


def test_a_scale_without_runs_is_refused_and_nothing_is_written(tmp_path: Path, capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit):
        main(["--scale", "paper", "--results", str(tmp_path)])
    said = "lib.claims: no runs at scale paper yet; python -m lib.sweep EXPERIMENT --scale paper\n"
    assert capsys.readouterr().err == said
    assert not any(tmp_path.iterdir())


def test_every_scale_that_has_runs_is_judged_and_all_of_it_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for scale, points in (("quick", 0.5), ("real", -3.0)):
        runs(tmp_path, {("imagenet", "a"): ([50.0, 60.0, 70.0], [50.1 + points, 60.0 + points, 69.9 + points])}, scale)
    page, template = tmp_path / "README.md", tmp_path / "found.md"
    page.write_text("".join(f"{readme.begin(part)}\n{readme.end(part)}\n" for part in ("found", "counts")))
    template.write_text("It is {c: differs} points.")
    monkeypatch.setattr(papers, "read", lambda: [paper(claim())])
    program.write_all(tmp_path, page, template)
    for scale, verdict in (("quick", "reproduced"), ("real", "differs")):
        assert pd.read_csv(tmp_path / scale / "claims.csv").verdict.tolist() == [verdict]
        assert len(pd.read_csv(tmp_path / scale / "cells.csv")) == 1
    assert pd.read_csv(tmp_path / "claims.csv").scale.tolist() == ["real"]
    assert "**differs**" in (tmp_path / "claims.md").read_text()
    assert "It is -3 [-3.25, -2.75] points." in page.read_text()
    (tmp_path / "real" / "runs" / "rl.csv").unlink()  # a verdict goes with its runs
    template.write_text("It is {c: reproduced} points.")
    program.write_all(tmp_path, page, template)
    assert pd.read_csv(tmp_path / "claims.csv").scale.tolist() == ["quick"]
    program.write_scale(program.known("real", tmp_path), papers.read(), tmp_path)
    with pytest.raises(BadInput, match="no scale has runs yet"):
        program.write_all(tmp_path / "nowhere", page, template)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--scale", "quik"], "lib.claims: no scale 'quik'; there are: quick, real, paper\n"),
        ([], "lib.claims: no scale has runs yet; python -m lib.sweep EXPERIMENT --scale quick\n"),
    ],
)
def test_the_program_refuses_in_one_line_and_with_status_2(tmp_path: Path, capsys, words: list[str], line: str):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--results", str(tmp_path)])
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", line)


def test_the_scorecard_tells_kind_criterion_and_note_of_each_claim(tmp_path: Path):
    arithmetic = {"function": "saved", "form": "two_four", "value_bits": 16}
    mine = paper(claim("arithmetic", {"between": [43.5, 44.5]}, **arithmetic))
    program.write_scale("quick", [mine], tmp_path)
    row = scorecard([mine], tmp_path).iloc[0]
    found = [row[name] for name in ("scale", "kind", "criterion", "note")]
    assert found == ["quick", "arithmetic", "between 43.5 and 44.5", ""]
    with pytest.raises(BadInput, match="claim c has a verdict but stands in no paper any more"):
        scorecard([paper()], tmp_path)


@pytest.mark.parametrize("given", [1.0, {"toy": 1.0}])
def test_a_measure_that_gives_no_cells_is_refused_in_a_line(tmp_path: Path, monkeypatch, given: object):
    results = runs(tmp_path, {("imagenet", "a"): ([1.0], [2.0])})
    monkeypatch.setattr("lib.companion.claims.judge.measure", lambda claim, paper, runs: given)
    with pytest.raises(BadInput, match=r"^claim c: difference gives .*: expected \{cell: \{seed: number\}\}$"):
        judged(results, claim())


def test_runs_that_do_not_say_their_data_are_refused_in_a_line(tmp_path: Path):
    write_csv(pd.DataFrame({"seed": [0], "accuracy": [1.0]}), tmp_path / "quick" / "runs" / "rl.csv")
    with pytest.raises(BadInput, match=r"^claim c: rl\.csv has neither data nor env"):
        judged(tmp_path, claim())


def test_a_claim_on_several_sets_is_judged_on_those_that_are_there(tmp_path: Path):
    results = runs(tmp_path, {("imagenet", "a"): ([50.0, 50.0], [50.99, 51.01])})
    about = {"function": "difference", "run": "rl", "variant": "new", "against": "old", "data": ["imagenet", "coco"]}
    assert judged(results, claim(**about), name="npn")["verdict"] == "reproduced"
