"""params.yaml becomes checked dataclasses, and whatever does not fit is refused in one line that names the place."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from lib import paths, settings
from lib.errors import BadInput
from lib.sweep.grid import grid, names


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


def test_nested_dataclasses_and_tuples_of_them_are_built():
    content = {"name": "n", "inner": {"rate": 0.5}, "many": [{"rate": 1.5, "steps": 2}], "words": ["a"], "flag": True}
    built = settings.build(Outer, content, "q.x")
    assert built == Outer("n", Inner(0.5, 3), (Inner(1.5, 2),), ("a",), True)


def test_nothing_is_a_value_where_it_may_be():
    assert settings.build(Outer, {"name": "n", "inner": {"rate": 1}, "some": None}, "q").some is None


def test_a_whole_number_is_a_float_where_one_is_expected():
    rate = settings.build(Inner, {"rate": 2}, "q").rate
    assert (rate, type(rate)) == (2.0, float)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"nmae": "n"}, "q.x: unknown setting 'nmae'; known are name, inner, many, words, flag, free, some"),
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
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(change: dict, line: str):
    with pytest.raises(BadInput) as error:
        settings.build(Outer, {"name": "n", "inner": {"rate": 1.0}} | change, "q.x")
    assert str(error.value) == line


def test_a_name_that_nobody_knows_is_refused_with_those_known():
    task = Outer("n", Inner(0.5))
    settings.refuse_unknown(task, name=["m", "n"])
    with pytest.raises(BadInput) as error:
        settings.refuse_unknown(task, flag=(True, False), name={"lenet": 1, "alexnet": 2})
    assert str(error.value) == "name 'n': known are lenet, alexnet"


def test_a_list_with_a_value_twice_is_refused_with_its_name():
    settings.refuse_twice(kept=(0.5, 0.25), names=[], words=["a"])
    with pytest.raises(BadInput) as error:
        settings.refuse_twice(words=["a"], kept=(1, 0.5, 1.0))
    assert str(error.value) == "kept=[1, 0.5, 1.0]: 1.0 stands there twice, expected each value once"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("quick: {other: {a: 1}, more: {}}", "p.yaml: scale quick has no 'x'; it has: other, more"),
        ("quick:", "p.yaml: scale quick has no 'x'; it has: nothing"),
        ("quick: 3", "p.yaml: scale quick has no 'x'; it has: nothing"),
        ("real: {x: {a: 1}}\npaper:", "no scale 'quick' in p.yaml; there are: real, paper"),
        ("", "no scale 'quick' in p.yaml; there are: "),
        ("- 1", "p.yaml: expected scales by name, found [1]"),
        ("quick: {x: [", "p.yaml is not YAML: while parsing a flow node"),
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

    content = yaml.safe_load(paths.PARAMS.read_text()).get(scale, {})
    assert set(content) <= set(names())
    for name in content:
        assert len(grid(name, scale).configurations) > 0
