"""Proves the error bounds of the coefficient tables in lowering/math, and prints them with the
tables' sources.

python docs/coefficients.py [TABLE ...]

A bound is proved, not sampled. On each interval the function is a Taylor polynomial with a
remainder by Cauchy's estimate |a[k]| <= M R^-k. The difference from the table is then a polynomial,
in 100 digits, whose range over each of CELLS parts of the interval is bounded by its value in the
middle and the sizes of its derivatives. The bound is of the relative error of the function, before
rounding: that of the operations after it is measured in docs/accuracy.md.

How the tables were fitted is not recorded, so their digits are not computed again. The last column
but one is the bound that no polynomial with as many coefficients, rounded or not, is below: most
tables are within a tenth of a bit of it. What is exact, as parts of pi and the rows of the lookup
tables, is computed again digit by digit.
"""

from __future__ import annotations

import argparse
import importlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import mpmath
import numpy as np
from mpmath import mpf

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT)]

from cvm.dialect.kernel_ir import integer_lookup_tables as lookup_tables  # noqa: E402
from cvm.dialect.types.tensor_types import F32, F64, ElementType  # noqa: E402

DIGITS = 100
TERMS = 64  # of a Taylor polynomial
CELLS = 1 << 13  # parts of an interval
FEW_CELLS = 1 << 6  # of one of hundreds of intervals
# the largest error of the first approximation to a cube root: `largest_start_of_cbrt` checks it
CBRT_START = "0.1023"
# of the sums in f64 that bound a polynomial, relative to the sum of the sizes of its terms
ROUNDING = 2.0**-44

Number = Any  # an mpf; mpmath has no types
Polynomial = list[Number]  # from the constant term up


def module(name: str) -> Any:
    """A module of lowering/math; functions of the same name hide some of them."""
    return importlib.import_module(f"cvm.lowering.math.{name}")


erf, exponential, hyperbolic = map(module, ("erf", "exponential", "hyperbolic"))
logarithm, power, primitives = map(module, ("logarithm", "power", "primitives"))
reduction, trigonometric = map(module, ("argument_reduction", "trigonometric"))


class Series(NamedTuple):
    """A Taylor polynomial about a center, and the M and R of |a[k]| <= M R^-k for the terms that it
    leaves out.
    """

    terms: Polynomial
    m: Number
    r: Number

    def remainder(self, size: Number) -> Number:
        """A bound of what is left out at this distance from the center."""
        q = size / self.r
        assert q < 1, "the interval is beyond the radius of the estimate"
        return self.m * q ** len(self.terms) / (1 - q)


class Difference(NamedTuple):
    """A polynomial minus a function, and what it is relative to, both divided by a common power of
    the variable.
    """

    error: Polynomial
    error_rest: Number
    scale: Polynomial
    scale_rest: Number
    low: Number
    high: Number

    def bound(self, cells: int = CELLS) -> float:
        """A bound of |error / scale| over the interval."""
        middle, half = (self.low + self.high) / 2, (self.high - self.low) / 2
        error, scale = (
            np.array([float(c * half**k) for k, c in enumerate(moved(p, middle))])
            for p in (self.error, self.scale)
        )
        centers = (2 * np.arange(cells) + 1) / cells - 1
        above, _ = _sizes(error, centers, 1 / cells)
        _, below = _sizes(scale, centers, 1 / cells)
        above, below = above + float(self.error_rest), below - float(self.scale_rest)
        assert (below > 0).all(), "the scale may be zero"
        return float((above / below).max()) * (1 + ROUNDING)


def _sizes(p: np.ndarray, centers: np.ndarray, radius: float) -> tuple[np.ndarray, np.ndarray]:
    """The largest and the smallest size, at most and at least, of a polynomial within a radius of
    each center.
    """
    shifted = np.repeat(p[:, None], len(centers), 1)
    for first in range(len(p) - 1):
        for k in range(len(p) - 2, first - 1, -1):
            shifted[k] += centers * shifted[k + 1]
    change = sum(np.abs(shifted[k]) * radius**k for k in range(1, len(p)))
    slack = np.abs(p).sum() * ROUNDING + 1e-300
    return np.abs(shifted[0]) + change + slack, np.abs(shifted[0]) - change - slack


# polynomials


def moved(p: Sequence[Number], by: Number) -> Polynomial:
    """p(x + by)"""
    found = list(p)
    for first in range(len(p) - 1):
        for k in range(len(p) - 2, first - 1, -1):
            found[k] += by * found[k + 1]
    return found


def product(p: Sequence[Number], q: Sequence[Number], most: int = 1 << 10) -> Polynomial:
    found = [mpf(0)] * min(most, len(p) + len(q) - 1)
    for i, a in enumerate(p):
        for j, b in enumerate(q[: len(found) - i]):
            found[i + j] += a * b
    return found


def less(p: Sequence[Number], q: Sequence[Number]) -> Polynomial:
    size = max(len(p), len(q))
    return [
        a - b for a, b in zip(*([*x, *[mpf(0)] * (size - len(x))] for x in (p, q)), strict=True)
    ]


def composed(outer: Sequence[Number], inner: Sequence[Number], terms: int) -> Polynomial:
    """outer(inner(t)) up to so many terms."""
    found = [mpf(0)]
    for c in reversed(outer):
        found = product(found, inner, terms)
        found[0] += c
    return found


def value_at(p: Sequence[Number], x: Number) -> Number:
    value = mpf(0)
    for c in reversed(p):
        value = value * x + c
    return value


def size_at(p: Sequence[Number], x: Number) -> Number:
    return sum(abs(c) * x**k for k, c in enumerate(p))


def exact(table: Sequence[float], element: ElementType) -> Polynomial:
    """The numbers that a table's decimals stand for in this type."""
    return [mpf(float(element.dtype.type(c))) for c in table]


# power series about zero, as the tables have them: `after` terms of the function's own are taken
# off


def _fact(k: int) -> Number:
    return mpmath.factorial(k)


def _lambda(n: int) -> Number:
    """The sum of the odd numbers to the power of -n."""
    return (1 - mpf(2) ** -n) * mpmath.zeta(n)


E8, COSH8 = 2981.0, 1491.0  # upper bounds of e^8 and cosh 8
# name: (k: the k-th coefficient), M, R
SERIES: dict[str, tuple[Callable[[int], Number], float, float]] = {
    "exp": (lambda k: 1 / _fact(k), E8, 8),
    "expm1": (lambda k: 1 / _fact(k + 1), E8, 8),  # (e^r - 1) / r
    "exp2": (lambda k: mpmath.ln(2) ** k / _fact(k), E8, 8),
    "sin": (lambda k: (-1) ** k / _fact(2 * k + 1), COSH8, 64),  # sin r / r in r^2, and likewise
    "sinh": (lambda k: 1 / _fact(2 * k + 1), COSH8, 64),
    "cosh": (lambda k: 1 / _fact(2 * k), COSH8, 64),
    "tan": (
        lambda k: 2 * (2 / mpmath.pi) ** (2 * k + 2) * _lambda(2 * k + 2),
        1,
        2.467,
    ),  # DLMF 4.19.3
    "tanh": (
        lambda k: (-1) ** k * 2 * (2 / mpmath.pi) ** (2 * k + 2) * _lambda(2 * k + 2),
        1,
        2.467,
    ),
    "asin": (lambda k: mpmath.binomial(2 * k, k) / (mpf(4) ** k * (2 * k + 1)), 1, 1),
    "atan": (lambda k: mpf((-1) ** k) / (2 * k + 1), 1, 1),
    "atanh": (lambda k: mpf(1) / (2 * k + 1), 1, 1),
    "log": (lambda k: mpf((-1) ** k) / (k + 1), 1, 1),  # log(1 + f) / f
    "erf": (lambda k: 2 / mpmath.sqrt(mpmath.pi) * (-1) ** k / (_fact(k) * (2 * k + 1)), 2 * E8, 8),
    "cbrt": (lambda k: abs(mpmath.binomial(-mpf(1) / 3, k)), 1, 1),  # (1 - d)^(-1/3)
}


@cache
def series(name: str, terms: int) -> Series:
    term, m, r = SERIES[name]
    return Series([term(k) for k in range(terms)], mpf(m), mpf(r))


def near_zero(
    name: str,
    p: Polynomial,
    low: Number,
    high: Number,
    under: Polynomial | None = None,
    terms: int = TERMS,
) -> Difference:
    """A polynomial, or a quotient of two, minus a series, relative to the series."""
    s, q = series(name, terms), under or [mpf(1)]
    scale, rest = product(q, s.terms), s.remainder(max(abs(low), abs(high)))
    rest *= size_at(q, max(abs(low), abs(high)))
    return Difference(less(p, scale), rest, scale, rest, mpf(low), mpf(high))


def taken(
    start: Sequence[Number], element: ElementType, table: Sequence[float], by: Number = 1
) -> Polynomial:
    """start + x^len(start) by table(x)"""
    return [mpf(c) for c in start] + [c * by for c in exact(table, element)]


# Taylor series about other centers


def atan_at(c: Number) -> Series:
    """1 / (1 + x^2) by recurrence, integrated; its poles are the nearest singularities."""
    terms, one = [mpmath.atan(c)], 1 + c * c
    slopes = [1 / one, -2 * c / one**2]
    for _ in range(TERMS - 3):
        slopes.append((-2 * c * slopes[-1] - slopes[-2]) / one)
    return Series(terms + [a / k for k, a in enumerate(slopes, 1)], mpf(1), mpmath.sqrt(one))


def erf_at(c: Number) -> Series:
    """erf' = 2 e^(-x^2) / sqrt(pi) by g' = -2 x g; |erf'| <= 2 e^4 / sqrt(pi) within 2, where |Im
    x| <= 2.
    """
    bell = [2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-c * c)]
    bell.append(-2 * c * bell[0])
    for k in range(2, TERMS - 1):
        bell.append(-2 * (c * bell[-1] + bell[-2]) / k)
    return Series([mpmath.erf(c)] + [a / k for k, a in enumerate(bell, 1)], mpf(130), mpf(2))


def erfcx_at(c: Number) -> Series:
    """y' = 2 x y - 2 / sqrt(pi). |y| <= 1 where Re x >= 0, from y = 2 / sqrt(pi) times the integral
    of e^(-t^2 - 2 x t) (DLMF 7.7.1); and elsewhere y(x) = 2 e^(x^2) - y(-x).
    """
    with mpmath.workdps(4 * DIGITS):  # the recurrence multiplies errors
        terms = [mpmath.exp(c * c) * mpmath.erfc(c)]
        terms.append(2 * (c * terms[0] - 1 / mpmath.sqrt(mpmath.pi)))
        for k in range(2, TERMS):
            terms.append(2 * (c * terms[-1] + terms[-2]) / k)
    return Series(terms, mpf(1) + 2 * mpmath.exp((2 - min(c, 2)) ** 2), mpf(2))


def about(
    at: Callable[[Number], Series],
    p: Polynomial,
    origin: Number,
    low: Number,
    high: Number,
    parts: int = 1,
    relative: bool = True,
) -> Iterator[Difference]:
    """p(x - origin) minus a function with its Taylor series about the middles of parts of an
    interval.
    """
    for n in range(parts):
        a, b = (low + (high - low) * mpf(k) / parts for k in (n, n + 1))
        c = (a + b) / 2
        s = at(c)
        rest = s.remainder(b - c)
        scale = (s.terms, rest) if relative else ([mpf(1)], mpf(0))
        yield Difference(less(moved(p, c - origin), s.terms), rest, *scale, a - c, b - c)


# the least error


def levelled(d: Difference, first: int, count: int) -> float:
    """An error that no polynomial with so many coefficients of its own, from the power `first` on,
    is below.

    Where errors of alternating signs have one size at count + 1 places, that is a lower bound (C.
    de la Vallee Poussin, 1910); it grows as the places move to the extremes (E. Remez, 1934).
    """
    fixed = [a + b for a, b in zip(d.error[:first], d.scale[:first], strict=True)]
    middle, half = (d.low + d.high) / 2, (d.high - d.low) / 2
    grid = [
        middle - half * mpmath.cos(mpmath.pi * mpf(k) / (40 * count)) for k in range(40 * count + 1)
    ]
    grid = [x for x in grid if abs(x) * 1000 > half or not first]
    scales = [value_at(d.scale, x) for x in grid]
    weights = [abs(x) ** first / s for x, s in zip(grid, scales, strict=True)]
    values = [(s - value_at(fixed, x)) / x**first for x, s in zip(grid, scales, strict=True)]
    at = [min(len(grid) - 1, 40 * k) for k in range(count + 1)]
    best = mpf(0)
    for _ in range(12):
        rows = [
            [grid[i] ** k for k in range(count)] + [(-1) ** n / weights[i]]
            for n, i in enumerate(at)
        ]
        solved = mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix([values[i] for i in at]))
        if abs(solved[count]) < best * (1 + mpf(2) ** -20):
            break
        best = abs(solved[count])
        found = [solved[k] for k in range(count)]
        errors = [
            (value_at(found, x) - v) * w for x, v, w in zip(grid, values, weights, strict=True)
        ]
        at = _extremes(errors, count + 1)
    return float(best)


def _extremes(errors: Sequence[Number], count: int) -> list[int]:
    """The places of the largest errors of each run of one sign; of more runs, those without the
    smaller end.
    """
    found: list[int] = []
    for i, e in enumerate(errors):
        if found and errors[found[-1]] * e >= 0:
            found[-1] = max(found[-1], i, key=lambda k: abs(errors[k]))
        else:
            found.append(i)
    while len(found) > count:
        found.pop(0 if abs(errors[found[0]]) < abs(errors[found[-1]]) else -1)
    return found


# the tables


class Table(NamedTuple):
    """A table of coefficients: the bits that the comment of its module claims, what proves them,
    and where it is from.
    """

    module: Any
    claimed: float
    differences: Callable[[], Iterable[Difference]]
    source: str
    cells: int = CELLS
    free: tuple[int, int] | None = None  # the first power of the table's, and how many there are

    def bits(self) -> float:
        """The proved bound, as a negated exponent of two."""
        with mpmath.workdps(DIGITS):
            return -math.log2(max(d.bound(self.cells) for d in self.differences()))

    def best(self) -> float | None:
        """The same for any table of as many numbers, rounded or not, at most."""
        with mpmath.workdps(40):
            return self.free and -math.log2(levelled(next(iter(self.differences())), *self.free))


def rounded(x: Number, element: ElementType) -> Number:
    return mpf(float(element.dtype.type(float(x)) if element is F64 else _in_f32(x)))


def _in_f32(x: Number) -> np.float32:
    """Rounded once."""
    with mpmath.workprec(24):
        return np.float32(float(+x))


Differences: TypeAlias = Iterable[Difference]


def _exp2(element: ElementType) -> Differences:
    start = 1, rounded(primitives.LN2[element][0], element)
    yield near_zero("exp2", taken(start, element, exponential.EXP2[element]), -0.5, 0.5)


def _atan(element: ElementType) -> Differences:
    """atan t of |t| <= 1/2, and of f32 beyond."""
    p = taken((1,), element, trigonometric.ATAN[element])
    yield near_zero("atan", p, 0, mpf(0.25))
    if element is F32:
        odd = [mpf(0), *(c for pair in zip(p, [mpf(0)] * len(p), strict=True) for c in pair)]
        yield from about(atan_at, odd, 0, mpf(0.5), mpf(1), 2)


def _series() -> Differences:
    high = (mpmath.sqrt(2) - 1) / (mpmath.sqrt(2) + 1)
    yield near_zero("atanh", taken((1,), F64, logarithm.SERIES, mpf(0.5)), 0, high**2)


def _cbrt() -> Differences:
    d = mpf(CBRT_START)
    yield near_zero("cbrt", exact(power.RECIPROCAL_CBRT, F64), -d, d)


def cells_of(ones: tuple[float, float]) -> Iterator[tuple[Number, Number, Number]]:
    """The first and last mantissa, and the factor, of the cells of f64."""
    for n, (bits, times) in enumerate(lookup_tables._cells(ones)):
        first = lookup_tables.LOG_LEAST + (n << lookup_tables.LOG_WIDTH)
        ends = np.array([first, first + (1 << lookup_tables.LOG_WIDTH) - 1]).view(np.float64)
        yield mpf(float(ends[0])), mpf(float(ends[1])), mpf(times) / 2**bits


def cells_of_pow() -> Iterator[tuple[Number, Number, Number]]:
    """Likewise of f32."""
    for n, factor in enumerate(power.FACTOR):
        first = power.FIRST + (n << power.PLACES)
        ends = np.array([first, first + (1 << power.PLACES) - 1], np.int32).view(np.float32)
        yield mpf(float(ends[0])), mpf(float(ends[1])), mpf(factor)


def by_cells(
    p: Polynomial, cells: Iterable[tuple[Number, Number, Number]], terms: int
) -> Iterator[Difference]:
    """log(1 + r) = r p(r), r = m factor - 1, relative to log m, where a factor's logarithm is
    subtracted.
    """
    for first, last, factor in cells:
        d = near_zero("log", p, first * factor - 1, last * factor - 1, None, terms)
        if factor != 1:
            rest = d.error_rest * max(abs(d.low), abs(d.high))
            nearest = min(abs(mpmath.log(m)) for m in (first, last))
            d = Difference([mpf(0), *d.error], rest, [nearest], mpf(0), d.low, d.high)
        yield d


def _logarithm(element: ElementType, base: Any) -> Differences:
    e = {"log": mpf(1), "log2": 1 / mpmath.ln(2), "log10": 1 / mpmath.ln(10)}[base.name]
    own, tail = exact([base.e[element]], element), exact(base.tail[element], element)
    p = [c / e for c in own + tail]
    if element is F64:
        yield from by_cells(p, cells_of((0.997, 1.005)), 20)
    else:
        yield near_zero("log", p, mpmath.sqrt(0.5) - 1, mpmath.sqrt(2) - 1)


def _pow(element: ElementType) -> Differences:
    tail, cells = (
        (power.TAIL32, cells_of_pow()) if element is F32 else (power.TAIL, cells_of((1, 1)))
    )
    start = 1, -mpf(0.5)
    yield from by_cells(taken(start, element, tail, -mpf(0.5)), cells, 40 if element is F32 else 20)


def _erf64() -> Differences:
    p = exact(erf.ERF, F64)
    yield near_zero("erf", [p[0] + 1, *p[1:]], 0, 1)


def _columns(pieces: Sequence[Sequence[float]]) -> list[Polynomial]:
    return [exact(column, F32) for column in zip(*pieces, strict=True)]


def _erf_pieces() -> Differences:
    step, limit = mpf(erf.ERF_STEP), rounded(erf.ERF_LIMIT, F32)
    for n, p in enumerate(_columns(erf.ERF_PIECES)):
        if n == 0:
            assert p[0] == 0
            own = [p[1] + 1, *p[2:]]  # over x
            s = erf_at(mpf(0))
            rest, scale = s.remainder(step / 2) / (step / 2), s.terms[1:]
            yield Difference(less(own, scale), rest, scale, rest, mpf(0), step / 2)
        else:
            yield from about(
                erf_at, p, n * step, (n - mpf(0.5)) * step, min((n + mpf(0.5)) * step, limit)
            )


def _erfc_pieces() -> Differences:
    step, limit = mpf(erf.ERFC_STEP), mpf(erf.ERFC_USUAL)
    for n, (p, c) in enumerate(
        zip(_columns(erf.ERFC_PIECES), exact(erf.ERFC_CENTERS, F32), strict=True)
    ):
        ends = max(mpf(0), (n - mpf(0.5)) * step), min((n + mpf(0.5)) * step, limit)
        yield from about(erfcx_at, p, c, *ends)


def _erfcx_pieces() -> Differences:
    pieces = zip(_columns(erf.ERFCX_PIECES), exact(erf.ERFCX_CENTERS, F32), strict=True)
    for n, (p, c) in enumerate(pieces):
        first, last = (
            mpf(2) ** (k // 2) * (1 + mpf(k % 2) / 2) - 1 for k in ((n - 6) % 8, (n - 6) % 8 + 1)
        )
        if first < (limit := rounded(erf.LIMIT[F32], F32)):
            p = [a * 2 ** erf.LATER[F32] for a in p]
            yield from about(erfcx_at, p, c, first, min(last, limit), 2)


def _erfcx64() -> Iterator[Difference]:
    """In q = (x - 3) / (x + 3): as far as x = 12 by Taylor series, beyond by the asymptotic one in
    u = 1 / x.

    x = 6 / (1 - q) - 3 is in the right half plane for |q| < 1, and |e^(x^2) erfc x| <= 1 there.
    """
    terms, near, far = 40, mpf(3) / 5, mpf(1) / 12
    p = [mpf(erf.ERFCX_START[0]) + mpf(erf.ERFCX_START[1]), *exact(erf.ERFCX, F64)]
    for a, b in divided(-mpf(5) / 7, near, 24):
        c = (a + b) / 2
        x = 3 * (1 + c) / (1 - c)
        change = [mpf(0), *(6 / (1 - c) ** (k + 1) for k in range(1, terms))]
        y = composed(erfcx_at(x).terms[:terms], change, terms)
        g = product(y, [1 + 2 * x, *(2 * d for d in change[1:])], terms)
        r = (1 - abs(c)) * mpf(0.9)
        rest = Series(g, 1 + 6 * (1 + abs(c) + r) / (1 - c - r), r).remainder(b - c)
        yield Difference(less(moved(p, c), g), rest, g, rest, a - c, b - c)
    exact_terms = [
        mpf(0)
    ] * 42  # (2 + u) / sqrt(pi) times 1 - u^2 / 2 + 3 u^4 / 4 - ..., each sum on the other side
    for k in range(20):
        term = mpf(-1) ** k * mpmath.fac2(2 * k - 1) / mpf(2) ** k / mpmath.sqrt(mpmath.pi)
        exact_terms[2 * k] += 2 * term
        exact_terms[2 * k + 1] += term
    omitted = (2 + far) * mpmath.fac2(39) / mpf(2) ** 20 * far**40
    for a, b in divided(mpf(0), far, 2):
        c, r = (a + b) / 2, far
        q = [
            2 / (1 + 3 * c) * (-3 / (1 + 3 * c)) ** k for k in range(terms)
        ]  # q = 2 / (1 + 3 u) - 1
        q[0] -= 1
        found = composed(p, q, terms)
        largest = (1 + 3 * (c + r)) / (1 - 3 * (c + r))  # |q|
        rest = Series(found, size_at(p, largest), r).remainder(b - c)
        g = moved(exact_terms, c)
        yield Difference(less(found, g), rest + omitted, g, omitted, a - c, b - c)


def divided(low: Number, high: Number, parts: int) -> Iterator[tuple[Number, Number]]:
    for n in range(parts):
        yield low + (high - low) * n / parts, low + (high - low) * (n + 1) / parts


def _change(complement: bool) -> Iterator[Difference]:
    """erf or erfc from every row of its table."""
    h = mpf(lookup_tables.ERF_SPACING)
    parts = [exact(c, F64) for c in (erf.ERFC_CHANGE if complement else erf.ERF_CHANGE)]
    for n in range(round(erf.ERF_IS_ONE / lookup_tables.ERF_SPACING) + 1):
        x = n * h
        p = [mpf(1)] + [mpf(0)] * 12
        for factor, shift, table in zip((n, 1, 1), (1, 2, 4), parts, strict=True):
            for k, c in enumerate(table):
                p[k + shift] += c * n**k * factor
        bell = [mpf(1), -2 * x]  # e^(-2 x t - t^2) by g' = -2 (x + t) g
        for k in range(2, 20):
            bell.append(-2 * (x * bell[-1] + bell[-2]) / k)
        change = [a / k for k, a in enumerate(bell, 1)]  # its integral over d
        rest = Series(change, mpmath.exp(x / 4 + mpf(1) / 64), mpf(1) / 8).remainder(h / 2)
        if n == 0 and not complement:
            yield Difference(less(p, change), rest, change, rest, mpf(0), h / 2)
            continue
        slope = 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-x * x)
        value, sign = (mpmath.erfc(x), -slope) if complement else (mpmath.erf(x), slope)
        error = [mpf(0), *(slope * c for c in less(p, change))]
        rest *= slope * h / 2
        yield Difference(error, rest, [value, *(sign * c for c in change)], rest, -h / 2, h / 2)


TWO = (F32, F64)
CODY = (
    "n ln 2 + r: W. Cody and W. Waite, Software Manual for the Elementary Functions, 1980; "
    "DLMF 4.2.19"
)
CELLS_OF_LOG = (
    "cells: P. Tang, Table-Driven Implementation of the Logarithm Function, 1990; DLMF 4.6.1"
)
GRID = "grid of exact values: S. Gal, Computing Elementary Functions, 1986; DLMF 7.10.1"
PIECES = "Taylor series: DLMF 7.10.1"
WHOLE_RANGE = (
    "M. Shepherd and J. Laframboise, Chebyshev Approximation of (1 + 2x) exp(x^2) erfc x, "
    "1981; DLMF 7.12.1"
)


def _of_r(element: ElementType, name: str, start: int, high: Callable[[], Number]) -> Differences:
    """1 + r + r^2 table(r), or 1 + r table(r)"""
    p = taken(start * (1,), element, getattr(exponential, name.upper())[element])
    yield near_zero(name, p, -high(), high())


def _of_square(
    element: ElementType, mod: Any, name: str, high: Callable[[], Number]
) -> Differences:
    """x + x^3 table(x^2), over x"""
    p = taken((1,), element, getattr(mod, name.upper())[element])
    yield near_zero(name, p, 0, high() ** 2)


def _quotient(element: ElementType, mod: Any, name: str, high: Callable[[], Number]) -> Differences:
    """x + x^3 P(x^2) / Q(x^2), over x"""
    over, under = (exact(t, element) for t in getattr(mod, name.upper())[element])
    yield near_zero(name, less(under, [mpf(0), *(-c for c in over)]), 0, high() ** 2, under)


def _half() -> Number:
    """ln(2) / 2, and a little more, as the nearest multiple of ln 2 is found by rounded
    products.
    """
    return mpmath.ln(2) / 2 * (1 + mpf(2) ** -16)


def _quarter_turn() -> Number:
    return mpf("1.0005") * mpmath.pi / 2


def _tables() -> Iterator[tuple[str, Table]]:
    square = lambda *at: partial(_of_square, mod=at[0], name=at[1], high=at[2])  # noqa: E731
    quotient = lambda *at: partial(_quotient, mod=at[0], name=at[1], high=at[2])  # noqa: E731
    of_r = lambda *at: partial(_of_r, name=at[0], start=at[1], high=at[2])  # noqa: E731
    log = lambda base: partial(_logarithm, base=base)  # noqa: E731
    e, h, l, t = exponential, hyperbolic, logarithm, trigonometric  # noqa: E741
    simple = (  # of f32 and f64: the claims, what proves them, and the first power that is free
        (e, "EXP", (26.0, 56.4), of_r("exp", 2, lambda: 2 * _half()), 2, CODY),
        (e, "EXP2", (27.7, 55.5), _exp2, 2, CODY),
        (e, "EXPM1", (26.1, 55.5), of_r("expm1", 1, _half), 1, CODY),
        (h, "SINH", (26.1, 61.6), square(h, "sinh", _half), 1, "DLMF 4.33.1"),
        (h, "COSH", (33.2, 70.0), square(h, "cosh", _half), 1, "DLMF 4.33.2"),
        (h, "ATANH", (30.1, 59.0), square(h, "atanh", lambda: mpf("0.2837")), 1, "DLMF 4.38.5"),
        (
            h,
            "TANH",
            (28.8, 62.9),
            quotient(h, "tanh", lambda: mpf(h.TANH_LIMIT)),
            None,
            "DLMF 4.33.3",
        ),
        (t, "SIN", (26.1, 61.5), square(t, "sin", _quarter_turn), 1, "DLMF 4.19.1"),
        (
            t,
            "TAN",
            (30.7, 55.4),
            quotient(t, "tan", lambda: _quarter_turn() / 2),
            None,
            "DLMF 4.19.3",
        ),
        (t, "ASIN", (27.6, 59.8), square(t, "asin", lambda: mpf(0.5)), 1, "DLMF 4.24.1"),
        (t, "ATAN", (25.8, 57.7), _atan, None, "DLMF 4.24.3"),
        (l, "NATURAL", (24.9, 54.6), log(l.NATURAL), None, CELLS_OF_LOG),
        (l, "BINARY", (25.0, 54.1), log(l.BINARY), None, CELLS_OF_LOG),
        (l, "DECIMAL", (24.7, 53.8), log(l.DECIMAL), None, CELLS_OF_LOG),
    )
    for mod, name, claimed, differences, first, source in simple:
        for element, bits in zip(TWO, claimed, strict=True):
            numbers = getattr(mod, name)
            numbers = (
                numbers.tail[element] if isinstance(numbers, logarithm.Base) else numbers[element]
            )
            cells = FEW_CELLS if mod is logarithm and element is F64 else CELLS
            free = None if first is None else (first, len(numbers))
            yield (
                f"{name} {element}",
                Table(mod, bits, partial(differences, element), source, cells, free),
            )
    others = (
        (logarithm, "SERIES", 59.4, _series, "s = f / (2 + f): DLMF 4.6.4", 1),
        (power, "TAIL32", 35.4, partial(_pow, F32), CELLS_OF_LOG, None),
        (power, "TAIL", 67.4, partial(_pow, F64), CELLS_OF_LOG, None),
        (power, "RECIPROCAL_CBRT", 18.8, _cbrt, "DLMF 4.6.7", 0),
        (erf, "ERF", 56.0, _erf64, "DLMF 7.6.1", 0),
        (erf, "ERF_PIECES", 25.2, _erf_pieces, PIECES, None),
        (erf, "ERFC_PIECES", 28.1, _erfc_pieces, PIECES, None),
        (erf, "ERFCX_PIECES", 25.8, _erfcx_pieces, PIECES, None),
        (erf, "ERFCX", 59.2, _erfcx64, WHOLE_RANGE, None),
        (erf, "ERF_CHANGE", 56.6, partial(_change, False), GRID, None),
        (erf, "ERFC_CHANGE", 56.1, partial(_change, True), GRID, None),
    )
    for mod, name, bits, differences, source, first in others:
        cells = FEW_CELLS if name in ("TAIL", "ERF_CHANGE", "ERFC_CHANGE") else CELLS
        free = None if first is None else (first, len(getattr(mod, name)))
        yield name, Table(mod, bits, differences, source, cells, free)


TABLES: dict[str, Table] = dict(_tables())


# constants


def parts(x: Number, element: ElementType, count: int) -> tuple[Number, ...]:
    """The nearest number, and the nearest of what is left, and so on."""
    found: list[Number] = []
    for _ in range(count):
        found.append(rounded(x - sum(found), element))
    return tuple(found)


def constants() -> Iterator[tuple[str, bool]]:
    """Descriptions of the constants, each with whether it holds."""
    pi, log2, log10 = +mpmath.pi, mpmath.ln(2), mpmath.ln(10)

    def same(table: Sequence[float], numbers: Sequence[Number], element: ElementType) -> bool:
        return exact(table, element) == [*numbers]

    for t in TWO:
        yield (
            f"HALF_PI {t}: pi/2 in three parts",
            same(reduction.HALF_PI[t], parts(pi / 2, t, 3), t),
        )
        yield f"LN2 {t}: ln 2 in two parts", same(primitives.LN2[t], parts(log2, t, 2), t)
        places, (first, second) = {F32: 16, F64: 42}[t], exact(primitives.SHORT_LN2[t], t)
        yield (
            f"SHORT_LN2 {t}: ln 2 to {places} bits",
            first == mpmath.nint(log2 * 2**places) / 2**places,
        )
        yield f"SHORT_LN2 {t}: the rest", second == rounded(log2 - first, t)
        for base, e, two in (
            (logarithm.NATURAL, 1, parts(log2, t, 2)),
            (logarithm.BINARY, 1 / log2, (1, 0)),
            (logarithm.DECIMAL, 1 / log10, parts(log2 / log10, t, 2)),
        ):
            yield f"{base.name} {t}: of e", same((base.e[t],), parts(e, t, 1), t)
            yield f"{base.name} {t}: of 2", same(base.two[t], two, t)
        yield (
            f"NEAR {t}: three parts of pi/2 are enough",
            _lost_of_turns(t) < mpf(2) ** -primitives.MANTISSA[t] / 2**10,
        )
    for name, number, value in (
        ("TWO_OVER_PI", reduction.TWO_OVER_PI, 2 / pi),
        ("LOG2_E", exponential.LOG2_E, 1 / log2),
        ("ROOT_PI_INVERSE", erf.ROOT_PI_INVERSE, 1 / mpmath.sqrt(pi)),
    ):
        yield name, same((number,), parts(value, F64, 1), F64)
    turns = exact(reduction.QUARTER_TURN[F32], F32)
    left = [pi / 2 - sum(turns[:n]) for n in range(3)]
    yield (
        "QUARTER_TURN f32: rounded down",
        all(0 <= a - b < a * mpf(2) ** -23 for a, b in zip(left[:2], turns, strict=False)),
    )
    yield "QUARTER_TURN f32: the third part", turns[2] == rounded(left[2], F32)
    digits = reduction.TWO_OVER_PI_BITS
    with mpmath.workdps(500):
        yield (
            "TWO_OVER_PI_BITS (Payne and Hanek)",
            int(digits, 16) == int(2 / mpmath.pi * 16 ** len(digits)),
        )
    factors = exact(trigonometric.HALF_PI_FACTORS, F32)
    yield "HALF_PI_FACTORS: to 2^-44.5", abs(factors[0] * factors[1] * 2 / pi - 1) < mpf(2) ** -44.5
    starts, rests = (exact(c, F32) for c in (power.START, power.REST))
    for factor, start, rest in zip(power.FACTOR, starts, rests, strict=True):
        yield f"START of {factor}: 16 bits", start * 2**16 == mpmath.nint(start * 2**16)
        yield f"REST of {factor}", rest == rounded(-mpmath.log(factor) - start, F32)
    for t in TWO:
        yield f"the start of cbrt {t}", largest_start_of_cbrt(t) < float(CBRT_START)
    yield from limits()


def limits() -> Iterator[tuple[str, bool]]:
    """Bounds beyond which a result is a constant: half a unit in the last place beyond it, or
    more.
    """
    exp = mpmath.exp
    for t in TWO:
        digits, greatest = primitives.MANTISSA[t] + 1, primitives.BIAS[t] + 1
        half, least = mpf(2) ** -digits / 2, mpf(2) ** (1 - greatest - digits + 2) / 2
        low, high = exponential.RANGE[t]
        yield f"RANGE {t}", exp(low) < least and exp(high) > mpf(2) ** greatest
        low, high = exponential.RANGE2[t]
        yield f"RANGE2 {t}", mpf(2) ** low < least and mpf(2) ** high > mpf(2) ** (greatest - 1)
        normal = exp(-mpf(exponential.USUAL[t])) >= mpf(2) ** (2 - greatest)
        yield f"USUAL {t}", normal and exp(mpf(exponential.USUAL[t])) < mpf(2) ** greatest / 2
        yield f"FLAT {t}", 1 - mpmath.tanh(hyperbolic.FLAT[t]) < half
        yield f"LIMIT {t}", mpmath.erfc(rounded(erf.LIMIT[t], t)) < least
        root = mpf(float(np.array(logarithm.SQRT_HALF[t], f"i{t.bytes}").view(t.dtype)))
        yield f"SQRT_HALF {t}", abs(root - mpmath.sqrt(0.5)) < 2 * half
        many = mpf(2) ** primitives.MANY
        yield f"MANY {t}", 1 / many < half and many**2 < mpf(2) ** greatest
    yield "ERF_LIMIT", mpmath.erfc(rounded(erf.ERF_LIMIT, F32)) < mpf(2) ** -25
    yield "ERF_IS_ONE", mpmath.erfc(mpf(erf.ERF_IS_ONE)) < mpf(2) ** -54
    yield "LARGE", exp(mpf(erf.LARGE) ** 2) > mpf(2) ** 1024


def _lost_of_turns(t: ElementType) -> Number:
    """Bound the part of n pi/2 that its three parts leave out, relative to x - n pi/2, x < NEAR.

    Of whole m and n > 0, m - n a is least in size for the denominators n of convergents of a's
    continued fraction.
    """
    lost = abs(mpmath.pi / 2 - sum(exact(reduction.HALF_PI[t], t)))
    digits, worst = primitives.MANTISSA[t] + 1, mpf(0)
    for exponent in range(round(math.log2(reduction.NEAR[t])) + 1):  # x in [1/2, 1), [1, 2), ...
        unit = mpf(2) ** (exponent - digits)
        most = mpf(2) ** exponent * 2 / mpmath.pi + 1
        a = x = mpmath.pi / 2 / unit
        (n0, n), (m0, m) = (0, 1), (1, mpmath.floor(a))
        while n <= most:
            worst = max(worst, lost * most / (abs(m - n * a) * unit))
            x = 1 / (x - mpmath.floor(x))
            n0, n, m0, m = n, mpmath.floor(x) * n + n0, m, mpmath.floor(x) * m + m0
    return worst


def largest_start_of_cbrt(t: ElementType) -> float:
    """The largest size of d = 1 - a q^3 for the first q of `power._root`, over three octaves of a.

    Three octaves on, q is half as large, up to a unit in its last place, of 2^-15 or less.
    """
    width, shift, bias = primitives.MANTISSA[t], *((8, 127) if t is F32 else (32, 1023))
    kept = width - shift
    one = bias << kept
    upper = np.arange(one, one + (3 << kept), dtype=np.int64)
    offset = 2.0**width + round(2.0**width / 3 + one * 4 / 3 - 0.06805 * 2.0**kept)
    third = mpf(float(t.dtype.type(-1 / 3)))
    constant = (
        int(mpmath.nint((offset + third * mpf(2) ** width - mpf(2) ** width) * 2**20)) / 2**20
    )
    places = np.rint(constant + float(third) * upper).astype(np.int64) << shift
    integers = f"i{t.bytes}"
    q = places.astype(integers).view(t.dtype).astype(np.float64)
    ends = (upper << shift, (upper + 1 << shift) - 1)
    return max(
        float(np.abs(1 - e.astype(integers).view(t.dtype).astype(np.float64) * q**3).max())
        for e in ends
    )


def lookup_rows() -> Iterator[tuple[str, int]]:
    """Each lookup table, and how many of its numbers are not the nearest to the exact ones."""

    def wrong(found: Iterable[float], numbers: Iterable[Number]) -> int:
        return sum(mpf(float(a)) != rounded(b, F64) for a, b in zip(found, numbers, strict=True))

    h = mpf(lookup_tables.ERF_SPACING)
    for name, values in (("erf", mpmath.erf), ("erfc", mpmath.erfc)):
        rows = next(r for r in lookup_tables.ROWS if r.columns[0] == f"{name}_value").numbers()
        n = lookup_tables.ERF_ROWS
        yield f"{name}_value", wrong(rows[:n, 0], (values(k * h) for k in range(n)))
        slopes = (2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-((k * h) ** 2)) for k in range(n))
        yield f"{name}_slope", wrong(rows[:n, 1], slopes)
    for name, base in (("log", mpmath.e), ("log2", mpf(2)), ("log10", mpf(10)), ("pow", mpmath.e)):
        rows = next(r for r in lookup_tables.ROWS if r.columns[0] == f"{name}_factor").numbers()
        factors = [mpf(float(f)) for f in rows[:, 0]]
        logs = [-mpmath.log(f) / mpmath.log(base) for f in factors]
        if name == "pow":
            logs = [b - mpf(float(a)) for a, b in zip(rows[:, 1], logs, strict=True)]
        yield (
            f"{name}_{'low' if name == 'pow' else 'value'}",
            wrong(rows[:, 2 if name == "pow" else 1], logs),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table, and return how many claims do not hold."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tables", nargs="*", metavar="TABLE", help="a table's name, such as EXP or ERFCX"
    )
    chosen = parser.parse_args(arguments).tables
    wrong = 0
    print(
        "| module | table | claimed | proved | best of as many numbers | source |\n"
        "|---|---|---|---|---|---|"
    )
    for name, t in TABLES.items():
        if chosen and name.split()[0] not in chosen:
            continue
        bits, best = t.bits(), t.best()
        wrong += bits < t.claimed
        shown = "" if best is None else f"2^-{best:.2f}"
        where = t.module.__name__.rpartition(".")[2]
        print(
            f"| {where} | {name} | 2^-{t.claimed} | 2^-{bits:.2f} | {shown} | {t.source} |",
            flush=True,
        )
    if not chosen:
        with mpmath.workdps(DIGITS):
            for name, holds in constants():
                wrong += not holds
                print(f"{name}: {'holds' if holds else 'DOES NOT HOLD'}")
            for name, count in lookup_rows():
                wrong += count
                print(f"{name}: {count} numbers are not the nearest ones")
    return wrong


if __name__ == "__main__":
    sys.exit(main() > 0)
