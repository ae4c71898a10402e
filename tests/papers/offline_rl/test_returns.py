"""Laws of paper 1's measures: robust means with their intervals, measures paired by seed, layers, agents."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lib.base import BadInput
from lib.companion.claims import papers
from lib.companion.pairs import WentWrong
from lib.companion.statistics import Interval, ratio_of_means
from lib.papers.offline_rl import measures


def test_the_interquartile_mean_leaves_a_quarter_out_at_each_end():
    found = measures.interquartile_mean({"a": [0, 1, 2, 3], "b": [4, 5, 6, 1000]})
    assert found.value == (2 + 3 + 4 + 5) / 4
    assert found.seeds == 4
    assert measures.interquartile_mean({"a": [-1000, 10, 20], "b": [30, 40]}).value == 20  # one of five at each end
    draw = np.random.default_rng(1).normal(size=(3, 7))
    found = measures.interquartile_mean(dict(enumerate(draw)))
    assert found.value == pytest.approx(stats.trim_mean(draw.ravel(), 0.25), rel=1e-12)
    middle = np.sort(draw.ravel())[5:-5]  # a quarter of 21 is 5
    assert found.value == pytest.approx(middle.mean(), rel=1e-12)
    assert found.low < found.value < found.high


def test_one_failed_run_moves_the_mean_but_not_the_interquartile_mean():
    scores = {"a": [100.0, 101, 102, 103, 104], "b": [90.0, 91, 92, 93, 94]}
    broken = scores | {"b": [90.0, 91, 92, 93, -1e6]}
    assert abs(measures.interquartile_mean(broken).value - measures.interquartile_mean(scores).value) < 2


def test_the_bootstrap_draws_each_task_by_itself():
    # two tasks far apart without spread within: whatever is drawn, each gives its own scores, and nothing varies
    apart = measures.interquartile_mean({"easy": [100.0] * 4, "hard": [0.0] * 4})
    assert (apart.low, apart.value, apart.high) == (50, 50, 50)
    # the same eight numbers as one task would vary
    mixed = measures.interquartile_mean({"all": [100.0] * 4 + [0.0] * 4})
    assert mixed.low < 20 < 80 < mixed.high


def test_the_interval_is_that_of_the_bootstraps_definition():
    scores = {"a": [1.0, 4, 6, 9, 13], "b": [3.0, 5, 5, 8, 20, 2]}
    draw, values = np.random.default_rng(7), []
    for _ in range(4000):
        drawn = [x for runs in scores.values() for x in draw.choice(runs, len(runs))]
        values.append(np.sort(drawn)[2:-2].mean())
    found = measures.interquartile_mean(scores, confidence=0.9)
    assert [found.low, found.high] == pytest.approx(np.percentile(values, [5, 95]).tolist(), abs=0.15)
    assert measures.interquartile_mean(scores, confidence=0.9) == found  # no clock, no chance


def test_scores_that_are_none_are_refused():
    for wrong in ({}, {"a": []}, {"a": [[1.0, 2.0]]}):
        with pytest.raises(BadInput, match="a list of scores for each task, one a run"):
            measures.interquartile_mean(wrong)
    with pytest.raises(BadInput, match="finite scores"):
        measures.interquartile_mean({"a": [1.0, float("nan")]})


# --- measures for claims

RUNS = pd.DataFrame(
    [
        ("recorded-expert", "hopper", "bc", "dense", 0.0, 1, 0, 10, 3000.0, 93.0),
        ("recorded-expert", "hopper", "bc", "dense", 0.0, 1, 0, 20, 2000.0, 62.0),
        ("recorded-expert", "hopper", "bc", "dense", 0.0, 1, 1, 20, 1000.0, 31.0),
        ("recorded-expert", "hopper", "bc", "snip", 0.95, 1, 0, 20, 1500.0, 46.0),
        ("recorded-expert", "hopper", "bc", "snip", 0.95, 1, 0, 10, 9000.0, 280.0),
        ("recorded-expert", "hopper", "bc", "snip", 0.95, 1, 1, 20, 1100.0, 34.0),
        ("recorded-expert", "hopper", "bc", "snip", 0.95, 1, 2, 20, 1100.0, 34.0),
        ("recorded-expert", "hopper", "bc", "snip", 0.99, 1, 0, 20, 10.0, 1.0),
        ("recorded-expert", "hopper", "bc", "random", 0.95, 1, 0, 20, 200.0, 6.0),
        ("recorded-expert", "hopper", "bcq", "snip", 0.95, 1, 0, 20, 7.0, 0.0),
        ("recorded-expert", "walker2d", "bc", "dense", 0.0, 1, 0, 20, 4000.0, 87.0),
        ("recorded-expert", "walker2d", "bc", "snip", 0.95, 1, 0, 20, 1000.0, 21.0),
        ("recorded-medium", "hopper", "bc", "dense", 0.0, 1, 0, 20, 1000.0, 31.0),
        ("recorded-medium", "hopper", "bc", "snip", 0.95, 1, 0, 20, 500.0, 16.0),
        ("recorded-expert", "hopper", "bc", "snip", 0.95, 10, 0, 20, 1600.0, 49.0),
        ("d4rl-expert", "walker2d", "bc", "dense", 0.0, 1, 0, 20, 4000.0, 87.0),
        ("d4rl-expert", "walker2d", "bc", "snip", 0.95, 1, 0, 20, 4400.0, 96.0),
    ],
    columns=[
        "data",
        "env",
        "algorithm",
        "pruner",
        "sparsity",
        "batches",
        "seed",
        "step",
        "return",
        "normalised_return",
    ],
)


def test_the_last_evaluation_counts_never_the_best():
    last = measures.ends(RUNS)
    assert len(last) == 15
    assert 9000 not in set(last["return"])
    two = pd.concat([RUNS.assign(variant="normalised"), RUNS.assign(variant="raw")])
    assert len(measures.ends(two)) == 2 * len(last)  # a variant is a run of its own


def test_kept_is_the_mean_last_return_over_that_of_the_same_seeds_dense_ones():
    found = measures.kept_return(RUNS, "bc", "snip", 0.95)
    assert {where: (one.value, one.seeds) for where, one in found.items()} == {
        "d4rl-expert/walker2d": (1.1, 1),
        "recorded-expert/hopper": (2600 / 3000, 2),  # 1500 and 1100 of 2000 and 1000; seed 2 has no dense run
        "recorded-expert/walker2d": (0.25, 1),
    }
    assert found["recorded-expert/hopper"] == ratio_of_means([1500, 1100], [2000, 1000])
    assert list(measures.kept_return(RUNS, "bc", "snip", 0.95, envs=["hopper"])) == ["recorded-expert/hopper"]
    dense = measures.ends(RUNS[(RUNS.algorithm == "bc") & (RUNS.pruner == "dense") & (RUNS.env == "hopper")])
    points = dense[dense.data == "recorded-expert"].normalised_return.mean()
    for learned, there in ((points, True), (points + 0.1, False)):
        found = measures.kept_return(RUNS, "bc", "snip", 0.95, envs=["hopper"], learned=learned)
        assert ("recorded-expert/hopper" in found) is there
    assert _values(measures.kept_return(RUNS, "bc", "snip", 0.99)) == {"recorded-expert/hopper": 0.005}
    assert measures.kept_return(RUNS, "bcq", "snip", 0.95) == {}  # no dense run yet
    assert measures.kept_return(RUNS, "bc", "grasp", 0.95) == {}


def test_a_dense_agent_that_fell_does_not_decide_what_is_kept():
    """Four agents keep half of 2,000; the dense one of the fifth fell to 10. Of the means, half and little is kept."""
    rows = RUNS[RUNS.data == "recorded-expert"].head(1)
    fell = pd.concat(
        rows.assign(pruner=pruner, sparsity=sparsity, seed=seed, **{"return": earned[seed]})
        for pruner, sparsity, earned in (("dense", 0.0, [2000.0] * 4 + [10.0]), ("snip", 0.95, [1000.0] * 5))
        for seed in range(5)
    )
    (kept,) = measures.kept_return(fell, "bc", "snip", 0.95).values()
    assert kept.value == pytest.approx(5000 / 8010)  # the mean of the five ratios is 20.4


def _values(found: dict[str, Interval]) -> dict[str, float]:
    return {where: one.value for where, one in found.items()}


def test_differences_are_in_points_against_the_dense_or_another_pruner():
    assert measures.difference(RUNS, "bc", "snip", 0.95, envs=["hopper"]) == {
        "recorded-expert/hopper": {0: -16.0, 1: 3.0}
    }
    assert measures.difference(RUNS, "bc", "snip", 0.95, against="random") == {"recorded-expert/hopper": {0: 40.0}}
    assert measures.difference(RUNS, "bc", "snip", 0.95, quality="medium") == {"recorded-medium/hopper": {0: -15.0}}


def test_more_batches_are_compared_with_a_single_one():
    assert measures.gain_by_batches(RUNS, "bc", "snip", 0.95, batches=10) == {"recorded-expert/hopper": {0: 3.0}}


def test_scaled_observations_are_compared_with_observations_as_they_are():
    hopper = RUNS[(RUNS.env == "hopper") & (RUNS.data == "recorded-expert")]
    better = hopper.normalised_return + 5 * (hopper.pruner == "snip")
    both = pd.concat(
        [hopper.assign(scaled=False, unseen=4), hopper.assign(normalised_return=better, scaled=True, unseen=1)]
    )
    key = "recorded-expert/hopper"
    assert measures.gain_by_scaling(both, "bc", "snip", 0.95) == {key: {0: 5.0, 1: 5.0, 2: 5.0}}
    assert measures.difference(both, "bc", "snip", 0.95, against="random", scaled=False) == {key: {0: 40.0}}
    assert measures.difference(both, "bc", "snip", 0.95, against="random", scaled=True) == {key: {0: 45.0}}
    richer = both.assign(**{"return": both["return"] * (1 + (both.scaled & (both.pruner == "snip")))})
    assert _values(measures.kept_return(richer, "bc", "snip", 0.95, scaled=False)) == {key: 2600 / 3000}
    assert _values(measures.kept_return(richer, "bc", "snip", 0.95, scaled=True)) == {key: 5200 / 3000}
    assert measures.unseen(both, "bc", "random", 0.95, scaled=False) == {key: {0: 4.0}}
    assert measures.unseen(both, "bc", "random", 0.95, scaled=True) == {key: {0: 1.0}}
    assert measures.seen_again(both, "bc", "random", 0.95) == {key: {0: 3.0}}
    assert measures.seen_again(both[both.scaled], "bc", "random", 0.95) == {}
    assert measures.gain_by_scaling(both[both.scaled], "bc", "snip", 0.95) == {}


def test_several_rounds_are_compared_with_a_single_one():
    hopper = RUNS[(RUNS.env == "hopper") & (RUNS.data == "recorded-expert")]
    more = hopper[hopper.pruner == "snip"].assign(rounds=5)
    more["normalised_return"] += 2.0
    both = pd.concat([hopper.assign(rounds=1), more])
    key = "recorded-expert/hopper"
    assert measures.gain_by_rounds(both, "bc", "snip", 0.95, rounds=5) == {key: {0: 2.0, 1: 2.0, 2: 2.0}}
    assert measures.gain_by_rounds(both, "bc", "snip", 0.95, rounds=3) == {}


def test_a_dense_agent_that_still_rises_in_the_last_fifth_of_its_steps_is_seen():
    """Returns 1,000 at 8,000 steps and 1,100 at 10,000: 10 percent, whatever was before and whoever else there is."""
    rows = [
        {"data": "recorded-expert", "env": env, "algorithm": "bc", "variant": variant, "pruner": pruner}
        | {"sparsity": 0.0, "batches": 1, "seed": seed, "step": step, "return": earned}
        for env, variant, pruner, seed, step, earned in [
            ("hopper", "normalised", "dense", 0, 6000, 10.0),
            ("hopper", "normalised", "dense", 0, 8000, 1000.0),
            ("hopper", "normalised", "dense", 0, 10000, 1100.0),
            ("hopper", "normalised", "snip", 0, 8000, 1000.0),
            ("hopper", "normalised", "snip", 0, 10000, 9000.0),
            ("hopper", "raw", "dense", 0, 8000, 1000.0),
            ("hopper", "raw", "dense", 0, 10000, 9000.0),
            ("hopper", "normalised", "dense", 1, 8000, 1000.0),
            ("hopper", "normalised", "dense", 1, 10000, 900.0),
            ("walker2d", "normalised", "dense", 0, 5000, 1000.0),  # nobody looked where the last fifth began
            ("walker2d", "normalised", "dense", 0, 10000, 9000.0),
            ("halfcheetah", "normalised", "dense", 0, 8000, -1.0),  # nothing earned, of which there is no share
            ("halfcheetah", "normalised", "dense", 0, 10000, 9000.0),
        ]
    ]
    found = measures.late_gain(pd.DataFrame(rows), "bc")
    assert _values(found) == {"recorded-expert/hopper": pytest.approx(0.0)}  # 1,100 and 900, from 1,000 both
    assert found["recorded-expert/hopper"].high == pytest.approx(127.06, abs=0.01)  # 10 x t of one degree of freedom
    late = measures.late_gain(pd.DataFrame(rows), "bc", share=0.5)
    assert _values(late) == {"recorded-expert/walker2d": pytest.approx(800.0)}
    assert measures.late_gain(pd.DataFrame(rows), "bcq") == {}


def test_what_bc_and_bcq_keep_is_judged_only_when_the_dense_agent_has_settled():
    (paper,) = [paper for paper in papers.read() if paper.name == "offline_rl"]
    rules = {claim.id: claim for claim in paper.claims if claim.measure.get("function") == "late_gain"}
    ways = ["bc", "bc-medium", "bcq", "plain-bc", "raw-bc", "raw-bcq"]
    assert list(rules) == [f"rl-{way}-settled" for way in ways]
    assert all(claim.holds_if == {"at_most": 5} for claim in rules.values())
    kept = [claim for claim in paper.claims if claim.measure.get("function") == "kept_return"]
    kept = [claim for claim in kept if claim.measure["run"] == "offline_rl"]
    kept = [
        claim for claim in kept if claim.measure.get("variant") in (None, "raw")
    ]  # others are readings of their own
    assert len(kept) >= 23
    for claim in kept:
        way = "raw-" * (claim.measure.get("variant") == "raw") + claim.measure["algorithm"].replace("_", "-")
        way += "-medium" * (claim.measure.get("quality") == "medium")
        assert f"rl-{way}-settled" in claim.presupposes, claim.id


def test_variants_are_compared_seed_by_seed_and_never_mixed():
    """Each of three variants earns so many points more than the one before, and a multiple of its return."""
    expert = RUNS[RUNS.data == "recorded-expert"]
    pruned = expert.pruner != "dense"
    all_three = pd.concat(
        expert.assign(
            **{"return": expert["return"].where(~pruned, factor * expert["return"])},
            normalised_return=expert.normalised_return + more * pruned,
            variant=variant,
        )
        for variant, factor, more in (("normalised", 1, 0.0), ("float32", 2, 3.0), ("raw", 4, 10.0))
    )
    key = "recorded-expert/hopper"
    gain = measures.gain_by_variant(all_three, "bc", "snip", 0.95, "float32")
    assert gain == {key: {0: 3.0, 1: 3.0, 2: 3.0}, "recorded-expert/walker2d": {0: 3.0}}
    assert measures.gain_by_variant(all_three, "bc", "snip", 0.95, "float32", "raw")[key] == {0: -7.0, 1: -7.0, 2: -7.0}
    assert measures.gain_by_variant(all_three, "bc", "snip", 0.95, "long") == {}
    for variant, factor, more in (("normalised", 1, 0), ("float32", 2, 3), ("raw", 4, 10)):
        kept = measures.kept_return(all_three, "bc", "snip", 0.95, ["hopper"], variant=variant)
        assert _values(kept) == {key: pytest.approx(factor * 2600 / 3000)}
        points = measures.difference(all_three, "bc", "snip", 0.95, envs=["hopper"], variant=variant)
        assert points == {key: {0: -16.0 + more, 1: 3.0 + more}}
        assert measures.gain_by_batches(all_three, "bc", "snip", 0.95, 10, variant=variant) == {key: {0: 3.0}}
        several = pd.concat([all_three.assign(rounds=1), all_three.assign(rounds=5)])
        assert measures.gain_by_rounds(several, "bc", "snip", 0.95, 5, variant=variant)[key] == {0: 0.0, 1: 0.0, 2: 0.0}
    assert measures.kept_return(all_three, "bc", "snip", 0.95) == measures.kept_return(expert, "bc", "snip", 0.95)
    assert measures.difference(all_three, "bc", "snip", 0.95) == measures.difference(expert, "bc", "snip", 0.95)


def test_a_difference_turns_its_sign_when_the_two_change_places():
    one, other = (
        measures.difference(RUNS, "bc", pruner, 0.95, against)
        for pruner, against in (("snip", "random"), ("random", "snip"))
    )
    assert one == {where: {seed: -value for seed, value in of.items()} for where, of in other.items()} != {}


def test_the_share_of_experiments_that_keep_their_return_on_average():
    found = measures.share_kept(RUNS, ["bc", "bcq"], ["snip", "grasp"], 0.95, at_least=0.9)
    # recorded: Hopper keeps 2,600 of 3,000, 0.867; seed by seed that is 300 less and 200 more than 0.9 of the dense
    # return, which shows neither; Walker2d keeps 0.25, but it has one seed, as the experiment of D4RL's, and a
    # single one shows nothing
    assert list(found) == ["d4rl-expert/1 experiments", "recorded-expert/2 experiments"]
    assert found["d4rl-expert/1 experiments"] == Interval(1, 0, 1, 1)
    assert found["recorded-expert/2 experiments"] == Interval(0, 0, 1, 1)
    assert (
        measures.share_kept(RUNS, ["bc"], ["snip"], 0.95, at_least=0.86)["recorded-expert/2 experiments"].value == 0.5
    )
    # 1 degree of freedom: 1500 - 2000 b and 1100 - 1000 b have the mean 1300 - 1500 b and half the range 200 - 500 b;
    # and by Holm's rule the clearer of two has to lie 25.45 times that above 0: it does for a b of 0.35 (775 and 25),
    # not of 0.3 (850 and 50), nor of -1.2 (3,100 and 800), of which both means are above
    for bound, value, low in ((0.35, 0.5, 0.5), (0.3, 0.5, 0.0), (-1.2, 1, 0.0)):
        recorded = RUNS[RUNS.data == "recorded-expert"]
        (all_kept,) = measures.share_kept(recorded, ["bc"], ["snip"], 0.95, bound).values()
        assert all_kept == Interval(value, low, 1, 1)
    assert measures.share_kept(RUNS, ["bcq"], ["snip"], 0.95, at_least=0.5) == {}
    assert measures.share_kept(RUNS, ["bc", "bcq"], ["snip"], 0.95, at_least=0.9, learned=1e6) == {}


def test_a_share_of_nothing_is_refused():
    poor = RUNS.assign(**{"return": RUNS["return"].where(RUNS.pruner != "dense", -5.0)})
    with pytest.raises(
        BadInput, match=r"the dense bc earns -5 on d4rl-expert/walker2d; compare points with `difference`"
    ):
        measures.kept_return(poor, "bc", "snip", 0.95)


# --- layers and agents


def layers_of(kept: dict[tuple, list[float]]) -> pd.DataFrame:
    """Rows of `offline_rl_layers` from {(variant, pruner, sparsity, seed, network): what is kept of its layers}."""
    rows = [
        ("r", "hopper", *key, layer, share) for key, shares in kept.items() for layer, share in enumerate(shares, 1)
    ]
    columns = ["data", "env", "variant", "pruner", "sparsity", "seed", "network", "layer", "kept"]
    return pd.DataFrame(rows, columns=columns)


def test_the_last_layer_is_held_against_the_fullest_other_and_between_pruners():
    kept = {("snip", 0): [9, 4, 20], ("snip", 1): [30, 4, 20], ("grasp", 0): [9, 4, 25], ("grasp", 1): [9, 4, 15]}
    one = {("normalised", pruner, 0.95, seed, "actor"): shares for (pruner, seed), shares in kept.items()}
    other = {("normalised", "snip", 0.5, 0, "actor"): [99, 1, 1], ("raw", "snip", 0.95, 0, "actor"): [1, 2, 9]}
    runs = layers_of(one | other)
    for rows in (runs, runs.iloc[::-1]):
        assert measures.lead_of_last(rows, "snip", 0.95) == {"r/hopper/actor": {0: 11, 1: -10}}
    assert measures.spread(runs, "snip", 0.95) == {"r/hopper/actor": {0: 16, 1: 26}}
    assert measures.last_kept_more(runs, "grasp", "snip", 0.95) == {"r/hopper/actor": {0: 5, 1: -5}}
    # on observations as they are
    assert measures.lead_of_last(runs, "snip", 0.95, "raw") == {"r/hopper/actor": {0: 7}}
    assert measures.spread(runs, "snip", 0.95, "raw") == {"r/hopper/actor": {0: 8}}
    assert measures.last_kept_more(runs, "grasp", "snip", 0.95, "raw") == {}
    # of the emptiest layer SNIP keeps 4 in both seeds, GraSP 4 of the second one
    assert measures.emptiest_kept_more(runs, "grasp", "snip", 0.95) == {"r/hopper/actor": {0: 0, 1: 0}}
    fuller = runs.assign(kept=runs.kept + 3 * (runs.pruner == "grasp"))
    assert measures.emptiest_kept_more(fuller, "grasp", "snip", 0.95) == {"r/hopper/actor": {0: 3, 1: 3}}


def test_what_is_left_of_the_gradient_is_added_up_over_layers_and_compared_by_its_logarithm():
    kept = {("snip", 0): [0.5, 0.2, 0.3], ("grasp", 0): [50, 0, 950], ("grasp", 1): [30, 40, 30]}
    runs = layers_of({("normalised", pruner, 0.95, seed, "actor"): one for (pruner, seed), one in kept.items()})
    runs = runs.rename(columns={"kept": "flow"})
    assert measures.flow(runs, "grasp", 0.95) == {"r/hopper/actor": {0: 1, 1: 0}}  # ten times as much, and as much
    assert measures.flow(runs, "grasp", 0.95, against="snip") == {"r/hopper/actor": {0: pytest.approx(3)}}
    assert measures.flow(runs, "grasp", 0.95, against="random") == {}


def test_patterns_are_alike_when_all_layers_of_an_agent_stand_in_the_same_order():
    kept = {
        ("snip", 0, "actor"): [1, 2], ("snip", 0, "critic"): [3, 4],
        ("grasp", 0, "actor"): [30, 40], ("grasp", 0, "critic"): [10, 20],
        ("snip", 1, "actor"): [1, 2], ("snip", 1, "critic"): [3, 4],
        ("grasp", 1, "actor"): [1, 20], ("grasp", 1, "critic"): [21, 99],
    }  # fmt: skip
    one = {("normalised", pruner, 0.95, *rest): shares for (pruner, *rest), shares in kept.items()}
    other = {("normalised", "snip", 0.5, 0, "actor"): [99, 1], ("raw", "snip", 0.95, 0, "actor"): [2, 1]}
    runs = layers_of(one | other | {("raw", "grasp", 0.95, 0, "actor"): [1, 2]})
    found = measures.same_pattern(runs, "snip", "grasp", 0.95)
    # in seed 0 both networks have the same order, but not together: ranks 1 2 3 4 and 3 4 1 2, each two apart, so
    # 1 - 6 (4 + 4 + 4 + 4) / (4 (16 - 1)) = -0.6
    assert found == {"r/hopper": {0: pytest.approx(-0.6), 1: pytest.approx(1)}}
    assert measures.same_pattern(runs, "grasp", "snip", 0.95) == found
    assert measures.same_pattern(runs, "snip", "grasp", 0.95, "raw") == {"r/hopper": {0: pytest.approx(-1)}}
    assert measures.same_pattern(runs[runs.pruner == "snip"], "snip", "grasp", 0.95) == {}
    assert measures.same_pattern(runs, "snip", "grasp", 0.5) == {}


def test_pruned_agents_are_told_apart_by_task_sparsity_and_kind_of_device():
    columns = ["device", "network", "task", "examples", "sparsity", "implementation", "speedup"]
    rows = [
        ("a processor, 2 cores", "actor", "act", 1, 0.95, "dense", 1.0),
        ("a processor, 2 cores", "actor", "act", 1, 0.95, "sparse", 0.5),
        ("a processor, 2 cores", "actor", "act", 100, 0.95, "masked", 0.9),
        ("a processor, 2 cores", "actor", "act", 100, 0.95, "sparse", 2.0),
        ("a processor, 2 cores", "actor", "act", 100, 0.5, "sparse", 0.4),
        ("a processor, 2 cores", "actor", "train", 100, 0.95, "sparse", 1.1),
        ("H200", "actor", "act", 1, 0.95, "sparse", 0.3),
        ("H200", "actor", "act", 9, 0.95, "sparse", math.nan),  # a product that failed
    ]
    agents = pd.DataFrame(rows, columns=columns)
    where = "a processor, 2 cores/actor"
    assert measures.of_agents(agents, "act", 0.95, "cpu") == {f"{where}, 1 at once": 0.5, f"{where}, 100 at once": 2.0}
    assert measures.of_agents(agents, "train", 0.95, "cpu") == {f"{where}, 100 at once": 1.1}
    assert measures.of_agents(agents, "act", 0.95, "cuda") == {"H200/actor, 1 at once": 0.3}
    assert measures.of_agents(agents, "act", 0.98, "cpu") == {}
    with pytest.raises(BadInput, match="task 'rest': known are cpu, cuda and act, train"):
        measures.of_agents(agents, "rest", 0.95, "cpu")


def test_the_seeds_are_those_of_the_task_that_has_the_fewest():
    assert measures.interquartile_mean({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0]}).seeds == 2


def test_the_share_kept_draws_from_students_t_of_its_own_seeds():
    # 1500 - 2000 b and 1100 - 1000 b for b = 0.22: mean 970, standard error 90; t of one degree of freedom lies below
    # -10.8 in 2.9 % of all draws, t of two in 0.4 %
    recorded = RUNS[RUNS.data == "recorded-expert"]
    (found,) = measures.share_kept(recorded, ["bc"], ["snip"], 0.95, 0.22).values()
    assert found == Interval(1, 0.0, 1, 1)


def test_each_agents_own_last_step_counts():
    rows = [
        {"data": "recorded-expert", "env": env, "algorithm": "bc", "variant": "normalised", "pruner": "dense"}
        | {"sparsity": 0.0, "batches": 1, "seed": 0, "step": step, "return": earned}
        for env, length in (("hopper", 5000), ("walker2d", 10000))
        for step, earned in ((length * 4 // 5, 1000.0), (length, 1100.0))
    ]
    found = measures.late_gain(pd.DataFrame(rows), "bc")
    assert {where.split("/")[1]: round(one.value) for where, one in found.items()} == {"hopper": 10, "walker2d": 10}


def test_a_run_or_a_layer_that_ended_without_a_number_is_refused_by_all_measures():
    rows = [
        {"data": "recorded-expert", "env": "hopper", "algorithm": "bc", "variant": "normalised", "pruner": "dense"}
        | {"sparsity": 0.0, "batches": 1, "seed": seed, "step": step, "return": earned}
        for seed in (0, 1)
        for step, earned in ((800, 1000.0), (1000, 1100.0))
    ]
    lost = pd.DataFrame(rows)
    lost.loc[3, "return"] = math.nan
    with pytest.raises(WentWrong, match="ends without a number in return"):
        measures.late_gain(lost, "bc")
    runs = layers_of({("normalised", "snip", 0.95, 0, "actor"): [30.0, math.nan, 30.0]})
    for measure in (measures.spread, measures.lead_of_last):
        with pytest.raises(WentWrong, match="layer 2 ends without a number in kept"):
            measure(runs, "snip", 0.95)
