"""Laws of `two_four_sessions`: what its variants share, how long each is trained, and which masks they end with."""

from dataclasses import replace

import pytest
import torch

from lib import pruners
from lib.base import BadInput
from lib.companion.sweep.context import Context
from lib.data import vision
from lib.papers.two_four.experiments import two_four_sessions as experiment
from lib.papers.two_four.experiments.two_four_sessions import Sessions, Task
from lib.pruners.straight_through import StraightThrough
from lib.training.supervised import Training, accuracy

EPOCHS = 4
TRAINING = Training(EPOCHS, batch=32, learning_rate=0.1)
TASK = Task("digits", "digits_mlp", seeds=1, shares=(0.25, 0.5), decay=0.1, training=TRAINING)
ENDS = {  # variant: epochs that the network has been trained at the end
    "dense": 4,
    "halves": 4,
    "ste": 4,
    "sr_ste": 4,
    "sr_ste_transposable": 4,
    "sr_ste_long": 8,
    "sr_ste_transposable_long": 8,
    "dense_twice": 8,
    "pruned": 4,
    "retrained": 8,
    "transposable": 8,
    "retrained_25": 5,
    "retrained_50": 6,
}

SECOND = {"halves", "dense_twice", "retrained", "transposable", "retrained_25", "retrained_50"}  # have two sessions


@pytest.fixture(scope="module")
def watched() -> tuple[list[dict], list[dict], int]:
    """The rows, what each session began and ended with, and how often the context heard of progress."""
    data, seen, session, record = vision.load("digits"), [], Sessions.train, Sessions.record

    def watch(self, variant, model, epochs, number=0, before=0):
        weights = {layer.name: layer.weight.detach().clone() for layer in pruners.prunable(model)}
        decays = {module.decay for module in model.modules() if isinstance(module, StraightThrough)}
        found = session(self, variant, model, epochs, number, before)
        end = {layer.name: layer.weight.detach() != 0 for layer in pruners.prunable(found)}
        masks = pruners.attached(model)
        about = {"variant": variant, "number": number, "decays": decays}
        seen.append(about | {"begin": weights, "end": end, "masks": masks})
        return found

    def watch_record(self, variant, model, epochs):
        weights = {layer.name: layer.weight.detach().clone() for layer in pruners.prunable(model)}
        whole = {name: weight != 0 for name, weight in weights.items()}
        about = {"begin": weights, "end": whole, "masks": pruners.attached(model)}
        seen.append({"variant": variant, "number": 0} | about | {"accuracy": accuracy(model, self.examples)})
        record(self, variant, model, epochs)

    few = {name: getattr(data, name)[:64] for name in ("train_inputs", "train_labels", "test_inputs", "test_labels")}
    context = Context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Sessions, "train", watch)
        patch.setattr(Sessions, "record", watch_record)
        patch.setattr(vision, "load", lambda name: replace(data, **few))
        configuration = experiment.configurations(experiment.Settings((TASK,)))[0]
        rows = experiment.run(configuration, context)
    assert experiment.units(configuration) == context.done
    return rows, seen, context.done


def session(watched: tuple, variant: str, number: int) -> dict:
    return next(one for one in watched[1] if (one["variant"], one["number"]) == (variant, number))


def test_rows_are_one_an_epoch_and_no_variant_is_trained_longer_than_it_says(watched):
    rows = watched[0]
    assert {row["variant"] for row in rows} == set(ENDS)
    for variant, end in ENDS.items():
        epochs = [row["epoch"] for row in rows if row["variant"] == variant]
        first = EPOCHS + 1 if variant in SECOND - {"halves"} else 1  # the first session of others is that of dense
        first = end if variant == "pruned" else first
        assert epochs == list(range(first, end + 1)), variant
    assert all(set(row) == set(experiment.COLUMNS) for row in rows)


def test_every_network_of_a_seed_begins_with_the_same_weights(watched):
    first = session(watched, "dense", 0)["begin"]
    for variant in ("halves", "ste", "sr_ste", "sr_ste_transposable", "sr_ste_long"):
        begin = session(watched, variant, 0)["begin"]
        for name, weight in begin.items():
            kept = weight != 0  # a learned mask is there from the first step on
            assert torch.equal(weight[kept], first[name][kept]), (variant, name)


def test_masks_are_2_4_along_rows_and_where_they_are_called_transposable_along_columns(watched):
    assert not session(watched, "dense", 0)["masks"]
    for variant in set(ENDS) - {"dense", "dense_twice"}:
        end = session(watched, variant, int(variant in SECOND))["end"]
        for name in ("fc1.weight", "fc2.weight"):
            assert (end[name].reshape(-1, 4).sum(1) <= 2).all(), (variant, name)
            along = end[name].T.reshape(-1, 4).sum(1)
            assert bool((along <= 2).all()) == ("transposable" in variant), (variant, name)
        assert end["fc3.weight"].all()


def test_shorter_second_sessions_begin_where_the_whole_one_does(watched):
    whole = session(watched, "retrained", 1)
    for variant in ("retrained_25", "retrained_50"):
        short = session(watched, variant, 1)
        assert all(torch.equal(short["begin"][name], weight) for name, weight in whole["begin"].items())
        assert all(torch.equal(short["masks"][name], mask) for name, mask in whole["masks"].items())


def test_what_is_pruned_and_not_trained_again_is_what_the_second_sessions_begin_with(watched):
    bare, whole = session(watched, "pruned", 0), session(watched, "retrained", 1)
    assert all(torch.equal(bare["begin"][name], weight) for name, weight in whole["begin"].items())
    assert all(torch.equal(bare["masks"][name], mask) for name, mask in whole["masks"].items())
    (row,) = (row for row in watched[0] if row["variant"] == "pruned")
    assert row["accuracy"] == bare["accuracy"]


def test_flips_are_those_of_masks_that_are_learned(watched):
    for row in watched[0]:
        assert (row["flips"] == row["flips"]) == ("ste" in row["variant"].split("_")), row


def test_steps_times_decay_are_the_same_in_a_session_of_double_length(watched):
    decays = {variant: session(watched, variant, 0)["decays"] for variant in ENDS if "ste" in variant.split("_")}
    assert decays.pop("ste") == {0.0}
    assert len(decays) == 4
    for variant, found in decays.items():
        assert found == {TASK.decay * EPOCHS / ENDS[variant]}, variant


def test_a_shorter_session_has_a_shorter_warm_up():
    sessions = Sessions(experiment.configurations(experiment.Settings((TASK,)))[0], Context())
    assert sessions.of(EPOCHS) == TRAINING
    assert (sessions.of(1).epochs, sessions.of(1).warmup) == (1, TRAINING.warmup / EPOCHS)
    assert (sessions.of(8).epochs, sessions.of(8).warmup) == (8, 2 * TRAINING.warmup)


def test_a_task_that_cannot_be_laid_out_is_refused():
    with pytest.raises(BadInput, match=r"0\.1 of 4 epochs is not a whole number"):
        Task("digits", "digits_mlp", 1, (0.1,), 0.1, TRAINING)
    with pytest.raises(BadInput, match="even number"):
        Task("digits", "digits_mlp", 1, (), 0.1, replace(TRAINING, epochs=5))
    with pytest.raises(BadInput, match="network"):
        Task("digits", "nothing", 1, (), 0.1, TRAINING)
