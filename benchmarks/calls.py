"""What a call costs by itself: three arrays of 8 elements, with an output given and without. Every check is made each time."""

from __future__ import annotations

from typing import Any

import numpy as np
from side_by_side import Case, installed

import cvm


def operands() -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(0)
    return tuple(random.random(8, np.float32) for _ in range(3))


def compiled(n: str = "8") -> Any:
    type = f"tensor<{n} x f32>"
    head = f"func @main(%a: {type}, %b: {type}, %c: {type}) {{\n"
    return cvm.compile(head + "%m = dali.mul %a, %b\n%y = dali.add %m, %c\nreturn %y\n}")


def given(n: str = "8") -> Case:
    a, b, c = operands()
    out = np.empty_like(a)
    f = compiled(n)
    case = Case({"cvm": lambda: f(a, b, c, out=out)}, out=out)

    def plain() -> None:
        np.multiply(a, b, out=out)
        np.add(out, c, out=out)

    case.contenders["numpy, two calls"] = plain
    if numba := installed("numba"):

        @numba.njit
        def loop(a: Any, b: Any, c: Any, out: Any) -> None:
            for i in range(a.size):
                out[i] = a[i] * b[i] + c[i]

        @numba.vectorize
        def function(a: Any, b: Any, c: Any) -> Any:
            return a * b + c

        case.contenders["numba"] = lambda: loop(a, b, c, out)
        case.contenders["numba ufunc"] = lambda: function(a, b, c, out=out)
    if torch := installed("torch"):
        x, y, z, to = (torch.from_numpy(v) for v in (a, b, c, out))

        def by_torch() -> None:
            torch.addcmul(z, x, y, out=to)

        case.contenders["torch"] = by_torch
    return case


def allocating() -> Case:
    a, b, c = operands()
    f = compiled()
    traced = cvm.compile(lambda a, b, c: a * b + c)
    case = Case({"cvm": lambda: f(a, b, c), "cvm, traced": lambda: traced(a, b, c)})
    case.contenders["numpy, two calls"] = lambda: a * b + c
    if numba := installed("numba"):

        @numba.njit
        def function(a: Any, b: Any, c: Any) -> Any:
            out = np.empty_like(a)
            for i in range(a.size):
                out[i] = a[i] * b[i] + c[i]
            return out

        case.contenders["numba"] = lambda: function(a, b, c)
    if jax := installed("jax"):
        g = jax.jit(lambda a, b, c: a * b + c)
        on_device = [jax.device_put(v) for v in (a, b, c)]
        case.contenders["jax"] = lambda: g(*on_device)
    if torch := installed("torch"):
        x, y, z = (torch.from_numpy(v) for v in (a, b, c))
        case.contenders["torch"] = lambda: torch.addcmul(z, x, y)
    return case


WORK = {
    "8 elements, out given": given,
    "8 elements, allocating": allocating,
    "8 elements of unknown number, out given": lambda: given("?N"),
}
