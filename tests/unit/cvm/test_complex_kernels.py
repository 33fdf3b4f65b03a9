"""Complex numbers in kernels: numbers, arrays, functions and reductions, as in Python and NumPy."""

from __future__ import annotations

import cmath
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernels_as_python import check, check_mistake

import cvm

RNG = np.random.default_rng(0)
Z = RNG.normal(size=16) + 1j * RNG.normal(size=16)
SPECIAL = np.array(
    [complex(a, b) for a in (0.0, -0.0, np.inf, np.nan, 1.5) for b in (-0.0, np.inf, 2.0)]
)
FACTOR, WEIGHTS = 2 - 1j, Z[:4].copy()


def mandelbrot(out: Any, most: int) -> None:
    rows, columns = out.shape
    for i in range(rows):
        for j in range(columns):
            c, z = complex(3 * j / columns - 2, 2 * i / rows - 1), 0j
            for k in range(most):  # noqa: B007
                if z.real * z.real + z.imag * z.imag > 4:
                    break
                z = z * z + c
            else:
                k = most
            out[i, j] = k


def fourier(x: Any) -> Any:
    n, y, j = len(x), x.copy(), 0
    for i in range(1, n):
        bit = n >> 1
        while j & bit:
            j ^= bit
            bit >>= 1
        j ^= bit
        if i < j:
            y[i], y[j] = y[j], y[i]
    size = 2
    while size <= n:
        turn = complex(math.cos(-2 * math.pi / size), math.sin(-2 * math.pi / size))
        for i in range(0, n, size):
            w = 1 + 0j
            for k in range(i, i + size // 2):
                u, v = y[k], y[k + size // 2] * w
                y[k], y[k + size // 2] = u + v, u - v
                w *= turn
        size *= 2
    return y


def arithmetic(z: Any, w: Any) -> Any:
    product, same = 1, 0
    for i in range(len(z)):
        z[i] = (z[i] + w[i]) * FACTOR - 2 * z[i] + 1j
        if z[i] == w[i] or z[i] != z[0]:
            same += 1
        product = product * z[i].conjugate() * z[i] ** 2
        w[i] = -w[i] + complex(z[i].imag, w[i].real) + True
    return product, same, bool(product), product.real


def quotients(z: Any, w: Any) -> None:
    for i in range(len(z)):
        z[i] = z[i] / w[i]


def arrays(z: Any) -> Any:
    y, ones = np.zeros(len(z), complex), np.ones((2, 2), np.complex64)
    y[:] = z * 2 - 1
    y[1:] += z[:-1]
    y[z != z[0]] *= 1j
    ones[0, 0] = 1j
    return y, ones, np.conj(z), z.conj().copy(), np.where(np.abs(z) > 1, z, 0), np.full(3, 2j)


def captured(n: int) -> Any:
    total = 0j
    for i in range(n):
        total += WEIGHTS[i] * FACTOR
    return total


def met(z: Any) -> Any:
    best = z[0] if len(z) > 3 else 1.5
    return best, best * 2


def parallel(z: Any) -> None:
    for i in cvm.prange(len(z)):
        z[i] = z[i] * 1j + z[i].real


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (mandelbrot, (np.zeros((12, 18), np.int64), 40)),
        (fourier, (Z,)),
        (fourier, (Z.astype(np.complex64),)),
        (fourier, (Z[::2],)),
        (arithmetic, (Z, Z[::-1])),
        (arithmetic, (SPECIAL, SPECIAL[::-1])),
        (quotients, (Z, Z[::-1])),
        (arrays, (Z,)),
        (captured, (4,)),
        (met, (Z,)),
        (met, (Z[:2],)),
        (parallel, (Z,)),
    ],
)
def test_kernels(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    check(function, *arguments)


def results(z: Any) -> Any:
    return z * 1j, z.real, z.imag, (-z,), z == 1, 1 / z, z.conjugate(), complex(z), +z


@pytest.mark.parametrize("z", [1 + 2j, np.complex64(1 + 2j), np.complex128(-1j)])
def test_numbers(z: Any) -> None:
    kernel = cvm.kernel(results)
    for _ in range(2):
        found, wanted = kernel(z), results(z)
        assert found == wanted
        assert list(map(type, found)) == list(map(type, wanted))


def functions(z: Any) -> Any:
    return (
        np.exp(z),
        np.sqrt(z),
        np.log(z),
        np.tanh(z),
        np.abs(z),
        z**3,
        z**0.5,
        abs(z[0]),
        np.sum(z),
        z.mean(),
        z @ z,
    )


def functions_of_numbers(z: Any) -> Any:
    return cmath.exp(z), cmath.sqrt(z), cmath.atan(z), abs(z), cmath.isnan(z), z**-2, np.sin(z)


@pytest.mark.parametrize(
    "function, z",
    [(functions, Z), (functions, Z.astype(np.complex64)), (functions_of_numbers, 2 - 1j)],
)
def test_functions(function: Callable[..., Any], z: Any) -> None:
    error = 1e-5 if getattr(z, "dtype", None) == np.complex64 else 1e-13
    for a, b in zip(cvm.kernel(function)(z), function(z), strict=True):
        assert np.asarray(a).dtype == np.asarray(b).dtype
        assert np.allclose(a, b, rtol=error, atol=error)


def sums(z: Any) -> Any:
    return z.sum(), (z * z).sum(), z @ z


def of_blocks(z: Any) -> Any:
    total = 0j
    for i in cvm.prange(len(z)):
        total += z[i]
    return total


def test_sums_have_the_order_of_traced_functions() -> None:
    z = RNG.normal(size=5000) + 1j * RNG.normal(size=5000)
    assert cvm.kernel(sums)(z) == tuple(map(complex, cvm.compile(sums)(z)))
    blocks = [complex(np.add.accumulate(z[n : n + 1024])[-1]) for n in range(0, len(z), 1024)]
    assert cvm.kernel(of_blocks)(z) == np.add.accumulate(blocks)[-1]


def test_text_is_read_back(tmp_path: Any) -> None:
    def turned(z: Any) -> None:
        w = 1 + 0j
        for i in range(len(z)):
            z[i] = w * z[i].conjugate() / (z[i] + 3)
            w *= 1j

    kernel = cvm.kernel(turned)
    ours, texts = Z.copy(), Z.copy()
    kernel(ours)
    path = tmp_path / "k.loops"
    path.write_text(kernel.lower("loops"))
    cvm.compile(path)(texts)
    assert np.array_equal(texts, ours)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("z < 1", "complex numbers have no order: compare them by == or !="),
        ("float(z)", "expected a real number, got a complex one: use .real or .imag"),
        ("math.sqrt(z)", "expected a real number, got a complex one"),
        ("z // 1", "// does not take complex numbers"),
        ("z >> 1", ">> takes integers, got complex and int"),
        ("~z", "~ takes integers, got a complex"),
        ("min(z, 1)", "min does not take complex numbers"),
        ("np.floor(z)", "np.floor does not take complex"),
        ("np.max(x)", "complex numbers have no order in kernels"),
        ("np.argmin(x)", "complex numbers have no order in kernels"),
        ("np.std(x)", "var and std take real numbers in kernels"),
        ("x[z]", "expected an integer, got a number of type complex"),
        ("x.real", "arrays in kernels have shape, .* not real"),
    ],
)
def test_mistakes(expression: str, message: str, tmp_path: Path) -> None:
    check_mistake(message, f"def f(z, x):\n    return {expression}\n", tmp_path, 1j, Z)
