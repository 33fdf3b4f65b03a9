"""Theano's special functions against mpmath: the reference and compiled code, between and beyond
their pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from typing import Any

import numpy as np
import pytest

import cvm

pytestmark = pytest.mark.slow  # each function has a filetest and its sample in the quick tier

mpmath = pytest.importorskip("mpmath")

WIDE = [
    -30.3,
    -7.25,
    -2.5,
    -0.4,
    -1e-9,
    1e-9,
    0.1,
    0.49,
    0.51,
    0.9,
    1.1,
    1.9,
    2.1,
    2.9,
    3.1,
    7.9,
    8.1,
    20.0,
    33.3,
]
EXACT: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "erf": (mpmath.erf, WIDE),
    "erfc": (mpmath.erfc, [v for v in WIDE if v < 25]),
    "erfcx": (lambda x: mpmath.exp(x * x) * mpmath.erfc(x), [v for v in WIDE if v > -20]),
    "erfinv": (mpmath.erfinv, [-0.999999, -0.9, -0.3, 1e-8, 0.2, 0.96, 0.9999, 1 - 1e-15]),
    "erfcinv": (lambda x: mpmath.erfinv(1 - x), [1e-12, 0.01, 0.3, 0.6, 0.99, 1.4, 1.99]),
    "gamma": (mpmath.gamma, [v for v in WIDE if v > -20]),
    "gammaln": (lambda x: mpmath.log(abs(mpmath.gamma(x))), WIDE),
    "psi": (mpmath.digamma, WIDE),
    "tri_gamma": (lambda x: mpmath.psi(1, x), WIDE),
    "j0": (lambda x: mpmath.besselj(0, x), WIDE),
    "j1": (lambda x: mpmath.besselj(1, x), WIDE),
    "i0": (lambda x: mpmath.besseli(0, x), WIDE),
    "i1": (lambda x: mpmath.besseli(1, x), WIDE),
}
PAIRS: dict[str, Callable[[Any, Any], Any]] = {
    "gammainc": lambda a, x: mpmath.gammainc(a, 0, x, regularized=True),
    "gammaincc": lambda a, x: mpmath.gammainc(a, x, regularized=True),
    "gammal": lambda a, x: mpmath.gammainc(a, 0, x),
    "gammau": lambda a, x: mpmath.gammainc(a, x),
    "chi2sf": lambda x, k: mpmath.gammainc(mpmath.mpf(k) / 2, mpmath.mpf(x) / 2, regularized=True),
    "jv": mpmath.besselj,
    "iv": mpmath.besseli,
}


@cache
def compiled(name: str, target: str, count: int) -> Any:
    """A function of so many operands, of any size, since some are long to compile."""
    arguments = ", ".join(f"%x{n}: tensor<?N x f64>" for n in range(count))
    values = ", ".join(f"%x{n}" for n in range(count))
    text = (
        f"func @main({arguments}) {{\n"
        f'  %y = theano.elemwise {values} {{scalar_op = "{name}"}}\n  return %y\n}}'
    )
    return cvm.compile(text, target=target)


def evaluated(name: str, target: str, *operands: np.ndarray) -> np.ndarray:
    return compiled(name, target, len(operands))(*operands)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", EXACT)
def test_one_operand(name: str, target: str) -> None:
    exact, points = EXACT[name]
    with mpmath.workdps(40):
        wanted = [float(exact(mpmath.mpf(x))) for x in points]
    np.testing.assert_allclose(
        evaluated(name, target, np.array(points)), wanted, rtol=2e-13, atol=3e-15
    )


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_the_inverse_of_erfc_of_the_least_numbers(target: str) -> None:
    points = np.array([1e-50, 9e-101, 1.1e-100, 1e-300, 2.3e-308, 1e-310, 1e-322, 1.5e-323, 5e-324])
    found = evaluated("erfcinv", target, points)
    with mpmath.workdps(40):  # one step of Newton's method from it is hardly one
        missed = [
            float((mpmath.erfc(y) / mpmath.mpf(c) - 1) / (2 * y * y))
            for y, c in zip(found, points, strict=True)
        ]
    np.testing.assert_allclose(missed, 0, atol=1e-15)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", PAIRS)
def test_two_operands(name: str, target: str) -> None:
    a, x = (v.ravel() for v in np.meshgrid([0.5, 1.0, 2.7, 7.0, 19.5], [0.02, 0.9, 3.0, 8.0, 25.0]))
    with mpmath.workdps(40):
        wanted = [
            float(PAIRS[name](mpmath.mpf(p), mpmath.mpf(q))) for p, q in zip(a, x, strict=True)
        ]
    np.testing.assert_allclose(evaluated(name, target, a, x), wanted, rtol=2e-11, atol=1e-13)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["jv", "iv"])
def test_high_orders_and_far_operands(name: str, target: str) -> None:
    orders = [0.0, 0.5, 3.0, 19.5, 39.5, 40.0, 50.3, 77.3, 100.0, 300.0, -0.3, -6.4, -19.5]
    v, x = (
        g.ravel()
        for g in np.meshgrid(
            orders, [12.5, 33.0, 36.0, 49.0, 51.0, 61.0, 75.0, 100.0, 149.5, 300.0, 700.0]
        )
    )
    with mpmath.workdps(40):
        wanted = np.array(
            [float(PAIRS[name](mpmath.mpf(p), mpmath.mpf(q))) for p, q in zip(v, x, strict=True)]
        )
    found = evaluated(name, target, v, x)
    scale = np.where(
        (name == "jv") & (x > np.abs(v)), np.sqrt(2 / (np.pi * x)), np.abs(wanted)
    )  # jv of large operands is a wave
    # the reference sums jv to its first term's precision, not to that of a result far below it
    least = 1e-17 if target == "reference" else 0.0
    assert np.all(np.abs(found - wanted) <= 2e-11 * scale + least)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            evaluated(name, target, np.array([0.0, 2.5]), np.array([np.inf] * 2)),
            [0.0 if name == "jv" else np.inf] * 2,
        )


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", PAIRS)
def test_nothing_of_no_number(name: str, target: str) -> None:
    a, x = (
        v.ravel()
        for v in np.meshgrid([np.nan, 0.0, 1.0, 50.0, np.inf], [np.nan, 0.0, 1.0, 50.0, np.inf])
    )
    some = np.isnan(a) | np.isnan(x)
    assert np.isnan(evaluated(name, target, a, x)[some]).all()


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["jv", "iv"])
def test_endless_orders(name: str, target: str) -> None:
    v = np.array([np.inf, np.inf, -np.inf, np.inf, np.inf, 1e300, 1e9, 1e17])
    x = np.array([0.0, 1.0, 2.5, np.inf, -1.0, 1.0, 1e6, 5.0])
    np.testing.assert_array_equal(evaluated(name, target, v, x), [0, 0, 0, np.nan, np.nan, 0, 0, 0])


def test_an_order_that_is_too_much_for_the_reference() -> None:
    with pytest.raises(
        cvm.CallError, match="memory does not suffice: the reference of jv is a sum of"
    ):
        evaluated("jv", "reference", np.array([1e300]), np.array([1e300]))


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["jv", "iv"])
def test_orders_below_0(name: str, target: str) -> None:
    v, x = (
        g.ravel()
        for g in np.meshgrid([-0.3, -1.5, -2.0, -3.0, -6.4, -12.2], [0.02, 0.9, 3.0, 8.0, 25.0])
    )
    with mpmath.workdps(40):
        wanted = [
            float(PAIRS[name](mpmath.mpf(p), mpmath.mpf(q))) for p, q in zip(v, x, strict=True)
        ]
    np.testing.assert_allclose(evaluated(name, target, v, x), wanted, rtol=2e-11, atol=1e-13)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_jv_of_orders_far_below_0(target: str) -> None:
    orders = [-2.3, -7.7, -12.2, -19.5, -40.3, -45.5, -60.25, -77.3, -100.5, -150.7, -200.1, -300.4]
    parts = [0.1, 0.2, 0.5, 0.8, 0.9, 0.95, 0.99, 1.0, 1.01, 1.05, 1.2, 1.5, 2.0, 5.0]
    v, x = (g.ravel() for g in np.meshgrid(orders, parts))
    x = -v * x
    with mpmath.workdps(60):
        wanted = np.array(
            [float(mpmath.besselj(mpmath.mpf(p), mpmath.mpf(q))) for p, q in zip(v, x, strict=True)]
        )
    scale = np.maximum(np.abs(wanted), np.sqrt(2 / (np.pi * x)))
    found = evaluated("jv", target, v, x)
    assert np.all((found == wanted) | (np.abs(found - wanted) <= 2e-11 * scale))


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_ends_of_the_incomplete_functions(target: str) -> None:
    """An order of 0 has everything below, an infinite one everything above, and one below 0 or both
    infinite have no value.
    """
    inf, nan = np.inf, np.nan
    a = np.array([0.0, 0.0, 2.0, 2.0, inf, inf, -2.0, -2.0, 2.0, nan, 2.0])
    x = np.array([1.0, 0.0, 0.0, inf, 3.0, inf, 3.0, inf, -1.0, 1.0, nan])
    below = np.array([1, nan, 0, 1, 0, nan, nan, nan, nan, nan, nan])
    np.testing.assert_array_equal(evaluated("gammainc", target, a, x), below)
    np.testing.assert_array_equal(evaluated("gammaincc", target, a, x), 1 - below)
    np.testing.assert_allclose(
        evaluated("gammal", target, a, x), [inf, nan, 0, 1, nan, *[nan] * 6], rtol=1e-15
    )
    np.testing.assert_allclose(
        evaluated("gammau", target, a, x), [nan, nan, 1, 0, inf, *[nan] * 6], rtol=1e-15
    )
    np.testing.assert_array_equal(
        evaluated("chi2sf", target, x, a), [0, nan, 1, 0, 1, nan, nan, nan, 1, nan, nan]
    )


@lru_cache(None)
def shares(a: float, x: float) -> tuple[float, float]:
    """The parts of Γ(a) below and above x."""
    with mpmath.workdps(40 if a > 1 else 360):
        order, end = mpmath.mpf(a), mpmath.mpf(x)
        front = mpmath.exp(order * mpmath.log(end) - end - mpmath.loggamma(order + 1))
        term, below = front, mpmath.mpf(0)
        while term > below * mpmath.eps / 1000:
            below, order = below + term, order + 1
            term = term * end / order
        return float(below), float(1 - below)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["gammainc", "gammaincc"])
def test_incomplete_functions_of_least_and_of_high_orders(name: str, target: str) -> None:
    least = [
        (a, x)
        for a in (5e-324, 1e-320, 1e-200, 1e-20, 1e-10, 1e-3, 0.3)
        for x in (1e-300, 1e-10, 0.5, 1.4, 1.6, 5.0, 90.0)
    ]
    high = [
        (a, a + k * a**0.5)
        for a in (150.5, 3000.0, 1e5, 131071.0, 131073.0, 1e6)
        for k in (-7, -2, -0.1, 0, 0.1, 2, 7)
    ]
    a, x = (np.array(v) for v in zip(*least, *high, strict=True))

    below, above = zip(
        *(shares(*pair) for pair in zip(a.tolist(), x.tolist(), strict=True)), strict=True
    )
    wanted = below if name == "gammainc" else above
    np.testing.assert_allclose(evaluated(name, target, a, x), wanted, rtol=2e-11, atol=5e-324)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_orders_of_which_half_is_below(target: str) -> None:
    a = np.array([2.0**20 + 1, 2.0**31 - 1, 2.0**31, 1e15, 1e100, 1e300])
    below, above = (evaluated(name, target, a, a) for name in ("gammainc", "gammaincc"))
    np.testing.assert_allclose(below - 0.5, 1 / (3 * np.sqrt(2 * np.pi * a)), rtol=1e-6, atol=1e-16)
    np.testing.assert_array_equal(below + above, 1)
    np.testing.assert_array_equal(evaluated("gammainc", target, a, a / 2), 0)
    np.testing.assert_array_equal(evaluated("gammainc", target, a / 2, a), 1)


def test_a_reference_of_a_high_order() -> None:
    np.testing.assert_array_equal(
        evaluated("jv", "reference", np.array([1e15, -1e15]), np.array([3.0, 3.0])), [0, 0]
    )
