"""What was run once is not run again: today's sources and settings find every committed configuration."""

import functools
from pathlib import Path

import pandas as pd
import pytest
import yaml

from lib import base
from lib.companion.csv_files import write_csv
from lib.companion.sweep import provenance
from lib.companion.sweep.grid import grid

laid = functools.cache(lambda name: grid(name, "real"))
CSVS = sorted((base.RESULTS / "real" / "runs").glob("*.csv"))


def finished(csv: Path) -> int:
    """How many configurations a run file's provenance names."""
    return sum(len(part["finished"]) for part in yaml.safe_load(provenance.beside(csv).read_text())["parts"])


def test_there_are_committed_runs_to_look_at():
    assert len(CSVS) >= 11


@pytest.mark.parametrize("csv", CSVS, ids=lambda csv: csv.stem)
def test_every_committed_configuration_is_found_and_its_parts_stay_as_they_are(csv: Path, tmp_path: Path):
    work = laid(csv.stem)
    entries, parts = provenance.resume(csv, work, others=True)
    assert len(entries) == finished(csv) > 0
    assert parts == yaml.safe_load(provenance.beside(csv).read_text())["parts"]
    rows = [row for entry in entries.values() for row in entry["rows"]]
    write_csv(work.table(rows), tmp_path / csv.name)
    again, committed = (provenance.read_rows(path, work) for path in (tmp_path / csv.name, csv))
    expected = committed.sort_values(list(work.index), kind="stable", ignore_index=True)
    pd.testing.assert_frame_equal(again, expected, check_exact=True)
    same_columns = committed.shape[1] == len(csv.read_text().split("\n", 1)[0].split(","))  # none was added since
    if same_columns:
        assert (tmp_path / csv.name).read_bytes() == csv.read_bytes()


@pytest.mark.parametrize("csv", CSVS, ids=lambda csv: csv.stem)
def test_only_what_a_run_file_lacks_is_left_to_train(csv: Path):
    work = laid(csv.stem)
    entries, _ = provenance.resume(csv, work, others=True)
    left = {work.identity(one) for key, one in work.configurations.items() if key not in entries}
    there = {work.identity(row) for row in provenance.read_rows(csv, work).to_dict("records")}
    assert left == {work.identity(one) for one in work.configurations.values()} - there


def test_a_setting_that_changes_what_is_computed_has_no_earlier_form():
    from lib.papers.offline_rl.experiments import offline_rl, offline_rl_rounds, offline_rl_scaling

    raw = {"algorithm": "bc", "variant": "raw", "change": {"normalise": False}, "settings": {"normalise": False}}
    normalised = raw | {"settings": {"normalise": True}}
    plain = normalised | {"algorithm": "plain_bc", "variant": "normalised"}
    short = {"algorithm": "bc", "settings": {}}
    assert offline_rl.aliases(raw) == offline_rl_rounds.aliases(raw) == offline_rl_scaling.aliases(raw) == [short]
    assert offline_rl.aliases(plain) == [{"algorithm": "plain_bc", "settings": {"normalise": True}}]
    for module in (offline_rl, offline_rl_rounds, offline_rl_scaling):
        assert module.aliases(normalised) == []
    assert offline_rl.aliases(raw | {"variant": "float32"}) == []
    assert offline_rl.aliases(plain | {"settings": {"normalise": False}}) == []
