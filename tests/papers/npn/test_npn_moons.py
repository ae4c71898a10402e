"""What the experiment of the two moons compares; the laws of its sessions are in test_directions."""

from dataclasses import replace

import pytest
import torch

from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context
from lib.companion.sweep.grid import Grid
from lib.data import vision
from lib.papers.npn.experiments import npn_moons
from lib.training.examples import Examples
from lib.training.gated import GatedTraining

SPARSIFY = GatedTraining((1, 1, 0), (0.2, 8.0), 7.0, 250)
EXPAND = GatedTraining((1, 1, 0), (0.2, 8.0), 0.5, 250, expand=True)


def test_a_seed_gives_all_directions_of_the_papers_network():
    configurations = npn_moons.configurations(npn_moons.Settings((4,), 1, (3, 3), SPARSIFY, EXPAND))
    rows = npn_moons.run(configurations[0], Context(), [])
    rows += [
        row for one in configurations[1:] for row in npn_moons.run(one, Context(), rows if npn_moons.needs(one) else [])
    ]
    table = Grid("npn_moons", "quick", npn_moons, {}, "").table(rows)
    assert set(table.direction) == {"sparsify", "expand", "dense", "magnitude", "fresh"}
    assert (set(table.data), set(table.network), set(table.seed)) == ({"moons"}, {"moons_mlp"}, {4})
    first = table[table.epoch == 1].set_index("direction")
    assert first.architecture["sparsify"] == "2-100-80-2"
    assert first.parameters["sparsify"] == 8160  # section 6.1
    assert first.parameters["expand"] == 15
    assert [npn_moons.units(one) for one in configurations] == [2] * 5


def test_seeds_that_draw_their_own_points_have_others(monkeypatch):
    seen = []
    monkeypatch.setattr(npn_moons, "train_direction", lambda c, build, examples, context, needed: seen.append(examples))
    own = npn_moons.Settings((4, 5), 1, (3, 3), SPARSIFY, EXPAND, drawn_per_seed=True, test_points=700)
    for configuration in npn_moons.configurations(own)[:2]:
        npn_moons.run(configuration, Context(), [])
    npn_moons.run(npn_moons.configurations(npn_moons.Settings((4,), 1, (3, 3), SPARSIFY, EXPAND))[0], Context(), [])
    four, five, shared = seen
    assert [(len(e.train_labels), len(e.test_labels)) for e in seen] == [(500, 700), (500, 700), (500, 500)]
    assert not torch.equal(four.train_inputs, five.train_inputs)
    assert torch.equal(shared.test_inputs, Examples.of(vision.load("moons")).test_inputs)


def test_only_runs_on_the_shared_points_have_an_earlier_form():
    shared = npn_moons.Settings((4,), 1, (3, 3), SPARSIFY, EXPAND)
    own = replace(shared, drawn_per_seed=True)
    *_, earlier = npn_moons.aliases(npn_moons.configurations(shared)[0])
    assert not {"drawn_per_seed", "test_points", "shares"} & set(earlier)
    assert all("drawn_per_seed" in form for form in npn_moons.aliases(npn_moons.configurations(own)[0]))


def test_points_that_cannot_be_are_refused():
    for points in ({"test_points": 20_000}, {"drawn_per_seed": True, "test_points": 0}):
        with pytest.raises(BadInput, match="expected at least 1 point, and 500 where all seeds share their points"):
            npn_moons.Settings((4,), 1, (3, 3), SPARSIFY, EXPAND, **points)


def test_quick_has_the_papers_settings_and_seeds_that_nothing_was_chosen_on():
    """Section 6.1 and figure 3: as printed."""
    quick = build(npn_moons.Settings, settings.read("npn_moons", "quick"), "quick.npn_moons")
    for direction, k, first in ((quick.sparsify, 7, 500), (quick.expand, 0.5, 100)):
        assert (sum(direction.epochs), direction.k, direction.learning_rate) == (2000, k, 0.001)
        assert (direction.epochs[0], direction.gate_speed) == (first, 1)
    assert quick.sparsify.lambdas == quick.expand.lambdas
    assert quick.start == (3, 3)
    assert len(quick.seeds) == 3
    assert not set(quick.seeds) & set(range(5))


def test_the_real_scale_draws_points_for_each_seed_and_tests_on_20_000():
    real = build(npn_moons.Settings, settings.read("npn_moons", "real"), "real.npn_moons")
    assert (real.drawn_per_seed, real.test_points, len(real.seeds)) == (True, 20_000, 50)
    assert not set(real.seeds) & set(range(10))  # which settings were tried on
