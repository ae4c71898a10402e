"""Laws of the experiment behind tables 2 and 3 of paper 2: what its variants have in common and where they differ."""

from dataclasses import asdict, replace

import pandas as pd
import pytest
import torch

from lib import pruners
from lib.base import BadInput
from lib.companion.sweep.context import Context, Stopped
from lib.data import vision
from lib.models.mobilenet import small_mobilenet_v2
from lib.papers.two_four.experiments import two_four_networks as experiment
from lib.papers.two_four.experiments import two_four_workflow
from lib.training.supervised import Training
from tests.papers.stopping import StoppedAt
from tests.papers.two_four.quantising import watched

SETTINGS = experiment.Settings(
    (experiment.Task("digits", "small_vgg", 3, True, 2, Training(2, batch=64, learning_rate=0.1)),)
)
CONFIGURATION = experiment.configurations(SETTINGS)[0]


def run(context=None, **changed):
    rows = experiment.run(CONFIGURATION | changed, context or Context())
    return pd.DataFrame(rows, columns=experiment.COLUMNS).set_index(["variant", "epoch"])


@pytest.fixture(scope="module")
def runs():
    return run()


def same(runs, variant, other):
    """Whether two variants, or (variant, epoch), have the same rows."""
    return (runs.loc[variant].to_numpy() == runs.loc[other].to_numpy()).all()


def test_a_configuration_is_a_seed_of_a_task():
    configurations = experiment.configurations(SETTINGS)
    assert [c["seed"] for c in configurations] == [0, 1]
    assert configurations[1] == CONFIGURATION | {"seed": 1}


@pytest.mark.parametrize("change", [{"network": "resnet9"}, {"data": "digit"}, {"table": 4}])
def test_a_task_of_nothing_known_is_refused(change):
    with pytest.raises(BadInput, match=next(iter(change))):
        experiment.Task(
            **{"data": "digits", "network": "lstm", "table": 2, "permute": False, "seeds": 1} | change, training=None
        )


def test_each_variant_has_its_epochs_and_the_job_hears_of_each(runs):
    first, second, end = [1, 2], [3, 4], [4]
    epochs = {variant: list(rows.index.get_level_values("epoch")) for variant, rows in runs.groupby(level="variant")}
    table_2 = {
        "dense": first,
        "dense_int8": [2],
        "dense_twice": second,
        "pruned": [2],
        "sparse": second,
        "sparse_int8": end,
    }
    table_3 = {"pruned_permuted": [2], "sparse_permuted": second, "sparse_permuted_int8": end}
    assert epochs == table_2 | table_3
    context = Context()
    assert set(run(context, permute=False, training=CONFIGURATION["training"] | {"epochs": 1}).index.levels[0]) == set(
        table_2
    )
    assert context.done == 3
    assert [experiment.units(CONFIGURATION | {"permute": p}) for p in (False, True)] == [6, 8]


def test_2_of_4_weights_of_the_eligible_layers_are_gone_and_the_rest_of_the_magnitude_is_kept(runs):
    sparse = runs.index.get_level_values("variant").str.contains("sparse|pruned")
    assert runs.sparsity[~sparse].eq(0).all()
    assert runs.sparsity[sparse].round(3).eq(0.497).all()  # half of the 99.4 % that the layer rule prunes
    assert runs.kept[~sparse].eq(100).all()
    assert runs.flops[sparse].nunique() == runs.flops[~sparse].nunique() == 1
    for suffix in ("", "_permuted"):
        names = [f"pruned{suffix}", f"sparse{suffix}", f"sparse{suffix}_int8"]
        assert runs.kept.loc[names].nunique() == 1
    assert 50 < runs.kept["pruned"].item() < runs.kept["pruned_permuted"].item() < 100


def test_int8_is_another_network_but_not_a_broken_one(runs):
    for variant, epoch in (("dense", 2), ("sparse", 4), ("sparse_permuted", 4)):
        whole, small = runs.loc[variant, epoch], runs.loc[f"{variant}_int8", epoch]
        assert abs(small.accuracy - whole.accuracy) < 10
        assert whole.drop("accuracy").equals(small.drop("accuracy"))


def test_without_masks_sparse_would_be_dense_twice(monkeypatch):
    def nothing(scores):
        return {name: torch.ones_like(score, dtype=torch.bool) for name, score in scores.items()}

    monkeypatch.setitem(pruners.PATTERNS, "two_four", nothing)
    assert same(run(permute=False), "sparse", "dense_twice")


def test_without_a_permutation_the_permuted_variants_would_be_the_others_and_without_rounding_int8_too(
    monkeypatch, runs
):
    assert not same(runs, "sparse_permuted", "sparse")
    monkeypatch.setattr(experiment, "permute", lambda model, *rest, search: (model, None))
    monkeypatch.setattr(experiment.calibration, "simulated", lambda model, batches: model)
    others = run()
    assert all(same(others, f"{name}_permuted", name) for name in ("pruned", "sparse"))
    assert same(others, "dense_int8", ("dense", 2))
    assert same(others, "sparse_int8", ("sparse", 4))
    assert same(others, "sparse_permuted_int8", ("sparse", 4))


def test_a_run_that_was_stopped_goes_on_to_the_same_rows(tmp_path, runs):
    with pytest.raises(Stopped):
        run(StoppedAt(folder=tmp_path, units=7))  # one epoch before the end
    pd.testing.assert_frame_equal(run(Context(folder=tmp_path)), runs, check_exact=True)


@pytest.mark.parametrize(("module", "network"), [(experiment, "small_vgg"), (two_four_workflow, "small_lenet")])
def test_a_network_has_as_many_outputs_as_its_data_have_classes(module, network, monkeypatch):
    data, classes = vision.load("digits"), []
    few = {name: getattr(data, name)[:80] for name in ("train_inputs", "test_inputs")}
    few |= {name: getattr(data, name)[:80] + 2 for name in ("train_labels", "test_labels")}  # ten outputs are too few
    monkeypatch.setattr(vision, "load", lambda name: replace(data, **few, classes=13))
    build = module.NETWORKS[network]
    monkeypatch.setitem(module.NETWORKS, network, lambda *given: classes.append(given) or build(*given))
    training = asdict(Training(1, batch=16, learning_rate=0.1))
    configuration = CONFIGURATION | {"network": network, "permute": False, "controls": True, "training": training}
    assert module.run(configuration, Context())
    assert set(classes) == {(13,)}


@pytest.mark.parametrize("build", {**experiment.NETWORKS, **two_four_workflow.NETWORKS}.values())
def test_every_network_is_built_from_its_number_of_classes(build):
    model = build(7)
    side = 8 if build.__name__.startswith("small") else 28 if build.__name__ == "lenet5" else 32
    colours = 1 if side < 32 else 3
    assert model.eval()(torch.zeros(1, colours, side, side)).shape == (1, 7)


def test_what_is_left_is_a_share_of_the_magnitude_of_the_masked_layers_alone():
    model = small_mobilenet_v2()
    with torch.no_grad():
        model.fc.weight.copy_(torch.arange(640.0).view(10, 64) - 320)
    whole = 320 + 2 * sum(range(320))
    assert experiment.magnitude_left(model, {"fc.weight": model.fc.weight > 0}) == 100 * sum(range(320)) / whole
    assert experiment.magnitude_left(model, {"fc.weight": model.fc.weight <= 320}) == 100


def test_int8_is_calibrated_by_entropy_and_the_quantised_network_is_what_is_measured():
    with watched(experiment) as made:
        run(training=CONFIGURATION["training"] | {"epochs": 1})
    assert [entry["methods"] for entry in made] == [{"entropy"}] * 3  # dense, sparse, sparse_permuted
    assert all(entry["answers"] for entry in made)
