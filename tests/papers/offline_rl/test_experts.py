"""Laws of `lib.papers.offline_rl.experts`: what it saves, that stopping changes nothing, and what a card says."""

import os
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml

from lib import base
from lib.base import BadInput
from lib.companion.sweep.context import Stopped
from lib.data import policies
from lib.data.environments import make, normalised_return
from lib.models.mlp import MLP, Bounded, generators, plain
from lib.papers.offline_rl import experts
from lib.training import td3
from lib.training.rollouts import rollouts

SETTINGS = td3.TD3Settings(hidden=(8, 8), batch=8, random_steps=20, buffer=200)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch):
    """Evaluations that earn what a test says: {step: (in evaluation, in confirmation)}; nothing is played."""
    earned = {}

    def mean(session: experts.Session, act, stream: int, step: int, episodes: int) -> float:
        assert episodes == {experts.EVALUATION: 10, experts.CONFIRMATION: 20}[stream]
        return earned[step][stream == experts.CONFIRMATION]

    monkeypatch.setattr(experts.Session, "_mean", mean)
    return earned


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != td3.STATE}


def test_the_best_is_confirmed_and_medium_is_from_a_third_to_a_half_of_the_target(scripted: dict, tmp_path: Path):
    third, half = (-20.272305 + share * (2800 + 20.272305) for share in (1 / 3, 1 / 2))
    scripted |= {
        5: (100, 90),
        10: (third + 1, third - 1),  # the best, but not confirmed as medium
        15: (third + 2, half + 1),  # better still, and again too good or too bad for medium
        20: (half, third),  # medium, though not better
        25: (half + 5, third + 100),  # better in evaluation, not in confirmation
        30: (third + 5, third + 5),  # medium is the first
    }
    experts.train("Hopper-v4", 30, 0, SETTINGS, tmp_path, every=5)
    snapshots = experts.read_session(tmp_path)["snapshots"]
    assert snapshots == {"expert": {"step": 15, "return": half + 1}, "medium": {"step": 20, "return": third}}
    curve = pd.read_csv(tmp_path / "curve.csv")
    assert curve.step.tolist() == [5, 10, 15, 20, 25, 30]
    assert curve["return"].tolist() == pytest.approx([scripted[step][0] for step in curve.step], rel=1e-5)


def test_a_snapshot_is_the_actor_of_its_step_rounded_to_float16(scripted: dict, tmp_path: Path):
    scripted |= {10: (1, 1), 20: (2, 2), 30: (0, 0)}
    experts.train("Hopper-v4", 30, 0, SETTINGS, tmp_path, every=10)
    again = tmp_path / "again"
    experts.train("Hopper-v4", 20, 0, SETTINGS, again, every=10)
    state = torch.load(again / td3.STATE, weights_only=True)["agent"]["networks"]
    policy = policies.read(tmp_path / "expert.npz")
    for i in range(3):
        assert (policy.weights[i] == state[f"actor.layers.{i}.weight"][0].half().numpy()).all()
        assert (policy.biases[i] == state[f"actor.layers.{i}.bias"][0].half().numpy()).all()
    assert policy.bound.tolist() == [1, 1, 1]


def test_what_is_confirmed_is_what_the_file_holds(tmp_path: Path):
    actor = MLP((3, 8, 2), generators([0, 1]), output=Bounded(torch.tensor([1.0, 0.4])))
    policy = experts.policy_of(actor, run=1)
    policies.save(policy, tmp_path / "a.npz")
    observations = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    assert (policies.read(tmp_path / "a.npz")(observations) == policy(observations)).all()
    exact = plain(actor, run=1)(torch.from_numpy(observations)).detach().numpy()
    np.testing.assert_allclose(policy(observations), exact, atol=2e-3)


def test_training_ends_as_soon_as_the_best_earns_enough(scripted: dict, tmp_path: Path):
    scripted |= {5: (300, 299), 10: (310, 305)}
    for _ in range(2):  # the second time it is enough already
        experts.train("Hopper-v4", 50, 0, SETTINGS, tmp_path, every=5, enough=300)
    assert pd.read_csv(tmp_path / "curve.csv").step.tolist() == [5, 10]


def test_a_signal_saves_and_the_same_command_goes_on_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    experts.train("Hopper-v4", 60, 0, SETTINGS, tmp_path / "whole", every=20)
    evaluate = experts.Session.evaluate

    def interrupted(session: experts.Session, trainer: td3.TD3Trainer) -> None:
        evaluate(session, trainer)
        if trainer.steps == 40:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(experts.Session, "evaluate", interrupted)
    with pytest.raises(Stopped):
        experts.train("Hopper-v4", 60, 0, SETTINGS, tmp_path / "parts", every=20)
    assert signal.getsignal(signal.SIGTERM) == before
    assert pd.read_csv(tmp_path / "parts" / "curve.csv").step.tolist() == [20, 40]
    monkeypatch.undo()
    experts.train("Hopper-v4", 60, 0, SETTINGS, tmp_path / "parts", every=20)
    assert files(tmp_path / "whole") == files(tmp_path / "parts")


def test_a_card_is_computed_from_episodes_of_its_own(tmp_path: Path):
    session, kept = tmp_path / "session", tmp_path / "experts"
    experts.train("Hopper-v4", 20, 3, SETTINGS, session, every=10)
    with pytest.raises(BadInput, match="has no medium snapshot yet"):
        experts.keep("Hopper-v4", 3, session, kept)
    content = experts.read_session(session)
    content["snapshots"]["medium"] = content["snapshots"]["expert"]
    (session / "session.yaml").write_text(yaml.safe_dump(content))
    (session / "medium.npz").write_bytes((session / "expert.npz").read_bytes())
    card = experts.keep("Hopper-v4", 3, session, kept)
    assert policies.experts(kept) == {"Hopper-v4": card}

    policy = policies.load("hopper", "expert", kept)
    returns = rollouts(experts.stacked(policy), "Hopper-v4", [experts.seed_of(3, experts.CARD)], 20)
    assert card.expert.mean_return == pytest.approx(returns.mean(), abs=0.01)
    assert card.expert.sd == pytest.approx(np.std(returns, ddof=1), abs=0.01)
    assert card.expert.normalised_return == pytest.approx(normalised_return("Hopper-v4", returns.mean()), abs=0.01)
    assert (card.steps, card.seed, card.episodes, card.target) == (20, 3, 20, 2800)
    assert card.settings["hidden"] == [8, 8]
    assert set(card.versions) == {"torch", "gymnasium", "mujoco", "numpy"}
    assert (kept / "Hopper-v4" / "curve.csv").read_bytes() == (session / "curve.csv").read_bytes()


@pytest.mark.parametrize("writes", [1, 9])
def test_a_card_is_of_the_policies_beside_it_though_the_training_writes_meanwhile(
    writes: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    session, kept, readings = tmp_path / "session", tmp_path / "experts", []

    def write(step: int) -> None:
        """As `Session` does: the policies first."""
        for name in policies.WHICH:
            arrays = [np.full((3, 11), step, np.float32)], [np.zeros(3, np.float32)], np.ones(3, np.float32)
            policies.save(policies.MLPPolicy(*arrays), session / f"{name}.npz")
        snapshots = {name: {"step": step, "return": 1.0} for name in policies.WHICH}
        (session / "session.yaml").write_text(yaml.safe_dump({"settings": {}, "snapshots": snapshots}))

    def read(folder: Path) -> dict:
        found = real(folder)
        if len(readings) // 2 < writes and len(readings) % 2 == 0:  # each reading is one before and one after
            write(len(readings) + 2)
        readings.append(found)
        return found

    session.mkdir()
    (session / "curve.csv").write_text("step,return\n9,1\n")
    write(1)
    real = experts.read_session
    monkeypatch.setattr(experts, "read_session", read)
    monkeypatch.setattr(experts, "rollouts", lambda *asked: np.array([1.0, 2.0]))
    if writes > 1:
        with pytest.raises(BadInput, match=r"had new snapshots at each of 3 readings: keep them later$"):
            experts.keep("Hopper-v4", 0, session, kept)
        assert not kept.exists()
        return
    card = experts.keep("Hopper-v4", 0, session, kept)
    assert len(readings) == 4
    assert card.expert.step == policies.load("hopper", "expert", kept).weights[0][0, 0] == 2


def test_every_target_has_an_environment_and_a_reference():
    for env, target in experts.TARGETS.items():
        assert make(env).spec.id == env
        assert 60 < normalised_return(env, target) < 100


def test_the_program_refuses_in_a_line(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(experts, "FOLDER", tmp_path)
    for words in (["Ant-v4"], ["Hopper-v4", "--keep"]):
        with pytest.raises(SystemExit) as stop:
            experts.main(words)
        assert stop.value.code == 2
    program = "lib.papers.offline_rl.experts"
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"{program}: no target for 'Ant-v4'; there are for: HalfCheetah-v4, Hopper-v4, Walker2d-v4"
    assert second.startswith(f"{program}: no session in ")
    with pytest.raises(SystemExit):
        experts.main(["--help"])
    assert capsys.readouterr().out.startswith(f"usage: python -m {program} ")


def test_two_trainings_do_not_share_a_folder(tmp_path: Path):
    with base.locked(tmp_path / "x", "one"), pytest.raises(BadInput, match=r"seed 0, is at work in .*x already: wait"):
        experts.train("Hopper-v4", 10, 0, SETTINGS, tmp_path / "x", every=10)


@pytest.mark.parametrize("asked", [{"steps": -5}, {"seed": -1}, {"enough": float("nan")}])
def test_what_cannot_be_trained_is_refused(tmp_path: Path, asked: dict):
    words = {"steps": 10, "seed": 0, "enough": float("inf")} | asked
    with pytest.raises(BadInput, match="expected at least 1, at least 0, and a return"):
        experts.train("Hopper-v4", settings=SETTINGS, folder=tmp_path, **words)


DAMAGED = {
    "session": ("session.yaml", "snapshots: 5"),
    "no yaml": ("session.yaml", "a: ["),
    "a snapshot": ("session.yaml", "settings: {}\nsnapshots: {expert: {step: x, return: 1.0}}"),
    "curve": ("curve.csv", ""),
    "a column": ("curve.csv", "step,x\n1,2\n"),
    "a number": ("curve.csv", "step,return\n1,\n"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_damaged_files_of_a_training_are_named(scripted: dict, tmp_path: Path, damage: str):
    scripted |= {5: (1, 1), 10: (2, 2)}
    experts.train("Hopper-v4", 5, 0, SETTINGS, tmp_path, every=5)
    name, text = DAMAGED[damage]
    (tmp_path / name).write_text(text)
    with pytest.raises(BadInput, match=name):
        experts.train("Hopper-v4", 10, 0, SETTINGS, tmp_path, every=5)
