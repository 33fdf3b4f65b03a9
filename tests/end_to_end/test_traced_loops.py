"""`cvm.scan`, `cvm.fori_loop` and `cvm.while_loop` in traced functions: values, derivatives and
what they refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from available_targets import EVERY

import cvm


def compiled(
    function: Callable[..., Any], target: str = "cpu", **options: Any
) -> Callable[..., Any]:
    return cvm.compile(function, target=target, rules="numpy", **options)


@pytest.mark.parametrize("target", EVERY)
def test_a_scan_carries_and_collects_structures(target: str) -> None:
    xs = np.arange(12, dtype=np.float32).reshape(4, 3)

    def step(state: dict[str, Any], x: Any) -> Any:
        total = state["total"] * 0.5 + x
        return {"total": total, "steps": state["steps"] + 1}, (total * 2, x.sum())

    def run(xs: Any) -> Any:
        return cvm.scan(step, {"total": np.zeros(3, np.float32), "steps": 0}, xs, reverse=True)

    last, (doubled, sums) = compiled(run, target)(xs)
    total, wanted = np.zeros(3, np.float32), np.empty_like(xs)
    for n in reversed(range(4)):
        total = total * np.float32(0.5) + xs[n]
        wanted[n] = total * 2
    assert int(last["steps"]) == 4 and last["steps"].dtype == np.int64
    np.testing.assert_array_equal(last["total"], total, strict=True)
    np.testing.assert_array_equal(doubled, wanted, strict=True)
    np.testing.assert_array_equal(sums, xs.sum(1), strict=True)


@pytest.mark.parametrize("target", EVERY)
def test_loops_whose_ends_depend_on_data(target: str) -> None:
    def steps_to_one(n: Any) -> Any:
        odd_or_even = lambda c: (np.where(c[0] % 2 == 0, c[0] // 2, 3 * c[0] + 1), c[1] + 1)  # noqa: E731
        return cvm.while_loop(lambda c: c[0] != 1, odd_or_even, (n, 0))[1]

    f = compiled(steps_to_one, target)
    assert [int(f(np.int64(n))) for n in (27, 1, 6)] == [111, 0, 8]
    power = compiled(lambda x, n: cvm.fori_loop(0, n, lambda i, v: v * x + i, 1.0), target)
    found = power(np.float32(2), np.int64(3))
    assert found.dtype == np.float32 and found == 12


@pytest.mark.parametrize("target", EVERY)
def test_bodies_use_arrays_of_the_functions_around_them(target: str) -> None:
    def nested(x: Any) -> Any:
        k = x * 2
        return cvm.fori_loop(
            0,
            4,
            lambda i, v: v + cvm.fori_loop(i, 3, lambda j, w: w + k * i + j, np.zeros_like(x)),
            x,
        )

    x = np.array([1.0, 2.0])
    wanted = x + sum(x * 2 * i + j for i in range(4) for j in range(i, 3))
    np.testing.assert_array_equal(compiled(nested, target)(x), wanted)


def recurrent_loss(w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = np.tanh(h @ w + x)
        return h, h.sum()

    h, ys = cvm.scan(step, np.zeros(2), xs)
    return (ys**2).sum() + h.sum()


@pytest.mark.parametrize("target", EVERY)
def test_derivatives_go_back_through_the_steps(target: str) -> None:
    random = np.random.default_rng(0)
    w, xs, along = (random.normal(size=n) for n in ((2, 2), (5, 2), (2, 2)))
    loss = compiled(recurrent_loss)
    slope = (loss(w + 1e-6 * along, xs) - loss(w - 1e-6 * along, xs)) / 2e-6
    gradient = compiled(cvm.grad(recurrent_loss), target)
    np.testing.assert_allclose((gradient(w, xs) * along).sum(), slope, rtol=1e-7)
    _, tangent = cvm.jvp(lambda w: recurrent_loss(w, xs), (w,), (along,))
    np.testing.assert_allclose(tangent, slope, rtol=1e-7)
    second = compiled(cvm.grad(lambda w: (cvm.grad(recurrent_loss)(w, xs) * along).sum()), target)
    slope = (gradient(w + 1e-6 * along, xs) - gradient(w - 1e-6 * along, xs)) / 2e-6
    np.testing.assert_allclose(second(w), slope, rtol=1e-6)
    eighth = compiled(cvm.grad(lambda x: cvm.fori_loop(0, 8, lambda i, v: v * x, 1.0)), target)
    assert eighth(np.float64(2)) == 8 * 2**7


def test_a_gradient_runs_the_loop_once_forward() -> None:
    graph = str(compiled(cvm.value_and_grad(recurrent_loss)).trace(np.eye(2), np.ones((3, 2))))
    main = graph.partition("\n}\n")[0]
    assert main.count("builtin.scan") == 2 and main.count("reverse = true") == 1


def test_no_steps_and_sizes_that_are_not_known() -> None:
    total = compiled(lambda x: cvm.scan(lambda c, x: (c + x, c), 0.0, x))
    last, before = total(np.zeros(0))
    assert last == 0 and before.shape == (0,)
    for n in range(1, 12):  # from the ninth signature on with sizes that are not known
        last, before = total(np.arange(float(n)))
        assert last == sum(range(n)) and before.shape == (n,)
    assert cvm.fori_loop(3, 3, lambda i, v: v + 1, 5) == 5
    last, seen = cvm.scan(
        lambda c, x: (c + x, c), 0, np.arange(4)
    )  # outside of a compiled function
    assert last == 6 and seen.tolist() == [0, 0, 1, 3]


def leaked(x: Any) -> Any:
    kept = []
    cvm.fori_loop(0, 3, lambda i, v: (kept.append(v), v)[1], x)
    return kept[0]


def changed(x: Any) -> Any:
    y = x * 2

    def body(i: Any, v: Any) -> Any:
        nonlocal y
        y += 1
        return v

    return cvm.fori_loop(0, 3, body, x)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: cvm.scan(lambda c, x: (c + x, c), np.float16(0), x),
            "carries an array of float16, the step's result 0",
        ),
        (lambda x: cvm.scan(lambda c, x: c + x, 0, x), "returns a pair"),
        (
            lambda x: cvm.scan(lambda c, x: ((c, c), x), 0, x),
            "leaves the structure of what it carries as it is",
        ),
        (
            lambda x: cvm.scan(lambda c, y: (c + x, c), 0, x),
            r"carries an array of shape \(\), the step's result 0",
        ),
        (lambda x: cvm.scan(lambda c, y: (c, c), x), "got neither xs nor length"),
        (lambda x: cvm.scan(lambda c, y: (c, c), 0, (x, x[1:])), "got 3 and 2"),
        (
            lambda x: cvm.while_loop(lambda c: True, lambda c: c, x),
            "a bool of rank 0 that depends on carried values",
        ),
        (
            cvm.grad(lambda x: cvm.while_loop(lambda c: c < 9, lambda c: c * 2, x[0])),
            "builtin.while has no derivative",
        ),
        (leaked, "kept from an earlier trace"),
        (changed, "leaves arrays of the function around it as they are"),
    ],
)
def test_refusals(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(cvm.Error, match=message):
        compiled(function)(np.ones(3))


def _swap(y: Any, i: Any) -> Any:
    a, b = y[i], y[i - 1]
    return y.at[i].set(b).at[i - 1].set(a)


def _stored(y: Any, i: Any) -> Any:
    y = y.copy()
    y[i] = y[i - 1] * 2 + i
    return y


def _rows(x: Any) -> Any:
    return np.stack([x[:4], x[1:5] * 3, x[2:6] + 1])


UPDATES: dict[str, Callable[..., Any]] = {
    "fori": lambda x, n: cvm.fori_loop(1, 6, lambda i, y: _swap(y, i), x),
    "stored": lambda x, n: cvm.fori_loop(1, 6, lambda i, y: _stored(y, i), x),
    "while": lambda x, n: cvm.fori_loop(1, n, lambda i, y: _swap(y, i), x),
    "while_loop": lambda x, n: cvm.while_loop(
        lambda c: c[0] < n, lambda c: (c[0] + 1, c[1].at[c[0]].set(c[1][c[0] - 1] + 1)), (1, x)
    )[1],
    "scan": lambda x, n: cvm.scan(lambda y, i: (y.at[i].add(1), y[i]), x, np.array([3, 1, 3, 5])),
    "row": lambda x, n: cvm.scan(
        lambda y, i: (y.at[i, :].add(y[i - 1]), None),
        _rows(x),
        np.array([1, 2, 0]),
    )[0],
    "nested": lambda x, n: cvm.fori_loop(
        1,
        3,
        lambda i, y: cvm.fori_loop(
            1, 4, lambda j, y: y.at[i, j].set(y[i - 1, j] + y[i, j - 1] * 2), y
        ),
        _rows(x),
    ),
    "kept": lambda x, n: cvm.fori_loop(
        1, 5, lambda i, c: (c[0].at[i].set(c[1][i] + 1), c[0]), (x, x * 2)
    ),
}


def _plain(name: str, x: np.ndarray, n: int) -> Any:
    """The same by loops of Python."""
    y, z = x.copy(), x * 2
    rows = _rows(x)
    read = []
    match name:
        case "fori" | "while":
            for i in range(1, 6 if name == "fori" else n):
                y[i], y[i - 1] = y[i - 1], y[i]
        case "stored":
            for i in range(1, 6):
                y[i] = y[i - 1] * 2 + i
        case "while_loop":
            for i in range(1, n):
                y[i] = y[i - 1] + 1
        case "scan":
            for i in (3, 1, 3, 5):
                read.append(y[i])
                y[i] += 1
            return y, np.array(read)
        case "row":
            for i in (1, 2, 0):
                rows[i] += rows[i - 1]
            return rows
        case "nested":
            for i in range(1, 3):
                for j in range(1, 4):
                    rows[i, j] = rows[i - 1, j] + rows[i, j - 1] * 2
            return rows
        case _:
            for i in range(1, 5):
                new = y.copy()
                new[i] = z[i] + 1
                y, z = new, y
            return y, z
    return y


@pytest.mark.parametrize("optimize", [0, 2])
@pytest.mark.parametrize("target", EVERY)
@pytest.mark.parametrize("name", UPDATES)
def test_steps_that_update_elements(name: str, target: str, optimize: int) -> None:
    x, n = np.array([5.0, 1, 4, 2, 8, 3]), 5
    given = x.copy()
    found = compiled(UPDATES[name], target, optimize=optimize)(x, np.int64(n))
    wanted = _plain(name, x, n)
    pairs = [(found, wanted)] if isinstance(wanted, np.ndarray) else zip(found, wanted, strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other, strict=True)
    np.testing.assert_array_equal(x, given)


@pytest.mark.parametrize("name", [n for n in UPDATES if n != "kept"])
def test_a_step_copies_no_array_that_it_updates(name: str) -> None:
    """Inside of the loops nothing goes over a whole array."""
    f: Any = compiled(UPDATES[name])
    x, n = np.array([5.0, 1, 4, 2, 8, 3]), np.int64(5)
    f(x, n)
    text = f.lower("loops")
    inside = "".join(text.partition("loop @")[1:])
    extents = {int(e) for e in re.findall(r"in 0\.\.(\d+)", inside)}
    assert extents <= ({1, 4} if name == "row" else {1}), text


def slices_of_steps(x: Any) -> Any:
    def step(i: Any, c: Any) -> Any:
        y = c.copy()
        y[3:6] += 1  # what it reads it writes
        y[i : i + 3] = y[i + 1 : i + 4] * 2  # other elements, before any is written
        y[-1] = y[0]
        y[8::-2] *= 3
        return y.at[i + 1 : i + 3].max(7)

    return cvm.fori_loop(0, 5, step, x)


def planes_of_steps(x: Any) -> Any:
    def step(i: Any, c: Any) -> Any:
        y = c.copy()
        y[i, 1:3] = y[i + 1, :2] + 1
        y[:, i : i + 1] -= y[:, 4:5]
        return y

    return cvm.fori_loop(0, 3, step, x)


@pytest.mark.parametrize("target", EVERY)
def test_steps_change_slices_as_numpy_does(target: str) -> None:
    x, y = np.arange(12.0), np.arange(20).reshape(4, 5)
    found, planes = compiled(lambda x, y: (slices_of_steps(x), planes_of_steps(y)), target)(x, y)
    for i in range(5):
        x[3:6] += 1
        x[i : i + 3] = x[i + 1 : i + 4] * 2
        x[-1] = x[0]
        x[8::-2] *= 3
        x[i + 1 : i + 3] = np.maximum(x[i + 1 : i + 3], 7)
    for i in range(3):
        y[i, 1:3] = y[i + 1, :2] + 1
        y[:, i : i + 1] -= y[:, 4:5]
    np.testing.assert_array_equal(found, x, strict=True)
    np.testing.assert_array_equal(planes, y, strict=True)


@pytest.mark.parametrize("function", [slices_of_steps, planes_of_steps])
def test_steps_copy_nothing_to_change_slices(function: Any) -> None:
    """No loop of a step runs over the array, of 10^6 elements."""
    text = compiled(function)
    text(x := np.zeros((1000, 1000) if function is planes_of_steps else 10**6))
    steps = text.lower("loops").partition("  plan ")[2]
    assert "in 0..1000000" not in steps and steps.count("in 0..1000 ") <= 2
    assert x.any() == 0


def test_slices_between_computed_numbers() -> None:
    part = compiled(lambda x, i: x[i - 1 : i + 2])
    x = np.arange(6.0)
    np.testing.assert_array_equal(part(x, np.int64(2)), x[1:4])
    for i in (0, 5):  # NumPy's slice would be shorter
        with pytest.raises(cvm.Error, match="a slice is outside of its axis"):
            part(x, np.int64(i))
    with pytest.raises(cvm.TraceError, match="the length of a slice between computed numbers"):
        compiled(lambda x, i: x[i : 2 * i])(x, np.int64(1))
    gradient = cvm.grad(lambda x, i: (x.at[i : i + 2].set(x[:2] ** 2)[i + 1 : i + 3] ** 2).sum())
    np.testing.assert_allclose(gradient(x, np.int64(2)), [0, 4, 0, 0, 8, 0])
