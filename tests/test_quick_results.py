"""One cheap configuration of each experiment is computed again and gives the committed rows, to the last digit.

On every x86-64 processor: `lib.companion.sweep.portable` makes it so, and `lib.bench.same_bits` names the kind of
operation that is to blame where it does not.
"""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import base
from lib.companion.csv_files import write_csv
from lib.companion.results import read_runs
from lib.companion.sweep.context import Context, Stopped
from lib.companion.sweep.grid import grid, names, run_one
from lib.companion.sweep.portable import SETTINGS

CHEAP = {  # of a seed other than 0, where there is one: a seed that is not passed on is 0
    "gst_bc": {"shift": 0.5},
    "gst_games": {"learner": "ppo", "method": "gst"},
    "gst_images": {"method": "gst", "block": 2, "seed": 1},
    "gst_td3": {"block": 4},
    "npn_ablations": {"variant": "expand", "seed": 1},
    "npn_images": {"direction": "magnitude", "seed": 1},
    "npn_moons": {"direction": "expand", "seed": 6},
    "offline_rl": {"algorithm": "plain_bc", "seed": 1},
    "offline_rl_layers": {"env": "halfcheetah", "variant": "normalised", "seed": 1},
    "offline_rl_rounds": {"seed": 0},
    "offline_rl_scaling": {"algorithm": "plain_bc", "scaled": False, "seed": 0},
    "skdfe": {"network": "resnet34", "seed": 0},
    "skdfe_two_four": {"seed": 0},
    "two_four_asides": {"seed": 1},
    "two_four_detection": {"seed": 0},
    "two_four_gan": {"seed": 1},
    "two_four_language": {"seed": 1},
    "two_four_masks": {"seed": 0},
    "two_four_networks": {"network": "small_vgg", "seed": 0},
    "two_four_one_shot": {"data": "grammar", "seed": 1},
    "two_four_sessions": {"seed": 1},
    "two_four_translation": {"seed": 1},
    "two_four_workflow": {"network": "small_lenet", "seed": 1},
}


def test_every_experiment_is_checked():
    assert sorted(CHEAP) == sorted(names())


@pytest.fixture(scope="module")
def worker() -> Iterator[ProcessPoolExecutor]:
    """One fresh process for all, as in a sweep: how torch computes is fixed when a process starts."""
    with ProcessPoolExecutor(1, get_context("spawn")) as fresh:
        yield fresh


@pytest.mark.parametrize("name", CHEAP)
def test_a_configuration_computed_again_gives_the_committed_rows(
    name: str, worker: ProcessPoolExecutor, tmp_path: Path
):
    work = grid(name, "quick")
    chosen = [c for c in work.configurations.values() if c.items() >= CHEAP[name].items()]
    assert len(chosen) == 1
    runs = read_runs(name, "quick")
    rows = runs.to_dict("records")
    mine = [work.identity(row) == work.identity(chosen[0]) for row in rows]
    committed = runs[pd.Series(mine)].reset_index(drop=True)
    other = getattr(work.experiment, "needs", lambda configuration: None)(chosen[0])
    needed = [row for row in rows if other is not None and work.identity(row) == work.identity(other)]
    outcome = worker.submit(run_one, name, chosen[0], Context(), work.source_hash, SETTINGS, needed).result()
    assert outcome["status"] == "finished", outcome["traceback"]
    again = work.table(outcome["rows"])
    for table, file in ((again, "again.csv"), (committed, "committed.csv")):
        write_csv(table, tmp_path / file)
    assert (tmp_path / "again.csv").read_text() == (tmp_path / "committed.csv").read_text()


def test_the_committed_rows_are_all_of_the_grid():
    for name in names():
        work, runs = grid(name, "quick"), read_runs(name, "quick")
        assert tuple(runs.columns) == work.experiment.COLUMNS
        there = {work.identity(row) for row in runs.to_dict("records")}
        assert there == {work.identity(c) for c in work.configurations.values()}
        assert not (base.RESULTS / "quick" / "runs" / f"{name}.provenance.yaml").exists()


@pytest.mark.parametrize("name", [name for name, chosen in CHEAP.items() if chosen.get("seed") == 0])
def test_where_there_is_one_seed_another_one_would_be_used(name: str, worker: ProcessPoolExecutor):
    work = grid(name, "quick")
    chosen = next(c for c in work.configurations.values() if c.items() >= CHEAP[name].items())
    assert 7 in worker.submit(drawn_from, name, chosen | {"seed": 7}).result()


def drawn_from(name: str, configuration: dict) -> list[int]:
    """List the seeds from which a run draws until its first report of progress."""
    drawn, sequence, run = [], np.random.SeedSequence, grid(name, "quick").experiment.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(np.random, "SeedSequence", lambda seed, **more: drawn.append(seed) or sequence(seed, **more))
        with pytest.raises(Stopped):
            run(configuration, Context(deadline=0.0))
    return drawn
