"""NumPy's functions that take and put elements by their numbers, and functions element by element
that are no ufuncs, or ufuncs that have an operator of their own.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..tracing.indexed_update import update_in_place
from ..tracing.trace import TracedArray, apply, fail, into
from .array_api import along, astype, concatenate, where, whole_axes, whole_axis
from .layout import broadcast_to, pad
from .table import ARRAY_FUNCTIONS, arrays_of, known_size, numpy_function
from .ufuncs import common, converted, loop_of


@numpy_function
def take(x: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    x, at = arrays_of(x, indices)
    x, over = along(x, axis)
    at = _numbers("np.take", at, x.shape[over], mode)
    return apply("builtin.gather", x, [at], axes=(over,), mode=mode if mode == "raise" else "clip")


def _numbers(name: str, at: TracedArray, size: Any, mode: str) -> Any:
    """The numbers of elements, brought into range where the mode says so."""
    if mode not in ("raise", "clip", "wrap") or not np.can_cast(at.dtype, np.int64):
        fail(
            f"{name} takes integers, by the modes raise, clip and wrap, got {at.dtype} and {mode!r}"
        )
    at = astype(at, np.int64)
    return at if mode == "raise" else at % size if mode == "wrap" else np.clip(at, 0, size - 1)


def _places_along(x: Any, at: Any, axis: int | None) -> tuple[Any, list[Any]]:
    """The array, flat where there is no axis, and the places that numbers of elements along the
    axis mean: one shape for all.
    """
    x, over = (np.ravel(x), 0) if axis is None else (x, whole_axis(axis, x.ndim))
    others = tuple(1 if a == over else n for a, n in enumerate(x.shape))
    if at.ndim != x.ndim or at.dtype.kind not in "iu":
        fail(f"elements of {x.type} are numbered by integers in as many dimensions, got {at.type}")
    if tuple(1 if a == over else n for a, n in enumerate(at.shape)) != others:
        at = broadcast_to(at, np.broadcast_shapes(at.shape, others))
    at = astype(at, np.int64)
    other = lambda a, n: np.zeros_like(at) if n == 1 else apply("builtin.iota_like", at, axis=a)  # noqa: E731
    return x, [at if a == over else other(a, n) for a, n in enumerate(x.shape)]


@numpy_function
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    x, at = arrays_of(x, indices)
    x, places = _places_along(x, at, axis)
    return apply("builtin.gather", x, places, axes=tuple(range(x.ndim)))


@numpy_function
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """A view that NumPy gives read-only."""
    first, second = whole_axes((axis1, axis2), x.ndim)
    rows, columns = known_size(x, first), known_size(x, second)
    start = max(-offset, 0), max(offset, 0)
    places = [np.arange(max(min(rows - start[0], columns - start[1]), 0)) + n for n in start]

    def step(x: Any) -> Any:
        x = np.moveaxis(np.moveaxis(x, first, -1), second - (second > first), -1)
        return apply("builtin.gather", x, arrays_of(x, *places)[1:], axes=(x.ndim - 2, x.ndim - 1))

    return x.viewed(step, read_only=True)


@numpy_function
def diag(x: Any, k: int = 0) -> Any:
    if x.ndim == 2:
        return diagonal(x, k)
    n = known_size(x, 0) + abs(k)
    return where(
        np.eye(n, k=k, dtype=bool),
        np.expand_dims(pad(x, (max(k, 0), max(-k, 0))), 0),
        np.zeros((), x.dtype),
    )


@numpy_function
def put_along_axis(x: Any, indices: Any, values: Any, axis: int | None) -> None:
    """Changes an array that the function made."""
    if not isinstance(x, TracedArray):
        fail(
            "np.put_along_axis changes traced arrays: make the array of traced ones, as by "
            "np.zeros_like"
        )
    at, new = arrays_of(x, indices, values)[1:]
    flat, places = _places_along(x, at, axis)
    new = astype(broadcast_to(new, places[0].shape), x.dtype)
    update_in_place(
        x,
        np.reshape(
            apply("builtin.scatter", flat, new, places, axes=tuple(range(flat.ndim))), x.shape
        ),
    )


@numpy_function
def choose(a: Any, choices: Sequence[Any], mode: str = "raise") -> Any:
    """The element of the choice that `a` numbers."""
    at, *given = arrays_of(a, *common(choices))
    at = _numbers("np.choose", at, len(given), mode)
    shape = np.broadcast_shapes(at.shape, *(x.shape for x in given))
    stacked = concatenate([np.expand_dims(broadcast_to(x, shape), 0) for x in given], 0)
    at = broadcast_to(at, shape)
    places = [
        where(at < 0, len(given), at),
        *(apply("builtin.iota_like", at, axis=n) for n in range(len(shape))),
    ]
    return apply("builtin.gather", stacked, places, axes=tuple(range(len(shape) + 1)))


@numpy_function
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
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
        found = np.where(condition, choice, found)
    return found


_of_parts = partial(apply, "theano.elemwise", scalar_op="complex")


@numpy_function
def nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    if not copy and x.dtype.kind in "fc":
        return into(x, nan_to_num(x, True, nan, posinf, neginf))
    if x.dtype.kind == "c":
        return _of_parts(
            *(nan_to_num(part, copy, nan, posinf, neginf) for part in (x.real, x.imag))
        )
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    found = where(np.isnan(x), nan, x)
    found = where(x == np.inf, limits.max if posinf is None else posinf, found)
    return where(x == -np.inf, limits.min if neginf is None else neginf, found)


@numpy_function
def round_(x: Any, decimals: int = 0) -> Any:
    if x.dtype.kind == "c":
        return _of_parts(round_(x.real, decimals), round_(x.imag, decimals))
    if x.dtype == np.bool_:
        if decimals:
            fail("np.round takes bools with no decimals")
        return astype(x, np.float16)
    if x.dtype.kind in "iu":
        return x if decimals >= 0 else astype(round_(astype(x, np.float64), decimals), x.dtype)
    if decimals == 0:
        return np.rint(x)
    scale = np.asarray(10.0 ** abs(decimals), x.dtype)
    return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale


@numpy_function
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    a, b = arrays_of(a, b)
    if b.dtype.kind in "biu":
        b = astype(b, np.result_type(b.dtype, 1.0))
    found = np.less_equal(np.abs(a - b), atol + rtol * np.abs(b)) & np.isfinite(b) | (a == b)
    return found | (np.isnan(a) & np.isnan(b)) if equal_nan else found


@numpy_function
def angle(z: Any, deg: bool = False) -> Any:
    found = np.arctan2(z.imag, z.real) if z.dtype.kind == "c" else np.arctan2(0, z)
    return found * (180 / np.pi) if deg else found


@numpy_function
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    a, b = arrays_of(a1, a2)
    if a.shape != b.shape:
        return False
    same = a == b
    return np.all(same | ((a != a) & (b != b)) if equal_nan else same)


def _common_divisor(name: str, inputs: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """The operands in the type of the ufunc's loop and one shape, and their greatest common
    divisor.
    """
    tracer, operands, dtypes = loop_of(name, inputs)
    a, b = np.broadcast_arrays(
        *(converted(tracer, x, t) for x, t in zip(operands, dtypes, strict=False))
    )
    return a, b, apply("numpy.gcd", a, b)


@numpy_function
def lcm(x1: Any, x2: Any, /) -> Any:
    """The product of the magnitudes over their common divisor, modulo 2^width; 0 where an operand
    is.
    """
    a, b, divisor = _common_divisor("lcm", (x1, x2))
    unsigned, dtype = np.dtype(f"u{a.dtype.itemsize}"), a.dtype
    a, b, divisor = (astype(np.absolute(x), unsigned) for x in (a, b, divisor))
    return astype(a // divisor * b, dtype)


_real, _imag = (partial(apply, "theano.elemwise", scalar_op=part) for part in ("real", "imag"))


def _zeros(x: Any) -> Any:
    """The imaginary part of real numbers, which NumPy gives read-only."""
    found = np.zeros_like(x)
    found.is_scalar, found.is_read_only = x.is_scalar, True
    return found


ARRAY_FUNCTIONS |= {
    "trace": lambda x, offset=0, axis1=0, axis2=1, dtype=None: np.sum(
        diagonal(x, offset, axis1, axis2), -1, dtype
    ),
    "allclose": lambda a, b, rtol=1e-5, atol=1e-8, equal_nan=False: np.all(
        isclose(a, b, rtol, atol, equal_nan)
    ),
    "real": lambda x: x if x.dtype.kind != "c" else x.viewed(_real, certain=False),
    "imag": lambda x: x.viewed(_imag, certain=False) if x.dtype.kind == "c" else _zeros(x),
    "fix": lambda x: np.trunc(x),
    "gcd": lambda x1, x2, /: _common_divisor("gcd", (x1, x2))[2],
}
