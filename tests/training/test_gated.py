"""Laws of `lib.training.gated`: what k does, when an expansion grows and ends, stopping and going on."""

import itertools
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from lib.base import BadInput
from lib.kernels.block_circulant import circulant
from lib.models.lenet import LeNet
from lib.models.plain import moons_mlp
from lib.pruners import gates, groups
from lib.training import gated
from lib.training.examples import Examples
from lib.training.gated import GatedTraining, train
from lib.training.supervised import accuracy, hold_out
from tests.training.small_gates import EXPAND, SPARSIFY, network, points
from tests.training.stopping import stop_at


def phis(model):
    return [one.phi.detach().clone() for one in gates.gates_of(model)]


# Stages


def test_k_leads_through_the_stages():
    rows = train(network(), points(), SPARSIFY, seed=0)
    assert [row["epoch"] for row in rows] == list(range(1, 8))
    assert [row["stage"] for row in rows] == [1, 1, 2, 2, 2, 3, 3]
    assert [row["k"] for row in rows] == [5000, 5000, 7, 7, 7, 5000, 5000]


def test_only_stage_2_moves_the_gates():
    """Also after stage 2, when Adam still remembers which way phi went."""
    examples, model = points(), network()
    before, after = phis(model), []
    steps = {}

    def look():
        after.append(phis(model))
        steps[len(after)] = all(torch.equal(*pair) for pair in zip(before, after[-1], strict=True))

    train(model, examples, SPARSIFY, seed=0, on_progress=look)
    assert [steps[1], steps[2]] == [True, True]
    moved = [all(torch.equal(*pair) for pair in zip(a, b, strict=True)) for a, b in itertools.pairwise(after)]
    assert moved == [True, False, False, False, True, True]


def test_while_one_gate_is_undecided_in_stage_3_the_others_stay_where_they_are():
    """They have no gradient, but Adam would remember one."""
    model, seen = network(), []

    def look():
        if not seen:
            model.fc1.gates.phi.data[0] = 0.0  # its probability is one half at any k
        seen.append(phis(model))

    train(model, points(), replace(SPARSIFY, epochs=(0, 1, 1)), seed=0, on_progress=look)
    (first, second), (first_after, second_after) = seen
    assert first_after[0] != 0
    assert torch.equal(first_after[1:], first[1:])
    assert torch.equal(second_after, second)


@pytest.mark.parametrize(("kind", "tau"), [("sigmoid", 0.2), ("sigmoid", 0.8), ("hard_concrete", 0.5)])
def test_stage_3_keeps_the_architecture_that_stage_2_has_found(kind, tau):
    model, estimator = network(kind=kind, tau=tau), "hard_concrete" if kind == "hard_concrete" else "arm"
    for one in gates.gates_of(model):
        one.phi.data = torch.linspace(-0.3, 0.25, len(one.phi))  # none so near 0 that it is undecided in stage 3
    rows = train(model, points(), replace(SPARSIFY, epochs=(0, 1, 2), estimator=estimator), seed=0)
    assert {row["architecture"] for row in rows} == {rows[0]["architecture"]} != {"2-3-2-2"}  # those with phi > 0


def test_stage_3_keeps_what_a_first_stage_with_an_early_k_has_found():
    model = network(k=1.0, tau=0.8)
    for one in gates.gates_of(model):
        one.phi.data = torch.linspace(0.3, 2.5, len(one.phi))  # some open with less than 0.8: closed
    rows = train(model, points(), replace(SPARSIFY, k=1.0, early_k=1.0, epochs=(1, 0, 1)), seed=0)
    assert {row["architecture"] for row in rows} == {rows[0]["architecture"]} != {"2-6-5-2"}


def test_a_gated_network_with_blocks_of_shared_numbers_learns():
    """Its coefficients have five axes, which no layout of images has."""
    torch.manual_seed(0)
    tail = nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(128, 2)
    plain = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, padding=1), *tail)
    groups.group(plain, {"2.weight": circulant(4)})
    model, draw = gates.gated(plain), np.random.default_rng(0)
    images, labels = draw.integers(0, 255, (30, 1, 4, 4)).astype(np.uint8), np.arange(30) % 2
    parts = {"train_inputs": images[:20], "train_labels": labels[:20]}
    examples = Examples.of(SimpleNamespace(**parts, test_inputs=images[20:], test_labels=labels[20:]))
    settings = replace(SPARSIFY, epochs=(1, 0, 0), lambdas=(0.1,) * len(gates.gates_of(model)), batch=10)
    (shared,) = (one for name, one in model.named_parameters() if name.endswith("weight.original"))
    before = shared.clone()
    (row,) = train(model, examples, settings, seed=0)
    assert math.isfinite(row["regularised_loss"])
    assert not torch.equal(before, shared)


@pytest.mark.parametrize("gate", [True, False])
def test_what_is_fixed_stays_as_it_is_in_every_stage(gate):
    model = network()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.endswith("phi") is not gate)
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    train(model, points(), SPARSIFY, seed=0)
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def test_stage_1_is_ordinary_training_with_adam_bit_for_bit():
    """Section 3.2, against a loop written out, with dropout."""
    examples, model = points(), network(dropout=0.3)
    torch.manual_seed(0)
    plain = moons_mlp(6, 5)
    plain.relu = nn.Sequential(nn.ReLU(), nn.Dropout(0.3))
    batches = []
    hook = model.register_forward_pre_hook(lambda m, inputs: batches.append(inputs[0].clone()) if m.training else None)
    generator = []
    model.register_forward_pre_hook(lambda m, _: generator.append(torch.get_rng_state()) if m.training else None)
    train(model, examples, replace(SPARSIFY, epochs=(3, 0, 0)), seed=1)
    hook.remove()
    optimizer = torch.optim.Adam([p for p in plain.parameters() if p.requires_grad], 1e-3, fused=True)
    known = examples.scaled(examples.train_inputs)
    for batch, state in zip(batches, generator, strict=True):
        labels = torch.stack([examples.train_labels[(known == row).all(1)][0] for row in batch])
        torch.set_rng_state(state)
        optimizer.zero_grad()
        F.cross_entropy(plain(batch), labels).backward()
        optimizer.step()
    assert torch.equal(model.fc1.layer.weight, plain.fc1.weight)
    assert torch.equal(model.fc2.layer.bias, plain.fc2.bias)
    assert torch.equal(model.map.weight, plain.map.weight)  # fixed
    assert len(batches) == 9


def test_the_rate_falls_by_ten_after_each_drop():
    rows = {}
    for drops in ((), (1,), (1, 2)):
        model = network()
        before = model.fc2.layer.bias.detach().clone()
        settings = replace(SPARSIFY, epochs=(3, 0, 0), batch=40, drops=drops)
        moves = []

        def look(model=model, moves=moves):
            moves.append(model.fc2.layer.bias.detach().clone())

        train(model, points(), settings, seed=0, on_progress=look)
        rows[drops] = [float((b - a).abs().max()) for a, b in zip([before, *moves], moves, strict=False)]
    # Adam's first steps are as long as the rate
    assert rows[()][0] == pytest.approx(1e-3, rel=1e-3)
    assert [a / b for a, b in zip(rows[1, 2], rows[()], strict=True)] == pytest.approx([1, 0.1, 0.01], rel=0.1)
    assert [a / b for a, b in zip(rows[1,], rows[()], strict=True)] == pytest.approx([1, 0.1, 0.1], rel=0.1)


@pytest.mark.parametrize("speed", [1.0, 5.0])
def test_gates_move_at_their_own_speed(speed):
    """Adam's first steps are as long as the rate."""
    model, moves = network(), []
    before = [*phis(model), model.fc2.layer.bias.detach().clone()]
    settings = replace(SPARSIFY, epochs=(0, 2, 0), batch=40, lambdas=(40.0, 40.0), gate_speed=speed, drops=(1,))

    def look():
        now = [*phis(model), model.fc2.layer.bias.detach().clone()]
        moves.append([float((b - a).abs().max()) for a, b in zip(before, now, strict=True)])

    train(model, points(), settings, seed=0, on_progress=look)
    assert moves[0] == pytest.approx([speed * 1e-3, speed * 1e-3, 1e-3], rel=1e-3)
    assert moves[1][0] < moves[0][0] * 1.2  # drops are for both


# Rows


def test_a_row_holds_the_networks_numbers_after_its_epoch():
    examples, model = points(), network()
    row = train(model, examples, replace(SPARSIFY, epochs=(0, 1, 0), batch=40, learning_rate=1e-12), seed=0)[0]
    assert row["accuracy"] == accuracy(model, examples)
    assert row["architecture"] == "2-6-5-2"
    assert (row["parameters"], row["parameters_live"], row["flops"]) == (40, 40, 2 * (12 + 40))
    pi = [torch.sigmoid(7 * phi) for phi in phis(model)]
    cost = 0.1 / 40 * (5 * pi[0].sum() + 2 * pi[1].sum())
    every = []  # of one batch whose gates are drawn, some loss of the 2^11 settings
    for _ in range(300):
        every.append(
            F.cross_entropy(model.train()(examples.scaled(examples.train_inputs)), examples.train_labels).item()
        )
    assert min(every) < row["regularised_loss"] - float(cost) < max(every)
    model.eval()
    dense = train(model, examples, replace(SPARSIFY, epochs=(1, 0, 0), batch=40, learning_rate=1e-12), seed=0)[0]
    logits = gates.harden(model)(examples.scaled(examples.train_inputs))
    loss = F.cross_entropy(logits, examples.train_labels) + 0.1 / 40 * (6 * 5 + 5 * 2)
    assert dense["regularised_loss"] == pytest.approx(float(loss.detach()), rel=1e-5)


# What lambda and the gates do


def test_a_large_lambda_closes_gates_and_a_negative_one_keeps_them():
    examples = points()
    settings = replace(SPARSIFY, epochs=(0, 60, 2), learning_rate=0.005, batch=40)
    open_units = {}
    for rate in (40.0, -40.0):
        model = network()
        model.fc1.gates.phi.data[:3] = 0.1  # 60 steps of 0.005 close these, and not those at 3/7
        rows = train(model, examples, replace(settings, lambdas=(rate, 0.0)), seed=0)
        open_units[rate] = [int(one.is_open().sum()) for one in gates.gates_of(model)]
        assert rows[-1]["architecture"] == "2-{}-{}-2".format(*open_units[rate])
        assert rows[-1]["parameters"] == math.prod(open_units[rate]) + 2 * open_units[rate][1]
    assert open_units == {40.0: [3, 5], -40.0: [6, 5]}


def test_a_layer_whose_gates_have_all_closed_is_said():
    settings = replace(SPARSIFY, epochs=(0, 60, 0), learning_rate=0.02, lambdas=(1000.0, 0.0))
    with pytest.raises(BadInput, match="all 6 gates of fc1 are closed, nothing passes it: lower its lambda"):
        train(network(), points(), settings, seed=0)


@pytest.mark.parametrize(("kind", "estimator"), [("hard_sigmoid", "arm"), ("sigmoid", "ar"), ("hard_concrete",) * 2])
def test_other_gates_and_estimators_go_through_all_stages(kind, estimator):
    model = network(kind=kind)
    rows = train(model, points(), replace(SPARSIFY, estimator=estimator), seed=0)
    assert len(rows) == 7
    assert all(math.isfinite(row["regularised_loss"]) for row in rows)


def test_images_are_trained_too():
    inputs = np.random.default_rng(0).integers(0, 256, (32, 1, 8, 8), dtype=np.uint8)
    labels = np.arange(32) % 3
    parts = {"train_inputs": inputs[:20], "train_labels": labels[:20]}
    examples = Examples.of(SimpleNamespace(**parts, test_inputs=inputs[20:], test_labels=labels[20:]))
    torch.manual_seed(0)
    plain = LeNet((1, 3, 4), 3, 1, 8, 6, 3)
    model = gates.gated(plain, ["conv1", "conv2", "fc1", "fc2"], k=0.5, start=(2, 2, 6, 3))
    settings = GatedTraining((1, 2, 1), (1, 1, 1, 1), 0.5, 8, expand=True, augment="crop_flip", precision="bfloat16")
    rows = train(model, examples, settings, seed=0)
    assert rows[-1]["architecture"].count("-") == 3
    assert gates.harden(model)(examples.scaled(examples.test_inputs)).shape == (12, 3)


# Expansion


def test_an_expansion_grows_by_one_unit_a_layer_at_each_plateau_and_ends_when_no_layer_can_grow():
    settings = replace(EXPAND, epochs=(1, 100, 2), tolerance=1e9, lambdas=(0.0, 0.0))  # every second epoch plateaus
    model = network(start=(3, 3), k=0.5)
    rows = train(model, points(), settings, seed=0)
    woken = [row["woken"] for row in rows]
    # patience 1: a plateau needs two losses. Six features and five neurons: the second layer is full after two
    assert woken == [0, 0, 2, 0, 2, 0, 1, 0, 0, 0, 0]
    assert [row["stage"] for row in rows] == [1] + [2] * 8 + [3] * 2
    assert [row["ended"] for row in rows].index(True) == 8
    assert [row["architecture"] for row in rows[::2]] == [
        "2-3-3-2",
        "2-3-3-2",
        "2-4-4-2",
        "2-5-5-2",
        "2-6-5-2",
        "2-6-5-2",
    ]
    assert (rows[0]["validation_loss"], rows[-1]["validation_loss"]) == (None, None)
    assert all(row["validation_loss"] is not None for row in rows if row["stage"] == 2)


def test_measuring_less_often_changes_nothing_but_the_rows_that_are_measured():
    settings = replace(EXPAND, epochs=(2, 100, 3), tolerance=1e9, lambdas=(0.0, 0.0))  # the expansion ends in epoch 10
    rows = {every: train(network(start=(3, 3), k=0.5), points(), settings, seed=0, every=every) for every in (1, 4)}
    measured = [row for row in rows[4] if "accuracy" in row]
    assert [(row["epoch"], row["stage"]) for row in measured] == [(2, 1), (4, 2), (8, 2), (10, 2), (12, 3), (13, 3)]
    assert [row["ended"] for row in measured] == [False, False, False, True, False, False]
    for often, seldom in zip(rows[1], rows[4], strict=True):
        assert often["accuracy"] is not None
        assert seldom == (often if seldom in measured else {name: often[name] for name in seldom})


def test_no_unit_wakes_when_the_stage_is_over():
    settings = replace(EXPAND, epochs=(1, 4, 2), tolerance=1e9, lambdas=(0.0, 0.0))  # plateaus after two and four
    rows = train(network(start=(3, 3), k=0.5), points(), settings, seed=0)
    assert [row["woken"] for row in rows] == [0, 0, 2, 0, 0, 0, 0]
    assert [row["architecture"] for row in rows[3:]] == ["2-4-4-2"] * 4
    assert not any(row["ended"] for row in rows)


def test_an_expansion_without_plateaus_takes_its_epochs_and_wakes_nobody():
    settings = replace(EXPAND, tolerance=0.0)
    rows = train(network(start=(3, 3), k=0.5), points(), settings, seed=0)
    assert [row["stage"] for row in rows] == [1, 1, 2, 2, 2, 3, 3]
    assert sum(row["woken"] for row in rows) == 0


@pytest.mark.parametrize(
    ("step", "wakes"),
    [(-0.2, False), (0.2, False), (0.05, True), (-0.05, True)],
    ids=["falling", "rising", "rising within the tolerance", "falling within the tolerance"],
)
def test_units_wake_where_the_validation_loss_rests_and_not_where_it_rises(monkeypatch, step, wakes):
    losses = itertools.count()
    monkeypatch.setattr(gated, "_validation_loss", lambda *_: 1 + step * next(losses))
    settings = replace(EXPAND, epochs=(0, 4, 0), tolerance=0.1)
    rows = train(network(start=(3, 3), k=0.5), points(), settings, seed=0)
    assert [row["woken"] for row in rows] == ([0, 2, 0, 0] if wakes else [0] * 4)


# Until sizes rest


CLOSING = replace(SPARSIFY, epochs=(1, 60, 2), learning_rate=0.005, batch=40, lambdas=(40.0, 0.0))


def test_the_validation_loss_is_equation_8_on_what_is_held_out():
    model, settings = network(start=(3, 3), k=0.5), replace(EXPAND, epochs=(0, 1, 0))
    (row,) = train(model, points(), settings, seed=0)
    held = hold_out(points(), settings.validation, seed=0)[1]
    with torch.no_grad():
        expected = F.cross_entropy(model(held.scaled(held.test_inputs)), held.test_labels)
        expected += gates.penalty(model, [value / len(points().train_labels) for value in settings.lambdas])
    assert row["validation_loss"] == pytest.approx(float(expected), rel=1e-5)


def closing():
    """A network three of whose gates close within 60 steps of 0.005 and a price of 40, and the others do not."""
    model = network()
    model.fc1.gates.phi.data[:3] = torch.tensor([0.02, 0.05, 0.08])
    return model


def test_stage_2_ends_when_sizes_have_changed_and_come_to_rest():
    examples, model = points(), closing()
    settled, rested = (train(closing(), examples, replace(CLOSING, rest=rest), seed=0, every=100) for rest in (0, 8))
    counts = [row["open"] for row in settled if row["stage"] == 2]
    (end,) = (n for n in range(60) if counts[n] == [3, 5] and counts[n - 1] != [3, 5])
    assert 8 < end < 50
    assert (counts[0], counts[-1]) == ([6, 5], [3, 5])
    assert [row["stage"] for row in rested] == [1] + [2] * (end + 1 + 8) + [3] * 2
    assert rested[: end + 10 - 1] == settled[: end + 10 - 1]
    ended = [row for row in rested if row["ended"]]
    assert [(row["epoch"], row["architecture"]) for row in ended] == [(end + 10, "2-3-5-2")]
    train(model, examples, replace(CLOSING, rest=70), seed=0)
    assert not any(row["ended"] for row in settled)


def test_sizes_that_never_move_take_all_epochs():
    rows = train(network(), points(), replace(SPARSIFY, epochs=(0, 12, 1), rest=2), seed=0)
    assert {tuple(row["open"]) for row in rows[:-1]} == {(6, 5)}
    assert [row["stage"] for row in rows] == [2] * 12 + [3]


def test_the_network_is_measured_where_a_share_of_its_weights_is_first_left():
    examples = points()
    rows = train(closing(), examples, CLOSING, seed=0, every=100, shares=(0.85, 0.65, 0.5))
    often = train(closing(), examples, CLOSING, seed=0, every=1)
    # of 6 x 5 + 5 x 2 weights three features leave 25, so a half is never reached
    first = [next(r["epoch"] for r in often if r["parameters"] <= share * 40) for share in (0.85, 0.65)]
    assert 2 < first[0] < first[1] < 61
    assert [row["epoch"] for row in rows if "accuracy" in row] == [1, *first, 61, 63]
    assert [row["share"] for row in often] == [None] * len(often)
    for one, other in zip(rows, often, strict=True):
        assert one["share"] == (other["parameters"] / 40 if one["stage"] == 2 else None)
        assert other | {"share": one["share"], "dense": 40} == other | one


@pytest.mark.parametrize("stop", [5, 15, 22])
def test_a_session_that_lasts_until_sizes_rest_goes_on_to_the_same_numbers(tmp_path, stop):
    examples, settings, more = points(), replace(CLOSING, rest=8), {"every": 100, "shares": (0.85, 0.7)}
    rows = train(closing(), examples, settings, 0, **more)
    with pytest.raises(InterruptedError):
        train(closing(), examples, settings, 0, state=tmp_path / "s.pt", on_progress=stop_at(stop), **more)
    assert train(closing(), examples, settings, 0, state=tmp_path / "s.pt", **more) == rows
    assert sum("share" in row and "accuracy" in row and row["stage"] == 2 for row in rows) == 3


def test_units_wake_at_each_loss_that_is_lower_than_ever_where_the_authors_rule_is_asked_for(monkeypatch):
    losses = [0.9, 0.8, 0.8, 0.85, 0.7, 0.6, 0.5]  # the first counts as lower than ever, the last epoch wakes nobody
    left = iter(losses)
    monkeypatch.setattr(gated, "_validation_loss", lambda *_: next(left))
    settings = replace(EXPAND, epochs=(0, len(losses), 1), wake_when="falls", lambdas=(0.0, 0.0))
    rows = train(network(start=(3, 3), k=0.5), points(), settings, seed=0)
    # Six features and five neurons: the second layer is full after two, the first after three, and that is no end.
    assert [row["woken"] for row in rows] == [2, 2, 0, 0, 1, 0, 0, 0]
    assert not any(row["ended"] for row in rows)


def test_a_rule_for_waking_that_is_not_known_or_not_asked_for_is_refused():
    for odd in ({"wake_when": "rises"}, {"wake_when": "falls", "expand": False}):
        with pytest.raises(BadInput, match="known are plateaus, falls, and the first without expand"):
            replace(EXPAND, **odd)


@pytest.mark.parametrize("level", [-3.0, 0.0, math.nan, math.inf])
def test_a_level_at_which_no_woken_unit_is_open_is_refused(level):
    with pytest.raises(BadInput, match=rf"level={level} is not in \(0, inf\)"):
        replace(EXPAND, level=level)
