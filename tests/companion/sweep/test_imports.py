"""The closure of a module is what importing it really runs, and its fingerprint changes with each of these files."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from lib import base
from lib.base import BadInput
from lib.companion.sweep import imports

FILES = {
    "lib/__init__.py": "",
    "lib/a.py": "import os\nimport numpy\n\ndef late():\n    from lib.deep import leaf\n    return leaf\n",
    "lib/b.py": "from lib import a\nfrom lib.names import value\nimport lib.deep.other as other\n",
    "lib/names.py": "value = 1\n",
    "lib/deep/__init__.py": "from lib.shared import thing\n",
    "lib/deep/leaf.py": "",
    "lib/deep/other.py": "import lib.b\n",  # in a circle
    "lib/shared.py": "thing = 2\n",
    "lib/alone.py": "",
    "lib/library.py": "import library\nfrom a import b\n",  # names that only look like ours
    "a.py": "",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def closure(root: Path, *modules: str) -> list[str]:
    return [path.as_posix() for path in imports.closure(*modules, root=root)]


def test_a_module_alone_needs_itself_and_its_packages(tree: Path):
    assert closure(tree, "lib.alone") == ["lib/__init__.py", "lib/alone.py"]
    assert closure(tree, "lib.library") == ["lib/__init__.py", "lib/library.py"]


def test_imports_inside_functions_and_of_packages_on_the_way_count(tree: Path):
    assert closure(tree, "lib.a") == [
        "lib/__init__.py",
        "lib/a.py",
        "lib/deep/__init__.py",
        "lib/deep/leaf.py",
        "lib/shared.py",  # because lib.deep's __init__ imports it
    ]


def test_from_imports_of_modules_and_of_names_are_followed_round_circles(tree: Path):
    everything_but = {"lib/alone.py", "lib/library.py", "a.py"}
    assert set(closure(tree, "lib.b")) == set(FILES) - everything_but


def test_several_modules_give_the_union_of_theirs(tree: Path):
    both = closure(tree, "lib.alone", "lib.a")
    assert both == sorted({*closure(tree, "lib.alone"), *closure(tree, "lib.a")})


def test_a_module_that_is_not_there_is_refused(tree: Path):
    with pytest.raises(BadInput, match=r"no module 'lib\.deep\.leef' under"):
        imports.closure("lib.a", "lib.deep.leef", root=tree)


def test_the_closure_of_an_experiment_is_what_a_fresh_python_loads_for_it():
    script = "import sys, lib.papers.two_four.experiments.two_four_workflow as w; "
    script += "print(*[m.__file__ for n, m in sys.modules.items() if n.split('.')[0] == 'lib' and m.__file__])"
    done = subprocess.run([sys.executable, "-c", script], cwd=base.ROOT, capture_output=True, text=True, check=True)
    loaded = {Path(name).relative_to(base.ROOT) for name in done.stdout.split()}
    used = imports.closure("lib.papers.two_four.experiments.two_four_workflow")
    late = {Path("lib/kernels/assignment.py")}  # imported by the function that needs it, as numba takes a second
    assert {path for path in used if path.suffix == ".py"} == loaded | late


def test_the_project_has_no_relative_imports_which_the_closure_would_miss():
    found = [
        path.name
        for path in (base.ROOT / "lib").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.level > 0
    ]
    assert found == []


def test_the_fingerprint_changes_with_a_content_and_with_a_name_and_with_nothing_else(tree: Path):
    files = imports.closure("lib.a", root=tree)
    before = imports.fingerprint(files, tree)
    (tree / "lib/alone.py").write_text("changed = 1\n")
    assert imports.fingerprint(reversed(files), tree) == before
    (tree / "lib/deep/leaf.py").write_text("\n")
    assert imports.fingerprint(files, tree) != before
    (tree / "lib/deep/leaf.py").write_text("")
    assert imports.fingerprint(files, tree) == before
    (tree / "lib/deep/leaf.py").rename(tree / "lib/deep/twig.py")
    renamed = [Path(str(path).replace("leaf", "twig")) for path in files]
    assert imports.fingerprint(renamed, tree) != before


def test_files_that_a_module_names_beside_itself_belong_to_it(tree: Path):
    (tree / "lib" / "deep" / "kept" / "one").mkdir(parents=True)
    for name in ("kept/one/a.npz", "kept/card.yaml", "list.toml", "another.toml"):
        (tree / "lib" / "deep" / name).touch()
    text = 'KEPT, LIST = Path(__file__).with_name("kept"), Path(__file__).with_name("list.toml")\n'
    (tree / "lib" / "deep" / "leaf.py").write_text(text)
    found = set(closure(tree, "lib.deep.leaf"))
    assert {"lib/deep/kept/one/a.npz", "lib/deep/kept/card.yaml", "lib/deep/list.toml"} <= found
    assert "lib/deep/another.toml" not in found


def test_the_experts_belong_to_what_their_rollouts_are_made_for():
    used = {path.as_posix() for path in imports.closure("lib.papers.offline_rl.experiments.offline_rl")}
    assert "lib/data/experts/Hopper-v4/expert.npz" in used
