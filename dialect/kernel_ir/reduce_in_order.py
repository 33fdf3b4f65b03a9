"""The documented order of a float reduction, evaluated on an array in memory (docs/language.md,
Arithmetic).
"""

import math
from typing import Any

import numpy as np

LANES = 16
MIN_TERMS = 1 << 18  # terms of a reduction in blocks
BLOCK_TERMS = 1 << 12


def reduce_in_order(
    ufunc: Any, x: np.ndarray, axes: tuple[int, ...], by_rows: bool = False
) -> np.ndarray:
    """The reduction of an array over some axes by `np.add` or `np.multiply`, in its element type.

    Adjacent axes are one loop, unless the reduction goes `by_rows`, as beside another reduction of
    the same array.
    """
    is_reduced = [
        j in axes for j, n in enumerate(x.shape) if n != 1
    ]  # axes of one element are no axes
    terms = x.reshape([n for n in x.shape if n != 1])
    over = [j for j, f in enumerate(is_reduced) if f]
    kept = [j for j, f in enumerate(is_reduced) if not f]
    by_lanes = is_reduced[-1:] == [True] and x.dtype.kind == "f"
    loops: list[int] = []
    for j in over:
        if loops and j - 1 in over and not by_rows:
            loops[-1] *= terms.shape[j]
        else:
            loops.append(terms.shape[j])
    terms = terms.transpose([*over, *kept]).reshape(*loops, math.prod(terms.shape[j] for j in kept))
    reduced = np.full(terms.shape[-1], ufunc.identity, x.dtype)
    count = math.prod(loops)
    if not terms.size:
        pass
    elif count < MIN_TERMS or x.dtype.kind == "c":
        reduced = _added(ufunc, reduced, terms, by_lanes)
    else:
        each = max(1, BLOCK_TERMS * loops[0] // count)
        for start in range(0, loops[0], each):
            part = np.full_like(reduced, ufunc.identity)
            reduced = ufunc(reduced, _added(ufunc, part, terms[start : start + each], by_lanes))
    return reduced.reshape([n for j, n in enumerate(x.shape) if j not in axes])


def _added(ufunc: Any, reduced: np.ndarray, terms: np.ndarray, by_lanes: bool) -> np.ndarray:
    """The accumulated value with more terms: those of the innermost loop by lanes, or one by
    one.
    """
    if not by_lanes:
        return _one_by_one(ufunc, reduced, terms.reshape(-1, terms.shape[-1]))
    for row in terms.reshape(-1, *terms.shape[-2:]):
        if whole := len(row) // LANES * LANES:
            lanes = np.full((LANES, row.shape[-1]), ufunc.identity, row.dtype)
            lanes = _one_by_one(ufunc, lanes, row[:whole].reshape(-1, *lanes.shape))
            while len(lanes) > 1:
                lanes = ufunc(lanes[: len(lanes) // 2], lanes[len(lanes) // 2 :])
            reduced = ufunc(reduced, lanes[0])
        reduced = _one_by_one(ufunc, reduced, row[whole:])
    return reduced


def _one_by_one(ufunc: Any, reduced: np.ndarray, terms: np.ndarray) -> np.ndarray:
    return ufunc.accumulate(np.concatenate([reduced[None], terms]), 0, terms.dtype)[-1]
