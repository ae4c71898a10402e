"""Laws of policies as files: what they compute, that a file says the same, and what is no policy or no card."""

import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml

from lib import base
from lib.base import BadInput
from lib.data import policies
from lib.data.environments import make, normalised_return
from lib.data.policies import MLPPolicy

SNAPSHOT = {"step": 5000, "mean_return": 3000.0, "sd": 12.5, "normalised_return": 92.8}
CARD = {
    "environment": "Hopper-v4",
    "steps": 10000,
    "seed": 0,
    "episodes": 20,
    "target": 2800.0,
    "expert": SNAPSHOT,
    "medium": SNAPSHOT,
    "versions": {"torch": "2.13.0"},
    "settings": {"batch": 128},
}


@pytest.fixture
def policy() -> MLPPolicy:
    """Two inputs, three hidden neurons, two actions of bounds 1 and 4; every number is exact in float16."""
    weights = [[[1, 0], [0, 1], [-1, -1]], [[1, 0, 0], [0, 0.5, 1]]]
    biases = [[0, 0, 0.5], [0, -0.25]]
    arrays = [[np.array(a, np.float32) for a in part] for part in (weights, biases)]
    return MLPPolicy(*arrays, np.array([1, 4], np.float32))


def write(folder: Path, policy: MLPPolicy, card: dict = CARD) -> Path:
    place = folder / "Hopper-v4"
    for name in policies.WHICH:
        policies.save(policy, place / f"{name}.npz")
    (place / "card.yaml").write_text(yaml.safe_dump(card))
    (place / "curve.csv").write_text("step,return\n5000,3000\n")
    return place


def test_a_policy_written_out(policy: MLPPolicy):
    # (2, 1): hidden (2, 1, 0), before tanh (2, 0.25); (-1, 0): hidden (0, 0, 1.5), before tanh (0, 1.25)
    actions = policy(np.array([[2.0, 1.0], [-1.0, 0.0]]))
    expected = np.array([[np.tanh(2), 4 * np.tanh(0.25)], [0, 4 * np.tanh(1.25)]])
    np.testing.assert_allclose(actions, expected, rtol=1e-6)
    assert actions.dtype == np.float32


def test_a_file_holds_the_policy_in_float16_and_is_the_same_bytes_again(policy: MLPPolicy, tmp_path: Path):
    policies.save(policy, tmp_path / "a.npz")
    policies.save(policy, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    kinds = {name: array.dtype for name, array in np.load(tmp_path / "a.npz").items()}
    assert kinds == {"bound": np.float32} | dict.fromkeys(("W0", "b0", "W1", "b1"), np.float16)
    again = policies.read(tmp_path / "a.npz")
    observations = np.random.default_rng(0).normal(size=(5, 2))
    assert (again(observations) == policy(observations)).all()


def test_a_pair_of_actors_of_the_usual_size_takes_less_than_300_kb(tmp_path: Path):
    draw = np.random.default_rng(0)
    weights = [draw.normal(size=shape) for shape in ((256, 17), (256, 256), (6, 256))]
    policies.save(MLPPolicy(weights, [weight[:, 0] for weight in weights], np.ones(6)), tmp_path / "a.npz")
    assert (tmp_path / "a.npz").stat().st_size < 150_000


def test_what_is_no_policy_is_refused(policy: MLPPolicy, tmp_path: Path):
    path = tmp_path / "a.npz"
    with pytest.raises(BadInput, match="no policy at"):
        policies.read(path)
    path.write_bytes(b"PK\x03\x04 and nothing")
    with pytest.raises(BadInput, match=r"is not a policy's \.npz file"):
        policies.read(path)
    np.savez(path, W0=policy.weights[0], bound=policy.bound)
    with pytest.raises(BadInput, match="holds W0, bound; a policy's file holds W0, b0"):
        policies.read(path)
    np.savez(path, W0=policy.weights[0], b0=policy.biases[0], bound=policy.bound)
    with pytest.raises(BadInput, match="must fit each other"):
        policies.read(path)
    np.savez(path, W0=policy.weights[1] * np.nan, b0=policy.biases[1], bound=policy.bound)
    with pytest.raises(BadInput, match="must be finite"):
        policies.read(path)


def test_what_could_not_be_read_again_is_not_written(policy: MLPPolicy, tmp_path: Path):
    large = MLPPolicy([policy.weights[0] * 7e4, policy.weights[1]], policy.biases, policy.bound)
    with pytest.raises(BadInput, match=r"must be finite \(float16 ends at 65,504\)"):
        policies.save(large, tmp_path / "a.npz")
    assert not list(tmp_path.iterdir())


def test_a_policy_without_layers_is_refused(policy: MLPPolicy):
    with pytest.raises(BadInput, match="a policy has one layer or more"):
        MLPPolicy([], [], policy.bound)


def test_observations_of_another_shape_are_refused(policy: MLPPolicy):
    with pytest.raises(BadInput, match=r"takes observations of shape \[n, 2\], not \[2\]"):
        policy(np.zeros(2))


def test_experts_are_found_by_the_environments_names(policy: MLPPolicy, tmp_path: Path):
    write(tmp_path, policy)
    (found,) = policies.experts(tmp_path).items()
    assert found == ("Hopper-v4", policies.read_card(tmp_path / "Hopper-v4" / "card.yaml"))
    assert found[1].expert.mean_return == 3000
    observation = np.array([[2.0, 1.0]])
    for name in ("hopper", "Hopper-v4"):
        assert (policies.load(name, "medium", tmp_path)(observation) == policy(observation)).all()
    with pytest.raises(BadInput, match="for 'ant'; there are for: hopper"):
        policies.load("ant", "expert", tmp_path)
    with pytest.raises(BadInput, match="no 'good' policy; there are: expert, medium"):
        policies.load("hopper", "good", tmp_path)
    assert policies.experts(tmp_path / "nothing") == {}


def test_incomplete_and_wrong_folders_are_refused(policy: MLPPolicy, tmp_path: Path):
    place = write(tmp_path, policy, CARD | {"environment": "Walker2d-v4"})
    with pytest.raises(BadInput, match="is of Walker2d-v4, not of Hopper-v4"):
        policies.experts(tmp_path)
    write(tmp_path, policy, {name: value for name, value in CARD.items() if name != "seed"})
    with pytest.raises(BadInput, match="setting 'seed' is missing"):
        policies.experts(tmp_path)
    (place / "medium.npz").unlink()
    with pytest.raises(
        BadInput, match=r"lacks medium\.npz; python -m lib\.papers\.offline_rl\.experts Hopper-v4 --keep"
    ):
        policies.experts(tmp_path)


@pytest.mark.parametrize("env", policies.experts())
def test_the_projects_own_experts_fit_their_environments_and_cards(env: str):
    card, game = policies.experts()[env], make(env)
    for which, snapshot in (("expert", card.expert), ("medium", card.medium)):
        path = policies.EXPERTS / env / f"{which}.npz"
        assert path.stat().st_size < 300_000
        policy = policies.read(path)
        assert policy.weights[0].shape[1] == game.observation_space.shape[0]
        assert (policy.bound == game.action_space.high).all()
        assert snapshot.step <= card.steps
        assert snapshot.normalised_return == pytest.approx(normalised_return(env, snapshot.mean_return), abs=0.01)


def test_the_package_brings_the_experts_along():
    settings = tomllib.loads((base.ROOT / "pyproject.toml").read_text())
    assert "experts/*/*" in settings["tool"]["setuptools"]["package-data"]["lib.data"]
