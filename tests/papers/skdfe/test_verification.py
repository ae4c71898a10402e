"""Laws of error rates with intervals over seeds and speakers, on errors small enough to judge by hand."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from lib.base import BadInput, build
from lib.companion.claims import papers
from lib.companion.pairs import WentWrong
from lib.companion.statistics import REPRODUCED, Interval, verdict
from lib.companion.sweep import settings
from lib.papers.skdfe import figures, measures
from lib.papers.skdfe.contrasts import log_interval
from lib.papers.skdfe.experiments import skdfe

PLAIN, BOTH, LARGE = "resnet18/self/none", "resnet18/self/both", "resnet34/self/none"
CELL = "synthetic/sessions, width 4"


def runs(errors: dict[str, list[list[float]]], **more) -> pd.DataFrame:
    """Rows from {system: for each seed the errors, as they are and in each draw}."""
    rows = [
        dict(zip(("network", "teacher", "distillation"), system.split("/"), strict=True))
        | {"data": "synthetic", "trials": "sessions", "width": 4, "seed": seed, "draw": draw, "epoch": 9}
        | {"parameters": 100, "teacher_parameters": 0, "eer": value, "min_dcf": value / 100, "eer_cosine": 2 * value}
        | more
        for system, seeds in errors.items()
        for seed, draws in enumerate(seeds)
        for draw, value in enumerate(draws)
    ]
    return pd.DataFrame(rows)


def half(found: Interval) -> float:
    """Half of an improvement's width in logarithms."""
    return (math.log(1 - found.low / 100) - math.log(1 - found.high / 100)) / 2


def test_the_value_is_what_the_table_of_mean_errors_gives():
    table = runs({PLAIN: [[20, 21, 19], [30, 33, 27]], BOTH: [[10, 10, 10], [25, 25, 25]]})
    assert measures.error(table, PLAIN)[CELL].value == pytest.approx(25)
    assert measures.improvement(table, [BOTH], [PLAIN])[CELL].value == pytest.approx(100 * (1 - 17.5 / 25))
    assert measures.improvement(table, [PLAIN], [BOTH])[CELL].value == pytest.approx(100 * (1 - 25 / 17.5))
    assert measures.improvement(table, [BOTH], [PLAIN, LARGE]) == {}  # a system that did not run


def test_speakers_are_drawn_for_both_systems_alike():
    hard = np.array([20, 30.0, 24, 15, 18])  # the same draws are hard for both: one against the other never varies
    table = runs({PLAIN: [hard, hard], BOTH: [hard / 2, hard / 2]})
    found = measures.improvement(table, [BOTH], [PLAIN])[CELL]
    assert (found.value, found.low, found.high) == pytest.approx((50, 50, 50))
    alone = measures.error(table, PLAIN)[CELL]
    assert alone.low < 20 < alone.high


def test_without_a_spread_over_seeds_the_interval_is_the_bootstraps():
    draws = np.array([12.0, 10, 9, 11, 8])
    table = runs({PLAIN: [[20.0] * 6] * 2, BOTH: [[10.0, *draws]] * 2})
    expected = stats.t.ppf(0.975, 4) * np.log(draws).std(ddof=1)
    assert half(measures.improvement(table, [BOTH], [PLAIN])[CELL]) == pytest.approx(expected)


def test_without_a_spread_over_speakers_the_spread_over_seeds_is_pooled_over_all_systems():
    # relative variances 0.02 (systems 90, 110: 200 / 100^2) twice and 0.08 once: together 0.04 with three degrees
    table = runs({PLAIN: [[9.0] * 4, [11.0] * 4], BOTH: [[18.0] * 4, [22.0] * 4], LARGE: [[8.0] * 4, [12.0] * 4]})
    found = measures.improvement(table, [BOTH], [PLAIN])[CELL]
    assert half(found) == pytest.approx(stats.t.ppf(0.975, 3) * math.sqrt(0.04 * (1 / 2 + 1 / 2)))
    assert found.seeds == 2


def test_where_the_compared_vary_more_theirs_is_taken_with_their_degrees_of_freedom_alone():
    # relative variances 0.02, 0.02 and 0.08: pooled 0.04 with three degrees, of the compared 0.01 + 0.04 with Welch's
    table = runs({PLAIN: [[9.0] * 4, [11.0] * 4], BOTH: [[18.0] * 4, [22.0] * 4], LARGE: [[8.0] * 4, [12.0] * 4]})
    found = measures.improvement(table, [BOTH], [LARGE])[CELL]
    assert half(found) == pytest.approx(stats.t.ppf(0.975, 0.05**2 / (0.01**2 + 0.04**2)) * math.sqrt(0.05))


def test_an_interval_called_95_percent_covers_about_as_much_with_two_seeds():
    """Errors that spread by 10 % over seeds, by 5 % over speakers alike in all seeds, and by 3 % in each alone."""
    draw, names = np.random.default_rng(0), [f"s{number}" for number in range(8)]
    index = pd.MultiIndex.from_product([names, range(2)], names=["system", "seed"])
    covered = 0
    for _ in range(200):
        speakers = draw.normal(scale=0.05, size=(8, 1, 1)) + draw.normal(scale=0.05, size=(8, 1, 61)) * (
            np.arange(61) > 0
        )
        both = draw.normal(scale=0.03, size=(8, 2, 1)) + draw.normal(scale=0.03, size=(8, 2, 61)) * (np.arange(61) > 0)
        errors = np.exp(draw.normal(scale=0.1, size=(8, 2, 1)) + speakers + both)
        found = log_interval(pd.DataFrame(errors.reshape(16, 61), index=index), {"s0": 1, "s1": -1})
        covered += found.low <= 0 <= found.high
    assert 0.92 <= covered / 200 <= 0.995


def test_one_seed_has_no_interval():
    table = pd.concat([runs({PLAIN: [[20, 21, 19], [22, 21, 24]]}), runs({BOTH: [[10, 10, 11]]})])
    found = measures.improvement(table, [BOTH], [PLAIN])[CELL]
    assert (found.low, found.high, found.seeds) == (-math.inf, 100, 1)
    assert math.isfinite(measures.error(table, PLAIN)[CELL].high)


def test_of_several_systems_the_geometric_mean_counts():
    table = runs({PLAIN: [[10.0, 10, 10]] * 2, BOTH: [[40.0, 40, 40]] * 2, LARGE: [[5.0, 5, 5]] * 2})
    found = measures.improvement(table, [PLAIN, BOTH], [LARGE])[CELL]
    assert found.value == pytest.approx(100 * (1 - math.sqrt(10 * 40) / 5))


def test_every_list_of_trials_and_width_is_a_cell_of_its_own():
    one = runs({PLAIN: [[20, 21, 19]] * 2, BOTH: [[10, 10, 11]] * 2})
    table = pd.concat([one, one.assign(trials="hard"), one.assign(width=8, eer=one.eer / 2)])
    found = measures.improvement(table, [BOTH], [PLAIN], "min_dcf")
    assert set(found) == {CELL, "synthetic/hard, width 4", "synthetic/sessions, width 8"}
    assert list(measures.error(table, PLAIN, trials="hard")) == ["synthetic/hard, width 4"]


def test_a_list_of_trials_that_does_not_count_is_no_cell():
    one = runs({PLAIN: [[20, 21, 19]] * 2, BOTH: [[10, 10, 11]] * 2})
    table = pd.concat([one, one.assign(trials="hard")])
    found = measures.improvement(table, [BOTH], [PLAIN], "min_dcf", without=["hard"])
    assert found == {CELL: measures.improvement(table, [BOTH], [PLAIN], "min_dcf")[CELL]}
    assert measures.improvement(table, [BOTH], [PLAIN], "min_dcf", without=["hard", "sessions"]) == {}


def test_the_gap_is_the_error_as_a_multiple_of_the_teachers():
    by_large = "resnet18/resnet34/label"
    table = runs({PLAIN: [[20, 40, 10]] * 2, BOTH: [[10, 20, 5]] * 2, by_large: [[20, 40, 10]] * 2})
    of_teacher = {"none": [math.nan] * 6, "both": [8, 16, 4] * 2, "label": [10, 20, 5] * 2}
    table["teacher_eer"] = [value for values in of_teacher.values() for value in values]
    table["teacher_min_dcf"], table["teacher_eer_cosine"] = table.teacher_eer / 100, 3 * table.teacher_eer
    found = measures.error(table, BOTH, "gap")[CELL]  # each draw beside its own teacher's: the ratio never varies
    assert (found.value, found.low, found.high) == pytest.approx((1.25, 1.25, 1.25))
    assert measures.improvement(table, [BOTH], [by_large], "gap")[CELL].value == pytest.approx(100 * (1 - 1.25 / 2))
    assert measures.error(table, PLAIN, "gap") == {}  # nobody taught it
    assert measures.error(table, PLAIN)[CELL].value == pytest.approx(20)
    table["eer"] = table.eer.where(table.index != table.index[table.distillation == "both"][0])
    with pytest.raises(WentWrong, match="ends without a number in gap"):
        measures.error(table, BOTH, "gap")


def test_a_teacher_that_only_its_students_rows_tell_of_is_a_system_too():
    table = runs({f"resnet18/resnet34/{name}": [[20, 40, 10]] * 2 for name in ("label", "mse")})
    table["teacher_parameters"] = 300
    table["teacher_eer"] = [10, 30, 5] * 4
    table["teacher_min_dcf"], table["teacher_eer_cosine"] = table.teacher_eer / 100, 3 * table.teacher_eer
    assert measures.error(table, LARGE)[CELL].value == pytest.approx(10)
    assert measures.error(table, LARGE, "min_dcf")[CELL].value == pytest.approx(0.1)
    assert measures.error(table, LARGE, "gap") == {}
    alone = runs({LARGE: [[10, 30, 5]] * 2}).assign(eer_cosine=lambda rows: 3 * rows.eer, parameters=300)
    found = measures.table(table).set_index("system").loc[LARGE]
    assert found.to_dict() == measures.table(alone).set_index("system").loc[LARGE].to_dict()
    both = pd.concat([table, alone])  # trained under its own name as well: counted once
    assert measures.error(both, LARGE) == measures.error(table, LARGE)
    # by cosine a teacher makes three times as many errors, a student twice: 1 - 1 / (2 * 2 * 3) ** (1 / 3)
    assert measures.gain_of_plda(table)[CELL].value == pytest.approx(100 * (1 - 12 ** (-1 / 3)))


def test_lists_that_some_systems_were_not_tested_on_are_left_out_and_seeds_are_counted_by_system():
    both = runs({PLAIN: [[20.0, 40, 10]] * 3, LARGE: [[5.0, 8, 9]] * 2})
    further = both[both.network == "resnet18"].assign(trials="within one sex")
    assert measures.on_shared_lists(pd.concat([both, further])).equals(both)
    everywhere = pd.concat([both, both.assign(trials="within one sex")])
    assert len(measures.on_shared_lists(everywhere)) == 2 * len(both)
    longer = both[both.network == "resnet18"].assign(epoch=20)
    assert measures.on_shared_lists(pd.concat([both, longer])).equals(both)
    assert figures.seeds_in_words(both) == "2 to 3 seeds"
    assert figures.seeds_in_words(both[both.seed < 2]) == "2 seeds"
    assert figures.seeds_in_words(both[both.seed < 1]) == "1 seed"


def test_plda_is_held_against_cosine_system_by_system():
    table = runs({PLAIN: [[20.0, 40, 10]] * 2, LARGE: [[5.0, 8, 9]] * 2})  # cosine: twice the error everywhere
    found = measures.gain_of_plda(table)[CELL]
    assert (found.value, found.low, found.high) == pytest.approx((50, 50, 50))
    mixed = runs({PLAIN: [[20.0, 40, 10], [22, 41, 12]], LARGE: [[5.0, 8, 9], [6, 9, 9]]})
    mixed["eer_cosine"] = mixed.eer * (2 + 0.1 * mixed.seed + 0.01 * mixed.draw)
    further = mixed[(mixed.seed == 1) & (mixed.network == "resnet18")].assign(seed=2)  # of one system alone
    assert measures.gain_of_plda(pd.concat([mixed, further])) == measures.gain_of_plda(mixed)
    apart = pd.concat(
        [mixed[mixed.network == "resnet18"], mixed[mixed.network != "resnet18"].assign(seed=mixed.seed + 5)]
    )
    assert measures.gain_of_plda(apart) == {}


def test_a_seed_whose_systems_gain_alike_widens_the_gain_of_plda_as_one_seed_does():
    table = runs({PLAIN: [[20.0] * 4] * 3, LARGE: [[5.0] * 4] * 3})  # the same in each draw of the speakers
    ratios = np.array([2.0, 2.02, 2.01])  # by cosine, of both systems of a seed
    table["eer_cosine"] = table.eer * ratios[table.seed]
    found = measures.gain_of_plda(table)[CELL]
    student = stats.ttest_1samp(np.log(ratios), 0).confidence_interval()
    assert half(found) == pytest.approx((student.high - student.low) / 2, rel=0.01)


def test_what_was_pruned_and_trained_again_is_held_against_another_variant():
    made = runs({"resnet18/both/retrained": [[8.0, 9, 7]] * 2, "resnet18/both/dense_twice": [[10.0, 9, 11]] * 2})
    table = made.drop(columns="teacher").rename(columns={"distillation": "variant"}).assign(distillation="both")
    assert measures.retrained(table, "resnet18", "both", "dense_twice")[CELL].value == pytest.approx(20)
    assert measures.retrained(table, "resnet18", "both", "pruned") == {}
    assert set(measures.of_variants(table).teacher) == {"both"}
    once = table.assign(variant=table.variant.replace("dense_twice", "pruned"))  # of which epochs are counted once
    once["epoch"] = once.epoch.where(once.variant == "pruned", 2 * once.epoch)
    assert measures.retrained(once, "resnet18", "both", "pruned")[CELL].value == pytest.approx(20)
    lucky = table.assign(eer=table.eer.where(table.seed == 0, 2 * table.eer))  # both variants of one seed twice as bad
    two, one = (measures.retrained(rows, "resnet18", "both", "dense_twice")[CELL] for rows in (lucky, table))
    assert (two.low, two.high) == pytest.approx((one.low, one.high))  # what a seed does to both is no part of it


def test_the_table_has_the_papers_order_and_says_what_each_system_is():
    order = [PLAIN, LARGE, "resnet18/self/label", BOTH, "resnet18/resnet34/label", "resnet18/resnet34/cosine"]
    made = runs({name: [[20, 21, 19], [30, 33, 27]] for name in reversed(order)})
    assert measures.table(made).system.tolist() == order
    shown = figures.error_rates(made)
    assert shown.system.tolist() == [
        "ResNet-18",
        "ResNet-34",
        "ResNet-18, self-teacher: label",
        "ResNet-18, self-teacher: label + feature",
        "ResNet-18, teacher ResNet-34: label",
        "ResNet-18, teacher ResNet-34: embedding cosine",
    ]
    assert shown["EER, %"][0].startswith("25.00 [")
    assert shown["minDCF"][0].startswith("0.250 [")
    assert shown["EER by cosine, %"][0].startswith("50.00 [")
    assert shown.iloc[0][["trials", "width", "seeds", "epochs"]].tolist() == ["synthetic, sessions", 4, 2, 9]


def test_percentages_of_a_text_are_held_against_its_table():
    assert measures.worst_percentage([(2.00, 1.57, 21.5), (4.0, 1.0, 70.0)]) == pytest.approx(5)


def test_a_percentage_that_rounded_errors_allow_is_no_difference():
    # 2.065 to 1.705 is 17.43 %, 2.075 to 1.695 is 18.31 %
    assert measures.worst_percentage([(2.07, 1.70, 17.8), (2.07, 1.70, 17.44)], unit=0.01) == 0
    assert measures.worst_percentage([(2.07, 1.70, 19.0)], unit=0.01) == pytest.approx(19 - 100 * (1 - 1.695 / 2.075))
    assert measures.worst_percentage([(2.07, 1.70, 17.0)], unit=0.01) == pytest.approx(100 * (1 - 1.705 / 2.065) - 17)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"eer": 0.0}, f"{BOTH} makes no errors"),
        ({"draw": 1}, "needs the same draws"),
    ],
)
def test_errors_that_cannot_be_compared_are_refused(change: dict, line: str):
    table = runs({PLAIN: [[20, 21, 19]] * 2, BOTH: [[10, 10, 11]] * 2})
    last = (table.distillation == "both") & (table.seed == 1)
    table = table.assign(eer=table.eer.where(table.distillation != "both", 0.0)) if "eer" in change else table[~last]
    if "draw" in change:
        table = pd.concat([table, runs({BOTH: [[], [10]]})])
    with pytest.raises(BadInput, match=line):
        measures.improvement(table, [BOTH], [PLAIN])


def test_a_system_is_a_network_a_teacher_and_a_distillation():
    with pytest.raises(BadInput, match="system 'resnet18': expected network/teacher/distillation"):
        measures.error(runs({PLAIN: [[20, 21, 19]] * 2}), "resnet18")


def test_what_table_3_has_the_other_way_round_is_not_judged():
    """ResNet34's MinDCF is above ResNet18's on Vox1-O: table 3's own numbers reproduce the row that says "better"."""
    (paper,) = [paper for paper in papers.read() if paper.paper == 3]
    claim = next(claim for claim in paper.claims if claim.id == "skdfe-deeper-34-min-dcf")
    printed = next(table for table in paper.tables if table.id == "table 3")
    plain = {row[0]: dict(zip(printed.columns, row, strict=True)) for row in printed.rows if row[1] is None}
    assert plain["ResNet34"]["O MinDCF"] > plain["ResNet18"]["O MinDCF"]
    lists = []
    for letter in "OEH":
        small, large = (100 * plain[name][f"{letter} MinDCF"] for name in ("ResNet18", "ResNet34"))  # `runs` divides
        rows = runs({PLAIN: [[small] * 3] * 2, LARGE: [[large] * 3] * 2})
        lists.append(rows.assign(trials=f"vox1_{letter.lower()}"))
    arguments = {name: value for name, value in claim.measure.items() if name not in ("function", "run")}
    found = measures.improvement(pd.concat(lists), **arguments)
    assert set(found) == {"synthetic/vox1_e, width 4", "synthetic/vox1_h, width 4"}
    assert all(verdict(one, claim.holds_if) == REPRODUCED for one in found.values())


def test_a_gap_is_judged_only_where_teachers_are_ahead_of_their_students():
    """Below 1 a smaller multiple of the teacher's errors is a wider gap, on either side of the comparison."""
    (paper,) = [paper for paper in papers.read() if paper.paper == 3]
    claims = {claim.id: claim for claim in paper.claims}
    for name, large in {"skdfe-narrower-gap": 34, "skdfe-narrower-gap-50": 50}.items():
        ahead = claims[f"skdfe-teacher-{large}-stays-ahead"]
        assert {"skdfe-self-teacher-better", ahead.id} <= set(claims[name].presupposes)
        assert ahead.measure["systems"] == [f"resnet{large}/self/none"]
        assert ahead.measure["over"] == claims[name].measure["over"]
        assert ahead.holds_if == {"above": 0}


def test_every_system_that_a_claim_names_is_trained_at_the_papers_scale():
    built = build(skdfe.Settings, settings.read("skdfe", "paper"), "paper.skdfe")
    trained = {f"{t.network}/{t.teacher}/{kind}" for t in built.tasks for kind in t.distillations}
    (paper,) = [paper for paper in papers.read() if paper.paper == 3]
    named = set()
    for claim in (claim for claim in paper.claims if claim.measure.get("run") == "skdfe"):
        named |= {*claim.measure.get("systems", ()), *claim.measure.get("over", ())}
        named |= {claim.measure["system"]} if "system" in claim.measure else set()
    assert named
    assert named <= trained


@pytest.mark.parametrize("lost", ["a draw", "a seed", "all"])
def test_an_error_that_is_no_number_is_refused_and_not_left_out(lost):
    table = runs({BOTH: [[17.0, 17.5, 18.0], [18.0, 17.0, 18.5]], PLAIN: [[25.0, 24.0, 26.0], [24.0, 25.0, 26.0]]})
    rows = table.index[table.distillation == "both"]
    where = {"a draw": rows[:1], "a seed": rows[table.seed[rows] == 1], "all": rows}[lost]
    measures.improvement(table, [BOTH], [PLAIN])
    table.loc[where, "eer"] = np.nan
    with pytest.raises(WentWrong, match="ends without a number in eer"):
        measures.improvement(table, [BOTH], [PLAIN])


def test_the_pooled_variance_weighs_systems_by_their_degrees_of_freedom():
    # relative variances 0.02 with one degree of freedom, twice, and 0.04 with two: (0.02 + 0.02 + 0.08) / 4
    made = {PLAIN: [[9.0] * 4, [11.0] * 4], BOTH: [[18.0] * 4, [22.0] * 4]}
    made |= {LARGE: [[8.0] * 4, [10.0] * 4, [12.0] * 4]}
    found = measures.improvement(runs(made), [BOTH], [PLAIN])[CELL]
    assert half(found) == pytest.approx(stats.t.ppf(0.975, 4) * math.sqrt(0.03 * (1 / 2 + 1 / 2)))
