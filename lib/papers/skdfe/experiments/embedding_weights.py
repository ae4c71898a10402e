"""Choose the weights of the two embedding terms (paper 3, section 5.2) on speakers that nothing else is judged on.

    python -m lib.papers.skdfe.experiments.embedding_weights --scale quick

The paper states neither weight, and one cannot serve both terms: the squared distance sums over 256 dimensions, while
1 - cosine is 2 at most. `validation` among the settings of `skdfe` says how many of the training speakers are held out,
for how many epochs a student learns from each teacher without them, and which weights it may have. The weight with the
smallest equal error rate on the held-out speakers (PLDA, geometric mean over seeds) is chosen; test speakers are not
looked at. What was tried is kept in results/SCALE/choices/embedding_weights.csv; params.yaml holds what was chosen.
Until all is tried, training sessions are kept in .sweep/: where it was stopped, the same command goes on.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd

from lib import base
from lib.base import BadInput, build
from lib.companion.csv_files import write_csv
from lib.companion.sweep import portable
from lib.companion.sweep import settings as params
from lib.companion.sweep.grid import imported_hash, key
from lib.data import speech
from lib.papers.skdfe.experiments.distillation import (
    Classifier,
    DistillationWeights,
    Learner,
    TeacherDistilled,
    new_classifier,
    train,
)
from lib.papers.skdfe.experiments.scoring import error_rates
from lib.papers.skdfe.experiments.skdfe import SELF, Settings, Task, Validation

TASK = ["data", "network", "teacher", "width", "held_out", "epochs", "frames"]
COLUMNS = [*TASK, "seed", "distillation", "weight", "eer", "chosen"]
KINDS = ("mse", "cosine")


def trials_of(task: Task, how: Validation, store: Path | None = None) -> Iterator[dict]:
    """Train a student with each weight and seed; rows of COLUMNS but the choice, the teacher first as "teacher".

    Args:
        store: the folder in which sessions are kept, to go on from those that are there; None: they are not.
    """
    schedule = replace(task.training, epochs=how.epochs)
    values = (task.data, task.network, task.teacher, task.width, how.speakers, how.epochs, schedule.frames)
    about = dict(zip(TASK, values, strict=True))
    for seed in range(how.seeds):
        data = speech.hold_out(speech.load(task.data), how.speakers, seed)

        def new(network: str, seed: int = seed, data: speech.SpeechData = data) -> Classifier:
            return new_classifier(network, task.width, data.speakers, seed)

        def row(
            kind: str, weight: float, network: Classifier, seed: int = seed, data: speech.SpeechData = data
        ) -> dict:
            (found,) = error_rates(network.network, data, 0)
            return about | {"seed": seed, "distillation": kind, "weight": weight, "eer": found["eer"]}

        def session(
            kind: str, weight: float, learner: Learner, seed: int = seed, data: speech.SpeechData = data
        ) -> None:
            what = about | asdict(schedule) | {"seed": seed, "distillation": kind, "weight": weight}
            state = None if store is None else store / f"{key(what, imported_hash('skdfe'))}.pt"
            train(learner, data.train, schedule, seed, state=state)

        teacher = new(task.teacher)
        session("teacher", 0.0, teacher)
        yield row("teacher", 0.0, teacher)
        for kind in KINDS:
            for weight in getattr(how, kind):
                student = new(task.network)
                session(kind, weight, TeacherDistilled(student, teacher, DistillationWeights(**{kind: weight})))
                yield row(kind, weight, student)


def chosen(rows: pd.DataFrame) -> dict[str, float]:
    """Find the weight of each kind, {"mse": weight, "cosine": weight}: the smallest geometric mean of EER over seeds.

    Of equal ones the smaller weight is taken.
    """
    of_kinds = rows[rows.distillation.isin(KINDS)]
    means = np.log(of_kinds.eer).groupby([of_kinds.distillation, of_kinds.weight]).mean()
    return {kind: float(means[kind].idxmin()) for kind in KINDS}


def choose(
    settings: Settings, store: Path | None = None, keep: Callable[[pd.DataFrame], None] = lambda table: None
) -> pd.DataFrame:
    """Try all weights for each task with a pretrained teacher that distils embeddings; one row a training session.

    Args:
        store: as `trials_of`.
        keep: called after each task with the table so far.

    Raises:
        BadInput: the settings do not say how to choose, or there is nothing to choose for.
    """
    if settings.validation is None:
        raise BadInput("the settings have no `validation`: it says how many speakers are held out and what is tried")
    tasks = [task for task in settings.tasks if task.teacher != SELF and set(KINDS) & set(task.distillations)]
    if not tasks:
        raise BadInput("no task distils embeddings from a pretrained teacher: there is no weight to choose")
    # the trials have epochs of their own, so tasks that differ in theirs alone are one
    epochs, same = settings.validation.epochs, attrgetter("data", "network", "teacher", "width", "teacher_width")
    once = {(*same(task), replace(task.training, epochs=epochs)): task for task in tasks}
    tables = []
    for task in once.values():
        rows = []
        for row in trials_of(task, settings.validation, store):
            rows.append(row)
            print(", ".join(f"{name} {row[name]}" for name in ("seed", "distillation", "weight", "eer")), flush=True)
        table = pd.DataFrame(rows)
        best = chosen(table)
        tables.append(table.assign(chosen=table.weight == table.distillation.map(best)))
        found = pd.concat(tables, ignore_index=True)[COLUMNS]
        keep(found)
    return found


def file_of(scale: str, results: Path = base.RESULTS) -> Path:
    """Name the file in which what was tried at a scale is kept."""
    return results / scale / "choices" / "embedding_weights.csv"


def main(words: list[str] | None = None) -> None:
    """Run the command line; a message of one line and status 2 for what cannot be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", default="quick", help="which settings of params.yaml (default: quick)")
    parser.add_argument("--params", type=Path, default=base.PARAMS, help="settings (default: params.yaml)")
    parser.add_argument("--results", type=Path, default=base.RESULTS, help="where results go (default: results/)")
    parser.add_argument("--store", type=Path, default=base.STORE, help="unfinished sessions (default: .sweep/)")
    asked = parser.parse_args(words)
    with base.program("embedding_weights", "stopped; what is finished is kept, the same command goes on"):
        portable.prepare(portable.SETTINGS if asked.scale == "quick" else {})
        settings = build(Settings, params.read("skdfe", asked.scale, asked.params), f"{asked.scale}.skdfe")
        csv, store = file_of(asked.scale, asked.results), asked.store / asked.scale / "embedding_weights"
        base.writable(csv.parent)
        base.writable(store)
        with base.locked(store, "a choice of weights"):
            found = choose(settings, store, lambda table: write_csv(table, csv))
            shutil.rmtree(store, ignore_errors=True)  # the rows are in the table now
        for _, row in found[found.chosen].drop_duplicates([*TASK, "distillation"]).iterrows():
            print(f"{row.data}, {row.network} from {row.teacher}: {row.distillation} {row.weight}")


if __name__ == "__main__":
    portable.settle()
    main()
