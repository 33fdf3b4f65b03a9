"""Diagnostics for NumPy's masked arrays, which are no tensors."""

import numpy as np


def masked(value: object) -> str:
    """A message for an array with masked elements, with the remedy; empty for any other value."""
    if not isinstance(value, np.ndarray) or type(value) is np.ndarray or not np.ma.is_masked(value):
        return ""
    missing = np.count_nonzero(np.ma.getmaskarray(value))
    return (
        f"a masked array, {missing} of {value.size} masked; its .filled(...) is an array of values"
    )
