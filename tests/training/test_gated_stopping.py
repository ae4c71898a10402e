"""Laws of `lib.training.gated`: what is held out, stopping and going on, and what is refused."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from lib.base import BadInput
from lib.data import vision
from lib.models.plain import moons_mlp
from lib.pruners import gates
from lib.training.examples import Examples
from lib.training.gated import GatedTraining, train
from lib.training.supervised import accuracy, hold_out
from tests.training.small_gates import EXPAND, SPARSIFY, network, points
from tests.training.stopping import same_state, stop_at


def test_the_validation_split_is_a_part_of_the_training_set_and_never_trained_on():
    examples = points()
    left, held = hold_out(examples, 0.25, seed=0)
    assert (len(left.train_labels), len(held.test_labels)) == (30, 10)
    both = torch.cat([left.train_inputs, held.test_inputs])
    assert sorted(both[:, 0].tolist()) == sorted(examples.train_inputs[:, 0].tolist())
    assert torch.equal(left.test_inputs, examples.test_inputs)
    assert not torch.equal(hold_out(examples, 0.25, seed=1)[1].test_inputs, held.test_inputs)
    seen, model = [], network(start=(3, 3), k=0.5)
    model.register_forward_pre_hook(lambda m, inputs: seen.append(inputs[0]) if m.training else None)
    train(model, examples, EXPAND, seed=0)
    shown = {tuple(row) for row in torch.cat(seen).tolist()}
    assert shown == {tuple(row) for row in examples.scaled(left.train_inputs).tolist()}


@pytest.mark.parametrize("share", [0.0, 1.0, float("nan"), float("inf")])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(BadInput, match=f"validation={share} of 40 training examples leaves one part empty"):
        hold_out(points(), share, seed=0)


def test_the_test_set_decides_nothing():
    examples, models = points(), []
    for test_inputs in (examples.test_inputs, examples.test_inputs + 100):
        models.append(network(start=(3, 3), k=0.5))
        train(models[-1], replace(examples, test_inputs=test_inputs), replace(EXPAND, epochs=(1, 20, 1)), seed=0)
    assert same_state(*models)


# Stop and go on


@pytest.mark.parametrize("stops", [(1,), (2,), (5,), (9,), (12,), (13,), (2, 6, 11)])
@pytest.mark.parametrize("expand", [False, True])
def test_a_session_stopped_anywhere_goes_on_to_the_same_numbers(tmp_path, stops, expand):
    """Bit for bit: weights, gates, which units have woken, rows."""
    examples = points()
    settings = replace(EXPAND if expand else SPARSIFY, epochs=(2, 8, 3), tolerance=1e9)
    asked = {"start": (3, 3) if expand else None, "k": settings.k, "dropout": 0.2}
    whole = network(**asked)
    rows = train(whole, examples, settings, seed=1)
    state = tmp_path / "below" / "session.pt"
    for stop in stops:
        with pytest.raises(InterruptedError):
            train(network(**asked), examples, settings, seed=1, state=state, on_progress=stop_at(stop))
    resumed, on_progress = network(**asked, seed=8), stop_at()
    torch.rand(3)
    assert train(resumed, examples, settings, seed=1, state=state, on_progress=on_progress) == rows
    assert same_state(resumed, whole)
    assert [one.k for one in gates.gates_of(resumed)] == [one.k for one in gates.gates_of(whole)]
    assert on_progress.calls == len(rows)


@pytest.mark.parametrize("stop", [2, 3])
@pytest.mark.parametrize(("kind", "tau"), [("sigmoid", 0.2), ("hard_concrete", 0.5)])
def test_a_session_stopped_where_stage_3_begins_keeps_the_architecture_too(tmp_path, kind, tau, stop):
    def spread(k):
        model = network(kind=kind, tau=tau)
        for one in gates.gates_of(model):
            one.phi.data = torch.linspace(-0.3, 0.25, len(one.phi))
        gates.set_k(model, k)
        return model

    estimator = "hard_concrete" if kind == "hard_concrete" else "arm"
    settings, more = replace(SPARSIFY, epochs=(0, 2, 2), estimator=estimator), {"seed": 0, "state": tmp_path / "s.pt"}
    rows = train(spread(7.0), points(), settings, seed=0)
    assert {row["architecture"] for row in rows[2:]} == {rows[1]["architecture"]}
    with pytest.raises(InterruptedError):
        train(spread(7.0), points(), settings, on_progress=stop_at(stop), **more)
    assert train(spread(1.0), points(), settings, **more) == rows


@pytest.mark.parametrize("expand", [False, True])
def test_the_same_model_may_go_on_with_its_session(tmp_path, expand):
    """What it is by now is not what it was at the session's start."""
    settings = replace(SPARSIFY, epochs=(0, 30, 1), learning_rate=0.005, batch=40, lambdas=(40.0, 0.0))
    if expand:
        settings = replace(EXPAND, epochs=(0, 12, 1), tolerance=1e9, lambdas=(0.0, 0.0))

    def start():
        model = network(start=(4, 4) if expand else None, k=settings.k)
        model.fc1.gates.phi.data[:3] *= 1.0 if expand else 0.1  # so that they close
        return model

    rows = train(start(), points(), settings, seed=0, shares=(0.5,))
    model, more = start(), {"seed": 0, "state": tmp_path / "s.pt", "shares": np.array([0.5])}
    with pytest.raises(InterruptedError):
        train(model, points(), settings, on_progress=stop_at(len(rows) - 2), **more)
    assert gates.architecture(gates.trace(model)) == ("2-6-5-2" if expand else "2-3-5-2")
    assert train(model, points(), settings, **more) == rows


def test_a_finished_session_only_loads_and_one_of_other_settings_is_refused(tmp_path):
    state, examples, model = tmp_path / "s.pt", points(), network()
    rows = train(model, examples, SPARSIFY, seed=1, state=state)
    loaded = network(seed=8)
    loaded.register_forward_pre_hook(lambda m, _: pytest.fail("nothing is left to train") if m.training else None)
    assert train(loaded, examples, SPARSIFY, seed=1, state=state) == rows
    assert same_state(loaded, model)
    assert not loaded.training
    for other in (replace(SPARSIFY, lambdas=(0.2, 0.1)), replace(SPARSIFY, k=6.0)):
        with pytest.raises(BadInput, match=r"s\.pt is a session with other settings \((lambdas|k)\): move it away"):
            train(network(), examples, other, seed=1, state=state)
    with pytest.raises(BadInput, match=r"other settings \(gates\)"):
        train(network(tau=0.4), examples, SPARSIFY, seed=1, state=state)
    with pytest.raises(BadInput, match=r"other settings \(data\)"):
        train(network(), points(seed=1), SPARSIFY, seed=1, state=state)


def test_other_seeds_give_other_numbers():
    examples = points()
    rows = [
        train(network(), examples, SPARSIFY, seed=seed, session=session) for seed, session in ((0, 0), (1, 0), (0, 1))
    ]
    losses = [tuple(row["regularised_loss"] for row in one) for one in rows]
    assert len(set(losses)) == 3


# Bad input


def test_a_diverging_loss_is_said():
    with pytest.raises(
        FloatingPointError, match=r"the loss is (nan|inf) in epoch \d: training diverged; lower the rate"
    ):
        train(network(), points(), replace(SPARSIFY, learning_rate=1e30), seed=0)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"epochs": (1, 2)}, r"epochs=\(1, 2\): expected three stages"),
        ({"epochs": 3}, "epochs=3: expected three stages"),
        ({"epochs": (0, 0, 0)}, "epochs=0: .* at least 1"),
        ({"epochs": (1, -1, 1)}, r"epochs\[1\]=-1: .* at least 0"),
        ({"epochs": (0, 1.5, 0)}, r"epochs\[1\]=1.5: expected a whole number"),
        ({"batch": 0}, "batch=0"),
        ({"gate_speed": 0.0}, r"gate_speed=0.0 is not in \(0, inf\)"),
        ({"learning_rate": -1.0}, r"learning_rate=-1.0 is not in \(0, inf\)"),
        ({"lambdas": (0.1, math.nan)}, r"lambdas=\(0.1, nan\) must be finite numbers"),
        ({"lambdas": ("a",)}, r"lambdas=\('a',\) must be finite numbers"),
        ({"k": -0.5}, "k=-0.5: the slope is at least 0"),
        ({"k": math.inf}, "k=inf: the slope is at least 0"),
        ({"early_k": -1.0}, "k=-1.0: the slope is at least 0"),
        ({"estimator": "reinforce"}, "estimator='reinforce': known are arm, ar, hard_concrete"),
        ({"validation": 1.0}, r"validation=1.0 is not in \(0, 1\)"),
        ({"patience": 0}, "patience=0: expected a whole number, at least 1"),
        ({"tolerance": math.nan}, r"tolerance=nan is not in \[0, inf\]"),
        ({"learning_rate": "0.1"}, r"learning_rate='0.1' is not in \(0, inf\)"),
        ({"lambdas": 0.1}, "lambdas=0.1 must be finite numbers, one a gated layer"),
        ({"tolerance": -0.1}, r"tolerance=-0.1 is not in \[0, inf\]"),
        ({"rest": -1}, "rest=-1: expected a whole number, at least 0"),
        ({"rest": 9, "expand": True}, "rest=9, expand=True: expected 0 for an expansion"),
        ({"augment": "flip"}, "augment='flip': known are none, crop_flip"),
        ({"precision": "float16"}, "precision='float16': known are float32, bfloat16"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(change, line):
    with pytest.raises(BadInput, match=f"(gated training|gates): .*{line}"):
        replace(SPARSIFY, **change)


@pytest.mark.parametrize(
    ("model", "settings", "line"),
    [
        (network(), replace(SPARSIFY, lambdas=(0.1,)), "1 lambdas for 2 gated layers"),
        (network(), EXPAND, "an expansion needs dormant units in every gated layer"),
        (network(start=(3, 5)), EXPAND, "an expansion needs dormant units in every gated layer"),
        (
            network(),
            replace(SPARSIFY, estimator="hard_concrete"),
            "estimator='hard_concrete' does not fit gates of kind",
        ),
        (network(kind="hard_concrete"), SPARSIFY, "estimator='arm' does not fit gates of kind hard_concrete"),
        (moons_mlp(6, 5), SPARSIFY, "Sequential has no gates"),
        (network(start=(3, 3)), replace(EXPAND, validation=0.001), "validation=0.001 of 40 training examples"),
        (network(), replace(SPARSIFY, augment="crop_flip"), "'crop_flip' is for images"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_it_starts(model, settings, line):
    with pytest.raises(BadInput, match=line):
        train(model, points(), settings, seed=0)


def test_epochs_that_are_never_measured_are_refused_and_thresholds_may_be_an_array():
    with pytest.raises(BadInput, match="every=0: expected a whole number, at least 1"):
        train(network(), points(), SPARSIFY, seed=0, every=0)
    taus = np.array([0.5, 0.2])
    assert set(train(network(), points(), SPARSIFY, seed=0, taus=taus)[0]["at"]) == {0.5, 0.2}


def test_the_moons_are_learned_and_hardened():
    examples = Examples.of(vision.load("moons"))
    torch.manual_seed(0)
    model = gates.gated(moons_mlp(20, 16), ["fc1", "fc2"])
    settings = GatedTraining((30, 60, 30), (1.0, 10.0), 7.0, 50, learning_rate=0.005)
    rows = train(model, examples, settings, seed=0)
    assert rows[29]["accuracy"] > 95
    assert rows[-1]["parameters"] < 0.5 * rows[0]["parameters"]
    small = gates.harden(model)
    assert accuracy(small, examples) == rows[-1]["accuracy"] > 95
