"""What the offline experiments compare, on a few random transitions of Hopper and narrow networks."""

from dataclasses import replace

import pandas as pd
import pytest
import torch

from lib import pruners
from lib.base import BadInput, build
from lib.companion.sweep import settings
from lib.companion.sweep.context import Context, Stopped
from lib.companion.sweep.grid import Grid
from lib.papers.offline_rl.experiments import offline_rl as experiment
from lib.papers.offline_rl.experiments import offline_rl_layers as layers
from lib.papers.offline_rl.experiments import offline_rl_rounds
from lib.training.agents import SCORING, Draws, Transitions, draw_batch, normalised
from lib.training.bc import BCSettings, PlainBCSettings
from lib.training.bcq import BCQ, BCQSettings

pytestmark = pytest.mark.usefixtures("by_chance")
NARROW = {
    "bc": BCSettings(hidden=(8, 8), batch=8),
    "bcq": BCQSettings(hidden=(8, 8), vae_hidden=(8, 8), batch=8, target_samples=2, acting_samples=4),
    "plain_bc": PlainBCSettings(hidden=(8, 8), batch=8),
}
PRUNED = (experiment.Pruned("snip", (0.5, 0.9)), experiment.Pruned("random", (0.9,)))
RUNS = [("dense", 0.0), ("random", 0.9), ("snip", 0.5), ("snip", 0.9)]


def task(algorithm: str = "bc", **changed) -> experiment.Task:
    given = {"env": "hopper", "algorithm": algorithm, "pruned": PRUNED, "seeds": 2, "steps": 4, "every": 2}
    return experiment.Task(**(given | {"episodes": 1, "transitions": 200} | changed))


def table(configuration: dict, context: Context | None = None) -> pd.DataFrame:
    rows = experiment.run(configuration, context or Context())
    return Grid("offline_rl", "quick", experiment, {}, "").table(rows)


@pytest.mark.parametrize("algorithm", experiment.ALGORITHMS)
def test_each_run_of_a_seed_has_a_row_an_evaluation(algorithm: str):
    configurations = experiment.configurations(experiment.Settings((task(algorithm),), **NARROW))
    assert [c["seed"] for c in configurations] == [0, 1]
    context = Context()
    rows = table(configurations[1], context)
    assert context.done == experiment.units(configurations[1]) == 2
    assert sorted(set(zip(rows.pruner, rows.sparsity, strict=True))) == RUNS
    assert sorted(set(rows.step)) == [2, 4]
    assert len(rows) == 8
    key = rows[["data", "env", "algorithm", "batches", "seed"]].drop_duplicates()
    assert key.to_numpy().tolist() == [["recorded-expert", "hopper", algorithm, 1, 1]]
    span = 3234.3 + 20.272305  # D4RL's references
    assert rows.normalised_return.to_numpy() == pytest.approx(100 * (rows["return"] + 20.272305) / span)
    assert rows.groupby(["pruner", "sparsity"])["return"].nunique().min() == 2  # it learns between evaluations


def test_more_seeds_of_some_runs_are_a_task_of_their_own():
    more = task(first_seed=2, seeds=3, pruned=PRUNED[:1])
    found = experiment.configurations(experiment.Settings((task(), more), **NARROW))
    assert [one["seed"] for one in found] == [0, 1, 2, 3, 4]
    assert [len(experiment.runs(one, one["seed"])) for one in found] == [4, 4, 3, 3, 3]
    assert found[0].keys() == found[-1].keys()
    assert len({Grid("offline_rl", "quick", experiment, {}, "").identity(one) for one in found}) == 5
    with pytest.raises(BadInput, match="first_seed=-1: expected a whole number, at least 0"):
        task(first_seed=-1)


def test_each_seed_is_evaluated_in_episodes_of_its_own(monkeypatch: pytest.MonkeyPatch):
    """Agents of one seed meet the same starts, those of two seeds others: luck is not paid to all of them at once."""
    asked, returns = [], experiment.mean_returns

    def watched(act, env, seeds, episodes):
        asked.append(list(seeds))
        return returns(act, env, seeds, episodes)

    monkeypatch.setattr(experiment, "mean_returns", watched)
    for configuration in experiment.configurations(experiment.Settings((task(),), **NARROW)):
        experiment.run(configuration, Context())
    assert asked == [[0] * 4] * 2 + [[1] * 4] * 2


def test_a_run_is_the_same_whatever_else_is_pruned_beside_it():
    both = experiment.Settings((task(seeds=1),), **NARROW)
    alone = experiment.Settings((task(seeds=1, pruned=(experiment.Pruned("snip", (0.9,)),)),), **NARROW)
    rows, few = (table(experiment.configurations(settings)[0]) for settings in (both, alone))
    mine = rows[(rows.pruner == "dense") | ((rows.pruner == "snip") & (rows.sparsity == 0.9))]
    pd.testing.assert_frame_equal(mine.reset_index(drop=True), few)


def test_more_batches_are_rows_of_their_own_and_change_the_masks_alone():
    settings = experiment.Settings((task(seeds=1), task(seeds=1, batches=3)), **NARROW)
    one, three = (table(c).set_index(["pruner", "sparsity", "step"]) for c in experiment.configurations(settings))
    assert set(one.batches) == {1}
    assert set(three.batches) == {3}
    same = (one["return"] == three["return"]).groupby(["pruner", "sparsity"]).all()
    assert same["dense", 0.0]
    assert same["random", 0.9]
    assert not same["snip", 0.9]


def test_a_stopped_configuration_goes_on_with_the_same_rows(tmp_path):
    configuration = experiment.configurations(experiment.Settings((task(seeds=1),), **NARROW))[0]
    whole = table(configuration)
    with pytest.raises(Stopped):
        table(configuration, Context(folder=tmp_path, deadline=0))
    assert (tmp_path / "stack.pt").exists()
    pd.testing.assert_frame_equal(table(configuration, Context(folder=tmp_path)), whole)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"algorithm": "td3"}, "algorithm 'td3': known are bc, bcq, plain_bc"),
        ({"env": "ant"}, "environment 'ant'"),
        ({"quality": "good"}, "quality 'good': known are"),
        ({"quality": "random"}, "recorded data of quality 'random': the project's own are expert, medium"),
        ({"transitions": 0}, "transitions=0: expected a whole number, at least 1"),
        ({"source": "files"}, "offline data 'files': known are"),
        ({"steps": 5}, "steps=5 a multiple of every=2"),
        ({"steps": 120, "every": 60}, "every=60 must be a multiple of 50"),
        ({"seeds": 0}, "seeds and episodes must be at least 1"),
        ({"batches": 0}, "batches=0: expected a whole number, at least 1"),
        ({"change": {"normalise": False}}, "its rows need a name of their own, a variant"),
        ({"variant": "raw"}, "raw is what {normalise: false} is called"),
        ({"pruned": (experiment.Pruned("sinp", (0.5,)),)}, "pruner 'sinp'"),
        ({"pruned": (experiment.Pruned("snip", (1.0,)),)}, "sparsity=1.0"),
        ({"pruned": (*PRUNED, experiment.Pruned("snip", (0.9,)))}, r"\('snip', 0.9\) stands there twice"),
        ({"pruned": (experiment.Pruned("dense", (0.0,)),)}, r"pruned=.*\('dense', 0.0\) stands there twice"),
    ],
)
def test_a_task_of_nothing_known_is_refused(changed: dict, what: str):
    with pytest.raises(BadInput, match=what):
        task(**changed)


def test_a_sparsity_is_named_once():
    with pytest.raises(BadInput, match=r"sparsities=\[0.5, 0.9, 0.5\]: 0.5 stands there twice"):
        experiment.Pruned("snip", (0.5, 0.9, 0.5))


def of_scale(scale: str) -> experiment.Settings:
    return build(experiment.Settings, settings.read("offline_rl", scale), f"{scale}.offline_rl")


def sparsities(one: experiment.Task) -> dict[str, tuple[float, ...]]:
    return {each.pruner: each.sparsities for each in one.pruned}


def test_the_papers_settings_are_the_papers():
    found = of_scale("paper")
    assert (found.bc, found.bcq, found.plain_bc) == (BCSettings(), BCQSettings(acting_samples=10), PlainBCSettings())
    printed = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
    for one in found.tasks:
        assert (one.seeds, one.steps, one.every, one.transitions) == (5, 1_000_000, 50_000, None)
        if one.batches == 1:
            assert sparsities(one) == dict.fromkeys(("snip", "grasp", "random", "magnitude"), (*printed, 0.98, 0.99))
        assert one.source == "d4rl"
    larger = {(one.env, one.algorithm, one.quality, one.batches) for one in found.tasks if one.batches > 1}
    envs = ("halfcheetah", "hopper", "walker2d")
    wanted = {(env, algorithm, "expert") for env in envs for algorithm in ("bc", "bcq")}
    wanted |= {(env, "bc", "medium") for env in envs}
    assert {(one.env, one.algorithm, one.quality) for one in found.tasks} == wanted
    assert larger == {(env, "bc", "expert", 10) for env in envs}


def test_the_real_scale_has_every_pruner_on_three_environments():
    tasks = [
        one for one in of_scale("real").tasks if (one.batches, one.quality, one.variant) == (1, "expert", "normalised")
    ]
    found = {(one.env, one.algorithm): one for one in tasks if not one.first_seed}
    for env in ("halfcheetah", "hopper", "walker2d"):
        assert set(sparsities(found[env, "bc"])) == set(pruners.SCORES)
        assert all({0.5, 0.9, 0.95, 0.99} <= set(shares) for shares in sparsities(found[env, "bc"]).values())
        slow = found[env, "bcq"]
        assert min(found[env, "bc"].seeds, slow.seeds) >= 5  # three do not decide
        assert slow.steps >= 10_000
        assert sparsities(slow) == dict.fromkeys(("snip", "grasp", "random", "snip_shuffled"), (0.9, 0.95))


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"pruners": ("snip", "sinp")}, "pruner 'sinp': known are dense, snip"),
        ({"pruners": ("snip", "snip")}, "pruners=.*: 'snip' stands there twice"),
        ({"sparsities": (0.9, 0.9)}, "sparsities=.*: 0.9 stands there twice"),
        ({"sparsities": (1.5,)}, "sparsity=1.5"),
        ({"source": "d4lr"}, "offline data 'd4lr': known are recorded, d4rl"),
        ({"quality": "good"}, "quality 'good': known are"),
        ({"quality": "random"}, "recorded data of quality 'random': the project's own are expert, medium"),
    ],
)
def test_layers_of_nothing_known_or_of_one_thing_twice_are_refused(changed: dict, what: str):
    with pytest.raises(BadInput, match=what):
        replace(layers.Settings(("hopper",), ("snip", "magnitude"), (0.95,), seeds=1), **changed)


def test_layers_are_counted_of_the_papers_networks():
    settings = layers.Settings(("hopper",), ("snip", "magnitude"), (0.95,), seeds=1)
    tables = {}
    for configuration in layers.configurations(settings):
        rows = layers.run(configuration, Context())
        tables[configuration["variant"]] = Grid("offline_rl_layers", "quick", layers, {}, "").table(rows)
    assert list(tables) == ["normalised", "raw"]
    assert all(set(rows.variant) == {variant} for variant, rows in tables.items())
    found, raw = tables.values()
    changed = (found.kept != raw.kept).groupby(found.pruner).any()
    assert changed.to_dict() == {"magnitude": False, "snip": True}  # magnitude does not look at the data
    assert sorted(set(found.network)) == ["actor", "critic1", "critic2", "decoder", "encoder"]
    assert found.groupby("network").layer.unique().map(list).tolist() == [[1, 2, 3]] * 5
    snip = found[found.pruner == "snip"].set_index(["network", "layer"])
    assert snip.loc["encoder"].weights.tolist() == [14 * 750, 750 * 750, 750 * 12]
    for networks in (["actor"], ["critic1", "critic2"], ["encoder"], ["decoder"]):  # ranked together
        mine = found[found.network.isin(networks)]
        left = (mine.weights * mine.kept).groupby(mine.pruner).sum() / mine.weights.groupby(mine.pruner).sum()
        assert left.tolist() == pytest.approx([5, 5], abs=0.01)
    # the smallest weights go: a layer of many inputs starts with smaller ones than the first
    wide = found[(found.pruner == "magnitude") & (found.layer == 1)].kept
    assert (wide > 40).all()


def test_layers_are_counted_with_grasp_of_each_network_alone():
    settings = layers.Settings(("hopper",), ("snip", "grasp"), (0.95,), seeds=1)
    tables = {}
    for configuration in layers.configurations(settings):
        tables[configuration["variant"]] = pd.DataFrame(layers.run(configuration, Context()))
    found, usual = tables["alone"], tables["normalised"].query("pruner == 'grasp'")
    assert set(found.pruner) == {"grasp"}
    both = found.merge(usual, on=["network", "layer"])
    differ = (both.kept_x != both.kept_y).groupby(both.network).any()
    assert differ.to_dict() == {"actor": False, "critic1": False, "critic2": False, "decoder": True, "encoder": True}


def test_layers_see_observations_normalised_or_as_they_are_as_their_variant_says(monkeypatch: pytest.MonkeyPatch):
    seen, scale = {}, layers.normalised
    settings = layers.Settings(("hopper",), ("magnitude",), (0.95,), seeds=1)
    for configuration in layers.configurations(settings):

        def look(data, of, variant=configuration["variant"]):
            seen[variant] = scale(data, of)[0].observations.std(0)
            return scale(data, of)

        monkeypatch.setattr(layers, "normalised", look)
        layers.run(configuration, Context())
    assert seen["normalised"].tolist() == pytest.approx([1] * 11, abs=0.05)
    assert seen["raw"].max() > 1.5 * seen["raw"].min()


def test_each_run_of_a_stack_has_its_own_sparsity_and_its_own_masks():
    """What is left of a network is the run's own share, and what the run alone would have kept."""
    both = layers.Settings(("hopper",), ("snip",), (0.5, 0.9), seeds=1)

    def table_of(settings: layers.Settings) -> pd.DataFrame:
        rows = layers.run(layers.configurations(settings)[0], Context())
        return Grid("offline_rl_layers", "quick", layers, {}, "").table(rows)

    found = table_of(both)
    for sparsity, rows in found.groupby("sparsity"):
        actor = rows[rows.network == "actor"]
        left = (actor.weights * actor.kept).sum() / actor.weights.sum()
        assert left == pytest.approx(100 * (1 - sparsity), abs=0.01)
    alone = table_of(replace(both, sparsities=(0.9,)))
    pd.testing.assert_frame_equal(found[found.sparsity == 0.9].reset_index(drop=True), alone)


def test_of_the_gradient_all_is_left_without_pruning_and_what_the_kept_weights_have_after_it():
    settings = layers.Settings(("hopper",), ("snip", "random"), (0.0, 0.95), seeds=1)
    found = pd.DataFrame(layers.run(layers.configurations(settings)[0], Context()))
    left = found.groupby(["sparsity", "pruner", "network"]).flow.sum()
    assert left[0.0].tolist() == pytest.approx([100] * 10, rel=1e-4)
    assert (left[0.95, "snip"] > left[0.95, "random"]).all()  # 5 % of the weights, those with large gradients or any


def test_a_squared_gradient_is_that_of_the_networks_own_loss_over_the_weights_that_are_left():
    """Of a critic's last layer four weights are left; their gradients are taken again as differences of two losses."""
    agent = BCQ(11, [1.0] * 3, [0], BCQSettings(hidden=(8, 8), vae_hidden=(8, 8)))
    data, _ = normalised(Transitions.of(layers.load("recorded", "hopper", "expert", 1000)), agent.settings)
    weight = agent.networks["critic"][0].layers[2].weight.detach()  # [run, 1, 8]
    weight[..., 4:] = 0
    squares = layers.squared_gradients(agent, data)
    batch = draw_batch(agent, data, Draws([0], "cpu"), 200, SCORING, 1)  # the second one: the first is scored

    def loss(place: int, moved: float) -> float:
        weight[..., place] += moved
        value = agent.objectives["critic"].loss(*batch).item()
        weight[..., place] -= moved
        return value

    slopes = [(loss(place, 0.1) - loss(place, -0.1)) / 0.2 for place in range(4)]
    assert any(slopes)
    squared = sum(slope**2 for slope in slopes)
    assert float(squares["critic.0.layers.2.weight"]) == pytest.approx(squared, rel=0.01)


def test_each_network_is_measured_with_its_own_mask_alone():
    """Critics and encoder lose most weights: that changes the actor's and the decoder's gradient, not what is left."""
    whole, pruned = (BCQ(11, [1.0] * 3, [0], BCQSettings(hidden=(8, 8), vae_hidden=(8, 8))) for _ in range(2))
    data, _ = normalised(Transitions.of(layers.load("recorded", "hopper", "expert", 1000)), whole.settings)
    for name in ("critic", "encoder"):
        for layer in pruners.prunable(pruned.networks[name]):
            layer.module.weight.data[..., 1:] = 0
    before, together = layers.squared_gradients(whole, data), layers.squared_gradients(pruned, data)
    found = layers.alone(pruned, whole, data)
    assert set(found) == set(before)
    for name in before:
        same = name.startswith(("actor", "decoder"))
        assert torch.equal(found[name], before[name]) == same
        assert not torch.equal(together[name], before[name])
    after = layers.squared_gradients(whole, data)
    assert all(torch.equal(after[name], before[name]) for name in before)  # the whole one is whole again


@pytest.mark.parametrize("experiment", [experiment, offline_rl_rounds])
def test_rows_from_before_there_were_variants_get_theirs(experiment):
    """BC and BCQ took observations as they are, plain BC has always scaled them; new rows stay as they are."""
    old = {name: 0 for name in experiment.COLUMNS if name != "variant"} | {"algorithm": ["bc", "bcq", "plain_bc"]}
    rows = experiment.upgrade(pd.DataFrame(old))
    assert tuple(rows.columns) == experiment.COLUMNS
    assert rows.variant.tolist() == ["raw", "raw", "normalised"]
    new = rows.assign(variant="normalised")
    pd.testing.assert_frame_equal(experiment.upgrade(new), new)
