"""The table of NumPy's functions that are composed of operators, and the parts that they share."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..tracing.trace import TracedArray, fail
from .array_api import subscript
from .ufuncs import known

ARRAY_FUNCTIONS: dict[str, Callable[..., Any]] = {}


def numpy_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Enters a function into the table, by its name."""
    ARRAY_FUNCTIONS[function.__name__.rstrip("_")] = function
    return function


def arrays_of(*given: Any) -> list[Any]:
    """Traced arrays of the operands, each in its own element type."""
    return known([x if isinstance(x, TracedArray) else np.asarray(x) for x in given])[1]


def known_size(x: Any, axis: int) -> int:
    if not isinstance(n := x.shape[axis], int):
        fail("this function needs the size of the axis while compiling")
    return n


def along_axis(x: Any, axis: int, part: Any) -> Any:
    """A subscript of one axis."""
    return subscript(x, (slice(None),) * axis + (part,))


def known_numbers(given: Any, what: str) -> np.ndarray:
    if isinstance(given, TracedArray) or np.ndim(given) != 1:
        fail(f"{what} are a one-dimensional array that is known while compiling")
    return np.asarray(given)
