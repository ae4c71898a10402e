"""The benchmark of gates: its rivals are what they say. Nothing here asserts a time."""

import pytest
import torch

from lib.bench import npn
from lib.models.lenet import small_lenet
from lib.pruners import gates


def test_rows_name_each_rival_and_what_flops_promise(monkeypatch):
    networks = {"small": (small_lenet, (4, 8, 10, 16), (1, 8, 8))}
    monkeypatch.setattr(npn, "NETWORKS", networks)
    timed = []

    def in_turn(rivals, block=1):
        for call in rivals.values():
            call()
        timed.append(rivals)
        return {name: 2.0 + number for number, name in enumerate(rivals)}

    monkeypatch.setattr(npn, "in_turn", in_turn)
    rows = npn.run("cpu")
    assert all(tuple(row) == npn.COLUMNS for row in rows)
    training, infer = ["dense", "gated"], ["dense inference", "hardened inference", "promised by FLOPs"]
    assert [(row["implementation"], row["batch"]) for row in rows] == [
        *[(name, batch) for batch in (16, 128) for name in training],
        *[(name, batch) for batch in (1, 128) for name in infer],
    ]
    assert [row["ratio_to_dense"] for row in rows[:2]] == [1.0, 1.5]
    # products of one example: outputs x inputs x kernel x positions, dense and of what 4-8-10-16 leaves
    whole = 16 * 9 * 64 + 32 * 16 * 9 * 16 + 128 * 64 + 64 * 10
    torch.manual_seed(0)
    start = gates.gated(small_lenet(), start=networks["small"][1])
    channels = len(set((start.fc1.gates.awake.nonzero() // 4).flatten().tolist()))  # that have an open position
    left = 4 * 9 * 64 + channels * 4 * 9 * 16 + 10 * 16 + 16 * 10
    assert rows[6]["ratio_to_dense"] == pytest.approx(left / whole)
    hardened = timed[-1]["hardened inference"]()
    assert hardened.shape == timed[-1]["dense inference"]().shape == (128, 10)
    assert not hardened.requires_grad


def test_a_gated_step_moves_weights_and_gates_and_a_dense_one_weights():
    model = gates.gated(small_lenet(), ["conv1", "fc2"])
    images, labels = torch.rand(8, 1, 8, 8), torch.arange(8)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    passes = []
    model.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    npn.gated_step(model, images, labels)()
    assert passes == [True, False]  # equation 7's two, one of them with gradients
    assert not any(torch.equal(*pair) for pair in zip(before, model.parameters(), strict=True))
    plain = small_lenet()
    before = [parameter.detach().clone() for parameter in plain.parameters()]
    npn.dense_step(plain, images, labels)()
    assert not any(torch.equal(*pair) for pair in zip(before, plain.parameters(), strict=True))
