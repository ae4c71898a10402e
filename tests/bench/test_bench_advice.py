"""The benchmark behind notebook 21's last table asks about every layer, once dense and once pruned."""

import pytest

from lib.bench import advice
from lib.models.resnet import small_resnet


def test_each_layer_is_asked_about_dense_and_pruned(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(advice, "resnet20", small_resnet)
    monkeypatch.setattr(advice, "SHAPE", (1, 8, 8))
    rows = advice.run("cpu", seconds=0.0)
    assert set(rows[0]) == set(advice.COLUMNS)
    layers = {name: [row["layer"] for row in rows if row["network"] == name] for name in ("dense", "90 % removed")}
    assert layers["dense"] == layers["90 % removed"]
    removed = [row["sparsity"] for row in rows if row["network"] == "90 % removed"]
    assert min(removed) > 0
    assert {row["sparsity"] for row in rows if row["network"] == "dense"} == {0.0}
