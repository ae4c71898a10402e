"""What must hold for every committed file."""

import hashlib
import re
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml

from lib import base
from lib.companion.claims import papers, readme
from lib.companion.claims.judge import judge
from lib.companion.csv_files import write_csv
from lib.companion.results import read_cells, read_claims, read_costs, read_scorecard
from lib.companion.statistics import DIFFERS, MOOT, NOT_RUN, UNDECIDED
from lib.companion.sweep.settings import SCALES


def tracked() -> list[Path]:
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(words, cwd=base.ROOT, capture_output=True, text=True, check=True)
    return [base.ROOT / name for name in done.stdout.splitlines() if (base.ROOT / name).is_file()]


def test_no_file_is_larger_than_two_megabytes():
    assert [path.name for path in tracked() if path.stat().st_size > 2_000_000] == []


def test_no_file_names_a_folder_of_this_machine():
    here = [rf"{re.escape(str(base.ROOT))}\b"] if len(base.ROOT.parts) > 2 else []  # "/data" may be meant otherwise
    here += [re.escape(f"{Path.home()}/")] if len(Path.home().parts) > 1 else []
    named = re.compile("|".join(here) or "(?!)")
    found = [p.name for p in tracked() if named.search(p.read_bytes().decode("latin-1"))]
    assert found == []


def test_readme_and_the_page_of_claims_are_in_step():
    readme.check()


@pytest.mark.parametrize("scale", [s for s in SCALES if (base.RESULTS / s / "claims.csv").exists()])
def test_verdicts_are_those_of_the_committed_runs(scale: str, tmp_path: Path):
    for name, table in zip(("claims.csv", "cells.csv"), judge(papers.read(), scale), strict=True):
        write_csv(table, tmp_path / name)
        assert (tmp_path / name).read_text() == (base.RESULTS / scale / name).read_text()


def test_readme_can_be_read_at_one_sitting():
    assert base.README.stat().st_size <= 15_000


def test_neither_readme_nor_the_page_of_claims_shows_one_cell_for_several():
    """Each of a claim's networks and environments stands on the page with its own numbers."""
    page = (base.RESULTS / "claims.md").read_text()
    scorecard = read_scorecard()
    several = scorecard[pd.to_numeric(scorecard.cells) > 1]
    assert len(several) > 0
    cells = read_cells(scorecard)
    for claim in several.itertuples():
        (line,) = (text for text in page.splitlines() if f"`{claim.id}`" in text)
        assert [name for name in cells.cell[cells.id == claim.id] if f"{name}: " not in line] == [], claim.id


def test_no_verdict_rests_on_an_interval_without_width_or_on_what_does_not_hold():
    scorecard, cells = read_scorecard(), read_cells(read_scorecard())
    claims = {claim.id: claim for paper in papers.read() for claim in paper.claims}
    kinds = cells.id.map(lambda name: claims[name].kind)
    flat = cells[(cells.seeds > 1) & (cells.low == cells.high) & (kinds != "arithmetic")]
    assert set(flat.verdict) <= {UNDECIDED, MOOT}
    verdicts = scorecard.set_index("id").verdict
    for claim in claims.values():
        for scale in SCALES:
            if (base.RESULTS / scale / "claims.csv").exists():
                rows = read_claims(scale).set_index("id")
                if any(rows.verdict[ground] == DIFFERS and rows.cells[ground] == "1" for ground in claim.presupposes):
                    assert rows.verdict[claim.id] in (MOOT, NOT_RUN), claim.id
    assert MOOT in set(verdicts)


def test_no_claim_asks_for_what_complete_runs_do_not_have():
    """A partial sweep may lack a variant, and the quick scale may leave one to the real one; what neither has is
    misspelt in lib/papers/.
    """
    reasons, real = (read_claims(scale, base.RESULTS).set_index("id") for scale in ("quick", "real"))
    lacking = reasons.why[reasons.why.str.contains(" at the quick scale: ")]
    assert lacking[real.verdict[lacking.index] == "not run"].to_dict() == {}


@pytest.mark.parametrize("path", sorted(base.RESULTS.glob("real/runs/*.csv")), ids=lambda path: path.stem)
def test_a_real_run_says_where_it_comes_from(path: Path):
    origin = yaml.safe_load(path.with_suffix(".provenance.yaml").read_text())
    assert origin["experiment"] == path.stem
    assert origin["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert int(origin["configurations"].split()[0]) == sum(len(part["finished"]) for part in origin["parts"])
    for part in origin["parts"]:
        assert {"commit", "source_hash", "versions", "device", "processes", "seconds"} <= set(part)


def test_readmes_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)\)", base.README.read_text())
    assert [t for t in targets if not t.startswith("http") and not (base.ROOT / t).exists()] == []


def test_readmes_python_runs_as_it_stands(capsys: pytest.CaptureFixture):
    blocks = re.findall(r"```python\n(.*?)```", base.README.read_text(), re.DOTALL)
    printed = []
    for block in blocks:
        exec(block, {})
        printed.append(capsys.readouterr().out)
    for text, word in zip(printed, ("total", "use", "total"), strict=True):
        assert word in text
        assert "conv1.weight" in text  # a row a layer


@pytest.mark.parametrize("folder", ["lib", "tests"])
def test_no_source_file_is_much_longer_than_400_lines(folder: str):
    long = {p.name: n for p in (base.ROOT / folder).rglob("*.py") if (n := len(p.read_text().splitlines())) > 430}
    assert long == {}


def test_readme_says_how_many_core_hours_the_real_scale_has_taken():
    hours = read_costs("real").core_hours.sum()
    (said,) = re.findall(r"(\d+) core-hours so far", (base.ROOT / "README.md").read_text())
    assert int(said) == pytest.approx(hours, rel=0.05)
