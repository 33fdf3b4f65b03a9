"""Random numbers that are the same on every target, machine and number of threads; those of
`normal` are within 2 ulp on the reference.

A key of 64 bits and a counter give each number, with no state between calls: Philox-4x32 in 10
rounds of J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011. The functions take
arrays or traced arrays, and those that end in `_at` take numbers in `@cvm.kernel` functions, too:
`uniform_at(key, i)` is element `i` of `uniform(key, (n,))`, in C order for several axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from inspect import signature
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from cvm.dialect.types.sizes import Size

from .kernels.library import LibraryKernel
from .numpy.conversion import xp
from .tracing.diagnose import fail
from .tracing.trace import TracedArray, apply, tracer_of
from .transforms.traced_function import TracedFunction, traced

if TYPE_CHECKING:
    from .tracing.array_types import ArrayLike, Dim, Dtype

__all__ = [
    "bernoulli",
    "bits",
    "bits_at",
    "fold_in",
    "integers",
    "key",
    "normal",
    "permutation",
    "split",
    "uniform",
    "uniform_at",
]

MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
WEYL = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)  # what keys grow by in a round
HALF = np.uint64(32)  # bits
NUMBERS, KEYS = np.uint32(0), np.uint32(1)  # the last word of counters: keys are no numbers
STATIC = {"shape", "dtype", "count", "low_integer", "high_integer"}  # known while tracing
Shape = int | Sequence["Dim"]
F = TypeVar("F", bound=Callable[..., Any])


def key(seed: int) -> np.ndarray:
    """Return the key of a seed, two words of 32 bits, the lower one first.

    Args:
        seed: An integer from 0 to 2^64 - 1.

    Raises:
        Error: The seed is no such integer.
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 1 << 64:
        fail(f"a seed is an integer from 0 to 2^64 - 1, got {seed!r}")
    return np.array([int(seed) & 0xFFFFFFFF, int(seed) >> 32], np.uint32)


def _on_arrays(function: F) -> F:
    """A function of traced arrays that is compiled for arrays, for each shape and element type."""
    of = signature(function)

    @lru_cache(maxsize=256)
    def compiled(names: tuple[str, ...], static: tuple[tuple[str, Any], ...]) -> TracedFunction:
        return traced(
            lambda *arrays: function(**dict(static), **dict(zip(names, arrays, strict=True)))
        )

    @wraps(function)
    def call(*args: object, **kwargs: object) -> Any:
        bound = of.bind(*args, **kwargs)
        if tracer_of(tuple(bound.arguments.values())) is not None:
            return function(*args, **kwargs)
        static = {n: v for n, v in bound.arguments.items() if n in STATIC}
        if "shape" in static:
            static["shape"] = _sizes(static["shape"])
        if "dtype" in static:
            static["dtype"] = _type(static["dtype"])
        if "count" in static:
            _sizes(static["count"])
        arrays = {n: np.asarray(v) for n, v in bound.arguments.items() if n not in STATIC}
        return compiled(tuple(arrays), tuple(static.items()))(*arrays.values())

    return call  # type: ignore[return-value]


def _sizes(shape: Any) -> tuple[Dim, ...]:
    """Return the sizes of a shape, of which a number alone is one."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for n in sizes:
        known = isinstance(n, (int, np.integer)) and not isinstance(n, bool)
        if not (isinstance(n, Size) or (known and n >= 0)):
            fail(f"sizes are integers from 0, got {shape!r}")
    return sizes


def _type(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy type of a name or a type."""
    try:
        return np.dtype(dtype)
    except TypeError:
        fail(f"expected a type of NumPy, got {dtype!r}")


def _words(given: Any, low: Any, high: Any, kind: np.uint32, more: Any = None) -> list[Any]:
    """Return four words for each counter: two words of it, one more, and its kind."""
    keys = [given[0], given[1]]
    zero = low ^ low
    a, b, c, d = low, high, zero if more is None else more, zero + kind
    for _ in range(10):
        p, q = a.astype(np.uint64) * MULTIPLIERS[0], c.astype(np.uint64) * MULTIPLIERS[1]
        a, c = _upper(q) ^ b ^ keys[0], _upper(p) ^ d ^ keys[1]
        b, d = q.astype(np.uint32), p.astype(np.uint32)
        keys = [k + w for k, w in zip(keys, WEYL, strict=True)]
    return [a, b, c, d]


def _upper(x: Any) -> Any:
    return (x >> HALF).astype(np.uint32)


def _counters(given: TracedArray, blocks: Dim) -> tuple[TracedArray, TracedArray]:
    """Return the words of the counters 0, 1, ..., `blocks` - 1."""
    zeros = xp.broadcast_to(given[0], (blocks,))
    at = apply("builtin.iota_like", zeros, axis=0).astype(np.uint64)
    return at.astype(np.uint32), _upper(at)


@_on_arrays
def split(key: ArrayLike, count: int = 2) -> Any:
    """Return keys of their own: a row of ui32 for each.

    Args:
        key: Two ui32.
        count: The number of keys.
    """
    given = _key(key)
    low, high = _counters(given, count)
    return xp.stack(_words(given, low, high, KEYS)[:2], axis=1)


@_on_arrays
def fold_in(key: ArrayLike, data: ArrayLike) -> Any:
    """Return the key of a number under a key, such as that of a step or of a layer.

    Args:
        key: Two ui32.
        data: An integer, of which 64 bits count.
    """
    whole = _array(data)
    if whole.ndim or whole.dtype.kind not in "iu":
        fail(f"data is one integer, got {whole.dtype} of shape {whole.shape}")
    wide = whole.astype(np.uint64)
    words = _words(_key(key), wide.astype(np.uint32), _upper(wide), KEYS, np.uint32(1))
    return xp.stack(words[:2])


@_on_arrays
def bits(key: ArrayLike, shape: Shape = (), dtype: Dtype = np.uint32) -> Any:
    """Return random bits as ui32 or ui64.

    Block `n` of a key is the four words of Philox for the counter `n`; elements take its words in
    order, those of ui64 two, the lower one first.

    Args:
        key: Two ui32.
        shape: The shape of the result.
        dtype: `np.uint32` or `np.uint64`.
    """
    given, sizes = _key(key), _sizes(shape)
    if (kind := _type(dtype)) not in (np.uint32, np.uint64):
        fail(f"random bits are uint32 or uint64, got {kind}")
    total: Any = 1
    for n in sizes:
        total = total * n
    each = 4 * 4 // kind.itemsize
    words = _words(given, *_counters(given, (total + each - 1) // each), NUMBERS)
    if kind == np.uint64:
        low, high = words[::2], words[1::2]
        words = [
            x.astype(np.uint64) | y.astype(np.uint64) << HALF
            for x, y in zip(low, high, strict=True)
        ]
    return xp.reshape(xp.stack(words, axis=1).reshape(-1)[:total], sizes)


def _array(given: Any) -> Any:
    return given if isinstance(given, TracedArray) else xp.asarray(given)


def _key(given: Any) -> Any:
    """Return a key, which is two ui32."""
    if (found := _array(given)).dtype != np.uint32 or found.shape != (2,):
        said = f"{found.dtype} of shape {found.shape}"
        fail(f"a key is two ui32, as cvm.random.key gives it, got {said}")
    return found


def _kind(dtype: Dtype) -> np.dtype[Any]:
    """Return the type of floats, f32 or f64."""
    if (kind := _type(dtype)) not in (np.float32, np.float64):
        fail(f"random numbers are float32 or float64, got {kind}")
    return kind


@_on_arrays
def uniform(
    key: ArrayLike,
    shape: Shape = (),
    dtype: Dtype = np.float32,
    low: ArrayLike = 0.0,
    high: ArrayLike = 1.0,
) -> Any:
    """Return numbers from `low` up to, but without, `high`.

    A number is `u * (high - low) + low`, rounded after each operation, for `u` a multiple of 2^-24
    in f32, or of 2^-53 in f64, that is below 1 and exact; near `high` it may round to it.

    Args:
        key: Two ui32.
        shape: The shape of the result.
        dtype: `np.float32` or `np.float64`.
        low, high: The interval; arrays are broadcast to the shape.
    """
    kind = _kind(dtype)
    whole = bits(key, shape, np.uint32 if kind == np.float32 else np.uint64)
    kept = 24 if kind == np.float32 else 53
    unit = (whole >> whole.dtype.type(whole.dtype.itemsize * 8 - kept)).astype(kind)
    unit = unit * kind.type(2.0**-kept)
    if isinstance(low, float) and isinstance(high, float) and (low, high) == (0, 1):
        return unit
    start, end = (_array(x).astype(kind) for x in (low, high))
    return unit * (end - start) + start


@_on_arrays
def normal(key: ArrayLike, shape: Shape = (), dtype: Dtype = np.float32) -> Any:
    """Return numbers of the normal distribution of mean 0 and deviation 1.

    A number is `sqrt(2) * erfinv(v)` for `v` an odd multiple of 2^-23 in f32, or of 2^-52 in f64,
    between -1 and 1: none is farther from 0 than 5.3 in f32, and 8.2 in f64.

    Args:
        key: Two ui32.
        shape: The shape of the result.
        dtype: `np.float32` or `np.float64`.
    """
    kind = _kind(dtype)
    single = kind == np.float32
    whole = bits(key, shape, np.uint32 if single else np.uint64)
    integer, kept = (np.int32, 23) if single else (np.int64, 52)
    odd = (whole >> whole.dtype.type(whole.dtype.itemsize * 8 - kept)).astype(integer)
    odd = odd * integer(2) + integer(1 - (1 << kept))
    inner = odd.astype(kind) * kind.type(2.0**-kept)
    return apply("theano.elemwise", inner, scalar_op="erfinv") * kind.type(np.sqrt(2.0))


def integers(
    key: ArrayLike, low: int, high: int, shape: Shape = (), dtype: Dtype = np.int64
) -> Any:
    """Return integers from `low` up to, but without, `high`.

    An integer is `low + (r * (high - low) >> 64)` for 64 random bits `r`: each has a probability
    that differs from `1 / (high - low)` by less than 2^-64.

    Args:
        key: Two ui32.
        low, high: The interval, numbers of Python.
        shape: The shape of the result.
        dtype: Its element type, an integer.

    Raises:
        Error: The interval is empty, or does not fit the element type.
    """
    kind, ends = _type(dtype), [low, high]
    if any(isinstance(n, bool) or not isinstance(n, (int, np.integer)) for n in ends):
        fail(f"the ends of an interval of integers are numbers of Python, got {low!r} and {high!r}")
    if kind.kind not in "iu":
        fail(f"random integers have a type of integers, got {kind}")
    limits = np.iinfo(kind)
    if not limits.min <= low < high <= limits.max + 1:
        fail(f"expected {limits.min} <= low < high <= {limits.max + 1}, got {low} and {high}")
    return _integers(key, shape, kind, int(low), int(high))


@_on_arrays
def _integers(
    key: ArrayLike, shape: Shape, dtype: np.dtype[Any], low_integer: int, high_integer: int
) -> Any:
    r, span = bits(key, shape, np.uint64), high_integer - low_integer
    if span == 1 << 64:
        return (r + np.uint64(low_integer & ((1 << 64) - 1))).astype(dtype)
    lower, upper = np.uint64(span & 0xFFFFFFFF), np.uint64(span >> 32)
    a, b, mask = r & np.uint64(0xFFFFFFFF), r >> HALF, np.uint64(0xFFFFFFFF)
    middle = b * lower + (a * lower >> HALF)  # no sum is beyond 64 bits
    product = b * upper + (middle >> HALF) + (a * upper + (middle & mask) >> HALF)
    return (product + np.uint64(low_integer & ((1 << 64) - 1))).astype(dtype)


@_on_arrays
def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: Shape = ()) -> Any:
    """Return truth values that are true with probability `p`, in steps of 2^-24.

    Args:
        key: Two ui32.
        p: The probability, a number or an array that is broadcast to the shape.
        shape: The shape of the result.
    """
    return uniform(key, shape) < _array(p).astype(np.float32)


def permutation(key: ArrayLike, x: Any) -> Any:
    """Return a permutation of the integers below `x`, or of the rows of an array.

    The order is that of 64 random bits for each row, of which the last is left out.

    Args:
        key: Two ui32.
        x: The number of integers, or an array of rank 1 or more.
    """
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):
        return _order(key, (int(x),))
    rows = _array(x)
    if not rows.ndim:
        fail("a permutation is of rows, got an array of rank 0")
    return _permuted(key, x)


@_on_arrays
def _order(key: ArrayLike, shape: Shape) -> Any:
    return xp.argsort((bits(key, shape, np.uint64) >> np.uint64(1)).astype(np.int64))


@_on_arrays
def _permuted(key: ArrayLike, x: ArrayLike) -> Any:
    rows = _array(x)
    return xp.take(rows, _order(key, rows.shape[:1]), axis=0)


@LibraryKernel
def bits_at(key: Any, i: Any) -> Any:
    """Return element `i` of `bits(key, n)`, as ui32; `i` is an integer from 0."""
    block = np.uint64(i) >> np.uint64(2)
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    a, b = block & mask, block >> half
    c, d = np.uint64(0), np.uint64(0)
    k, m = np.uint64(key[0]), np.uint64(key[1])
    for _ in range(10):
        p, q = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, c = (q >> half) ^ b ^ k, (p >> half) ^ d ^ m
        b, d = q & mask, p & mask
        k, m = k + np.uint64(0x9E3779B9) & mask, m + np.uint64(0xBB67AE85) & mask
    word = i & 3
    return np.uint32(a if word == 0 else b if word == 1 else c if word == 2 else d)


@LibraryKernel
def uniform_at(key: Any, i: Any) -> Any:
    """Return element `i` of `uniform(key, n)`, as f32; `i` is an integer from 0."""
    return np.float32(bits_at(key, i) >> np.uint32(8)) * np.float32(2.0**-24)
