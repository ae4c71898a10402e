"""Source notebooks are clean and complete; `lib.notebook` executes them to the same bytes and refuses bad input."""

import ast
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import nbformat
import psutil
import pytest

from lib import base
from lib.base import BadInput
from lib.companion import exercises, notebook
from lib.companion.lesson import hedged
from lib.companion.sweep import portable
from lib.companion.sweep.settings import SCALES

SOURCES = sorted(base.NOTEBOOKS.glob("*.ipynb"))
EXECUTED = sorted((base.RESULTS / "notebooks").glob("*.ipynb"))


def saves(tree: ast.AST) -> list[ast.expr]:
    """The names under which a piece of code saves figures and tables."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call.args[1] for call in calls if ast.unparse(call.func) in ("save_figure", "save_table")]


def code(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_source_notebook_holds_no_outputs(path: Path):
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code(path))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_the_first_code_cell_imports_and_has_one_parameter(path: Path):
    first = code(path)[0]
    assert first.metadata.get("tags") == ["parameters"]
    assert re.findall(r"^(\w+) = ", first.source, re.MULTILINE) == ["out"]
    assert "out = None" in first.source


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_what_a_notebook_saves_of_a_scale_is_named_by_it(path: Path):
    """Else one scale's figure would replace another's; and a name begins with the notebook's number."""
    saved = []
    for cell in code(path):
        for node in ast.walk(ast.parse(cell.source)):
            if isinstance(node, ast.For) and "scale" in re.findall(r"\w+", ast.unparse(node.target)):
                inside = [ast.unparse(name) for name in saves(node)]
                assert [name for name in inside if not name.endswith("_{scale}'")] == []
        saved += [ast.unparse(name) for name in saves(ast.parse(cell.source))]
    assert [name for name in saved if not re.match(rf"f?'{path.stem[:2]}_", name)] == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_notebook_has_a_title_aims_and_what_to_read_next(path: Path):
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown")
    assert re.match(rf"# {path.stem[:2]} · \S", text)
    for part in ("you will be able to", "## Exercises", "## Read next"):
        assert part in text


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_each_exercise_of_a_notebook_exists_and_asks_without_answering(path: Path):
    text = "\n".join(cell.source for cell in code(path))
    asked = re.findall(r'^check\("([\d.]+)", (.+?)\)', text, re.MULTILINE)
    assert re.search(r"^from lib\.exercises import check$", text, re.MULTILINE)
    known = exercises.module_of(path.stem[:2]).EXERCISES
    assert [name for name, _ in asked] == [name for name in known if name.startswith(path.stem[:2])]
    assert {answer for _, answer in asked} == {"..."}


def results(path: Path) -> list[str]:
    """What a notebook says of its results: the sentences of `say`, and paragraphs in Markdown that announce one."""
    found = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            paragraphs = cell.source.split("\n\n")
            found += [text for text in paragraphs if re.match(r"\*\*(In short|What happened|The answer)", text)]
            continue
        for call in ast.walk(ast.parse(cell.source)):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "say":
                parts = (part for argument in call.args for part in ast.walk(argument))
                found.append("".join(part.value for part in parts if isinstance(getattr(part, "value", None), str)))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_a_result_says_what_happened(path: Path):
    """No "where", "if" or "compare the rows" in place of an answer, whether or not a cell is executed."""
    assert not [text for text in results(path) if hedged(text)]


def test_results_are_found_in_code_and_in_text():
    texts = [text for path in SOURCES for text in results(path)]
    assert len(texts) > 60
    assert any(text.startswith("**What happened") for text in texts)


def test_every_notebook_has_been_executed():
    assert [path.name for path in EXECUTED] == [path.name for path in SOURCES]


@pytest.mark.parametrize("name", notebook.names())
def test_what_was_executed_is_the_notebook_as_it_is(name: str):
    executed, source = (
        [
            (cell.cell_type, cell.source)
            for cell in nbformat.read(folder / f"{name}.ipynb", as_version=4).cells
            if "injected-parameters" not in cell.metadata.get("tags", [])
        ]
        for folder in (base.RESULTS / "notebooks", base.NOTEBOOKS)
    )
    assert executed == source, f"python -m lib.notebook {name}"


def test_every_figure_and_table_is_one_that_a_notebook_saves():
    names = [ast.unparse(name) for path in SOURCES for cell in code(path) for name in saves(ast.parse(cell.source))]
    scales = "|".join(SCALES)
    patterns = [re.escape(n.strip("f'")).replace(re.escape("{scale}"), f"(?:{scales})") for n in names]
    known = re.compile("|".join(re.sub(r"\\\{\w+\\\}", "[a-z]+", pattern) for pattern in patterns))
    there = [*(base.RESULTS / "figures").iterdir(), *(base.RESULTS / "tables").iterdir()]
    assert there
    assert [path.name for path in there if not known.fullmatch(path.stem)] == []


@pytest.mark.parametrize("path", EXECUTED, ids=lambda path: path.stem)
def test_an_executed_notebook_is_small_and_would_write_nothing(path: Path):
    assert path.stat().st_size < 1_500_000
    cells = code(path)
    assert [cell for cell in cells if "injected-parameters" in cell.metadata.get("tags", [])] == []
    assert all(cell.execution_count for cell in cells if cell.source)
    outputs = [output for cell in cells for output in cell.outputs]
    assert all(output.output_type != "error" and output.get("name") != "stderr" for output in outputs)


EXAMPLE = [
    "from lib.companion import plots\nfrom lib.companion.results import save_figure\n\nplots.style()",
    "out = None\ntimes = 2",
    "import matplotlib.pyplot as plt\nfigure, ax = plt.subplots()\nax.plot([0, times])\nsave_figure(figure, 'f', out)",
    "import sys\nprint('a warning', file=sys.stderr)\nprint('one piece', flush=True)\nprint(times)",
]


ADDRESS = "from ipykernel import get_connection_info\nprint(get_connection_info(unpack=True)['ip'])"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    cells = [nbformat.v4.new_code_cell(cell) for cell in EXAMPLE]
    cells[1].metadata["tags"] = ["parameters"]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / "example.ipynb")
    return tmp_path


def test_two_executions_give_the_same_bytes_figures_too(folder: Path):
    found = []
    for name in ("a", "b"):
        out = folder / name
        notebook.execute("example", {"out": str(out), "times": 3}, out / "example.ipynb", folder)
        found.append([(out / file).read_bytes() for file in ("example.ipynb", "figures/f.svg")])
    assert found[0] == found[1]
    text = found[0][0].decode()
    assert "image/svg+xml" in text
    assert "a warning\\n" not in text.split('"source"')[0]
    assert [output.text for output in code(folder / "a" / "example.ipynb")[-1].outputs] == ["one piece\n3\n"]
    assert str(folder) not in text


def test_without_out_a_notebook_writes_nothing(folder: Path):
    notebook.execute("example", {}, folder / "kept" / "example.ipynb", folder)
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["example.ipynb", "example.ipynb"]


def test_each_execution_has_an_address_of_its_own_for_its_kernel(folder: Path):
    """Two that start at the same moment would talk to one another's kernels."""
    example = nbformat.read(folder / "example.ipynb", as_version=4)
    example.cells[3].source = ADDRESS
    nbformat.write(example, folder / "example.ipynb")
    found = []
    for name in ("a", "b"):
        notebook.execute("example", {}, folder / name / "example.ipynb", folder)
        found.append(nbformat.read(folder / name / "example.ipynb", as_version=4).cells[-1].outputs[0].text)
    assert all(address.startswith(tempfile.gettempdir()) for address in found)
    assert found[0] != found[1]


def test_an_unknown_parameter_is_refused(folder: Path):
    with pytest.raises(BadInput, match="no parameter 'tims'; it has: out, times"):
        notebook.execute("example", {"tims": 3}, folder / "x.ipynb", folder)
    assert not (folder / "x.ipynb").exists()


def test_a_failing_cell_is_named_and_leaves_the_old_result(folder: Path):
    target = folder / "kept.ipynb"
    target.write_text("before")
    with pytest.raises(BadInput, match=r"example.ipynb: .* failed: TypeError"):
        notebook.execute("example", {"times": "three", "out": 5}, target, folder)
    assert target.read_text() == "before"


def test_notebooks_compute_alike_on_every_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Instructions and threads decide the rounding."""
    asked = portable.SETTINGS
    for name in asked:
        monkeypatch.setenv(name, "as it was")
    seen: list[str] = []
    monkeypatch.setattr(notebook, "execute", lambda *_: seen.extend(os.environ[name] for name in asked))
    notebook.main(["00_start_here", "--results", str(tmp_path)])
    assert seen == list(asked.values())


def test_a_kernel_imports_the_library_that_asked_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """In a second clone that shares an environment, `lib` would be the first clone's."""
    monkeypatch.setenv("PYTHONPATH", "mine")
    seen: list[str] = []
    monkeypatch.setattr(notebook, "execute", lambda *_: seen.append(os.environ["PYTHONPATH"]))
    notebook.main(["00_start_here", "--results", str(tmp_path)])
    assert seen == [os.pathsep.join([str(base.ROOT), "mine"])]


def test_the_kernel_says_nothing_of_its_own(folder: Path, tmp_path: Path):
    """What stands on the terminal is the program's: the kernel's debugger and its sockets have nothing to tell."""
    program = "import sys; from pathlib import Path; from lib.companion import notebook; "
    program += "notebook.os.environ.update(notebook.QUIET); "
    program += f"notebook.execute('example', {{}}, Path({str(tmp_path / 'x.ipynb')!r}), Path({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_unknown_notebook_is_one_line():
    done = subprocess.run([sys.executable, "-m", "lib.companion.notebook", "nothing"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        f"lib.notebook: no notebook 'nothing'; there are: {', '.join(notebook.names())}"
    ]


def test_a_notebook_is_named_by_its_name_its_number_or_a_path():
    words = ("61_scorecard", "61", "61_scorecard.ipynb", "notebooks/61_scorecard.ipynb")
    assert {notebook.named(word) for word in words} == {"61_scorecard"}
    assert notebook.named("6") == "6"  # no number of one, and refused later


def test_a_kernel_that_does_not_start_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch):
    def dies(*names: object, **more: object) -> None:
        raise RuntimeError("Kernel died before replying to kernel_info")

    monkeypatch.setattr(notebook.papermill, "execute_notebook", dies)
    line = r"example\.ipynb: its kernel did not start: Kernel died before replying to kernel_info"
    with pytest.raises(BadInput, match=line):
        notebook.execute("example", {}, folder / "x.ipynb", folder)


def test_parameters_are_read_as_yaml():
    assert notebook.parameter("flag=false") == ("flag", False)
    assert notebook.parameter("rate=0.001") == ("rate", 0.001)
    with pytest.raises(BadInput, match="expected NAME=VALUE"):
        notebook.parameter("flag")
    with pytest.raises(BadInput, match=r"-p a=\[1: '\[1', line 1 is not YAML"):
        notebook.parameter("a=[1")


def test_links_of_executed_notebooks_lead_somewhere():
    for path in base.RESULTS.glob("notebooks/*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            for target in re.findall(r"\]\(([\w./]+\.ipynb)", cell.source if cell.cell_type == "markdown" else ""):
                assert (path.parent / target).exists(), f"{path}: {target}"


def test_ctrl_c_ends_notebooks_that_run(tmp_path: Path):
    """Their kernels are in sessions of their own and hear nothing of it."""
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    for name in ("one", "two"):
        source = f"import pathlib, time\npathlib.Path({str(tmp_path / name)!r}).touch()\ntime.sleep(600)"
        first = nbformat.v4.new_code_cell("out = None", metadata={"tags": ["parameters"]})
        cells = [first, nbformat.v4.new_code_cell(source)]
        nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), tmp_path / f"{name}.ipynb")
    code = f"""
from pathlib import Path
from lib import base
from lib.companion import notebook
folder = Path({str(tmp_path)!r})
with base.program("lib.notebook"):
    notebook.execute_all(["one", "two"], {{}}, folder / "out", folder)
"""
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # what a shell starts with & does not hear of Ctrl-C
    command = [sys.executable, "-c", code]
    asked = subprocess.Popen(command, cwd=base.ROOT, stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    while not ((tmp_path / "one").exists() and (tmp_path / "two").exists()):
        assert asked.poll() is None, asked.stderr.read()
        time.sleep(0.1)
    children = psutil.Process(asked.pid).children(recursive=True)
    asked.send_signal(signal.SIGINT)
    _, said = asked.communicate(timeout=60)
    assert asked.returncode == 130
    assert said.strip().endswith("lib.notebook: stopped; files are whole, the same command starts again")
    assert not [child for child in children if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]


def test_functions_that_pages_show_are_those_of_the_library():
    shown = 0
    for path in sorted((base.RESULTS / "notebooks").glob("*.ipynb")):
        for cell in nbformat.read(path, 4).cells:
            for output in cell.get("outputs", []):
                page = output.get("data", {}).get("text/markdown", "")
                if found := re.fullmatch(r"\*From `([\w/]+\.py)`:\*\n\n```python\n(.*)\n```", page, re.DOTALL):
                    shown += 1
                    line = f"{path.name} shows another {found[1]}: python -m lib.notebook {path.stem}"
                    assert found[2] in (base.ROOT / found[1]).read_text(), line
    assert shown > 20
