"""Measures of group-sparse training on runs small enough to compute by hand."""

import numpy as np
import pandas as pd
import pytest

from lib.base import BadInput
from lib.companion.claims import papers
from lib.companion.pairs import WentWrong
from lib.companion.statistics import Interval, ratio_of_means
from lib.papers.gst import measures, returns

DENSE = ("dense", 1, 0.0, "none", 0, "none")
RWP = ("rwp", 1, 0.0, "none", 0, "training")
GRADUAL = ("gradual", 1, 0.0, "none", 0, "training")
GST = ("gst", 4, 0.5, "none", 0, "training")
FRIENDLY = ("gst", 4, 0.5, "block4_friendly_block2", 0, "training")


def runs(ways: dict[tuple, list[tuple[float, float]]], env: str = "a", steps: int = 100) -> pd.DataFrame:
    """Ten evaluations a run; the last two earn one less and one more than the end, all before them 1000."""
    rows = []
    for way, seeds in ways.items():
        for seed, (end, saved) in enumerate(seeds):
            key = dict(zip(measures.KEYS, (env, *way, seed), strict=True))
            for number, earned in enumerate([1000.0] * 8 + [end - 1, end + 1], start=1):
                rows.append(
                    key | {"step": number * steps // 10, "return": earned, "compression_ratio": saved * number / 10}
                )
    return pd.DataFrame(rows)


def values(found: dict[str, Interval]) -> dict[str, float]:
    """The values of intervals, rounded."""
    return {name: round(one.value, 6) for name, one in found.items()}


@pytest.fixture
def table() -> pd.DataFrame:
    ways = {DENSE: [(200.0, 0.0), (100.0, 0.0)], RWP: [(190.0, 0.4), (100.0, 0.5)]}
    return runs(
        ways | {GRADUAL: [(170.0, 0.4), (110.0, 0.5)], GST: [(100.0, 0.7), (90.0, 0.6)], FRIENDLY: [(120.0, 0.7)]}
    )


def test_a_run_ends_with_the_mean_return_of_its_last_fifth_and_its_last_ratio(table):
    end = measures.ends(table)
    assert len(end) == 9
    assert end[end.method == "gst"]["return"].tolist() == [100.0, 90.0, 120.0]
    assert end[end.method == "rwp"].compression_ratio.tolist() == [0.4, 0.5]


def test_leads_are_of_the_same_seeds_and_in_percent_of_the_mean_dense_return(table):
    """Seed 0 has 200, seed 1 has 100: a mean of each seed's own percentage would give the poorer as much weight."""
    found = measures.lead(table, {"method": "rwp"})
    assert values(found) == {"a, reward-aware pruning": round(100 * (-10 + 0) / 300, 6)}
    of_means = ratio_of_means([-10.0, 0.0], [200.0, 100.0]).through(lambda ratio: 100 * ratio)
    assert found["a, reward-aware pruning"] == of_means
    found = measures.lead(table, {"method": "rwp"}, {"method": "gradual"})
    assert values(found) == {"a, reward-aware pruning": round(100 * (20 - 10) / 300, 6)}
    found = measures.lead(table, {"method": "gst", "shift": [0.25, 0.5]})
    friendly = "a, GST, B = 4, then 2 (at 0.5, block4 friendly)"
    assert values(found) == {
        "a, GST, B = 4 (released at 0.5)": round(100 * (-100 - 10) / 300, 6),
        friendly: -40.0,  # in percent of 200
    }
    chosen = {"conversion": ["block4_friendly_block2", "projection"]}
    assert values(measures.lead(table, chosen, {"conversion": "none"})) == {friendly: 10.0}


def test_a_percentage_of_a_mean_takes_seeds_in_pairs_however_they_are_sorted():
    part, whole = pd.Series({1: 11.0, 2: 9.0, 0: 10.0}), pd.Series({0: 100.0, 1: 110.0, 2: 90.0})
    found = returns.percent_of_mean(part, whole)
    assert (found.value, found.low, found.high) == pytest.approx((10, 10, 10))  # each seed has a tenth


def test_ratios_are_in_percent_and_their_leads_in_points(table):
    assert measures.average_ratio(table, {"method": "rwp"}) == {"a, reward-aware pruning": {0: 40.0, 1: 50.0}}
    alone = {"method": "rwp", **measures.SINGLE}
    found = measures.ratio_lead(table, {"method": "gst", "conversion": "none"}, alone)
    assert found["a, GST, B = 4 (released at 0.5)"] == pytest.approx({0: 30.0, 1: 10.0})


def test_what_has_no_counterpart_or_too_few_steps_is_left_out(table):
    assert measures.lead(table, {"method": "rwp"}, {"reward": "evaluation"}) == {}
    assert measures.lead(table, {"method": "rwp", "env": "b"}) == {}
    assert measures.average_ratio(table, {"method": "rwp"}, steps=101) == {}
    both = pd.concat([table, runs({RWP: [(50.0, 0.3)]}, "b", 200)])
    assert measures.average_ratio(both, {"method": "rwp"}, steps=200) == {"b, reward-aware pruning": {0: 30.0}}


def test_ways_are_told_apart_by_start_and_reward(table):
    later = table[table.method == "rwp"].assign(start=20, reward="evaluation")
    found = measures.average_ratio(pd.concat([table, later]), {"method": "rwp"})
    assert list(found) == ["a, reward-aware pruning", "a, reward-aware pruning, from step 20, by evaluation"]


def test_what_cannot_be_measured_is_refused(table):
    with pytest.raises(BadInput, match="runs have no column 'blocks'; they have: env, method"):
        measures.average_ratio(table, {"blocks": 4})
    with pytest.raises(BadInput, match="a dense agent earns -3, of which there is no percentage"):
        measures.lead(runs({DENSE: [(-3.0, 0.0)], RWP: [(5.0, 0.4)]}), {"method": "rwp"})


def shifting(way: tuple, returns: list[float], shift_at: int, seed: int = 0) -> pd.DataFrame:
    """Ten evaluations of a run that saves 0.7 until the given one and 0.5 from it on, as averages since the start; the
    last two of a dense run make what it ends with.
    """
    key = dict(zip(measures.KEYS, ("a", *way, seed), strict=True))
    rows = [
        key | {"step": 10 * place, "return": earned, "now": 0.5 if place >= shift_at else 0.7}
        for place, earned in enumerate(returns, start=1)
    ]
    table = pd.DataFrame(rows)
    return table.assign(compression_ratio=table.now.expanding().mean())


def test_what_a_shift_spares_is_the_step_in_the_return_less_that_of_the_other_at_its_own_shift():
    projection = ("gst", 4, 0.5, "projection", 0, "training")
    dense = shifting(DENSE, [9.0] * 8 + [199.0, 201.0], 11)
    friendly = shifting(FRIENDLY, [0, 0, 70, 90, 80, 60, 50, 70, 0, 0], 6)  # 80 before, 60 after
    abrupt = shifting(projection, [60, 80, 70, 10, 20, 30, 0, 0, 0, 0], 4)  # 70 before, 20 after
    against = {"conversion": "projection"}
    chosen = {"conversion": "block4_friendly_block2"}
    cell = "a, GST, B = 4, then 2 (at 0.5, block4 friendly)"
    found = measures.spared_at_shift(pd.concat([dense, friendly, abrupt]), chosen, against)
    assert values(found) == {cell: 100 * (-20 + 50) / 200}
    shuffled = pd.concat([dense, friendly, abrupt]).sample(frac=1, random_state=0)
    assert measures.spared_at_shift(shuffled, chosen, against) == found
    wrong = friendly.assign(**{"return": friendly["return"].where(friendly.step != 60, np.nan)})
    with pytest.raises(WentWrong, match=r"the run of .*step 60 ends without a number in return"):
        measures.spared_at_shift(pd.concat([dense, wrong, abrupt]), chosen, against)
    one = measures.spared_at_shift(pd.concat([dense, friendly, abrupt]), chosen, against, evaluations=1)
    assert values(one) == {cell: 100 * ((60 - 80) - (10 - 70)) / 200}


def test_a_seed_that_never_shifts_or_too_early_spares_nothing():
    projection = ("gst", 4, 0.5, "projection", 0, "training")
    dense = shifting(DENSE, [200.0] * 10, 11)
    friendly = shifting(FRIENDLY, [80.0] * 10, 6)
    chosen, against = {"conversion": "block4_friendly_block2"}, {"conversion": "projection"}
    for never in (11, 3, 9):  # no evaluation after it, two before it, two after it
        abrupt = shifting(projection, [70.0] * 10, never)
        assert measures.spared_at_shift(pd.concat([dense, friendly, abrupt]), chosen, against) == {}


def test_offline_leads_are_of_the_last_evaluation_of_the_same_seed_and_share():
    rows = [
        ("hopper", 1, 0.0, "none", 1.0, (60.0, 70.0)),
        ("hopper", 4, 1.0, "none", 0.25, (50.0, 40.0)),
        ("hopper", 4, 1.0, "snip", 0.05, (30.0, 45.0)),
        ("hopper", 4, 1.0, "magnitude", 0.05, (20.0, 50.0)),
        ("hopper", 4, 1.0, "magnitude", 0.2, (0.0, 0.0)),
    ]
    table = pd.DataFrame(
        {"data": "fixed", "env": env, "block": block, "shift": shift, "choice": choice, "kept": kept, "seed": seed}
        | {"step": step, "normalised_return": points if step == 20 else 99.0}
        for env, block, shift, choice, kept, ends in rows
        for seed, points in enumerate(ends)
        for step in (10, 20)
    )
    alone = measures.offline_lead(table, {"choice": "none", "block": 4})
    assert alone == {"hopper, B = 4 to the end": {0: -10.0, 1: -30.0}}
    found = measures.offline_lead(table, {"choice": "snip"}, {"choice": "magnitude"})
    assert found == {"hopper, snip, B = 4 to the end, 5 % kept": {0: 10.0, 1: -5.0}}
    released = table.assign(**{"shift": table["shift"].replace(1.0, 0.5)})
    assert "hopper, snip, B = 4 (released at 0.5), 5 % kept" in measures.offline_lead(released, {"block": 4})
    both = pd.concat([table, table.assign(data="another")])
    assert measures.offline_lead(both, {"choice": "snip", "data": "another"}, {"choice": "magnitude"}) == found
    with pytest.raises(BadInput, match="'hopper, snip, B = 4 to the end, 5 % kept' stands there twice"):
        measures.offline_lead(both, {"choice": "snip"})


def test_a_lead_may_be_of_any_part_of_the_training(table):
    early = table.copy()
    early.loc[(early.method == "gst") & (early.step <= 20), "return"] = 950.0
    found = measures.lead(early, {"method": "gst", "conversion": "none"}, part=(0, 0.2))
    assert values(found) == {"a, GST, B = 4 (released at 0.5)": round(-100 * 50 / 150, 6)}  # of the ends, 200 and 100


def test_recovery_is_from_what_follows_the_shift_to_the_end(table):
    table = table.assign(sparsity=table.step / 100)  # so the shift is at step 50, and after it come 50 and 60
    after = (table.method == "gst") & table.step.isin([50, 60])
    table.loc[after, "return"] = 700.0  # 300 below the dense one
    found = measures.recovery(table, {"method": "gst", "conversion": "none"})
    assert values(found) == {"a, GST, B = 4 (released at 0.5)": round(100 * (300 - 100 + 300 - 10) / 300, 6)}
    gap = measures.gap_after_shift(table, {"method": "gst", "conversion": "none"})
    assert values(gap) == {"a, GST, B = 4 (released at 0.5)": -100 * 300 / 150}
    assert measures.recovery(table.assign(sparsity=0.4), {"method": "gst"}) == {}  # never released
    poor = table.assign(**{"return": table["return"].where(table.method != "dense", -500.0)})
    with pytest.raises(BadInput, match="a dense agent earns -500, of which there is no percentage"):
        measures.gap_after_shift(poor, {"method": "gst", "conversion": "none"})
    assert measures.pruned(table, {"method": "rwp"}) == {"a, reward-aware pruning": {0: 100.0, 1: 100.0}}
    ended = measures.recovered(table, {"method": "gst", "conversion": "none"})
    assert values(ended) == {"a, GST, B = 4 (released at 0.5)": round(-100 * 110 / 300, 6)}
    assert measures.recovered(table.assign(sparsity=0.4), {"method": "gst"}) == {}  # never released
    never = measures.past_shift(table.assign(sparsity=0.4), {"method": "gst", "conversion": "none"})
    assert never == {"a, GST, B = 4 (released at 0.5)": {0: -10.0, 1: -10.0}}


def test_before_the_release_each_seed_counts_at_its_own_last_evaluation_against_its_own_dense_partner(table):
    # seed 0 shifts at step 50, so it counts at 40; seed 1 shifts at 70, so it counts at 60
    table, gst = table.assign(sparsity=(table.step - 20 * table.seed) / 100), table.method == "gst"
    table.loc[gst & (table.seed == 0) & (table.step == 40), "return"] = 900.0
    table.loc[gst & (table.seed == 1) & (table.step == 60), "return"] = 1200.0
    table.loc[(table.method == "dense") & (table.seed == 1) & (table.step == 60), "return"] = 800.0
    of_four = {"method": "gst", "conversion": "none"}
    name = "a, GST, B = 4 (released at 0.5)"
    found = measures.lead_before_release(table, of_four)
    assert found == {name: pytest.approx({0: -10.0, 1: 100 * 400 / 900})}  # of the mean of 1000 and 800
    assert measures.dense_before_release(table, of_four) == {name: {0: 1000.0, 1: 800.0}}


def test_before_a_release_that_never_comes_or_comes_at_once_there_is_nothing_to_measure(table):
    for sparsity in (0.4, 0.6):
        assert measures.lead_before_release(table.assign(sparsity=sparsity), {"method": "gst"}) == {}
    one = table.assign(sparsity=0.4)
    one.loc[(one.seed == 0) & (one.step >= 50), "sparsity"] = 0.6
    found = measures.dense_before_release(one, {"method": "gst", "conversion": "none"})
    assert found == {"a, GST, B = 4 (released at 0.5)": {0: 1000.0}}
    with pytest.raises(BadInput, match="dense agents earn -5 on average, of which there is no percentage"):
        measures.lead_before_release(one.assign(**{"return": -5.0}), {"method": "gst", "conversion": "none"})


def test_conversions_are_as_far_apart_as_the_highest_and_the_lowest_ratio_of_the_same_seed():
    ends = {"projection": (0.7, 0.6), "block4_friendly_block2": (0.65, 0.61), "block2_friendly_block4": (0.72,)}
    ways = {(*FRIENDLY[:3], name, *FRIENDLY[4:]): [(100.0, end) for end in found] for name, found in ends.items()}
    found = measures.ratio_range(runs(ways), {"method": "gst", "conversion": list(ends)})
    assert found == {"a, GST, B = 4, then 2 (at 0.5)": pytest.approx({0: 7.0})}  # one of three has no seed 1
    found = measures.ratio_range(runs(ways), {"method": "gst", "conversion": list(ends)[:2]})
    assert found == {"a, GST, B = 4, then 2 (at 0.5)": pytest.approx({0: 5.0, 1: 1.0})}
    assert measures.ratio_range(runs({FRIENDLY: [(100.0, 0.7)]}), {"method": "gst", "conversion": list(ends)}) == {}
    later = pd.concat([runs(ways), runs(ways).assign(start=20)])
    with pytest.raises(BadInput, match=r"'a, GST, B = 4, then 2 \(at 0.5\)' stands there twice"):
        measures.ratio_range(later, {"method": "gst", "conversion": list(ends)})


# Classifiers and players


def classifiers() -> pd.DataFrame:
    ways = {("dense", 1, 0.0): (90.0, 80.0), ("rwp", 1, 0.0): (89.5, 81.0), ("gst", 4, 0.5): (89.0, 80.0)}
    return pd.DataFrame(
        {"data": "digits", "network": "small", "method": method, "block": block, "shift": shift, "conversion": "none"}
        | {
            "seed": seed,
            "epoch": epoch,
            "accuracy": end if epoch == 2 else 1.0,
            "compression_ratio": block * epoch / 10,
        }
        for (method, block, shift), ends in ways.items()
        for seed, end in enumerate(ends)
        for epoch in (1, 2)
    )


def test_classifiers_are_compared_at_their_last_epoch_with_the_dense_one_of_the_same_seed():
    runs = classifiers()
    assert measures.accuracy_lead(runs, {"method": "gst"}) == {
        "digits small, GST, B = 4 (released at 0.5)": {0: -1.0, 1: 0.0}
    }
    assert measures.accuracy_lead(runs, {"method": "rwp"}) == {"digits small, reward-aware pruning": {0: -0.5, 1: 1.0}}
    against = {"method": "rwp", "block": 1, "shift": 0.0}
    found = measures.saved_lead(runs, {"method": "gst"}, against)["digits small, GST, B = 4 (released at 0.5)"]
    assert found == pytest.approx({0: 60.0, 1: 60.0})
    assert measures.saved(runs, {"method": "rwp"})["digits small, reward-aware pruning"] == pytest.approx(
        {0: 20.0, 1: 20.0}
    )
    assert measures.saved(runs, {"method": "rwp"}, epochs=3) == {}
    name = "digits small, dense"
    assert measures.accuracy(runs, {"method": "dense"}, epochs=2) == {name: {0: 90.0, 1: 80.0}}
    assert measures.accuracy(runs, {"method": "dense"}, epochs=3) == {}


def players(dense=(10.0, 20.0)) -> pd.DataFrame:
    """Ten rows a run, of which the last two are the last fifth."""
    ways = {("dense", 1, 0.0): dense, ("gst", 2, 1.0): (9.0, 22.0)}
    return pd.DataFrame(
        {"env": "bricks", "learner": "a2c", "method": method, "block": block, "shift": shift, "conversion": "none"}
        | {"seed": seed, "step": step, "return": end + {90: -1, 100: 1}.get(step, 500), "compression_ratio": 0.5}
        for (method, block, shift), ends in ways.items()
        for seed, end in enumerate(ends)
        for step in range(10, 101, 10)
    )


def test_players_are_compared_over_the_last_fifth_in_percent_of_their_rival():
    runs = players()
    found = measures.score_lead(runs, {"method": "gst"})
    assert values(found) == {"bricks a2c, GST, B = 2 to the end": round(100 * (-1 + 2) / 30, 6)}
    assert measures.score(runs, {"method": "dense"}) == {"bricks a2c, dense": {0: 10.0, 1: 20.0}}
    assert measures.score(runs, {"method": "dense"}, steps=100) == {"bricks a2c, dense": {0: 10.0, 1: 20.0}}
    assert measures.score(runs, {"method": "dense"}, steps=101) == {}
    # as if it had ended at step 50, of whose rows one is the last fifth
    assert measures.score(runs, {"method": "dense"}, until=50) == {"bricks a2c, dense": {0: 510.0, 1: 520.0}}
    assert measures.score(runs, {"method": "dense"}, steps=60, until=50) == {}
    assert measures.saved(runs, {"method": "gst"}, steps=100)["bricks a2c, GST, B = 2 to the end"] == {
        0: 50.0,
        1: 50.0,
    }
    with pytest.raises(BadInput, match="a rival earns -3, of which there is no percentage"):
        measures.score_lead(players((-3.0, 5.0)), {"method": "gst"})


def test_each_rhythm_of_pruning_is_a_cell_against_one_dense_player():
    runs = players()
    runs = runs.assign(prune_every=(runs.method != "dense") * 100)
    slower = runs[runs.method == "gst"].assign(prune_every=150, compression_ratio=0.4)
    slower["return"] += 10
    both = pd.concat([runs, slower])
    assert values(measures.score_lead(both, {"method": "gst"})) == {
        "bricks a2c, GST, B = 2 to the end, a chance every 100 updates": round(100 * (-1 + 2) / 30, 6),
        "bricks a2c, GST, B = 2 to the end, a chance every 150 updates": 100 * (9 + 12) / 30,
    }
    assert list(measures.score(both, {"method": "dense"})) == ["bricks a2c, dense"]


def test_what_pruning_saves_is_what_blocks_alone_do_not_by_the_share_of_each_network():
    runs = players().assign(share=0.8)  # untouched blocks of 2 save 43.75 % of 80 %, which is 35 %
    found = measures.saved_by_pruning(runs, {"method": "gst"})
    assert found == {"bricks a2c, GST, B = 2 to the end": pytest.approx({0: 15.0, 1: 15.0})}
    alone = runs.assign(compression_ratio=0.35)
    found = measures.saved_by_pruning(alone, {"method": "gst"})
    assert found == {"bricks a2c, GST, B = 2 to the end": pytest.approx({0: 0.0, 1: 0.0})}


def test_an_evaluation_that_is_no_number_is_not_left_out_of_its_mean(table):
    table.loc[table.index[-1], "return"] = np.nan
    with pytest.raises(WentWrong, match=r"the run of .* ends without a number in return"):
        measures.ends(table)
    with pytest.raises(WentWrong, match=r"the run of .* ends without a number in return"):
        measures.played(table)


def test_the_first_fifth_begins_where_the_sparsity_is_that_of_the_shift(table):
    table = table.assign(sparsity=table.step / 100)
    table.loc[(table.method == "gst") & (table.step == 50), "return"] = 400.0  # 600 below; at 60 as the dense one
    gap = measures.gap_after_shift(table, {"method": "gst", "conversion": "none"})
    assert values(gap) == {"a, GST, B = 4 (released at 0.5)": -100 * 300 / 150}


def test_a_ratio_swings_from_its_lowest_stretch_to_its_highest_whatever_the_average_hides():
    """Blocks save 0.7 until their release and 0.5 after it; pruning alone begins at 0 and reaches 0.6 in steps."""
    blocks = shifting(FRIENDLY, [1.0] * 10, 6)
    alone = shifting(RWP, [1.0] * 10, 11).sort_values("step")
    alone["compression_ratio"] = (alone.step / 10 - 1).clip(upper=6).div(10).expanding().mean()
    both = pd.concat([blocks, alone]).sample(frac=1, random_state=0)
    found = measures.ratio_swing_lead(both, {"method": "gst"}, {"method": "rwp", **measures.SINGLE})
    assert list(found.values()) == [{0: pytest.approx(20 - 60)}]
    assert measures.ratio_swing_lead(blocks, {"method": "gst"}, {"method": "rwp", **measures.SINGLE}) == {}


def test_the_dense_return_rises_from_the_last_fifth_to_the_end_by_the_means_of_its_tenths():
    rising = runs({DENSE: [(0.0, 0.0), (0.0, 0.0)], RWP: [(0.0, 0.0)]}, steps=1000)
    rising = pd.concat([rising, rising.assign(step=rising.step - 50)])  # two evaluations a tenth
    of_step = {800: 110.0, 750: 90.0, 1000: 130.0, 950: 110.0}
    rising["return"] = rising.step.map(of_step).fillna(7.0) * (1 + rising.seed)
    found = measures.late_gain(rising)
    assert found["a"].value == pytest.approx(20.0)
    assert found["a"].seeds == 2
    assert measures.late_gain(rising.assign(**{"return": -1.0})) == {}


def test_dense_agents_of_two_learners_are_never_mixed():
    one = runs({DENSE: [(0.0, 0.0), (0.0, 0.0)]}, steps=1000).assign(learner="a2c")
    both = pd.concat([one, one.assign(learner="ppo", **{"return": 2 * one["return"]})])
    with pytest.raises(BadInput, match="dense agents of a2c, ppo: choose one learner"):
        measures.late_gain(both)
    assert measures.late_gain(both, chosen={"learner": "a2c"}) == measures.late_gain(one)


def test_returns_of_td3_are_judged_only_when_the_dense_agent_has_settled():
    (paper,) = [paper for paper in papers.read() if paper.name == "gst"]
    compared = [c for c in paper.claims if c.measure.get("function") == "lead" and c.kind != "arithmetic"]
    assert len(compared) >= 14
    for claim in compared:
        assert "gst-dense-settled" in claim.presupposes, claim.id


def test_a_shift_is_where_what_is_saved_falls_by_more_than_a_hundredth():
    now = np.array([0.1, 0.2, 0.3, 0.25, 0.3, 0.295])
    step = 10 * np.arange(1, 7)
    runs = pd.DataFrame({"step": step, "seed": 0, "compression_ratio": np.cumsum(10 * now) / step})
    assert returns._shifted(runs).tolist() == [False, False, False, True, False, False]
