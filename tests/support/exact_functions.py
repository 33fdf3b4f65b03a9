"""Exact values of the transcendental functions, to hold computed ones against.

Of f32, NumPy's in f64, and the f64 that is computed here where NumPy has no such function (that one
being held against mpmath); of f64, mpmath's in 100 bits, and NumPy's in long double, which takes a
hundredth of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

Array = np.ndarray
LARGE = 2.0**128
# glibc's functions of these have 11 bits more than f64; elsewhere a long double may be no longer
# than a double
LONG = np.finfo(np.longdouble).nmant >= 63
BITS = 100

NUMPY: dict[str, Callable[..., Array]] = {
    **{
        n: getattr(np, n) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt")
    },
    **{n: getattr(np, n) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{
        n: getattr(np, f"arc{n[1:]}")
        for n in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")
    },
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: np.where(x < 0, np.exp(-abs(x)), 1) / (1 + np.exp(-abs(x))),
    "softplus": lambda x: np.where(x > 0, x, 0) + np.log1p(np.exp(-abs(x))),
}


def _within(limit: float, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function, of what it does not tell from the limit, the limit: mpmath would be long about
    it.
    """
    return lambda x: function(max(-limit, min(limit, x)))


def _real(function: Callable[..., Any]) -> Callable[..., Any]:
    """NaN where the result is not real."""

    def one(*xs: Any) -> Any:
        y = function(*xs)
        return mpmath.nan if isinstance(y, mpmath.mpc) else y

    return one


def _power(x: Any, y: Any) -> Any:
    if x < 0 and y != mpmath.floor(y):
        return mpmath.nan
    with mpmath.workprec(BITS + 20):
        size = mpmath.exp(max(-4000, min(4000, y * mpmath.log(abs(x)))))
    return -size if x < 0 and mpmath.floor(y / 2) * 2 != y else size


def _sigmoid(x: Any) -> Any:
    e = mpmath.exp(-abs(x))
    return (e if x < 0 else 1) / (1 + e)


def _softplus(x: Any) -> Any:
    return max(x, 0) + mpmath.log1p(mpmath.exp(-abs(x)))


def _erfcx(x: Any) -> Any:
    if x < -30:
        return mpmath.inf
    if x > 1e6:
        return 1 / (x * mpmath.sqrt(mpmath.pi)) * (1 - 1 / (2 * x * x))
    with mpmath.workprec(BITS + 20):  # e^(x^2) has fewer of them
        return mpmath.exp(x * x) * mpmath.erfc(x)


def _log10(x: Any) -> Any:
    return mpmath.log(x) / mpmath.ln10


def _log2(x: Any) -> Any:
    return mpmath.log(x) / mpmath.ln2


MPMATH: dict[str, Callable[..., Any]] = {
    **{n: getattr(mpmath, n) for n in ("sin", "cos", "tan", "atan", "asinh", "atan2")},
    **{n: _within(4000, getattr(mpmath, n)) for n in ("exp", "sinh", "cosh", "tanh")},
    **{n: _real(getattr(mpmath, n)) for n in ("log", "asin", "acos", "acosh", "atanh")},
    **{n: _within(30, getattr(mpmath, n)) for n in ("erf", "erfc")},
    "log2": _real(_log2),
    "log10": _real(_log10),
    "log1p": _real(mpmath.log1p),
    "exp2": _within(4000, lambda x: mpmath.exp(x * mpmath.ln2)),
    "expm1": _within(4000, mpmath.expm1),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "rsqrt": _real(lambda x: 1 / mpmath.sqrt(x)),
    "pow": _power,
    "sigmoid": _within(4000, _sigmoid),
    "softplus": lambda x: _softplus(max(-4000, x)),
    "erfcx": _erfcx,
}
# of zeros, infinities and NaN, where NumPy has none
SPECIAL: dict[str, Callable[[float], float]] = {
    "erf": lambda x: x if np.isnan(x) or x == 0 else float(np.sign(x)),
    "erfc": lambda x: x if np.isnan(x) else 1 - float(np.sign(x)),
    "erfcx": lambda x: x if np.isnan(x) else 1 if x == 0 else 0 if x > 0 else np.inf,
}


def in_numpy(function: str, *operands: Array) -> Array:
    """In the next longer type."""
    wide = np.float64 if operands[0].dtype.itemsize < 8 else np.longdouble
    with np.errstate(all="ignore"):
        return NUMPY[function](*(o.astype(wide) for o in operands))


def in_mpmath(function: str, *operands: Array) -> Array:
    """Rounded to the longest float."""
    exact = MPMATH[function]

    def one(*xs: float) -> np.longdouble:
        y = exact(*map(mpmath.mpf, xs))
        high = float(y)
        scale = 1 if abs(high) > 1 else LARGE  # the rest alone may be less than any float
        low = float((y - high) * scale) if np.isfinite(high) else 0
        return np.longdouble(high) + np.longdouble(low) / scale

    plain = np.all([np.isfinite(o) & (o != 0) for o in operands], 0)
    results = np.empty(len(plain), np.longdouble)
    rest = [o[~plain] for o in operands]
    if function in SPECIAL:
        results[~plain] = [SPECIAL[function](float(x)) for x in rest[0]]
    else:
        results[~plain] = in_numpy(function, *rest)
    with mpmath.workprec(BITS):
        results[plain] = [
            one(*xs) for xs in zip(*(o[plain].tolist() for o in operands), strict=True)
        ]
    return results
