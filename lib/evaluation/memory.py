"""Measures of storage for claims and tables. Percent."""

from __future__ import annotations

from lib.kernels import storage


def saved(form: str, value_bits: int, rows: int = 1024, columns: int = 1024) -> float:
    """How much smaller a half-empty matrix is in a format than dense, in percent (paper 2, section 3.1)."""
    kept = rows * columns // 2
    dense = storage.bits("dense", rows, columns, kept, value_bits)
    return 100 * (1 - storage.bits(form, rows, columns, kept, value_bits) / dense)


def overhead(form: str, value_bits: int, rows: int = 1024, columns: int = 1024) -> float:
    """Metadata of a half-empty matrix relative to its stored values, in percent (paper 2, section 3.1).

    The row pointers of CSR, one for a row of hundreds of values, are left out, as the paper leaves them out.
    """
    kept = rows * columns // 2
    pointers = storage.metadata_bits(form, rows, columns, 0) if form == "csr" else 0
    metadata = storage.metadata_bits(form, rows, columns, kept) - pointers
    return 100 * metadata / storage.value_bits_stored(form, rows, columns, kept, value_bits)
