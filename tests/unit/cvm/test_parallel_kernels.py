"""Parallel loops of kernels: their results are those of the Python function, with numbers combined
in blocks, for any number of threads.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from cvm.dialect.kernel_ir.kernel_printer import plan_text

import cvm
from cvm.terminal.read_program import read_kernels

rng = np.random.default_rng(1)


@pytest.fixture(autouse=True, params=(1, 3))
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    before = cvm.get_num_threads()
    cvm.set_num_threads(request.param)
    yield
    cvm.set_num_threads(before)


@cvm.kernel
def smooth(x, y):
    for i in cvm.prange(1, len(x) - 1):
        y[i] = (x[i - 1] + x[i] + x[i + 1]) / 3


@cvm.kernel
def reduced(x, k):
    total = 0
    product = 1.0
    least = np.inf
    most = 0
    bits = 0
    count = 0
    for i in cvm.prange(len(x)):
        total += x[i]
        product = product * (1 + x[i] / 1000)
        least = min(least, x[i])
        most = max(k[i], most)
        bits ^= k[i]
        if k[i] & 1:
            count += 1
    return total, product, least, most, bits, count


@cvm.kernel
def stepped(x, y, n):
    for t in range(n):
        a = 0.5 + t
        for i in cvm.prange(1, len(x) - 1):
            y[i] = a * (x[i - 1] + x[i + 1])
        for i in cvm.prange(len(x) - 2, 0, -1):
            x[i] = y[i]
    return a


@cvm.kernel
def triangle(x, y):
    n = len(x)
    for i in cvm.prange(n):
        w = np.zeros(n)
        for j in range(i + 1):
            w[j] += x[j] * i
        t = 0.0
        for j in range(n):
            t += w[j]
        y[i] = t


@cvm.kernel
def rows(a, y):
    last = 0
    for i in cvm.prange(a.shape[0]):
        s = 0
        for j in cvm.prange(a.shape[1]):
            s += a[i, j]
        y[i] = s
        last ^= s
    return last


@cvm.kernel
def added(x, s):
    for i in cvm.prange(len(x)):
        s += x[i]
    return s


@cvm.kernel
def checked(x, y):
    n = 0
    for i in cvm.prange(len(x)):
        if x[i] < 0:
            raise ValueError("negative")
        assert x[i] < 100, "large"
        n += 1
        y[i] = 1 // x[i]
    return n


@pytest.mark.parametrize("n", [0, 1, 2, 1023, 1024, 1025, 5000])
def test_results_are_those_of_the_function(n: int) -> None:
    x, mine, its = rng.random(n), np.zeros(n), np.zeros(n)
    smooth(x, mine)
    smooth.py_func(x, its)
    np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("n", [0, 1, 1024, 1025, 70_000])
def test_numbers_are_combined_in_blocks(n: int) -> None:
    x, k = rng.random(n) - 0.5, rng.integers(0, 1 << 40, n)
    total, product = 0, 1.0
    for first in range(0, n, 1024):
        part, factor = -0.0, 1.0
        for v in x[first : first + 1024]:
            part, factor = part + v, factor * (1 + v / 1000)
        total, product = total + part, product * factor
    expected = total, product, *reduced.py_func(x, k)[2:]
    assert [*map(repr, map(float, reduced(x, k)))] == [*map(repr, map(float, expected))]


@pytest.mark.parametrize("s", [0, 2.5, np.float32(1), np.int8(3)], ids=repr)
@pytest.mark.parametrize("element", [np.float32, np.int8, np.uint16])
def test_an_argument_may_be_updated(s: object, element: type) -> None:
    x = np.arange(1, 40).astype(element)
    with np.errstate(over="ignore"):
        found, expected = added(x, s), added.py_func(x, s)
    assert (type(found), found) == (type(expected), expected)


def test_loops_in_loops() -> None:
    x, y = rng.random(3000), np.zeros(3000)
    u, v = x.copy(), y.copy()
    assert stepped(x, y, 7) == stepped.py_func(u, v, 7)
    np.testing.assert_array_equal([x, y], [u, v])


@pytest.mark.parametrize("n", [0, 1, 5, 150])
def test_arrays_made_inside_are_private(n: int) -> None:
    x, mine, its = rng.random(n), np.zeros(n), np.zeros(n)
    triangle(x, mine)
    triangle.py_func(x, its)
    np.testing.assert_array_equal(mine, its)


@pytest.mark.parametrize("shape", [(3, 2000), (70, 5), (1, 0), (0, 4)])
def test_a_parallel_loop_in_another_with_strides(shape: tuple[int, int]) -> None:
    a = rng.integers(-100, 100, shape[::-1]).T
    mine, its = np.zeros(2 * shape[0], np.int64)[::2], np.zeros(shape[0], np.int64)
    assert rows(a, mine) == rows.py_func(a, its)
    np.testing.assert_array_equal(mine, its)


def test_the_error_of_the_lowest_iteration_is_raised() -> None:
    x, y = np.ones(5000, np.int64), np.zeros(5000, np.int64)
    assert checked(x, y) == 5000
    for at, value, kind, message in (
        (4000, -1, ValueError, "negative"),
        (3000, 100, AssertionError, "large"),
        (2000, 0, ZeroDivisionError, "by zero"),
    ):
        x[at] = value
        with pytest.raises(kind, match=message) as caught:
            checked(x, y)
        assert isinstance(caught.value, cvm.Error)
    with pytest.raises(IndexError, match="index 1999 is out of range for y with size 1999"):
        checked(x, y[:1999])


def test_arrays_that_share_memory_are_refused() -> None:
    x = rng.random(20)
    with pytest.raises(cvm.CallError, match="y: this array shares memory with x"):
        smooth(x[:10], x[5:15])
    with pytest.raises(cvm.CallError, match="y: elements of this array share memory"):
        smooth(x[:10], np.lib.stride_tricks.as_strided(rng.random(3), (10,), (0,)))
    its = np.zeros(10)
    smooth.py_func(x[::2].copy(), its)
    smooth(x[::2], x[1::2])  # side by side
    np.testing.assert_array_equal(x[1::2][1:-1], its[1:-1])


def written_and_read(x):
    for i in cvm.prange(1, len(x)):
        x[i] = x[i - 1]


def written_twice(x):
    for i in cvm.prange(len(x)):
        x[i // 2] = i


def written_anywhere(x):
    for i in cvm.prange(len(x)):
        x[int(x[i])] = 1


def carried(x):
    t = 0.0
    for i in cvm.prange(len(x)):
        x[i] = t
        t = 1.0


def read_later(x):
    for i in cvm.prange(len(x)):
        t = x[i]
    return t


def read_inside(x):
    t = 0.0
    for i in cvm.prange(len(x)):
        t += x[i]
        x[i] = t


def left(x):
    for i in cvm.prange(len(x)):
        if x[i]:
            break


def returned(x):
    for i in cvm.prange(len(x)):
        for j in range(2):
            return x[i + j]


REFUSED = {
    written_and_read: "read by another iteration",
    written_twice: "also written by another iteration",
    written_anywhere: "by another iteration",
    carried: "t is carried from one iteration",
    read_later: "t has no value after a loop over cvm.prange",
    read_inside: "t is carried from one iteration",
    left: "no break leaves a loop over cvm.prange",
    returned: "no return leaves a loop over cvm.prange",
}


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_loops_that_are_not_parallel_are_refused(function) -> None:
    with pytest.raises(cvm.TraceError, match=REFUSED[function]) as caught:
        cvm.kernel(function)(np.zeros(10))
    assert caught.value.diagnostics[0].file == __file__


def test_texts_of_parallel_loops_parse_back() -> None:
    x, k = rng.random(1500), rng.integers(1, 9, 1500)
    for kernel, arguments in (
        (smooth, (x, x * 0)),
        (reduced, (x, k)),
        (rows, (k.reshape(3, 500), np.zeros(3, np.int64))),
        (added, (x, 1.0)),
        (checked, (k, k * 0)),
    ):
        kernel(*arguments)
        text = kernel.lower("loops")
        assert plan_text(read_kernels(text, "parallel.loops")) == text
