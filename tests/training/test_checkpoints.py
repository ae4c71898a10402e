"""A checkpoint comes back as it was written or not at all: what is damaged is named, set aside, and begun anew."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lib import pruners
from lib.base import BadInput
from lib.training import checkpoints

CONTENT = {"weights": torch.linspace(-1, 1, 500), "rows": [{"epoch": 1, "loss": 0.1}], "none": None}


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "deep" / "state.pt"
    checkpoints.write(CONTENT, path)
    return path


def test_a_checkpoint_comes_back_as_it_was(kept: Path, capsys: pytest.CaptureFixture):
    found = checkpoints.read(kept)
    assert torch.equal(found.pop("weights"), CONTENT["weights"])
    assert found == {name: CONTENT[name] for name in ("rows", "none")}
    assert checkpoints.read(kept.with_name("another.pt")) is None
    assert capsys.readouterr().err == ""


def changed(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def test_what_could_not_be_read_again_is_not_kept(kept: Path, capsys: pytest.CaptureFixture):
    before = kept.read_bytes()
    with pytest.raises(BadInput, match=r"state\.pt could not be read again: numpy.*scalar.*: keep tensors and plain"):
        checkpoints.write({"rows": [{"loss": np.float64(0.1)}]}, kept)
    assert kept.read_bytes() == before


def test_a_checkpoint_of_other_things_is_set_aside_in_one_line(
    kept: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.serialization, "get_unsafe_globals_in_checkpoint", lambda file: [])
    checkpoints.write({"loss": np.float64(0.1)}, kept)  # as files were kept before
    assert checkpoints.read(kept) is None
    line = f"{kept} is damaged (it holds more than tensors and plain values): kept as state.pt.damaged, its run"
    assert capsys.readouterr().err == f"{line} starts anew\n"


DAMAGES = {
    "empty": changed(lambda content: b""),
    "cut short": changed(lambda content: content[:-1]),
    "half": changed(lambda content: content[: len(content) // 2]),
    "without its checksum": changed(lambda content: content.rpartition(checkpoints.MARK)[0]),
    "more behind it": changed(lambda content: content + b"x"),
    "zeros": changed(lambda content: bytes(len(content))),
    "text": changed(lambda content: b"a checkpoint"),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_named_and_set_aside(kept: Path, capsys: pytest.CaptureFixture, damage: str):
    DAMAGES[damage](kept)
    assert checkpoints.read(kept) is None
    said = capsys.readouterr().err
    assert said.startswith(f"{kept} is damaged (")
    assert said.endswith("): kept as state.pt.damaged, its run starts anew\n")
    assert said.count("\n") == 1
    assert [path.name for path in kept.parent.iterdir()] == ["state.pt.damaged"]


def test_whichever_bit_is_flipped_no_other_numbers_are_loaded(kept: Path):
    content = kept.read_bytes()
    for place in range(0, len(content), len(content) // 150):
        spoilt = bytearray(content)
        spoilt[place] ^= 1 << place % 8
        kept.write_bytes(spoilt)
        assert checkpoints.read(kept) is None
    assert len(list(kept.parent.iterdir())) > 150  # each is kept under a name of its own


def train(state: Path, epochs: int, rate: float = 0.5) -> tuple[nn.Module, list[int]]:
    """A session that counts its epochs; the model, and which epochs were computed now."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), rate)
    session = checkpoints.Session(state, {"rate": rate}, model, optimizer)
    rows, computed = session.load(), []
    for epoch in range(len(rows), epochs):
        optimizer.zero_grad()
        model(torch.full((1, 3), epoch + 1.0)).sum().backward()
        optimizer.step()
        computed.append(epoch)
        rows.append({"epoch": epoch})
        session.save_when_due(rows, lambda: None, last=epoch + 1 == epochs)
    return model, computed


def test_a_session_with_a_damaged_checkpoint_starts_anew_and_ends_as_it_would_have(tmp_path: Path):
    undisturbed, _ = train(tmp_path / "one.pt", 4)
    train(tmp_path / "two.pt", 2)
    assert train(tmp_path / "two.pt", 3)[1] == [2]
    content = bytearray((tmp_path / "two.pt").read_bytes())
    content[len(content) // 2] ^= 4
    (tmp_path / "two.pt").write_bytes(content)
    again, computed = train(tmp_path / "two.pt", 4)
    assert computed == [0, 1, 2, 3]
    assert torch.equal(again.weight, undisturbed.weight)


def test_a_session_with_other_settings_is_refused(tmp_path: Path):
    train(tmp_path / "one.pt", 1)
    with pytest.raises(BadInput, match=r"is a session with other settings \(rate\): move it away to start anew"):
        train(tmp_path / "one.pt", 2, rate=0.1)


def test_a_session_whose_masks_keep_more_or_fewer_weights_is_refused(tmp_path: Path):
    def session(mask: list[bool]) -> checkpoints.Session:
        model = nn.Linear(3, 1, bias=False)
        pruners.attach(model, {"weight": torch.tensor([mask])})
        return checkpoints.Session(tmp_path / "one.pt", {}, model, torch.optim.SGD(model.parameters(), 0.1))

    session([True, False, True]).save_when_due([{"epoch": 0}], lambda: None, last=True)
    other = session([False, True, True])
    assert other.load() == [{"epoch": 0}]
    assert other.model.parametrizations.weight[0].mask.tolist() == [[True, False, True]]  # it comes from the file
    with pytest.raises(BadInput, match=r"is a session with other settings \(masks\): move it away"):
        session([True, False, False]).load()


def test_a_session_that_learns_its_mask_in_another_way_is_refused(tmp_path: Path):
    def session(kept: int, decay: float) -> checkpoints.Session:
        model = nn.Linear(32, 32, bias=False)
        pruners.learn(model, partial(pruners.n_of_m, n=kept, m=4), decay)
        return checkpoints.Session(tmp_path / "one.pt", {}, model, torch.optim.SGD(model.parameters(), 0.1))

    session(2, 2e-4).save_when_due([{"epoch": 0}], lambda: None, last=True)
    assert session(2, 2e-4).load() == [{"epoch": 0}]
    for another in ((1, 2e-4), (2, 0.5)):
        with pytest.raises(BadInput, match=r"is a session with other settings \(learned\): move it away"):
            session(*another).load()


def test_a_setting_that_only_one_of_two_sessions_has_is_named():
    kept, own = {"rate": 0.1, "shares": [0.5], "seed": 0}, {"rate": 0.1, "taus": [0.2], "seed": None}
    with pytest.raises(BadInput, match=r"^here is a session with other settings \(taus, seed, shares\): move"):
        checkpoints.refuse_another(Path("here"), kept, own)
    checkpoints.refuse_another(Path("here"), kept, dict(kept))


def test_a_step_after_which_a_training_is_stopped_is_saved_even_where_it_is_too_soon():
    rhythm, saved = checkpoints.Rhythm(), []
    with rhythm.after_step(lambda: saved.append("due"), last=False):
        pass
    assert not saved
    with pytest.raises(KeyboardInterrupt), rhythm.after_step(lambda: saved.append("stopped"), last=False):
        raise KeyboardInterrupt
    with rhythm.after_step(lambda: saved.append("last"), last=True):
        assert saved == ["stopped"]  # what is done after the step comes first, since it may add to what is saved
    assert saved == ["stopped", "last"]


def test_what_the_system_refuses_for_now_throws_no_checkpoint_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "session.pt"
    checkpoints.write({"rows": [1]}, path)

    def full(self: Path) -> bytes:
        raise OSError(24, "Too many open files")

    with monkeypatch.context() as now:
        now.setattr(Path, "read_bytes", full)
        with pytest.raises(OSError, match="Too many open files"):
            checkpoints.read(path)
    assert checkpoints.read(path) == {"rows": [1]}


def test_rows_of_a_session_may_hold_numpys_numbers(tmp_path: Path):
    model = nn.Linear(3, 1)
    session = checkpoints.Session(tmp_path / "one.pt", {}, model, torch.optim.SGD(model.parameters(), 0.1))
    row = {"loss": np.float64(0.1), "at": [np.int64(3), (np.bool_(True), "x", None)]}
    session.save_when_due([row], lambda: None, last=True)
    assert session.load() == [{"loss": 0.1, "at": [3, (True, "x", None)]}]
