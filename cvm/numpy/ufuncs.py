"""The two meanings of Python's operators and NumPy's ufuncs on traced arrays: NumPy's own, and the
dali dialect's.

Both are reached by the ufunc's name, from `trace.TracedArray`. By NumPy's rules Python scalars are
weak (NEP 50): they take the element type that the other operands give, and an integer that does not
fit is an error.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.dialect.ir.function import Literal
from cvm.dialect.types.literal_types import literal_type
from cvm.dialect.types.tensor_types import TensorType

from ..tracing.diagnose import caller, fail
from ..tracing.numpy_table import UFUNC_RULES
from ..tracing.trace import (
    POWERS,
    PYTHON_NUMBERS,
    TracedArray,
    Tracer,
    apply,
    element_of,
    tracer_of,
    weak_kind,
)

if TYPE_CHECKING:
    from cvm.dialect.numpy.ufunc_table import Ufunc

# what a ufunc of several results is made of
RESULTS = {
    "divmod": ("floor_divide", "remainder"),
    "modf": ("modf_fraction", "modf_integral"),
    "frexp": ("frexp_fraction", "frexp_exponent"),
}
ALIASES = {
    "mod": "remainder",
    "pow": "power",
    "true_divide": "divide",
    "degrees": "rad2deg",
    "radians": "deg2rad",
}
# of integers beyond the array's type: what every comparison gives
BEYOND = {
    "equal": (False, False),
    "not_equal": (True, True),
    "less": (True, False),
    "less_equal": (True, False),
    "greater": (False, True),
    "greater_equal": (False, True),
}
DALI = {  # NumPy's names of what the dali dialect has
    "add": "add",
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "floor_divide": "floordiv",
    "fmod": "mod",
    "remainder": "mod",
    "power": "pow",
    "float_power": "fpow",
    "negative": "neg",
    "positive": "pos",
    "absolute": "abs",
    "fabs": "fabs",
    "floor": "floor",
    "ceil": "ceil",
    "sqrt": "sqrt",
    "cbrt": "cbrt",
    "exp": "exp",
    "log": "log",
    "log2": "log2",
    "log10": "log10",
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "equal": "eq",
    "not_equal": "ne",
    "less": "lt",
    "less_equal": "le",
    "greater": "gt",
    "greater_equal": "ge",
    "bitwise_and": "and",
    "bitwise_or": "or",
    "bitwise_xor": "xor",
    "invert": "not",
    "left_shift": "shl",
    "right_shift": "shr",
}


@cache
def ufuncs() -> "Mapping[str, Ufunc]":
    """Return the table of NumPy's ufuncs, loaded when a function is traced: it needs two dialects,
    which take a while to import.
    """
    from cvm.dialect.numpy import (
        ufunc_table,
    )  # by the package, for whose import, which fills the table, threads wait

    return ufunc_table.UFUNCS


def by_dali(name: str, inputs: Sequence[object]) -> Any:
    """Compute the ufunc by the dali dialect; return NotImplemented where it has no operator."""
    found = DALI.get(ALIASES.get(name, name))
    return NotImplemented if found is None else apply(f"dali.{found}", *inputs)


def by_numpy(name: str, inputs: Sequence[object]) -> Any:
    """Compute the ufunc as NumPy does; return NotImplemented where there is no formula for it."""
    if (name := ALIASES.get(name, name)) in RESULTS:
        return tuple(by_numpy(part, inputs) for part in RESULTS[name])
    if name not in ufuncs():
        return NotImplemented
    y = inputs[-1]
    y = y.item() if isinstance(y, (np.generic, np.ndarray)) and not y.ndim else y
    tracer, inputs, dtypes = loop_of(name, inputs)
    if name in BEYOND and (decided := _beyond(name, inputs)) is not None:
        return decided
    if name == "power" and type(y) in (int, float) and y in POWERS and dtypes[0].char in "fd":
        return by_numpy(POWERS[y], [converted(tracer, inputs[0], dtypes[0])])
    row = ufuncs()[name]
    if (
        name == "power"
        and dtypes[0].char in "fd"
        and type(y) not in PYTHON_NUMBERS
        and {*inputs[1].shape} <= {1}
    ):
        shapes = [getattr(x, "shape", ()) for x in inputs]
        row = row if shapes[1] and {*shapes[0]} <= {1} else ufuncs()["scalar_power"]
    # weak operands in the loop's types, and strong ones too where the operator would choose another
    # loop
    operands = [
        x if weak_kind(x) is None else converted(tracer, x, d)
        for x, d in zip(inputs, dtypes, strict=False)
    ]
    loop = row.loop(tuple(x.type.element for x in operands))
    if loop is None or [e.dtype for e in loop[:-1]] != list(dtypes[: len(inputs)]):
        operands = [converted(tracer, x, d) for x, d in zip(operands, dtypes, strict=False)]
    return apply("numpy.elementwise", *operands, ufunc=row.name)


def known(inputs: Sequence[Any]) -> tuple[Tracer, list[Any]]:
    """Return the tracer and the inputs: Python numbers as they are, anything else as traced
    arrays.
    """
    tracer = tracer_of(inputs)
    assert tracer is not None
    return tracer, [x if type(x) in PYTHON_NUMBERS else tracer.array(x) for x in inputs]


def loop_of(name: str, inputs: Sequence[object]) -> tuple[Tracer, list[Any], tuple[np.dtype, ...]]:
    """Return the tracer of a ufunc's operands, the operands as `known` gives them, and the element
    types of the ufunc's loop for them.
    """
    tracer, inputs = known(inputs)
    row = ufuncs().get(name)
    ufunc = getattr(np, name) if row is None or row.ufunc is None else row.ufunc
    if len(inputs) != ufunc.nin:
        fail(f"np.{ufunc.__name__} takes {ufunc.nin} operands, got {len(inputs)}")
    kinds = [weak_kind(given) or given.dtype for given in inputs]
    if name in BEYOND and all(
        isinstance(k, type) for k in kinds
    ):  # for which NumPy has a loop over objects
        kinds = [np.dtype(k) for k in kinds]
    try:
        return tracer, inputs, ufunc.resolve_dtypes((*kinds, *(None,) * ufunc.nout))
    except TypeError:
        shown = ", ".join(k.__name__ if isinstance(k, type) else str(k) for k in kinds)
        fail(f"np.{ufunc.__name__} takes no operands of {shown}")


def converted(tracer: Tracer, given: object, dtype: np.dtype) -> TracedArray:
    """Convert an operand to the element type of the loop; a weak one becomes it, a strong one is
    cast where that is needed.
    """
    if type(given) not in PYTHON_NUMBERS:
        if (array := tracer.array(given)).dtype == dtype:
            return array
        element = element_of(dtype)
        checked = array.weak is int and element.is_integer
        return apply(
            "numpy.elementwise", array, ufunc="in_range" if checked else "astype", dtype=element
        )
    try:
        with np.errstate(all="ignore"):
            number = np.asarray(given, dtype).item()
    except OverflowError:
        fail(f"Python integer {given} out of bounds for {dtype}")
    except (TypeError, ValueError) as e:
        fail(str(e))
    type_ = TensorType((), element_of(dtype))
    return TracedArray(
        tracer, Literal(number, type_, caller(), explicit=type_ != literal_type("numpy", number))
    )


def common(inputs: Sequence[Any]) -> list[Any]:
    """Return operands in the type that NumPy's promotion gives all of them; NumPy's arrays where
    none is traced.
    """
    if tracer_of(inputs) is None:
        given = [x if type(x) in PYTHON_NUMBERS else np.asarray(x) for x in inputs]
        return [np.asarray(x, np.result_type(*given)) for x in given]
    tracer, inputs = known(inputs)
    try:
        dtype = np.result_type(*(k() if (k := weak_kind(x)) else x.dtype for x in inputs))
    except TypeError as e:
        fail(str(e))
    return [converted(tracer, x, dtype) for x in inputs]


def _beyond(name: str, inputs: Sequence[object]) -> Any:
    """Decide a comparison with a Python integer that the array's type does not hold."""
    for place, given in enumerate(inputs):
        other = inputs[1 - place]
        if (
            type(given) is not int
            or not isinstance(other, TracedArray)
            or not other.type.element.is_integer
        ):
            continue
        low, high = other.type.element.limits
        if low <= given <= high:
            continue
        told = BEYOND[name][0 if (given > high) == (place == 1) else 1]
        return by_numpy("equal" if told else "not_equal", (other, other))
    return None


RULES = {"numpy": by_numpy, "dali": by_dali}
UFUNC_RULES |= RULES
