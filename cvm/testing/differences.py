"""The distance between arrays, and the smallest arguments that show a difference."""

from collections.abc import Callable
from typing import Any

import numpy as np

import cvm
from cvm.dialect.ir.function import Function
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import kind_of

TRIES = 400  # calls that making the arguments small may take
Arrays = list[np.ndarray]
SIMPLER: tuple[Callable[[np.ndarray], object], ...] = (
    lambda x: x * 0 if x.dtype.kind in "iub" else np.zeros_like(x),
    lambda x: x != 0,
    lambda x: np.round(np.real(x)) if kind_of(x.dtype) in "fc" else x,
    *(lambda x: x >> 1 if x.dtype.kind in "iu" else x,) * 6,
)  # of the elements of an argument


def distance(x: Any, y: Any) -> np.ndarray:
    """The count of numbers between the elements, NaN being equal to NaN, and 0.0 one apart from
    -0.0.
    """
    if x.dtype.kind == "c":
        return np.maximum(distance(x.real, y.real), distance(x.imag, y.imag))
    if kind_of(x.dtype) != "f":
        return (
            np.abs(x.astype(object) - y.astype(object))
            if x.dtype.kind in "iu"
            else (x != y).astype(np.int64)
        )
    nan = np.isnan(x), np.isnan(y)
    whole = np.abs(_ordered(x).astype(object) - _ordered(y).astype(object))
    return np.where(nan[0] & nan[1], 0, np.where(nan[0] | nan[1], 2**63, whole))


def _ordered(x: np.ndarray) -> np.ndarray:
    """Floats as integers in the same order, -0.0 below 0.0."""
    bits = np.ascontiguousarray(x).view(f"i{x.dtype.itemsize}").astype(np.int64).reshape(x.shape)
    return np.where(bits < 0, -(bits & np.int64((1 << (8 * x.dtype.itemsize - 1)) - 1)) - 1, bits)


def smallest(
    function: Function, arrays: Arrays, differs: Callable[[Arrays], object], tries: int = TRIES
) -> Arrays:
    """Arguments as small as the difference allows: fewer elements along open sizes, then zeros,
    ones, and whole numbers.

    `differs` gives None for arguments that do not show it.
    """
    left = iter(range(tries))

    def shows(candidate: Arrays) -> bool:
        try:
            return next(left, None) is not None and differs(candidate) is not None
        except cvm.Error:
            return False

    types = [v.known_type.array_shape for v in function.arguments]
    for size in dict.fromkeys(
        d.key for shape in types for d in shape if isinstance(d, Size) and d.is_atom
    ):
        at = [[isinstance(d, Size) and d.key == size for d in shape] for shape in types]
        whole = max(
            n
            for x, axes in zip(arrays, at, strict=True)
            for n, hit in zip(x.shape, axes, strict=True)
            if hit
        )
        for n in (1, 2, 3, 4, 8, 16, 32, 64):
            cuts = (tuple(slice(n if hit else None) for hit in axes) for axes in at)
            if n < whole and shows(cut := [x[part] for x, part in zip(arrays, cuts, strict=True)]):
                arrays = cut
                break
    for simpler in SIMPLER:
        for k in range(len(arrays)):
            step = arrays[k].size
            while step:
                for start in range(0, arrays[k].size, step):
                    fresh = arrays[k].copy()
                    part = fresh.reshape(-1)[start : start + step]
                    with np.errstate(all="ignore"):
                        part[...] = simpler(part)
                    changed = not np.array_equal(
                        fresh, arrays[k], equal_nan=kind_of(fresh.dtype) in "fc"
                    )
                    if changed and shows(fewer := [*arrays[:k], fresh, *arrays[k + 1 :]]):
                        arrays = fewer
                step //= 2
    return arrays
