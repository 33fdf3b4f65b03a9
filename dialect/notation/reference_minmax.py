"""Reduce arrays to their largest and smallest elements, as the scalar functions `maximum` and `minimum` do.

NumPy leaves the sign of a zero result open; here -0.0 is below 0.0 in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def largest(x: np.ndarray, axis: Any = None, keepdims: bool = False, **more: Any) -> Any:
    found = np.max(x, axis, keepdims=keepdims, **more)
    if x.dtype.kind != "f":
        return found
    positive = ((x == 0) & ~np.signbit(x)).any(axis, keepdims=keepdims)
    return np.where((found == 0) & positive, np.zeros((), x.dtype), found)


def smallest(x: np.ndarray, axis: Any = None, keepdims: bool = False) -> Any:
    return -largest(-x, axis, keepdims) if x.dtype.kind == "f" else np.min(x, axis, keepdims=keepdims)
