"""How a run of group-sparse training ends, killed on its way or not: its rows and what its algorithm remembers."""

from pathlib import Path
from types import ModuleType

import pytest

from lib.companion.sweep.context import Context, Stopped
from lib.papers.gst.experiments.algorithm import GroupSparseTraining
from tests.papers.stopping import StoppedAt


def end_of(experiment: ModuleType, maker: ModuleType, configuration: dict, folder: Path, stop: int | None) -> tuple:
    """Return the rows and the state of the algorithm at the end, the rewards that were reported last among it.

    Args:
        maker: the module that makes the algorithm.
        stop: the run is killed at this report of progress and begun again; None: it never is.
    """
    made = []

    class Kept(GroupSparseTraining):
        def __init__(self, *arguments, **named):
            super().__init__(*arguments, **named)
            made.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maker, "GroupSparseTraining", Kept)
        if stop is not None:
            with pytest.raises(Stopped):
                experiment.run(configuration, StoppedAt(folder=folder, units=stop))
        rows = experiment.run(configuration, Context(folder=folder))
    assert len(made) == (1 if stop is None else 2)
    return rows, made[-1].state_dict()
