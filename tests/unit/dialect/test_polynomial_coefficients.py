"""Tables of coefficients, digit by digit: computed again, by mpmath or by recurrence."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from cvm.dialect.theano import (
    bessel_orders,
    gamma,
    incomplete_gamma_reference,
    polynomial_coefficients as tables,
)

mpmath = pytest.importorskip("mpmath")
mpf = mpmath.mpf


def inverse_erf(w: Any) -> tuple[Any, Any]:
    """The x and y with erf(y) = x and w = -log(1 - x²), by Newton's method on erf, or on log
    erfc.
    """
    x = mpmath.sqrt(-mpmath.expm1(-w))
    near, c = w < 1, mpmath.exp(-w) / (1 + x)
    y = x if near else mpmath.sqrt(w)
    for _ in range(200):
        bell = 2 * mpmath.exp(-y * y) / mpmath.sqrt(mpmath.pi)
        missed = x - mpmath.erf(y) if near else mpmath.erfc(y) * mpmath.log(mpmath.erfc(y) / c)
        y += missed / bell
        if abs(missed / bell) < mpf(10) ** -45 * y:
            return x, y
    raise AssertionError(f"no convergence at {w}")


def erfinv_near(t: Any) -> Any:
    x, y = inverse_erf((t + 1) / mpf("0.32"))
    return y / x


def erfinv_far(t: Any) -> Any:
    low, high = 1 / mpf("27.5"), mpf("0.25")
    v = (low + high) / 2 + (high - low) / 2 * t
    return inverse_erf(1 / v**2)[1] * v


@cache
def wave(order: int) -> Callable[[Any], tuple[Any, Any]]:
    """Compute P and Q / u of J and Y: sqrt(2 / πx) times P cos χ - Q sin χ and P sin χ + Q cos χ.

    u is 8 / x.
    """

    @cache
    def parts(t: Any) -> tuple[Any, Any]:
        u = mpmath.sqrt((t + 1) / 2)
        x = 8 / u
        chi, root = x - (2 * order + 1) * mpmath.pi / 4, mpmath.sqrt(mpmath.pi * x / 2)
        j, y, c, s = *(b(order, x) for b in (mpmath.besselj, mpmath.bessely)), *mpmath.cos_sin(chi)
        return root * (j * c + y * s), root * (y * c - j * s) / u

    return parts


def small(order: int) -> Callable[[Any], Any]:
    def value(t: Any) -> Any:
        x = mpmath.sqrt(32 * (t + 1))
        return mpmath.besselj(order, x) / x**order

    return value


def growing(order: int) -> Callable[[Any], Any]:
    def value(t: Any) -> Any:
        x = 16 / (t + 1)
        return mpmath.besseli(order, x) * mpmath.exp(-x) * mpmath.sqrt(x)

    return value


# the function of t in [-1, 1] that each table interpolates, and at how many nodes
TABLES: dict[str, tuple[Callable[[Any], Any], int]] = {
    "ERFINV_NEAR": (erfinv_near, 64),
    "ERFINV_MIDDLE": (lambda t: inverse_erf((mpf("3.25") + mpf("0.75") * t) ** 2)[1], 64),
    "ERFINV_FAR": (erfinv_far, 50),
    "LGAMMA_NEAR": (lambda t: mpmath.loggamma(t + 2) / (t * (t + 1)), 64),
    "LGAMMA_MIDDLE": (lambda t: mpmath.loggamma(mpf("5.5") + mpf("2.5") * t), 64),
    "J0": (small(0), 64),
    "J1": (small(1), 64),
    "J0_P": (lambda t: wave(0)(t)[0], 64),
    "J0_Q": (lambda t: wave(0)(t)[1], 64),
    "J1_P": (lambda t: wave(1)(t)[0], 64),
    "J1_Q": (lambda t: wave(1)(t)[1], 64),
    "I0_FAR": (growing(0), 64),
    "I1_FAR": (growing(1), 64),
}


def interpolated(
    function: Callable[[Any], Any], nodes: int, count: int
) -> tuple[list[float], float]:
    """The Chebyshev interpolant, cut after so many terms, as powers of t; and what is cut off, at
    most.

    That is relative to the largest term.
    """
    terms = [mpf(0)] * nodes
    for j in range(nodes):
        t = mpmath.cos(mpmath.pi * (mpf(j) + mpf(1) / 2) / nodes)
        value, (last, this) = function(t) * 2 / nodes, (mpf(1), t)
        for n in range(nodes):
            terms[n] += value * last
            last, this = this, 2 * t * this - last
    terms[0] /= 2
    powers, last, this = [mpf(0)] * count, [1], [0, 1]
    for term in terms[:count]:
        for k, c in enumerate(last):
            powers[k] += term * c
        padded = [*last, 0, 0]
        last, this = this, [2 * a - b for a, b in zip([0, *this], padded, strict=True)]
    return [*map(float, powers)], float(sum(map(abs, terms[count:])) / max(map(abs, terms)))


def test_every_table_is_computed_again() -> None:
    assert {n for n in vars(tables) if n.isupper()} == TABLES.keys()


@pytest.mark.parametrize("name", TABLES)
def test_chebyshev_interpolants(name: str) -> None:
    function, nodes = TABLES[name]
    table = getattr(tables, name)
    with mpmath.workdps(50):
        numbers, cut = interpolated(function, nodes, len(table))
    assert [*table] == numbers
    assert cut < 2.0**-56


def test_bernoulli_numbers() -> None:
    numbers = [Fraction(*mpmath.bernfrac(2 * n)) for n in range(1, 10)]
    assert [*gamma.BERNOULLI] == [float(b) for b in numbers[:8]]
    assert [*gamma.STIRLING] == [float(b / (2 * n * (2 * n - 1))) for n, b in enumerate(numbers, 1)]


def test_debye_polynomials() -> None:
    """u' = p² (1 - p²) u' / 2 + the integral of (1 - 5 p²) u / 8; every second power of p is
    there.
    """
    before = {0: Fraction(1)}
    for number, table in enumerate(bessel_orders.DEBYE, 1):
        found: dict[int, Fraction] = {}
        for k, c in before.items():
            terms = {k + 1: k * c / 2 + c / 8 / (k + 1), k + 3: -k * c / 2 - 5 * c / 8 / (k + 3)}
            for power, part in terms.items():
                found[power] = found.get(power, Fraction(0)) + part
        assert all(b - a == 2 for a, b in pairwise(sorted(found)))
        assert min(found) == number and [*table] == [float(found[k]) for k in sorted(found)]
        before = found


def test_coefficients_of_temme() -> None:
    """DLMF 8.12.9 and 8.12.11, of the m of eta^2 / 2 = m - log(1 + m), and the Stirling
    coefficients of 5.11.3.
    """
    stirling = [Fraction(1), Fraction(1, 12), Fraction(1, 288)]
    count = 16
    m = [Fraction(0), Fraction(1)]  # eta (1 + m) = m m', term by term
    for k in range(2, count):
        known = sum(j * m[j] * m[k + 1 - j] for j in range(2, k))
        m.append((m[k - 1] - known) / (k + 1))
    inverse = [Fraction(1)]  # eta / m
    for k in range(1, count - 1):
        inverse.append(-sum(m[j + 1] * inverse[k - j] for j in range(1, k + 1)))
    before = inverse[1:]  # 1 / m - 1 / eta
    for order, table in enumerate(incomplete_gamma_reference.TEMME):
        if order:
            slopes = [k * c for k, c in enumerate(before)][1:]  # over eta, with the pole of 1 / m
            sign = (-1) ** order * stirling[order]
            assert slopes[0] + sign == 0
            before = [a + sign * b for a, b in zip(slopes[1:], inverse[1:], strict=False)]
        assert [*table] == [float(c) for c in before[: len(table)]]
