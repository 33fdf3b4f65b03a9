"""NumPy's products of traced arrays, norms, and what slides one array over another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce
from operator import mul
from string import ascii_letters, ascii_uppercase
from typing import TYPE_CHECKING, Any

import numpy as np

from cvm.dialect.types.tensor_types import F16, F32, compute_type

from ..tracing.diagnose import fail
from ..tracing.trace import TracedArray, apply
from . import reductions
from .axes import known_size, whole_axes, whole_axis, whole_number
from .calls import implements
from .conversion import arrays_of, astype, by_dali, of_one_type, xp
from .elements import diagonal
from .layout import pad
from .selection import where
from .shapes import stack
from .subscripts import along_axis
from .ufuncs import common

if TYPE_CHECKING:
    from ..tracing.array_types import ArrayLike, Axes


@implements(np.matmul, np.linalg.matmul)
def matmul(x: ArrayLike, y: ArrayLike) -> TracedArray:
    """Multiply matrices, vectors and stacks of them, summed in the elements' type (f16 in f32)."""
    a, b = of_one_type((x, y), "matmul")
    if (element := a.type.element) is F16 and not by_dali(a):  # products are not rounded either
        return astype(matmul(astype(a, F32), astype(b, F32)), F16)
    if not a.ndim or not b.ndim:
        fail(f"np.matmul multiplies matrices and vectors of numbers, got {a.type} and {b.type}")
    inner = a.shape[-1], b.shape[-2 if b.ndim > 1 else 0]
    if inner[0] != inner[1] and (1 in inner or all(isinstance(n, int) for n in inner)):
        fail(f"the sizes that are summed over differ: {inner[0]} and {inner[1]}")
    rows = (*range(a.ndim), "x") if a.ndim > 1 else ("x", 0, "x")
    columns = (*range(b.ndim - 2), "x", b.ndim - 2, b.ndim - 1) if b.ndim > 1 else ("x", 0, "x")
    left, right = (
        apply("theano.dimshuffle", a, new_order=rows),
        apply("theano.dimshuffle", b, new_order=columns),
    )
    products = apply("theano.elemwise", left, right, scalar_op="mul")
    truths = element.kind == "bool"
    wide = {} if truths else {"acc_dtype": compute_type(element), "dtype": element}
    found = apply(
        "theano.any" if truths else "theano.sum", products, axis=(products.ndim - 2,), **wide
    )
    dropped = (found.ndim - 2,) * (a.ndim == 1) + (found.ndim - 1,) * (b.ndim == 1)
    return apply("cvm.squeeze", found, axes=dropped) if dropped else found


@implements("matvec")
def matvec(a: ArrayLike, b: ArrayLike) -> TracedArray:
    """Multiply matrices by vectors."""
    return xp.squeeze(matmul(a, xp.expand_dims(arrays_of(b, a)[0], -1)), -1)


@implements("vecmat")
def vecmat(a: ArrayLike, b: ArrayLike) -> TracedArray:
    """Multiply conjugated vectors by matrices."""
    return xp.squeeze(matmul(xp.expand_dims(arrays_of(a, b)[0].conj(), -2), b), -2)


@implements(np.linalg.matrix_power)
def matrix_power(a: TracedArray, n: int) -> TracedArray:
    """Multiply a matrix by itself, by squaring; negative powers would need an inverse."""
    if whole_number(n, "n") < 0:
        fail("np.linalg.matrix_power takes powers from 0 on here")
    found = None
    for bit in bin(n)[:1:-1]:
        if bit == "1":
            found = a if found is None else matmul(found, a)
        a = matmul(a, a)
    return xp.broadcast_to(xp.eye(a.shape[-1], dtype=a.dtype), a.shape) if found is None else found


@implements(np.linalg.multi_dot)
def multi_dot(arrays: Sequence[ArrayLike]) -> TracedArray:
    """Multiply several matrices; the first and the last one may be vectors."""
    first, *middle, last = [x.ndim for x in arrays_of(*arrays)]
    if middle and ({*middle} != {2} or not {first, last} <= {1, 2}):
        fail("np.linalg.multi_dot takes matrices; the first and the last one may be vectors")
    return reduce(dot, arrays)  # type: ignore[arg-type, return-value]


@implements(np.outer)
def outer(a: ArrayLike, b: ArrayLike) -> TracedArray:
    """Multiply each element of one array by each of another."""
    x, y = arrays_of(a, b)
    return xp.expand_dims(xp.ravel(x), 1) * xp.expand_dims(xp.ravel(y), 0)


@implements(np.linalg.outer)
def vector_outer(a: ArrayLike, b: ArrayLike) -> TracedArray:
    """Multiply each element of one vector by each of another, as `np.linalg.outer`."""
    return einsum("i,j->ij", a, b)


@implements(np.vecdot, np.linalg.vecdot)
def vecdot(a: ArrayLike, b: ArrayLike, axis: int = -1) -> TracedArray:
    """Sum the products of vectors along an axis, the first ones conjugated."""
    (x, y), dtype = _widened(a, b)
    if not x.ndim or not y.ndim:
        fail("np.vecdot takes vectors, or stacks of them")
    x, y = (v if axis == -1 else xp.moveaxis(v, axis, -1) for v in (x, y))
    if x.shape[-1] != y.shape[-1]:
        fail(f"the sizes that are summed over differ: {x.shape[-1]} and {y.shape[-1]}")
    return astype(xp.sum(x.conj() * y, axis=-1, dtype=x.dtype), dtype)


def _widened(*operands: ArrayLike) -> tuple[list[TracedArray], np.dtype]:
    """Return operands in one type, and that type; f16 as f32, since products are not rounded before
    they are summed.
    """
    arrays = common(arrays_of(*operands))
    dtype = arrays[0].dtype
    return [astype(x, np.float32) for x in arrays] if dtype == np.float16 else arrays, dtype


@implements(np.dot, np.ndarray.dot)
def dot(a: ArrayLike, b: ArrayLike) -> TracedArray:
    """Multiply matrices and vectors; of stacks, each with each."""
    x, y = arrays_of(a, b)
    if not x.ndim or not y.ndim:
        return x * y
    stacks = x.ndim > 1 and y.ndim > 1 and x.ndim + y.ndim > 4
    return tensordot(x, y, ((-1,), (-2,))) if stacks else matmul(x, y)


@implements(np.tensordot, np.linalg.tensordot)
def tensordot(a: ArrayLike, b: ArrayLike, axes: Any = 2) -> TracedArray:
    """Sum products over several axes of both arrays."""
    x, y = common(arrays_of(a, b))
    if isinstance(axes, (int, np.integer)):
        axes = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    summed = [whole_axes(n, x.ndim) for n, x in zip(axes, (x, y), strict=True)]
    if [x.shape[n] for n in summed[0]] != [y.shape[n] for n in summed[1]]:
        fail(f"the sizes that are summed over differ: {axes} of {x.type} and {y.type}")
    letters = iter(ascii_letters)
    of_a = [next(letters) for _ in range(x.ndim)]
    of_b = [
        of_a[summed[0][summed[1].index(n)]] if n in summed[1] else next(letters)
        for n in range(y.ndim)
    ]
    kept = [c for n, c in enumerate(of_a) if n not in summed[0]] + [
        c for n, c in enumerate(of_b) if n not in summed[1]
    ]
    return einsum(f"{''.join(of_a)},{''.join(of_b)}->{''.join(kept)}", x, y)


@implements(np.inner)
def inner(a: ArrayLike, b: ArrayLike) -> TracedArray:
    """Sum products over the last axes."""
    x, y = arrays_of(a, b)
    return tensordot(x, y, ((-1,), (-1,))) if x.ndim and y.ndim else x * y


@implements(np.kron)
def kron(a: ArrayLike, b: ArrayLike) -> TracedArray:
    """Multiply each element of one array by the whole of another."""
    x, y = arrays_of(a, b)
    rank = max(x.ndim, y.ndim)
    x, y = (xp.reshape(v, (1,) * (rank - v.ndim) + v.shape) for v in (x, y))
    spread = [xp.expand_dims(v, [2 * n + k for n in range(rank)]) for v, k in ((x, 1), (y, 0))]
    sizes: object = zip(x.shape, y.shape, strict=True)
    return xp.reshape(spread[0] * spread[1], tuple(m * n for m, n in sizes))


@implements(np.cross, np.linalg.cross)
def cross(a: ArrayLike, b: ArrayLike, axis: int = -1) -> TracedArray:
    """Multiply vectors of three components to vectors that are orthogonal to both."""
    left, right = arrays_of(a, b)
    first, second = whole_axis(axis, left.ndim), whole_axis(axis, right.ndim)
    if known_size(left, first) != 3 or known_size(right, second) != 3:
        fail("np.cross takes vectors of three components")
    x, y, z = (along_axis(left, first, n) for n in range(3))
    u, v, w = (along_axis(right, second, n) for n in range(3))
    return stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=axis)


@implements(np.linalg.norm)
def norm(x: TracedArray, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> TracedArray:
    """Compute a norm of vectors or matrices."""
    if x.dtype.kind in "biu":
        x = astype(x, np.float64)
    over = whole_axes(axis, x.ndim)
    plain = ord is None and (axis is None or len(over) in (1, 2))
    if plain or (ord == "fro" and len(over) == 2) or (ord == 2 and len(over) == 1):
        squares = xp.square(x.real) + xp.square(x.imag) if x.dtype.kind == "c" else xp.square(x)
        return xp.sqrt(xp.sum(squares, axis=over, keepdims=keepdims))
    size = xp.absolute(x)
    least = ord in (-1, -np.inf)
    reduce_sizes = reductions.min if least else reductions.max
    extreme = partial(reduce_sizes, initial=None if least or 0 not in x.shape else 0)
    if len(over) == 2 and ord in (1, -1, np.inf, -np.inf):
        summed, chosen = over if abs(ord) == 1 else over[::-1]
        found = extreme(xp.sum(size, axis=summed, keepdims=True), axis=chosen, keepdims=True)
        return found if keepdims else xp.squeeze(found, over)
    if len(over) != 1 or not isinstance(ord, (int, float)):
        fail(
            "np.linalg.norm has ord None, 'fro', 1, -1, inf and -inf for matrices, and "
            "numbers for vectors"
        )
    if ord in (np.inf, -np.inf):
        return extreme(size, axis=over, keepdims=keepdims)
    if ord == 0:
        return astype(xp.sum(xp.not_equal(x, 0), axis=over, keepdims=keepdims), size.dtype)
    total = xp.sum(size if ord == 1 else xp.power(size, ord), axis=over, keepdims=keepdims)
    return total if ord == 1 else xp.power(total, 1 / ord)


@implements(np.linalg.vector_norm)
def vector_norm(
    x: TracedArray, *, axis: Axes = None, keepdims: bool = False, ord: Any = 2
) -> TracedArray:
    """Compute a norm of vectors along one axis, or of all elements."""
    if axis is not None and not isinstance(axis, (int, np.integer)):
        fail("np.linalg.vector_norm takes one axis, or all of them, here")
    found = norm(xp.ravel(x) if axis is None else x, ord, 0 if axis is None else axis, keepdims)
    return xp.reshape(found, (1,) * x.ndim) if axis is None and keepdims else found


@implements(np.linalg.matrix_norm)
def matrix_norm(x: TracedArray, ord: object = "fro", keepdims: bool = False) -> TracedArray:
    """Compute a norm of matrices."""
    return norm(x, ord, (-2, -1), keepdims)


@implements(np.einsum)
def einsum(subscripts: str, *operands: ArrayLike) -> TracedArray:
    """Sum products by index letters: each operand is laid out along all indices, products are taken
    from the left, and indices that the result lacks are summed over.
    """
    if not isinstance(subscripts, str):
        fail("np.einsum takes its subscripts as a string")
    arrays = arrays_of(*operands)
    given, arrow, result = subscripts.replace(" ", "").partition("->")
    if not arrow:
        result = "..." * ("..." in given) + "".join(
            sorted(c for c in {*given} - {*",."} if given.count(c) == 1)
        )
    *terms, result = _without_dots([*given.split(","), result], [x.ndim for x in arrays])
    fitting = [
        len(t) == x.ndim and "." not in t + result for t, x in zip(terms, arrays, strict=False)
    ]
    if len(terms) != len(arrays) or not all(fitting):
        fail(
            f"np.einsum takes an index letter for each axis of its {len(arrays)} operands, "
            f"got {subscripts!r}"
        )
    for n, term in enumerate(terms):
        for c in dict.fromkeys(term):
            while terms[n].count(c) > 1:
                first = terms[n].index(c)
                second = terms[n].index(c, first + 1)
                if known_size(arrays[n], first) != known_size(arrays[n], second):
                    fail(
                        "np.einsum takes the diagonal of axes of one size, got "
                        f"{arrays[n].type} for {c}{c}"
                    )
                arrays[n] = diagonal(arrays[n], 0, first, second)
                terms[n] = (
                    terms[n][:first] + terms[n][first + 1 : second] + terms[n][second + 1 :] + c
                )
    letters = result + "".join(sorted(set("".join(terms)) - set(result)))
    if len(set(result)) < len(result) or set(result) - set("".join(terms)):
        fail(
            "the result of np.einsum has each of its indices once, and operands have "
            f"them: got {subscripts!r}"
        )
    spread = []
    for term, x in zip(terms, arrays, strict=True):
        x = xp.transpose(x, sorted(range(x.ndim), key=lambda a, t=term: letters.index(t[a])))
        spread.append(xp.expand_dims(x, [n for n, c in enumerate(letters) if c not in term]))
    summed = tuple(range(len(result), len(letters)))
    if len(spread) == 1 and not summed:
        return spread[0]  # a view
    spread, dtype = _widened(*spread)
    product = reduce(mul, spread)
    return astype(xp.sum(product, axis=summed, dtype=product.dtype) if summed else product, dtype)


def _without_dots(terms: list[str], ranks: list[int]) -> list[str]:
    """Replace an ellipsis in the operands' terms and the result's by letters."""
    free = [c for c in reversed(ascii_uppercase) if all(c not in t for t in terms)]
    missing = [n - len(t) + 3 if "..." in t else 0 for t, n in zip(terms, ranks, strict=False)]
    if len(terms) != len(ranks) + 1 or min(missing) < 0 or max(missing) > len(free):
        return terms
    whole = "".join(free[: max(missing)])
    return [
        t.replace("...", whole[len(whole) - n :])
        for t, n in zip(terms, [*missing, len(whole)], strict=True)
    ]


@implements(np.convolve)
def convolve(a: ArrayLike, v: ArrayLike, mode: str = "full") -> TracedArray:
    """Convolve two vectors."""
    return _windowed(a, v, mode, flipped=True)


@implements(np.correlate)
def correlate(a: ArrayLike, v: ArrayLike, mode: str = "valid") -> TracedArray:
    """Correlate two vectors."""
    return _windowed(a, v, mode, flipped=False)


def _windowed(first: ArrayLike, second: ArrayLike, mode: str, flipped: bool) -> TracedArray:
    """Slide one vector over another, and sum their products."""
    (a, v), dtype = _widened(first, second)
    if (
        a.ndim != 1
        or v.ndim != 1
        or 0 in (*a.shape, *v.shape)
        or mode not in ("full", "same", "valid")
    ):
        fail(
            "one-dimensional arrays that are not empty are taken, with the modes full, "
            "same and valid"
        )
    n, m = known_size(a, 0), known_size(v, 0)
    kernel = v if flipped else v.conj()
    if swapped := m > n:
        a, kernel, n, m = kernel, a, m, n
    before = {"full": m - 1, "same": m // 2, "valid": 0}[mode]
    after = m - 1 - before if mode == "same" else before
    inside = sliding_window_view(pad(xp.ones_like(a, dtype=np.bool_), (before, after)), m)
    products = sliding_window_view(pad(a, (before, after)), m) * (
        xp.flip(kernel) if flipped else kernel
    )
    found = xp.sum(where(inside, products, np.zeros((), a.dtype)), axis=-1, dtype=a.dtype)
    return astype(xp.flip(found) if swapped and not flipped else found, dtype)


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x: TracedArray, window_shape: Any, axis: Axes = None) -> TracedArray:
    """Take the windows of a size at all places, as a read-only view."""
    sizes = (window_shape,) if isinstance(window_shape, (int, np.integer)) else tuple(window_shape)
    over = whole_axes(axis, x.ndim)
    if len(over) != len(sizes):
        fail(f"np.sliding_window_view has a size for each of {len(over)} axes, got {len(sizes)}")
    one, none = (1,) * len(sizes), (0,) * len(sizes)
    wide = tuple(whole_number(n, "a window's size") for n in sizes)
    windows = partial(apply, "builtin.windows", axes=over, sizes=wide, strides=one, dilations=one)
    return x.viewed(partial(windows, before=none, after=none), read_only=True)
