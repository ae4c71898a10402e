"""Execute a notebook at a scale and keep it: the same bytes at each execution, figures too.

    python -m lib.notebook 20_two_four_pattern --scale quick

writes results/SCALE/notebooks/NAME.ipynb and, through the notebook's `out` parameter, its tables and figures.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
import papermill
import yaml
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from nbstripout import strip_output
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from lib import paths
from lib.errors import BadInput
from lib.results import write_text
from lib.settings import SCALES
from lib.sweep.grid import PORTABLE

# NumPy's and SciPy's linear algebra (torch's threads are set in the notebooks): rounding that does not depend on how
# many cores there are, and two notebooks side by side do not wait for each other's threads.
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
# A notebook that has not been executed at a larger scale is read at the quick one.
QUICK = "../../quick/notebooks/"
# What differs from one execution to the next and tells a reader nothing.
VOLATILE = [
    "metadata.papermill",
    "metadata.language_info",
    "metadata.widgets",
    "cell.metadata.papermill",
    "cell.metadata.execution",
]


def main(words: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser("python -m lib.notebook", description=__doc__)
    parser.add_argument("name", help=f"one of: {', '.join(names())}")
    parser.add_argument("--scale", default="quick", help=f"whose results it reads: {', '.join(SCALES)}")
    parser.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE", help="VALUE as YAML")
    parser.add_argument("--results", type=Path, default=paths.RESULTS, help="where results go (default: results/)")
    asked = parser.parse_args(words)
    try:
        if asked.scale not in SCALES:
            raise BadInput(f"no scale {asked.scale!r}; there are: {', '.join(SCALES)}")
        if asked.scale == "quick":  # so that what is trained live is what the sweep trained
            os.environ.update(PORTABLE | ONE_THREAD)
        out = asked.results.resolve() / asked.scale
        given = dict(parameter(text) for text in asked.parameter)
        execute(asked.name, {"scale": asked.scale, "out": str(out), **given}, out / "notebooks" / f"{asked.name}.ipynb")
    except BadInput as error:
        print(f"lib.notebook: {error}", file=sys.stderr)
        sys.exit(2)


def names(folder: Path = paths.NOTEBOOKS) -> list[str]:
    """The notebooks there are, in reading order."""
    return sorted(path.stem for path in folder.glob("*.ipynb"))


def parameter(text: str) -> tuple[str, object]:
    """ "NAME=VALUE" with VALUE read as YAML."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"-p {text}: expected NAME=VALUE")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError as error:
        raise BadInput(f"-p {text}: {value!r} is not YAML: {' '.join(str(error).split())}") from error


def execute(name: str, parameters: dict, target: Path, folder: Path = paths.NOTEBOOKS) -> None:
    """Execute a notebook from top to bottom and write it, stripped of what is volatile, whole or not at all.

    Raises:
        BadInput: no such notebook, a parameter it does not have, or a cell that fails (its own message is shown).
    """
    source = folder / f"{name}.ipynb"
    if not source.exists():
        raise BadInput(f"no notebook {name!r}; there are: {', '.join(names(folder))}")
    known = papermill.inspect_notebook(str(source))
    if not known:
        raise BadInput(f"{source.name} has no cell tagged 'parameters'")
    unknown = [p for p in parameters if p not in known]
    if unknown:
        raise BadInput(f"{source.name} has no parameter {unknown[0]!r}; it has: {', '.join(known)}")
    with tempfile.TemporaryDirectory() as temporary:
        # the kernel is reached through files instead of ports: nobody else on the machine can listen, it does not warn,
        # and two that start at the same moment do not take the same
        local = {"transport": "ipc", "connection_file": str(Path(temporary) / "kernel.json")}
        draft = Path(temporary) / source.name
        try:
            papermill.execute_notebook(
                str(source),
                str(draft),
                parameters,
                cwd=str(folder),
                kernel_name="python3",
                progress_bar=sys.stderr.isatty(),
                config=Config({"KernelManager": local}),
            )
        except PapermillExecutionError as error:
            where = f"cell {error.exec_count}" if error.exec_count else "a cell"
            raise BadInput(f"{source.name}: {where} failed: {error.ename}: {error.evalue}") from error
        notebook = nbformat.read(draft, as_version=4)
    notebook = clean(notebook)
    if target.parent.parent.name in SCALES[1:]:
        link(notebook, {path.name for path in target.parent.glob("*.ipynb")} | {target.name})
    write_text(nbformat.writes(notebook) + "\n", target)


def link(notebook: nbformat.NotebookNode, beside: set[str]) -> None:
    """Let links to notebooks that do not stand beside this one lead to the quick scale's."""
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(
                r"\]\((\d\d_\w+\.ipynb)", lambda m: m[0] if m[1] in beside else f"]({QUICK}{m[1]}", cell.source
            )


def clean(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Outputs and counts stay; timestamps, stderr and random cell names go, and so does where the output went.

    What a cell prints comes in pieces, as many as the clock makes; pieces that follow one another are one output here.
    Without its `out` an executed notebook that is run again, by hand or by nbval, writes nothing.
    """
    strip_output(
        notebook,
        keep_output=True,
        keep_count=True,
        keep_id=False,
        extra_keys=VOLATILE,
        drop_output_types={"stream:stderr"},
    )
    for number, cell in enumerate(notebook.cells):
        CoalesceStreamsPreprocessor().preprocess_cell(cell, {}, number)
        if "injected-parameters" in cell.metadata.get("tags", []):
            cell.source = "\n".join(line for line in cell.source.splitlines() if not line.startswith("out = "))
    return notebook


if __name__ == "__main__":
    main()
