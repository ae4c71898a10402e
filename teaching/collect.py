"""Read what students' notebooks say of their exercises: `python teaching/collect.py done.ipynb ...`.

Counted are the outputs of cells that call `check`, after you have executed the notebook yourself. A cell that also
prints could say "right" without having been checked, so that it is named for you to look at.
"""

import argparse
import re
import sys
from pathlib import Path

import nbformat

SAID = re.compile(r"^Exercise (\d\d\.\d+): (right|not yet|not answered yet)", re.MULTILINE)


def verdicts(notebook: nbformat.NotebookNode) -> dict[str, str]:
    """Return {exercise: what the checker said of it}, of a cell that does more than check "look at it".

    An exercise that the text sets and no cell checks has "no check".
    """
    texts = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    found = dict.fromkeys(re.findall(r"^\*\*(\d\d\.\d+)\*\*", texts, re.MULTILINE), "no check")
    for cell in (cell for cell in notebook.cells if cell.cell_type == "code"):
        asked = re.findall(r"\bcheck\(\s*['\"](\d\d\.\d+)", cell.source)
        said = dict(SAID.findall("".join(output.get("text", "") for output in cell.outputs)))
        plain = re.search(r"^check\(", cell.source, re.MULTILINE)  # at the margin, not in a branch
        odd = (
            len(set(asked)) != 1  # a hint behind the cell's own check names it twice
            or not plain
            or re.search(r"\b(print|display|exec|eval|sys|check\s*=|def check)\b", cell.source)
        )
        found |= {name: "look at it" if odd else said.get(name, "no output") for name in asked}
    return found


def main() -> None:
    """Print a line an exercise, and how many are right; for a file that is no notebook one line, status 1."""
    parser = argparse.ArgumentParser(description="Say which exercises of executed notebooks are right.")
    parser.add_argument("notebook", nargs="+", type=Path)
    damaged = False
    for path in parser.parse_args().notebook:
        try:
            found = verdicts(nbformat.read(path, as_version=4))
        except (OSError, ValueError, AttributeError, TypeError, KeyError, nbformat.ValidationError) as error:
            print(f"{path}: no notebook that can be read ({str(error).splitlines()[0]:.80})")
            damaged = True
            continue
        print(f"{path.name}: {list(found.values()).count('right')} of {len(found)} right")
        for name, said in sorted(found.items()):
            print(f"  {name} {said}")
    sys.exit(int(damaged))


if __name__ == "__main__":
    main()
