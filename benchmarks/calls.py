"""Measure the overhead of a call: three arrays of 8 elements, with and without a given output.
Every check is made each time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from side_by_side import Case, Contender, installed

import cvm

TIMES = 100


def repeated(call: str, **names: Any) -> Contender:
    """A function that makes a call, given as text, so many times; it gives the last result."""
    exec(f"def run():\n    for _ in range({TIMES}):\n        last = {call}\n    return last", names)
    return names["run"]


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
    given: dict[str, Any] = {"a": a, "b": b, "c": c, "out": out}
    case = Case({"cvm": repeated("f(a, b, c, out=out)", f=f, **given)}, out=out)
    plain = "add(multiply(a, b, out=out), c, out=out)"
    case.contenders["numpy, two calls"] = repeated(plain, add=np.add, multiply=np.multiply, **given)
    if numba := installed("numba"):

        @numba.njit
        def loop(a: Any, b: Any, c: Any, out: Any) -> None:
            for i in range(a.size):
                out[i] = a[i] * b[i] + c[i]

        @numba.vectorize
        def function(a: Any, b: Any, c: Any) -> Any:
            return a * b + c

        case.contenders["numba"] = repeated("loop(a, b, c, out)", loop=loop, **given)
        case.contenders["numba ufunc"] = repeated(
            "function(a, b, c, out=out)", function=function, **given
        )
    if torch := installed("torch"):
        x, y, z, to = (torch.from_numpy(v) for v in (a, b, c, out))
        case.contenders["torch"] = repeated(
            "f(z, x, y, out=to)", f=torch.addcmul, x=x, y=y, z=z, to=to
        )
        case.results = {
            **case.contenders,
            "torch": repeated("f(z, x, y, out=to).numpy()", f=torch.addcmul, x=x, y=y, z=z, to=to),
        }
    case.units = dict.fromkeys(case.contenders, TIMES)
    return case


def allocating() -> Case:
    a, b, c = operands()
    f = compiled()
    traced = cvm.compile(lambda a, b, c: a * b + c)
    given: dict[str, Any] = {"a": a, "b": b, "c": c}
    case = Case(
        {
            "cvm": repeated("f(a, b, c)", f=f, **given),
            "cvm, traced": repeated("f(a, b, c)", f=traced, **given),
        }
    )
    case.contenders["numpy, two calls"] = repeated("a * b + c", **given)
    if numba := installed("numba"):

        @numba.njit
        def function(a: Any, b: Any, c: Any) -> Any:
            out = np.empty_like(a)
            for i in range(a.size):
                out[i] = a[i] * b[i] + c[i]
            return out

        case.contenders["numba"] = repeated("f(a, b, c)", f=function, **given)
    if jax := installed("jax"):
        g = jax.jit(lambda a, b, c: a * b + c)
        on_device = [jax.device_put(v) for v in (a, b, c)]
        case.contenders["jax"] = repeated(
            "g(a, b, c)", g=g, **dict(zip("abc", on_device, strict=True))
        )
    if torch := installed("torch"):
        x, y, z = (torch.from_numpy(v) for v in (a, b, c))
        case.contenders["torch"] = repeated("f(z, x, y)", f=torch.addcmul, x=x, y=y, z=z)
    case.units = dict.fromkeys(case.contenders, TIMES)
    return case


def structured() -> Case:
    a, b, c = operands()
    f = cvm.compile(lambda pair, c: pair[0] * pair[1] + c)
    case = Case({"cvm": repeated("f((a, b), c)", f=f, a=a, b=b, c=c)})
    if jax := installed("jax"):
        on_device = [jax.device_put(v) for v in (a, b, c)]
        g = jax.jit(lambda pair, c: pair[0] * pair[1] + c)
        case.contenders["jax"] = repeated(
            "g((a, b), c)", g=g, **dict(zip("abc", on_device, strict=True))
        )
    case.units = dict.fromkeys(case.contenders, TIMES)
    return case


WORK = {
    "8 elements, out given": given,
    "8 elements, allocating": allocating,
    "8 elements of unknown number, out given": lambda: given("?N"),
    "two arrays of 8 in a tuple, and one": structured,
}
