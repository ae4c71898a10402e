"""What must hold for every committed file."""

import re
import subprocess
from pathlib import Path

import pytest

from lib import paths
from lib.claims import readme


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


def test_readmes_links_lead_somewhere():
    targets = re.findall(r"\]\(([^)#]+)\)", paths.README.read_text())
    assert [t for t in targets if not t.startswith("http") and not (paths.ROOT / t).exists()] == []


def test_readmes_python_runs_as_it_stands(capsys: pytest.CaptureFixture):
    blocks = re.findall(r"```python\n(.*?)```", paths.README.read_text(), re.DOTALL)
    assert len(blocks) == 1
    exec(blocks[0], {})
    assert "total" in capsys.readouterr().out


@pytest.mark.parametrize("folder", ["lib", "tests"])
def test_no_source_file_is_much_longer_than_400_lines(folder: str):
    long = {p.name: n for p in (paths.ROOT / folder).rglob("*.py") if (n := len(p.read_text().splitlines())) > 430}
    assert long == {}
