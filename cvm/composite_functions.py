"""NumPy's functions of traced arrays that are written in terms of others: statistics, order, linear algebra and layout.

Each has NumPy's name, parameters and meaning; array_methods has those that are operators. A function whose
result's size depends on elements cannot be compiled, and REFUSED says what there is instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .array_api import Axes, astype, checked, concatenate, subscript, where, whole_axes, whole_axis, whole_number
from .numpy_or_dali_ufuncs import common, known
from .trace import NUMPY_FUNCTIONS, TracedArray, apply, caller, fail, tracer_of

ARRAY_FUNCTIONS: dict[str, Callable[..., Any]] = {}
REFUSED = {
    **dict.fromkeys(("nonzero", "argwhere", "flatnonzero", "unique", "bincount", "extract", "compress", "trim_zeros"),
        "its result's size depends on the elements: use np.where, np.count_nonzero, or np.histogram with edges"),
    **dict.fromkeys(("put", "put_along_axis", "place", "copyto", "fill_diagonal", "putmask"),
        "it changes an array in place: use np.where"),
}  # fmt: skip


def numpy_function(function: Callable[..., Any]) -> Callable[..., Any]:
    """Enters a function into the table, by its name."""
    ARRAY_FUNCTIONS[function.__name__.rstrip("_")] = function
    return function


def _arrays(*given: Any) -> list[Any]:
    """Traced arrays of what was given, each in its own element type."""
    tracer, span = tracer_of(given), caller()
    assert tracer is not None
    return [x if isinstance(x, TracedArray) else known(tracer, np.asarray(x), span) for x in given]


def _size(x: Any, axis: int) -> int:
    n = x.shape[axis]
    if not isinstance(n, int):
        fail("this function needs the size of the axis while compiling")
    return n


def _along(x: Any, axis: int, part: Any) -> Any:
    """A subscript of one axis."""
    return subscript(x, (slice(None),) * axis + (part,))


# statistics


def _count(x: Any, over: tuple[int, ...]) -> Any:
    sizes = [x.shape[a] for a in over]
    if all(isinstance(n, int) for n in sizes):
        return float(np.prod(sizes, dtype=np.float64))
    return np.sum(np.ones_like(x, dtype=np.float64), axis=over)


@numpy_function
def var(x: Any, axis: Axes = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    if dtype is not None or x.dtype.kind in "biu":
        x = astype(x, np.float64 if dtype is None else dtype)
    if x.dtype == np.float16:
        return astype(var(astype(x, np.float32), axis, None, ddof, keepdims), np.float16)
    over = whole_axes(axis, x.ndim)
    deviation = x - np.mean(x, axis=over, keepdims=True)
    squares = np.square(deviation) if x.dtype.kind == "f" else np.square(deviation.real) + np.square(deviation.imag)
    count = _count(x, over)
    rest = max(count - ddof, 0.0) if isinstance(count, float) else np.maximum(count - ddof, 0.0)
    total = np.sum(squares, axis=over, keepdims=keepdims)
    return total / rest if isinstance(rest, float) else astype(total / rest, total.dtype)


@numpy_function
def std(x: Any, axis: Axes = None, dtype: Any = None, ddof: float = 0, keepdims: bool = False) -> Any:
    return np.sqrt(var(x, axis, dtype, ddof, keepdims))


@numpy_function
def average(x: Any, axis: Axes = None, weights: Any = None, keepdims: bool = False) -> Any:
    if weights is None:
        return np.mean(x, axis=axis, keepdims=keepdims)
    x, weights = _arrays(x, weights)
    if weights.ndim != x.ndim:
        if axis is None or isinstance(axis, (tuple, list)) or weights.ndim != 1:
            fail("weights have the shape of the array, or are one for each element along an axis")
        weights = np.expand_dims(weights, [a for a in range(x.ndim) if a != whole_axis(axis, x.ndim)])
    weighted = x * weights
    total = np.sum(broadcast_to(weights, weighted.shape), axis=axis, keepdims=keepdims)
    return np.sum(weighted, axis=axis, keepdims=keepdims) / total


@numpy_function
def median(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
    if axis is None:
        flat = median(np.ravel(x), 0)
        return np.reshape(flat, (1,) * x.ndim) if keepdims else flat
    at = whole_axis(axis, x.ndim)
    ordered, n = sort(x, at), _size(x, at)
    middle = _along(ordered, at, slice((n - 1) // 2, n // 2 + 1))
    found = np.mean(middle, axis=at, keepdims=keepdims)
    last = _along(ordered, at, slice(n - 1, n) if keepdims else n - 1)
    return where(np.isnan(last), np.nan, found) if x.dtype.kind == "f" else found


@numpy_function
def ptp(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
    return np.max(x, axis=axis, keepdims=keepdims) - np.min(x, axis=axis, keepdims=keepdims)


@numpy_function
def count_nonzero(x: Any, axis: Axes = None, *, keepdims: bool = False) -> Any:
    return np.sum(np.not_equal(x, 0), axis=axis, keepdims=keepdims)


def _without_nan(name: str, start: Any, nothing: bool) -> None:
    """A reduction of the elements that are not NaN; `nothing` is NaN where there are none."""

    def reduce(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        function = getattr(np, name)
        if x.dtype.kind != "f":
            return function(x, axis=axis, keepdims=keepdims)
        missing = np.isnan(x)
        found = function(where(missing, start, x), axis=axis, keepdims=keepdims)
        return where(np.all(missing, axis=axis, keepdims=keepdims), np.nan, found) if nothing else found

    reduce.__name__ = f"nan{name}"
    numpy_function(reduce)


_without_nan("sum", 0.0, False)
_without_nan("prod", 1.0, False)
_without_nan("max", -np.inf, True)
_without_nan("min", np.inf, True)


@numpy_function
def nanmean(x: Any, axis: Axes = None, keepdims: bool = False) -> Any:
    if x.dtype.kind != "f":
        return np.mean(x, axis=axis, keepdims=keepdims)
    present = np.sum(~np.isnan(x), axis=axis, keepdims=keepdims)
    return np.nansum(x, axis=axis, keepdims=keepdims) / astype(present, x.dtype)


# order


def _place(operator: str) -> Callable[..., Any]:
    def place(x: Any, axis: int | None = None, *, keepdims: bool = False) -> Any:
        whole = axis is None
        found = apply(operator, np.ravel(x) if whole else x, axis=0 if whole else whole_axis(axis, x.ndim))
        if not keepdims:
            return found
        return np.reshape(found, (1,) * x.ndim) if whole else np.expand_dims(found, axis)

    place.__name__ = operator.partition(".")[2]
    return numpy_function(place)


argmax, argmin = _place("builtin.argmax"), _place("builtin.argmin")


@numpy_function
def argsort(x: Any, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None) -> Any:
    """The order is always stable."""
    return argsort(np.ravel(x), 0) if axis is None else apply("builtin.argsort", x, axis=whole_axis(axis, x.ndim))


@numpy_function
def sort(x: Any, axis: int | None = -1, kind: str | None = None, *, stable: bool | None = None) -> Any:
    if axis is None:
        return sort(np.ravel(x), 0)
    return take_along_axis(x, argsort(x, axis), axis)


def _scan(scalar_op: str, name: str) -> None:
    def scan(x: Any, axis: int | None = None, dtype: Any = None) -> Any:
        x = np.ravel(x) if axis is None else x
        wide = (np.uint64 if x.dtype.kind == "u" else np.int64) if x.dtype.kind in "biu" else x.dtype
        x = astype(x, wide if dtype is None else dtype)
        return apply("builtin.cumulative", x, axis=whole_axis(axis or 0, x.ndim), scalar_op=scalar_op)

    scan.__name__ = name
    numpy_function(scan)


_scan("add", "cumsum")
_scan("mul", "cumprod")


@numpy_function
def diff(x: Any, n: int = 1, axis: int = -1) -> Any:
    at = whole_axis(axis, x.ndim)
    for _ in range(whole_number(n, "n")):
        later, sooner = _along(x, at, slice(1, None)), _along(x, at, slice(None, -1))
        x = np.not_equal(later, sooner) if x.dtype == np.bool_ else later - sooner
    return x


@numpy_function
def searchsorted(a: Any, v: Any, side: str = "left") -> Any:
    a, v = common(_arrays(a, v))
    if a.ndim != 1 or side not in ("left", "right"):
        fail("np.searchsorted takes a one-dimensional sorted array, and the side left or right")
    each = np.expand_dims(v, v.ndim)
    before = a < each if side == "left" else a <= each
    if a.dtype.kind == "f":  # NaN is above all numbers
        before = before | (np.isnan(each) & (~np.isnan(a) if side == "left" else True))
    return np.sum(before, axis=-1)


@numpy_function
def digitize(x: Any, bins: Any, right: bool = False) -> Any:
    edges = _known_numbers(bins, "bins")
    if len(edges) > 1 and edges[0] > edges[-1]:
        return len(edges) - searchsorted(edges[::-1], x, "left" if right else "right")
    return searchsorted(edges, x, "left" if right else "right")


@numpy_function
def histogram(x: Any, bins: Any) -> Any:
    """Count the elements between known edges; the last interval is closed."""
    edges = _known_numbers(bins, "the edges of np.histogram")
    flat = np.expand_dims(np.ravel(x), 1)
    below = np.concatenate([np.sum(flat < edges[:-1], axis=0), np.sum(flat <= edges[-1:], axis=0)])
    return diff(below), edges


def _known_numbers(given: Any, what: str) -> np.ndarray:
    if isinstance(given, TracedArray) or np.ndim(given) != 1:
        fail(f"{what} are a one-dimensional array that is known while compiling")
    return np.asarray(given)


# elements by number


@numpy_function
def take(x: Any, indices: Any, axis: int | None = None, mode: str = "raise") -> Any:
    x, at = _arrays(x, indices)
    if mode not in ("raise", "clip"):
        fail(f"np.take has the modes raise and clip here, got {mode!r}")
    x = np.ravel(x) if axis is None else x
    return apply("builtin.gather", x, [_as_index(at)], axes=(whole_axis(axis or 0, x.ndim),), mode=mode)


def _as_index(x: TracedArray) -> TracedArray:
    if x.dtype.kind not in "iu":
        fail(f"elements are numbered by integers, got {x.dtype}")
    return astype(x, np.int64)


@numpy_function
def take_along_axis(x: Any, indices: Any, axis: int | None = -1) -> Any:
    x, at = _arrays(x, indices)
    if axis is None:
        x, axis = np.ravel(x), 0
    along = whole_axis(axis, x.ndim)
    places = [_as_index(at) if a == along else apply("builtin.iota_like", at, axis=a) for a in range(x.ndim)]
    return apply("builtin.gather", x, places, axes=tuple(range(x.ndim)))


@numpy_function
def diagonal(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    first, second = whole_axis(axis1, x.ndim), whole_axis(axis2, x.ndim)
    x = np.moveaxis(np.moveaxis(x, first, -1), second - (second > first), -1)
    rows, columns = _size(x, x.ndim - 2), _size(x, x.ndim - 1)
    start = max(-offset, 0), max(offset, 0)
    count = max(min(rows - start[0], columns - start[1]), 0)
    places = [np.arange(count) + n for n in start]
    return apply("builtin.gather", x, _arrays(x, *places)[1:], axes=(x.ndim - 2, x.ndim - 1))


@numpy_function
def diag(x: Any, k: int = 0) -> Any:
    if x.ndim == 2:
        return diagonal(x, k)
    n = _size(x, 0) + abs(k)
    padded = pad(x, (max(k, 0), max(-k, 0)))
    return where(np.eye(n, k=k, dtype=bool), np.expand_dims(padded, 0), np.zeros((), x.dtype))


@numpy_function
def trace(x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return np.sum(diagonal(x, offset, axis1, axis2), axis=-1)


@numpy_function
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Any:
    x, xp, fp = (astype(a, np.float64) for a in _arrays(x, xp, fp))
    n = _size(xp, 0)
    at = np.clip(searchsorted(xp, x, "right") - 1, 0, max(n - 2, 0))
    x0, y0 = take(xp, at), take(fp, at)
    slope = (take(fp, np.minimum(at + 1, n - 1)) - y0) / (take(xp, np.minimum(at + 1, n - 1)) - x0)
    found = slope * (x - x0) + y0
    found = where(x >= xp[-1], fp[-1], found)
    found = where(x < xp[0], fp[0] if left is None else left, found)
    found = found if right is None else where(x > xp[-1], right, found)
    return where(np.isnan(x), x, found)


# products


@numpy_function
def outer(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    return np.expand_dims(np.ravel(a), 1) * np.expand_dims(np.ravel(b), 0)


@numpy_function
def vecdot(a: Any, b: Any, axis: int = -1) -> Any:
    a, b = _arrays(a, b)
    return np.sum(
        (np.conjugate(a) if a.dtype.kind == "c" else a) * b, axis=axis, dtype=np.result_type(a.dtype, b.dtype)
    )


@numpy_function
def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = common(_arrays(a, b))
    if isinstance(axes, (int, np.integer)):
        axes = tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    summed = [whole_axes(n, x.ndim) if not isinstance(n, (int, np.integer)) else (whole_axis(n, x.ndim),) for n, x in zip(axes, (a, b), strict=True)]  # fmt: skip
    letters = iter("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
    of_a = [next(letters) for _ in range(a.ndim)]
    of_b = [of_a[summed[0][summed[1].index(n)]] if n in summed[1] else next(letters) for n in range(b.ndim)]
    kept = [c for n, c in enumerate(of_a) if n not in summed[0]] + [c for n, c in enumerate(of_b) if n not in summed[1]]
    return einsum(f"{''.join(of_a)},{''.join(of_b)}->{''.join(kept)}", a, b)


@numpy_function
def inner(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    return tensordot(a, b, ((-1,), (-1,))) if a.ndim and b.ndim else a * b


@numpy_function
def kron(a: Any, b: Any) -> Any:
    a, b = _arrays(a, b)
    rank = max(a.ndim, b.ndim)
    a, b = (np.reshape(x, (1,) * (rank - x.ndim) + x.shape) for x in (a, b))
    spread = [np.expand_dims(x, [2 * n + k for n in range(rank)]) for x, k in ((a, 1), (b, 0))]
    return np.reshape(spread[0] * spread[1], tuple(m * n for m, n in zip(a.shape, b.shape, strict=True)))


@numpy_function
def cross(a: Any, b: Any, axis: int = -1) -> Any:
    a, b = _arrays(a, b)
    first, second = whole_axis(axis, a.ndim), whole_axis(axis, b.ndim)
    if _size(a, first) != 3 or _size(b, second) != 3:
        fail("np.cross takes vectors of three components")
    (x, y, z), (u, v, w) = ([_along(c, at, n) for n in range(3)] for c, at in ((a, first), (b, second)))
    return np.stack([y * w - z * v, z * u - x * w, x * v - y * u], axis=axis)


@numpy_function
def norm(x: Any, ord: Any = None, axis: Axes = None, keepdims: bool = False) -> Any:
    if x.dtype.kind in "biu":
        x = astype(x, np.float64)
    single = (axis is not None and not isinstance(axis, (tuple, list))) or (axis is None and x.ndim == 1)
    if ord is None or (ord == 2 and single):
        return np.sqrt(np.sum(np.square(np.absolute(x)), axis=axis, keepdims=keepdims))
    if not single or ord not in (1, np.inf, -np.inf):
        fail("np.linalg.norm of traced arrays has ord None, and of vectors 1, 2, inf and -inf")
    if ord == 1:
        return np.sum(np.absolute(x), axis=axis, keepdims=keepdims)
    return (np.max if ord > 0 else np.min)(np.absolute(x), axis=axis, keepdims=keepdims)


@numpy_function
def einsum(subscripts: str, *operands: Any) -> Any:
    """Each operand is laid out along all indices, products are taken from the left, and what the result lacks is summed."""
    arrays = common(_arrays(*operands))
    text = subscripts.replace(" ", "")
    given, arrow, result = text.partition("->")
    terms = given.split(",")
    if "." in text or len(terms) != len(arrays) or any(len(t) != x.ndim for t, x in zip(terms, arrays, strict=False)):
        fail(f"np.einsum takes an index letter for each axis of its {len(arrays)} operands, got {subscripts!r}")
    if not arrow:
        result = "".join(sorted(c for c in set(given) - {","} if given.count(c) == 1))
    for n, term in enumerate(terms):
        for c in dict.fromkeys(term):
            while terms[n].count(c) > 1:
                first = terms[n].index(c)
                second = terms[n].index(c, first + 1)
                arrays[n] = diagonal(arrays[n], 0, first, second)
                terms[n] = terms[n][:first] + terms[n][first + 1 : second] + terms[n][second + 1 :] + c
    letters = result + "".join(sorted(set("".join(terms)) - set(result)))
    if len(set(result)) < len(result) or set(result) - set("".join(terms)):
        fail(f"the result of np.einsum has each of its indices once, and operands have them: got {subscripts!r}")
    spread = []
    for term, x in zip(terms, arrays, strict=True):
        x = np.transpose(x, sorted(range(x.ndim), key=lambda a, t=term: letters.index(t[a])))
        spread.append(np.expand_dims(x, [n for n, c in enumerate(letters) if c not in term]))
    product = spread[0]
    for x in spread[1:]:
        product = product * x
    summed = tuple(range(len(result), len(letters)))
    return np.sum(product, axis=summed, dtype=product.dtype) if summed else product


def _windowed(a: Any, v: Any, mode: str, flipped: bool) -> Any:
    a, v = common(_arrays(a, v))
    n, m = _size(a, 0), _size(v, 0)
    if a.ndim != 1 or v.ndim != 1 or mode not in ("full", "same", "valid") or not n or not m:
        fail("one-dimensional arrays that are not empty are taken, with the modes full, same and valid")
    if flipped and m > n:
        a, v, n, m = v, a, m, n
    elif m > n:
        fail("np.correlate takes the longer array first here")
    around = {"full": m - 1, "valid": 0, "same": None}[mode]
    before = around if around is not None else (m - 1) // 2 if not flipped or m % 2 else m // 2 - 1 + (m % 2)
    after = around if around is not None else m - 1 - before
    padded = pad(a, (before, after))
    kernel = np.flip(v) if flipped else np.conjugate(v) if v.dtype.kind == "c" else v
    return np.sum(sliding_window_view(padded, m) * kernel, axis=-1, dtype=a.dtype)


@numpy_function
def convolve(a: Any, v: Any, mode: str = "full") -> Any:
    return _windowed(a, v, mode, flipped=True)


@numpy_function
def correlate(a: Any, v: Any, mode: str = "valid") -> Any:
    return _windowed(a, v, mode, flipped=False)


@numpy_function
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Any:
    sizes = (window_shape,) if isinstance(window_shape, (int, np.integer)) else tuple(window_shape)
    over = whole_axes(axis if axis is not None else tuple(range(len(sizes))), x.ndim)
    one, none = (1,) * len(sizes), (0,) * len(sizes)
    wide = [whole_number(n, "a window's size") for n in sizes]
    return apply(
        "builtin.windows", x, axes=over, sizes=tuple(wide), strides=one, dilations=one, before=none, after=none
    )


# layout


@numpy_function
def broadcast_to(x: Any, shape: Any) -> Any:
    wanted = (shape,) if isinstance(shape, (int, np.integer)) else tuple(shape)
    if x.shape == wanted:
        return x
    return apply("theano.elemwise", np.zeros(wanted, np.bool_), x, scalar_op="second")


@numpy_function
def tile(x: Any, reps: Any) -> Any:
    counts = (reps,) if isinstance(reps, (int, np.integer)) else tuple(reps)
    return apply("cvm.tile", x, reps=tuple(whole_number(n, "a repetition") for n in counts))


@numpy_function
def roll(x: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.reshape(roll(np.ravel(x), shift, 0), x.shape)
    pairs = zip(np.broadcast_to(shift, np.shape(axis)).ravel(), np.ravel(axis), strict=True)
    for count, a in pairs:
        at = whole_axis(int(a), x.ndim)
        n = _size(x, at)
        cut = n - int(count) % n if n else 0
        if 0 < cut < n:
            x = concatenate([_along(x, at, slice(cut, None)), _along(x, at, slice(None, cut))], at)
    return x


@numpy_function
def rot90(x: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    first, second = (whole_axis(a, x.ndim) for a in axes)
    turns = k % 4
    if turns == 0:
        return x
    if turns == 2:
        return np.flip(x, (first, second))
    return np.flip(np.swapaxes(x, first, second), first if turns == 1 else second)


@numpy_function
def pad(x: Any, pad_width: Any, mode: str = "constant", constant_values: Any = 0) -> Any:
    if mode not in ("constant", "edge", "reflect", "symmetric", "wrap"):
        fail(f"np.pad has the modes constant, edge, reflect, symmetric and wrap here, got {mode!r}")
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2))
    for a, (before, after) in enumerate(widths.tolist()):
        if not before and not after:
            continue
        n = _size(x, a)
        if mode == "constant":
            low, high = np.broadcast_to(np.asarray(constant_values, x.dtype), (x.ndim, 2))[a]
            sides = [np.full((*x.shape[:a], w, *x.shape[a + 1 :]), v) for w, v in ((before, low), (after, high))]
            x = concatenate([sides[0], x, sides[1]], a)
        else:
            x = take(x, np.pad(np.arange(n), (before, after), mode=mode), a)  # type: ignore[call-overload]
    return x


@numpy_function
def triu(x: Any, k: int = 0) -> Any:
    return where(~np.tri(*_matrix(x), k=k - 1, dtype=bool), x, np.zeros((), x.dtype))


@numpy_function
def tril(x: Any, k: int = 0) -> Any:
    return where(np.tri(*_matrix(x), k=k, dtype=bool), x, np.zeros((), x.dtype))


def _matrix(x: TracedArray) -> tuple[int, int]:
    if x.ndim < 2:
        fail("a matrix, or a stack of them, is taken")
    return _size(x, x.ndim - 2), _size(x, x.ndim - 1)


def _filled(name: str, value: Any) -> None:
    def like(x: Any, dtype: Any = None) -> Any:
        wanted = x.dtype if dtype is None else np.dtype(dtype)
        return apply("theano.elemwise", x, np.asarray(value, wanted), scalar_op="second")

    like.__name__ = name
    numpy_function(like)


_filled("zeros_like", 0)
_filled("ones_like", 1)


@numpy_function
def full_like(x: Any, fill_value: Any, dtype: Any = None) -> Any:
    x, value = _arrays(x, fill_value)
    return apply("theano.elemwise", x, astype(value, x.dtype if dtype is None else dtype), scalar_op="second")


@numpy_function
def array_split(x: Any, sections: Any, axis: int = 0) -> Any:
    at = whole_axis(axis, x.ndim)
    pieces = np.array_split(np.arange(_size(x, at)), sections)
    starts = np.cumsum([0, *(len(p) for p in pieces)]).tolist()
    return [_along(x, at, slice(low, high)) for low, high in pairwise(starts)]


@numpy_function
def split(x: Any, sections: Any, axis: int = 0) -> Any:
    n = _size(x, whole_axis(axis, x.ndim))
    if isinstance(sections, (int, np.integer)) and n % sections:
        fail(f"an axis of {n} elements has no {sections} equal parts: use np.array_split")
    return array_split(x, sections, axis)


@numpy_function
def vstack(arrays: Sequence[Any]) -> Any:
    return concatenate([np.expand_dims(x, 0) if np.ndim(x) < 2 else x for x in _arrays(*arrays)], 0)


@numpy_function
def hstack(arrays: Sequence[Any]) -> Any:
    found = [np.reshape(x, (1,)) if x.ndim == 0 else x for x in _arrays(*arrays)]
    return concatenate(found, 0 if found[0].ndim == 1 else 1)


@numpy_function
def meshgrid(*arrays: Any, indexing: str = "xy") -> Any:
    flat = [np.ravel(x) for x in _arrays(*arrays)]
    order = [1, 0, *range(2, len(flat))] if indexing == "xy" and len(flat) > 1 else list(range(len(flat)))
    shape = [_size(flat[n], 0) for n in order]
    spread = [np.expand_dims(x, [a for a in range(len(flat)) if order[a] != n]) for n, x in enumerate(flat)]
    return tuple(broadcast_to(x, tuple(shape)) for x in spread)


@numpy_function
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    found = default
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        found = where(condition, choice, found)
    return found


@numpy_function
def nan_to_num(x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    if x.dtype.kind != "f":
        return x
    limits = np.finfo(x.dtype)
    x = where(np.isnan(x), nan, x)
    x = where(x == np.inf, limits.max if posinf is None else posinf, x)
    return where(x == -np.inf, limits.min if neginf is None else neginf, x)


@numpy_function
def round_(x: Any, decimals: int = 0) -> Any:
    if x.dtype.kind in "iu" and decimals >= 0:
        return x
    if x.dtype == np.bool_:
        x = astype(x, np.float16)
    if x.dtype.kind != "f":
        fail("np.round takes floats, and integers with no negative decimals")
    if decimals == 0:
        return np.rint(x)
    scale = np.asarray(10.0 ** abs(decimals), x.dtype)
    return np.rint(x * scale) / scale if decimals > 0 else np.rint(x / scale) * scale


@numpy_function
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    a, b = _arrays(a, b)
    if b.dtype.kind in "biu":
        b = astype(b, np.result_type(b.dtype, 1.0))
    near = np.less_equal(np.abs(a - b), atol + rtol * np.abs(b)) & np.isfinite(b)
    found = near | (a == b)
    return found | (np.isnan(a) & np.isnan(b)) if equal_nan else found


@numpy_function
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return np.all(isclose(a, b, rtol, atol, equal_nan))


@numpy_function
def real(x: Any) -> Any:
    return apply("theano.elemwise", x, scalar_op="real") if x.dtype.kind == "c" else x


@numpy_function
def imag(x: Any) -> Any:
    return apply("theano.elemwise", x, scalar_op="imag") if x.dtype.kind == "c" else np.zeros_like(x)


def _refusal(name: str, reason: str) -> Callable[..., Any]:
    return lambda *_, **__: fail(f"np.{name} cannot be compiled: {reason}")


ARRAY_FUNCTIONS["around"] = round_
METHODS = ("var", "std", "argmax", "argmin", "argsort", "cumsum", "cumprod", "take", "diagonal", "trace", "round")
NUMPY_FUNCTIONS |= {n: checked(f"np.{n}", f) for n, f in ARRAY_FUNCTIONS.items()}
NUMPY_FUNCTIONS |= {n: _refusal(n, reason) for n, reason in REFUSED.items()}
for _name in METHODS:
    setattr(TracedArray, _name, checked(_name, ARRAY_FUNCTIONS[_name]))
for _name in ("real", "imag"):
    setattr(TracedArray, _name, property(ARRAY_FUNCTIONS[_name]))
