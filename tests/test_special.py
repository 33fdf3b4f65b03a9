"""Theano's special functions against mpmath: the reference and compiled code, between and beyond their pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cvm

mpmath = pytest.importorskip("mpmath")

WIDE = [-30.3, -7.25, -2.5, -0.4, -1e-9, 1e-9, 0.1, 0.49, 0.51, 0.9, 1.1, 1.9, 2.1, 2.9, 3.1, 7.9, 8.1, 20.0, 33.3]
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


def evaluated(name: str, target: str, *operands: np.ndarray) -> np.ndarray:
    arguments = ", ".join(f"%x{n}: tensor<{a.size}xf64>" for n, a in enumerate(operands))
    values = ", ".join(f"%x{n}" for n in range(len(operands)))
    text = f'func @main({arguments}) {{\n  %y = theano.elemwise {values} {{scalar_op = "{name}"}}\n  return %y\n}}'
    return cvm.compile(text, target=target)(*operands)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", EXACT)
def test_one_operand(name: str, target: str) -> None:
    exact, points = EXACT[name]
    with mpmath.workdps(40):
        wanted = [float(exact(mpmath.mpf(x))) for x in points]
    np.testing.assert_allclose(evaluated(name, target, np.array(points)), wanted, rtol=2e-13, atol=3e-15)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", PAIRS)
def test_two_operands(name: str, target: str) -> None:
    a, x = (v.ravel() for v in np.meshgrid([0.5, 1.0, 2.7, 7.0, 19.5], [0.02, 0.9, 3.0, 8.0, 25.0]))
    with mpmath.workdps(40):
        wanted = [float(PAIRS[name](mpmath.mpf(p), mpmath.mpf(q))) for p, q in zip(a, x, strict=True)]
    np.testing.assert_allclose(evaluated(name, target, a, x), wanted, rtol=2e-11, atol=1e-13)


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["jv", "iv"])
def test_high_orders_and_far_operands(name: str, target: str) -> None:
    orders = [0.0, 0.5, 3.0, 19.5, 39.5, 40.0, 50.3, 77.3, 100.0, 300.0, -0.3, -6.4, -19.5]
    v, x = (
        g.ravel() for g in np.meshgrid(orders, [12.5, 33.0, 36.0, 49.0, 51.0, 61.0, 75.0, 100.0, 149.5, 300.0, 700.0])
    )
    with mpmath.workdps(40):
        wanted = np.array([float(PAIRS[name](mpmath.mpf(p), mpmath.mpf(q))) for p, q in zip(v, x, strict=True)])
    found = evaluated(name, target, v, x)
    scale = np.where(
        (name == "jv") & (x > np.abs(v)), np.sqrt(2 / (np.pi * x)), np.abs(wanted)
    )  # jv of large operands is a wave
    # the reference sums jv to its first term's precision, not to that of a result far below it
    least = 1e-17 if target == "reference" else 0.0
    assert np.all(np.abs(found - wanted) <= 2e-11 * scale + least)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(
            evaluated(name, target, np.array([0.0, 2.5]), np.array([np.inf] * 2)), [0.0 if name == "jv" else np.inf] * 2
        )


@pytest.mark.parametrize("target", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["jv", "iv"])
def test_orders_below_0(name: str, target: str) -> None:
    v, x = (g.ravel() for g in np.meshgrid([-0.3, -1.5, -2.0, -3.0, -6.4, -12.2], [0.02, 0.9, 3.0, 8.0, 25.0]))
    with mpmath.workdps(40):
        wanted = [float(PAIRS[name](mpmath.mpf(p), mpmath.mpf(q))) for p, q in zip(v, x, strict=True)]
    np.testing.assert_allclose(evaluated(name, target, v, x), wanted, rtol=2e-11, atol=1e-13)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_ends_of_the_incomplete_functions(target: str) -> None:
    """An order of 0 has everything below, an infinite one everything above, and one below 0 or both infinite have no value."""
    inf, nan = np.inf, np.nan
    a = np.array([0.0, 0.0, 2.0, 2.0, inf, inf, -2.0, -2.0, 2.0, nan, 2.0])
    x = np.array([1.0, 0.0, 0.0, inf, 3.0, inf, 3.0, inf, -1.0, 1.0, nan])
    below = np.array([1, nan, 0, 1, 0, nan, nan, nan, nan, nan, nan])
    np.testing.assert_array_equal(evaluated("gammainc", target, a, x), below)
    np.testing.assert_array_equal(evaluated("gammaincc", target, a, x), 1 - below)
    np.testing.assert_allclose(evaluated("gammal", target, a, x), [inf, nan, 0, 1, nan, *[nan] * 6], rtol=1e-15)
    np.testing.assert_allclose(evaluated("gammau", target, a, x), [nan, nan, 1, 0, inf, *[nan] * 6], rtol=1e-15)
    np.testing.assert_array_equal(evaluated("chi2sf", target, x, a), [0, nan, 1, 0, 1, nan, nan, nan, 1, nan, nan])


def test_a_reference_of_a_high_order() -> None:
    np.testing.assert_array_equal(evaluated("jv", "reference", np.array([1e15, -1e15]), np.array([3.0, 3.0])), [0, 0])
