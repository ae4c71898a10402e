"""The rivals of `rl_throughput` compute the same, so that only how they do it is compared. Nothing asserts a time."""

import pytest
import torch

from lib.bench import rl_throughput as bench
from lib.models.mlp import plain
from lib.training import td3
from lib.training.agents import Draws, draw_batch
from lib.training.bc import BC, BCSettings
from lib.training.bcq import BCQ, BCQSettings
from lib.training.replay import Batch


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Narrow networks, and the same numbers on any machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(BCQSettings.__init__, "__defaults__", _defaults(BCQSettings, hidden=(8, 8), vae_hidden=(8, 8)))
    monkeypatch.setattr(BCSettings.__init__, "__defaults__", _defaults(BCSettings, hidden=(8, 8)))
    monkeypatch.setattr(td3.TD3Settings.__init__, "__defaults__", _defaults(td3.TD3Settings, hidden=(8, 8)))
    yield
    torch.set_num_threads(threads)


def _defaults(kind, **other):
    names = list(kind.__dataclass_fields__)
    return tuple(other.get(name, default) for name, default in zip(names, kind.__init__.__defaults__, strict=True))


def test_bare_bc_is_a_stacks_first_run():
    data = bench.transitions("cpu", 500)
    stacked = BC(bench.OBSERVATIONS, [1.0] * bench.ACTIONS, [4, 5], BCSettings())
    single, draws = bench.BareBC(stacked), Draws([4, 5])
    for step in range(5):
        batch, noise = draw_batch(stacked, data, draws, 100, step)
        found = stacked.update(batch, noise)["vae"][0]
        expected = single.update([column[0] for column in batch], noise[0][0])
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_plain_bcq_is_a_stacks_first_run():
    data = bench.transitions("cpu", 500)
    stacked = BCQ(bench.OBSERVATIONS, [1.0] * bench.ACTIONS, [4, 5], BCQSettings())
    single, draws = bench.PlainBCQ(stacked), Draws([4, 5])
    for step in range(5):
        batch, noise = draw_batch(stacked, data, draws, 100, step)
        found = stacked.update(batch, noise)
        expected = single.update([column[0] for column in batch], [drawn[0] for drawn in noise])
        for name, loss in expected.items():
            torch.testing.assert_close(found[name][0], loss, rtol=1e-4, atol=1e-5)


def test_plain_td3_is_a_stacks_first_run():
    data, settings = bench.transitions("cpu", 500), td3.TD3Settings()
    networks = td3.networks(bench.OBSERVATIONS, torch.ones(bench.ACTIONS).numpy(), [4, 5], settings)
    single, stacked, draws = bench.PlainTD3(networks, settings), td3.TD3(networks, settings), Draws([4, 5])
    for step in range(4):
        batch = Batch(*data.batch(draws.restart(step).integers(500, settings.batch)))
        noise = draws.normals(settings.batch, bench.ACTIONS, like=batch.rewards)
        stacked.update(batch, noise)
        single.update([column[0] for column in batch], noise[0])
    for ours, theirs in ((networks["actor"], single.actor), (networks["critics"][1], single.critics[1])):
        for mine, other in zip(plain(ours).parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-5)


def test_there_is_a_row_for_each_rival(monkeypatch):
    monkeypatch.setattr(bench, "STACKS", (1, 2, 4))
    monkeypatch.setattr(bench, "TRANSITIONS", 500)
    monkeypatch.setattr(bench, "in_turn", lambda rivals: {key: [call(), 4.0][1] for key, call in rivals.items()})
    rows = bench.run("cpu")
    assert [tuple(row) for row in rows] == [bench.COLUMNS] * len(rows)
    ways = [("plain", 1, 500.0), ("stacked", 1, 500.0), ("stacked", 2, 1000.0), ("stacked", 4, 2000.0)]
    assert [tuple(row.values()) for row in rows] == [(name, *way) for name in ("bc", "bcq", "td3") for way in ways]
