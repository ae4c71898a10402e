"""What the experiment of the two moons compares; the laws of its sessions are in test_directions."""

from lib import settings
from lib.experiments import npn_moons
from lib.jobs import Job
from lib.sweep.grid import Grid
from lib.training.plasticity import Plasticity

SPARSIFY = Plasticity((1, 1, 0), (0.2, 8.0), 7.0, 250)
EXPAND = Plasticity((1, 1, 0), (0.2, 8.0), 0.5, 250, expand=True)


def test_a_seed_gives_all_directions_of_the_papers_network():
    configurations = npn_moons.configurations(npn_moons.Settings((4,), 1, (3, 3), SPARSIFY, EXPAND))
    rows = npn_moons.run(configurations[0], Job(), [])
    rows += [
        row for one in configurations[1:] for row in npn_moons.run(one, Job(), rows if npn_moons.needs(one) else [])
    ]
    table = Grid("npn_moons", "quick", npn_moons, {}, "").table(rows)
    assert set(table.direction) == {"sparsify", "expand", "dense", "magnitude", "fresh"}
    assert (set(table.data), set(table.network), set(table.seed)) == ({"moons"}, {"moons_mlp"}, {4})
    first = table[table.epoch == 1].set_index("direction")
    assert first.architecture["sparsify"] == "2-100-80-2"
    assert first.parameters["sparsify"] == 8160  # section 6.1
    assert first.parameters["expand"] == 15
    assert [npn_moons.units(one) for one in configurations] == [2] * 5


def test_quick_has_the_papers_settings_and_seeds_that_nothing_was_chosen_on():
    """Section 6.1 and figure 3: as printed."""
    quick = settings.build(npn_moons.Settings, settings.read("npn_moons", "quick"), "quick.npn_moons")
    for direction, k, first in ((quick.sparsify, 7, 500), (quick.expand, 0.5, 100)):
        assert (sum(direction.epochs), direction.k, direction.learning_rate) == (2000, k, 0.001)
        assert (direction.epochs[0], direction.gate_speed) == (first, 1)
    assert quick.sparsify.lambdas == quick.expand.lambdas
    assert quick.start == (3, 3)
    assert len(quick.seeds) == 5
    assert not set(quick.seeds) & set(range(5))
