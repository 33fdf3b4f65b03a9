"""NumPy's functions that choose between elements of several arrays, or limit them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tracing.diagnose import fail
from ..tracing.trace import TracedArray, apply, ufunc_of_trace
from .calls import implements
from .conversion import arrays_of, by_dali, xp
from .ufuncs import common

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike


@implements(np.where)
def where(condition: ArrayLike, x: ArrayLike, y: ArrayLike) -> TracedArray:
    """Take elements from one array where a condition holds, and from another elsewhere."""
    if by_dali(condition, x, y):
        return apply("dali.where", condition, x, y)
    truth = condition if isinstance(condition, TracedArray) else np.asarray(condition, np.bool_)
    if isinstance(truth, TracedArray) and truth.dtype != np.bool_:
        truth = ufunc_of_trace("not_equal", truth, 0)
    return apply("numpy.elementwise", truth, *common((x, y)), ufunc="where")


@implements(np.clip, np.ndarray.clip)
def clip(
    x: ArrayLike,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
    *,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
) -> TracedArray:
    """Limit the elements to an interval."""
    if (a_min is not None and min is not None) or (a_max is not None and max is not None):
        fail("np.clip takes a_min and a_max, or min and max")
    low, high = a_min if min is None else min, a_max if max is None else max
    if by_dali(x) and low is not None and high is not None:
        return apply("dali.clamp", x, low, high)
    limited: Any = x if isinstance(x, TracedArray) or by_dali(low, high) else np.asarray(x)
    if isinstance(x, TracedArray) and x.type.element.is_integer:
        least, most = x.type.element.limits  # a bound that all integers of the type keep
        low = None if type(low) is int and low <= least else low
        high = None if type(high) is int and high >= most else high
    if low is not None and high is not None and not by_dali(x, low, high):
        limited, low, high = common((limited, low, high))  # of all three, as np.clip has it
    if low is not None:
        limited = maximum(limited, low)
    return limited if high is None else minimum(limited, high)


@implements(np.maximum)
def maximum(x: ArrayLike, y: ArrayLike) -> TracedArray:
    """Take the larger of two elements, NaN where one of them is."""
    return _larger_or_smaller("maximum", "dali.max", x, y)


@implements(np.minimum)
def minimum(x: ArrayLike, y: ArrayLike) -> TracedArray:
    """Take the smaller of two elements, NaN where one of them is."""
    return _larger_or_smaller("minimum", "dali.min", x, y)


def _larger_or_smaller(ufunc: str, operator: str, x: ArrayLike, y: ArrayLike) -> TracedArray:
    if not by_dali(x, y):
        return ufunc_of_trace(ufunc, x, y)
    if not isinstance(x, TracedArray):
        x, y = y, x
    found = apply(operator, x, y)  # y if an operand is NaN
    return (
        apply("dali.where", apply("dali.ne", x, x), x, found) if found.dtype.kind == "f" else found
    )


@implements(np.square)
def square(x: TracedArray) -> TracedArray:
    """Multiply each element by itself."""
    return ufunc_of_trace("multiply", x, x) if by_dali(x) else ufunc_of_trace("square", x)


@implements(np.select)
def select(
    condlist: Sequence[ArrayLike], choicelist: Sequence[ArrayLike], default: ArrayLike = 0
) -> TracedArray:
    """Take each element from the choice of the first condition that holds."""
    *choices, found = common((*choicelist, default))
    if any(c.dtype != np.bool_ for c in arrays_of(found, *condlist)[1:]):
        fail("the conditions of np.select are arrays of bool")
    for choice in choicelist:
        if (
            type(choice) is int and found.dtype.kind == "u"
        ):  # a default is taken by its value, a choice as int64
            fail(
                f"np.select to {found.dtype} takes no int64 choice: write "
                f"np.{found.dtype}({choice}) for {choice}"
            )
    for condition, choice in zip(reversed(condlist), reversed(choices), strict=True):
        found = xp.where(condition, choice, found)
    return found
