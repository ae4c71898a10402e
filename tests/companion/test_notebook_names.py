"""A function of a notebook reads no name to which a later cell gives another value before calling it."""

import ast
import symtable
from pathlib import Path

import nbformat
import pytest

from lib import base


def cells(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


def assigned(source: str) -> set[str]:
    """The names that a cell itself gives values to, be it in a loop; not those inside its functions."""
    defined = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    symbols = symtable.symtable(source, "", "exec").get_symbols()
    return {symbol.get_name() for symbol in symbols if symbol.is_assigned()} - defined


def functions(source: str) -> dict[str, set[str]]:
    """The functions that a cell defines, each with the notebook's names that it reads."""
    tables = symtable.symtable(source, "", "exec").get_children()
    found = {table.get_name(): table for table in tables if table.get_type() == "function"}
    return {name: set(table.get_globals()) for name, table in found.items() if name.isidentifier()}


def overwritten(sources: list[str]) -> list[tuple[str, str]]:
    """Each function and name of which a call may read another value than where the function was written."""
    called = [{node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)} for source in sources]
    found = []
    for place, source in enumerate(sources):
        for function, names in functions(source).items():
            anew = (later for later in range(place + 1, len(sources)) if function in functions(sources[later]))
            calls = [later for later in range(place + 1, next(anew, len(sources))) if function in called[later]]
            again = {name for later in range(place + 1, max(calls, default=0) + 1) for name in assigned(sources[later])}
            found += [(function, name) for name in sorted(names & again)]
    return found


@pytest.mark.parametrize("path", sorted(base.NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_no_function_reads_a_name_that_a_later_cell_overwrites(path: Path):
    assert overwritten(cells(path)) == []


def test_overwritten_names_are_found_and_what_a_function_binds_is_none():
    define, overwrite, call = "last = 1\ndef end(): return last", "for last in (2, 3): pass", "end()"
    assert overwritten([define, overwrite, call]) == [("end", "last")]
    assert overwritten([define, call, overwrite]) == []
    assert overwritten(["last = 1\ndef end(last=last): return last", overwrite, call]) == []
    assert overwritten([define, "def other():\n    last = 2", call]) == []
