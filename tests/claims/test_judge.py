"""From runs small enough to judge by eye to the rows of claims.csv."""

import math
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from lib.claims.__main__ import main
from lib.claims.judge import COLUMNS, judge, largest, measure, scorecard
from lib.claims.papers import Claim, Paper
from lib.errors import BadInput
from lib.results import write_csv

HALF = 12.706204736 * 0.5  # t with 1 degree of freedom times the standard error of two values that are 1 apart


def claim(kind: str = "relation", holds_if: dict | None = None, **measured) -> Claim:
    about = measured or {"function": "accuracy.difference", "run": "rl", "variant": "new", "against": "old"}
    return Claim("c", "section 1", "it works", "44 %", kind, about, holds_if or {"at_least": -1})


def paper(*claims: Claim) -> Paper:
    return Paper(3, "t", "a", 2021, "https://x", ("imagenet", "coco"), claims)


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


def judged(results: Path, *claims: Claim, scale: str = "quick") -> dict:
    table = judge([paper(*claims)], scale, results)
    assert list(table.columns) == COLUMNS
    assert len(table) == len(claims)
    return table.iloc[0].to_dict()


def test_differences_are_judged_pair_by_pair(tmp_path: Path):
    # over seeds the accuracies spread by 80 points, seed by seed the difference is 0.5 and nothing else
    results = runs(tmp_path, {("imagenet", "a"): ([10.0, 50.0, 90.0], [10.5, 50.5, 90.5])})
    row = judged(results, claim(holds_if={"above": 0}))
    assert (row["measured"], row["low"], row["high"], row["seeds"]) == (0.5, 0.5, 0.5, 3)
    assert (row["verdict"], row["data"]) == ("reproduced", "imagenet: a")
    assert [row[name] for name in ("id", "paper", "where", "says", "printed")] == [
        "c",
        3,
        "section 1",
        "it works",
        "44 %",
    ]


def test_the_interval_decides_not_the_mean(tmp_path: Path):
    results = runs(tmp_path, {("imagenet", "a"): ([50.0, 50.0], [51.0, 52.0])})  # differences 1 and 2
    row = judged(results, claim(holds_if={"above": 0}))
    assert row["verdict"] == "undecided"
    assert (row["measured"], row["low"], row["high"]) == (1.5, round(1.5 - HALF, 4), round(1.5 + HALF, 4))
    assert judged(results, claim(holds_if={"at_least": -5}))["verdict"] == "reproduced"
    assert judged(results, claim(holds_if={"above": 8}))["verdict"] == "differs"


def test_one_seed_decides_nothing_and_the_row_says_why(tmp_path: Path):
    row = judged(runs(tmp_path, {("imagenet", "a"): ([50.0], [90.0])}), claim(holds_if={"above": 0}))
    assert (row["verdict"], row["measured"], row["low"], row["high"]) == ("undecided", 40.0, -math.inf, math.inf)
    assert "one seed: no interval" in row["why"]


def test_on_stand_in_data_relations_are_judged_and_numbers_are_not(tmp_path: Path):
    results = runs(tmp_path, {("digits", "a"): ([50.0, 50.0], [50.0, 50.0])})
    row = judged(results, claim())
    assert (row["verdict"], row["data"]) == ("reproduced", "digits (stand-in): a")
    row = judged(results, claim(kind="number"))
    assert row["verdict"] == "not run"
    assert row["why"] == "an absolute number needs imagenet or coco, the quick scale has digits"
    assert {row[name] for name in ("measured", "low", "high", "seeds")} == {""}


def test_on_the_papers_own_data_numbers_are_judged(tmp_path: Path):
    results = runs(tmp_path, {("coco", "a"): ([50.0, 50.0], [50.0, 50.0])})
    assert judged(results, claim(kind="number"))["verdict"] == "reproduced"


CELLS = {
    ("digits", "bad"): ([50.0, 50.0], [40.0, 40.0]),
    ("digits", "good"): ([50.0, 50.0], [53.0, 53.0]),
    ("moons", "best"): ([50.0, 50.0], [59.0, 59.0]),
}


def test_of_runs_that_learn_online_the_environment_is_the_data(tmp_path: Path):
    results = runs(tmp_path, {("imagenet", "a"): ([1.0, 2.0], [3.0, 4.0])})
    path = results / "quick" / "runs" / "rl.csv"
    way = {"block": 1, "shift": 0.0, "conversion": "none", "start": 0, "reward": "training", "seed": 0, "step": 10}
    rows = [{"env": "pole", "method": "rwp", **way, "return": 1.0, "compression_ratio": 0.5}]
    write_csv(pd.DataFrame(rows), path)
    about = {"function": "group_sparse.ratio", "run": "rl", "chosen": {"method": "rwp"}}
    row = judged(results, claim(**about))
    assert (row["measured"], row["data"]) == (50.0, "pole (stand-in)")


def test_a_measure_may_give_intervals_that_stand_on_more_than_seeds(tmp_path: Path):
    # seeds agree, so that Student's t over them would have no width; draws of the speakers do not
    rows = [
        {"data": "coco", "trials": "t", "width": 4, "network": "a", "teacher": "self", "distillation": kind}
        | {"seed": seed, "draw": draw, "eer": 20.0 if kind == "none" else eer}
        for kind in ("none", "both")
        for seed in (0, 1)
        for draw, eer in enumerate([10.0, 5.0, 20.0])
    ]
    write_csv(pd.DataFrame(rows), tmp_path / "quick" / "runs" / "rl.csv")
    about = {"function": "verification.improvement", "run": "rl", "systems": ["a/self/both"], "over": ["a/self/none"]}
    row = judged(tmp_path, claim(holds_if={"above": 0}, **about))
    assert (row["measured"], row["seeds"], row["verdict"]) == (50.0, 2, "undecided")
    assert row["low"] < 0 < 99 < row["high"]
    assert row["why"].startswith("coco/t, width 4: 50 [")


def test_only_data_that_a_claim_is_measured_on_are_named(tmp_path: Path):
    about = {"function": "accuracy.difference", "run": "rl", "variant": "new", "against": "old"}
    row = judged(runs(tmp_path, CELLS), claim(**about, only={"data": "moons"}))
    assert (row["verdict"], row["data"]) == ("reproduced", "moons (stand-in): best")


def test_cells_that_split_are_partly_and_each_is_named(tmp_path: Path):
    row = judged(runs(tmp_path, CELLS), claim())
    assert row["verdict"] == "partly"
    assert row["data"] == "digits (stand-in): bad, good; moons (stand-in): best"
    assert row["why"] == (
        "digits/bad: -10 [-10, -10], 2 seeds, differs; digits/good: 3 [3, 3], 2 seeds, reproduced; "
        "moons/best: 9 [9, 9], 2 seeds, reproduced"
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
    cells = {("digits", "sure"): ([50.0, 50.0], [46.0, 46.0]), ("digits", "unsure"): ([50.0, 50.0], [40.0, 58.0])}
    row = judged(runs(tmp_path, cells), claim())
    assert (row["measured"], row["verdict"]) == (-4.0, "differs")


def test_a_wide_interval_is_worse_than_a_low_mean(tmp_path: Path):
    cells = {("digits", "sure"): ([50.0, 50.0], [51.0, 51.0]), ("digits", "unsure"): ([50.0, 50.0], [52.0, 53.0])}
    row = judged(runs(tmp_path, cells), claim())
    assert (row["measured"], row["verdict"]) == (2.5, "partly")


def test_of_two_cells_with_one_verdict_the_worse_mean_is_shown(tmp_path: Path):
    cells = {("digits", "sure"): ([50.0, 50.0], [48.5, 49.5]), ("digits", "unsure"): ([50.0, 50.0], [40.0, 61.0])}
    row = judged(runs(tmp_path, cells), claim())
    assert (row["measured"], row["verdict"]) == (-1.0, "undecided")


def test_a_claim_whose_ground_differs_decides_nothing(tmp_path: Path):
    results = runs(tmp_path, {("digits", "a"): ([50.0, 50.0], [51.0, 51.0])})
    upon = replace(claim(), id="upon", presupposes="ground", note="a stand-in")
    for bound, verdict, note in ((0, "reproduced", "a stand-in"), (5, "undecided", 'it presupposes "it works", which')):
        ground = replace(claim(holds_if={"above": bound}), id="ground")
        row = judge([paper(upon, ground)], "quick", results).iloc[0]
        assert (row.id, row.verdict, row.measured) == ("upon", verdict, 1.0)
        assert row.note.startswith("a stand-in")
        assert note in row.note


def test_whatever_there_are_no_runs_for_is_not_run_and_the_row_says_why(tmp_path: Path):
    assert judged(tmp_path, claim())["why"] == "no runs of rl at the quick scale"
    path = runs(tmp_path, {("digits", "a"): ([50.0], [50.0])}) / "quick" / "runs" / "rl.csv"
    table = pd.read_csv(path)
    write_csv(table.assign(seed=[0, 1]), path)  # no seed has both variants
    why = "needs variant new, against old; the runs of rl at the quick scale do not have it"
    assert judged(tmp_path, claim())["why"] == why
    write_csv(table[:0], path)  # a budget that ended before the first configuration
    row = judged(tmp_path, claim())
    assert (row["verdict"], row["why"]) == ("not run", "no run of rl is finished at the quick scale")


def test_a_claim_without_a_measure_gives_its_own_reason(tmp_path: Path):
    row = judged(tmp_path, Claim("c", "w", "s", "p", "number", not_run="needs a GPU"))
    assert (row["verdict"], row["why"], row["measured"]) == ("not run", "needs a GPU", "")


def test_arithmetic_is_exact_and_needs_no_runs(tmp_path: Path):
    about = {"function": "memory.saved", "form": "two_four", "value_bits": 16}
    row = judged(tmp_path, claim(holds_if={"between": [43.5, 44.5]}, **about))
    assert [row[n] for n in ("measured", "low", "high", "seeds", "data")] == [43.75, 43.75, 43.75, 0, "arithmetic"]
    assert (row["verdict"], row["why"]) == ("reproduced", "exact")
    assert judged(tmp_path, claim(holds_if={"at_least": 43.76}, **about))["verdict"] == "differs"


SPEED = {"function": "products.speedup", "bench": "gemm", "device": "cuda", "dtype": "int8", "min_k": 512}


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
        ({"function": "memory.svaed"}, "claim c: no measure 'memory.svaed' in lib/evaluation"),
        ({"function": "nowhere.saved"}, "claim c: no measure 'nowhere.saved' in lib/evaluation"),
        ({"function": "saved"}, "claim c: no measure 'saved' in lib/evaluation"),
        ({"function": "memory.saved", "bits": 16}, "claim c: saved() got an unexpected keyword argument 'bits'"),
        (
            {"function": "accuracy.difference", "variant": "a", "against": "b"},
            "claim c: difference() missing 1 required",
        ),
    ],
)
def test_a_measure_that_cannot_be_called_is_refused_with_the_claim(about: dict, line: str):
    with pytest.raises(BadInput) as error:
        measure(claim(**about), None)
    assert str(error.value).startswith(line)


def scored(folder: Path, scale: str, **verdicts: str) -> None:
    rows = [
        dict.fromkeys(COLUMNS, "") | {"id": name, "paper": 9 - i, "verdict": v}
        for i, (name, v) in enumerate(verdicts.items())
    ]
    write_csv(pd.DataFrame(rows), folder / scale / "claims.csv")


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
        rows = [
            dict.fromkeys(COLUMNS, "") | {"id": name, "paper": 1, "verdict": "not run", "why": why}
            for name, why in whys.items()
        ]
        write_csv(pd.DataFrame(rows), tmp_path / scale / "claims.csv")
    assert largest(tmp_path).why.tolist() == [reasons["real"]["a"], reasons["quick"]["b"], reasons["real"]["c"]]


def test_a_verdict_on_one_seed_never_replaces_one_on_several(tmp_path: Path):
    for scale, seeds, verdict in (("quick", 5, "reproduced"), ("real", 1, "undecided")):
        row = dict.fromkeys(COLUMNS, "") | {"id": "a", "paper": 1, "seeds": seeds, "verdict": verdict}
        row |= {"measured": seeds / 4, "data": "mnist: a", "note": "a stand-in" if scale == "quick" else ""}
        write_csv(
            pd.DataFrame([row, row | {"id": "b"} | ({"verdict": "not run"} if scale == "quick" else {})]),
            tmp_path / scale / "claims.csv",
        )
    found = largest(tmp_path).to_dict("records")
    rows = {row["id"]: [row[name] for name in ("verdict", "scale", "note")] for row in found}
    assert rows == {
        "a": ["reproduced", "quick", "a stand-in; 0.25 with mnist: a, real scale, one seed"],
        "b": ["undecided", "real", ""],
    }


def test_of_two_verdicts_on_one_seed_the_larger_scale_counts(tmp_path: Path):
    for scale, verdict in (("quick", "reproduced"), ("real", "undecided")):
        row = dict.fromkeys(COLUMNS, "") | {"id": "a", "paper": 1, "seeds": 1, "verdict": verdict}
        write_csv(pd.DataFrame([row]), tmp_path / scale / "claims.csv")
    assert largest(tmp_path).iloc[0].verdict == "undecided"


def test_runs_that_lack_what_a_claim_compares_do_not_stop_the_others(tmp_path: Path):
    results = runs(tmp_path, {("imagenet", "a"): ([50.0, 50.0], [51.0, 51.0])})
    about = {"function": "accuracy.difference", "run": "rl", "variant": "never", "against": "old"}
    row = judged(results, claim(**about))
    assert row["verdict"] == "not run"
    assert row["why"].startswith("the runs of rl at the quick scale: ")


def test_without_verdicts_at_any_scale_there_is_a_line_that_says_how_to_get_them(tmp_path: Path):
    with pytest.raises(BadInput, match=r"no scale has verdicts yet; python -m lib\.claims --scale quick"):
        largest(tmp_path)


def test_the_program_writes_the_same_bytes_every_time_and_shows_a_line_a_claim(tmp_path: Path, capsys):
    main(["--scale", "quick", "--results", str(tmp_path)])
    first = (tmp_path / "quick" / "claims.csv").read_bytes()
    assert first.startswith(b"id,paper,where,says,printed,measured,low,high,seeds,data,verdict,why,note\n")
    main(["--scale", "quick", "--results", str(tmp_path)])
    assert (tmp_path / "quick" / "claims.csv").read_bytes() == first
    capsys.readouterr()
    main(["--show", "quick", "--results", str(tmp_path)])
    shown = capsys.readouterr().out.splitlines()
    assert len(shown) == len(pd.read_csv(tmp_path / "quick" / "claims.csv"))
    assert [line.split()[:2] for line in shown if "two-four-saves-16-bit" in line] == [
        ["reproduced", "two-four-saves-16-bit"]
    ]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--scale", "quik"], "lib.claims: no scale 'quik'; there are: quick, real, paper\n"),
        (["--show", "real"], "lib.claims: there are no claims at scale real; python -m lib.claims --scale real\n"),
    ],
)
def test_the_program_refuses_in_one_line_and_with_status_2(tmp_path: Path, capsys, words: list[str], line: str):
    with pytest.raises(SystemExit) as stop:
        main([*words, "--results", str(tmp_path)])
    assert stop.value.code == 2
    assert capsys.readouterr() == ("", line)


def test_the_scorecard_tells_kind_criterion_and_note_of_each_claim(tmp_path: Path):
    arithmetic = {"function": "memory.saved", "form": "two_four", "value_bits": 16}
    mine = paper(claim("arithmetic", {"between": [43.5, 44.5]}, **arithmetic))
    write_csv(judge([mine], "quick", tmp_path), tmp_path / "quick" / "claims.csv")
    row = scorecard([mine], tmp_path).iloc[0]
    found = [row[name] for name in ("scale", "kind", "criterion", "note")]
    assert found == ["quick", "arithmetic", "between 43.5 and 44.5", ""]
    with pytest.raises(BadInput, match="claim c has a verdict but stands in no paper any more"):
        scorecard([paper()], tmp_path)
