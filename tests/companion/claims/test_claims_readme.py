"""What README and results/claims.md say of the claims: computed, and never out of step without being caught."""

from pathlib import Path

import pandas as pd
import pytest

from lib import base
from lib.base import BadInput
from lib.companion.claims import program, readme
from lib.companion.csv_files import write_csv
from lib.companion.results import CLAIMS, read_runs

ROW = {
    "id": "c",
    "paper": 2,
    "where": "table 2",
    "says": "it works",
    "printed": "44 %",
    "measured": 1.234,
    "low": -0.5,
    "high": 3,
    "seeds": 5,
    "cells": 1,
    "data": "digits (stand-in)",
    "verdict": "undecided",
    "needs": "about 9 seeds would decide",
    "why": "digits/a: 1.234",
    "scale": "quick",
    "kind": "relation",
    "criterion": "at least 0",
    "note": "",
    "runs": "rl.csv 0123",
}
NOT_RUN = dict.fromkeys(("measured", "low", "high", "seeds", "cells", "data", "needs", "scale"), "") | {
    "verdict": "not run",
    "why": "why",
    "criterion": "",
}
CELL = {
    "id": "c",
    "cell": "digits/a",
    "measured": 1.234,
    "low": -0.5,
    "high": 3,
    "seeds": 5,
    "chance": 1,
    "verdict": "undecided",
    "reason": "",
}
TEXT = "# Title\n\n" + "".join(f"{readme.begin(p)}\n{readme.end(p)}\n\n" for p in ("found", "counts")) + "After.\n"


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path, Path]:
    """A README with empty parts, results with one claim that has a verdict, and a sentence about it."""
    page, template = tmp_path / "README.md", tmp_path / "found.md"
    page.write_text(TEXT)
    template.write_text("It gains {c: undecided} points.\n")
    write_csv(pd.DataFrame([ROW, ROW | NOT_RUN | {"id": "d"}]), tmp_path / "claims.csv")
    write_csv(pd.DataFrame([CELL]), tmp_path / "quick" / "cells.csv")
    return page, tmp_path, template


def line(each: tuple[str, ...] = (), **change) -> str:
    row = ROW | change
    cells = pd.DataFrame([CELL | {"verdict": verdict} for verdict in each or [row["verdict"]]])
    return readme.table(pd.DataFrame([row]), cells).splitlines()[2]


def test_a_claim_is_a_line_with_its_verdict_interval_scale_and_what_would_decide_it():
    start = "| it works (table 2; `c`) | 44 % | 1.234 [-0.5, 3], 5 seeds; about 9 seeds would decide |"
    assert line() == f"{start} at least 0 | **undecided** | quick, digits (stand-in) |"
    assert line(note="seen before") == f"{start} at least 0 (seen before) | **undecided** | quick, digits (stand-in) |"


def test_of_several_cells_each_is_shown_with_its_verdict():
    two = line(
        ("reproduced", "differs"),
        cells=2,
        why="a: 1 [0, 2], 5 seeds, reproduced; b: -1 [-2, 0], 5 seeds, differs",
        verdict="partly",
    )
    assert "| a: 1 [0, 2], 5 seeds, reproduced<br>b: -1 [-2, 0], 5 seeds, differs |" in two
    assert "1.234 [" not in two  # the worst does not stand for all
    assert "| **partly (1 of 2 reproduced)** |" in two


def test_what_is_exact_has_no_interval_and_neither_has_one_seed():
    exact = line(measured=43.75, seeds=0, data="", verdict="reproduced", needs="")
    assert "| 43.75 | at least 0 | **reproduced** | quick |" in exact
    defined = line(measured=43.75, seeds=0, data="arithmetic", verdict="reproduced", needs="", runs="")
    assert defined.endswith("| **reproduced** | arithmetic |")  # it belongs to no scale
    single = line(low=float("-inf"), high=float("inf"), seeds=1, needs="")
    assert "| 1.234 (one seed: no interval) |" in single
    share = line(measured=0.83, low=0.58, high=0.92, seeds=1, needs="")  # of experiments, one of which has one seed
    assert "| 0.83 [0.58, 0.92], 1 seed |" in share


def test_what_was_not_run_shows_the_reason_and_no_numbers():
    assert line(**NOT_RUN) == "| it works (table 2; `c`) | 44 % |  |  | not run: why |  |"
    takes = line(**NOT_RUN | {"needs": "an hour"})
    assert takes == "| it works (table 2; `c`) | 44 % |  |  | not run: why; it would need an hour |  |"


def test_a_bar_in_a_text_does_not_split_its_cell():
    assert r"a \| b" in line(says="a | b")


def test_writing_changes_only_what_is_between_the_markers(place: tuple[Path, Path, Path]):
    readme.write(*place)
    text = place[0].read_text()
    first, rest = text.split(readme.begin("found"))
    between, rest = rest.split(readme.end("found"))
    assert (first, between) == ("# Title\n\n", "\n\nIt gains 1.23 [-0.5, 3] points.\n\n")
    assert text.endswith(f"{readme.end('counts')}\n\nAfter.\n")
    counted = rest.split(readme.begin("counts"))[1].split(readme.end("counts"))[0].strip()
    first = "The papers' claims, some of them against a fairer rival, make 2 rows that need runs: "
    first += "0 *reproduced*, 0 *partly*, 1 *undecided*, 0 *differs*, 0 *moot*, 1 *not run*. "
    first += (
        "Of the reproduced 0 stand on the quick scale alone. 0 of the 1 judged (0 of the reproduced) were written, "
    )
    first += "changed or given seeds after a look at some runs, and say so."
    said, table = counted.split("\n\n")
    assert said == f"{first} Of 0 arithmetic rows 0 hold."
    lines = table.splitlines()
    assert lines[0] == "| paper | claims | reproduced | partly | undecided | differs | moot | not run |"
    assert lines[2:] == ["| 2 | measured | 0 | 0 | 1 | 0 | 0 | 1 |"]
    assert "it works" not in text  # claims stand on their own page
    assert line() in (place[1] / "claims.md").read_text().splitlines()


def test_reproduced_rows_of_the_quick_scale_are_counted():
    good = ROW | {"verdict": "reproduced"}
    claims = pd.DataFrame([good | {"scale": "real"}, good | {"kind": "control", "scale": "quick"}])
    for toy in (0, 1, 2):
        more = pd.DataFrame([good | {"scale": "quick"}] * toy)
        assert f"Of the reproduced {toy} stand on" in readme.totals(pd.concat([claims, more]))


def test_judged_rows_that_own_up_to_a_look_are_counted():
    good = ROW | {"verdict": "reproduced", "note": "row added when the runs were known"}
    claims = [
        good,
        good | {"kind": "control"},
        good | {"verdict": "moot"},
        good | {"note": ""},
        good | {"verdict": "differs"},
    ]
    assert "2 of the 3 judged (1 of the reproduced) were written" in readme.totals(pd.DataFrame(claims))


def test_each_paper_has_a_table_of_its_own():
    one = {"paper": 1, "verdict": "partly", "kind": "number"}
    claims = pd.DataFrame([ROW, ROW | one | {"kind": "control"}, ROW | one | {"verdict": "moot"}, ROW | one])
    text = readme.page(claims, pd.DataFrame([CELL]))
    lines = "| 1 | measured | 0 | 1 | 0 | 0 | 1 | 0 |\n| 1 | our controls | 0 | 1 | 0 | 0 | 0 | 0 |\n"
    assert lines + "| 2 | measured | 0 | 0 | 1 | 0 | 0 | 0 |\n" in text
    before, first, second = text.split("\n## Paper ")
    assert (first.count("| it works"), second.count("| it works"), before.count("it works")) == (3, 1, 0)


def test_a_sentence_rests_on_the_verdicts_that_it_names():
    claims, cells = pd.DataFrame([ROW]), pd.DataFrame([CELL])
    assert readme.found("{c: undecided}", claims, cells) == "1.23 [-0.5, 3]"
    assert readme.found("{c: undecided}", claims, pd.DataFrame([CELL, CELL | {"measured": -4}])) == "-4 to 1.23"
    with pytest.raises(BadInput, match="rests on c being 'differs'; it is 'undecided' now: write the sentence anew"):
        readme.found("{c: differs}", claims, cells)
    with pytest.raises(BadInput, match="rests on c being 'not run'"):
        readme.found("{-c.low: not run | .1f}", claims, cells)
    with pytest.raises(BadInput, match="names claim d, which there is none of"):
        readme.found("{d: differs}", claims, cells)


def test_a_number_is_written_with_the_digits_the_sign_and_the_end_that_are_asked_for():
    claims, one = pd.DataFrame([ROW]), pd.DataFrame([CELL])
    two = pd.DataFrame([CELL, CELL | {"measured": -4, "low": -6}])
    assert readme.found("{c: undecided | .1f}", claims, one) == "1.2 [-0.5, 3.0]"
    assert readme.found("{-c: undecided | .2f}", claims, one) == "-1.23 [-3.00, 0.50]"
    assert readme.found("{-c: undecided | .0f}", claims, two) == "-1 to 4"
    assert readme.found("{c: undecided | .0f}", claims, pd.DataFrame([CELL, CELL | {"measured": 1.2}])) == "1"
    assert readme.found("{-c.low: undecided | .1f}", claims, two) == "6.0"
    assert readme.found("{c.high: undecided | .1f}", claims, pd.DataFrame([CELL, CELL | {"high": 7}])) == "7.0"
    share, ends = CELL | {"seeds": 1}, {"low": float("-inf"), "high": float("inf")}
    assert readme.found("{c: undecided | .1f}", claims, pd.DataFrame([share])) == "1.2 [-0.5, 3.0]"
    assert readme.found("{c: undecided | .1f}", claims, pd.DataFrame([share | ends])) == "1.2"


def test_a_sentence_may_rest_on_a_verdict_without_a_number():
    claims, cells = pd.DataFrame([ROW]), pd.DataFrame([CELL])
    assert readme.found("It gains{c: undecided | -}, we think.", claims, cells) == "It gains, we think."
    with pytest.raises(BadInput, match="rests on c being 'reproduced'; it is 'undecided' now"):
        readme.found("It gains{c: reproduced | -}.", claims, cells)


def test_a_sentence_may_rest_on_one_cell_of_a_claim():
    claims = pd.DataFrame([ROW])
    cells = pd.DataFrame([CELL | {"cell": "a/vgg", "verdict": "differs"}, CELL | {"cell": "a/lenet", "measured": -4}])
    assert readme.found("{-c@vgg: differs | .1f}", claims, cells) == "-1.2 [-3.0, 0.5]"
    ways = cells.assign(cell=["a b, blocks, every 150 updates", "a b, blocks, every 50 updates"])
    assert readme.found("{-c@every 150 updates: differs | .1f}", claims, ways) == "-1.2 [-3.0, 0.5]"
    with pytest.raises(BadInput, match="rests on c@vgg being 'undecided'; it is 'differs' now"):
        readme.found("{c@vgg: undecided}", claims, cells)
    nothing = cells[:0]
    with pytest.raises(BadInput, match="names vgg of claim c, which has 0 cells of that name"):
        readme.found("{c@vgg: not run}", pd.DataFrame([ROW | NOT_RUN]), nothing)
    with pytest.raises(BadInput, match="asks for a number of claim c, of which nothing was measured"):
        readme.found("{c: not run}", pd.DataFrame([ROW | NOT_RUN]), nothing)
    with pytest.raises(BadInput, match="names resnet of claim c, which has 0 cells of that name"):
        readme.found("{c@resnet: differs}", claims, cells)


@pytest.mark.parametrize(
    "place", ["{c.mean: undecided}", "{c:undecided}", "{c: Undecided}", "{c: undecided", "c: undecided}"]
)
def test_a_place_that_is_written_in_another_way_is_refused(place: str):
    with pytest.raises(BadInput, match=r"^found\.md has '.*: expected \{claim-id: verdict\} or "):
        readme.found(f"It gains {place} and {{c: undecided}}.", pd.DataFrame([ROW]), pd.DataFrame([CELL]))


def test_check_passes_only_when_both_pages_are_in_step(place: tuple[Path, Path, Path]):
    page, results, _ = place
    with pytest.raises(BadInput, match=r"README\.md is out of step.*python -m lib\.claims"):
        readme.check(*place)
    readme.write(*place)
    readme.check(*place)
    typed = (page, "1 *undecided*", "2 *undecided*"), (results / "claims.md", "**undecided**", "**reproduced**")
    for path, word, other in typed:
        path.write_text(path.read_text().replace(word, other))  # by hand
        with pytest.raises(BadInput, match=f"{path.name} is out of step"):
            readme.check(*place)
        readme.write(*place)
        readme.check(*place)
    write_csv(pd.DataFrame([ROW | {"says": "it works well"}]), results / "claims.csv")  # new results
    with pytest.raises(BadInput, match="out of step"):
        readme.check(*place)


def test_checking_and_writing_twice_leave_the_files_alone(place: tuple[Path, Path, Path]):
    page, results, _ = place
    readme.write(*place)
    written = [path.stat().st_mtime_ns for path in (page, results / "claims.md")]
    readme.write(*place)
    readme.check(*place)
    assert [path.stat().st_mtime_ns for path in (page, results / "claims.md")] == written


@pytest.mark.parametrize(
    "text", ["", TEXT.replace(readme.begin("found"), ""), TEXT.replace(readme.end("counts"), ""), TEXT + TEXT]
)
def test_a_readme_without_its_markers_in_order_is_refused(place: tuple[Path, Path, Path], text: str):
    place[0].write_text(text)
    for action in (readme.write, readme.check):
        with pytest.raises(BadInput, match=r"README\.md must hold the line"):
            action(*place)
    assert place[0].read_text() == text


def test_a_readme_or_verdicts_that_are_not_there_are_refused(place: tuple[Path, Path, Path], tmp_path: Path):
    page, results, template = place
    with pytest.raises(BadInput, match=r"nowhere\.md does not exist"):
        readme.check(tmp_path / "nowhere.md", results, template)
    (results / "claims.csv").unlink()
    with pytest.raises(BadInput, match=r"claims\.csv is absent"):
        readme.check(page, results, template)


def test_every_column_the_tables_use_is_one_that_claims_writes():
    assert set(ROW) == {*CLAIMS, "scale", "kind", "criterion", "note"}


def test_results_elsewhere_are_told_in_their_own_folder_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """And README tells of this checkout's."""
    asked = []
    monkeypatch.setattr(program, "write_all", lambda results, page: asked.append(page))
    for results in (base.RESULTS, Path("results"), tmp_path):
        monkeypatch.chdir(base.ROOT)
        program.main(["--results", str(results)])
    assert asked == [base.README, base.README, None]
    write_csv(pd.DataFrame([ROW]), tmp_path / "claims.csv")
    write_csv(pd.DataFrame([CELL]), tmp_path / "quick" / "cells.csv")
    before = base.README.read_bytes()
    readme.write(None, tmp_path)
    assert "it works" in (tmp_path / "claims.md").read_text()
    assert base.README.read_bytes() == before
    readme.check(None, tmp_path)


def test_a_table_of_verdicts_that_is_absent_or_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(program, "scorecard", lambda *given: pd.DataFrame([ROW | {"verdict": "moot"}]))
    with pytest.raises(BadInput, match=rf"^{tmp_path}/claims\.csv is not there; python -m lib\.claims$"):
        program.check(None, tmp_path)
    write_csv(pd.DataFrame([ROW]), tmp_path / "claims.csv")
    with pytest.raises(BadInput, match=rf"^{tmp_path}/claims\.csv is out of step with the verdicts of a scale"):
        program.check(None, tmp_path)


def test_a_reason_without_a_criterion_is_refused(capsys: pytest.CaptureFixture):
    with pytest.raises(SystemExit) as stop:
        program.main(["--because", "it was wrong"])
    assert (stop.value.code, capsys.readouterr().err) == (
        2,
        "lib.claims: --because says why criteria were changed: it needs --written\n",
    )


def test_what_was_found_of_paper_3_says_the_schedule_of_its_runs():
    runs, words = read_runs("skdfe", "real"), {2: "two", 5: "five", 8: "eight", 12: "twelve"}
    longest = runs[(runs.epoch == runs.epoch.max()) & (runs.distillation == "both")]
    of_deeper = runs.epoch[runs.network == "resnet50"].max()
    epochs, seeds, deeper = (
        words.get(count, str(count)) for count in (runs.epoch.max(), longest.seed.nunique(), of_deeper)
    )
    found = readme.FOUND.read_text()
    assert f"{epochs} epochs, half the width, {seeds} seeds" in found
    plain = runs[(runs.network == "resnet34") & (runs.teacher == "self") & (runs.distillation == "none")]
    plain = plain[plain.epoch == plain.epoch.max()]
    assert plain.epoch.max() == runs.epoch.max()
    assert f"ResNet34 ({words[plain.seed.nunique()]} seeds) makes" in found
    by_50 = words[runs.seed[runs.network == "resnet50"].nunique()]
    assert f"ResNet50, after {deeper} epochs ({by_50} seeds), " in found
