"""How far the computed functions are from exact ones, in units in the last place of the exact result.

The exact one is the function in a wider type, where NumPy has it, or in arbitrary precision, of which fewer points do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import mpmath
import numpy as np
from cvm.dialect.index import Index
from cvm.dialect.loops import For, Store
from cvm.dialect.types import F16, F32, F64, ElementType
from cvm.lowering.polynomials import computed
from kernels import compiled, kernel, tensor

Array = np.ndarray
# glibc's functions of these have 11 bits more than f64; elsewhere a long double may be no longer than a double
LONG = np.finfo(np.longdouble).nmant >= 63
LANES = 16


def run(function: str, *operands: Array, lanes: int = LANES) -> Array:
    """What a kernel computes, so many elements at once."""
    element = {np.dtype(np.float16): F16, np.dtype(np.float32): F32, np.dtype(np.float64): F64}[operands[0].dtype]
    count = len(operands[0])
    padded = -(-count // lanes) * lanes
    i = Index("i", padded)
    xs = [tensor(f"x{n}", element, padded) for n in range(len(operands))]
    y = tensor("y", element, padded)
    value = computed(function, *(x[i] for x in xs))
    store = (Store(y, (i,), value),)
    loop = For(i, store, kind="vector", width=lanes) if lanes > 1 else For(i, store)
    (found,) = compiled(kernel((loop,), *xs, y), *(np.resize(o, padded) for o in operands))
    return found[:count]


def _elementwise(function: Callable[[mpmath.mpf], mpmath.mpf]) -> Callable[[Array], Array]:
    """mpmath's function of an array, rounded to the longest float."""

    def one(x: float) -> np.longdouble:
        if x == 0 and (y := float(function(mpmath.mpf(x)))) == 0:
            return np.longdouble(np.copysign(y, x))  # mpmath has one zero
        with mpmath.workprec(120):
            y = function(mpmath.mpf(x))
            high = float(y)
            return np.longdouble(high) + np.longdouble(float(y - high) if np.isfinite(high) else 0)

    return lambda x: np.array([one(v) for v in x.astype(float)], np.longdouble)


def _limited(x: mpmath.mpf) -> mpmath.mpf:
    """What erf and erfc do not tell from x: they would be long about it."""
    return x if abs(x) < 30 or mpmath.isnan(x) else 30 * mpmath.sign(x)


def _erfcx(x: mpmath.mpf) -> mpmath.mpf:
    if x < -30:
        return mpmath.inf
    if x > 1e6:
        return 1 / (x * mpmath.sqrt(mpmath.pi)) * (1 - 1 / (2 * x * x))
    return mpmath.exp(x * x) * mpmath.erfc(x)


_NUMPY: dict[str, Callable[..., Array]] = {
    **{n: getattr(np, n) for n in ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt")},
    **{n: getattr(np, n) for n in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    **{n: getattr(np, f"arc{n[1:]}") for n in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")},
    "pow": np.power,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: np.where(x < 0, np.exp(-abs(x)), 1) / (1 + np.exp(-abs(x))),
    "softplus": lambda x: np.where(x > 0, x, 0) + np.log1p(np.exp(-abs(x))),
}
SLOW = {
    "erf": _elementwise(lambda x: mpmath.erf(_limited(x))),
    "erfc": _elementwise(lambda x: mpmath.erfc(_limited(x))),
    "erfcx": _elementwise(lambda x: _erfcx(x)),
}


def exact(function: str, *operands: Array) -> Array:
    """The function's exact values, in a type with bits to spare."""
    if function in SLOW:
        return SLOW[function](*operands)
    wide = np.float64 if operands[0].dtype.itemsize < 8 else np.longdouble
    with np.errstate(all="ignore"):
        return _NUMPY[function](*(o.astype(wide) for o in operands))


def ulps(found: Array, exact: Array) -> Array:
    """The error of each result; infinite where NaN, an infinity or the sign of a zero is not as it should be."""
    limits = np.finfo(found.dtype)
    beyond = np.ldexp(exact.dtype.type(1), limits.maxexp)
    with np.errstate(all="ignore"):
        got = np.clip(found.astype(exact.dtype), -beyond, beyond)
        wanted = np.clip(exact, -beyond, beyond)
        exponent = np.clip(np.frexp(wanted)[1] - 1, limits.minexp, limits.maxexp - 1)
        error = abs(np.ldexp(got - wanted, limits.nmant - exponent))
    wrong = np.isnan(found) != np.isnan(exact)
    wrong |= np.isinf(exact) & ~np.isinf(found) & ~np.isnan(exact)
    wrong |= (found == 0) & (exact == 0) & (np.signbit(found) != np.signbit(exact))
    return np.where(wrong, np.inf, np.where(np.isnan(found) & np.isnan(exact), 0, error))


def special(element: ElementType) -> Array:
    limits = np.finfo(element.dtype)
    edges = [0, 1, 2, 0.5, 3, np.inf, np.nan, limits.max, limits.tiny, limits.smallest_subnormal, 1 + limits.eps]
    edges += [1 - limits.epsneg, limits.tiny - limits.smallest_subnormal, np.pi, np.pi / 2, 100, 1000]
    with np.errstate(over="ignore"):
        one_sided = np.array(edges).astype(element.dtype)
    return np.concatenate([one_sided, -one_sided])


def arguments(function: str, element: ElementType, count: int, seed: int = 0) -> tuple[Array, ...]:
    """Operands of all magnitudes, many where the function varies, all pairs of special ones where there are two."""
    random = np.random.default_rng(seed)
    edges = special(element)
    integer = np.dtype(f"u{element.bytes}")

    def some() -> Array:
        anything = random.integers(0, 1 << element.bits, count // 4, integer).view(element.dtype)
        anything[np.isnan(anything)] = np.nan  # C leaves open what signaling ones do
        spread = random.uniform(-1, 1, count // 4) * 2.0 ** random.uniform(-20, 11, count // 4)
        one = 1 + random.uniform(-1, 1, count // 4) * 2.0 ** random.uniform(-element.bits, 0, count // 4)
        small = random.uniform(-30, 30, count // 4)
        return np.concatenate([anything, *(a.astype(element.dtype) for a in (spread, one, small))])

    x = some()
    if function not in ("pow", "atan2"):
        return (np.concatenate([edges, _multiples_of_half_pi(element), x]),)
    a, b = (g.ravel() for g in np.meshgrid(edges, edges))
    y = random.permutation(some())
    if function == "pow":  # of half of them, results over the whole range and a little beyond it
        half = len(x[::2])
        with np.errstate(all="ignore"):
            result = random.uniform(-1.1, 1.1, half) * np.finfo(element.dtype).maxexp
            y[::2] = (result / np.log2(abs(x[::2]).astype(float))).astype(element.dtype)
    return np.concatenate([a, x]), np.concatenate([b, y])


def _multiples_of_half_pi(element: ElementType) -> Array:
    """Where the argument of sin, cos and tan is hardest to reduce."""
    top = np.finfo(element.dtype).maxexp
    with mpmath.workprec(2 * top):
        found = [float(mpmath.pi / 2 * (mpmath.mpf(3) ** n)) for n in range(int(top / 1.6))]
    worst = [6381956970095103.0 * 2.0**797] if element is F64 else []
    with np.errstate(over="ignore"):
        return np.array(found + worst).astype(element.dtype)


def every(element: ElementType, stride: int = 1, chunk: int = 1 << 22) -> Iterator[Array]:
    """All values of a type, or every so many."""
    for start in range(0, 1 << element.bits, chunk * stride):
        stop = min(start + chunk * stride, 1 << element.bits)
        yield np.arange(start, stop, stride, dtype=np.uint64).astype(f"u{element.bytes}").view(element.dtype)


def worst(function: str, batches: Iterable[tuple[Array, ...]]) -> tuple[float, tuple[float, ...], int]:
    """The largest error of a function, where it is, and of how many results."""
    largest, where, count = 0.0, (), 0
    for operands in batches:
        errors = ulps(run(function, *operands), exact(function, *operands))
        count += len(errors)
        at = int(errors.argmax())
        if not count or errors[at] > largest:
            largest, where = float(errors[at]), tuple(float(o[at]) for o in operands)
    return largest, where, count
