"""The types of PTX in NumPy, and instructions bound to them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .ptx import Unsupported

Array = np.ndarray[Any, Any]
Compute = Callable[..., Array]

WORD, TRUTH = np.dtype(np.uint32), np.dtype(bool)
TYPES = {
    "pred": "?",
    **{
        f"{letter}{bits}": f"{kind}{bits // 8}"
        for letter, kind in (("u", "u"), ("s", "i"), ("b", "u"), ("f", "f"))
        for bits in (8, 16, 32, 64)[letter == "f" :]
    },
}


def dtype(name: str) -> np.dtype:
    if name not in TYPES:
        raise Unsupported(f"the type .{name}")
    return np.dtype(TYPES[name])


@dataclass(frozen=True)
class Operation:
    """An instruction bound to its types: the operands', the result's, and how one is computed of
    the others.
    """

    operands: tuple[np.dtype, ...]
    result: np.dtype
    compute: Compute
