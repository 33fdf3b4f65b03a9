"""NumPy's functions that solve systems of linear equations, as loops over the columns of matrices.

Elimination is that of Gauss and Jordan with partial pivoting: for each column the pivot is the
element of largest magnitude in or below the diagonal, the first of equal ones; each other row loses
the pivot row times its element of the column, a product and a difference that are rounded. All rows
are computed in each step, so that a matrix of n rows takes n^2 (n + m) products for m right sides.
A singular matrix has infinities or NaN in its results, where NumPy raises LinAlgError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..numpy.calls import implements
from ..numpy.conversion import arrays_of, astype, xp
from ..tracing.diagnose import fail
from .control_flow import fori_loop

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike
    from ..tracing.trace import TracedArray


def _matrices(name: str, x: TracedArray) -> tuple[TracedArray, int]:
    """Return square matrices of f32 or f64, and their rows; other numbers become f64."""
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        fail(f"np.linalg.{name} takes square matrices, got the shape {x.shape}")
    if not isinstance(n := x.shape[-1], int):
        fail(f"np.linalg.{name} takes matrices of known size, got the shape {x.shape}")
    if x.dtype.kind == "c" or x.dtype == np.float16:
        fail(f"np.linalg.{name} takes real numbers but float16, got {x.dtype}")
    return (x if x.dtype in (np.float32, np.float64) else astype(x, np.float64)), n


def _at(k: Any, x: Any, axis: int) -> Any:
    """Return the slice at a place along an axis, counted from the end."""
    return xp.take(x, k, axis=axis)


def _eliminated(rows: TracedArray, n: int) -> tuple[TracedArray, TracedArray]:
    """Return [A | B] of n rows as [1 | inverse of A times B], and the determinant of A."""
    places = np.arange(n)

    def step(k: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        w, determinant = carry
        size = xp.where(places < k, -1, xp.abs(_at(k, w, -1)))
        p = xp.expand_dims(xp.argmax(size, axis=-1), -1)
        order = xp.where(places == k, p, xp.where(places == p, k, places))
        w = xp.take_along_axis(w, xp.expand_dims(order, -1), axis=-2)
        column = _at(k, w, -1)
        pivot = _at(k, column, -1)
        sign = xp.where(p[..., 0] == k, 1, -1).astype(w.dtype)
        row = xp.expand_dims(_at(k, w, -2) / xp.expand_dims(pivot, -1), -2)
        factor = xp.expand_dims(xp.where(places == k, 0, column), -1)
        w = xp.where((places == k)[:, None], row, w - factor * row)
        return w, determinant * (pivot * sign)

    ones = xp.ones_like(xp.sum(rows, axis=(-2, -1)))  # of which only the shape counts
    return fori_loop(0, n, step, (rows, ones)) if n else (rows, ones)


@implements(np.linalg.solve)
def solve(a: ArrayLike, b: ArrayLike) -> TracedArray:
    """Solve `a @ x = b` for vectors (b of rank 1) or matrices, in stacks."""
    matrices, right = arrays_of(a, b)
    matrices, n = _matrices("solve", matrices)
    vector = right.ndim == 1
    if right.ndim == 0 or right.shape[-1 if vector else -2] != n:
        fail(f"np.linalg.solve of matrices {matrices.shape} and right sides {right.shape}")
    if right.dtype.kind == "c" or right.dtype == np.float16:
        fail(f"np.linalg.solve takes real numbers but float16, got {right.dtype}")
    kind = np.result_type(matrices.dtype, right.dtype if right.dtype.kind == "f" else np.float64)
    right = xp.expand_dims(right, -1) if vector else right
    stack = xp.broadcast_shapes(matrices.shape[:-2], right.shape[:-2])
    whole = [xp.broadcast_to(astype(x, kind), (*stack, *x.shape[-2:])) for x in (matrices, right)]
    found = _eliminated(xp.concatenate(whole, axis=-1), n)[0][..., n:]
    return found[..., 0] if vector else found


@implements(np.linalg.inv)
def inv(a: ArrayLike) -> TracedArray:
    """Invert matrices, in stacks."""
    (given,) = arrays_of(a)
    matrices, n = _matrices("inv", given)
    one = xp.broadcast_to(np.eye(n, dtype=matrices.dtype), matrices.shape)
    return _eliminated(xp.concatenate([matrices, one], axis=-1), n)[0][..., n:]


@implements(np.linalg.det)
def det(a: ArrayLike) -> TracedArray:
    """Compute the determinants of matrices, in stacks: products of pivots."""
    (given,) = arrays_of(a)
    return _eliminated(*_matrices("det", given))[1]


@implements(np.linalg.cholesky)
def cholesky(a: ArrayLike, /, *, upper: bool = False) -> TracedArray:
    """Return lower triangular L with `L @ L.T == a`, or upper ones, in stacks.

    Only the lower triangle of a matrix is read, or the upper one. Columns of L follow each other:
    each takes its outer product off the rest. A matrix that is not positive definite has NaN.
    """
    (given,) = arrays_of(a)
    matrices, n = _matrices("cholesky", given)
    places = np.arange(n)
    lower = xp.swapaxes(matrices, -1, -2) if upper else matrices

    def step(k: Any, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        rest, found = carry
        column = _at(k, rest, -1)
        column = column / xp.sqrt(xp.expand_dims(_at(k, column, -1), -1))
        column = xp.where(places < k, 0, column)
        rest = rest - xp.expand_dims(column, -1) * xp.expand_dims(column, -2)
        return rest, xp.where(places == k, xp.expand_dims(column, -1), found)

    found = fori_loop(0, n, step, (lower, xp.zeros_like(lower)))[1] if n else lower
    return xp.swapaxes(found, -1, -2) if upper else found
