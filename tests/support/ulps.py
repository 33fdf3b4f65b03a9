"""Measure the errors of the computed functions against exact ones, in units in the last place, at
critical arguments.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import mpmath
import numpy as np
from cvm.dialect.kernel_ir.expressions import (
    Expr,
    Index,
    Tensor,
    cast,
    constant,
    maximum,
    minimum,
    select,
)
from cvm.dialect.kernel_ir.loops import For, Store
from cvm.dialect.types.tensor_types import F16, F32, F64, ElementType
from cvm.lowering.math import computed
from cvm.lowering.math.primitives import absolute, as_float, bits, sign_of
from exact_functions import LONG, NUMPY, in_mpmath, in_numpy
from native_kernels import MachineCode, kernel, tensor

Array = np.ndarray
LANES = 16
PAIRS = ("pow", "atan2")  # the functions of two arguments
ELEMENTS: dict[np.dtype, ElementType] = {e.dtype: e for e in (F16, F32, F64)}

# Where functions overflow, vanish, change their formula or cross zero, in f32 and in f64
REGIONS: dict[str, tuple[float, ...]] = {
    "exp": (
        88.72284,
        -87.33655,
        -103.97208,
        709.782712893384,
        -708.3964185322641,
        -745.1332191019411,
        0.34657,
    ),
    "exp2": (128, -126, -149, 1024, -1022, -1074, 0.5),
    "expm1": (88.72284, -17.33, 709.782712893384, -37.43, 0.34657, -0.34657),
    "log": (1,),
    "log2": (1, 1.4142135),
    "log10": (1, 1.4142135),
    "log1p": (-1, 0.41421356, -0.29289322),
    "asin": (1, -1, 0.5, -0.5),
    "acos": (1, -1, 0.5, -0.5),
    "atan": (1, 0.41421356, 2.4142135),
    "sinh": (89.41599, 87, 710.475860073944, 708, 0.34657),
    "cosh": (89.41599, 87, 710.475860073944, 708, 0.34657),
    "tanh": (0.55, 10, 20, 9.01, 19.06),
    "asinh": (2.0**60, 0.35, 1),
    "acosh": (1, 2.0**60, 1.08),
    "atanh": (1, -1, 0.25, 0.46),
    "sigmoid": (-87.33655, -103.97208, -708.3964185322641, -745.1332191019411, 17.33, 37.43),
    "softplus": (
        -87.33655,
        -103.97208,
        -708.3964185322641,
        -745.1332191019411,
        17.33,
        37.43,
        -0.77,
    ),
    "erf": (0.0039, 1, 3.92, 5.92),
    "erfc": (0.5, 5.95, 9.1945, 10.0546, 26.5432, 27.2264),
    "erfcx": (0.5, -0.5, -9.3824, -26.6287, 2.0**30),
}
POSITIVE = ("log", "log2", "log10", "log1p", "rsqrt", "acosh", "pow")  # hardly real below zero
UNIT = ("asin", "acos", "atanh")  # real between -1 and 1


@lru_cache(64)
def _code(function: str, element: ElementType, arity: int, count: int, lanes: int) -> MachineCode:
    i = Index("i", count)
    xs = [tensor(f"x{n}", element, count) for n in range(arity)]
    y = tensor("y", element, count)
    return _loop(i, Store(y, (i,), computed(function, *(x[i] for x in xs))), *xs, y, lanes=lanes)


def _loop(i: Index, store: Store, *tensors: Tensor, lanes: int = LANES) -> MachineCode:
    loop = For(i, (store,), kind="vector", width=lanes) if lanes > 1 else For(i, (store,))
    return MachineCode(kernel((loop,), *tensors))


def run(function: str, *operands: Array, lanes: int = LANES) -> Array:
    """The results of a kernel, in pieces of so many elements."""
    count = len(operands[0])
    padded = -(-count // lanes) * lanes
    code = _code(function, ELEMENTS[operands[0].dtype], len(operands), padded, lanes)
    (found,) = code(
        *(np.ascontiguousarray(o) if count == padded else np.resize(o, padded) for o in operands)
    )
    return found[:count]


def _error(found: Expr, wanted: Expr) -> Expr:
    """`ulps` of a found value and the exact one in f64, as an f32."""
    limits = np.finfo(found.type.dtype)
    y, z = cast(found, F64), wanted
    beyond = 2.0**limits.maxexp
    a, b = (minimum(beyond, maximum(-beyond, v)) for v in (y, z))
    exponent = minimum(limits.maxexp - 1, maximum(limits.minexp, ((bits(b) >> 52) & 2047) - 1023))
    value = absolute(a - b) * as_float((1023 + limits.nmant - exponent) << 52)
    wrong = y.eq(0.0) & z.eq(0.0) & sign_of(y).ne(sign_of(z)) | y.ne(y).ne(z.ne(z))
    wrong = wrong | (absolute(z).eq(np.inf) & (absolute(y) < np.inf))
    value = select(wrong, constant(np.inf, F64), select(y.ne(y), constant(0.0, F64), value))
    return cast(value, F32)


@lru_cache(8)
def _judge(element: ElementType, count: int) -> MachineCode:
    i = Index("i", count)
    found, wanted, error = (
        tensor(n, e, count) for n, e in (("found", element), ("exact", F64), ("error", F32))
    )
    return _loop(i, Store(error, (i,), _error(found[i], wanted[i])), found, wanted, error)


@lru_cache(8)
def _judge_itself(function: str, element: ElementType, arity: int, count: int) -> MachineCode:
    i = Index("i", count)
    xs, error = [tensor(f"x{n}", element, count) for n in range(arity)], tensor("error", F32, count)
    exact = computed(function, *(cast(x[i], F64) for x in xs))
    return _loop(
        i, Store(error, (i,), _error(computed(function, *(x[i] for x in xs)), exact)), *xs, error
    )


def against_f64(function: str, *operands: Array) -> Array:
    """`ulps` of f16 or f32 results against the f64 that is computed here, whose errors are less
    than 2^-28 of them.
    """
    return _judge_itself(function, ELEMENTS[operands[0].dtype], len(operands), len(operands[0]))(
        *operands
    )[0]


def exact(function: str, *operands: Array) -> Array:
    """The function's values with bits to spare: the fastest there are, see `exact`."""
    if operands[0].dtype.itemsize == 8:
        quick = function in NUMPY and LONG
        return in_numpy(function, *operands) if quick else in_mpmath(function, *operands)
    if function in NUMPY:
        return in_numpy(function, *operands)
    return run(function, *(o.astype(np.float64) for o in operands))


def ulps(found: Array, exact: Array) -> Array:
    """The error of each result; infinite where NaN, an infinity or the sign of a zero is not as it
    should be.
    """
    if exact.dtype == np.float64 and not len(found) % LANES:
        return _judge(ELEMENTS[found.dtype], len(found))(found, exact)[0]
    limits = np.finfo(found.dtype)
    beyond = np.ldexp(exact.dtype.type(1), limits.maxexp)
    with np.errstate(all="ignore"):
        got = np.clip(found.astype(exact.dtype), -beyond, beyond)
        wanted = np.clip(exact, -beyond, beyond)
        exponent = np.clip(np.frexp(wanted)[1] - 1, limits.minexp, limits.maxexp - 1)
        error = abs(np.ldexp(got - wanted, limits.nmant - exponent))
    nan = np.isnan(found)
    wrong = nan != np.isnan(exact)
    wrong |= np.isinf(exact) & ~np.isinf(found)
    wrong |= (found == 0) & (exact == 0) & (np.signbit(found) != np.signbit(exact))
    error[nan] = 0
    error[wrong] = np.inf
    return error


def special(element: ElementType) -> Array:
    limits = np.finfo(element.dtype)
    edges = [
        0,
        1,
        2,
        0.5,
        3,
        np.inf,
        np.nan,
        limits.max,
        limits.tiny,
        limits.smallest_subnormal,
        1 + limits.eps,
    ]
    edges += [
        1 - limits.epsneg,
        limits.tiny - limits.smallest_subnormal,
        np.pi,
        np.pi / 2,
        100,
        1000,
    ]
    with np.errstate(over="ignore"):
        one_sided = np.array(edges).astype(element.dtype)
    return np.concatenate([one_sided, -one_sided])


def arguments(function: str, element: ElementType, count: int, seed: int = 0) -> tuple[Array, ...]:
    """Operands of all magnitudes, many where the function varies and at its edges, all pairs of
    special ones where there are two.
    """
    random = np.random.default_rng(seed)
    edges = special(element)
    part = count // 6
    regions = np.array(REGIONS.get(function, (1,)))

    def some() -> Array:
        anything = _of_bits(
            random.integers(0, 1 << element.bits, 2 * part, f"u{element.bytes}"), element
        )
        spread = random.uniform(-1, 1, part) * 2.0 ** random.uniform(-20, 11, part)
        one = 1 + random.uniform(-1, 1, part) * 2.0 ** random.uniform(-element.bits, 0, part)
        small = random.uniform(-30, 30, part)
        hard = random.choice(regions, part) * (
            1 + random.uniform(-1, 1, part) * 2.0 ** random.uniform(-55, -3, part)
        )
        with np.errstate(over="ignore"):
            found = np.concatenate(
                [anything, *(a.astype(element.dtype) for a in (spread, one, small, hard))]
            )
            if function in POSITIVE:
                found[: 2 * part : 2] = abs(found[: 2 * part : 2])
            if function in UNIT:
                found = np.where(abs(found) > 1, 1 / found, found)
        return found

    x = some()
    if function not in PAIRS:
        hard = (
            _multiples_of_half_pi(element, random, part)
            if function in ("sin", "cos", "tan")
            else x[:0]
        )
        return (np.concatenate([edges, hard, x]),)
    a, b = (g.ravel() for g in np.meshgrid(edges, edges))
    y = random.permutation(some())
    if function == "pow":  # of half of them, results over the whole range and a little beyond it
        half = len(x[::2])
        with np.errstate(all="ignore"):
            result = random.uniform(-1.1, 1.1, half) * np.finfo(element.dtype).maxexp
            y[::2] = (result / np.log2(abs(x[::2]).astype(float))).astype(element.dtype)
    else:  # of a third, quotients where the formula changes
        with np.errstate(all="ignore"):
            y[::3] = (x[::3].astype(float) / (1 + random.uniform(-1, 1, len(x[::3])))).astype(
                element.dtype
            )
    return np.concatenate([a, x]), np.concatenate([b, y])


def _of_bits(bits: Array, element: ElementType) -> Array:
    values = bits.astype(f"u{element.bytes}").view(element.dtype)
    values[np.isnan(values)] = np.nan  # C leaves open what signaling ones do
    return values


@lru_cache
def _hardest(element: ElementType) -> Array:
    """Powers of three of pi / 2, and the f64 nearest to a multiple of it."""
    top = np.finfo(element.dtype).maxexp
    with mpmath.workprec(2 * top):
        found = [float(mpmath.pi / 2 * (mpmath.mpf(3) ** n)) for n in range(int(top / 1.6))]
    with np.errstate(over="ignore"):
        return np.array([*found, 6381956970095103.0 * 2.0**797]).astype(element.dtype)


def _multiples_of_half_pi(element: ElementType, random: np.random.Generator, count: int) -> Array:
    """The arguments of sin, cos and tan that are hardest to reduce."""
    times = np.rint(2.0 ** random.uniform(0, min(50, np.finfo(element.dtype).maxexp - 2), count))
    some = (times * (np.longdouble(np.pi) / 2 + np.longdouble(6.123233995736766e-17))).astype(
        element.dtype
    )
    return np.concatenate([_hardest(element), some])


def numbered(element: ElementType, start: int, stop: int) -> Array:
    """All values of a type, in the order of their bits."""
    return _of_bits(np.arange(start, stop, dtype=np.uint64), element)


def worst(errors: Array, operands: tuple[Array, ...]) -> tuple[float, tuple[float, ...]]:
    """The largest error, and where it is."""
    at = int(errors.argmax())
    return float(errors[at]), tuple(float(o[at]) for o in operands)


def digest(function: str, element: ElementType) -> str:
    """A hash of a function's results for some thousands of arguments, which changes with any
    bit.
    """
    count = 4096
    step = (1 << element.bits) // count
    x = np.concatenate(
        [
            _of_bits(
                np.arange(count, dtype=np.uint64) * np.uint64(step) + np.uint64(step // 3), element
            ),
            *(np.linspace(-limit, limit, count).astype(element.dtype) for limit in (1, 30)),
        ]
    )
    operands = (x, np.roll(x[::-1], 777)) if function in PAIRS else (x,)
    found = run(function, *operands)
    found[np.isnan(found)] = np.nan
    return hashlib.sha256(found.tobytes()).hexdigest()[:16]
