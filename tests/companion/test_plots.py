"""What a figure computes before it draws."""

import matplotlib.pyplot as plt
import pandas as pd

from lib.companion import plots


def test_a_seed_that_ended_earlier_counts_with_its_last_value_in_the_mean_over_epochs():
    sizes = {0: {10: 3, 20: 5, 30: 7}, 1: {10: 1, 20: 3, 30: 5}, 2: {10: 5, 14: 8}}  # seed 2 ended at 14 by itself
    rows = pd.DataFrame(
        [{"seed": s, "epoch": e, "parameters": p, "stage": 2} for s, one in sizes.items() for e, p in one.items()]
    )
    figure, axes = plt.subplots()
    plots.over_epochs(axes, rows, "parameters", "expand")
    (mean,) = (line for line in axes.lines if line.get_label() == "mean of seeds")
    plt.close(figure)
    assert mean.get_xydata().tolist() == [[10, 3], [20, 16 / 3], [30, 20 / 3]]
