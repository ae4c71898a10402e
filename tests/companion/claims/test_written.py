"""A criterion that is changed after its result shows: beside it stand its commit, its checksum and then a reason."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from lib.base import BadInput
from lib.companion.claims import judge, papers, program, written

TEXT = """paper: 7
title: t
authors: a
year: 2021
address: https://x
data: [digits]
claims:
  - id: first
    where: section 1
    says: it works
    printed: no number
    measure: {function: gain, run: own_first, share: 0.5}
    holds_if: {at_least: -0.3} # points
    kind: relation
    presupposes: second

  - id: second
    where: section 2
    says: it learns
    printed: no number
    measure: {function: gain, run: own_first}
    holds_if: {above: 0}
    kind: relation

  - id: third
    where: section 3
    says: it scales
    printed: no number
    kind: number
    not_run: needs a GPU
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "claims.yaml").write_text(TEXT)
    monkeypatch.setattr(written, "commit", lambda: "1234567")
    monkeypatch.setattr(program, "refuse_misspelt", lambda paper, ids: None)  # the toy has neither measures nor runs
    return tmp_path


def lines(folder: Path) -> list[str]:
    return [line.strip() for line in text(folder).splitlines() if "criterion:" in line]


def text(folder: Path) -> str:
    return (folder / "own" / "claims.yaml").read_text()


def change(folder: Path, old: str, new: str) -> None:
    assert old in text(folder)
    (folder / "own" / "claims.yaml").write_text(text(folder).replace(old, new, 1))


def test_the_command_writes_one_line_a_measured_claim_and_nothing_else(folder: Path, capsys: pytest.CaptureFixture):
    program.write_criteria(folder=folder)
    assert capsys.readouterr().out == "2 criteria written at 1234567: first, second\n"
    assert all(re.fullmatch(r'criterion: \{written_at: "1234567", checksum: "[0-9a-f]{8}"\}', x) for x in lines(folder))
    assert re.sub(r" *criterion: .*\n", "", text(folder)) == TEXT
    before = text(folder)
    program.write_criteria(because="none is needed", folder=folder)
    assert text(folder) == before
    assert [claim.criterion is None for claim in papers.read(folder)[0].claims] == [False, False, True]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("at_least: -0.3", "at_least: -1.0"),
        ("at_least: -0.3", "at_most: -0.3"),
        ("share: 0.5", "share: 0.9"),
        ("    presupposes: second\n", ""),
        ("    presupposes: second\n", "    presupposes: second\n    ceiling: 100\n"),
        ("    presupposes: second\n", "    presupposes: second\n    caps: [30]\n"),
        ("    presupposes: second\n", "    presupposes: second\n    data: [cifar10]\n"),
        ("kind: relation", "kind: control"),
    ],
)
def test_a_loosened_criterion_is_refused_until_a_reason_stands_beside_it(folder: Path, old: str, new: str, monkeypatch):
    program.write_criteria(folder=folder)
    papers.read(folder)
    change(folder, old, new)
    with pytest.raises(BadInput, match=r"claim first: its criterion is not the one that was written at 1234567; a ch"):
        papers.read(folder)
    with pytest.raises(BadInput, match=r"claim first: its criterion was changed; say why: python -m lib.claims --wri"):
        program.write_criteria(folder=folder)
    monkeypatch.setattr(written, "commit", lambda: "89abcde")
    program.write_criteria(because='"0.3" was a slip', folder=folder)
    (first, second, _) = papers.read(folder)[0].claims
    assert (first.criterion.written_at, first.criterion.because) == ("89abcde", '"0.3" was a slip')
    assert (second.criterion.written_at, second.criterion.because) == ("1234567", "")


def test_the_papers_own_data_decide_too_because_on_others_no_number_is_judged(folder: Path):
    program.write_criteria(folder=folder)
    change(folder, "\ndata: [digits]", "\ndata: [cifar10]")
    with pytest.raises(BadInput, match="claim first: its criterion is not the one that was written"):
        papers.read(folder)


def test_the_reason_of_an_earlier_change_stays(folder: Path):
    program.write_criteria(folder=folder)
    for old, new, why in (("-0.3", "-0.5", "it was too strict"), ("-0.5", "-0.4", "it was too loose")):
        change(folder, f"at_least: {old}", f"at_least: {new}")
        program.write_criteria(because=why, folder=folder)
    (first, _, _) = papers.read(folder)[0].claims
    assert first.criterion.because == "it was too loose; before that: it was too strict"


@pytest.mark.parametrize(
    ("old", "new"), [('written_at: "1234567"', 'written_at: "7654321"'), ('"}', '", because: "so"}')]
)
def test_neither_commit_nor_reason_is_changed_by_hand(folder: Path, old: str, new: str):
    program.write_criteria(folder=folder)
    change(folder, old, new)
    with pytest.raises(BadInput, match="claim first: its criterion is not the one"):
        papers.read(folder)


def test_words_may_change_without_a_reason(folder: Path):
    program.write_criteria(folder=folder)
    change(folder, "says: it works", "says: it works well")
    change(folder, "printed: no number", "printed: 5 points")
    papers.read(folder)


def test_a_reason_is_shown_with_the_verdict(folder: Path, tmp_path: Path):
    program.write_criteria(folder=folder)
    change(folder, "above: 0", "above: -1")
    program.write_criteria(because="noise", folder=folder)
    claims, _ = judge.judge(papers.read(folder), "quick", tmp_path)
    assert claims.note.tolist() == ["", "the criterion was changed: noise", ""]


def test_the_projects_own_criteria_are_all_written():
    for paper in papers.read():  # which refuses those that were changed
        assert [claim.id for claim in paper.claims if claim.measure and claim.criterion is None] == []


def test_a_paper_without_such_lines_is_read_all_the_same(folder: Path):
    assert [claim.criterion for claim in papers.read(folder)[0].claims] == [None] * 3
    assert yaml.safe_load(TEXT)["claims"][0]["id"] == "first"


@pytest.mark.parametrize("apart", ["moved", "two lines"])
def test_a_criterion_that_stands_elsewhere_is_refused_and_nothing_is_written(folder: Path, apart: str):
    program.write_criteria(folder=folder)
    line = next(line for line in text(folder).splitlines(keepends=True) if "criterion:" in line)
    if apart == "moved":
        change(folder, line, "")
        change(folder, "    kind: relation\n", "    kind: relation\n" + line)
    else:
        change(folder, line, line.replace(", checksum", ",\n      checksum"))
    change(folder, "at_least: -0.3", "at_least: -1.0")
    before = text(folder)
    with pytest.raises(BadInput, match=r"claim first: expected one line '- id: first', .*right below it the criterion"):
        program.write_criteria(because="why", folder=folder)
    assert text(folder) == before


def test_a_reason_that_no_file_can_hold_is_refused(folder: Path):
    with pytest.raises(BadInput, match="expected one line of text"):
        program.write_criteria(because="why\x85", folder=folder)


def test_a_part_that_has_no_checksum_is_refused(folder: Path):
    change(folder, "share: 0.5", "since: 2020-01-01")
    with pytest.raises(BadInput, match="claim first: expected texts, numbers, lists and mappings alone"):
        program.write_criteria(folder=folder)


def test_to_delete_the_line_of_a_committed_criterion_is_no_way_round_a_reason(folder: Path):
    program.write_criteria(folder=folder)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    kept = text(folder)
    without = re.sub(r" *criterion: .*\n", "", kept, count=1)
    (folder / "own" / "claims.yaml").write_text(without)
    program.write_criteria(folder=folder)
    assert text(folder) == kept
    (folder / "own" / "claims.yaml").write_text(without.replace("at_least: -0.3", "at_least: -0.5"))
    with pytest.raises(BadInput, match="claim first: its criterion was changed; say why"):
        program.write_criteria(folder=folder)
    program.write_criteria(because="it was too strict", folder=folder)
    assert papers.read(folder)[0].claims[0].criterion.because == "it was too strict"


def test_a_deleted_line_comes_back_with_its_commit_and_its_reason(folder: Path, monkeypatch: pytest.MonkeyPatch):
    program.write_criteria(folder=folder)
    path = folder / "own" / "claims.yaml"
    path.write_text(text(folder).replace("at_least: -0.3", "at_least: -0.5"))
    program.write_criteria(because="it was too strict", folder=folder)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    kept = text(folder)
    path.write_text(re.sub(r" *criterion: .*\n", "", kept, count=1))
    monkeypatch.setattr(written, "commit", lambda: "7654321")
    program.write_criteria(folder=folder)
    assert text(folder) == kept
    assert "because" in kept


@pytest.mark.parametrize(
    "draft",
    [
        "",
        "paper: 7\n",
        "claims:\n",
        "claims: [\n",
        "claims: [null]\n",
        "claims: [{id: first, criterion: {written_at: abc}}]\n",
        "claims: [{id: first, criterion: 3}]\n",
        "- a list\n",
    ],
)
def test_a_draft_that_was_committed_held_no_criterion(folder: Path, draft: str):
    (folder / "own" / "claims.yaml").write_text(draft)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "m"]):
        subprocess.run([*git, *words], cwd=folder, check=True)
    (folder / "own" / "claims.yaml").write_text(TEXT)
    program.write_criteria(folder=folder)
    assert len(lines(folder)) == 2


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"function": "gian"}, "claim npn-gates-split: no measure 'gian' in lib/papers/npn/measures.py"),
        ({"run": "npn_abaltions"}, "claim npn-gates-split: no experiment 'npn_abaltions'; there are: gst_bc, "),
    ],
)
def test_a_misspelt_function_or_run_is_refused_before_its_criterion_is_written(changed: dict, line: str):
    paper = next(one for one in papers.read() if one.name == "npn")
    claims = [
        replace(claim, measure=claim.measure | changed) if claim.id == "npn-gates-split" else claim
        for claim in paper.claims
    ]
    judge.refuse_misspelt(paper, [claim.id for claim in paper.claims])
    judge.refuse_misspelt(replace(paper, claims=claims), ["npn-tau-size"])  # it has its criterion: the judge says more
    with pytest.raises(BadInput, match=line):
        judge.refuse_misspelt(replace(paper, claims=claims), ["npn-gates-split"])
