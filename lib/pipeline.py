"""dvc.yaml, derived: which stages there are, what each really depends on, and what it writes.

    python -m lib.pipeline            # write dvc.yaml and results/real/dvc.yaml
    python -m lib.pipeline --check    # fail when one of them is out of step

A stage for each experiment that params.yaml has settings for, one for the claims, one for each notebook. Dependencies
are read from the sources: imports, the runs and claims a notebook reads, the tables and figures it saves. So a changed
line makes exactly those stages stale that use it.

The real scale has a pipeline of its own, which `dvc repro` at the root leaves alone: its stages take hours. Its claims
are not declared as an output, because the root's scorecard reads them, and DVC would want to make them first.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

import nbformat
import yaml

from lib import paths, sources
from lib.errors import BadInput
from lib.results import write_text
from lib.settings import SCALES

STORED = ("vision.py", "speech")  # what reads data/
HEADER = "# Written by `python -m lib.pipeline` from params.yaml, notebooks/ and the imports in lib/; do not edit.\n"
FILES = {"quick": Path("dvc.yaml"), "real": Path("results/real/dvc.yaml")}


def pipeline(scale: str = "quick", root: Path = paths.ROOT) -> str:
    """The text of one scale's dvc.yaml."""
    experiments = list(yaml.safe_load((root / "params.yaml").read_text())[scale])
    stages = {name: sweep_stage(name, scale, root) for name in experiments}
    stages["claims"] = claims_stage(experiments, scale, root)
    if scale == "quick":
        stages["scorecard"] = scorecard_stage(root)
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        tree = code(path)
        read = _runs_read(tree)
        if scale == "quick" or (read and set(read) <= set(experiments)):  # at other scales those that show its runs
            stages[path.stem] = notebook_stage(path, tree, scale, root)
    if scale != "quick":  # commands run in the root, wherever the file lies
        stages = {name: {"wdir": "../..", **stage} for name, stage in stages.items()}
    return HEADER + yaml.safe_dump({"stages": stages}, sort_keys=False, width=120)


def sweep_stage(name: str, scale: str, root: Path) -> dict:
    """An experiment at a scale; beyond quick its data may lie in data/, unless it learns from agents alone."""
    files = sources.closure("lib.sweep.__main__", f"lib.experiments.{name}", root=root)
    stored = scale != "quick" and any(path.is_relative_to(f"lib/data/{kind}") for path in files for kind in STORED)
    return {
        "cmd": f"python -m lib.sweep {name} --scale {scale}",
        "deps": [*_names(files, root), *(["data"] if stored else [])],
        "params": [f"{scale}.{name}"],
        "metrics": [_in_git(_runs(name, scale), persist=True)],
    }


def claims_stage(experiments: list[str], scale: str, root: Path) -> dict:
    """The verdicts of a scale, from the runs of its experiments and the benchmarks."""
    measured = [_runs(name, scale) for name in experiments] + benchmarks(root)
    return {
        "cmd": f"python -m lib.claims --scale {scale}",
        "deps": _names([*sources.closure("lib.claims.__main__", root=root), *papers(root)], root) + measured,
        "metrics": [_in_git(f"results/{scale}/claims.csv", persist=True)] if scale == "quick" else [],
    }


def scorecard_stage(root: Path) -> dict:
    """Each claim at its largest scale."""
    claims = [f"results/{scale}/claims.csv" for scale in SCALES]
    there = [name for name in claims if name == claims[0] or (root / name).exists()]
    return {
        "cmd": "python -m lib.claims --largest",
        "deps": _names([*sources.closure("lib.claims.__main__", root=root), *papers(root)], root) + there,
        "metrics": [_in_git("results/claims.csv", persist=True)],
    }


def papers(root: Path) -> list[Path]:
    """The papers' files, which a program reads that judges claims."""
    return sorted(path.relative_to(root) for path in (root / "lib" / "papers").glob("*.yaml"))


def benchmarks(root: Path) -> list[str]:
    """The timings that claims are judged by, as far as they are there."""
    claims = [claim for path in papers(root) for claim in yaml.safe_load((root / path).read_text())["claims"]]
    names = {claim.get("measure", {}).get("bench") for claim in claims} - {None}
    return [path for name in sorted(names) if (root / (path := f"results/bench/{name}.csv")).exists()]


def code(path: Path) -> ast.AST:
    """A notebook's code, parsed."""
    cells = nbformat.read(path, as_version=4).cells
    return ast.parse("\n".join(cell.source for cell in cells if cell.cell_type == "code"))


def notebook_stage(path: Path, tree: ast.AST, scale: str, root: Path) -> dict:
    """A notebook at a scale, from what it imports and reads; its tables, figures and the notebook come out."""
    modules = [name for name in sources.imported(tree) if sources.file_of(name, root)]
    files = [path.relative_to(root), *sources.closure("lib.notebook", *modules, root=root)]
    used = _names([*files, *(papers(root) if "lib.claims.papers" in modules else [])], root)
    used += [_runs(name, scale) for name in _runs_read(tree)]
    used += [f"results/bench/{name}.csv" for name in _bench_read(tree)]
    used += [f"results/{scale}/claims.csv"] if _calls(tree, "read_claims") else []
    used += ["results/claims.csv"] if _calls(tree, "read_scorecard") else []
    tables = [f"results/{scale}/tables/{name}.csv" for name in _names_saved(tree, "save_table")]
    figures = [f"results/{scale}/figures/{name}.svg" for name in _names_saved(tree, "save_figure")]
    return {
        "cmd": f"python -m lib.notebook {path.stem} --scale {scale}",
        "deps": used,
        # metrics and plots without cache stay in git and, unlike plain outs, in DVC's run cache
        "metrics": [_in_git(name) for name in tables],
        "plots": [_in_git(name) for name in figures],
        "outs": [_in_git(f"results/{scale}/notebooks/{path.name}")],
    }


def _calls(tree: ast.AST, function: str) -> list[ast.Call]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return [call for call in found if call.func.id == function]


def _runs_read(tree: ast.AST) -> list[str]:
    """The experiment of each `read_runs("experiment", scale)`."""
    return _words("read_runs", [call.args[0] for call in _calls(tree, "read_runs")])


def _bench_read(tree: ast.AST) -> list[str]:
    """The benchmark of each `read_bench("name")`."""
    return _words("read_bench", [call.args[0] for call in _calls(tree, "read_bench")])


def _names_saved(tree: ast.AST, function: str) -> list[str]:
    """The name in each `save_table(table, "name", out)` or `save_figure(figure, "name", out)`."""
    return _words(function, [call.args[1] for call in _calls(tree, function)])


def _words(function: str, arguments: list[ast.expr]) -> list[str]:
    for argument in arguments:
        if not isinstance(argument, ast.Constant) or not isinstance(argument.value, str):
            raise BadInput(f"{function}({ast.unparse(argument)}): write the name out, the pipeline is derived from it")
    return sorted({argument.value for argument in arguments})


def _runs(name: str, scale: str) -> str:
    return f"results/{scale}/runs/{name}.csv"


def _names(files: list[Path], root: Path) -> list[str]:
    """Their names, sorted; a folder stands for its sources where all of them are used.

    DVC reads and writes every name at each stage, so fewer are faster.
    """
    used = set(files)
    for folder in sorted({parent for path in files for parent in path.parents}, key=lambda parent: len(parent.parts)):
        sources_inside = {path.relative_to(root) for path in (root / folder).rglob("*.py")}
        if not sources_inside:  # a folder of other files, such as the experts
            sources_inside = {path.relative_to(root) for path in (root / folder).rglob("*") if path.is_file()}
        if folder.parts and len(sources_inside) > 1 and sources_inside <= used:
            used = used - sources_inside | {folder}
    return sorted(path.as_posix() for path in used)


def _in_git(name: str, persist: bool = False) -> dict:
    """An output that git keeps.

    DVC deletes outputs before it makes them anew, but not those that persist: a program that writes whole files only
    leaves the old one until the new one is there, also when it is stopped.
    """
    return {name: {"cache": False} | ({"persist": True} if persist else {})}


def main(words: list[str] | None = None) -> None:
    """The command line: write dvc.yaml and what else is derived."""
    parser = argparse.ArgumentParser("python -m lib.pipeline", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when dvc.yaml is out of step")
    asked = parser.parse_args(words)
    try:
        for scale, name in FILES.items():
            text, path = pipeline(scale), paths.ROOT / name
            if not asked.check:
                write_text(text, path)
            elif not path.exists() or path.read_text() != text:
                raise BadInput(f"{name} is out of step with the sources; python -m lib.pipeline")
    except BadInput as error:
        print(f"lib.pipeline: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
