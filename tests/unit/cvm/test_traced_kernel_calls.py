"""Kernels in traced functions, and as text in programs: what the call gives on arrays."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm

TARGETS = "reference", "cpu", "cuda-sim"
OFFSETS = np.arange(5)


@cvm.kernel
def bump(x, k):
    s = 0
    for i in range(len(x)):
        x[i] += k
        s += i
    return s


@cvm.kernel
def running(x, out):
    for i in range(1, len(x)):
        out[i] = out[i - 1] + x[i]
    return out


@cvm.kernel
def grown(x, n):
    y = np.zeros(2 * len(x) + n)
    for i in range(len(x)):
        if x[i] < 0:
            break
        y[i] = x[i]
    return y, y.sum()


@cvm.kernel
def nested(x):
    return bump(x, 1.5), x[1:].copy(), (x[x > 0]).sum()


@cvm.kernel
def weighted(x):
    s = 0.0
    for i in range(len(x)):
        s += x[i] * OFFSETS[i]
    return s


@cvm.kernel
def quotient(a, b):
    return a // b


@cvm.kernel
def squares(z):
    s = z[0] * 0
    for v in z:
        s += v * v
    return s


@cvm.kernel
def doubled(x):
    y, t = np.empty(len(x)), 0.0
    for i in cvm.prange(len(x)):
        y[i] = x[i] * 2
        t += x[i]
    return y, t


@cvm.kernel
def product(a, b):
    return a @ b


@cvm.kernel
def sized_by_data(x):
    return np.zeros(int(x[0]))


@cvm.kernel
def positive(x):
    return x[x > 0]


def updated(x):
    y = x.copy()
    before = y * 2
    return bump(y, 2), before, y, y + before


def through_view(x):
    y = x.copy()
    bump(y[1:3], 10.0)
    return y


def looped(x):
    def step(_, c):
        c = c.copy()
        bump(c, 1.0)
        return c

    return cvm.fori_loop(0, 4, step, x)


def chosen(x):
    def bumped(x):
        y = x.copy()
        bump(y, 1.0)
        return y

    return cvm.cond(x.sum() > 0, bumped, lambda x: x, x)


X = np.arange(6.0) - 1


def plain(function: Callable[..., Any], *arguments: Any) -> list[np.ndarray]:
    found = function(*arguments)
    return [np.asarray(a) for a in (found if isinstance(found, tuple) else (found,))]


def numbers_of(function: Callable[..., Any], *arguments: Any) -> list[np.ndarray]:
    """The results of a function that is called with arrays, in one tuple."""
    return plain(lambda *a: tuple(_leaves(function(*a))), *arguments)


def _leaves(found: Any) -> list[Any]:
    return [a for f in found for a in _leaves(f)] if isinstance(found, tuple) else [found]


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (updated, (X,)),
        (updated, (X.astype(np.float32),)),
        (updated, (X.astype(np.int16),)),
        (updated, (X[:0],)),
        (through_view, (X,)),
        (lambda x: running(x, np.zeros_like(x)), (X,)),
        (lambda x: grown(x, 3), (X + 1,)),
        (lambda x: grown(n=1, x=x), (X,)),
        (lambda x: nested(x.copy()), (X,)),
        (weighted, (X[:5],)),
        (weighted, (X[:3].astype(np.float16),)),
        (weighted, (X[:3] > 0,)),
        (lambda a: quotient(a[0], a[1]), (np.array([-7, 2]),)),
        (squares, (X * 1j + 1,)),
        (doubled, (np.arange(3000.0) / 7,)),
        (lambda a: product(a, a.T.copy()), (np.arange(55.0).reshape(11, 5) / 7,)),
        (lambda a: product(a, a.T.copy()), (np.sin(np.arange(55, dtype="f4")).reshape(11, 5),)),
    ],
)
@pytest.mark.parametrize("target", TARGETS)
def test_calls_give_what_a_call_with_arrays_gives(
    function: Callable[..., Any], arguments: tuple[Any, ...], target: str
) -> None:
    run = cvm.compile(lambda *a: tuple(_leaves(function(*a))), target=target)
    wanted = numbers_of(function, *arguments)
    for found, expected in zip(plain(run, *arguments), wanted, strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("target", TARGETS)
def test_loops_branches_and_stacks_call_kernels(target: str) -> None:
    np.testing.assert_array_equal(cvm.compile(looped, target=target)(X), X + 4)
    for x in (X, -X):
        wanted = x + 1 if x.sum() > 0 else x
        np.testing.assert_array_equal(cvm.compile(chosen, target=target)(x), wanted)
    stack = np.arange(6.0).reshape(2, 3)
    found = cvm.compile(cvm.vmap(through_view), target=target)(stack)
    np.testing.assert_array_equal(found, [through_view(row) for row in stack])


@pytest.mark.parametrize("target", TARGETS)
def test_errors_of_kernels_are_errors_of_the_call(target: str) -> None:
    with pytest.raises(IndexError, match="an index is out of range for OFFSETS") as found:
        cvm.compile(lambda x: weighted(x), target=target)(X)
    line = weighted.py_func.__code__.co_firstlineno + 4
    assert isinstance(found.value, cvm.CallError) and f"{Path(__file__).name}:{line}" in str(
        found.value
    )
    divide = cvm.compile(lambda a: quotient(a[0], a[1]), target=target)
    with pytest.raises(ZeroDivisionError):
        divide(np.array([1, 0]))
    assert divide(np.array([7, 2])) == 3


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: bump(x, 1), r"leaves its arguments as they are: bump stores into x"),
        (lambda x: (y := x.copy(), running(y, y)), "which may share memory with x"),
        (lambda x: (y := x.copy(), running(y[1:], y)), "which may share memory with x"),
        (lambda x: running(x, np.zeros(6)), "no array of the traced function"),
        (lambda x: sized_by_data(x), "the size of an array that a kernel makes"),
        (lambda x: positive(x), "returns a view of made"),
    ],
)
def test_calls_that_are_not_taken(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(cvm.TraceError, match=message):
        cvm.compile(function)(X)


def test_kernels_have_no_derivative() -> None:
    with pytest.raises(cvm.Error, match="run_kernel has no derivative"):
        cvm.compile(cvm.grad(lambda x: weighted(x)))(X[:5])


def test_open_sizes() -> None:
    run = cvm.compile(updated)
    for n in range(12):
        x = np.arange(float(n))
        for found, wanted in zip(run(x), updated(x), strict=True):
            np.testing.assert_array_equal(found, wanted)


PROGRAM = """
func @main(%x: tensor<?N x i32>, %k: tensor<i64>) -> tensor<?N x i32> {
  %y = builtin.run_kernel %x, %k {kernel = "kernel @f(%x: tensor<?N x i32>, %k: tensor<i64>) ->
    (%y: tensor<?N x i32> view of %x) { for %i in 0..?N { %y[%i] = %x[%k[]] + 1 } }"}
  return %y
}
"""


@pytest.mark.parametrize("target", TARGETS)
def test_accesses_of_a_text_are_checked(target: str) -> None:
    run = cvm.compile(PROGRAM.replace("->\n    ", "-> "), target=target)
    assert run(np.array([1, 2], np.int32), np.array(0)).tolist() == [2, 3]
    for k in (-1, 2, 1 << 60):
        with pytest.raises(cvm.CallError, match="outside of axis 0"):
            run(np.array([1, 2], np.int32), np.array(k))


def test_races_of_a_text_are_refused() -> None:
    text = PROGRAM.replace("->\n    ", "-> ").replace("?N {", "?N parallel {")
    with pytest.raises(cvm.Error, match=r"<text>:3:.*: the kernel is not legal: .*%y is carried"):
        cvm.compile(text)(np.array([1, 2], np.int32), np.array(0))


def test_compiled_calls_are_cached_on_disk(tmp_path: Path) -> None:
    script = (
        "import numpy as np, cvm\n"
        "@cvm.kernel\n"
        "def total(x):\n"
        "    s = 0.0\n"
        "    for v in x:\n"
        "        s += v\n"
        "    return x[int(s)]\n"
        "run = cvm.compile(lambda x: total(x))\n"
        "print(run(np.array([1.0, 0.0])))\n"
        "try:\n"
        "    run(np.array([1.0, 1.0]))\n"
        "except IndexError as e:\n"
        "    print('s.py:7' in str(e))\n"
    )
    (tmp_path / "s.py").write_text(script)
    for _ in range(2):
        environment = {"CVM_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run(
            [sys.executable, "s.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.stdout.split() == ["0.0", "True"], done.stderr
