"""Finished configurations are kept whole or not at all, and what is damaged is named and not used."""

import json
from pathlib import Path

import pytest

from lib.companion.sweep.store import Store

ROWS = [{"name": "a", "step": 1, "value": 0.1 + 0.2}, {"name": "a", "step": 2, "value": float("inf")}]


def outcome(rows: list[dict]) -> dict:
    return {"status": "finished", "rows": rows, "seconds": 2.5, "device": "a processor"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "quick" / "toy")
    store.add("k", {"name": "a"}, outcome(ROWS), processes=2)
    return store


def test_an_entry_comes_back_as_it_was(store: Store):
    expected = {"configuration": {"name": "a"}, "rows": ROWS, "seconds": 2.5, "device": "a processor", "processes": 2}
    assert store.finished(["k"]) == {"k": expected}
    assert store.add("l", {"name": "a"}, outcome(ROWS), processes=2) == expected


def test_only_entries_that_are_asked_for_and_there_come_back(store: Store):
    store.add("l", {"name": "b"}, outcome([]))
    assert set(store.finished(["l", "m"])) == {"l"}
    assert Store(store.folder / "elsewhere").finished(["k"]) == {}


def entry(store: Store, **change) -> str:
    return json.dumps(json.loads((store.folder / "k.json").read_text()) | change)


DAMAGES = {
    "empty": lambda store: "",
    "cut short": lambda store: entry(store)[:-20],
    "another number": lambda store: entry(store).replace("0.30000000000000004", "0.3"),
    "another checksum": lambda store: entry(store, checksum="0" * 64),
    "no checksum": lambda store: json.dumps({"rows": ROWS}),
    "a row lost": lambda store: entry(store, rows=ROWS[:1]),
    "a list": lambda store: "[1, 2]",
    "a number": lambda store: "3",
    "binary": lambda store: None,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_named_set_aside_and_not_used(store: Store, capsys: pytest.CaptureFixture, damage: str):
    store.add("l", {"name": "b"}, outcome([]))
    text = DAMAGES[damage](store)
    content = b"\xff\xfe\x00" if text is None else text.encode()
    (store.folder / "k.json").write_bytes(content)
    assert set(store.finished(["k", "l"])) == {"l"}
    said = capsys.readouterr().err
    assert said.startswith("k.json is damaged (")
    assert said.endswith("): kept as k.json.damaged, computed again\n")
    assert said.count("\n") == 1
    assert (store.folder / "k.json.damaged").read_bytes() == content
    assert not (store.folder / "k.json").exists()
    store.add("k", {"name": "a"}, outcome(ROWS))
    assert set(store.finished(["k", "l"])) == {"k", "l"}
    assert capsys.readouterr().err == ""


def test_a_finished_configuration_needs_its_checkpoints_and_its_traceback_no_longer(store: Store):
    store.checkpoints("l").mkdir()
    (store.checkpoints("l") / "dense.pt").write_text("x")
    failed = store.keep_traceback("l", {"name": "b"}, "Traceback: it broke")
    assert "it broke" in failed.read_text()
    assert '"name": "b"' in failed.read_text()
    store.add("l", {"name": "b"}, outcome([]))
    assert sorted(path.name for path in store.folder.iterdir()) == ["k.json", "l.json"]


def test_a_part_of_an_entry_left_by_a_killed_sweep_is_not_an_entry(store: Store):
    (store.folder / "k.json").rename(store.folder / ".k.json.123.part")
    assert store.finished(["k"]) == {}


def test_an_empty_store_has_forgotten_everything_and_takes_entries_again(store: Store):
    store.checkpoints("l").mkdir()
    store.empty()
    assert not store.folder.exists()
    store.empty()
    assert store.finished(["k"]) == {}
    store.add("k", {"name": "a"}, outcome(ROWS))
    assert set(store.finished(["k"])) == {"k"}
