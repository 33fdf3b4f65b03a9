"""Functions of complex numbers whose parts are infinite, undefined, as large or as small as there
are: what the reference has.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import cvm

TYPES = {"complex<f64>": np.dtype(np.complex128), "complex<f32>": np.dtype(np.complex64)}
FUNCTIONS = (
    "exp expm1 log log2 log10 sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh "
    "arctanh sqrt abs_"
)
ODD = ("sin",)  # C leaves the sign of an infinity open, where the angle is not known


def evaluated(target: str, name: str, element: str, *operands: Any) -> Any:
    arguments = ", ".join(f"%x{n}: tensor<{a.size}x{element}>" for n, a in enumerate(operands))
    values = ", ".join(f"%x{n}" for n in range(len(operands)))
    text = (
        f"func @main({arguments}) {{\n"
        f'  %y = theano.elemwise {values} {{scalar_op = "{name}"}}\n  return %y\n}}'
    )
    return cvm.compile(text, target=target)(*operands)


def parts(dtype: np.dtype) -> list[float]:
    limits = np.finfo(dtype)
    large, least = float(limits.max), float(limits.smallest_subnormal)
    one_sided = [
        0.0,
        0.5,
        1.0,
        1 + 1e-7,
        2.0,
        30.0,
        800.0,
        1e10,
        1e-10,
        large / 4,
        1.01 * large**0.5,
        np.inf,
        large,
    ]
    one_sided += [least, float(limits.tiny), large**0.65]
    return [*one_sided, *(-v for v in one_sided), np.nan]


def numbers(dtype: np.dtype, *axes: list[float]) -> list[Any]:
    """All combinations of parts, in pairs."""
    grid = np.array(np.meshgrid(*axes)).reshape(len(axes), -1)
    found: list[Any] = [np.empty(grid.shape[1], dtype) for _ in axes[::2]]
    for n, z in enumerate(found):
        z.real, z.imag = grid[2 * n], grid[2 * n + 1]
    return found


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    unsigned = f"u{a.itemsize}"
    nan = np.isnan(a) & np.isnan(b)
    return bool(
        np.all(
            nan | (np.ascontiguousarray(a).view(unsigned) == np.ascontiguousarray(b).view(unsigned))
        )
    )


@pytest.mark.sample(19)
@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("name", FUNCTIONS.split())
def test_of_all_parts(name: str, element: str) -> None:
    edges = parts(TYPES[element])
    (z,) = numbers(TYPES[element], edges, edges)
    found, wanted = (evaluated(target, name, element, z) for target in ("cpu", "reference"))
    size = np.abs(wanted)
    for a, b in ((found.real, wanted.real), (found.imag, wanted.imag)):
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        infinite = np.isinf(b)
        np.testing.assert_array_equal(np.isinf(a), infinite)
        if name not in ODD:
            np.testing.assert_array_equal(a[infinite], b[infinite])
        known = np.isfinite(a)
        scale = np.where(np.isfinite(size), size, np.abs(b))[known]
        limits = np.finfo(a.dtype)
        assert np.all(
            np.abs(a[known] - b[known]) <= 32 * limits.eps * scale + 4 * limits.smallest_subnormal
        )
        exact = known & np.isfinite(z) & (a == 0) & (b == 0)
        if (
            name != "expm1"
        ):  # whose real part is 0 in the reference where it is less than it can tell
            np.testing.assert_array_equal(np.signbit(a[exact]), np.signbit(b[exact]))


@pytest.mark.parametrize("element", TYPES)
def test_log1p_near_0_and_around_minus_1(element: str) -> None:
    dtype = TYPES[element]
    z = np.array(
        [
            1e-12 + 3e-13j,
            -1e-20 + 1e-30j,
            -0.02 + 0.199j,
            -1 + 1e-9j,
            -1 - 0j,
            0.3 - 0.2j,
            1e30j,
            5 + 5j,
        ],
        dtype,
    )
    squares = [
        float((1 + Fraction(x)) ** 2 + Fraction(y) ** 2 - 1)
        for x, y in zip(np.real(z).tolist(), np.imag(z).tolist(), strict=True)
    ]
    with np.errstate(divide="ignore"):
        real: Any = 0.5 * np.log1p(squares)
    real[3] = np.log(np.imag(z)[3])
    found = evaluated("cpu", "log1p", element, z)
    np.testing.assert_allclose(
        found.real, real.astype(found.real.dtype), rtol=1e-6 if dtype.itemsize == 8 else 1e-14
    )


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("name, arity", [("true_div", 2), ("inv", 1)])
def test_quotients_are_those_of_the_reference(name: str, arity: int, element: str) -> None:
    dtype = TYPES[element]
    edges = [
        0.0,
        -0.0,
        1.0,
        -3.0,
        2.5,
        np.inf,
        -np.inf,
        np.nan,
        *(float(f(dtype)) for f in (largest, least)),
    ]
    random = np.random.default_rng(0)
    some = random.normal(size=(2 * arity, 3000)) * 10.0 ** random.integers(-3, 3, (2 * arity, 3000))
    operands = [
        np.concatenate([z, (some[2 * n] + 1j * some[2 * n + 1]).astype(dtype)])
        for n, z in enumerate(numbers(dtype, *[edges] * (2 * arity)))
    ]
    found, wanted = (evaluated(target, name, element, *operands) for target in ("cpu", "reference"))
    assert same_bits(found.real, wanted.real) and same_bits(found.imag, wanted.imag)


def largest(dtype: np.dtype) -> float:
    return float(np.finfo(dtype).max)


def least(dtype: np.dtype) -> float:
    return -float(np.finfo(dtype).smallest_subnormal)
