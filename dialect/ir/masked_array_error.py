"""NumPy's masked arrays, which no tensor is: what to say of them."""

from __future__ import annotations

from typing import Any

import numpy as np


def masked(value: Any) -> str:
    """What an array is some of whose elements NumPy takes for missing, and what to do; nothing of any other."""
    if not isinstance(value, np.ndarray) or type(value) is np.ndarray or not np.ma.is_masked(value):
        return ""
    missing = np.count_nonzero(np.ma.getmaskarray(value))
    return f"a masked array, {missing} of {value.size} masked; its .filled(...) is an array of values"
