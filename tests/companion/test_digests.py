"""A table of verdicts says which run files it was computed from."""

import hashlib
from pathlib import Path

from lib.companion.digests import digests


def test_each_run_file_of_a_scale_has_its_sha256(tmp_path: Path):
    runs = tmp_path / "real" / "runs"
    runs.mkdir(parents=True)
    (runs / "b.csv").write_text("seed\n0\n")
    (runs / "a.csv").write_text("seed\n")
    (runs / "a.provenance.yaml").write_text("scale: real\n")
    found = digests("real", tmp_path)
    assert list(found) == ["a", "b"]
    assert found["b"] == hashlib.sha256(b"seed\n0\n").hexdigest()
    (runs / "b.csv").write_text("seed\n1\n")
    assert digests("real", tmp_path)["b"] != found["b"]


def test_a_scale_without_runs_has_none(tmp_path: Path):
    assert digests("paper", tmp_path) == {}
