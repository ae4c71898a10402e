"""Run benchmarks and write results/bench/NAME.csv, with device, threads and versions in every row.

Rows that another device has left in the file stay: a GPU's and a processor's stand side by side.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import platform
import sys
from pathlib import Path

import pandas as pd

from lib import base, bench
from lib.base import BadInput, extra, writable

with extra("lib.bench"):
    from lib.companion.csv_files import read_csv, write_csv
    from lib.companion.sweep.program import choose_device
    from lib.companion.sweep.provenance import describe

NAMES = {  # of the modules whose benchmarks have shorter names, those of what they measure
    "block_circulant_products": "block_circulant",
    "masked_steps": "masks",
    "one_shot_layers": "one_shot",
    "transposable_masks": "transposable",
}


def names() -> dict[str, str]:
    """List the benchmarks and their modules: all of lib/bench but the command line and what benchmarks share."""
    found = [m.name for m in pkgutil.iter_modules(bench.__path__) if m.name not in ("__main__", "calls")]
    return {NAMES.get(name, name): name for name in found}


def main(words: list[str] | None = None) -> None:
    """Run the command line: measure and write the named benchmarks, or all."""
    parser = argparse.ArgumentParser("python -m lib.bench", description=__doc__)
    known = list(names())
    parser.add_argument("name", nargs="*", help=f"some of: {', '.join(known)} (default: all)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: cuda if there is one")
    parser.add_argument("--results", type=Path, default=base.RESULTS, help="where results go (default: results/)")
    asked = parser.parse_args(words)
    with base.program("lib.bench"):
        if unknown := [name for name in asked.name if name not in known]:
            raise BadInput(f"no benchmark {unknown[0]!r}; there are: {', '.join(known)}")
        paths = {name: asked.results / "bench" / f"{name}.csv" for name in asked.name or known}
        for path in paths.values():  # a damaged file is refused before hours are spent on rows to go beside it
            writable(path.parent)
            if path.exists():
                read_csv(path, ("device",))
        for name, path in paths.items():
            table = measure(name, choose_device(asked.device, "bench"))
            write_csv(beside_others(table, path), path)
            print(f"{path.name}: {len(table)} rows on {table.device.iloc[0]}")


def measure(name: str, device: str) -> pd.DataFrame:
    """Run a benchmark and put what it was measured on before its rows. It may have THREADS and a DEVICE of its own."""
    import torch

    module = importlib.import_module(f"lib.bench.{names().get(name, name)}")
    before = torch.get_num_threads()
    threads, device = getattr(module, "THREADS", before), getattr(module, "DEVICE", device)
    torch.set_num_threads(threads)
    try:
        table = pd.DataFrame(module.run(device), columns=list(module.COLUMNS))
    finally:
        torch.set_num_threads(before)
    where = {"device": describe(device), "threads": threads, "torch": torch.__version__}
    return pd.DataFrame({**where, "python": platform.python_version()}, index=table.index).join(table)


def beside_others(table: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Put new rows after those of other devices in the file; the same device's go.

    Where other devices' rows have other columns the whole file is set aside, and that is said: measuring them again may
    take a machine that is not here.

    Raises:
        BadInput: the file is no table with a device in each row.
    """
    if not path.exists():
        return table
    old = read_csv(path, ("device",))
    others = old[~old.device.isin(table.device)]
    if len(others) and list(old.columns) != list(table.columns):
        kept = base.aside(path).name
        print(f"lib.bench: {path.name} has rows of other devices in other columns; kept as {kept}", file=sys.stderr)
        return table
    return pd.concat([others, table], ignore_index=True) if len(others) else table


if __name__ == "__main__":
    main()
