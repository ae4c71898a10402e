"""dvc.yaml names what each stage stands on: a clone is up to date, and a change makes just its own stages stale."""

import ast
import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from lib import base
from lib.companion.results import read_claims, read_scorecard
from lib.companion.sweep import imports
from lib.companion.sweep.grid import module_of, paper_of
from lib.companion.sweep.portable import SETTINGS

FILES = {"quick": Path("dvc.yaml"), "real": Path("results/real/dvc.yaml")}
SWEEPS = ("sweep", "sweep_on_two_papers", "sweep_on_data")


@functools.cache
def stages(scale: str) -> dict[str, dict]:
    """The stages of a scale with every template filled in, by the names DVC gives them."""
    found = {}
    for name, stage in yaml.safe_load((base.ROOT / FILES[scale]).read_text())["stages"].items():
        each = stage.get("foreach")
        if each is None:
            found[name] = stage
            continue
        items = each.items() if isinstance(each, dict) else [(item, item) for item in each]
        for key, item in items:
            text = yaml.safe_dump(stage["do"]).replace("${key}", key)
            for place, part in enumerate(item if isinstance(item, list) else []):
                text = text.replace(f"${{item[{place}]}}", part)
            found[f"{name}@{key}"] = yaml.safe_load(text.replace("${item}", str(item)))
    assert "${" not in str(found)
    return found


@functools.cache
def sweeps(scale: str) -> dict[str, dict]:
    """The sweeps of a scale, by experiment."""
    named = (name.partition("@") for name in stages(scale))
    return {key: stages(scale)[f"{kind}@{key}"] for kind, _, key in named if kind in SWEEPS}


def written(scale: str) -> set[str]:
    kinds = [stage.get(kind, []) for stage in stages(scale).values() for kind in ("metrics", "plots", "outs")]
    return {name for entries in kinds for entry in entries for name in entry}


def stale(root: Path) -> set[str]:
    """The stages that `dvc repro` would run at the root."""
    words = [sys.executable, "-m", "dvc", "repro", "--dry", "--allow-missing"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^Running stage '([^']+)'", done.stdout, re.MULTILINE))


def has_code(path: Path) -> bool:
    """Whether there is more in a file than a docstring."""
    if path.suffix != ".py":
        return True
    return any(not isinstance(node, ast.Expr) for node in ast.parse((base.ROOT / path).read_text()).body)


@functools.cache
def computed_with(experiment: str) -> list[Path]:
    """The sources that a sweep of the experiment runs, but for those that hold a docstring alone."""
    used = imports.closure("lib.companion.sweep.program", module_of(experiment))
    return [path for path in used if has_code(path)]


def inside(path: Path, places: list[str]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def test_the_pipeline_can_be_read():
    assert all(len((base.ROOT / path).read_text().splitlines()) <= 150 for path in FILES.values())
    assert (base.ROOT / "dvc.lock").stat().st_size <= 80_000
    each = [stage["deps"] for scale in FILES for stage in stages(scale).values()]
    assert [deps for deps in each if len(set(deps)) < len(deps)] == []  # nothing is listed twice


@pytest.mark.parametrize("scale", FILES)
def test_every_experiment_with_settings_has_a_sweep(scale: str):
    named = yaml.safe_load((base.ROOT / "params.yaml").read_text())[scale]
    assert set(sweeps(scale)) == set(named)
    for experiment, stage in sweeps(scale).items():
        assert stage["cmd"] == f"python -m lib.sweep {experiment} --scale {scale}"
        assert stage["params"] == [f"{scale}.{experiment}"]
        assert [list(entry) for entry in stage["metrics"]] == [[f"results/{scale}/runs/{experiment}.csv"]]


@pytest.mark.parametrize("scale", FILES)
def test_a_sweep_stands_on_every_source_that_it_computes_with(scale: str):
    for experiment, stage in sweeps(scale).items():
        assert [path for path in computed_with(experiment) if not inside(path, stage["deps"])] == []


@pytest.mark.parametrize("scale", FILES)
def test_no_sweep_stands_on_claims_measures_exercises_or_plots(scale: str):
    explaining = [path.relative_to(base.ROOT) for path in (base.ROOT / "lib/companion").rglob("*.py")]
    explaining = [path for path in explaining if path.parent.name != "sweep" and path.name != "csv_files.py"]
    papers = [path.relative_to(base.ROOT) for path in base.PAPERS.rglob("*") if path.suffix in (".py", ".yaml")]
    papers = [path for path in papers if path.parent.name != "experiments"]
    for stage in sweeps(scale).values():
        assert [path for path in explaining + papers if inside(path, stage["deps"])] == []


def test_public_data_stand_behind_the_sweeps_that_read_them():
    real = sweeps("real")
    reads = {name for name, stage in real.items() if "data" in stage["deps"]}
    assert reads == {
        "two_four_workflow",
        "two_four_networks",
        "npn_ablations",
        "npn_images",
        "gst_images",
        "skdfe",
        "skdfe_two_four",
        "two_four_detection",
        "two_four_gan",
        "two_four_language",
        "two_four_masks",
        "two_four_translation",
        "two_four_one_shot",
        "two_four_sessions",
        "two_four_asides",
    }


def test_every_notebook_has_a_stage():
    named = [name.removeprefix("notebook@") for name in stages("quick") if name.startswith("notebook@")]
    assert named == sorted(path.stem for path in base.NOTEBOOKS.glob("*.ipynb"))


def test_one_command_runs_every_kind_of_stage_in_the_order_in_which_they_stand_on_each_other():
    """`make repro` runs the stages' own programs for all at once, and then tells DVC."""
    recipe = (base.ROOT / "Makefile").read_text().split("\nrepro:")[1].split("\n\n")[0].splitlines()[1:]
    lines = [line.strip().removeprefix("@").replace("$(RUN)", "python") for line in recipe]
    assert lines == [
        "python -m lib.sweep --all --scale quick",  # all that params.yaml names: those that have a stage, see above
        "python -m lib.claims",
        "python -m lib.notebook --all",
        "dvc commit --quiet --force dvc.yaml",
        "python -m lib.compare --scale quick",
    ]
    kinds = {stage["cmd"].split()[2] for stage in stages("quick").values()}
    assert kinds == {line.split()[2] for line in lines[:3]}


def test_making_the_quick_results_never_trains_at_the_real_scale():
    """DVC follows dependencies into other pipelines: nothing that the root reads may be an output of the real one."""
    read = {dep for stage in stages("quick").values() for dep in stage["deps"]}
    made = written("real")
    assert made
    assert [(dep, name) for dep in read for name in made if Path(name).is_relative_to(dep)] == []


def test_the_scorecard_names_every_run_file_that_verdicts_of_the_real_scale_come_from():
    """Notebooks read those runs, and stand on the scorecard in their place."""
    named = set(read_claims("real").runs.dropna()) - {""}
    assert named
    assert named - set(read_scorecard().runs) == set()


def test_every_quick_result_belongs_to_one_stage():
    there = {p.relative_to(base.ROOT).as_posix() for p in (base.RESULTS / "quick").rglob("*") if p.is_file()}
    there |= {p.relative_to(base.ROOT).as_posix() for p in (base.RESULTS / "notebooks").iterdir()}
    there = {name for name in there if "/choices/" not in name}  # made once, to choose a setting in params.yaml
    assert {name for name in written("quick") if Path(name).parent != Path("results")} == there


def test_a_change_makes_exactly_its_own_stages_stale(tree: Path):
    """One tree for all, because each question to DVC takes seconds."""
    assert stale(tree) == set(), "a fresh clone is up to date; `make repro` brings the quick results up to date"
    notebooks = {name for name in stages("quick") if name.startswith("notebook@")}
    every = set(stages("quick")) - notebooks - {"claims"}  # sweeps

    for name in ("lib/companion/plots.py", "lib/papers/npn/claims.yaml", "lib/papers/npn/exercises.py"):
        (tree / name).write_text((tree / name).read_text() + "\n# a comment\n")
    assert stale(tree) == {"claims", *notebooks}  # and no sweep
    subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)

    (tree / "notebooks" / "20_two_four_pattern.ipynb").write_text("{}")
    (tree / "README.md").write_text("")
    assert stale(tree) == {"notebook@20_two_four_pattern"}
    subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)

    changed = tree / "lib" / "papers" / "npn" / "experiments" / "npn_moons.py"
    changed.write_text(changed.read_text() + "\n# a comment\n")
    own = {name for name in every if paper_of(_file_of(name.partition("@")[2])) == "npn"}
    assert stale(tree) == {"claims", *own, *notebooks}
    subprocess.run(["git", "checkout", "-q", "."], cwd=tree, check=True)

    changed = tree / "lib" / "pruners" / "scores.py"
    changed.write_text(changed.read_text() + "\n# a comment\n")
    assert stale(tree) == {"claims", *every, *notebooks}  # and none of results/real/dvc.yaml


def _file_of(experiment: str) -> Path:
    return base.ROOT.joinpath(*module_of(experiment).split(".")).with_suffix(".py")


def test_the_lab_computes_as_the_executed_notebooks_were(tmp_path: Path):
    tools = tmp_path / "bin"
    tools.mkdir()
    shown = tools / "jupyter"
    shown.write_text('#!/bin/sh\nenv > "$SEEN"\n')
    shown.chmod(0o755)
    clean = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    seen = clean | {"SEEN": str(tmp_path / "seen"), "PATH": f"{tools}:{os.environ['PATH']}"}
    command = [
        line for line in (base.ROOT / "Makefile").read_text().split("\nlab:")[1].split("\n") if "jupyter" in line
    ]
    recipe = command[-1].strip().replace("$(RUN)", sys.executable).replace("$$", "$")
    subprocess.run(["sh", "-c", recipe], cwd=base.ROOT, env=seen, check=True)
    told = dict(line.split("=", 1) for line in (tmp_path / "seen").read_text().splitlines() if "=" in line)
    assert SETTINGS.items() <= told.items()
