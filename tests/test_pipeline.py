"""dvc.yaml is derived and in step, quick results are up to date, and a change makes just its own stages stale."""

import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml

from lib import paths, pipeline
from lib.errors import BadInput

KINDS = ("metrics", "plots", "outs")


def stale(root: Path) -> set[str]:
    """The stages that `dvc repro` would run."""
    words = [sys.executable, "-m", "dvc", "repro", "--dry", "--allow-missing"]
    done = subprocess.run(words, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^Running stage '([^']+)'", done.stdout, re.MULTILINE))


@pytest.mark.parametrize("scale", pipeline.FILES)
def test_dvc_yaml_is_in_step_with_the_sources(scale: str):
    path = paths.ROOT / pipeline.FILES[scale]
    assert path.read_text() == pipeline.pipeline(scale), "make pipeline brings it up to date"


def test_making_the_quick_results_never_trains_at_the_real_scale():
    """DVC follows dependencies into other pipelines: nothing that the root reads may be an output of the real one."""
    quick, real = (yaml.safe_load((paths.ROOT / pipeline.FILES[s]).read_text())["stages"] for s in ("quick", "real"))
    read = {dep for stage in quick.values() for dep in stage["deps"]}
    made = {name for stage in real.values() for kind in KINDS for entry in stage.get(kind, []) for name in entry}
    assert not read & made


def test_quick_results_are_up_to_date():
    assert stale(paths.ROOT) == set(), "make repro brings the quick results up to date"


def test_every_quick_result_belongs_to_one_stage():
    stages = yaml.safe_load((paths.ROOT / "dvc.yaml").read_text())["stages"].values()
    written = [name for stage in stages for kind in KINDS for entry in stage.get(kind, []) for name in entry]
    there = [p.relative_to(paths.ROOT).as_posix() for p in (paths.RESULTS / "quick").rglob("*") if p.is_file()]
    there.append("results/claims.csv")
    assert sorted(written) == sorted(there)


PRINTED = {path.stem for path in paths.NOTEBOOKS.glob("*.ipynb") if "papers.read()" in path.read_text()}


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("lib/experiments/two_four_workflow.py", {"two_four_workflow", "23_train_prune_retrain"}),  # 23 imports it
        ("lib/papers/two_four.yaml", {"claims", "scorecard", *PRINTED}),
        ("lib/exercises/two_four.py", {path.stem for path in paths.NOTEBOOKS.glob("2*.ipynb")}),
        ("README.md", set()),
    ],
)
def test_a_changed_file_makes_exactly_its_own_stages_stale(tree: Path, changed: str, expected: set[str]):
    append(tree / changed, "\n# a comment\n")
    assert stale(tree) == expected


def test_a_changed_colour_in_a_notebook_retrains_nothing(tree: Path):
    path = tree / "notebooks" / "20_two_four_pattern.ipynb"
    text = path.read_text()
    assert "color=plots.BLUE" in text
    path.write_text(text.replace("color=plots.BLUE", "color=plots.GREEN"))
    assert stale(tree) == {"20_two_four_pattern"}


def stage_of(tree: Path, *cells: str) -> dict:
    path = tree / "notebooks" / "99_example.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells]), path)
    return pipeline.notebook_stage(path, pipeline.code(path), "quick", tree)


def test_a_notebooks_imports_reads_and_writes_are_found(tree: Path):
    stage = stage_of(
        tree,
        "from lib.results import read_runs, save_figure, save_table\nfrom lib.models import lenet",
        'runs = read_runs("some_runs", scale)\nsave_table(runs, "99_table", out)',
        'times = read_bench("some_times")',
        'save_figure(figure, "99_figure", out)',
    )
    assert {"lib/models/lenet.py", "lib/notebook.py", "results/quick/runs/some_runs.csv"} <= set(stage["deps"])
    assert "results/bench/some_times.csv" in stage["deps"]
    assert not {"lib/models/resnet.py", "results/quick/claims.csv", "results/claims.csv"} & set(stage["deps"])
    assert stage["metrics"] == [{"results/quick/tables/99_table.csv": {"cache": False}}]
    assert stage["plots"] == [{"results/quick/figures/99_figure.svg": {"cache": False}}]


def test_a_folder_stands_for_its_sources_where_all_are_used(tree: Path):
    folder = tree / "lib" / "models" / "toys"
    folder.mkdir()
    for name in ("__init__", "one", "two"):
        (folder / f"{name}.py").touch()
    part = stage_of(tree, "from lib.models.toys import one")["deps"]
    assert [name for name in part if "toys" in name] == [f"lib/models/toys/{name}.py" for name in ("__init__", "one")]
    whole = stage_of(tree, "from lib.models.toys import one, two")["deps"]
    assert [name for name in whole if "toys" in name] == ["lib/models/toys"]


def test_a_name_that_is_not_written_out_is_refused(tree: Path):
    with pytest.raises(BadInput, match=r"read_runs\(name\): write the name out"):
        stage_of(tree, "read_runs(name, scale)")


def test_timings_that_a_claim_is_judged_by_make_verdicts_stale(tree: Path):
    claim = {"id": "fast", "measure": {"function": "products.speedup", "bench": "toy", "device": "cpu"}}
    (tree / "lib" / "papers" / "toy.yaml").write_text(
        yaml.safe_dump({"claims": [claim, {"id": "b", "not_run": "why"}]})
    )
    assert "results/bench/toy.csv" not in pipeline.claims_stage([], "quick", tree)["deps"]  # not measured yet
    (tree / "results" / "bench" / "toy.csv").write_text("device\n")
    assert "results/bench/toy.csv" in pipeline.claims_stage([], "quick", tree)["deps"]


def test_sweeps_that_learn_from_agents_do_not_wait_for_images(tree: Path):
    assert "data" in pipeline.sweep_stage("two_four_workflow", "real", tree)["deps"]
    assert "data" in pipeline.sweep_stage("skdfe", "real", tree)["deps"]
    for name, scale in (("offline_rl", "real"), ("gst_td3", "real"), ("two_four_workflow", "quick")):
        assert "data" not in pipeline.sweep_stage(name, scale, tree)["deps"]
    assert "lib/data/experts" in pipeline.sweep_stage("offline_rl", "real", tree)["deps"]
