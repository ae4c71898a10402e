"""Laws of `lib.papers.npn.experiments.directions`: what is trained beside what, and how a rival is cut to size."""

from dataclasses import replace

import pandas as pd
import pytest
import torch
from torch import nn

from lib.base import BadInput
from lib.companion.sweep.context import Context, Stopped
from lib.data import vision
from lib.models.lenet import LeNet
from lib.models.plain import moons_mlp
from lib.papers.npn.experiments.directions import (
    COLUMNS,
    CUT,
    DIRECTIONS,
    SCRIPTS,
    Directions,
    Sessions,
    aliases,
    cut,
    largest,
    live_units,
    needs,
    train_direction,
    units,
)
from lib.pruners import gates
from lib.training.examples import Examples
from lib.training.gated import GatedTraining
from lib.training.seeds import seed_of
from tests.papers.stopping import StoppedAt

SPARSIFY = GatedTraining((4, 16, 4), (0.2, 8.0), 7.0, 100, learning_rate=0.01)
EXPAND = GatedTraining((4, 16, 4), (0.1, 4.0), 0.5, 100, learning_rate=0.01, expand=True, patience=1, tolerance=1e9)
SHORT = Directions(seeds=(3,), every=5, start=(3, 4), sparsify=SPARSIFY, expand=EXPAND)
CONFIGURATIONS = SHORT.configurations("moons", "moons_mlp")
LENET = ("conv1", "conv2", "fc1", "fc2")


def train(configuration, context, needed=()):
    return train_direction(configuration, moons_mlp, Examples.of(vision.load("moons")), context, needed)


@pytest.fixture(scope="module")
def rows():
    found = []
    for configuration in CONFIGURATIONS:
        needed = [row for row in found if needs(configuration) and row["direction"] == "sparsify"]
        found += train(configuration, Context(), needed)
    table = pd.DataFrame(found)
    assert tuple(sorted(table)) == tuple(sorted(COLUMNS))
    return table.set_index(["direction", "epoch"])


def last(rows, direction):
    return rows.loc[direction].iloc[-1]


def test_each_direction_is_trained_equally_long_and_rows_are_kept_of_stage_ends_too(rows):
    assert {name: part.index.get_level_values(1).tolist() for name, part in rows.groupby(level=0)} == {
        "sparsify": [4, 5, 10, 15, 20, 24],
        "expand": [4, 5, 10, 15, 20, 24],
        "dense": [4, *(4 + e for e in (5, 10, 15, 20))],
        "magnitude": [4 + e for e in (5, 10, 15, 20)],
        "fresh": [5, 10, 15, 20, 24],
    }
    assert set(rows.seed) == {3}


def test_fresh_begins_with_weights_of_its_own_size(monkeypatch: pytest.MonkeyPatch):
    """Of 10 inputs they are drawn within 1 / sqrt(10); weights cut out of a layer of 100 lie within a tenth."""
    first = []

    def look(self, direction, model, *more, **others):
        first.extend(one.weight.detach().clone() for one in model.modules() if isinstance(one, nn.Linear))
        raise Stopped

    monkeypatch.setattr(Sessions, "train", look)
    (fresh,) = (c for c in CONFIGURATIONS if c["direction"] == "fresh")
    with pytest.raises(Stopped):
        train(fresh, Context(), [{"epoch": 24, "architecture_live": "2-10-8-2"}])
    second = first[1]
    assert second.shape == (8, 10)
    assert 0.2 < second.abs().max() <= 10**-0.5


def test_a_configuration_is_a_direction_with_its_own_settings_and_rivals_need_sparsify():
    assert [c["direction"] for c in CONFIGURATIONS] == [name for name in DIRECTIONS if name not in SCRIPTS]
    assert [c["training"]["expand"] for c in CONFIGURATIONS] == [False, True, False, False, False]
    assert [units(c) for c in CONFIGURATIONS] == [24] * 5
    assert [needs(c) for c in CONFIGURATIONS] == [None, None, None, CONFIGURATIONS[0], CONFIGURATIONS[0]]


def test_where_stage_2_lasts_until_sizes_rest_rivals_are_trained_as_long_as_sparsify_was(monkeypatch):
    monkeypatch.setattr(gates, "at_rest", lambda counts, epochs: len(counts) == epochs)
    resting = replace(SHORT, sparsify=replace(SPARSIFY, epochs=(4, 60, 4), rest=14), shares=(0.99,))
    configurations = resting.configurations("moons", "moons_mlp")
    sparsify = configurations[0]
    assert [needs(c) for c in configurations] == [None, None, sparsify, sparsify, sparsify]
    rows = train(sparsify, Context())
    end = rows[-1]["epoch"]
    assert (rows[-1]["stage"], end) == (3, 4 + 14 + 4)
    passed = [row["epoch"] for row in rows if row["parameters"] <= 0.99 * 8160]
    assert passed[0] % 5  # kept for its size
    for configuration in configurations[2:]:
        assert train(configuration, Context(), rows)[-1]["epoch"] == end
    with pytest.raises(BadInput, match="dense has the sizes or epochs of sparsify's end: it needs the rows"):
        train(configurations[2], Context())


def test_the_earlier_form_of_a_configuration_is_the_one_without_what_was_added_since():
    """As it stood in the runs of 2 moons' 50 seeds, whose results are found by it."""
    settings = Directions((10,), 100, (3, 3), GatedTraining((500, 1000, 500), (0.1, 4), 7, 250), EXPAND)
    sparsify, expand, *_ = settings.configurations("moons", "moons_mlp")
    training = {
        "epochs": (500, 1000, 500), "lambdas": (0.1, 4), "k": 7, "batch": 250, "learning_rate": 0.001, "drops": (),
        "gate_speed": 1.0, "estimator": "arm", "expand": False, "validation": 0.1, "patience": 5, "tolerance": 0.0,
        "level": 3.0, "augment": "none", "precision": "float32",
    }  # fmt: skip
    names = {"data": "moons", "network": "moons_mlp", "direction": "sparsify", "seed": 10}
    assert aliases(sparsify)[1:] == [names | {"every": 100, "start": (), "training": training}]
    changed = replace(settings, shares=(0.5,)), replace(settings, sparsify=replace(settings.sparsify, rest=9))
    others = [new.configurations("moons", "moons_mlp")[0] for new in changed]
    for one in (sparsify, expand, *others):  # before there was a choice of when units are woken
        kept = {name: value for name, value in one["training"].items() if name != "wake_when"}
        assert aliases(one)[0] == one | {"training": kept}
    assert [len(aliases(one)) for one in (expand, *others)] == [1, 1, 1]  # before that, they took other rules
    falls = replace(settings, expand=replace(settings.expand, wake_when="falls"))
    assert aliases(falls.configurations("moons", "moons_mlp")[1]) == []


def test_the_authors_schedule_is_run_where_it_is_given():
    script = replace(SPARSIFY, epochs=(0, 3, 3)), replace(EXPAND, epochs=(2, 4, 2), wake_when="falls")
    settings = replace(SHORT, sparsify_script=script[0], expand_script=script[1])
    *_, shrinks, grows = settings.configurations("moons", "moons_mlp")
    assert (shrinks["direction"], grows["direction"]) == ("sparsify_script", "expand_script")
    assert (shrinks["start"], grows["start"]) == ((), SHORT.start)
    for configuration, stages in ((shrinks, [2, 3]), (grows, [1, 2, 3])):
        assert needs(configuration) is None
        rows = train(configuration, Context())
        assert {row["direction"] for row in rows} == {configuration["direction"]}
        assert sorted({row["stage"] for row in rows}) == stages
    with pytest.raises(BadInput, match="expand must be true in the settings of expand and false in those of"):
        replace(SHORT, expand_script=script[0])


def test_by_the_authors_schedule_gates_learn_from_the_first_epoch_on_and_dormant_ones_begin_far_down():
    grows = replace(EXPAND, epochs=(3, 2, 1), wake_when="falls", early_k=7, k=1)
    settings = replace(SHORT, every=1, expand_script=grows, script_dormant=40)
    configuration = settings.configurations("moons", "moons_mlp")[-1]
    assert configuration["training"]["early_k"] == 7
    assert configuration["dormant"] == 40
    assert all("early_k" not in one["training"] and "dormant" not in one for one in CONFIGURATIONS)
    rows = train(configuration, Context())
    assert [(row["stage"], row["k"]) for row in rows] == [(1, 7)] * 3 + [(2, 1)] * 2 + [(3, gates.INFINITE)]
    usual = replace(settings, expand_script=replace(grows, early_k=None), script_dormant=None)
    usual = train(usual.configurations("moons", "moons_mlp")[-1], Context())
    assert usual[0]["k"] == gates.INFINITE
    assert rows[0]["regularised_loss"] != usual[0]["regularised_loss"]


def test_a_seed_has_the_rivals_that_are_named():
    named = replace(SHORT, rivals=("fresh", "dense")).configurations("moons", "moons_mlp")
    assert [c["direction"] for c in named] == ["sparsify", "expand", "fresh", "dense"]
    assert [c for c in CONFIGURATIONS if c["direction"] == "dense"] == named[3:]


def test_the_starts_are_those_asked_for_and_the_rivals_have_the_sparsified_size(rows):
    assert rows.loc[("sparsify", 4), "architecture"] == "2-100-80-2"
    assert rows.loc[("sparsify", 4), "parameters"] == 8160
    assert rows.loc[("expand", 4), "architecture"] == "2-3-4-2"
    end = last(rows, "sparsify")
    assert end.parameters < 8160
    assert last(rows, "expand").parameters > 3 * 4 + 4 * 2
    for rival in ("magnitude", "fresh"):
        assert set(rows.loc[rival].architecture) == {end.architecture_live}
        size = ["parameters", "parameters_live", "flops"]
        assert last(rows, rival)[size].tolist() == end[size].tolist()


def test_dense_is_the_sparsified_network_as_long_as_that_is_ordinary_too(rows):
    same = ["accuracy", "regularised_loss", "architecture", "k"]
    assert rows.loc[("dense", 4), same].tolist() == rows.loc[("sparsify", 4), same].tolist()
    assert set(rows.loc["dense"].k) == {5000.0}
    assert set(rows.loc["dense"].architecture) == {"2-100-80-2"}


@pytest.mark.parametrize(("direction", "stops"), [("expand", (10,)), ("magnitude", (3, 10))])
def test_a_run_that_was_stopped_goes_on_to_the_same_rows(rows, tmp_path, direction, stops):
    configuration = CONFIGURATIONS[DIRECTIONS.index(direction)]
    needed = rows.loc["sparsify"].reset_index().to_dict("records")
    for stop in stops:
        with pytest.raises(Stopped):
            train(configuration, StoppedAt("cpu", tmp_path, units=stop), needed)
    again = pd.DataFrame(train(configuration, Context("cpu", tmp_path), needed)).set_index(["direction", "epoch"])
    pd.testing.assert_frame_equal(again, rows.loc[[direction]], check_exact=True)


# Rivals cut to size


def test_the_largest_neurons_are_those_whose_weights_weigh_most():
    network = nn.Sequential()
    network.fc1, network.fc2 = nn.Linear(3, 2), nn.Linear(2, 2)
    network.fc1.weight.data = torch.tensor([[1.0, -3, 0], [1, 0, 2.5]])
    network.fc2.weight.data = torch.tensor([[1.0, 0], [0, -2]])
    kept = largest(network, ("fc1", "fc2"), (2, 1))
    assert [one.tolist() for one in kept] == [[False, True, True], [False, True]]


def lenet():
    torch.manual_seed(0)
    return LeNet((1, 3, 4), kernel=3, padding=1, side=8, hidden=5, classes=3)  # 4 channels of 2 x 2 positions


def test_the_largest_channels_are_those_with_the_largest_filters_and_positions_are_taken_from_them():
    network = lenet()
    network.conv2.weight.data *= torch.tensor([1.0, 100, 1, 10])[:, None, None, None]
    network.fc1.weight.data[:, :4] = 9.0  # of the first channel, which goes
    network.fc1.weight.data[:, 4:8] = torch.tensor([4.0, 1, 3, 2])
    network.fc1.weight.data[:, 12:] = torch.tensor([0.1, 0.3, 0.2, 0.1])
    kept = [one.nonzero()[:, 0].tolist() for one in largest(network, LENET, (2, 2, 4, 5))]
    assert kept[1] == [1, 3]
    assert kept[2] == [4, 6, 7, 13]  # not 5 but 13: every channel keeps a position, or it would go unread


def test_a_cut_network_computes_what_the_whole_one_does_with_the_others_closed():
    network, images = lenet(), torch.randn(6, 1, 8, 8)
    network.conv2.weight.data[0] *= 0.01  # so that the first channel goes
    kept = largest(network, LENET, (2, 3, 7, 4))
    small, start = cut(network, LENET, kept)
    assert small.conv2.weight.shape == (3, 2, 3, 3)
    assert small.fc1.weight.shape == (4, 12)  # all positions of three channels
    assert [len(one) for one in start] == [2, 3, 12, 4]
    left, closed = (
        gates.gated(model, LENET, start=open_units) for model, open_units in ((small, start), (network, kept))
    )
    for model in (left, closed):
        gates.set_k(model, gates.INFINITE)
    torch.testing.assert_close(left.eval()(images), closed.eval()(images))
    whole, less = (gates.sizes(gates.trace(model, (1, 8, 8))) for model in (closed, left))
    assert whole == less


def test_units_count_as_live_when_both_of_their_ends_are_open():
    network = lenet()
    start = [torch.ones(3, dtype=torch.bool), torch.tensor([1, 0, 1, 1]).bool(), torch.zeros(16), torch.ones(5)]
    start[2][:6] = 1  # two of these positions belong to the closed channel, channels 2 and 3 have none
    model = gates.gated(network, LENET, start=[one.bool() for one in start])
    gates.set_k(model, gates.INFINITE)
    layers = gates.trace(model)
    assert gates.architecture(layers) == "3-3-6-5"
    assert gates.architecture(layers, only_live=True) == "3-1-4-5"
    small = gates.harden(model)
    assert (small.conv1.out_channels, small.conv2.out_channels, small.fc2.in_features) == (3, 1, 5)


def test_the_units_of_gated_layers_are_read_from_an_architecture():
    assert live_units("3-1-4-5", LENET) == [3, 1, 4, 5]
    assert live_units("2-7-5-3", ("fc1", "fc2")) == [7, 5]  # an MLP is written with its ends


# Bad input


@pytest.mark.parametrize("direction", CUT)
def test_a_rival_without_the_sizes_it_shall_have_is_refused(direction):
    with pytest.raises(BadInput, match=f"{direction} has the sizes or epochs of sparsify's end: it needs the rows"):
        train(CONFIGURATIONS[DIRECTIONS.index(direction)], Context())


def test_settings_that_mix_the_directions_up_are_refused():
    with pytest.raises(BadInput, match="expand must be true in the settings of expand"):
        replace(SHORT, sparsify=EXPAND)
    with pytest.raises(BadInput, match=r"seeds=\(\) and every=5: expected a seed"):
        replace(SHORT, seeds=())
    with pytest.raises(BadInput, match=r"shares=\[0.5, 1.0\]: 1.0 is not between 0 and 1"):
        replace(SHORT, shares=(0.5, 1.0))
    with pytest.raises(BadInput, match="every=0"):
        replace(SHORT, every=0)
    with pytest.raises(BadInput, match=r"rivals=\['dense', 'random'\]: 'random' is none; known are dense, magnitude"):
        replace(SHORT, rivals=("dense", "random"))
    with pytest.raises(BadInput, match="'fresh' stands there twice"):
        replace(SHORT, rivals=("fresh", "fresh"))


def test_a_drop_of_the_rate_falls_on_the_same_epoch_in_every_direction(monkeypatch: pytest.MonkeyPatch):
    sessions: dict[str, list] = {}

    def noted(self, direction, model, settings, **others) -> None:
        sessions.setdefault(direction, []).append((settings.epochs, settings.drops))

    monkeypatch.setattr(Sessions, "train", noted)
    dropping = replace(SHORT, sparsify=replace(SPARSIFY, drops=(2, 20)))
    for direction in ("sparsify", "dense"):
        (one,) = (c for c in dropping.configurations("moons", "moons_mlp") if c["direction"] == direction)
        train(one, Context())
    assert sessions["sparsify"] == [((4, 16, 4), (2, 20))]
    # of the second session epoch 16 is the 20th of all, and what fell in the first stays
    assert sessions["dense"] == [((4, 0, 0), (2, 20)), ((0, 0, 20), (-2, 16))]


def test_fresh_begins_with_random_numbers_of_its_own(monkeypatch):
    seeds, manual_seed = [], torch.manual_seed
    monkeypatch.setattr(torch, "manual_seed", lambda seed: seeds.append(seed) or manual_seed(seed))
    fresh = next(one for one in CONFIGURATIONS if one["direction"] == "fresh")
    with pytest.raises(Stopped):
        train(fresh, Context(deadline=0.0), [{"epoch": 24, "architecture_live": "2-9-7-2"}])
    assert seeds[0] == seed_of(3, 2)
