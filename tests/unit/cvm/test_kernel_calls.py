"""Kernels that call kernels: as in Python, with every value read when Python reads it."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import cvm

TABLE = np.array([1.0, 2.0, 3.0])


@cvm.kernel
def find(x, v):
    for i in range(len(x)):
        if x[i] == v:
            return i
    return -1


@cvm.kernel
def sign(a):
    if a < 0:
        return -1.0
    if a > 0:
        return 1.0
    return 0.0


@cvm.kernel
def bump(x, by=1.0):
    for i in range(len(x)):
        x[i] += by
    return x[0]


@cvm.kernel
def pair(x, y=2):
    if y > 3:
        return x[0], y
    return x[1] * y, 0


@cvm.kernel
def made(x):
    y = np.zeros(len(x))
    for i in range(len(x)):
        y[i] = x[i] + TABLE[1]
    return y


@cvm.kernel
def itself(x):
    for i in range(len(x)):
        if x[i] > 0:
            return x
        bump(x)
    return x


@cvm.kernel
def one_or_other(x):
    for i in range(len(x)):
        if x[i] > 1:
            z = x[i:] * 2
            return z
    z = np.zeros(3)
    return z


@cvm.kernel
def row(x, i, out):
    s = 0.0
    for j in range(x.shape[1]):
        if x[i, j] < 0:
            return
        s += x[i, j]
    out[i] = s


@cvm.kernel
def numbers(x, z):
    t = 0.0
    for i in range(len(x)):
        t += sign(x[i]) * find(z, x[i])
    a, b = pair(x)
    c, d = pair(y=5, x=x)
    return t, a, b, c, d, sign(*(x[0],))


@cvm.kernel
def order(x, y):
    before = x[0] + bump(x) * x[0]
    later = (x * 2) + bump(x[1:], by=3.0)
    x[0] += bump(y) + bump(x)
    held = x[0] < bump(x) < bump(y) and bump(x) > 0
    return before, later, held, (x[0], bump(x), x[0])


@cvm.kernel
def arrays(x):
    w = made(made(x) * 2)
    for _ in range(3):
        w = made(w)
    u = itself(x)
    u[2] += u[0]
    return w, u


@cvm.kernel
def several(x):
    return one_or_other(x)[0] + one_or_other(x[:2])[0], len(one_or_other(x)), one_or_other(x[:1])


@cvm.kernel
def rows(x, out):
    for i in cvm.prange(len(x)):
        row(x, i, out)


def same(kernel: Any, *arguments: Any) -> None:
    one, other = copy.deepcopy(arguments), copy.deepcopy(arguments)
    wanted, found = kernel.py_func(*other), kernel(*one)
    assert repr(found) == repr(wanted)
    for a, b in zip(one, other, strict=True):
        assert np.array_equal(a, b)


def test_results_are_those_of_python() -> None:
    x = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    same(numbers, x, np.arange(3.0))
    same(order, x, x + 1)
    same(arrays, x)
    total, count, last = several(np.array([0.0, 1.0, 2.0, 5.0]))
    assert (total, count, last.tolist()) == (4.0, 2, [0.0, 0.0, 0.0])
    cases = np.arange(12.0).reshape(4, 3)
    cases[2, 1] = -1
    same(rows, cases, np.zeros(4))
    shared = np.arange(6.0)
    other = shared.copy()
    assert repr(order(shared[:4], shared[2:])) == repr(order.py_func(other[:4], other[2:]))
    assert np.array_equal(shared, other)


@cvm.kernel
def beyond(x):
    return x[len(x)]


@cvm.kernel
def even(n):
    return odd(n - 1)


@cvm.kernel
def odd(n):
    return even(n - 1)


@cvm.kernel
def open_ended(x):
    if x[0] > 0:
        return 1.0


@cvm.kernel
def two(x):
    return find(x, 1.0) + find(x)


@cvm.kernel
def race(x, out):
    for _ in cvm.prange(len(x)):
        row(x, 0, out)


def test_errors_stand_at_their_lines() -> None:
    @cvm.kernel
    def index(x):
        return beyond(x) + 1

    @cvm.kernel
    def unclear(x):
        return open_ended(x)

    with pytest.raises(IndexError) as e:
        index(np.ones(3))
    assert e.value.diagnostics[0].span.text == "x[len(x)]"
    for kernel, text, message in (
        (even, "even(n - 1)", "no recursion"),
        (unclear, "return 1.0", "may end without a return"),
        (two, "find(x)", "missing a required argument: 'v'"),
        (race, "out[i] = s", "iterations of cvm.prange may meet"),
    ):
        with pytest.raises(cvm.TraceError) as caught:
            kernel(*[np.ones((2, 2))] * 2 if kernel is race else [np.ones(3)])
        (diagnostic,) = caught.value.diagnostics
        assert diagnostic.span.text == text and message in diagnostic.message


def test_a_program_of_many_calls_is_refused(tmp_path: Any) -> None:
    import importlib.util

    lines = ["import cvm", "@cvm.kernel", "def f0(x):", "    return x"]
    for n in range(1, 11):
        lines += ["@cvm.kernel", f"def f{n}(x):", f"    return f{n - 1}(x) + f{n - 1}(x)"]
    (tmp_path / "many.py").write_text("\n".join(lines))
    spec = importlib.util.spec_from_file_location("many", tmp_path / "many.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with pytest.raises(cvm.TraceError, match="at most 500 calls"):
        module.f10(1)


def test_direct_calls_survive_those_of_other_functions() -> None:
    from cvm.jit.calls import fastcall

    f, x = cvm.kernel(_first), np.arange(3.0)
    assert f(x) == f(x) == 0
    if fastcall.usable():
        first = fastcall.code("call_kernel")
        fastcall.code()
        fastcall.code("call")
        assert fastcall.code("call_kernel") is first
    assert f(x) == 0  # machine code, which must still be loaded


def _first(x: Any) -> Any:
    return x[0]
