"""Laws of offline data in files: D4RL's read as D4RL itself reads them, Minari's with their last transitions."""

import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import h5py
import numpy as np
import pytest

from lib import base
from lib.base import BadInput
from lib.data import offline_rl, sources
from lib.data.__main__ import main
from lib.data.offline_rl import files

ARRAYS = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")


def same(one: offline_rl.Bundle, other: offline_rl.Bundle) -> bool:
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in ARRAYS)


# --- D4RL's files


def steps(count: int, terminals=(), timeouts=()) -> dict[str, np.ndarray]:
    """A made-up file's arrays: every observation tells its row."""
    draw = np.random.default_rng(count)
    observations = draw.normal(size=(count, 11)).astype(np.float32)
    observations[:, 0] = np.arange(count)
    return {
        "observations": observations,
        "actions": draw.uniform(-1, 1, (count, 3)).astype(np.float32),
        "rewards": draw.normal(size=count).astype(np.float32),
        "terminals": np.isin(np.arange(count), terminals),
        "timeouts": np.isin(np.arange(count), timeouts),
        "infos/qpos": draw.normal(size=(count, 6)),  # official files hold more than we read
    }


def write(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return path


def test_what_becomes_of_each_step(tmp_path):
    path = write(tmp_path / "mine.hdf5", steps(12, terminals=[2, 8], timeouts=[6, 9]))
    found = offline_rl.d4rl("hopper-expert-v2", path)
    rows = found.observations[:, 0]
    assert rows.tolist() == [0, 1, 2, 3, 4, 5, 7, 8, 10]  # not the cut steps 6 and 9, not the last one
    assert found.next_observations[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 8, 9, 11]
    assert rows[found.terminals].tolist() == [2, 8]
    assert rows[found.timeouts].tolist() == [5]  # 9 was an episode of its own, after the end of another
    assert (found.source, found.env) == (str(path), "hopper")


ARRANGEMENTS = {
    "nothing ends": (5, [], []),
    "terminals": (9, [2, 5], []),
    "a terminal on the last step": (6, [5], []),
    "timeouts": (9, [], [3, 6]),
    "a timeout on the last step": (8, [], [3, 7]),
    "a timeout on the first step": (6, [], [0, 4]),
    "timeouts back to back": (9, [], [3, 4, 5]),
    "both on one step": (8, [3], [3, 6]),
    "a terminal before a timeout": (9, [3], [4, 7]),
    "a timeout before a terminal": (9, [4], [3]),
    "two steps": (2, [], [1]),
    "doubles": (7, [2], [4]),
}

# Runs apart, because importing d4rl and its gym says much and changes settings of their own.
CHECK = """
import io, json, sys
from contextlib import redirect_stderr
from types import SimpleNamespace
import numpy as np
import d4rl, d4rl.infos
from d4rl.offline_env import OfflineEnv
from lib.data import offline_rl
from lib.data.offline_rl import names
for path in sys.argv[1:]:
    shape = lambda n: SimpleNamespace(shape=(n,))
    env = SimpleNamespace(observation_space=shape(11), action_space=shape(3))
    theirs = d4rl.qlearning_dataset(env, dataset=OfflineEnv.get_dataset(env, path))
    ours = offline_rl.d4rl("hopper-expert-v2", path)
    for key, array in theirs.items():
        mine = getattr(ours, key)
        assert (mine.dtype, mine.shape) == (array.dtype, array.shape), (path, key, mine.shape, array.shape)
        assert (mine == array).all(), (path, key)
for name in names.ENVIRONMENTS:
    for quality in names.QUALITIES:
        for score in (-500.0, 0.0, 1234.5):
            mine = offline_rl.normalised(f"{name}-{quality}-v2", score)
            assert abs(mine - 100 * d4rl.get_normalized_score(f"{name}-{quality}-v2", score)) < 1e-9
print(json.dumps(d4rl.infos.DATASET_URLS))
"""


def test_files_scores_and_addresses_are_d4rls_own(tmp_path):
    if importlib.util.find_spec("d4rl") is None:
        pytest.skip("d4rl is not installed; pip install --no-deps -r requirements-no-deps.txt")
    written = []
    for case, (count, terminals, timeouts) in ARRANGEMENTS.items():
        arrays = steps(count, terminals, timeouts)
        if case == "doubles":  # as in D4RL's replay data
            arrays["observations"], arrays["rewards"] = (
                arrays[k].astype(np.float64) for k in ("observations", "rewards")
            )
        written.append(write(tmp_path / f"{case.replace(' ', '_')}.hdf5", arrays))
    settings = {"D4RL_SUPPRESS_IMPORT_ERROR": "1", "D4RL_DATASET_DIR": str(tmp_path), "PYTHONPATH": str(base.ROOT)}
    command = [sys.executable, "-c", CHECK, *map(str, written)]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    addresses = json.loads(done.stdout.splitlines()[-1])
    ours = [source for source in sources.registry().values() if source.kind == "offline_rl"]
    assert len(ours) == 6
    for source in ours:
        [file] = source.files
        assert source.address + Path(file).name == addresses[source.name]


def test_bad_files_are_refused(tmp_path):
    good = steps(6, timeouts=[3])
    cases = {
        "lacks rewards, timeouts; a file of D4RL's version 2 has observations": {
            key: good[key] for key in ("observations", "actions", "terminals")
        },
        r"has observations \[6, 11\], actions \[5, 3\], .*; expected \[n, numbers\] twice, then \[n\]": good
        | {"actions": good["actions"][:5]},
        r"bad.hdf5 has observations \[1, 11\].* with one n of 2 or more": steps(1),
        r"bad.hdf5 has observations \[\]": good | {key: np.float32(1) for key in files.KEYS},
        r"timeouts \[6, 2\]; expected": good | {"timeouts": np.zeros((6, 2), bool)},
        r"bad.hdf5: rewards is \|S3; expected numbers": good | {"rewards": np.array([b"one"] * 6)},
        "rewards of transition 1 is not finite": good | {"rewards": np.array([0, np.nan, 0, 0, 0, 0])},
        r"observations has shape \(4, 17\); hopper needs \(4, 11\)": good | {"observations": np.zeros((6, 17))},
        "terminals of transition 2 is nan; expected 0 or 1": good | {"terminals": np.array([0, 0, np.nan, 0, 0, 0])},
        "timeouts of transition 0 is 0.5; expected 0 or 1": good | {"timeouts": np.full(6, 0.5)},
        "an action of size 2": good | {"actions": np.full((6, 3), 2.0)},
        "bad.hdf5 holds no transition": steps(2, timeouts=[0]),
    }
    for message, arrays in cases.items():
        path = write(tmp_path / "bad.hdf5", arrays)
        with pytest.raises(BadInput, match=message):
            offline_rl.d4rl("hopper-expert-v2", path)
    (tmp_path / "text.hdf5").write_text("no such format")
    with pytest.raises(BadInput, match=r"text.hdf5 is no whole HDF5 file \("):
        offline_rl.d4rl("hopper-expert-v2", tmp_path / "text.hdf5")
    with pytest.raises(BadInput, match=r"absent.hdf5 does not exist; name a D4RL file in HDF5 format$"):
        offline_rl.d4rl("hopper-expert-v2", tmp_path / "absent.hdf5")
    with pytest.raises(BadInput, match=r" is a folder; name a D4RL file in HDF5 format$"):
        offline_rl.d4rl("hopper-expert-v2", tmp_path)
    with pytest.raises(BadInput, match="environment 'hoper-expert-v2': known are"):
        offline_rl.d4rl("hoper-expert-v2", path)
    with pytest.raises(BadInput, match=r"no public data set called 'hopper-random-v2'; there are: .*hopper-expert-v2"):
        offline_rl.d4rl("hopper-random-v2")


def test_a_published_file_goes_the_way_of_all_public_data(tmp_path, monkeypatch, capsys):
    """From the folder that COMPANION_DATA names, checked, to data/, and found there from then on."""
    content = write(tmp_path / "file", steps(9, [2], [5])).read_bytes()
    (tmp_path / "companion" / "d4rl").mkdir(parents=True)
    (tmp_path / "companion" / "d4rl" / "hopper_expert-v2.hdf5").write_bytes(content)
    registry = tmp_path / "registry.toml"
    registry.write_text(
        '[hopper-expert-v2]\ntitle = "t"\nkind = "offline_rl"\naddress = "http://localhost/"\nterms = "none"\n'
        'cite = "c"\nbytes = 0\nlocked = false\n'
        f'files = {{ "d4rl/hopper_expert-v2.hdf5" = "{hashlib.sha256(content).hexdigest()}" }}\n'
        "arrays = { " + ", ".join(f'{key} = "unknown"' for key in files.KEYS) + " }\n"
    )
    places = sources.Places(tmp_path / "data", tmp_path / "downloads", registry, None)
    monkeypatch.setenv(sources.VARIABLE, str(tmp_path / "companion"))
    found = offline_rl.d4rl("hopper-expert-v2", places=places)
    assert same(found, offline_rl.d4rl("hopper-expert-v2", tmp_path / "file"))
    assert found.source == "d4rl/hopper-expert-v2"
    monkeypatch.delenv(sources.VARIABLE)
    assert same(offline_rl.d4rl("hopper-expert-v2", places=places), found)
    main(["hopper-expert-v2"], places, lock=tmp_path / "none")
    assert capsys.readouterr().out.startswith("hopper-expert-v2       9 examples")
    monkeypatch.setenv(sources.VARIABLE, str(tmp_path / "companion"))
    (tmp_path / "companion" / "d4rl" / "hopper_expert-v2.hdf5").write_bytes(content[:-1])
    with pytest.raises(BadInput, match="is altered or truncated"):
        offline_rl.d4rl("hopper-expert-v2", places=replace(places, data=tmp_path / "elsewhere"))


# --- Minari's


def test_episodes_keep_their_last_transition():
    draw = np.random.default_rng(0)

    def played(steps: int, ends: str) -> SimpleNamespace:
        flags = {"terminations": np.zeros(steps, bool), "truncations": np.zeros(steps, bool)}
        flags[ends][-1] = True
        observations, actions = draw.normal(size=(steps + 1, 11)), draw.uniform(-1, 1, (steps, 3))
        return SimpleNamespace(observations=observations, actions=actions, rewards=np.arange(steps), **flags)

    first, second = played(3, "truncations"), played(2, "terminations")
    found = files.from_episodes([first, second], "hopper", "minari/x")
    assert len(found) == 5
    assert (found.next_observations[2] == first.observations[3].astype(np.float32)).all()
    assert (found.observations[3] == second.observations[0].astype(np.float32)).all()
    assert found.timeouts.tolist() == [False, False, True, False, False]
    assert found.terminals.tolist() == [False, False, False, False, True]
    assert found.returns().tolist() == [3, 1]
    with pytest.raises(BadInput, match="minari/x holds no episode"):
        files.from_episodes([], "hopper", "minari/x")


def test_minari_is_asked_for_its_data_and_a_line_says_what_to_do_without_it(monkeypatch):
    asked = []
    package = ModuleType("minari")  # in place of the real one, which is not part of the environment
    package.load_dataset = lambda name, download: asked.append((name, download)) or []
    monkeypatch.setitem(sys.modules, "minari", package)
    with pytest.raises(BadInput, match="minari/mujoco/walker2d/medium-v0 holds no episode"):
        offline_rl.load("minari", "Walker2d-v4", "medium")
    assert asked == [("mujoco/walker2d/medium-v0", True)]
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(BadInput, match=r"mujoco/hopper/expert-v0 needs the package minari \(.*\): pip install"):
        offline_rl.load("minari", "hopper")
    with pytest.raises(BadInput, match=r"Minari data 'hopper-v0': expected a name such as mujoco/hopper/expert-v0$"):
        offline_rl.minari("hopper-v0")
    with pytest.raises(BadInput, match="environment 'hoper'"):
        offline_rl.minari("mujoco/hoper/expert-v0")
