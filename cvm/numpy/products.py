"""NumPy's products of traced arrays, norms, and what slides one array over another."""

from functools import partial, reduce
from operator import mul
from string import ascii_letters, ascii_uppercase
from typing import Any

import numpy as np

from ..tracing.trace import apply, fail
from .array_api import REDUCTIONS, Axes, astype, matmul, where, whole_axes, whole_axis, whole_number
from .elements import diagonal
from .layout import pad
from .table import ARRAY_FUNCTIONS, along_axis, arrays_of, known_size, numpy_function
from .ufuncs import common


@numpy_function
def outer(a: Any, b: Any) -> Any:
    a, b = arrays_of(a, b)
    return np.expand_dims(np.ravel(a), 1) * np.expand_dims(np.ravel(b), 0)


def _widened(*operands: Any) -> tuple[list[Any], np.dtype]:
    """The operands in one type, and it; f16 as f32, since products are not rounded before they are
    summed.
    """
    arrays = common(arrays_of(*operands))
    dtype = arrays[0].dtype
    return [astype(x, np.float32) for x in arrays] if dtype == np.float16 else arrays, dtype


@numpy_function
def vecdot(a: Any, b: Any, axis: int = -1) -> Any:
    (a, b), dtype = _widened(a, b)
    if not a.ndim or not b.ndim:
        fail("np.vecdot takes vectors, or stacks of them")
    a, b = (x if axis == -1 else np.moveaxis(x, axis, -1) for x in (a, b))
    if a.shape[-1] != b.shape[-1]:
        fail(f"the sizes that are summed over differ: {a.shape[-1]} and {b.shape[-1]}")
    return astype(np.sum(a.conj() * b, axis=-1, dtype=a.dtype), dtype)


@numpy_function
def dot(a: Any, b: Any) -> Any:
    a, b = arrays_of(a, b)
    if not a.ndim or not b.ndim:
        return a * b
    return (
        tensordot(a, b, ((-1,), (-2,)))
        if a.ndim > 1 and b.ndim > 1 and a.ndim + b.ndim > 4
        else matmul(a, b)
    )


@numpy_function
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = common(arrays_of(a, b))
    if isinstance(axes, (int, np.integer)):
        axes = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    summed = [whole_axes(n, x.ndim) for n, x in zip(axes, (a, b), strict=True)]
    if [a.shape[n] for n in summed[0]] != [b.shape[n] for n in summed[1]]:
        fail(f"the sizes that are summed over differ: {axes} of {a.type} and {b.type}")
    letters = iter(ascii_letters)
    of_a = [next(letters) for _ in range(a.ndim)]
    of_b = [
        of_a[summed[0][summed[1].index(n)]] if n in summed[1] else next(letters)
        for n in range(b.ndim)
    ]
    kept = [c for n, c in enumerate(of_a) if n not in summed[0]] + [
        c for n, c in enumerate(of_b) if n not in summed[1]
    ]
    return einsum(f"{''.join(of_a)},{''.join(of_b)}->{''.join(kept)}", a, b)


@numpy_function
def inner(a: Any, b: Any) -> Any:
    a, b = arrays_of(a, b)
    return tensordot(a, b, ((-1,), (-1,))) if a.ndim and b.ndim else a * b


@numpy_function
def kron(a: Any, b: Any) -> Any:
    a, b = arrays_of(a, b)
    rank = max(a.ndim, b.ndim)
    a, b = (np.reshape(x, (1,) * (rank - x.ndim) + x.shape) for x in (a, b))
    spread = [np.expand_dims(x, [2 * n + k for n in range(rank)]) for x, k in ((a, 1), (b, 0))]
    return np.reshape(
        spread[0] * spread[1], tuple(m * n for m, n in zip(a.shape, b.shape, strict=True))
    )


@numpy_function
def cross(a: Any, b: Any, axis: int = -1) -> Any:
    a, b = arrays_of(a, b)
    first, second = whole_axis(axis, a.ndim), whole_axis(axis, b.ndim)
    if known_size(a, first) != 3 or known_size(b, second) != 3:
        fail("np.cross takes vectors of three components")
    (x, y, z), (u, v, w) = (
        [along_axis(c, at, n) for n in range(3)] for c, at in ((a, first), (b, second))
    )
    return np.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=axis)


def norm(x: Any, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Any:
    if x.dtype.kind in "biu":
        x = astype(x, np.float64)
    over = whole_axes(axis, x.ndim)
    plain = ord is None and (axis is None or len(over) in (1, 2))
    if plain or (ord == "fro" and len(over) == 2) or (ord == 2 and len(over) == 1):
        squares = np.square(x.real) + np.square(x.imag) if x.dtype.kind == "c" else np.square(x)
        return np.sqrt(np.sum(squares, axis=over, keepdims=keepdims))
    size = np.absolute(x)
    least = ord in (-1, -np.inf)
    extreme = partial(
        REDUCTIONS["min" if least else "max"], initial=None if least or 0 not in x.shape else 0
    )
    if len(over) == 2 and ord in (1, -1, np.inf, -np.inf):
        summed, chosen = over if abs(ord) == 1 else over[::-1]
        found = extreme(np.sum(size, axis=summed, keepdims=True), axis=chosen, keepdims=True)
        return found if keepdims else np.squeeze(found, over)
    if len(over) != 1 or not isinstance(ord, (int, float)):
        fail(
            "np.linalg.norm has ord None, 'fro', 1, -1, inf and -inf for matrices, and "
            "numbers for vectors"
        )
    if ord in (np.inf, -np.inf):
        return extreme(size, axis=over, keepdims=keepdims)
    if ord == 0:
        return astype(np.sum(np.not_equal(x, 0), axis=over, keepdims=keepdims), size.dtype)
    total = np.sum(size if ord == 1 else np.power(size, ord), axis=over, keepdims=keepdims)
    return total if ord == 1 else np.power(total, 1 / ord)


@numpy_function
def einsum(subscripts: str, *operands: Any) -> Any:
    """Each operand is laid out along all indices, products are taken from the left, and what the
    result lacks is summed.
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
        x = np.transpose(x, sorted(range(x.ndim), key=lambda a, t=term: letters.index(t[a])))
        spread.append(np.expand_dims(x, [n for n, c in enumerate(letters) if c not in term]))
    summed = tuple(range(len(result), len(letters)))
    if len(spread) == 1 and not summed:
        return spread[0]  # a view
    spread, dtype = _widened(*spread)
    product = reduce(mul, spread)
    return astype(np.sum(product, axis=summed, dtype=product.dtype) if summed else product, dtype)


def _without_dots(terms: list[str], ranks: list[int]) -> list[str]:
    """The operands' terms and the result's with letters in the place of an ellipsis."""
    free = [c for c in reversed(ascii_uppercase) if all(c not in t for t in terms)]
    missing = [n - len(t) + 3 if "..." in t else 0 for t, n in zip(terms, ranks, strict=False)]
    if len(terms) != len(ranks) + 1 or min(missing) < 0 or max(missing) > len(free):
        return terms
    whole = "".join(free[: max(missing)])
    return [
        t.replace("...", whole[len(whole) - n :])
        for t, n in zip(terms, [*missing, len(whole)], strict=True)
    ]


def _windowed(a: Any, v: Any, mode: str, flipped: bool) -> Any:
    (a, v), dtype = _widened(a, v)
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
    inside = sliding_window_view(pad(np.ones_like(a, dtype=np.bool_), (before, after)), m)
    products = sliding_window_view(pad(a, (before, after)), m) * (
        np.flip(kernel) if flipped else kernel
    )
    found = np.sum(where(inside, products, np.zeros((), a.dtype)), axis=-1, dtype=a.dtype)
    return astype(np.flip(found) if swapped and not flipped else found, dtype)


@numpy_function
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Any:
    sizes = (window_shape,) if isinstance(window_shape, (int, np.integer)) else tuple(window_shape)
    over = whole_axes(axis, x.ndim)
    if len(over) != len(sizes):
        fail(f"np.sliding_window_view has a size for each of {len(over)} axes, got {len(sizes)}")
    one, none = (1,) * len(sizes), (0,) * len(sizes)
    wide = tuple(whole_number(n, "a window's size") for n in sizes)
    windows = partial(apply, "builtin.windows", axes=over, sizes=wide, strides=one, dilations=one)
    return x.viewed(partial(windows, before=none, after=none), read_only=True)


def matrix_power(a: Any, n: int) -> Any:
    """Products by squaring; negative powers would need an inverse."""
    if whole_number(n, "n") < 0:
        fail("np.linalg.matrix_power takes powers from 0 on here")
    found = None
    for bit in bin(n)[:1:-1]:
        found = a if bit == "1" and found is None else matmul(found, a) if bit == "1" else found
        a = matmul(a, a)
    return np.broadcast_to(np.eye(a.shape[-1], dtype=a.dtype), a.shape) if found is None else found


def vector_norm(x: Any, *, axis: Axes = None, keepdims: bool = False, ord: Any = 2) -> Any:
    if axis is None or isinstance(axis, (int, np.integer)):
        found = norm(np.ravel(x) if axis is None else x, ord, 0 if axis is None else axis, keepdims)
        return np.reshape(found, (1,) * x.ndim) if axis is None and keepdims else found
    return fail("np.linalg.vector_norm takes one axis, or all of them, here")


def _multi_dot(arrays: Any) -> Any:
    first, *middle, last = [x.ndim for x in arrays_of(*arrays)]
    if middle and ({*middle} != {2} or not {first, last} <= {1, 2}):
        fail("np.linalg.multi_dot takes matrices; the first and the last one may be vectors")
    return reduce(dot, arrays)


LINALG = norm, cross, tensordot, vecdot, matmul, matrix_power, vector_norm
ARRAY_FUNCTIONS |= {f"linalg.{f.__name__}": f for f in LINALG}
ARRAY_FUNCTIONS |= {
    "convolve": lambda a, v, mode="full": _windowed(a, v, mode, flipped=True),
    "correlate": lambda a, v, mode="valid": _windowed(a, v, mode, flipped=False),
    "matvec": lambda a, b: np.squeeze(matmul(a, np.expand_dims(arrays_of(b, a)[0], -1)), -1),
    "vecmat": lambda a, b: np.squeeze(matmul(np.expand_dims(arrays_of(a, b)[0].conj(), -2), b), -2),
    "linalg.outer": lambda a, b: einsum("i,j->ij", a, b),  # of vectors only
    "linalg.trace": lambda x, offset=0: np.trace(x, offset, -2, -1),
    "linalg.diagonal": lambda x, offset=0: diagonal(x, offset, -2, -1),
    "linalg.matrix_norm": lambda x, ord="fro", keepdims=False: norm(x, ord, (-2, -1), keepdims),
    "linalg.multi_dot": _multi_dot,
    **dict.fromkeys(
        ("matrix_transpose", "linalg.matrix_transpose"), lambda x: np.swapaxes(x, -1, -2)
    ),
}
