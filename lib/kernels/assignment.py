"""Solve maximum-weight assignment in many small blocks, compiled: each row takes n columns and each column n rows.

Shortest paths with prices (Ahuja, Magnanti and Orlin, "Network flows", section 9.7). `lib.pruners.transposable` says
what it is for and checks what it finds.
"""

from __future__ import annotations

import numba
import numpy as np


@numba.njit(nogil=True)
def assign(blocks: np.ndarray, n: int, mask: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> None:
    """Find the best mask of each block, one after the other, and the prices of its rows and columns.

    Args:
        blocks: scores, float [blocks, m, m].
        n: how many of each row and column stay.
        mask: the masks, bool [blocks, m, m], all False at first; filled in.
        rows, columns: the prices, float64 [blocks, m], all 0 at first; filled in.
    """
    m = blocks.shape[1]
    scores = np.empty((m, m))
    surplus = np.empty(m, np.int64)  # of each column: in how many rows it is kept beyond n
    far_row, far_column = np.empty(m), np.empty(m)  # shortest distances found so far
    done_row, done_column = np.empty(m, np.bool_), np.empty(m, np.bool_)
    from_row, from_column = np.empty(m, np.int64), np.empty(m, np.int64)  # the node before on the shortest path
    for b in range(len(blocks)):
        x, u, v = mask[b], rows[b], columns[b]
        for i in range(m):
            for j in range(m):
                scores[i, j] = blocks[b, i, j]
        _start(scores, n, x, u, surplus)
        while surplus.max() > 0:
            far_row[:], far_column[:] = np.inf, np.inf
            done_row[:], done_column[:] = False, False
            for j in range(m):
                if surplus[j] > 0:
                    far_column[j], from_column[j] = 0.0, -1
            while True:  # settles the nearest row or column
                near, distance, is_column = 0, np.inf, False
                for k in range(m):
                    if not done_column[k] and far_column[k] < distance:
                        near, distance, is_column = k, far_column[k], True
                    if not done_row[k] and far_row[k] < distance:
                        near, distance, is_column = k, far_row[k], False
                if is_column:
                    if surplus[near] < 0:
                        break
                    done_column[near] = True
                    for i in range(m):  # a row that keeps this column may give it up
                        if x[i, near] and not done_row[i]:
                            there = distance + max(0.0, scores[i, near] - u[i] - v[near])
                            if there < far_row[i]:
                                far_row[i], from_row[i] = there, near
                else:
                    done_row[near] = True
                    for j in range(m):  # and take one that it does not keep
                        if not x[near, j] and not done_column[j]:
                            there = distance + max(0.0, u[near] + v[j] - scores[near, j])
                            if there < far_column[j]:
                                far_column[j], from_column[j] = there, near
            for k in range(m):  # prices under which no step of the path loses anything, and no other step gains
                if done_row[k]:
                    u[k] -= distance - far_row[k]
                if done_column[k]:
                    v[k] += distance - far_column[k]
            surplus[near] += 1
            while from_column[near] >= 0:
                i = from_column[near]
                x[i, near] = True
                near = from_row[i]
                x[i, near] = False
            surplus[near] -= 1


@numba.njit(nogil=True)
def _start(scores, n, x, u, surplus):
    """Each row keeps its n highest scores, among equal ones the first; the lowest of them is the row's price."""
    m = len(scores)
    surplus[:] = -n
    for i in range(m):
        for _ in range(n):
            best = -1
            for j in range(m):
                if not x[i, j] and (best < 0 or scores[i, j] > scores[i, best]):
                    best = j
            x[i, best] = True
            surplus[best] += 1
            u[i] = scores[i, best]
