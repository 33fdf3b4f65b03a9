"""Domains on which functions are differentiated in tests."""

from __future__ import annotations

POSITIVE, INSIDE, ABOVE_ONE = (0.3, 2.5), (-0.9, 0.9), (1.2, 3.0)

DOMAINS = {
    "log": POSITIVE,
    "log2": POSITIVE,
    "log10": POSITIVE,
    "log1p": POSITIVE,
    "sqrt": POSITIVE,
    "gamma": POSITIVE,
    "gammaln": POSITIVE,
    "psi": POSITIVE,
    "arcsin": INSIDE,
    "arccos": INSIDE,
    "arctanh": INSIDE,
    "erfinv": INSIDE,
    "erfcinv": (0.2, 1.8),
    "arccosh": ABOVE_ONE,
    "pow": POSITIVE,
    "inv": POSITIVE,
    "true_div": POSITIVE,
    "arctan2": POSITIVE,
    "asin": INSIDE,
    "acos": INSIDE,
    "atanh": INSIDE,
    "acosh": ABOVE_ONE,
    "div": POSITIVE,
    "floordiv": POSITIVE,
    "fpow": POSITIVE,
    "rsqrt": POSITIVE,
    "cbrt": POSITIVE,
    "mod": POSITIVE,
    "int_div": POSITIVE,
}
