"""What the experiment on classifiers compares, on a few digits and the small ResNet."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context, Stopped
from lib.companion.sweep.grid import Grid
from lib.models.resnet import resnet32, small_resnet
from lib.papers.gst.experiments import gst_images as experiment
from lib.papers.gst.experiments.algorithm import share
from lib.papers.gst.experiments.gst_images import Task, chosen
from lib.papers.gst.experiments.methods import Blocks, RewardPruning
from lib.training.supervised import Training, accuracy
from tests.papers.gst.resuming import end_of
from tests.papers.stopping import StoppedAt

TASK = Task(
    data="digits",
    network="small_resnet",
    first=4,
    last=9,
    seeds=1,
    held_out=0.25,
    training=Training(epochs=3, batch=16, learning_rate=0.05),
    pruning=RewardPruning(increase=0.3, every=2),
    blocks=(Blocks(4, 0.5), Blocks(4, 0.25, "block4_friendly_block2")),
)
DENSE, RWP, BLOCKS, FRIENDLY = experiment.configurations(experiment.Settings((TASK,)))


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """80 images to learn from and hold out of, 20 to test on, as in 2 classes."""
    draw = np.random.default_rng(0)
    inputs, labels = draw.integers(0, 256, (100, 1, 8, 8), dtype=np.uint8), np.arange(100) % 2
    inputs[labels == 1, :, :4] //= 8
    sets = {
        "train_inputs": inputs[:80],
        "train_labels": labels[:80],
        "test_inputs": inputs[80:],
        "test_labels": labels[80:],
    }
    monkeypatch.setattr(experiment.vision, "load", lambda name: SimpleNamespace(classes=2, **sets))


def table(configuration, context=None):
    return Grid("gst_images", "quick", experiment, {}, "").table(experiment.run(configuration, context or Context()))


def test_each_way_saves_what_its_sparsity_and_blocks_say_and_dense_nothing():
    dense, rwp, blocks, friendly = (table(one) for one in (DENSE, RWP, BLOCKS, FRIENDLY))
    assert (dense[["sparsity", "compression_ratio", "ideal_ratio"]] == 0).all(axis=None)
    assert (dense.held_out > 0).all()  # measured of all ways, used by those that prune
    part = dense.share.iloc[0]
    model = small_resnet(2)
    assert part == share(model, chosen(model, 4, 9))
    assert set(blocks.share) | set(friendly.share) | set(rwp.share) == {part}
    assert rwp.sparsity.iloc[-1] >= 0.3
    assert rwp.ideal_ratio.iloc[-1] == pytest.approx(rwp.compression_ratio.iloc[-1] + part / 16)
    assert blocks.ideal_ratio.iloc[0] >= 0.3 * part
    assert friendly.ideal_ratio.min() >= 0.5 * part  # blocks of two until the end
    assert friendly.phase.iloc[-1] == 1


def test_where_a_task_asks_for_it_pruned_weights_are_trained_on_and_nothing_else_changes():
    methods = ("dense", "rwp", "regrow")
    found = experiment.configurations(experiment.Settings((replace(TASK, methods=methods),)))
    assert [one["method"] for one in found] == [*methods, "gst", "gst"]
    assert [one for one in found if one["method"] != "regrow"] == [DENSE, RWP, BLOCKS, FRIENDLY]
    held, grown = table(RWP), table(found[2])
    assert grown.sparsity.iloc[-1] >= 0.3
    assert grown.accuracy.tolist() + grown.held_out.tolist() != held.accuracy.tolist() + held.held_out.tolist()


def test_nothing_is_learned_from_what_is_held_out_and_it_is_no_test_image():
    seen = {}
    original = experiment.hold_out

    def spy(examples, part, seed):
        seen["rest"], seen["held"] = original(examples, part, seed)
        return seen["rest"], seen["held"]

    measured = []

    def watched(model, examples, precision):
        measured.append(examples)
        return accuracy(model, examples, precision)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "hold_out", spy)
        patch.setattr(experiment, "accuracy", watched)
        table(RWP)
    assert measured
    assert all(examples is seen["held"] for examples in measured)  # the reward's, every time
    rest, held = (
        {tuple(image.flatten().tolist()) for image in images}
        for images in (seen["rest"].train_inputs, seen["held"].test_inputs)
    )
    tests = {tuple(image.flatten().tolist()) for image in seen["rest"].test_inputs}
    assert (len(rest), len(held), len(tests)) == (60, 20, 20)
    assert not rest & held
    assert not held & tests


@pytest.mark.parametrize("stop", [1, 2])
def test_a_run_that_was_stopped_goes_on_to_the_same_rows(stop, tmp_path):
    with pytest.raises(Stopped):
        table(BLOCKS, StoppedAt(folder=tmp_path, units=stop))
    pd.testing.assert_frame_equal(table(BLOCKS, Context(folder=tmp_path)), table(BLOCKS), check_exact=True)


def test_the_last_reward_is_still_there_after_a_stop_behind_it(tmp_path):
    """A chance to prune at update 7, killed at 8: the other 4 updates report no reward, the last row shows it."""
    rarely = BLOCKS | {"pruning": BLOCKS["pruning"] | {"every": 7}}
    rows, whole = end_of(experiment, experiment, rarely, tmp_path / "whole", None)
    assert rows[-1]["held_out"] == whole["rewards"][0] > 0
    assert end_of(experiment, experiment, rarely, tmp_path / "killed", 2) == (rows, whole)


def test_layers_12_to_31_of_resnet_32_are_the_printed_share():
    model = resnet32()
    names = chosen(model, 12, 31)
    assert names[0] == "blocks.5.conv1.weight"
    assert names[-1] == "blocks.14.conv2.weight"
    assert 100 * share(model, names) == pytest.approx(94.8, abs=0.05)
    assert sum(parameter.numel() for parameter in model.parameters()) == 464_154
    assert sum(isinstance(module, torch.nn.Conv2d) for module in model.modules()) == 31
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


@pytest.mark.parametrize(("name", "percent"), [("alexnet", 86.2), ("small_alexnet", 85.7)])
def test_alexnets_first_two_fully_connected_layers_are_most_of_it(name: str, percent: float):
    """The paper prints 87.4 percent of ImageNet's."""
    model = experiment.NETWORKS[name](10)
    names = chosen(model, 6, 7)
    assert [one.split(".")[-2:] for one in names] == [["fc1", "weight"], ["fc2", "weight"]]
    assert 100 * share(model, names) == pytest.approx(percent, abs=0.05)


def test_an_alexnet_in_blocks_is_trained_pruned_and_converted():
    task = replace(TASK, network="small_alexnet", first=6, last=7, methods=("dense",), blocks=TASK.blocks[1:])
    dense, friendly = (table(one) for one in experiment.configurations(experiment.Settings((task,))))
    assert (dense.compression_ratio == 0).all()
    assert friendly.phase.iloc[-1] == 1  # its blocks have become smaller
    assert friendly.sparsity.iloc[-1] >= 0.25


def test_the_settings_of_all_scales_are_those_of_the_paper_as_far_as_it_prints_them():
    of = partial(settings.read, "gst_images")
    quick, real, paper = (build(experiment.Settings, of(scale), scale).tasks for scale in ("quick", "real", "paper"))
    assert [task.network for task in quick] == ["small_resnet", "small_alexnet"]
    for alexnet in (quick[1], real[1], paper[1]):
        assert (alexnet.first, alexnet.last) == (6, 7)  # the fully connected ones but for the last
        assert alexnet.blocks == (Blocks(4, 0.25, "block4_friendly_block2"),)
    for resnet, alexnet in (real, paper):
        assert (resnet.data, resnet.network, resnet.first, resnet.last) == ("cifar10", "resnet32", 12, 31)
        assert {(one.block, one.shift) for one in resnet.blocks} == {(2, 0.5), (4, 0.5)}
        assert alexnet.network == "alexnet"
        assert resnet.held_out == alexnet.held_out == 0.1
        assert min(resnet.seeds, alexnet.seeds) >= 3
    assert real[0].training.epochs == 30


def test_what_cannot_be_is_refused():
    for change, line in (
        ({"network": "resnet33"}, "network 'resnet33': known are resnet32"),
        ({"first": 10}, "first=10 comes after last=9"),
        ({"methods": ("dense", "zzz")}, "methods: 'zzz' is unknown; known are dense, rwp"),
        ({"blocks": (Blocks(1, 0.5),)}, "blocks of one weight are trained anyway"),
        ({"blocks": (Blocks(2, 0.5, "projection"),)}, "from block size 4 to 2"),
    ):
        with pytest.raises(BadInput, match=line):
            replace(TASK, **change)
    with pytest.raises(BadInput, match="every=0"):  # at once, not when the first pruned run begins
        replace(TASK, pruning=RewardPruning(every=0))
    late = RWP | {"pruning": RWP["pruning"] | {"every": 10**6}}
    with pytest.raises(BadInput, match="every=1000000 is beyond the training's"):
        experiment.run(late, Context())
    with pytest.raises(BadInput, match="last=99: this network has 10 layers"):
        chosen(small_resnet(), 1, 99)
