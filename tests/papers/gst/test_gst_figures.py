"""Curves of paper 5: leads over dense runs are paired by seed and step."""

import matplotlib.pyplot as plt
import pandas as pd

from lib.papers.gst import figures, measures


def run(method: str, seed: int, returns: list[float]) -> pd.DataFrame:
    row = {"env": "a", "method": method, **measures.SINGLE, "start": 0, "reward": "none", "seed": seed}
    return pd.DataFrame([row | {"step": step, "return": value} for step, value in enumerate(returns, start=1)])


def test_a_lead_is_over_the_dense_run_of_the_same_seed_and_averages_the_last_evaluations():
    dense = pd.concat([run("dense", 0, [1, 1, 1]), run("dense", 1, [10, 20, 30])])
    found = figures.against_dense(pd.concat([run("rwp", 0, [2, 4, 0]), run("rwp", 1, [10, 20, 36])]), dense, 2)
    assert found[found.seed == 0].lead.tolist() == [1, 2, 1]
    assert found[found.seed == 1].lead.tolist() == [0, 0, 3]


def test_rows_without_a_dense_partner_are_left_out():
    found = figures.against_dense(run("rwp", 0, [2, 4, 6]), run("dense", 0, [1, 1]))
    assert found.step.tolist() == [1, 2]


def test_a_curve_may_have_a_name_of_its_own():
    _, axes = plt.subplots()
    figures.curves(axes, run("rwp", 0, [1, 2]), "return", "rwp")
    figures.curves(axes, run("rwp", 0, [1, 2]), "return", "rwp", "mine")
    assert [line.get_label() for line in axes.lines] == [figures.METHODS["rwp"][0], "mine"]
