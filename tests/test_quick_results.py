"""One cheap configuration of each experiment is computed again and held against the committed rows."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pandas as pd
import pytest

from lib import paths
from lib.jobs import Job
from lib.results import read_runs
from lib.sweep.__main__ import PORTABLE
from lib.sweep.grid import grid, names, run_one

POINTS = 1.0  # accuracy in percent of 500 test digits: five of them may fall on the other side on another processor
CHEAP = {"two_four_workflow": {"network": "small_lenet", "seed": 0}}


def test_every_experiment_is_checked():
    assert sorted(CHEAP) == sorted(names())


@pytest.mark.parametrize("name", CHEAP)
def test_a_configuration_computed_again_gives_the_committed_rows(name: str):
    work = grid(name, "quick")
    chosen = [c for c in work.configurations.values() if c.items() >= CHEAP[name].items()]
    assert len(chosen) == 1
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:  # how torch computes is fixed when a process starts
        outcome = fresh.submit(run_one, name, chosen[0], Job(), work.source_hash, PORTABLE).result()
    assert outcome["status"] == "finished", outcome["traceback"]
    again = work.table(outcome["rows"])
    runs = read_runs(name, "quick")
    mine = [work.identity(row) == work.identity(chosen[0]) for row in runs.to_dict("records")]
    committed = runs[pd.Series(mine)].reset_index(drop=True)
    exact = [column for column in work.experiment.COLUMNS if column not in ("accuracy", "sparsity")]
    pd.testing.assert_frame_equal(again[exact], committed[exact], check_dtype=False)
    assert (again.sparsity - committed.sparsity).abs().max() < 1e-6
    last = committed.groupby(list(work.experiment.INDEX[:-1])).epoch.idxmax()
    assert (again.accuracy - committed.accuracy).abs().loc[last].max() <= POINTS


def test_the_committed_rows_are_all_of_the_grid():
    for name in names():
        work, runs = grid(name, "quick"), read_runs(name, "quick")
        assert tuple(runs.columns) == work.experiment.COLUMNS
        there = {work.identity(row) for row in runs.to_dict("records")}
        assert there == {work.identity(c) for c in work.configurations.values()}
        assert not (paths.RESULTS / "quick" / "runs" / f"{name}.provenance.yaml").exists()
