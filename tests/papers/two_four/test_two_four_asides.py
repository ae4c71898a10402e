"""Laws of what paper 2 says in passing: what each variant begins with, at which rate it learns, what is calibrated."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from lib import pruners
from lib.companion.sweep.context import Context, Stopped
from lib.data import vision
from lib.papers.two_four.experiments import two_four_asides as experiment
from lib.papers.two_four.experiments import two_four_workflow as workflow
from lib.papers.two_four.experiments.variants import Variants
from lib.pruners import calibration
from lib.pruners.activations import Largest
from lib.training.supervised import Training
from tests.papers.stopping import StoppedAt
from tests.papers.two_four import quantising

EPOCHS = 2
TRAINING = Training(EPOCHS, batch=16, learning_rate=0.1)
SESSIONS = ("dense", "dense_twice", "retrained", "momenta_kept", "rate_kept", "activations_twice")


def pruned_inputs(model: nn.Module) -> int:
    hooks = [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]
    return sum(isinstance(hook, Largest) for hook in hooks)


def momenta(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [state["momentum_buffer"].clone() for state in optimizer.state.values()]


@pytest.fixture(scope="module")
def watched() -> SimpleNamespace:
    """The rows of a run on 64 images, what each session began with, what was calibrated, and the workflow's rows."""
    data, seen, calibrated = vision.load("digits"), {}, []
    session, ranges = Variants.session, calibration.ranges

    def watch(self, variant, model, number, before, callback=None, **more):
        weights = {layer.name: layer.weight.detach().clone() for layer in pruners.prunable(model)}
        about = SimpleNamespace(number=number, rate=self.settings.learning_rate, weights=weights, momenta=None)
        about.masks, about.inputs = pruners.attached(model), pruned_inputs(model)
        seen[variant] = about

        def watched_callback(optimizer):
            found = callback(optimizer)
            about.momenta, about.optimizer = momenta(optimizer), optimizer
            return found

        return session(self, variant, model, number, before, callback and watched_callback, **more)

    def watch_ranges(model, batches):
        calibrated.append((pruners.sparsity(model), ranges(model, batches)))
        return calibrated[-1][1]

    names = ("train_inputs", "train_labels", "test_inputs", "test_labels")
    data = replace(data, **{name: getattr(data, name)[:64] for name in names})
    context = Context()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vision, "load", lambda name: data)
        task = workflow.Task("digits", "small_resnet", 1, 0, TRAINING)
        beside = workflow.run(workflow.configurations(workflow.Settings((task,)))[0], Context())
        patch.setattr(Variants, "session", watch)
        patch.setattr(calibration, "ranges", watch_ranges)
        task = experiment.Task("digits", "small_resnet", 1, TRAINING)
        configuration = experiment.configurations(experiment.Settings((task,)))[0]
        rows = experiment.run(configuration, context)
    assert experiment.units(configuration) == context.done
    found = {"rows": rows, "seen": seen, "calibrated": calibrated, "workflow": beside}
    return SimpleNamespace(**found, data=data, configuration=configuration)


def test_rows_are_one_an_epoch_of_training_and_one_of_what_is_not_trained(watched):
    epochs = {}
    for row in watched.rows:
        assert set(row) == set(experiment.COLUMNS)
        epochs.setdefault(row["variant"], []).append(row["epoch"])
    assert {name: epochs.pop(name) for name in ("pruned", "activations")} == {"pruned": [2], "activations": [2]}
    assert {name: epochs.pop(name) for name in ("int8", "int8_early")} == {"int8": [4], "int8_early": [4]}
    assert epochs.pop("dense") == [1, 2]
    assert epochs == {name: [3, 4] for name in SESSIONS[1:]}


def test_what_the_workflow_has_too_is_the_same_here(watched):
    mine = [row for row in watched.rows if row["variant"] in {other["variant"] for other in watched.workflow}]
    by_variant = lambda rows: sorted(rows, key=lambda row: (row["variant"], row["epoch"]))  # noqa: E731
    assert by_variant(mine) == by_variant(watched.workflow)


def test_all_second_sessions_see_the_same_batches_and_those_of_pruned_weights_begin_alike(watched):
    assert watched.seen.keys() == set(SESSIONS)
    assert [watched.seen[name].number for name in SESSIONS] == [0, 1, 1, 1, 1, 1]
    begin = watched.seen["retrained"]
    for name in ("momenta_kept", "rate_kept"):
        other = watched.seen[name]
        assert other.masks.keys() == begin.masks.keys() != set()
        assert all(torch.equal(other.masks[layer], mask) for layer, mask in begin.masks.items())
        assert all(torch.equal(other.weights[layer], weight) for layer, weight in begin.weights.items())


def test_momenta_are_those_that_the_first_session_ended_with_and_only_of_one_variant(watched):
    ended = momenta(watched.seen["dense"].optimizer)
    assert watched.seen["dense"].momenta == []
    begun = watched.seen["momenta_kept"].momenta
    assert len(begun) == len(ended) > 0
    assert all(torch.equal(one, other) for one, other in zip(begun, ended, strict=True))
    assert any(one.abs().max() > 0 for one in begun)
    assert all(watched.seen[name].momenta is None for name in ("retrained", "rate_kept", "dense_twice"))


def test_an_optimizer_with_kept_momenta_takes_the_step_that_the_earlier_one_would_have_taken():
    torch.manual_seed(0)
    model, x = nn.Linear(8, 4), torch.randn(16, 8)
    first = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, nesterov=True)

    def update(network, optimizer):
        optimizer.zero_grad()
        network(x).square().mean().backward()
        optimizer.step()

    update(model, first)
    copied, earlier = copy.deepcopy((model, first))
    fresh = torch.optim.SGD(copied.parameters(), 0.1, momentum=0.9, nesterov=True)
    plain = copy.deepcopy(model)
    experiment.Momenta(earlier).of(fresh)
    update(copied, fresh)
    update(plain, torch.optim.SGD(plain.parameters(), 0.1, momentum=0.9, nesterov=True))
    update(model, first)
    assert torch.equal(copied.weight, model.weight)
    assert not torch.equal(plain.weight, model.weight)


@pytest.mark.parametrize("stop", [EPOCHS, 4 * EPOCHS - 1])  # after the first session, and within that of old momenta
def test_a_run_that_was_stopped_goes_on_to_the_same_rows(watched, monkeypatch, tmp_path, stop):
    monkeypatch.setattr(vision, "load", lambda name: watched.data)
    with pytest.raises(Stopped):
        experiment.run(watched.configuration, StoppedAt(folder=tmp_path, units=stop))
    assert experiment.run(watched.configuration, Context(folder=tmp_path)) == watched.rows


def test_the_rate_that_is_not_reset_is_a_hundredth(watched):
    assert {name: watched.seen[name].rate for name in SESSIONS} == {
        name: pytest.approx(0.001 if name == "rate_kept" else 0.1) for name in SESSIONS
    }


def test_early_scales_are_those_of_the_dense_network_and_both_ways_quantise_the_retrained_one(watched):
    (late, of_retrained), (early, of_dense) = watched.calibrated
    assert (late > 0.3, early) == (True, 0)
    assert of_retrained.keys() == of_dense.keys()
    assert of_retrained != of_dense
    sparsities = [row["sparsity"] for row in watched.rows if row["variant"] in ("int8", "int8_early")]
    assert sparsities == pytest.approx([late, late])


def test_inputs_are_pruned_in_one_session_alone_and_in_the_layers_whose_weights_the_workflow_prunes(watched):
    counts = {name: watched.seen[name].inputs for name in SESSIONS}
    assert counts == {**dict.fromkeys(SESSIONS, 0), "activations_twice": len(watched.seen["retrained"].masks)}
    assert not watched.seen["activations_twice"].masks
    dense, twice = watched.seen["dense_twice"].weights, watched.seen["activations_twice"].weights
    assert all(torch.equal(twice[name], weight) for name, weight in dense.items())


def test_int8_is_calibrated_by_entropy_and_the_quantised_network_is_what_is_measured(
    watched: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(vision, "load", lambda name: watched.data)
    short = watched.configuration | {"training": watched.configuration["training"] | {"epochs": 1}}
    with quantising.watched(experiment) as made:
        experiment.run(short, Context())
    assert [entry["methods"] for entry in made] == [{"entropy"}] * 2
    assert all(entry["answers"] for entry in made)
