"""Settings of the project's own experiments that make no sense are refused with their place, whoever reads them."""

import copy
import functools
import importlib

import pytest

from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.grid import module_of

content = functools.cache(settings.read)

# experiment, where in its quick settings, what is put there, what is said
REFUSED = [
    ("two_four_workflow", ("tasks", 0, "seeds"), 0, "tasks[0].seeds: expected at least 1, found 0"),
    ("two_four_workflow", ("tasks", 0, "seeds"), -2, "tasks[0].seeds: expected at least 1, found -2"),
    ("two_four_workflow", ("tasks", 0, "control_seeds"), -1, "control_seeds: expected at least 0, found -1"),
    ("two_four_workflow", ("tasks", 0, "training", "warmup"), float("inf"), "warmup: expected a finite number"),
    ("two_four_workflow", ("tasks", 0, "training", "weight_decay"), float("nan"), "weight_decay: expected a finite"),
    ("two_four_workflow", ("tasks", 0, "training", "weight_decay"), -1.0, "weight_decay: expected at least 0"),
    ("two_four_workflow", ("tasks",), [], "two_four_workflow.tasks: expected at least one value, found []"),
    ("two_four_networks", ("tasks", 0, "seeds"), 0, "tasks[0].seeds: expected at least 1, found 0"),
    ("skdfe", ("tasks", 0, "seeds"), 0, "tasks[0].seeds: expected at least 1, found 0"),
    ("skdfe", ("tasks", 0, "distillations"), [], "distillations: expected at least one value, found []"),
    ("skdfe_two_four", ("tasks", 0, "seeds"), -1, "tasks[0].seeds: expected at least 1, found -1"),
    ("offline_rl", ("tasks", 0, "pruned", 0, "sparsities"), [], "sparsities: expected at least one value, found []"),
    ("offline_rl", ("tasks", 0, "seeds"), 0, "seeds and episodes must be at least 1"),
    ("gst_bc", ("tasks", 0, "seeds"), 0, "tasks[0].seeds: expected at least 1, found 0"),
    ("gst_bc", ("tasks", 0, "ramp"), 5.0, "tasks[0].ramp: expected a number from 0 to 1, found 5.0"),
    ("gst_td3", ("tasks", 0, "ramp"), 5.0, "tasks[0].ramp: expected a number from 0 to 1, found 5.0"),
    ("offline_rl", ("bc", "hidden"), [256, 0], "bc.hidden[1]: expected at least 1, found 0"),
    ("offline_rl", ("bcq", "vae_hidden"), [-1], "bcq.vae_hidden[0]: expected at least 1, found -1"),
    ("gst_td3", ("tasks", 0, "td3", "hidden"), [0], "td3.hidden[0]: expected at least 1, found 0"),
    ("npn_moons", ("seeds",), [], "npn_moons.seeds: expected at least one value, found []"),
    ("npn_moons", ("seeds",), [-1], "npn_moons.seeds[0]: expected at least 0, found -1"),
    ("npn_moons", ("start",), [3, 0], "npn_moons.start[1]: expected at least 1, found 0"),
    ("npn_ablations", ("seeds",), [-1], "npn_ablations.seeds[0]: expected at least 0, found -1"),
    ("npn_ablations", ("variants", 0, "taus"), [1.5], "taus[0]: expected a number from 0 to 1, found 1.5"),
    ("npn_ablations", ("variants", 0, "start"), [0], "start[0]: expected at least 1, found 0"),
    ("npn_moons", ("sparsify", "drops"), [-5], "sparsify.drops[0]: expected at least 1, found -5"),
]


@pytest.mark.parametrize(("experiment", "where", "value", "line"), REFUSED, ids=lambda part: str(part)[:40])
def test_nonsense_is_refused(experiment: str, where: tuple, value: object, line: str):
    changed = copy.deepcopy(content(experiment, "quick"))
    place = changed
    for part in where[:-1]:
        place = place[part]
    place[where[-1]] = value
    module = importlib.import_module(module_of(experiment))
    with pytest.raises(BadInput) as error:
        build(module.Settings, changed, f"quick.{experiment}")
    assert str(error.value).startswith(f"quick.{experiment}")
    assert line in str(error.value)
