"""README's table of claims: computed, between its markers, and never out of step without being caught."""

from pathlib import Path

import pandas as pd
import pytest

from lib.claims import readme
from lib.claims.judge import COLUMNS
from lib.claims.readme import BEGIN, END
from lib.errors import BadInput
from lib.results import write_csv

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
    "data": "digits (stand-in)",
    "verdict": "undecided",
    "why": "digits/a: 1.234",
    "scale": "quick",
    "kind": "relation",
    "criterion": "at least 0",
    "note": "",
}
NOT_RUN = dict.fromkeys(("measured", "low", "high", "seeds", "data", "scale"), "") | {
    "verdict": "not run",
    "why": "why",
    "criterion": "",
}


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """A README with an empty table, and results with one claim that has a verdict."""
    page = tmp_path / "README.md"
    page.write_text(f"# Title\n\n{BEGIN}\n{END}\n\nAfter.\n")
    write_csv(pd.DataFrame([ROW, ROW | NOT_RUN | {"id": "d"}]), tmp_path / "claims.csv")
    return page, tmp_path


def line(**change) -> str:
    return readme.table(pd.DataFrame([ROW | change])).splitlines()[2]


def test_a_claim_is_a_line_with_its_verdict_interval_and_scale():
    start, end = "| 2 | it works (table 2) | 44 % | 1.23 [-0.50, 3.00], 5 seeds |", "| quick, digits (stand-in) |"
    assert line() == f"{start} at least 0 | **undecided** {end}"
    assert line(note="seen before") == f"{start} at least 0 (seen before) | **undecided** {end}"


def test_what_is_exact_has_no_interval_and_neither_has_one_seed():
    assert "| 43.75 | at least 0 | **reproduced** | quick |" in line(
        measured=43.75, seeds=0, data="", verdict="reproduced"
    )
    single = line(low=float("-inf"), high=float("inf"), seeds=1)
    assert "| 1.23 (one seed: no interval) |" in single


def test_what_was_not_run_shows_the_reason_and_no_numbers():
    assert line(**NOT_RUN) == "| 2 | it works (table 2) | 44 % |  |  | not run: why |  |"


def test_a_bar_in_a_text_does_not_split_its_cell():
    assert r"a \| b" in line(says="a | b")


def test_writing_changes_only_what_is_between_the_markers(place: tuple[Path, Path]):
    readme.write(*place)
    before, rest = place[0].read_text().split(BEGIN)
    between, after = rest.split(END)
    assert (before, after) == ("# Title\n\n", "\n\nAfter.\n")
    lines = between.strip().splitlines()
    assert lines[0] == "| paper | claims | reproduced | partly | undecided | differs | not run |"
    assert lines[2] == "| 2 | measured | 0 | 0 | 1 | 0 | 1 |"
    assert lines[4] == "<details><summary>Paper 2: 2 claims</summary>"
    assert lines[6] == "| paper | claim | printed | measured | criterion | verdict | scale, data |"
    assert lines[8] == line()
    assert lines[-1] == "</details>"
    assert len(lines) == 12


def test_each_paper_has_a_table_of_its_own():
    one = {"paper": 1, "verdict": "partly", "kind": "number"}
    claims = pd.DataFrame([ROW, ROW | one | {"kind": "control"}, ROW | one | {"verdict": "differs"}, ROW | one])
    text = readme.tables(claims)
    lines = "| 1 | measured | 0 | 1 | 0 | 1 | 0 |\n| 1 | our controls | 0 | 1 | 0 | 0 | 0 |\n"
    assert lines + "| 2 | measured | 0 | 0 | 1 | 0 | 0 |\n" in text
    first, second = text.split("<details>")[1:]
    assert first.count("| 1 | it works") == 3
    assert second.count("| 2 | it works") == 1
    assert "it works" not in text.split("<details>")[0]


def test_check_passes_only_when_the_table_is_in_step(place: tuple[Path, Path]):
    page, results = place
    with pytest.raises(BadInput, match=r"out of step.*python -m lib\.claims --readme"):
        readme.check(page, results)
    readme.write(page, results)
    readme.check(page, results)
    page.write_text(page.read_text().replace("**undecided**", "**reproduced**"))  # by hand
    with pytest.raises(BadInput, match="out of step"):
        readme.check(page, results)
    readme.write(page, results)
    readme.check(page, results)
    write_csv(pd.DataFrame([ROW | {"verdict": "differs"}]), results / "claims.csv")  # new results
    with pytest.raises(BadInput, match="out of step"):
        readme.check(page, results)


def test_the_table_survives_writing_and_reading_the_verdicts(place: tuple[Path, Path]):
    page, results = place
    write_csv(pd.DataFrame([ROW]), results / "claims.csv")  # a column of numbers alone, no empty cells
    readme.write(page, results)
    alone = page.read_text()
    assert line() in alone
    write_csv(pd.DataFrame([ROW, ROW | NOT_RUN]), results / "claims.csv")
    readme.write(page, results)
    assert line() in page.read_text()


def test_checking_and_writing_twice_leave_the_file_alone(place: tuple[Path, Path]):
    page, results = place
    readme.write(page, results)
    written = page.stat().st_mtime_ns
    readme.write(page, results)
    readme.check(page, results)
    assert page.stat().st_mtime_ns == written


@pytest.mark.parametrize(
    "text", ["", BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}\n{BEGIN}\n{END}", f"{BEGIN}\n{END}\n{END}"]
)
def test_a_readme_without_its_two_markers_in_order_is_refused(place: tuple[Path, Path], text: str):
    place[0].write_text(text)
    for action in (readme.write, readme.check):
        with pytest.raises(BadInput, match=r"README\.md must hold the line"):
            action(*place)
    assert place[0].read_text() == text


def test_a_readme_or_verdicts_that_are_not_there_are_refused(place: tuple[Path, Path], tmp_path: Path):
    page, results = place
    with pytest.raises(BadInput, match=r"nowhere\.md does not exist"):
        readme.check(tmp_path / "nowhere.md", results)
    (results / "claims.csv").unlink()
    with pytest.raises(BadInput, match=r"claims\.csv is absent"):
        readme.check(page, results)


def test_every_column_the_table_uses_is_one_that_claims_writes():
    assert set(ROW) == {*COLUMNS, "scale", "kind", "criterion", "note"}
