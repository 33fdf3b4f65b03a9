"""NumPy's functions element by element that are no ufuncs, or ufuncs that have an operator of their own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..array_api import astype, where
from ..numpy_or_dali_ufuncs import converted, loop_of
from ..trace import apply, fail
from .indexing import take
from .order import searchsorted
from .table import ARRAY_FUNCTIONS, arrays_of, known_size, numpy_function


@numpy_function
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    found = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        found = where(condition, choice, found)
    return found


@numpy_function
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    x = where(np.isnan(x), nan, x)
    x = where(x == np.inf, limits.max if posinf is None else posinf, x)
    return where(x == -np.inf, limits.min if neginf is None else neginf, x)


@numpy_function
def round_(x: Any, decimals: int = 0) -> Any:
    if x.dtype == np.bool_:
        if decimals:
            fail("np.round takes bools with no decimals")
        return astype(x, np.float16)
    if x.dtype.kind in "iu":
        return x if decimals >= 0 else astype(round_(astype(x, np.float64), decimals), x.dtype)
    if decimals == 0:
        return np.rint(x)
    scale = np.asarray(10.0 ** abs(decimals), x.dtype)
    return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale


@numpy_function
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    a, b = arrays_of(a, b)
    if b.dtype.kind in "biu":
        b = astype(b, np.result_type(b.dtype, 1.0))
    near = np.less_equal(np.abs(a - b), atol + rtol * np.abs(b)) & np.isfinite(b)
    found = near | (a == b)
    return found | (np.isnan(a) & np.isnan(b)) if equal_nan else found


@numpy_function
def angle(z: Any, deg: bool = False) -> Any:
    found = np.arctan2(z.imag, z.real) if z.dtype.kind == "c" else np.arctan2(0, z)
    return found * (180 / np.pi) if deg else found


@numpy_function
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    a, b = arrays_of(a1, a2)
    if a.shape != b.shape:
        return False
    same = a == b
    return np.all(same | ((a != a) & (b != b)) if equal_nan else same)


def _common_divisor(name: str, inputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """The operands in the type of the ufunc's loop and one shape, and their greatest common divisor."""
    tracer, operands, dtypes = loop_of(name, inputs)
    a, b = np.broadcast_arrays(*(converted(tracer, x, t) for x, t in zip(operands, dtypes, strict=False)))
    return a, b, apply("numpy.gcd", a, b)


@numpy_function
def lcm(x1: Any, x2: Any, /) -> Any:
    """The product of the magnitudes over their common divisor, modulo 2^width; 0 where an operand is."""
    a, b, divisor = _common_divisor("lcm", (x1, x2))
    unsigned, dtype = np.dtype(f"u{a.dtype.itemsize}"), a.dtype
    a, b, divisor = (astype(np.absolute(x), unsigned) for x in (a, b, divisor))
    return astype(a // divisor * b, dtype)


@numpy_function
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    x, xp, fp = arrays_of(x, xp, fp)
    if "c" in (x.dtype.kind, xp.dtype.kind, fp.dtype.kind):
        fail("np.interp takes real numbers")
    x, xp, fp = (astype(a, np.float64) for a in (x, xp, fp))
    n = known_size(xp, 0)
    at = np.clip(searchsorted(xp, x, "right") - 1, 0, max(n - 2, 0))
    x0, y0 = take(xp, at), take(fp, at)
    slope = (take(fp, np.minimum(at + 1, n - 1)) - y0) / (take(xp, np.minimum(at + 1, n - 1)) - x0)
    found = slope * (x - x0) + y0
    found = where(x >= xp[-1], fp[-1], found)
    found = where(x < xp[0], fp[0] if left is None else left, found)
    found = found if right is None else where(x > xp[-1], right, found)
    return where(np.isnan(x), x, found)


ARRAY_FUNCTIONS |= {
    "allclose": lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: np.all(isclose(a, b, rtol, atol, equal_nan)),
    "real": lambda x: apply("theano.elemwise", x, scalar_op="real") if x.dtype.kind == "c" else x,
    "imag": lambda x: apply("theano.elemwise", x, scalar_op="imag") if x.dtype.kind == "c" else np.zeros_like(x),
    "fix": lambda x: np.trunc(x),
    "gcd": lambda x1, x2, /: _common_divisor("gcd", (x1, x2))[2],
}
