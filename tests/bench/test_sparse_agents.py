"""The benchmark of pruned agents: its rivals are one network, and its rows say what was timed. No time is asserted."""

import pytest
import torch

from lib import pruners
from lib.bench import sparse_agents
from lib.kernels.sparse_linear import SparseLinear


def test_rows_name_each_rival_and_what_it_gains(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sparse_agents, "NETWORKS", {"small": (5, 9, 2)})
    monkeypatch.setattr(sparse_agents, "SPARSITIES", (0.5,))
    results = []

    def rounds(calls, seconds, block):
        results.append({name: call() for name, call in calls.items()})
        return {name: [6.0 / (1 + number)] * 5 for number, name in enumerate(calls)}

    monkeypatch.setattr(sparse_agents, "rounds", rounds)
    rows = sparse_agents.run("cpu")
    assert all(tuple(row) == sparse_agents.COLUMNS for row in rows)
    names = ["dense", "masked", "sparse"]
    assert [(row["task"], row["examples"], row["implementation"]) for row in rows] == [
        (task, examples, name) for task, examples in (("act", 1), ("act", 100), ("train", 100)) for name in names
    ]
    assert [row["speedup"] for row in rows[:3]] == [1.0, 2.0, 3.0]
    assert [row["speedup_high"] for row in rows[:3]] == [1.0, 2.0, 3.0]
    for outputs in results[:2]:  # acting: the same answers
        assert torch.allclose(outputs["sparse"], outputs["dense"], atol=1e-6)
        assert torch.equal(outputs["masked"], outputs["dense"])
        assert not outputs["sparse"].requires_grad


def test_the_sparse_rival_holds_its_share_of_weights_and_the_dense_one_all():
    models = sparse_agents.rivals((10, 20, 30, 5), 0.9, "cpu")
    count = 10 * 20 + 20 * 30 + 30 * 5
    assert sum(len(layer.values) for layer in models["sparse"] if isinstance(layer, SparseLinear)) == count // 10
    assert pruners.sparsity(models["masked"]) == pytest.approx(0.9)
    assert pruners.attached(models["dense"]) == {}


def test_what_is_timed_leaves_the_models_as_they_were(monkeypatch: pytest.MonkeyPatch):
    before, rivals = {}, sparse_agents.rivals((5, 9, 2), 0.5, "cpu")
    for name, model in rivals.items():
        before[name] = {key: tensor.clone() for key, tensor in model.state_dict().items()}

    def rounds(calls, seconds, block):
        for call in calls.values():
            call()
        return {key: [1.0, 1.0] for key in calls}

    monkeypatch.setattr(sparse_agents, "NETWORKS", {"small": (5, 9, 2)})
    monkeypatch.setattr(sparse_agents, "SPARSITIES", (0.5,))
    monkeypatch.setattr(sparse_agents, "rivals", lambda *_: rivals)
    monkeypatch.setattr(sparse_agents, "rounds", rounds)
    sparse_agents.run("cpu")
    for name, model in rivals.items():
        assert all(torch.equal(tensor, before[name][key]) for key, tensor in model.state_dict().items()), name
