"""Python functions with loops: results and updated arrays are the Python function's, bit for bit,
and anything not offered is an error at its line.
"""

from __future__ import annotations

import copy
import gc
import importlib
import linecache
import math
import pickle
import re
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.scalar_functions import SCALARS
from cvm.jit.calls import fastcall

import cvm
from cvm.kernels.version import Version
from cvm.terminal.read_program import read_kernels

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from loop_kernels import KERNELS

f8, i8 = np.float64, np.int64


def same(kernel: Any, *arguments: Any) -> Any:
    """The kernel's result, which is the Python function's in value and type, as are its arrays."""
    other = copy.deepcopy(arguments)
    with np.errstate(all="ignore"):
        wanted = kernel.py_func(*other)
    for _ in range(2):  # the first call of a version goes through Python
        one = copy.deepcopy(arguments)
        found = kernel(*one)
        check(found, wanted)
        for a, b in zip(one, other, strict=True):
            check(a, b)
    return found


def check(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted), (found, wanted)
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            check(a, b)
    elif isinstance(wanted, np.ndarray):
        assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()
    elif wanted is not None:
        assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes(), (found, wanted)


@cvm.kernel
def first_of_range(a: int, b: int, step: int, y):
    n = 0
    for i in range(a, b, step):
        y[n] = i
        n += 1
        if n == len(y):
            break
    return n


EXTREMES = [-(2**63), -(2**63) + 1, -1, 2, 2**63 - 2, 2**63 - 1]


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, -3, 2**62, 2**63 - 1, -(2**62), -(2**63)])
def test_extreme_ranges_are_pythons(step: int) -> None:
    for a in EXTREMES:
        for b in EXTREMES:
            if -(-abs(b - a) // abs(step)) < 2**63 or (b - a) * step <= 0:
                same(first_of_range, a, b, step, np.zeros(4, i8))
            else:
                with pytest.raises(cvm.CallError, match="too many iterations of range"):
                    first_of_range(a, b, step, np.zeros(4, i8))


@cvm.kernel
def literal_ranges(x, y):
    n = 0
    for i in range(len(x), 2**63 - 1, 2**63 - 1):
        y[0] = i
    for i in range(-9223372036854775808, 5, 2**62):
        y[1] = i
        n += 1
    for i in range(0, len(x), 2**63 - 1):
        n += 10 + i
    for i in range(2**63 - 1, -(2**63), -(2**63)):
        y[2] += i % 7
        n += 100
    for i in range(-(2**63), -(2**63) + len(x)):
        y[3] = i
        n += 1000
    for _ in cvm.prange(1, -(2**63)):
        n += 10000
    for _ in cvm.prange(-(2**63), -(2**63) + 3 * len(x), 3):
        n += 100000
    return n, 2**62 * 2 - 1, -(2**40 << 23), ~(2**63 - 1), 2**-1


@cvm.kernel
def long_power(x):
    return x if x < 2**63 else 9**99999


@cvm.kernel
def long_shift(x):
    return x + (1 << 64) - 1


def test_extreme_literals_are_pythons() -> None:
    same(literal_ranges, np.zeros(2), np.zeros(4, i8))
    for kernel in (long_power, long_shift):
        with pytest.raises(cvm.Error, match="the integer does not fit into 64 bits"):
            kernel(1)


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_of_the_benchmark(name: str) -> None:
    function, make = KERNELS[name]
    kernel = cvm.kernel(function)
    for size in (1, 2, 13):
        same(kernel, *make(size, np.random.default_rng(size)))
    text = kernel.lower("loops")
    plan = read_kernels(text, f"{name}.loops")  # parses back, and is verified
    from cvm.dialect.kernel_ir.kernel_printer import plan_text

    assert plan_text(plan) == text


@cvm.kernel
def jumps(x: np.ndarray, n: int) -> Any:
    found = -1
    for i in range(0, len(x), 2):
        if x[i] < 0:
            continue
        if x[i] > n:
            found = i
            break
    else:
        found = -2
    k = 0
    while True:
        k += 1
        if k % 3 == 0:
            continue
        if k > n:
            break
    while k > 0:
        k -= 2
    else:
        k = k * 10
    return found, k


@cvm.kernel
def steps(n: int, out: np.ndarray) -> Any:
    total = 0
    for i in range(n, -n, -3):
        total = total * 7 + i
    for i in range(-n, n, 2):
        total ^= i
    for _ in range(10, 0):
        total = 99
    k = 0
    for i in range(len(out) - 1, -1, -1):
        out[i] = k
        k += 1
    return total, k


@cvm.kernel
def by_a_step(a: int, b: int, step: int) -> int:
    total = 0
    for i in range(a, b, step):
        total = total * 3 + i
    return total


@cvm.kernel
def numbers(a: Any, b: Any) -> Any:
    return (
        *(a + b, a - b, a * b, a / b, -a, abs(b), +a, a // b, a % b),
        *(a < b, a <= b, a != b, not a, a > 2, b <= 2.5),
        *(float(a), bool(b), round(a), int(b)),
    )


@cvm.kernel
def choices(a: Any, b: Any) -> Any:
    return (
        min(a, b),
        max(b, a, 3),
        a and b,
        a or b,
        (a if a > b else b) + 1,
        a == b or a > 2,
        a <= b <= 3,
    )


@cvm.kernel
def integers(a: Any, b: Any) -> Any:
    q, r = divmod(a, 7)
    return a & b, a | b, a ^ b, ~a, a << 3, a >> 2, a // 3, b % 5, q, r, a**3, b**2, -a // b


@cvm.kernel
def weak(x: np.ndarray) -> Any:
    s, t = 0, 1
    for i in range(len(x)):
        s += x[i]
        t = t * 2 + i
    return s, t, x[0] * 2, x[0] + 1.5, x[-1] / 2


@cvm.kernel
def views(x: np.ndarray, y: np.ndarray) -> Any:
    inner = x[1:-1, ::2]
    total = 0.0
    for i in range(inner.shape[0]):
        row = inner[i]
        for j in range(len(row)):
            row[j] += i - j
            total += row[-j - 1]
    for value in y[::-1]:
        total = total * 0.5 + value
    for row in x:
        row[0] = total
    return total, inner.size, x.ndim


@cvm.kernel
def made(n: int, x: np.ndarray) -> Any:
    a = np.zeros((n, len(x)), np.int32)
    b = np.full(n + 1, 2.5)
    c = np.arange(3, n + 3)
    d = np.ones_like(x)
    for i in range(n):
        e = np.zeros(len(x))
        for j in range(len(x)):
            e[j] += i
            a[i, j] = i * j
            d[j] += e[j] + b[i] * c[i]
    return a, b, c, (d, n)


@cvm.kernel
def functions(x: float, y: np.ndarray) -> Any:
    k = math.floor(x) + math.ceil(x)
    return k, np.sqrt(y[0]), math.sqrt(abs(x)), np.maximum(x, y[1]), np.float32(x) * y[0], math.pi


LIMIT, TABLE = 7, np.array([3, 1, 2])


@cvm.kernel
def around(i: int, scale: float = 2.5) -> Any:
    return TABLE[i] * LIMIT * scale


@cvm.kernel
def swapped(x: np.ndarray, i: int, j: int) -> None:
    x[i], x[j] = x[j], x[i]
    x[i] += x[j] if x[i] > 0 and x[j] < x[i] else 1


def test_control_flow() -> None:
    for x in ([1, -5, 3, 0, 9, 9, 9], [], [1, 1, -1]):
        for n in (0, 4, 100):
            same(jumps, np.array(x, float), n)
    for n in range(-3, 8):
        same(steps, n, np.zeros(max(n, 0)))
    for a, b, step in ((0, 9, 2), (9, -3, -4), (2, 2, 1), (3, -8, 2)):
        same(by_a_step, a, b, step)


@pytest.mark.parametrize("a", [0, 7, 13, 2.5, -0.0, np.float32(1.1), i8(-9), np.int8(100)])
@pytest.mark.parametrize("b", [3, -4, 0.75, f8(-2.25), np.float32(0.3), np.int32(5), np.uint8(7)])
def test_numbers(a: Any, b: Any) -> None:
    if not (isinstance(b, np.uint8) and a == 0) and not (isinstance(a, np.int8) and b == -4):
        same(numbers, a, b)
    if np.float32 not in (type(a), type(b)):
        assert choices(a, b) == choices.py_func(a, b)  # in the type that all of them have


@pytest.mark.parametrize("kind", [int, np.int64, np.int32, np.uint8, np.int16])
def test_integers(kind: Callable[[int], Any]) -> None:
    for a, b in ((5, 3), (100, 7), (0, 1)):
        same(integers, kind(a), kind(b))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int16])
def test_weak_numbers(kind: Any) -> None:
    same(weak, np.arange(1, 6).astype(kind))


def test_arrays() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(7, 9))
    same(views, x, rng.normal(size=5))
    y = rng.normal(size=(9, 14))[:, ::2].T
    one, other = y.copy().T.copy().T, y.copy().T.copy().T
    assert not one.flags.c_contiguous
    check(views(one, y[0]), views.py_func(other, y[0]))
    assert np.array_equal(one, other)
    same(made, 4, rng.normal(size=3))
    same(made, 0, rng.normal(size=1))
    same(functions, -2.75, np.array([2.0, 3.0], np.float32))
    same(around, -1)
    assert around(1, scale=4.0) == 28.0
    for i, j in ((0, 3), (-1, 1), (2, 2)):
        same(swapped, rng.normal(size=4), i, j)


@cvm.kernel
def held(x: np.ndarray) -> Any:
    pair = (x[0], x[1])
    total = 0.0
    for value in x:
        x[0] = 7.0
        x[-1] += value
        total += value
    x[1] = 5.0
    return pair, total


def test_values_are_those_of_their_time() -> None:
    same(held, np.array([1.0, 2.0, 3.0]))


def test_overlapping_arguments() -> None:
    @cvm.kernel
    def shift(x: np.ndarray, y: np.ndarray) -> None:
        for i in range(len(x)):
            y[i] = x[i] + 1

    for start in (0, 1, 3):
        one, other = np.arange(40.0), np.arange(40.0)
        shift(one[: 40 - start], one[start:])
        shift.py_func(other[: 40 - start], other[start:])
        assert np.array_equal(one, other)


# errors of calls


def failure(kind: type[Exception], kernel: Any, *arguments: Any) -> str:
    with pytest.raises(kind) as caught:
        kernel(*arguments)
    assert isinstance(caught.value, cvm.Error)
    assert caught.value.diagnostics[0].file == __file__
    return str(caught.value)


@cvm.kernel
def faulty(x: np.ndarray, i: int, n: int) -> Any:
    assert n < 100, "n is below 100"
    x[i] = x[i] // n
    if n == 13:
        raise ValueError("thirteen")
    for k in range(n):
        last = k
    return last


def test_errors_of_calls() -> None:
    x = np.arange(5)
    assert faulty(x, -5, 3) == 2
    text = failure(IndexError, faulty, x, 5, 1)
    assert "index 5 is out of range for x with size 5" in text and "x[i] = x[i] // n" in text
    failure(IndexError, faulty, x, -6, 1)
    assert "by zero" in failure(ZeroDivisionError, faulty, x, 0, 0)
    assert "thirteen" in failure(ValueError, faulty, x, 0, 13)
    assert "n is below 100" in failure(AssertionError, faulty, x, 0, 100)
    assert "last has no value" in failure(UnboundLocalError, faulty, x, 0, -1)
    x.flags.writeable = False
    assert "read-only" in failure(ValueError, faulty, x, 0, 1)
    assert "foreign byte order" in failure(cvm.CallError, faulty, x.astype(">i8"), 0, 1)
    assert cvm.kernel(checks=False)(faulty.py_func)(np.arange(5), 4, 2) == 1


def test_values_that_do_not_fit() -> None:
    @cvm.kernel
    def put(x: np.ndarray, value: Any) -> None:
        x[0] = value

    failure(OverflowError, put, np.zeros(1, np.int8), 300)
    failure(OverflowError, put, np.zeros(1, np.int32), math.inf)
    failure(OverflowError, put, np.zeros(1, np.int8), i8(300))
    failure(ValueError, put, np.zeros(1, np.int16), f8(math.nan))
    same(put, np.zeros(1, np.int8), i8(-128))
    same(put, np.zeros(1, np.int64), -(2.0**63))
    same(put, np.zeros(1, np.uint8), 255)


# what is not offered


def refused(function: Any, *arguments: Any) -> str:
    with pytest.raises(cvm.TraceError) as caught:
        cvm.kernel(function)(*arguments)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.file == __file__ and diagnostic.code == "kernel.python"
    return f"{diagnostic.span.text}: {diagnostic.message}"


def test_what_is_not_offered() -> None:
    x = np.zeros(3)

    def a_string(x: Any) -> Any:
        return "text"

    def recursive(n: Any) -> Any:
        return n * recursive(n - 1)

    def a_comprehension(x: Any) -> Any:
        return [v for v in x]

    def undefined(x: Any) -> Any:
        return lenght(x)  # type: ignore[name-defined]  # noqa: F821

    def before(x: Any) -> Any:
        y = z  # type: ignore[has-type]  # noqa: F821
        z = 1
        return y + z

    def another_type(x: Any) -> Any:
        y = 1
        if x[0] > 0:
            y = x
        return y

    def a_with(x: Any) -> Any:
        with x:
            pass

    def two_kinds(x: Any) -> Any:
        if x[0] > 0:
            return 1
        return x

    def unknown(x: Any) -> Any:
        return sorted(x)

    assert '"text": kernels have no strings' in refused(a_string, x)
    assert "recursion" in refused(recursive, 3)
    assert "comprehensions" in refused(a_comprehension, x)
    assert refused(undefined, x).startswith("lenght: lenght is not defined")
    assert refused(before, x).startswith("z: z has no value here")
    assert "y: y is a array of float64 with rank 1 here" in refused(another_type, x)
    assert "kernels have no with" in refused(a_with, x)
    assert "where another gives something else" in refused(two_kinds, x)
    assert "sorted cannot be called in kernels" in refused(unknown, x)


def test_a_kernel_is_an_object_like_a_function() -> None:
    assert pickle.loads(pickle.dumps(jumps)) is jumps
    assert jumps.__name__ == "jumps" and callable(jumps.py_func)
    reference = cvm.kernel(target="reference")(jumps.py_func)
    assert reference(np.ones(3), 2) == jumps(np.ones(3), 2)
    with pytest.raises(cvm.TargetError, match="run on the targets"):
        cvm.kernel(target="cuda")(jumps.py_func)
    with pytest.raises(TypeError):
        jumps(1)  # type: ignore[call-arg]
    assert "while" in jumps.lower("loops", np.ones(3), 2)
    assert "define" in jumps.lower("llvm", np.ones(3), 2)


TABLE = np.arange(3)


@cvm.kernel
def answers(x: Any, n: int, f: Any, y: Any = 1.5) -> Any:
    made = np.full((n, 2), f)
    for i in range(n):
        x[i] += made[i, 0] * y
    return x, (made, (n, f), f > 2), x[n], TABLE, ()


def test_calls_of_known_kinds_go_to_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = cvm.kernel(answers.py_func)
    floats = [2, 2.5, True, np.float32(7.5), np.int8(-3), np.True_, np.float64(0.1), np.uint64(9)]
    cases: list[tuple[Callable[[], np.ndarray], Any]] = [
        *((lambda: np.arange(5.0), (2, f, 1.5)) for f in floats),
        (lambda: np.arange(6, dtype=np.int32), (2, True, 2)),
        (lambda: np.arange(20.0)[::3], (2, 0.25, 1.5)),
        (lambda: np.zeros((3, 4))[1:, 2][::-1], (1, 2, 1.5)),
        (lambda: np.arange(5.0), (np.int64(3), 2**41, np.int16(4))),
        (lambda: np.arange(5.0), (3, -(2**41), 0.5)),
        (lambda: np.arange(5.0), (0, 1, 0.5)),
    ]

    def calls() -> None:
        for make, others in cases:
            one, other = make(), make()
            check(kernel(one, *others), kernel.py_func(other, *others))
            check(one, other)

    calls()
    with monkeypatch.context() as patch:
        if fastcall.usable():
            patch.setattr(Version, "run", None)  # all of them without Python from now on
        calls()
    x = np.arange(4.0)
    assert all(answers(x, 1, 2.0)[0] is x for _ in range(2))


def test_machine_code_leaves_what_it_does_not_take_to_python() -> None:
    x, frozen = np.arange(5.0), np.arange(5.0)
    frozen.flags.writeable = False
    for _ in range(3):
        for bad, error, message in (
            ((x, 5, 1.0), IndexError, "index 5 is out of range for x with size 5"),
            ((frozen, 1, 1.0), ValueError, "x is stored into, but the array is read-only"),
            ((x, -1, 1.0), ValueError, "negative dimensions are not allowed"),
            ((x, 1 << 39, 1.0), MemoryError, "memory does not suffice"),
            ((x, 2**64, 1.0), cvm.CallError, "does not fit into 64 bits"),
            ((x.astype(">f8"), 1, 1.0), cvm.CallError, "foreign byte order"),
            ((x, "1", 1.0), cvm.CallError, "a str is not taken"),
            ((x, 1), cvm.CallError, "missing a required argument: 'f'"),
        ):
            with pytest.raises(error, match=re.escape(message)):
                answers(*bad)
        check(answers(x.copy(), f=1.0, n=2), answers.py_func(x.copy(), f=1.0, n=2))
        assert "f64" in answers.lower()
        answers(np.arange(5, dtype=np.int32), 1, 2, 3)
        assert "tensor<?x_0 x i32>" in answers.lower()  # the version of the latest call


@cvm.kernel
def shifted(x: np.ndarray, y: np.ndarray) -> float:
    for i in range(len(y)):
        y[i] = x[i] * 2
    return x[0]


def test_overlap_is_tested_at_each_call() -> None:
    for _ in range(2):
        for step in (1, 2):
            for a, b in ((0, 4), (1, 0), (0, 1), (3, 2), (8, 0), (0, 0)):
                one, other = np.arange(16.0), np.arange(16.0)
                views = [(v[a:][::step][:4], v[b:][::step][:4]) for v in (one, other)]
                check(shifted(*views[0]), shifted.py_func(*views[1]))
                check(one, other)
    x = np.arange(4.0)

    @cvm.kernel
    def product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        for i in range(len(out)):
            out[i] = a[i] * b[i]

    product(x, x, np.empty(4))  # arrays that are only read may overlap
    assert "noalias" in product.lower("llvm")


def test_calls_keep_no_references() -> None:
    x = np.arange(5.0)

    def calls() -> None:
        for n in (2, 5):
            with suppress(IndexError):
                answers(x, n, 0.5, 1.5)

    calls()
    held = [x, answers.version().built.captured["TABLE"], x.dtype, answers]
    gc.collect()
    before = [sys.getrefcount(h) for h in held]
    for _ in range(50):
        calls()
    gc.collect()
    assert all(abs(sys.getrefcount(h) - n) < 20 for h, n in zip(held, before, strict=True))


def test_threads_and_interrupts() -> None:
    @cvm.kernel
    def count(n: int) -> int:
        k = 0
        while k >= 0:
            k += 1
            if k == n:
                return k
        return -1

    @cvm.kernel
    def rounds(x: np.ndarray, n: int) -> float:
        total = 0.0
        for _ in range(n):
            for j in range(len(x)):
                total = total * 0.5 + x[j]
        return total

    results: list[int] = []
    threads = [threading.Thread(target=lambda: results.append(count(10**6))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [10**6] * 4
    if hasattr(signal, "setitimer"):

        class Rung(Exception):
            """Not an OSError as InterruptedError is, which handlers of files take for theirs."""

        def ring(*_: object) -> None:
            raise Rung

        rounds(np.ones(3), 1)
        before = signal.signal(signal.SIGALRM, ring)
        try:
            for call in (lambda: count(1 << 60), lambda: rounds(np.ones(3), 1 << 60)):
                with pytest.raises(Rung):  # inner loops are too short to look themselves
                    signal.setitimer(signal.ITIMER_REAL, 0.1, 5.0)
                    call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


@cvm.kernel
def gathered(x: np.ndarray, y: np.ndarray, a: int, b: int, step: int, c: int) -> Any:
    k = 0
    for i in range(a, b, step):
        y[i] = y[i] * 2 + x[i + c]
        if i % 3 == 0:
            y[c - i] += x[k]
        k += 1
    for i in range(a, b):
        y[i - 1] = y[i] + x[c]
    for i in range(b - 1, a, -1):
        y[i] += x[2 * i - c]
    return k


def test_hoisted_tests_of_indices_leave_the_errors_of_python() -> None:
    chance = np.random.default_rng(0)
    failed = 0
    for _ in range(300):
        x, y = np.arange(float(chance.integers(1, 12))), np.ones(chance.integers(1, 12))
        a, b, step, c = (int(n) for n in chance.integers((-3, 0, -2, -3), (4, 10, 3, 4)))
        big = int(chance.choice([0, 0, 0, 2**40, 2**62, -(2**62)]))
        given = a + big, b + big, step or 5, c
        one, other = y.copy(), y.copy()
        try:
            wanted = gathered.py_func(x, other, *given)
        except IndexError:
            failed += 1
            with pytest.raises(IndexError):
                gathered(x, one, *given)
        else:
            check(gathered(x, one, *given), wanted)
        check(one, other)
    assert 50 < failed < 250
    text = gathered.lower("loops")
    assert "if any(" in text and "checked" in text


@cvm.kernel
def last_negative(n: int, after: int) -> Any:
    turns = skipped = 0
    for k in range(n):
        if k % 3 == 0:
            skipped += 1
            continue
        turns += 1
        if k > after:
            break
    else:
        turns = -turns
    return turns, skipped


def test_a_long_loop_is_left_whole_and_not_by_the_stretch() -> None:
    """A `break` leaves the loop, whose turns go in stretches between looks for signals; `continue`
    and `else` are the loop's, too.
    """
    n = 5_000_000  # some stretches
    for after in (4, 1_500_000, 3_000_000, n):
        end = next((k for k in range(after + 1, after + 3) if k % 3), n) if after < n else n - 1
        skipped, turns = end // 3 + 1, end - end // 3
        assert last_negative(n, after) == (turns if after < n else -turns, skipped)


def test_a_loop_looks_for_signals_between_stretches() -> None:
    @cvm.kernel
    def summed(x: np.ndarray) -> float:
        total = 0.0
        for i in range(len(x)):
            total += x[i] * 0.5
        return total

    text = summed.lower("llvm", np.ones(3))
    assert "call i32 @parallel(" in text  # it does look
    blocks = re.split(r"\n(?=b\d+:)", text)
    alone = [b for b in blocks if re.search(rf"br i1 .*label %{b.partition(':')[0]},", b)]
    assert len(alone) == 1 and "fadd" in alone[0] and "@parallel" not in alone[0]


def test_fma() -> None:
    @cvm.kernel
    def fused(a: float, b: float, c: float) -> float:
        return cvm.fma(a, b, c)

    e = 2.0**-30
    for given in ((1 + e, 1 - e, -1.0), (0.1, 10.0, -1.0), (math.inf, 1.0, 2.0), (0.0, 1.0, -0.0)):
        check(fused(*given), cvm.fma(*given))
    assert fused(1 + e, 1 - e, -1.0) == -(2.0**-60)


def test_the_page_of_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "kernels.md").read_text("utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "page_of_kernels.py").write_text("\n".join(blocks), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("page_of_kernels")
    assert len(blocks) == 7


def test_a_function_whose_file_has_changed(tmp_path: Path) -> None:
    """Its lines may be no Python, which is an error of inspect's that depends on the version."""
    path = tmp_path / "k.py"
    space: dict[str, Any] = {}
    exec(compile("\n\ndef f(x):\n    return x + 1\n", str(path), "exec"), space)
    for text in (
        "\n\nit isn't \"Python\n    any )more\n",
        "\n\n    f(((\n",
        "\n\n'''\n",
        "\n\ndef f(x):\n",
    ):
        path.write_text(text)
        linecache.clearcache()
        with pytest.raises(cvm.Error, match="its source cannot be read"):
            cvm.kernel(space["f"])(1)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_folding_and_compiled_code_round_fused_products_once(kind: Any) -> None:
    """The table of scalar functions, by which constants are folded, rounded them twice."""
    random = np.random.default_rng(0)
    bits = np.dtype(f"u{np.dtype(kind).itemsize}")
    limit = np.iinfo(bits).max
    with np.errstate(all="ignore"):
        a, b, c = (random.integers(0, limit, 3000, bits, True).view(kind) for _ in range(3))
        c[:2000] = -(a[:2000] * b[:2000])  # what is left are the digits that a rounding loses
        folded = SCALARS["fma"].numpy(a, b, c)

    @cvm.kernel
    def fused(a: Any, b: Any, c: Any, y: Any) -> None:
        for i in range(len(a)):
            y[i] = cvm.fma(a[i], b[i], c[i])

    fused(a, b, c, y := np.zeros_like(a))
    numbers = ~np.isnan(y)
    assert (np.isnan(folded) == ~numbers).all() and (y[:2000] != 0).sum() > 500
    assert (y[numbers].view(bits) == folded[numbers].view(bits)).all()
