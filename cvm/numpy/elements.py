"""NumPy's functions that take and put elements by their indices, and functions element by element
that are no ufuncs, or ufuncs that have an operator of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tracing.diagnose import fail
from ..tracing.trace import TracedArray, apply, into
from .axes import known_size, whole_axes, whole_axis
from .calls import implements
from .conversion import arrays_of, astype, xp
from .layout import pad
from .reductions import sum
from .selection import where
from .shapes import along, broadcast, concatenate, expand_dims, moveaxis
from .ufuncs import common, converted, loop_of
from .updates import update_in_place

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike, Dim, Dtype

_complex = partial(apply, "theano.elemwise", scalar_op="complex")
_real = partial(apply, "theano.elemwise", scalar_op="real")
_imag = partial(apply, "theano.elemwise", scalar_op="imag")


@implements(np.take, np.ndarray.take)
def take(
    x: ArrayLike, indices: ArrayLike, axis: int | None = None, mode: str = "raise"
) -> TracedArray:
    """Take elements along an axis by their indices."""
    given, at = arrays_of(x, indices)
    given, over = along(given, axis)
    at = _indices("np.take", at, given.shape[over], mode)
    mode = mode if mode == "raise" else "clip"
    return apply("builtin.gather", given, [at], axes=(over,), mode=mode)


def _indices(name: str, at: TracedArray, size: Dim, mode: str) -> TracedArray:
    """Return the indices of elements, brought into range where the mode says so."""
    if mode not in ("raise", "clip", "wrap") or not np.can_cast(at.dtype, np.int64):
        fail(
            f"{name} takes integers, by the modes raise, clip and wrap, got {at.dtype} and {mode!r}"
        )
    at = astype(at, np.int64)
    return at if mode == "raise" else at % size if mode == "wrap" else xp.clip(at, 0, size - 1)


def _places_along(
    x: TracedArray, at: TracedArray, axis: int | None
) -> tuple[TracedArray, list[TracedArray]]:
    """Return the array, flat where there is no axis, and the places that indices of elements along
    the axis mean: one shape for all.
    """
    x, over = (xp.ravel(x), 0) if axis is None else (x, whole_axis(axis, x.ndim))
    others: object = tuple(1 if a == over else n for a, n in enumerate(x.shape))
    if at.ndim != x.ndim or at.dtype.kind not in "iu":
        fail(f"elements of {x.type} are numbered by integers in as many dimensions, got {at.type}")
    if tuple(1 if a == over else n for a, n in enumerate(at.shape)) != others:
        at = broadcast(at, xp.broadcast_shapes(at.shape, others))
    at = astype(at, np.int64)

    def place(a: int, n: Dim) -> TracedArray:
        if a == over:
            return at
        return xp.zeros_like(at) if n == 1 else apply("builtin.iota_like", at, axis=a)

    return x, [place(a, n) for a, n in enumerate(x.shape)]


@implements(np.take_along_axis)
def take_along_axis(x: ArrayLike, indices: ArrayLike, axis: int | None = -1) -> TracedArray:
    """Take elements along an axis by indices for each place of the other axes."""
    array, at = arrays_of(x, indices)
    given, places = _places_along(array, at, axis)
    return apply("builtin.gather", given, places, axes=tuple(range(given.ndim)))


@implements(np.put_along_axis)
def put_along_axis(x: TracedArray, indices: ArrayLike, values: ArrayLike, axis: int | None) -> None:
    """Change elements along an axis of an array that the function made."""
    if not isinstance(x, TracedArray):
        fail(
            "np.put_along_axis changes traced arrays: make the array of traced ones, as by "
            "np.zeros_like"
        )
    at, new = arrays_of(x, indices, values)[1:]
    flat, places = _places_along(x, at, axis)
    new = astype(broadcast(new, places[0].shape), x.dtype)
    found = apply("builtin.scatter", flat, new, places, axes=tuple(range(flat.ndim)))
    update_in_place(x, xp.reshape(found, x.shape))


@implements(np.diagonal, np.ndarray.diagonal)
def diagonal(x: TracedArray, offset: int = 0, axis1: int = 0, axis2: int = 1) -> TracedArray:
    """Take a diagonal: a view that NumPy gives read-only."""
    first, second = whole_axes((axis1, axis2), x.ndim)
    rows, columns = known_size(x, first), known_size(x, second)
    start = max(-offset, 0), max(offset, 0)
    places = [np.arange(max(min(rows - start[0], columns - start[1]), 0)) + n for n in start]

    def step(x: TracedArray) -> TracedArray:
        x = moveaxis(moveaxis(x, first, -1), second - (second > first), -1)
        return apply("builtin.gather", x, arrays_of(x, *places)[1:], axes=(x.ndim - 2, x.ndim - 1))

    return x.viewed(step, read_only=True)


@implements(np.linalg.diagonal)
def matrix_diagonal(x: TracedArray, offset: int = 0) -> TracedArray:
    """Take a diagonal of matrices, as `np.linalg.diagonal`."""
    return diagonal(x, offset, -2, -1)


@implements(np.diag)
def diag(x: TracedArray, k: int = 0) -> TracedArray:
    """Take a diagonal of a matrix, or make a matrix of a diagonal."""
    if x.ndim == 2:
        return diagonal(x, k)
    rows = expand_dims(pad(x, (max(k, 0), max(-k, 0))), 0)
    on_diagonal = np.eye(known_size(x, 0) + abs(k), k=k, dtype=bool)
    return where(on_diagonal, rows, np.zeros((), x.dtype))


@implements(np.trace, np.ndarray.trace)
def trace(
    x: TracedArray,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Dtype | None = None,
) -> TracedArray:
    """Sum the elements of a diagonal."""
    return sum(diagonal(x, offset, axis1, axis2), -1, dtype=dtype)


@implements(np.linalg.trace)
def matrix_trace(x: TracedArray, offset: int = 0) -> TracedArray:
    """Sum a diagonal of matrices, as `np.linalg.trace`."""
    return trace(x, offset, -2, -1)


@implements(np.choose, np.ndarray.choose)
def choose(a: ArrayLike, choices: Sequence[ArrayLike], mode: str = "raise") -> TracedArray:
    """Take each element from the choice whose number `a` gives."""
    at, *given = arrays_of(a, *common(choices))
    at = _indices("np.choose", at, len(given), mode)
    shape = xp.broadcast_shapes(at.shape, *(x.shape for x in given))
    stacked = concatenate([expand_dims(broadcast(x, shape), 0) for x in given], 0)
    at = broadcast(at, shape)
    places = [
        where(at < 0, len(given), at),
        *(apply("builtin.iota_like", at, axis=n) for n in range(len(shape))),
    ]
    return apply("builtin.gather", stacked, places, axes=tuple(range(len(shape) + 1)))


@implements(np.nan_to_num)
def nan_to_num(
    x: TracedArray,
    copy: bool = True,
    nan: Any = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> TracedArray:
    """Replace NaN and infinities by numbers."""
    if not copy and x.dtype.kind in "fc":
        return into(x, nan_to_num(x, True, nan, posinf, neginf))
    if x.dtype.kind == "c":
        return _complex(*(nan_to_num(part, copy, nan, posinf, neginf) for part in (x.real, x.imag)))
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    found = where(xp.isnan(x), nan, x)
    found = where(x == np.inf, limits.max if posinf is None else posinf, found)
    return where(x == -np.inf, limits.min if neginf is None else neginf, found)


@implements(np.round, np.around, np.ndarray.round)
def round(x: TracedArray, decimals: int = 0) -> TracedArray:
    """Round to a number of decimals, halves to even."""
    if x.dtype.kind == "c":
        return _complex(round(x.real, decimals), round(x.imag, decimals))
    if x.dtype == np.bool_:
        if decimals:
            fail("np.round takes bools with no decimals")
        return astype(x, np.float16)
    if x.dtype.kind in "iu":
        return x if decimals >= 0 else astype(round(astype(x, np.float64), decimals), x.dtype)
    if decimals == 0:
        return xp.rint(x)
    scale = np.asarray(10.0 ** abs(decimals), x.dtype)
    return xp.rint(x * scale) / scale if decimals > 0 else xp.rint(x / scale) * scale


@implements(np.fix)
def fix(x: TracedArray) -> TracedArray:
    """Round toward zero."""
    return xp.trunc(x)


@implements(np.isclose)
def isclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> TracedArray:
    """Test for equality within tolerances."""
    x, y = arrays_of(a, b)
    if y.dtype.kind in "biu":
        y = astype(y, np.result_type(y.dtype, 1.0))
    near = xp.less_equal(xp.abs(x - y), atol + rtol * xp.abs(y))
    found = near & xp.isfinite(y) | (x == y)
    return found | (xp.isnan(x) & xp.isnan(y)) if equal_nan else found


@implements(np.allclose)
def allclose(
    a: ArrayLike, b: ArrayLike, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> TracedArray:
    """Test whether all elements are equal within tolerances."""
    return xp.all(isclose(a, b, rtol, atol, equal_nan))


@implements(np.array_equal)
def array_equal(a1: ArrayLike, a2: ArrayLike, equal_nan: bool = False) -> TracedArray | bool:
    """Test whether two arrays have one shape and equal elements."""
    a, b = arrays_of(a1, a2)
    if a.shape != b.shape:
        return False
    same = a == b
    return xp.all(same | ((a != a) & (b != b)) if equal_nan else same)


@implements(np.real, np.ndarray.real)
def real(x: TracedArray) -> TracedArray:
    """Take the real parts; other numbers as they are."""
    return x if x.dtype.kind != "c" else x.viewed(_real, certain=False)


@implements(np.imag, np.ndarray.imag)
def imag(x: TracedArray) -> TracedArray:
    """Take the imaginary parts; those of real numbers are zeros, which NumPy gives read-only."""
    if x.dtype.kind == "c":
        return x.viewed(_imag, certain=False)
    found = xp.zeros_like(x)
    found.is_scalar, found.is_read_only = x.is_scalar, True
    return found


@implements(np.angle)
def angle(z: TracedArray, deg: bool = False) -> TracedArray:
    """Compute the argument of complex numbers."""
    found = xp.arctan2(z.imag, z.real) if z.dtype.kind == "c" else xp.arctan2(0, z)
    return found * (180 / np.pi) if deg else found


@implements(np.gcd)
def gcd(x1: ArrayLike, x2: ArrayLike, /) -> TracedArray:
    """Compute the greatest common divisor."""
    return _common_divisor("gcd", (x1, x2))[2]


@implements(np.lcm)
def lcm(x1: ArrayLike, x2: ArrayLike, /) -> TracedArray:
    """Compute the product of the magnitudes over their common divisor, modulo 2^width; 0 where an
    operand is.
    """
    a, b, divisor = _common_divisor("lcm", (x1, x2))
    unsigned, dtype = np.dtype(f"u{a.dtype.itemsize}"), a.dtype
    a, b, divisor = (astype(xp.absolute(x), unsigned) for x in (a, b, divisor))
    return astype(a // divisor * b, dtype)


def _common_divisor(
    name: str, inputs: tuple[ArrayLike, ...]
) -> tuple[TracedArray, TracedArray, TracedArray]:
    """Return the operands in the type of the ufunc's loop and one shape, and their greatest common
    divisor.
    """
    tracer, operands, dtypes = loop_of(name, inputs)
    a, b = xp.broadcast_arrays(
        *(converted(tracer, x, t) for x, t in zip(operands, dtypes, strict=False))
    )
    return a, b, apply("numpy.gcd", a, b)
