"""Count how many bits a matrix takes in each format, from the format's definition, and the fewest there could be.

A matrix [rows, columns] holds `nonzeros` values of `value_bits` each that are not zero; the rest of a format is
metadata: whatever it needs to say where the values are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from lib.base import BadInput, refuse_uncounted
from lib.kernels.packed import encode_mask, floor_bits

FORMATS = ("dense", "coo", "csr", "bitmap", "two_four")


def value_bits_stored(form: str, rows: int, columns: int, nonzeros: int, value_bits: int) -> int:
    """Count the bits of the values a format stores: all of them (dense), half of them (2:4), or those that are kept.

    Raises:
        BadInput: as `metadata_bits`, or values of no bits.
    """
    _check(form, rows, columns, nonzeros)
    refuse_uncounted(value_bits=value_bits)
    stored = {"dense": rows * columns, "two_four": rows * columns // 2}.get(form, nonzeros)
    return stored * value_bits


def metadata_bits(
    form: str, rows: int, columns: int, nonzeros: int, index_bits: int = 16, pointer_bits: int = 32
) -> int:
    """Count the bits that say where the stored values are.

    coo: a row and a column index a value. csr: a column index a value and a pointer a row (and one more). bitmap: one
    bit for each place of the matrix. two_four: 2 bits a stored value, its place among four (paper 2, section 3.1).

    Raises:
        BadInput: an unknown format, a matrix without rows or columns, columns that 4 does not divide (2:4), or more
            values than places (2:4 has half).
    """
    _check(form, rows, columns, nonzeros)

    def index(count: int) -> int:  # wider where so many places need it
        return max(index_bits, (count - 1).bit_length())

    return {
        "dense": 0,
        "coo": nonzeros * (index(rows) + index(columns)),
        "csr": nonzeros * index(columns) + (rows + 1) * pointer_bits,
        "bitmap": rows * columns,
        "two_four": rows * columns // 2 * 2,
    }[form]


def bits(form: str, rows: int, columns: int, nonzeros: int, value_bits: int, index_bits: int = 16) -> int:
    """Count the bits of the whole matrix, values and metadata.

    Raises:
        BadInput: as `metadata_bits`, or values of no bits.
    """
    metadata = metadata_bits(form, rows, columns, nonzeros, index_bits)
    return value_bits_stored(form, rows, columns, nonzeros, value_bits) + metadata


def curve(rows: int, columns: int, value_bits: int, sparsities: Sequence[float], seed: int = 0) -> pd.DataFrame:
    """Tabulate what one weight of a matrix costs on average, format by format, beside the theoretical floor.

    The floor is what the kept values take and the logarithm of how many masks there are with so many of them. The
    entropy-coded bitmap is measured: a random mask, coded by `lib.kernels.packed`. 2:4 has a row at 0.5 only.

    Args:
        sparsities: shares of zeros, in [0, 1].

    Returns:
        columns format (FORMATS, entropy_coded, floor), sparsity, bits (a weight), bytes (of the matrix).

    Raises:
        BadInput: a negative seed, a matrix without rows or columns, a sparsity outside [0, 1], or, at a sparsity of
            0.5, columns that 4 does not divide.
    """
    refuse_uncounted(0, seed=seed)
    refuse_uncounted(rows=rows, columns=columns)
    if bad := [one for one in sparsities if not 0 <= one <= 1]:
        raise BadInput(f"sparsity {bad[0]}: expected a share of zeros, from 0 to 1")
    places, draw = rows * columns, np.random.default_rng(seed)
    found = []
    for sparsity in sparsities:
        nonzeros = round((1 - sparsity) * places)
        total = {form: bits(form, rows, columns, nonzeros, value_bits) for form in FORMATS if form != "two_four"}
        if sparsity == 0.5:
            total["two_four"] = bits("two_four", rows, columns, nonzeros, value_bits)
        _, unary, low = encode_mask(draw.permutation(places) < nonzeros)
        total["entropy_coded"] = 8 * (len(unary) + len(low)) + nonzeros * value_bits
        total["floor"] = floor_bits(places, nonzeros) + nonzeros * value_bits
        found += [
            {"format": form, "sparsity": sparsity, "bits": size / places, "bytes": size / 8}
            for form, size in total.items()
        ]
    return pd.DataFrame(found)


def _check(form: str, rows: int, columns: int, nonzeros: int) -> None:
    if form not in FORMATS:
        raise BadInput(f"format {form!r}: known are {', '.join(FORMATS)}")
    refuse_uncounted(rows=rows, columns=columns)
    if form == "two_four" and columns % 4:
        raise BadInput(f"2:4 needs columns in multiples of 4, these are {columns}")
    places = rows * columns // (2 if form == "two_four" else 1)
    if not 0 <= nonzeros <= places:
        raise BadInput(
            f"{nonzeros} kept values do not fit the {places} places of a {rows} x {columns} matrix in {form}"
        )
