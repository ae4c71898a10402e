"""The benchmark of masks in training: its rivals are what they say. Nothing here asserts a time."""

import torch

from lib import pruners
from lib.bench import masked_steps
from lib.models.lenet import small_lenet


def test_a_masked_step_keeps_its_zeros_and_a_baked_one_fills_them(monkeypatch):
    monkeypatch.setattr(masked_steps, "NETWORKS", {"small": (small_lenet, (1, 8, 8))})
    models, make = [], masked_steps.step

    def step(model, images, labels):
        models.append((model, len(images)))
        return make(model, images, labels)

    def in_turn(calls, block):
        for call in calls.values():
            call()
        return {name: 2.0 + number for number, name in enumerate(calls)}

    monkeypatch.setattr(masked_steps, "step", step)
    monkeypatch.setattr(masked_steps, "in_turn", in_turn)
    rows = masked_steps.run("cpu")
    assert all(tuple(row) == masked_steps.COLUMNS for row in rows)
    names = ["dense", "masked", "baked"]
    assert [(row["implementation"], row["batch"]) for row in rows] == [(n, batch) for batch in (16, 128) for n in names]
    assert [row["ratio_to_dense"] for row in rows[:3]] == [1.0, 1.5, 2.0]
    dense, masked, baked = (model for model, batch in models if batch == 16)
    torch.manual_seed(0)
    expected = pruners.two_four(small_lenet())
    for name, mask in expected.items():
        layer = name.removesuffix(".weight")
        zeros = {model: model.get_submodule(layer).weight.detach() == 0 for model in (dense, masked, baked)}
        assert torch.equal(zeros[masked], ~mask)  # through the step
        assert not zeros[dense].any()
        assert int(zeros[baked].sum()) < int((~mask).sum())  # gradients flow into what was baked
