"""Laws of offline data: one form, scores as D4RL has them, recordings that follow the environment and repeat."""

import numpy as np
import pytest

from lib import base
from lib.base import BadInput
from lib.data import environments, offline_rl, policies
from lib.data.offline_rl import names

SHARED = base.ROOT.parent / "shared" / "data" / "rl"
ARRAYS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")


def bundle(count: int = 4, **changes) -> offline_rl.Bundle:
    draw = np.random.default_rng(0)
    arrays = {
        "observations": draw.normal(size=(count, 11)).astype(np.float32),
        "actions": draw.uniform(-1, 1, size=(count, 3)).astype(np.float32),
        "rewards": draw.normal(size=count).astype(np.float32),
        "next_observations": draw.normal(size=(count, 11)).astype(np.float32),
        "terminals": np.zeros(count, bool),
        "timeouts": np.zeros(count, bool),
    }
    return offline_rl.Bundle(**({"source": "here", "env": "hopper"} | arrays | changes))


def same(one: offline_rl.Bundle, other: offline_rl.Bundle) -> bool:
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in ARRAYS)


# --- names


@pytest.mark.parametrize("name", ["hopper", "Hopper-v4", "hopper-v2", "hopper-expert-v2", "hopper-medium-replay-v2"])
def test_an_environment_goes_by_all_its_names(name: str):
    assert offline_rl.environment(name).id == "Hopper-v4"


@pytest.mark.parametrize(
    "name", ["hoper", "Hopper-v5", "hopper-expert", "hopper-expert-v0", "hopper-good-v2", "ant", ""]
)
def test_another_environment_or_version_is_refused(name: str):
    message = "environment '.*': known are HalfCheetah-v4, Hopper-v4, Walker2d-v4, and D4RL's names"
    with pytest.raises(BadInput, match=message):
        offline_rl.environment(name)


@pytest.mark.parametrize("known", names.ENVIRONMENTS.values(), ids=lambda known: known.name)
def test_gymnasium_says_the_same_of_them(known: names.Environment):
    game = environments.make(known.id)
    assert game.observation_space.shape == (known.observations,)
    assert game.action_space.shape == (known.actions,)
    assert (game.action_space.low == -1).all()
    assert (game.action_space.high == 1).all()
    assert game.spec.max_episode_steps == 1000


def test_scores_are_0_for_the_random_reference_and_100_for_the_expert():
    assert offline_rl.normalised("hopper-expert-v2", -20.272305) == 0
    assert offline_rl.normalised("Walker2d-v4", 4592.3) == 100
    # the authors of the shared policies state 94 of HalfCheetah's 11,378
    found = offline_rl.normalised("halfcheetah", np.array([11378.0, (12135.0 - 280.178953) / 2]))
    assert found == pytest.approx([93.9, 50], abs=0.05)


# --- the bundle


def test_take_gives_the_first_transitions_alone():
    whole = bundle(5)
    part = whole.take(2)
    assert (len(whole), len(part), part.source, part.env) == (5, 2, "here", "hopper")
    assert all((getattr(part, name) == getattr(whole, name)[:2]).all() for name in ARRAYS)
    for count in (0, 6):
        with pytest.raises(BadInput, match=f"here has 5 transitions; {count} of them cannot be taken"):
            whole.take(count)


def test_returns_are_those_of_the_episodes_that_end():
    ends = {"terminals": np.array([0, 1, 0, 0, 0, 0], bool), "timeouts": np.array([0, 0, 0, 1, 0, 0], bool)}
    rewards = np.array([1, 2, 4, 8, 16, 32], np.float32)
    assert bundle(6, rewards=rewards, **ends).returns().tolist() == [3, 12]  # the last two steps end nowhere
    assert bundle(6).returns().tolist() == []


BAD = {
    "another environment": ({"env": "ant"}, "environment 'ant': known are"),
    "no rows": (
        {name: getattr(bundle(), name)[:0] for name in ARRAYS},
        "here holds no transition",
    ),
    "a short array": (
        {"rewards": np.zeros(3, np.float32)},
        r"observations has shape \(4, 11\); hopper needs \(3, 11\)",
    ),
    "wrong features": (
        {"next_observations": np.zeros((4, 17), np.float32)},
        r"next_observations has shape \(4, 17\); hopper needs \(4, 11\)",
    ),
    "a column": ({"terminals": np.zeros((4, 1), bool)}, r"terminals has shape \(4, 1\); hopper needs \(4,\)"),
    "doubles": ({"actions": np.zeros((4, 3))}, "actions is float64; expected float32"),
    "numbers for flags": ({"timeouts": np.zeros(4, np.uint8)}, "timeouts is uint8; expected bool"),
    "a NaN": ({"rewards": np.array([0, 0, np.nan, 0], np.float32)}, "rewards of transition 2 is not finite"),
    "an infinity": (
        {"observations": np.where(np.arange(44).reshape(4, 11) == 12, np.inf, 0).astype(np.float32)},
        "observations of transition 1 is not finite",
    ),
    "a strong action": (
        {"actions": np.full((4, 3), -1.5, np.float32)},
        r"an action of size 1.5; all must lie in \[-1, 1",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_arrays_are_refused(case: str):
    changes, message = BAD[case]
    with pytest.raises(BadInput, match=message):
        bundle(**changes)


# --- recordings of our own


def leaning(observations: np.ndarray) -> np.ndarray:
    """A policy of no merit, but a function of what is seen."""
    return np.tanh(observations[:, 1:4] - 0.2)


def test_a_recording_is_what_the_environment_does(monkeypatch):
    found = offline_rl.recorded("hopper", leaning, transitions=60, seed=3, noise=0.0)
    ends = found.terminals | found.timeouts
    assert ends.sum() >= 2
    assert np.abs(found.actions - np.clip(leaning(found.observations), -1, 1)).max() < 1e-6
    # played again from each start: the simulation gives the same rewards and states
    game = environments.make("Hopper-v4").unwrapped
    starts = [0, *(np.flatnonzero(ends)[:-1] + 1)]
    for at in starts:
        q = np.concatenate(
            [[0.0], found.observations[at, :5]]
        )  # the position along x is not observed, nor does it matter
        game.reset()
        game.set_state(q, found.observations[at, 5:].astype(np.float64))
        for step in range(at, at + 5):
            seen, reward, terminal, *_ = game.step(found.actions[step])
            assert np.abs(seen - found.next_observations[step]).max() < 1e-3
            assert reward == pytest.approx(found.rewards[step], abs=1e-3)
            assert terminal == found.terminals[step]
            if terminal:
                break


def test_transitions_follow_one_another_within_an_episode_and_starts_differ():
    found = offline_rl.recorded("hopper", leaning, transitions=200, seed=0)
    goes_on = ~(found.terminals | found.timeouts)[:-1]
    follows = (found.next_observations[:-1] == found.observations[1:]).all(1)
    assert (goes_on == follows).all()
    starts = found.observations[1:][~goes_on]
    assert len(np.unique(starts, axis=0)) == len(starts) > 3


def test_recordings_of_neighbouring_seeds_share_no_start_of_an_episode():
    """Else the second episode of a seed could be the first of the next, and two seeds would be one and a half."""
    starts = []
    for seed in (0, 1, 2):
        found = offline_rl.recorded("hopper", leaning, transitions=200, seed=seed)
        begins = np.append(True, (found.terminals | found.timeouts)[:-1])
        starts += [row.tobytes() for row in found.observations[begins]]
    assert len(set(starts)) == len(starts) > 9


def test_an_episode_that_is_cut_keeps_the_true_next_state_and_is_no_terminal():
    still = offline_rl.recorded("halfcheetah", lambda seen: np.zeros((len(seen), 6)), transitions=1001, noise=0.0)
    assert np.flatnonzero(still.timeouts).tolist() == [999]
    assert not still.terminals.any()
    # what followed the cut is the same body a moment later, not the new start
    step = np.abs(np.diff(still.observations[900:1000], axis=0)).max()
    assert np.abs(still.next_observations[999] - still.observations[999]).max() < 2 * step + 1e-6
    assert np.abs(still.observations[1000] - still.observations[999]).max() > 0.01


def test_the_same_seed_gives_the_same_bytes_and_fewer_transitions_are_the_first_ones():
    whole = offline_rl.recorded("walker2d", lambda seen: seen[:, :6], transitions=150, seed=5)
    assert len(whole) == 150
    for count in (150, 70, 1):
        part = offline_rl.recorded("walker2d", lambda seen: seen[:, :6], transitions=count, seed=5)
        assert same(part, whole.take(count))
    assert not same(offline_rl.recorded("walker2d", lambda seen: seen[:, :6], transitions=150, seed=6), whole)


def test_the_noise_is_normal_of_the_width_asked_for_and_clipped():
    still = lambda seen: np.zeros((len(seen), 6))  # noqa: E731
    for noise in (0.1, 0.3):
        actions = offline_rl.recorded("halfcheetah", still, transitions=2000, noise=noise).actions
        assert actions.std() == pytest.approx(noise, rel=0.03)
        assert np.abs(np.corrcoef(actions[1:].ravel(), actions[:-1].ravel())[0, 1]) < 0.05
    strong = offline_rl.recorded("halfcheetah", lambda seen: np.full((len(seen), 6), 5.0), transitions=10)
    assert (strong.actions == 1).all()


def test_bad_requests_are_refused():
    nan = float("nan")
    for wrong in (
        {"transitions": 0},
        {"transitions": 2.5},
        {"transitions": 10.0},
        {"transitions": "x"},
        {"transitions": nan},
        {"seed": -1},
        {"seed": "a"},
        {"noise": -0.1},
        {"noise": nan},
        {"noise": "loud"},
    ):
        ((name, value),) = wrong.items()
        with pytest.raises(BadInput, match=f"^{name}={value!r}: expected a "):
            offline_rl.recorded("hopper", leaning, **({"transitions": 5} | wrong))
    shape = r"the policy's actions for one observation have shape \(3,\), expected \(1, 3\)"
    with pytest.raises(BadInput, match=shape):
        offline_rl.recorded("hopper", lambda seen: leaning(seen)[0], transitions=5)
    with pytest.raises(BadInput, match="recorded data of quality 'best': the project's own are expert, medium"):
        offline_rl.load("recorded", "hopper", "best")
    with pytest.raises(BadInput, match="environment 'ant'"):
        offline_rl.load("recorded", "ant")
    with pytest.raises(BadInput, match="offline data 'd4r': known are recorded, d4rl, minari"):
        offline_rl.load("d4r", "hopper")


@pytest.mark.parametrize("source", offline_rl.SOURCES)
def test_a_name_that_carries_another_quality_is_refused(source: str):
    for env, quality, named in (("hopper-medium-v2", "expert", "medium"), ("Hopper-Expert-v2", "medium", "expert")):
        line = f"environment '{env}' names data of quality '{named}', and quality='{quality}' asks: "
        with pytest.raises(BadInput, match=f"^{line}give quality='{named}', or the name 'hopper' alone$"):
            offline_rl.load(source, env, quality, 5)


def test_a_name_may_carry_the_quality_that_is_asked_for():
    found = offline_rl.load("recorded", "hopper-medium-v2", "medium", 5)
    assert found is offline_rl.load("recorded", "hopper", "medium", 5)
    assert found.source == "recorded/hopper-medium"


def shared_policy(env: str):
    """The mean action of one of the public policies beside the repository; its README says how they act."""
    part = dict(np.load(SHARED / f"expert_policy_{env}.npz"))
    bend = {"relu": lambda x: np.maximum(x, 0), "lrelu": lambda x: np.where(x > 0, x, 0.01 * x), "tanh": np.tanh}

    def act(seen: np.ndarray) -> np.ndarray:
        hidden = (seen - part["mean"]) / (part["std"] + 1e-6) if "mean" in part else seen
        for layer in (0, 1) if "W1" in part else (0,):
            hidden = bend[str(part["nonlin"])](hidden @ part[f"W{layer}"] + part[f"b{layer}"])
        action = hidden @ part["Wm"] + part["bm"]
        return np.tanh(action) if str(part["kind"]) == "tanh-gaussian" else action

    return act


def test_a_recording_is_made_once():
    once = offline_rl.load("recorded", "hopper", transitions=30)
    assert offline_rl.load("recorded", "Hopper-v4", transitions=30) is once
    assert offline_rl.load("recorded", "hopper", transitions=31) is not once


@pytest.mark.skipif(not SHARED.is_dir(), reason="the public policies are not beside the repository")
@pytest.mark.parametrize(("env", "score"), [("HalfCheetah", 94), ("Hopper", 108), ("Walker2d", 110)])
def test_public_experts_earn_in_a_recording_what_is_known_of_them(env: str, score: float):
    found = offline_rl.recorded(f"{env}-v4", shared_policy(env), transitions=4000, noise=0.0)
    assert len(found.returns()) >= 4
    assert np.median(offline_rl.normalised(env, found.returns())) == pytest.approx(score, abs=10)


@pytest.mark.parametrize("known", names.ENVIRONMENTS.values(), ids=lambda known: known.name)
def test_our_own_experts_earn_what_their_cards_say_and_the_medium_policies_less(known: names.Environment):
    if (card := policies.experts().get(known.id)) is None:
        pytest.skip(f"there is no policy of {known.id} yet")
    means = {}
    for quality in policies.WHICH:
        snapshot = getattr(card, quality)
        earned = offline_rl.recorded(known.id, quality, transitions=5000, noise=0.0).returns()
        means[quality] = earned.mean()
        error = snapshot.sd * (1 / np.sqrt(len(earned)) + 1 / np.sqrt(card.episodes))
        assert abs(means[quality] - snapshot.mean_return) < 4 * error + 0.02 * snapshot.mean_return
    assert means["medium"] < means["expert"]
