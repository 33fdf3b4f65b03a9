"""Reference implementations in higher precision, or element by element, as functions of arrays."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt


def precise(function: Callable[..., object]) -> Callable[..., Any]:
    """The function in NumPy's longest floating-point type, rounded to its operands' type."""

    def rounded(*operands: object) -> Any:
        with np.errstate(all="ignore"):
            exact = function(*(np.asarray(o, np.longdouble) for o in operands))
            return np.asarray(exact).astype(np.asarray(operands[0]).dtype)

    return rounded


def by_element(function: Callable[..., float]) -> Callable[..., np.ndarray]:
    """A function of Python floats, applied to arrays and rounded to their type; NaN gives NaN."""

    def safe(*operands: float) -> float:
        if any(math.isnan(o) for o in operands):
            return math.nan
        try:
            return function(*operands)
        except OverflowError:
            return math.inf

    def numpy(*operands: npt.ArrayLike) -> np.ndarray:
        arrays = [np.asarray(o) for o in operands]
        with np.errstate(all="ignore"):
            found = np.frompyfunc(safe, len(arrays), 1)(*(a.astype(np.float64) for a in arrays))
            return np.asarray(found, np.float64).astype(arrays[0].dtype)

    return numpy


def fused(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> np.ndarray:
    """a * b + c of floats of one type, rounded once."""
    given = [np.asarray(x) for x in (a, b, c)]
    x, y, z = (g.astype(np.float64) for g in given)
    kind = given[0].dtype
    with np.errstate(all="ignore"):
        if kind.itemsize == 8:
            return np.asarray(np.frompyfunc(fused_doubles, 3, 1)(x, y, z), np.float64)
        product = x * y  # exact
        total = np.asarray(product + z)
        part = total - product
        error = (product - (total - part)) + (z - part)
        # rounded to odd, a sum is rounded once more as the exact one would be
        even = np.isfinite(total) & (error != 0) & (total.view(np.int64) & 1 == 0)
        odd = np.nextafter(total, np.where(error > 0, np.inf, -np.inf))
        return np.asarray(np.where(even, odd, total)).astype(kind)


def fused_doubles(a: float, b: float, c: float) -> float:
    """a * b + c, rounded once."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a * b + c
    if not math.isfinite(c):  # also where a * b alone would be infinite
        return c
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        return a * b + c
    try:
        return exact.numerator / exact.denominator
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def erfcx(x: float) -> float:
    """exp(x²) erfc(x), by its asymptotic series where erfc would vanish."""
    if x < 20:
        wide = np.longdouble(x)
        return float(np.exp(wide * wide) * np.longdouble(math.erfc(x)))
    if math.isinf(x):
        return 0.0
    total, term = 1.0, 1.0
    for n in range(1, 12):
        term *= -(2 * n - 1) / (2 * x * x)
        total += term
    return total / (x * math.sqrt(math.pi))


def convolved(
    x: np.ndarray, w: np.ndarray, windows: Any, padding: Any, steps: Any, groups: int
) -> np.ndarray:
    """The convolution of arrays in NCHW, window by window; outside of x nothing is added, whatever
    w holds.

    `windows` are the rows and columns of the result, `padding` is above, left, below and right,
    `steps` stride and dilation.
    """
    (rows, columns), (pt, pl, pb, pr), ((sh, sw), (dh, dw)) = windows, padding, steps
    batch, (oc, ic, kh, kw) = len(x), w.shape
    border = ((0, 0), (0, 0), (pt, pb), (pl, pr))
    padded = np.pad(x, border)
    inside = np.pad(np.ones_like(x, bool), border)
    kernels = w.reshape(groups, oc // groups, ic * kh * kw)
    y = np.zeros((batch, oc, rows, columns), x.dtype)
    for p, q in np.ndindex(rows, columns):
        window, there = (
            a[:, :, p * sh :: dh, q * sw :: dw][:, :, :kh, :kw].reshape(
                batch, groups, 1, ic * kh * kw
            )
            for a in (padded, inside)
        )
        y[:, :, p, q] = np.where(there, window * kernels, 0).sum(-1).reshape(batch, oc)
    return y


# The largest and the smallest element: NumPy leaves the sign of a zero result open; here -0.0 is
# below 0.0 in any order


def largest(x: np.ndarray, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:
    maximum = np.max(x, axis, keepdims=keepdims, **more)
    if x.dtype.kind != "f":
        return maximum
    positive = ((x == 0) & ~np.signbit(x)).any(axis, keepdims=keepdims)
    return np.where((maximum == 0) & positive, np.zeros((), x.dtype), maximum)


def smallest(x: np.ndarray, axis: Any = None, keepdims: bool = False) -> Any:
    return (
        -largest(-x, axis, keepdims) if x.dtype.kind == "f" else np.min(x, axis, keepdims=keepdims)
    )
