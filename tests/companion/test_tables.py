"""The notebooks' tables: the right rows, named as in the figures."""

import pandas as pd

from lib.companion import plots, tables
from lib.companion.results import CLAIMS
from lib.data import vision
from lib.papers.two_four.experiments import two_four_networks, two_four_workflow


def test_everything_that_can_be_run_has_a_name_for_figures():
    assert set(plots.NETWORKS) >= {*two_four_workflow.NETWORKS, *two_four_networks.NETWORKS}
    assert set(plots.DATA) >= set(vision.names())


def test_a_note_is_shown_where_there_is_one():
    claim = dict.fromkeys([*CLAIMS, "scale"], "") | {"says": "it works", "seeds": ""}
    assert "note" not in tables.verdicts(pd.DataFrame([claim]))
    assert tables.verdicts(pd.DataFrame([claim, claim | {"note": "seen before"}])).note.tolist() == ["", "seen before"]


def test_verdicts_stand_by_what_the_claim_says():
    claim = {
        "says": "it works",
        "measured": 1,
        "low": 0,
        "high": 2,
        "seeds": 5,
        "cells": 1,
        "verdict": "reproduced",
        "needs": "",
    }
    table = tables.verdicts(pd.DataFrame([claim]), ["measured [low, high]", "verdict"])
    assert table.loc["it works"].tolist() == ["1.00 [0.00, 2.00], 5 seeds", "reproduced"]


def test_directions_of_paper_4_stand_in_the_figures_order():
    columns = ["direction", "seed", "accuracy", "parameters", "parameters_live", "flops", "architecture"]
    ends = [
        ("sparsify", 1, 97.0, 30, 20, 4e6, "2-2"),
        ("sparsify", 0, 99.0, 50, 40, 8e6, "3-2"),
        ("dense", 0, 98.0, 90, 90, 9e6, "9-9"),
    ]
    dense, sparsified = tables.directions(pd.DataFrame(ends, columns=columns)).to_dict("records")
    assert (dense["network"], dense["live weights"]) == ("dense", "90 (one seed)")
    assert (sparsified["network"], sparsified["seeds"], sparsified["MFLOPs"]) == ("sparsified", 2, 6.0)
    assert sparsified["accuracy, %"].startswith("98.00 [")
    assert sparsified["live weights"].startswith("30 [")
    assert sparsified["architecture, seed 0"] == "3-2"


def test_of_several_cells_all_are_shown():
    claim = {"says": "it works", "measured": 1, "low": 0, "high": 2, "seeds": 5, "cells": 2, "verdict": "partly"}
    table = tables.verdicts(
        pd.DataFrame([claim | {"why": "a: 3, reproduced; b: 1, differs"}]), ["measured [low, high]"]
    )
    assert table.loc["it works"].tolist() == ["a: 3, reproduced; b: 1, differs"]
