"""Fill data/ with the locked public sets and see that data.dvc still describes it: `python -m lib.data`.

`dvc repro` rewrites data.dvc, without a word, to match whatever lies in data/. So the three numbers that DVC keeps of a
folder are computed here and compared with those in data.dvc, before DVC gets to it: nothing is written, the file in the
way is named, and neither git nor a DVC cache is needed.
"""

import argparse
import hashlib
import importlib
import json
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from lib import base
from lib.base import PART, extra

with extra("lib.data"):
    from lib.data import sources

LOCK = base.ROOT / "data.dvc"
COUNTED = ("_inputs", "observations", "_speakers", "characters", "_de")  # arrays with a row an example


def contents(folder: Path, ignored: Iterable[str] = ()) -> list[str]:
    """List the files below a folder as DVC lists them, sorted: not those below `ignored` sets, not unfinished ones."""
    found = (Path(place, name) for place, _, names in os.walk(folder) for name in names)
    relative = [path.relative_to(folder) for path in found if not path.name.endswith(PART)]
    return sorted(path.as_posix() for path in relative if path.parts[0] not in ignored)


def fingerprint(folder: Path, files: list[str]) -> dict[str, str]:
    """Compute what DVC would write of a folder with these files: its md5 (of the JSON list of their md5), size and
    nfiles.
    """
    entries = [{"md5": sources.file_digest(folder / name, "md5"), "relpath": name} for name in files]
    listing = json.dumps(entries, sort_keys=True).encode()
    size = sum((folder / name).stat().st_size for name in files)
    return {"md5": hashlib.md5(listing).hexdigest() + ".dir", "size": str(size), "nfiles": str(len(files))}


def lock_difference(places: sources.Places = sources.PROJECT, lock: Path = LOCK) -> str | None:
    """Say in one line what would make DVC rewrite data.dvc; None when nothing would. Writes nothing."""
    if not lock.is_file():
        return f"{lock.name} is absent; `git checkout {lock.name}` brings it back"
    known = sources.registry(places.registry).values()
    found = contents(places.data, [source.name for source in known if not source.locked])
    expected = {f"{source.name}/{array}.npy" for source in known if source.locked for array in source.arrays}
    if extra := sorted(set(found) - expected):
        return f"data/ holds {_some(extra)}, of no locked set, and DVC would rewrite {lock.name}; move it away"
    if absent := sorted(expected - set(found)):
        return f"data/ lacks {_some(absent)}, and DVC would rewrite {lock.name}; run `make data`"
    ours = fingerprint(places.data, found)
    theirs = dict(re.findall(r"^[ -]*(md5|size|nfiles): (\S+)$", lock.read_text(encoding="utf-8"), re.MULTILINE))
    if ours != theirs:
        change = ", ".join(f"{key} {theirs.get(key)} to {ours[key]}" for key in ours if ours[key] != theirs.get(key))
        return f"data/ holds a file that is not the locked one, and DVC would rewrite {lock.name}: {change}"
    return None


def _some(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def line(source: sources.Source, files: dict[str, Path], origin: str) -> str:
    """Write what a reader wants to know of a set that is ready, in one line."""
    inputs = [path for array, path in files.items() if array.endswith(COUNTED)]
    examples = sum(len(sources.open_array(path)) for path in inputs)
    size = sum(path.stat().st_size for path in files.values()) / 1e6
    return f"{source.name:9} {examples:7,} examples {size:6.1f} MB   from {origin}   terms: {source.terms}"


def main(arguments: list[str] | None = None, places: sources.Places = sources.PROJECT, lock: Path = LOCK) -> int:
    """Run the program. Exit status 0; 1 when DVC would rewrite data.dvc; as `base.program` for all else."""
    known = sources.registry(places.registry)
    sets = "\n".join(f"  {s.name:21} {s.title}{'' if s.locked else ' (only when named)'}" for s in known.values())
    parser = argparse.ArgumentParser(
        prog="python -m lib.data",
        description="Fill data/ with public data sets, each file checked, and see that data.dvc still describes it.",
        epilog=f"A set is taken from the folder that {sources.VARIABLE} names, or else downloaded. Sets:\n{sets}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="a set; default: all that data.dvc locks")
    names = parser.parse_args(arguments).names or [name for name, source in known.items() if source.locked]
    with base.program("lib.data"):
        for source in [sources.pick(name, places.registry) for name in names]:
            kind = importlib.import_module(f"lib.data.{source.kind}")
            print(line(source, *kind.prepare(source.name, places)), flush=True)
        if difference := lock_difference(places, lock):
            print(f"lib.data: {difference}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
