"""params.yaml becomes checked dataclasses, and whatever does not fit is refused in one line that names the place."""

import time
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
from torch import nn

from lib import base
from lib.base import BadInput
from lib.companion.sweep import settings
from lib.companion.sweep.grid import grid, names


@dataclass(frozen=True)
class Inner:
    rate: float
    steps: int = 3

    def __post_init__(self):
        if self.steps < 1:
            raise BadInput(f"steps {self.steps}: expected at least 1")


@dataclass(frozen=True)
class Outer:
    name: str
    inner: Inner
    many: tuple[Inner, ...] = ()
    words: tuple[str, ...] = ()
    flag: bool = False
    free: dict | None = None
    some: int | None = 5
    seeds: base.Count = 1
    shares: tuple[Annotated[float, base.Range(0, 1)], ...] = (0.5,)
    most: Annotated[int, base.Range(0)] | None = None


def test_nested_dataclasses_and_tuples_of_them_are_built():
    content = {"name": "n", "inner": {"rate": 0.5}, "many": [{"rate": 1.5, "steps": 2}], "words": ["a"], "flag": True}
    built = base.build(Outer, content, "q.x")
    assert built == Outer("n", Inner(0.5, 3), (Inner(1.5, 2),), ("a",), True)


def test_nothing_is_a_value_where_it_may_be():
    assert base.build(Outer, {"name": "n", "inner": {"rate": 1}, "some": None}, "q").some is None


def test_a_whole_number_is_a_float_where_one_is_expected():
    rate = base.build(Inner, {"rate": 2}, "q").rate
    assert (rate, type(rate)) == (2.0, float)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"nmae": "n"},
            "q.x: unknown setting 'nmae'; known are name, inner, many, words, flag, free, some, seeds, shares, most",
        ),
        ({"inner": {"steps": 3}}, "q.x.inner: setting 'rate' is missing"),
        ({"inner": {"rate": "1e-3"}}, "q.x.inner.rate: expected float, found '1e-3'"),
        ({"inner": {"rate": True}}, "q.x.inner.rate: expected float, found True"),
        ({"inner": {"rate": 1.0, "steps": 2.0}}, "q.x.inner.steps: expected int, found 2.0"),
        ({"inner": {"rate": 1.0, "steps": True}}, "q.x.inner.steps: expected int, found True"),
        ({"inner": 3}, "q.x.inner: expected settings by name, found 3"),
        ({"inner": {"rate": 1.0, "steps": 0}}, "q.x.inner: steps 0: expected at least 1"),
        ({"many": {"rate": 1.0}}, "q.x.many: expected a list, found {'rate': 1.0}"),
        ({"many": [{"rate": 1.0}, {"rate": 1.0, "x": 1}]}, "q.x.many[1]: unknown setting 'x'; known are rate, steps"),
        ({"many": [{"rate": 1.0}, {"rate": 1.0, "steps": 0}]}, "q.x.many[1]: steps 0: expected at least 1"),
        ({"words": ["a", 1]}, "q.x.words[1]: expected str, found 1"),
        ({"flag": "yes"}, "q.x.flag: expected bool, found 'yes'"),
        ({"some": "a"}, "q.x.some: expected int, found 'a'"),
        ({"name": None}, "q.x.name: expected str, found None"),
        ({"inner": {"rate": float("inf")}}, "q.x.inner.rate: expected a finite number, found inf"),
        ({"inner": {"rate": float("nan")}}, "q.x.inner.rate: expected a finite number, found nan"),
        ({"shares": [0.5, float("nan")]}, "q.x.shares[1]: expected a finite number, found nan"),
        ({"shares": [0.5, 1.5]}, "q.x.shares[1]: expected a number from 0 to 1, found 1.5"),
        ({"shares": []}, "q.x.shares: expected at least one value, found []"),
        ({"seeds": 0}, "q.x.seeds: expected at least 1, found 0"),
        ({"seeds": -2}, "q.x.seeds: expected at least 1, found -2"),
        ({"seeds": 1.0}, "q.x.seeds: expected int, found 1.0"),
        ({"most": -1}, "q.x.most: expected at least 0, found -1"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(change: dict, line: str):
    with pytest.raises(BadInput) as error:
        base.build(Outer, {"name": "n", "inner": {"rate": 1.0}} | change, "q.x")
    assert str(error.value) == line


def test_a_name_that_nobody_knows_is_refused_with_those_known():
    task = Outer("n", Inner(0.5))
    base.refuse_unknown(task, name=["m", "n"])
    with pytest.raises(BadInput) as error:
        base.refuse_unknown(task, flag=(True, False), name={"lenet": 1, "alexnet": 2})
    assert str(error.value) == "name 'n': known are lenet, alexnet"


def test_what_a_value_is_has_its_article():
    found = [base.type_of(value) for value in ([], 1, OrderedDict(), True, 0.5, nn.LSTM(1, 1), nn.Linear(1, 1), None)]
    assert found == ["a list", "an int", "an OrderedDict", "a bool", "a float", "an LSTM", "a Linear", "None"]


def test_a_list_with_a_value_twice_is_refused_with_its_name():
    base.refuse_twice(kept=(0.5, 0.25), names=[], words=["a"])
    with pytest.raises(BadInput) as error:
        base.refuse_twice(words=["a"], kept=(1, 0.5, 1.0))
    assert str(error.value) == "kept=[1, 0.5, 1.0]: 1.0 stands there twice, expected each value once"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("quick: {other: {a: 1}, more: {}}", "p.yaml: scale quick has no 'x'; it has: other, more"),
        ("quick:", "p.yaml: scale quick has no settings; expected experiments by name"),
        ("quick: 3", "p.yaml: scale quick has no settings; expected experiments by name"),
        ("real: {x: {a: 1}}\npaper:", "no scale 'quick' in p.yaml; there are: real, paper"),
        ("", "no scale 'quick' in p.yaml; there are: none"),
        ("- 1", "p.yaml: expected scales by name, found [1]"),
        ("quick: {x: [", "p.yaml, line 1 is not YAML: did not find expected node content"),
        ("2: {}\nreal: {}", "no scale 'quick' in p.yaml; there are: 2, real"),
        ("quick: {3: {}, y: {}}", "p.yaml: scale quick has no 'x'; it has: 3, y"),
        ("quick: {x: {a: 1, a: 2}}", "p.yaml, line 1: 'a' stands there twice"),
        ("quick:\n  x: {}\nquick: {}", "p.yaml, line 3: 'quick' stands there twice"),
        ("quick: &a {x: *a}", "p.yaml, line 1: an alias stands for itself"),
        (
            "quick: {x: !!python/object:os.system {}}",
            "p.yaml, line 1 is not YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object:os.system'",
        ),
        ("[" * 3000, "p.yaml: lists or mappings are nested too deeply to be settings"),
        ("quick:\n  x: {[1]: 2}", "p.yaml, line 2 is not YAML: found unhashable key"),
    ],
)
def test_a_params_file_without_the_settings_is_refused_in_one_line(tmp_path: Path, text: str, line: str):
    (tmp_path / "p.yaml").write_text(text)
    with pytest.raises(BadInput) as error:
        settings.read("x", "quick", tmp_path / "p.yaml")
    assert str(error.value) == line


def test_a_params_file_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match=r"p\.yaml does not exist; it would hold the settings"):
        settings.read("x", "quick", tmp_path / "p.yaml")


def test_a_scale_without_settings_does_not_disturb_the_others(tmp_path: Path):
    (tmp_path / "p.yaml").write_text("quick: {x: {a: 1}}\npaper:\n")
    assert settings.read("x", "quick", tmp_path / "p.yaml") == {"a": 1}


@pytest.mark.parametrize("scale", settings.SCALES)
def test_the_projects_own_settings_fit_their_experiments(scale: str):
    import yaml

    content = yaml.safe_load(base.PARAMS.read_text()).get(scale, {})
    assert set(content) <= set(names())
    for name in content:
        assert len(grid(name, scale).configurations) > 0


def test_what_a_merge_brings_may_be_overruled(tmp_path: Path):
    (tmp_path / "p.yaml").write_text("quick: {a: &a {n: 1, m: 2}, x: {<<: *a, n: 3}}")
    assert settings.read("x", "quick", tmp_path / "p.yaml") == {"n": 3, "m": 2}


def test_an_alias_bomb_is_refused_at_once(tmp_path: Path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    (tmp_path / "p.yaml").write_text("\n".join(lines) + "\nquick: {x: {a: *a9}}\n")
    assert (tmp_path / "p.yaml").stat().st_size < 1000
    began = time.monotonic()
    with pytest.raises(BadInput, match=r"p.yaml, line \d+: its aliases stand for more than 200,000 values"):
        settings.read("x", "quick", tmp_path / "p.yaml")
    assert time.monotonic() - began < 5


UNREADABLE = {
    "a folder": (lambda path: path.mkdir(), "p.yaml cannot be read: Is a directory"),
    "not UTF-8": (lambda path: path.write_bytes(b"quick: \xff\xfe"), "p.yaml is not UTF-8, a text file was expected"),
    "binary": (lambda path: path.write_bytes(bytes(range(9))), "p.yaml is not YAML: unacceptable character"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_params_file_that_is_no_text_is_refused(tmp_path: Path, case: str):
    make, line = UNREADABLE[case]
    make(tmp_path / "p.yaml")
    with pytest.raises(BadInput, match=line):
        settings.read("x", "quick", tmp_path / "p.yaml")


def test_each_seed_of_each_task_is_a_configuration_with_all_else_that_the_task_says():
    tasks = (Outer("a", Inner(0.5), seeds=2), Outer("b", Inner(1.0), words=("c", "d"), shares=()))
    first, second, other = settings.each_seed(tasks)
    plain = {"rate": 0.5, "steps": 3}
    assert first == {"name": "a", "inner": plain, "many": [], "words": [], "flag": False, "free": None, "some": 5} | {
        "shares": [0.5],
        "most": None,
        "seed": 0,
    }
    assert second == first | {"seed": 1}
    assert other == first | {"name": "b", "inner": plain | {"rate": 1.0}, "words": ["c", "d"], "shares": []}
