"""A distilled network pruned 2:4, on a few made voices and a schedule of seconds."""

from dataclasses import asdict

import pandas as pd
import pytest

from lib import pruners
from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context, Stopped
from lib.companion.sweep.grid import Grid
from lib.kernels.two_four import has_pattern
from lib.models.speaker_resnet import NETWORKS
from lib.papers.skdfe.experiments import skdfe, skdfe_two_four
from lib.papers.skdfe.experiments.distillation import DistillationTraining
from lib.papers.skdfe.experiments.scoring import error_rates
from lib.pruners.layers import as_matrix, prunable
from lib.pruners.sizes import parameters

pytestmark = pytest.mark.usefixtures("on_few_voices")

TRAINING = DistillationTraining(epochs=2, batch=8, frames=30, learning_rate=0.003)
TASK = skdfe_two_four.Task("synthetic", "resnet18", ("none", "both"), 4, 4, 1, TRAINING)
PLAIN, DISTILLED = skdfe_two_four.configurations(skdfe_two_four.Settings(draws=2, tasks=(TASK,)))


def table(configuration, context=None):
    return Grid("skdfe_two_four", "quick", skdfe_two_four, {}, "").table(
        skdfe_two_four.run(configuration, context or Context())
    )


@pytest.fixture(scope="module")
def kept():
    """Tables that several tests read."""
    return {}


def of(configuration, kept):
    name = configuration["distillation"]
    if name not in kept:
        kept[name] = table(configuration)
    return kept[name]


def test_every_variant_has_its_rows_and_only_two_of_them_lack_half_the_weights(kept):
    for configuration in (PLAIN, DISTILLED):
        runs = of(configuration, kept)
        assert runs.groupby(["variant", "trials"]).draw.apply(list).map(tuple).unique().tolist() == [(0, 1, 2)]
        first = runs.groupby("variant").first()
        assert first.epoch.to_dict() == {"dense": 2, "dense_twice": 4, "pruned": 2, "retrained": 4}
        assert first.sparsity[["dense", "dense_twice"]].tolist() == [0, 0]
        network = NETWORKS["resnet18"](width=4)
        rules = {rule.name: rule.pruned for rule in pruners.layer_rule(network)}
        sizes = {layer.name: layer.weight.numel() for layer in prunable(network)}
        share = sum(size for name, size in sizes.items() if rules[name]) / 2 / sum(sizes.values())
        assert first.sparsity[["pruned", "retrained"]].tolist() == pytest.approx([share] * 2)
        assert share > 0.45
        assert runs.parameters.unique().tolist() == [parameters(network)]


def test_two_seeds_are_two_networks(monkeypatch):
    """A seed that is not passed on would be the same network twice."""
    first = []

    def look(network, *others):
        first.append(next(network.parameters()).detach().clone())
        raise Stopped

    monkeypatch.setattr(skdfe_two_four, "error_rates", look)
    for seed in (0, 1):
        with pytest.raises(Stopped):
            skdfe_two_four.run(PLAIN | {"seed": seed}, Context())
    assert not (first[0] == first[1]).any()


def test_what_is_retrained_has_two_of_four_in_each_group_of_every_layer_that_fits(monkeypatch):
    seen = []

    def look(network, *others):
        seen.append({layer.name: has_pattern(as_matrix(layer.weight)) for layer in prunable(network)})
        return error_rates(network, *others)

    monkeypatch.setattr(skdfe_two_four, "error_rates", look)
    table(DISTILLED)
    dense, pruned, retrained, dense_twice = seen
    rules = pruners.layer_rule(NETWORKS["resnet18"](width=4))
    assert {rule.name for rule in rules if rule.pruned} == {name for name, has in pruned.items() if has}
    assert pruned == retrained
    assert not any(dense.values())
    assert dense_twice == dense


def test_the_dense_network_is_the_one_that_skdfe_trains(kept):
    """Same seed, same batches: so the two experiments' tables can be read side by side."""
    task = skdfe.Task("synthetic", "resnet18", "self", ("none", "both"), 4, 1, TRAINING, teacher_width=4)
    (configuration,) = skdfe.configurations(skdfe.Settings(2, (task,)))
    other = pd.DataFrame(skdfe.run(configuration, Context()))
    for mine in (PLAIN, DISTILLED):
        runs = of(mine, kept)
        both = [
            rows.sort_values(["trials", "draw"]).eer.tolist()
            for rows in (runs[runs.variant == "dense"], other[other.distillation == mine["distillation"]])
        ]
        assert both[0] == pytest.approx(both[1], abs=0)


def test_a_run_that_was_stopped_goes_on_to_the_same_rows(kept, tmp_path):
    class Impatient(Context):
        def check(self):
            if self.done in (1, 3, 5):
                self.done += 1
                raise Stopped

    for _ in range(3):
        with pytest.raises(Stopped):
            table(DISTILLED, Impatient("cpu", tmp_path))
    pd.testing.assert_frame_equal(table(DISTILLED, Context("cpu", tmp_path)), of(DISTILLED, kept), check_exact=True)


@pytest.mark.parametrize("scale", ["quick", "real", "paper"])
def test_every_scale_prunes_the_best_student_of_paper_3(scale):
    built = build(skdfe_two_four.Settings, settings.read("skdfe_two_four", scale), f"{scale}.skdfe_two_four")
    least = 1 if scale == "quick" else 2  # one seed shows that it runs; larger scales decide
    assert all("both" in task.distillations and task.seeds >= least for task in built.tasks)
    if scale == "paper":
        assert {(task.data, task.width, task.teacher_width) for task in built.tasks} == {("voxceleb", 32, 256)}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"data": "vox"}, "data 'vox': known are synthetic"),
        ({"network": "resnet101"}, "network 'resnet101': known are resnet18"),
        ({"distillations": ("none", "none")}, "distillations=.*: 'none' stands there twice"),
        ({"width": 0}, "width=0, teacher_width=4 must both be 1 or more"),
        ({"teacher_width": 0}, "width=4, teacher_width=0 must both be 1 or more"),
        ({"distillations": ("label",)}, "distillation 'label': known are none, both"),
        ({"alpha": -1.0}, "weights must be 0 or more and finite"),
    ],
)
def test_a_task_of_nothing_known_is_refused(change, said):
    with pytest.raises(BadInput, match=said):
        skdfe_two_four.Task(**{**{f: getattr(TASK, f) for f in asdict(TASK)}, **change})


def test_draws_that_give_no_interval_are_refused():
    with pytest.raises(BadInput, match="draws=1: an interval over speakers needs at least 2"):
        skdfe_two_four.Settings(1, (TASK,))
