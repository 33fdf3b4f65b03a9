"""Chains of elementwise operations over 16M elements of f32, and a broadcast: one pass over memory,
outputs given.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from contenders import numba_loop, on_halide, on_jax, on_numexpr, on_torch
from side_by_side import Case

import cvm

N = 1 << 24
F32 = np.float32


def operands(n: int, count: int) -> list[np.ndarray]:
    random = np.random.default_rng(0)
    return [random.random(n, F32) for _ in range(count)]


def triad(n: int = N) -> Case:
    a, b, c = operands(n, 3)
    out = np.empty_like(a)
    f = cvm.compile(lambda a, b, c: a * b + c)
    case = Case({"cvm": lambda: f(a, b, c, out=out)}, 4 * a.nbytes, out, (3, 1))
    found = case.contenders

    def plain() -> None:
        np.multiply(a, b, out=out)
        np.add(out, c, out=out)

    def loop(a: Any, b: Any, c: Any, out: Any) -> None:
        for i in range(a.size):
            out[i] = a[i] * b[i] + c[i]

    found["numpy"] = plain
    on_numexpr(found, "a * b + c", {"a": a, "b": b, "c": c}, out)
    numba_loop(found, loop, a, b, c, out)
    on_torch(
        found,
        lambda torch, a, b, c, out: torch.add(torch.mul(a, b, out=out), c, out=out),
        a,
        b,
        c,
        out,
    )
    on_jax(found, lambda jax, a, b, c: a * b + c, a, b, c)
    on_halide(found, lambda hl, i, a, b, c: a[i] * b[i] + c[i], [a, b, c], out)
    return case


def arithmetic(n: int = N) -> Case:
    """Ten operations, one of them a division."""
    a, b = operands(n, 2)
    out = np.empty_like(a)
    f = cvm.compile(lambda a, b: ((a * 1.5 + b) * a - b * 0.25) * (a + 3.0) / (b * b + 2.0))
    c1, c2, c3, c4 = map(F32, (1.5, 0.25, 3, 2))
    case = Case({"cvm": lambda: f(a, b, out=out)}, 3 * a.nbytes, out, (2, 1))
    found = case.contenders

    def loop(a: Any, b: Any, out: Any) -> None:
        k1, k2, k3, k4 = F32(1.5), F32(0.25), F32(3), F32(2)
        for i in range(a.size):
            out[i] = ((a[i] * k1 + b[i]) * a[i] - b[i] * k2) * (a[i] + k3) / (b[i] * b[i] + k4)

    def written(a: Any, b: Any, divide: Any = lambda x, y: x / y) -> Any:
        return divide(((a * c1 + b) * a - b * c2) * (a + c3), b * b + c4)

    found["numpy"] = lambda: written(a, b, lambda x, y: np.divide(x, y, out=out))
    names = {"a": a, "b": b, "c1": c1, "c2": c2, "c3": c3, "c4": c4}
    on_numexpr(found, "((a * c1 + b) * a - b * c2) * (a + c3) / (b * b + c4)", names, out)
    numba_loop(found, loop, a, b, out)

    def by_torch(torch: Any, a: Any, b: Any, out: Any) -> None:
        torch.div(((a * 1.5 + b) * a - b * 0.25) * (a + 3.0), b * b + 2.0, out=out)

    on_torch(found, by_torch, a, b, out)
    on_jax(found, lambda jax, a, b: written(a, b), a, b)

    def by_halide(hl: Any, i: Any, a: Any, b: Any) -> Any:
        x, y = a[i], b[i]
        k1, k2, k3, k4 = (hl.f32(float(c)) for c in (c1, c2, c3, c4))
        return ((x * k1 + y) * x - y * k2) * (x + k3) / (y * y + k4)

    on_halide(found, by_halide, [a, b], out)
    return case


def exponential(n: int = N) -> Case:
    """Ten operations, one of them an exponential."""
    a, b = operands(n, 2)
    out = np.empty_like(a)
    f = cvm.compile(
        lambda a, b: cvm.clamp(cvm.exp((a * 0.5 + b) * a - b) * (a + 3.0) - b * 0.25, 0.0, 5.0)
    )
    c1, c2, c3, low, high = map(F32, (0.5, 3, 0.25, 0, 5))
    case = Case({"cvm": lambda: f(a, b, out=out)}, 3 * a.nbytes, out, (2, 1))
    found = case.contenders

    def written(np: Any, a: Any, b: Any) -> Any:
        return np.exp((a * c1 + b) * a - b) * (a + c2) - b * c3

    def loop(a: Any, b: Any, out: Any) -> None:
        k1, k2, k3, low, high = F32(0.5), F32(3), F32(0.25), F32(0), F32(5)
        for i in range(a.size):
            out[i] = min(
                max(np.exp((a[i] * k1 + b[i]) * a[i] - b[i]) * (a[i] + k2) - b[i] * k3, low), high
            )

    found["numpy"] = lambda: np.clip(written(np, a, b), low, high, out=out)
    names = {"a": a, "b": b, "c1": c1, "c2": c2, "c3": c3, "o": low, "h": high}
    text = "exp((a * c1 + b) * a - b) * (a + c2) - b * c3"
    on_numexpr(found, f"where(({text}) > h, h, where(({text}) < o, o, {text}))", names, out)
    numba_loop(found, loop, a, b, out)

    def by_torch(torch: Any, a: Any, b: Any, out: Any) -> None:
        torch.clamp(torch.exp((a * 0.5 + b) * a - b) * (a + 3.0) - b * 0.25, 0.0, 5.0, out=out)

    on_torch(found, by_torch, a, b, out)
    on_jax(found, lambda jax, a, b: jax.numpy.clip(written(jax.numpy, a, b), low, high), a, b)

    def by_halide(hl: Any, i: Any, a: Any, b: Any) -> Any:
        x, y = a[i], b[i]
        k1, k2, k3 = (hl.f32(float(c)) for c in (c1, c2, c3))
        return hl.clamp(hl.exp((x * k1 + y) * x - y) * (x + k2) - y * k3, hl.f32(0.0), hl.f32(5.0))

    on_halide(found, by_halide, [a, b], out)
    return case


def broadcast(n: int = 4096) -> Case:
    column, row = (a.reshape(s) for a, s in zip(operands(n, 2), ((n, 1), (1, n)), strict=True))
    out = np.empty((n, n), F32)
    f = cvm.compile(lambda a, b: a + b)
    case = Case({"cvm": lambda: f(column, row, out=out)}, out.nbytes, out, (0, 1))
    found = case.contenders
    found["numpy"] = lambda: np.add(column, row, out=out)

    def loop(column: Any, row: Any, out: Any) -> None:
        for i in range(out.shape[0]):
            for j in range(out.shape[1]):
                out[i, j] = column[i, 0] + row[0, j]

    on_numexpr(found, "a + b", {"a": column, "b": row}, out)
    numba_loop(found, loop, column, row, out)
    on_torch(found, lambda torch, a, b, out: torch.add(a, b, out=out), column, row, out)
    on_jax(found, lambda jax, a, b: a + b, column, row)
    return case


WORK = {
    "a * b + c, 16M": triad,
    "ten operations, 16M": arithmetic,
    "ten operations with exp, 16M": exponential,
    "(4096, 1) + (1, 4096)": broadcast,
    "a * b + c, 100K": lambda: triad(100_000),
}
