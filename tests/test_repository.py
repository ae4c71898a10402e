"""What must hold for every committed file."""

import hashlib
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from lib import paths
from lib.claims import papers, readme
from lib.claims.judge import judge
from lib.results import read_claims, write_csv
from lib.settings import SCALES


def tracked() -> list[Path]:
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(words, cwd=paths.ROOT, capture_output=True, text=True, check=True)
    return [paths.ROOT / name for name in done.stdout.splitlines() if (paths.ROOT / name).is_file()]


def test_no_file_is_larger_than_two_megabytes():
    assert [path.name for path in tracked() if path.stat().st_size > 2_000_000] == []


def test_no_file_names_a_folder_of_this_machine():
    here = [str(paths.ROOT), str(Path.home()) + "/"]
    found = [p.name for p in tracked() if any(name in p.read_bytes().decode("latin-1") for name in here)]
    assert found == []


def test_readmes_table_of_claims_is_in_step():
    readme.check()


@pytest.mark.parametrize("scale", [s for s in SCALES if (paths.RESULTS / s / "claims.csv").exists()])
def test_verdicts_are_those_of_the_committed_runs(scale: str, tmp_path: Path):
    write_csv(judge(papers.read(), scale), tmp_path / "claims.csv")
    assert (tmp_path / "claims.csv").read_text() == (paths.RESULTS / scale / "claims.csv").read_text()


def test_no_claim_asks_for_what_complete_runs_do_not_have():
    """A partial sweep may lack a variant; in the quick scale's, which are whole, it is misspelt in lib/papers/."""
    reasons = read_claims("quick", paths.RESULTS).why
    assert [why for why in reasons if " at the quick scale: " in why] == []


@pytest.mark.parametrize("path", sorted(paths.RESULTS.glob("real/runs/*.csv")), ids=lambda path: path.stem)
def test_a_real_run_says_where_it_comes_from(path: Path):
    origin = yaml.safe_load(path.with_suffix(".provenance.yaml").read_text())
    assert origin["experiment"] == path.stem
    assert origin["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert int(origin["configurations"].split()[0]) == sum(len(part["finished"]) for part in origin["parts"])
    for part in origin["parts"]:
        assert {"commit", "source_hash", "versions", "device", "processes", "seconds"} <= set(part)


def test_readmes_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)\)", paths.README.read_text())
    assert [t for t in targets if not t.startswith("http") and not (paths.ROOT / t).exists()] == []


def test_readmes_python_runs_as_it_stands(capsys: pytest.CaptureFixture):
    blocks = re.findall(r"```python\n(.*?)```", paths.README.read_text(), re.DOTALL)
    printed = []
    for block in blocks:
        exec(block, {})
        printed.append(capsys.readouterr().out)
    for text, word in zip(printed, ("total", "use", "kept_after"), strict=True):
        assert word in text
        assert "conv1.weight" in text  # a row a layer


@pytest.mark.parametrize("folder", ["lib", "tests"])
def test_no_source_file_is_much_longer_than_400_lines(folder: str):
    long = {p.name: n for p in (paths.ROOT / folder).rglob("*.py") if (n := len(p.read_text().splitlines())) > 430}
    assert long == {}
