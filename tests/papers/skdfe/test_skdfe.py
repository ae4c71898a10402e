"""What the experiment of paper 3 compares, on a few made voices and a schedule of seconds."""

from dataclasses import asdict, replace

import pandas as pd
import pytest

from lib.base import BadInput, build
from lib.companion.results import read_runs
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context, Stopped
from lib.companion.sweep.grid import Grid
from lib.data import speech
from lib.data.speech import voices
from lib.models.bifpn import SelfTeacher
from lib.models.speaker_resnet import NETWORKS
from lib.papers.skdfe.experiments import skdfe
from lib.papers.skdfe.experiments.distillation import DistillationTraining
from lib.papers.skdfe.experiments.plda import Backend
from lib.papers.skdfe.experiments.scoring import det_curve, equal_error_rate, error_rates
from lib.pruners.sizes import parameters

TRAINING = DistillationTraining(epochs=2, batch=8, frames=30, learning_rate=0.003)
BY_SELF = skdfe.Task("synthetic", "resnet18", "self", skdfe.BY_SELF, 2, 2, TRAINING, teacher_width=4)
BY_TEACHER = skdfe.Task("synthetic", "resnet18", "resnet34", skdfe.BY_TEACHER, 2, 1, TRAINING)
ALONE = skdfe.Task("synthetic", "resnet34", "self", ("none",), 2, 1, TRAINING, teacher_width=4)
SHORT = skdfe.Settings(draws=4, tasks=(BY_SELF, BY_TEACHER, ALONE))


pytestmark = pytest.mark.usefixtures("on_few_voices")


def table(configuration, context=None):
    rows = skdfe.run(configuration, context or Context())
    return Grid("skdfe", "quick", skdfe, {}, "").table(rows)


@pytest.fixture(scope="module")
def kept():
    """Tables that several tests read."""
    return {}


def of(task, kept):
    if task not in kept:
        (configuration,) = [c for c in skdfe.configurations(SHORT) if c["seed"] == 0 and matches(c, task)]
        kept[task] = table(configuration)
    return kept[task]


def matches(configuration, task):
    return all(configuration[name] == getattr(task, name) for name in ("network", "teacher"))


def test_a_configuration_is_a_seed_of_a_task():
    configurations = skdfe.configurations(SHORT)
    assert [(c["network"], c["teacher"], c["seed"]) for c in configurations] == [
        ("resnet18", "self", 0),
        ("resnet18", "resnet34", 0),
        ("resnet34", "self", 0),
        ("resnet18", "self", 1),
    ]
    assert configurations[0]["training"] == asdict(TRAINING)
    assert [skdfe.units(c) for c in configurations] == [8, 8, 2, 8]


def test_every_system_has_a_row_for_the_speakers_and_for_each_draw_of_them(kept):
    for task, known in ((BY_SELF, skdfe.BY_SELF), (BY_TEACHER, skdfe.BY_TEACHER)):
        runs = of(task, kept)
        assert set(runs.distillation) == set(known)
        assert all(rows.draw.tolist() == [0, 1, 2, 3, 4] for _, rows in runs.groupby(["distillation", "trials"]))
        assert set(runs.epoch) == {2}
        assert set(runs.trials) == {"across_sessions", "same_pitch_range"}
        assert runs.eer.between(0, 100).all()
        assert runs.min_dcf.between(0, 1).all()
        assert runs.groupby("distillation").eer.nunique().min() > 1  # draws of five speakers differ


def test_no_student_is_larger_than_a_plain_one_and_the_teachers_size_is_said(kept):
    plain = NETWORKS["resnet18"](width=2)
    large = parameters(NETWORKS["resnet34"](width=2))
    runs = pd.concat([of(BY_SELF, kept), of(BY_TEACHER, kept)])
    assert set(runs.parameters) == {parameters(plain)}
    sizes = runs.groupby(["teacher", "distillation"]).teacher_parameters.unique().map(list).to_dict()
    own = [parameters(SelfTeacher(plain.channels, 4))]
    assert sizes == {
        ("self", "none"): [0],
        **{("self", name): own for name in ("label", "feature", "both")},
        **{("resnet34", name): [large] for name in skdfe.BY_TEACHER},
    }


def test_the_pretrained_teacher_is_the_network_that_is_recorded_under_its_own_name(kept, monkeypatch):
    taught = []

    class Watched(skdfe.TeacherDistilled):
        def __init__(self, student, teacher, weights):
            super().__init__(student, teacher, weights)
            taught.append(teacher.network)

    monkeypatch.setattr(skdfe, "TeacherDistilled", Watched)
    configuration = skdfe.configurations(SHORT)[1] | {"distillations": ("label",)}
    table(configuration)
    found = pd.DataFrame(error_rates(taught[0], speech.load("synthetic"), 4, "cpu"))
    recorded = of(ALONE, kept)[list(found.columns)]
    pd.testing.assert_frame_equal(found, recorded)


def test_the_errors_of_whoever_taught_stand_beside_the_students(kept, monkeypatch):
    seen = []

    class Watched(skdfe.SelfTeacherEmbedding):
        def __init__(self, student, teacher):
            super().__init__(student, teacher)
            seen.append(self)

    monkeypatch.setattr(skdfe, "SelfTeacherEmbedding", Watched)
    both = table(skdfe.configurations(SHORT)[0] | {"distillations": ("both",)})
    (network,) = seen
    own = pd.DataFrame(error_rates(network, speech.load("synthetic"), 4, "cpu"))
    for name in skdfe.ERRORS:
        assert both[f"teacher_{name}"].tolist() == own[name].tolist()
    assert not both.eer.equals(both.teacher_eer)
    by_teacher, alone = of(BY_TEACHER, kept), of(ALONE, kept)
    for _, rows in by_teacher.groupby("distillation"):
        assert rows.teacher_eer.tolist() == alone.eer.tolist()
        assert rows.teacher_eer_cosine.tolist() == alone.eer_cosine.tolist()
    assert alone[list(skdfe.OF_TEACHER)].isna().all(axis=None)


def test_a_teachers_errors_are_matched_by_trials_and_draw():
    own = [{"trials": name, "draw": draw, "eer": 1} for name in "ab" for draw in range(2)]
    teacher = [
        {"trials": name, "draw": draw, "eer": f"{name}{draw}", "min_dcf": 0, "eer_cosine": 0}
        for draw in range(2)
        for name in "ba"
    ]
    assert [row["teacher_eer"] for row in skdfe.beside(own, teacher)] == ["a0", "a1", "b0", "b1"]


def test_one_network_may_have_two_schedules():
    task = SHORT.tasks[0]
    longer = replace(task, training=replace(task.training, epochs=task.training.epochs + 1))
    found = skdfe.configurations(replace(SHORT, tasks=(task, longer)))
    grid = Grid("skdfe", "quick", skdfe, dict(enumerate(found)), "")
    assert len({grid.identity(one) for one in found}) == len(found)
    assert {one["epoch"] - one["training"]["epochs"] for one in found} == {0}


def test_more_seeds_of_some_systems_are_a_task_of_their_own():
    task = replace(SHORT.tasks[0], seeds=2)
    more = replace(task, distillations=("none",), first_seed=2, seeds=3)
    found = skdfe.configurations(replace(SHORT, tasks=(task, more)))
    assert [one["seed"] for one in found] == [0, 1, 2, 3, 4]
    assert [len(one["distillations"]) for one in found] == [4, 4, 1, 1, 1]
    assert found[0].keys() == found[-1].keys()


def test_each_embedding_term_has_its_own_weight():
    configuration = skdfe.configurations(SHORT)[1] | {"mse": 0.25, "cosine": 8.0}
    assert skdfe.weights(configuration, "mse") == skdfe.DistillationWeights(mse=0.25)
    assert skdfe.weights(configuration, "cosine") == skdfe.DistillationWeights(cosine=8.0)


def test_earlier_files_stay_readable():
    of_self, of_teacher = skdfe.configurations(SHORT)[:2]
    later, before = skdfe.aliases(of_self)
    assert later == {name: of_self[name] for name in of_self if name != "epoch"}
    assert before == {name: later[name] for name in later if name not in ("mse", "cosine")} | {"embedding": 1.0}
    assert skdfe.aliases(of_teacher)[1]["embedding"] == 0.1
    assert len(skdfe.aliases(of_teacher | {"mse": 0.2})) == 1  # one weight could not say this
    old = read_runs("skdfe", "real").drop(columns=list(skdfe.OF_TEACHER), errors="ignore")
    new = skdfe.upgrade(old)
    assert set(new.columns) == set(skdfe.COLUMNS)
    pd.testing.assert_frame_equal(new[old.columns], old)
    assert skdfe.upgrade(new).equals(new)


def test_without_weights_the_self_teachers_kinds_would_be_one(monkeypatch):
    monkeypatch.setattr(skdfe, "weights", lambda configuration, name: skdfe.DistillationWeights())
    runs = table(skdfe.configurations(SHORT)[0] | {"distillations": ("label", "both")})
    errors = {
        name: rows.drop(columns="distillation").to_numpy().tolist() for name, rows in runs.groupby("distillation")
    }
    assert errors["label"] == errors["both"]


def test_a_run_that_was_stopped_goes_on_to_the_same_rows(kept, tmp_path):
    class Impatient(Context):
        def check(self):
            if self.done in (3, 5):
                self.done += 1
                raise Stopped

    configuration = skdfe.configurations(SHORT)[1]
    for _ in range(2):
        with pytest.raises(Stopped):
            table(configuration, Impatient("cpu", tmp_path))
    pd.testing.assert_frame_equal(
        table(configuration, Context("cpu", tmp_path)), of(BY_TEACHER, kept), check_exact=True
    )


def test_a_linear_model_of_mean_features_cannot_tell_made_voices_apart():
    """They are hard: what the features' means say of a speaker is mostly the channel."""
    made = voices.synthetic(voices.Sizes(24, 12, 3, 2, 1.0))
    backend = Backend.fit(made.train.means.astype(float), made.train.speakers)
    trials = made.trials["across_sessions"]
    scores = backend.score(made.test.means.astype(float), trials.pairs)
    assert equal_error_rate(*det_curve(scores, trials.same)) > 25


@pytest.mark.parametrize("scale", ["quick", "real", "paper"])
def test_every_scale_has_the_papers_comparisons(scale):
    built = build(skdfe.Settings, settings.read("skdfe", scale), f"{scale}.skdfe")
    found: dict[tuple[str, str], set[str]] = {}  # several tasks may be of one pair: two schedules, more seeds
    for task in built.tasks:
        found.setdefault((task.network, task.teacher), set()).update(task.distillations)
    assert found["resnet18", "self"] == set(skdfe.BY_SELF)
    assert "none" in found["resnet34", "self"]
    assert found["resnet18", "resnet34"] == set(skdfe.BY_TEACHER)
    least = 1 if scale == "quick" else 2  # one seed shows that it runs; larger scales decide
    assert all(task.seeds >= least and task.alpha in (1, 2, 3) and task.beta in (100, 200) for task in built.tasks)
    if scale == "paper":
        assert {(task.data, task.width, task.teacher_width) for task in built.tasks} == {("voxceleb", 32, 256)}
        assert {task.training.frames for task in built.tasks} == {300}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": "vox"}, "data 'vox': known are synthetic"),
        ({"network": "resnet101"}, "network 'resnet101': known are resnet18"),
        ({"teacher": "resnet99"}, "teacher 'resnet99': known are self, resnet18"),
        ({"network": "self"}, "network 'self'"),
        ({"distillations": ("label", "label")}, "distillations=.*: 'label' stands there twice"),
        ({"first_seed": -1}, "first_seed=-1: expected a whole number, at least 0"),
        ({"width": 0}, "width=0, teacher_width=4 must both be 1 or more"),
        ({"teacher_width": 0}, "width=2, teacher_width=0 must both be 1 or more"),
        ({"distillations": ("mse",)}, "distillation 'mse': from teacher self known are none, label, feature, both"),
    ],
)
def test_a_task_of_nothing_known_is_refused(change, said):
    with pytest.raises(BadInput, match=said):
        skdfe.Task(**{**{f: getattr(BY_SELF, f) for f in asdict(BY_SELF)}, **change})


@pytest.mark.parametrize("draws", [0, 1])
def test_draws_that_give_no_interval_are_refused(draws):
    with pytest.raises(BadInput, match=f"draws={draws}: an interval over speakers needs at least 2"):
        skdfe.Settings(draws, (BY_SELF,))
