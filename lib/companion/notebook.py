"""Execute a notebook and keep it: the same bytes at each execution, figures too.

    python -m lib.notebook 20_two_four_pattern
    python -m lib.notebook --all

writes results/notebooks/NAME.ipynb and, through the notebook's `out` parameter, results/tables/ and results/figures/.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

import joblib
import nbformat
import papermill
import psutil
from nbclient.exceptions import DeadKernelError
from nbconvert.preprocessors import CoalesceStreamsPreprocessor
from nbstripout import strip_output
from papermill.exceptions import PapermillExecutionError
from traitlets.config import Config

from lib import base
from lib.base import BadInput, writable
from lib.companion import warm
from lib.companion.csv_files import write_text
from lib.companion.sweep import portable
from lib.companion.sweep.settings import parse_yaml

# The kernel's debugger would warn that it cannot see into Python's own frozen modules.
QUIET = {"PYDEVD_DISABLE_FILE_VALIDATION": "1"}
# What differs from one execution to the next and tells a reader nothing.
VOLATILE = [
    "metadata.papermill",
    "metadata.language_info",
    "metadata.widgets",
    "cell.metadata.papermill",
    "cell.metadata.execution",
]


def main(words: list[str] | None = None) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        "python -m lib.notebook",
        description="Execute notebooks into results/notebooks/, their tables and figures beside them.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(names())}")
    parser.add_argument("--all", action="store_true", help="every notebook, as many at a time as there are cores")
    parser.add_argument("-p", "--parameter", action="append", default=[], metavar="NAME=VALUE", help="VALUE as YAML")
    parser.add_argument("--results", type=Path, default=base.RESULTS, help="where results go (default: results/)")
    asked = parser.parse_args(words)
    with base.program("lib.notebook"):
        os.environ.update(portable.SETTINGS | QUIET)  # what is trained live is what the quick sweeps trained
        # a kernel works in the notebooks' folder, where `lib` would be the installed copy, not the one that asks
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(base.ROOT), os.environ.get("PYTHONPATH"))))
        if asked.all == bool(asked.names):
            raise BadInput("name one notebook or more, or say --all: one of the two")
        chosen = [named(word) for word in asked.names] or names()
        base.refuse_twice(names=chosen)
        out = asked.results.resolve()
        given = dict(parameter(text) for text in asked.parameter)
        execute_all(chosen, {"out": str(out), **given}, out / "notebooks")


def names(folder: Path = base.NOTEBOOKS) -> list[str]:
    """List the notebooks in reading order."""
    return sorted(path.stem for path in folder.glob("*.ipynb"))


def named(word: str, folder: Path = base.NOTEBOOKS) -> str:
    """Find the notebook that a word names: its name, a path to it, or its number, such as 61."""
    name = Path(word).stem if word.endswith(".ipynb") else word
    numbered = [one for one in names(folder) if one.startswith(f"{name}_")]
    return numbered[0] if len(numbered) == 1 else name


def parameter(text: str) -> tuple[str, object]:
    """Split "NAME=VALUE", with VALUE read as YAML.

    Raises:
        BadInput: no equals sign, or as `parse_yaml`.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInput(f"-p {text}: expected NAME=VALUE")
    return name, parse_yaml(value, f"-p {text}: {value!r}")


def execute_all(chosen: Sequence[str], parameters: dict, target: Path, folder: Path = base.NOTEBOOKS) -> None:
    """Execute notebooks into a folder, of several as many at a time as there are cores, in kernels that start at once.

    Raises:
        BadInput: those of `execute`, a line a notebook; the others are executed all the same.
    """
    if len(chosen) > 1:
        warm.use()
    with ThreadPoolExecutor(min(len(chosen), joblib.cpu_count())) as pool:
        running = [pool.submit(execute, name, parameters, target / f"{name}.ipynb", folder) for name in chosen]
        try:
            wait(running)
        except KeyboardInterrupt:  # those that have not begun would begin now, before anybody hears of it
            pool.shutdown(wait=False, cancel_futures=True)
            for child in psutil.Process().children(recursive=True):  # kernels hear nothing of Ctrl-C
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            raise
    errors = [error for one in running if (error := one.exception()) is not None]
    lines = [str(error) for error in errors if isinstance(error, BadInput)]
    for error in errors:
        if not isinstance(error, BadInput):
            error.add_note("\n".join(["besides:", *lines]) if lines else "no other notebook failed")
            raise error
    if errors:
        raise BadInput(*lines)


def execute(name: str, parameters: dict, target: Path, folder: Path = base.NOTEBOOKS) -> None:
    """Execute a notebook from top to bottom and write it, stripped of what is volatile, whole or not at all.

    Raises:
        BadInput: no such notebook, a damaged one, a parameter it does not have, a cell that fails (its own message is
            shown) or that ends the kernel, or a folder that takes no files.
    """
    source = folder / f"{name}.ipynb"
    if not source.exists():
        raise BadInput(f"no notebook {name!r}; there are: {', '.join(names(folder))}")
    if "name" not in read_notebook(source).metadata.get("kernelspec", {}):
        raise BadInput(f"{source.name} names no kernel: open it in Jupyter, choose Python 3 and save it")
    writable(target.parent)
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
        # when the last cell is done the kernel has nothing to save; a graceful end interrupts it first, and on a busy
        # machine it answers that interrupt on the terminal
        settings = Config({"KernelManager": local, "NotebookClient": {"shutdown_kernel": "immediate"}})
        draft = Path(temporary) / source.name
        try:
            papermill.execute_notebook(
                str(source),
                str(draft),
                parameters,
                cwd=str(folder),
                kernel_name="python3",
                progress_bar=sys.stderr.isatty(),
                config=settings,
            )
        except PapermillExecutionError as error:
            where = f"cell {error.exec_count}" if error.exec_count else "a cell"
            raise BadInput(f"{source.name}: {where} failed: {error.ename}: {error.evalue}") from error
        except DeadKernelError as error:
            raise BadInput(f"{source.name}: its kernel was killed (out of memory?)") from error
        except RuntimeError as error:  # nbclient's own, of a kernel that has never answered
            raise BadInput(f"{source.name}: its kernel did not start: {error}") from error
        notebook = nbformat.read(draft, as_version=4)
    write_text(nbformat.writes(clean(notebook)) + "\n", target)


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """Read a notebook.

    Raises:
        BadInput: a file that cannot be read or is no notebook.
    """
    try:
        found = nbformat.read(path, as_version=4)
        nbformat.validate(found)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, AttributeError, KeyError, nbformat.ValidationError) as error:
        raise BadInput(f"{path.name} is no whole notebook: {str(error).strip().splitlines()[0]:.100}") from error
    return found


def clean(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Remove timestamps, stderr, random cell names and where the output went; outputs and counts stay.

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
    notebook.cells = [cell for cell in notebook.cells if cell.source != "# Parameters"]  # nothing else was given
    return notebook


if __name__ == "__main__":
    main()
