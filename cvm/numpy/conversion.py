"""Conversion of operands to traced arrays, and to one element type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tracing.diagnose import fail
from ..tracing.trace import TracedArray, apply, element_of, tracer_of
from .calls import implements
from .ufuncs import common, known

if TYPE_CHECKING:
    from cvm.dialect.types.tensor_types import ElementType

    from ..tracing.array_types import Dtype

xp: Any = np  # NumPy's functions of traced arrays, which return those: its stubs promise ndarrays


@implements("astype", np.ndarray.astype)
def astype(x: TracedArray, dtype: Dtype | ElementType) -> TracedArray:
    """Convert elements: integers wrap as in C; floats are converted as NumPy does on x86-64, or by
    the dali dialect's rules as Theano does.
    """
    if x.type.element is (element := element_of(dtype)):
        return x
    if by_dali(x):
        return apply("theano.elemwise", x, scalar_op="cast", dtype=element)
    return apply("numpy.elementwise", x, ufunc="astype", dtype=element)


def by_dali(*arrays: object) -> bool:
    """Test whether the trace follows the dali dialect's rules."""
    tracer = tracer_of(arrays)
    return tracer is not None and tracer.rules == "dali"


def arrays_of(*given: Any) -> list[TracedArray]:
    """Return operands as traced arrays, each in its own element type."""
    return known([x if isinstance(x, TracedArray) else np.asarray(x) for x in given])[1]


def of_one_type(arrays: Sequence[object], what: str) -> list[TracedArray]:
    """Return operands as traced arrays of one type, which Python's numbers take, too."""
    if not by_dali(*arrays):
        return common(arrays)
    tracer = tracer_of(arrays)
    assert tracer is not None
    dtype = next(a.dtype for a in arrays if isinstance(a, (TracedArray, np.ndarray, np.generic)))

    def typed(a: Any) -> Any:
        if not isinstance(a, (int, float)) or isinstance(a, (bool, np.generic)):
            return a
        try:
            return np.asarray(a, dtype if isinstance(a, int) or dtype.kind == "f" else None)
        except OverflowError:
            fail(f"{a} is no number of NumPy's {dtype}")

    found = [tracer.array(typed(a), "dali") for a in arrays]
    if len(types := dict.fromkeys(str(f.type.element) for f in found)) > 1:
        fail(
            f"np.{what} wants arrays of one element type, got {' and '.join(types)}: use "
            "astype on them"
        )
    return found


def of_shape(shape: object, found: TracedArray) -> TracedArray:
    """Return a result, unless broadcasting has given it another shape."""
    if found.shape != shape:
        fail(f"an array of shape {found.shape} is no array of shape {shape}")
    return found
