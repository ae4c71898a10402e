"""Papers are data: read, checked, and refused in one line when they are not as they should be."""

import importlib
import re
from pathlib import Path

import pytest
import yaml

from lib import base
from lib.base import BadInput
from lib.bench import __main__ as bench
from lib.companion.claims import papers
from lib.companion.sweep.grid import names

CLAIM = {
    "id": "c",
    "where": "section 1",
    "says": "it works",
    "printed": "44 %",
    "kind": "relation",
    "measure": {"function": "saved", "form": "two_four", "value_bits": 16},
    "holds_if": {"at_least": 1},
}
PAPER = {"paper": 7, "title": "t", "authors": "a", "year": 2021, "address": "https://x", "data": ["imagenet"]}


def write(folder: Path, name: str = "p", claims: list | None = None, **change) -> Path:
    (folder / name).mkdir(parents=True, exist_ok=True)
    content = PAPER | {"claims": [CLAIM] if claims is None else claims} | change
    (folder / name / "claims.yaml").write_text(yaml.safe_dump(content))
    return folder


def refused(folder: Path) -> str:
    with pytest.raises(BadInput) as error:
        papers.read(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_papers_come_in_the_order_of_their_numbers(tmp_path: Path):
    write(tmp_path, "a", paper=9)
    write(tmp_path, "b", paper=2, claims=[CLAIM | {"id": "d"}])
    read = papers.read(tmp_path)
    assert [(paper.paper, paper.claims[0].id) for paper in read] == [(2, "d"), (9, "c")]
    assert read[1].claims[0].measure["value_bits"] == 16
    assert read[1].data == ("imagenet",)
    assert [paper.name for paper in read] == ["b", "a"]  # their folders


def test_a_claim_that_was_not_run_gives_a_reason_and_no_measure(tmp_path: Path):
    bare = {name: CLAIM[name] for name in ("id", "where", "says", "printed", "kind")}
    claim = papers.read(write(tmp_path, claims=[bare | {"not_run": "needs a GPU"}]))[0].claims[0]
    assert (claim.not_run, claim.measure, claim.holds_if) == ("needs a GPU", {}, {})
    assert "not_run says there is no measure" in refused(write(tmp_path, claims=[CLAIM | {"not_run": "needs a GPU"}]))
    assert "claim c: measure needs a function, or not_run a reason" in refused(write(tmp_path, claims=[bare]))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"kind": "relaton"}, "p/claims.yaml.claims[0]: claim c: kind 'relaton': known are relation, number"),
        ({"printed": 44}, "p/claims.yaml.claims[0].printed: expected str, found 44"),
        (
            {"measure": {"function": "speedup", "bench": "two_four_gemm"}},
            "claim c: a benchmark names a device, cpu or cuda, and judges relations, not numbers",
        ),
        (
            {"holds_if": {}},
            "p/claims.yaml.claims[0]: claim c: criterion {}: expected one of at_least, at_most, above, below,",
        ),
        ({"holds_if": {"between": [2, 1]}}, "claim c: criterion {'between': [2, 1]}: the lower number comes first"),
        ({"verdict": "reproduced"}, "p/claims.yaml.claims[0]: unknown setting 'verdict'"),  # never typed
    ],
)
def test_a_claim_that_is_not_right_is_refused_with_its_place(tmp_path: Path, change: dict, line: str):
    assert line in refused(write(tmp_path, claims=[CLAIM | change]))


def test_a_claim_without_a_part_is_refused(tmp_path: Path):
    assert "claims[0]: setting 'says' is missing" in refused(
        write(tmp_path, claims=[{name: part for name, part in CLAIM.items() if name != "says"}])
    )


def test_two_claims_with_one_id_are_refused_even_in_two_papers(tmp_path: Path):
    write(tmp_path, "a")
    assert "claim c stands twice" in refused(write(tmp_path, "b", paper=8))


def test_a_file_that_is_not_yaml_is_refused(tmp_path: Path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "claims.yaml").write_text("claims: [\n - x: y: z")
    assert refused(tmp_path).startswith("p/claims.yaml, line 2 is not YAML: ")


@pytest.mark.parametrize("row", [[], [1], [1, 2, 3]])
def test_a_row_of_a_printed_table_has_a_cell_for_each_column(tmp_path: Path, row: list):
    table = {"id": "table 2", "caption": "c", "columns": ["network", "dense"], "rows": [["a", None], row]}
    line = refused(write(tmp_path, tables=[table]))
    assert line.startswith("p/claims.yaml.tables[0]: table 2: ")
    assert f"has {len(row)} cells, not 2" in line


def test_the_projects_own_papers_are_right_and_name_measures_and_experiments_that_exist():
    claims = [(paper, claim) for paper in papers.read() for claim in paper.claims]
    assert len(claims) > 0
    for paper, claim in claims:
        if not claim.not_run:
            measures = importlib.import_module(f"lib.papers.{paper.name}.measures")
            assert callable(getattr(measures, claim.measure["function"])), claim.id
            assert claim.measure.get("run") in (None, *names()), claim.id
            assert claim.measure.get("bench") in (None, *bench.names()), claim.id
    assert len(papers.read()) == len(list(base.PAPERS.glob("*/claims.yaml")))


@pytest.mark.parametrize("data", ["mnist", True, [1.5]])
def test_data_of_a_claim_are_a_list_of_names(tmp_path: Path, data: object):
    line = refused(write(tmp_path, claims=[CLAIM | {"measure": CLAIM["measure"] | {"run": "rl", "data": data}}]))
    assert line.endswith(f"claim c: data {data!r}: expected a list of names, such as [mnist]")


def test_a_claim_that_presupposes_none_of_its_paper_is_refused(tmp_path: Path):
    line = refused(write(tmp_path, claims=[CLAIM | {"presupposes": "d"}]))
    assert "claim c presupposes 'd', which is no claim of its paper" in line
    line = refused(write(tmp_path, claims=[CLAIM, CLAIM | {"id": "e", "presupposes": ["c", "d"]}]))
    assert "claim e presupposes 'd'" in line


def test_a_claim_presupposes_one_or_several_and_comes_after_them(tmp_path: Path):
    claims = [CLAIM | {"presupposes": ["d", "e"]}, CLAIM | {"id": "d"}, CLAIM | {"id": "e", "presupposes": "d"}]
    (paper,) = papers.read(write(tmp_path, claims=claims))
    assert [claim.presupposes for claim in paper.claims] == [("d", "e"), (), ("d",)]
    assert [claim.id for claim in papers.grounds_first(paper)] == ["d", "e", "c"]


def test_claims_that_presuppose_each_other_are_refused(tmp_path: Path):
    claims = [CLAIM | {"presupposes": "d"}, CLAIM | {"id": "d", "presupposes": "c"}]
    assert re.search("claim [cd] presupposes itself: ", refused(write(tmp_path, claims=claims)))


def test_only_runs_have_a_ceiling_or_a_cap(tmp_path: Path):
    for change in ({"ceiling": 100}, {"caps": [30]}):
        assert "a ceiling or a cap is one of runs" in refused(write(tmp_path, claims=[CLAIM | change]))
        measured = CLAIM | {"measure": CLAIM["measure"] | {"run": "rl"}} | change
        assert papers.read(write(tmp_path, claims=[measured]))
