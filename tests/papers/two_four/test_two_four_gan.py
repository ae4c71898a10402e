"""Laws of the generative experiment: who is pruned in which variant, one reader for all, stopping without a trace."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from lib import pruners
from lib.base import BadInput
from lib.companion.pairs import WentWrong
from lib.companion.sweep.context import Context, Stopped
from lib.models.dcgan import small_dcgan
from lib.papers.two_four.experiments import two_four_gan as experiment
from lib.papers.two_four.measures import farther
from lib.training.adversarial import AdversarialTraining
from lib.training.supervised import Training
from tests.papers.stopping import StoppedAt

TASK = experiment.Task(
    data="digits",
    network="small_dcgan",
    seeds=2,
    samples=40,
    noises=2,
    reader=Training(epochs=1, batch=256, learning_rate=0.1),
    training=AdversarialTraining(epochs=2, batch=600),
)
CONFIGURATION = experiment.configurations(experiment.Settings((TASK,)))[0]


@pytest.fixture(scope="module")
def context():
    return Context()


@pytest.fixture(scope="module")
def runs(context):
    return pd.DataFrame(experiment.run(CONFIGURATION, context), columns=experiment.COLUMNS)


@pytest.mark.parametrize("change", [{"network": "stylegan"}, {"data": "cifar10"}])
def test_a_task_of_nothing_known_is_refused(change):
    with pytest.raises(BadInput, match=next(iter(change))):
        replace(TASK, **change)


def test_the_last_epoch_of_a_session_has_every_seed_of_noise(runs):
    assert not runs.duplicated(experiment.INDEX).any()
    counts = runs.groupby(["variant", "epoch"]).noise.agg(list).to_dict()
    second = {(v, e): noises for v in experiment.SECOND for e, noises in ((3, [0]), (4, [0, 1]))}
    first = {("dense", 1): [0], ("dense", 2): [0, 1], ("pruned", 2): [0, 1], ("real", 0): [0]}
    assert counts == first | second


def test_real_images_are_nearer_than_those_of_a_generator_that_has_only_begun(runs):
    least = runs[runs.variant == "real"].frechet.item()
    assert 0 < least < runs[runs.variant != "real"].frechet.min()


def test_who_is_pruned_in_which_variant(runs):
    found = runs[runs.variant != "real"].groupby("variant")[["sparsity", "discriminator_sparsity"]].agg(["min", "max"])
    pruned = {name for name in found.index if name in ("pruned", "sparse", "sparse_both")}
    for name, row in found.iterrows():
        assert row["sparsity"].tolist() == pytest.approx([0.5 if name in pruned else 0] * 2)
        other = 0.5 if name in ("sparse_discriminator", "sparse_both") else 0
        assert row["discriminator_sparsity"].tolist() == pytest.approx([other] * 2)


def test_a_generator_is_pruned_along_its_input_channels():
    torch.manual_seed(0)
    generator, _ = small_dcgan()
    for name, mask in pruners.two_four(generator).items():
        channels = mask.movedim(0, -1)  # a transposed convolution sums over its first axis alone
        assert (channels.reshape(-1, 4).sum(1) == 2).all(), name


def test_every_seed_has_the_same_reader_and_other_networks(runs):
    other = pd.DataFrame(experiment.run(CONFIGURATION | {"seed": 1}, Context()), columns=experiment.COLUMNS)
    real = [table[table.variant == "real"].frechet.item() for table in (runs, other)]
    assert real[0] == real[1]
    assert (runs.generator_loss.dropna().to_numpy() != other.generator_loss.dropna().to_numpy()).all()


def test_progress_is_reported_as_often_as_foretold(context, runs):
    assert context.done == experiment.units(CONFIGURATION)


def test_a_run_that_was_stopped_ends_with_the_same_rows(tmp_path, runs):
    with pytest.raises(Stopped):
        experiment.run(CONFIGURATION, StoppedAt(folder=tmp_path, units=6))
    again = pd.DataFrame(experiment.run(CONFIGURATION, Context(folder=tmp_path)), columns=experiment.COLUMNS)
    pd.testing.assert_frame_equal(again, runs)


def test_how_much_farther_is_in_percent_of_means_over_noise():
    key = {"data": "digits", "network": "small_dcgan", "seed": 3}

    def row(variant, epoch, noise, distance):
        return {**key, "variant": variant, "epoch": epoch, "noise": noise, "frechet": distance}

    ends = {"dense": (1, 99.0, 8.0, 12.0), "sparse": (3, 50.0, 10.0, 13.0)}
    table = pd.DataFrame(
        [
            one
            for variant, (epoch, before, *after) in ends.items()
            for one in (row(variant, epoch, 0, before), *(row(variant, epoch + 1, n, d) for n, d in enumerate(after)))
        ]
    )
    assert farther(table, "sparse", "dense") == {"digits/small_dcgan": {3: pytest.approx(15)}}
    table.loc[table.index[-1], "frechet"] = float("nan")
    with pytest.raises(WentWrong, match="ends without a number in frechet"):
        farther(table, "sparse", "dense")


def test_the_rule_leaves_a_layer_whose_product_sums_a_hundred_numbers():
    generator, _ = experiment.NETWORKS["dcgan"]()
    assert [rule.name for rule in pruners.layer_rule(generator) if not rule.pruned] == ["layers.0.weight"]
