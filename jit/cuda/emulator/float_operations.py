"""Float operations that NumPy does not have: a * b + c rounded once, roundings in a direction,
floats to integers.
"""

import ctypes
import ctypes.util
from functools import lru_cache
from typing import Any

import numpy as np

from .ptx_types import Array


def fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, rounded once to the operands' type."""
    if (kind := a.dtype) == np.float64:
        return _fma64(a, b, c)
    product = a.astype(np.float64) * b.astype(np.float64)  # exact
    return _odd_sum(product, c.astype(np.float64)).astype(kind)


def _odd_sum(a: Array, b: Array) -> Array:
    """a + b rounded to odd: if inexact, the neighbor whose last bit is set, so that a later
    rounding to fewer bits is correct.
    """
    total, error = _two_sum(a, b)
    bits = np.ascontiguousarray(total).view(np.int64)
    wrong = (error != 0) & np.isfinite(error) & np.isfinite(total) & (bits & 1 == 0)
    return np.where(wrong, bits + np.where((error > 0) == (total > 0), 1, -1), bits).view(
        np.float64
    )


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    def halves(x: Array) -> tuple[Array, Array]:
        big = x * 134217729.0
        high = big - (big - x)
        return high, x - high

    product = a * b
    (ah, al), (bh, bl) = halves(a), halves(b)
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


@lru_cache(maxsize=1)
def _libm_fma() -> Any:
    function = ctypes.CDLL(ctypes.util.find_library("m")).fma
    function.restype = ctypes.c_double
    function.argtypes = [ctypes.c_double] * 3
    return function


def _fma64(a: Array, b: Array, c: Array) -> Array:
    product, low = _two_product(a, b)
    inner_high, inner_low = _two_sum(c, low)
    high, rest = _two_sum(product, inner_high)
    result = high + _odd_sum(rest, inner_low)
    result = np.where(result == 0, product + c, result)  # whose zero has IEEE's sign
    with np.errstate(all="ignore"):
        sizes = np.abs(
            np.stack([*map(np.ascontiguousarray, np.broadcast_arrays(a, b, c, product, result))])
        )
        usual = np.all((sizes < 1e280) & ((sizes > 1e-240) | (sizes == 0)), axis=0)
        usual &= (product != 0) | (a == 0) | (b == 0)
    if not usual.all():  # near the ends of the range, where the parts above overflow or underflow
        one = _libm_fma()
        odd = np.flatnonzero(~usual)
        x, y, z = (np.broadcast_to(v, result.shape) for v in (a, b, c))
        result = np.array(result)
        result[odd] = [one(x[i], y[i], z[i]) for i in odd]
    return result


def toward(value: Array, exact_side: Array, rounding: str) -> Array:
    """`value` or its neighbor on the right side of the exact one; `exact_side` is the sign of exact
    minus value.
    """
    down = {
        "rz": (exact_side < 0) & (value > 0),
        "rm": exact_side < 0,
        "rp": np.zeros(value.shape, bool),
    }[rounding]
    up = {
        "rz": (exact_side > 0) & (value < 0),
        "rm": np.zeros(value.shape, bool),
        "rp": exact_side > 0,
    }[rounding]
    least = value.dtype.type(-np.inf)
    most = value.dtype.type(np.inf)
    return np.where(
        down, np.nextafter(value, least), np.where(up, np.nextafter(value, most), value)
    )


def fma_toward(a: Array, b: Array, c: Array, rounding: str) -> Array:
    """a * b + c in single precision, rounded in a direction."""
    exact = _odd_sum(a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64))
    nearest = exact.astype(np.float32)
    return toward(nearest, exact - nearest.astype(np.float64), rounding)


def narrowed(x: Array, kind: np.dtype, rounding: str) -> Array:
    """A float or an integer as a float of this type."""
    nearest = x.astype(kind)
    if rounding in ("", "rn") or x.dtype.kind != "f":
        return nearest
    return toward(nearest, x - nearest.astype(x.dtype), rounding)


WHOLE = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


def to_integer(x: Array, kind: np.dtype, rounding: str) -> Array:
    """A float as the nearest integer that the type has. NaN gives 0 from f32 to 32 bits, else the
    top bit alone.
    """
    whole = WHOLE[rounding](x.astype(np.float64) if x.dtype == np.float16 else x)
    limits = np.iinfo(kind)
    above = whole >= float(limits.max) + 1
    below = whole < float(limits.min)
    nan = np.isnan(whole)
    inside = np.where(above | below | nan, 0, whole).astype(kind)
    undefined = kind.type(0)
    if x.dtype == np.float64 or kind.itemsize == 8:
        undefined = np.array(1 << (8 * kind.itemsize - 1), f"u{kind.itemsize}").view(kind)[()]
    integers = np.select(
        [nan, above, below], [undefined, kind.type(limits.max), kind.type(limits.min)], inside
    )
    return integers.astype(kind)
