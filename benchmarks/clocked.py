"""Clocked programs, per tick, beside hand-written numba, JAX's lax.scan and NumPy. All start from
the same state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from side_by_side import Case, installed

import cvm

F, K, DU, DV = 0.0367, 0.0649, 0.2097, 0.105
Ticking = Callable[[int], Any]  # runs so many ticks, and gives the state when asked for none


numba, jax = installed("numba"), installed("jax")


# The programs


def laplacian(x: str) -> str:
    return f"""
      %{x}.n = cog.shift_cyclic %{x} {{amount = [1, 0]}}
      %{x}.s = cog.shift_cyclic %{x} {{amount = [-1, 0]}}
      %{x}.w = cog.shift_cyclic %{x} {{amount = [0, 1]}}
      %{x}.e = cog.shift_cyclic %{x} {{amount = [0, -1]}}
      %{x}.ns = cog.add %{x}.n, %{x}.s
      %{x}.we = cog.add %{x}.w, %{x}.e
      %{x}.around = cog.add %{x}.ns, %{x}.we
      %{x}.four = cog.mul %{x}, 4
      %{x}.l = cog.sub %{x}.around, %{x}.four"""


def gray_scott(n: int) -> str:
    return f"""
    graph @main {{
      %u = cog.field "u" : !cog.field<[{n}, {n}], f32>
      %v = cog.field "v" : !cog.field<[{n}, {n}], f32>{laplacian("u")}{laplacian("v")}
      %vv = cog.mul %v, %v
      %uvv = cog.mul %u, %vv
      %u.spread = cog.mul %u.l, {DU}
      %v.spread = cog.mul %v.l, {DV}
      %left = cog.sub 1, %u
      %fed = cog.mul %left, {F}
      %u.lost = cog.sub %u.spread, %uvv
      %u.change = cog.add %u.lost, %fed
      %u.next = cog.add %u, %u.change
      %killed = cog.mul %v, {F + K}
      %v.won = cog.add %v.spread, %uvv
      %v.change = cog.sub %v.won, %killed
      %v.next = cog.add %v, %v.change
      cog.feedback %u, %u.next
      cog.feedback %v, %v.next
    }}"""


COUNTER = """
graph @main {
  %n = cog.field "n" : !cog.field<[], f32>
  %next = cog.add %n, 1
  cog.feedback %n, %next
}"""


def recurrence(n: int) -> str:
    """n states of one number, each pulled to its neighbor."""
    lines = [f'%s{k} = cog.field "s{k}" : !cog.field<[], f32>' for k in range(n)]
    for k in range(n):
        lines += [
            f"%p{k} = cog.mul %s{(k - 1) % n}, 0.25",
            f"%q{k} = cog.mul %s{k}, 0.7",
            f"%r{k} = cog.add %p{k}, %q{k}",
        ]
        lines += [f"%t{k} = cog.add %r{k}, 0.01", f"cog.feedback %s{k}, %t{k}"]
    return "\n".join(["graph @main {", *lines, "}"])


# The contenders: functions of a number of ticks, which give the state


def ours(text: str, start: dict[str, np.ndarray]) -> Ticking:
    graph = cvm.compile(text)
    graph.reset()
    for name, value in start.items():
        graph.write(name, value)

    def run(ticks: int) -> list[np.ndarray]:
        graph.step(ticks)
        return [] if ticks else [graph.read(name, copy=False) for name in start]

    return run


def gray_scott_numpy(u: np.ndarray, v: np.ndarray) -> Ticking:
    state = [u.copy(), v.copy()]

    def around(x: np.ndarray) -> np.ndarray:
        return (
            (np.roll(x, 1, 0) + np.roll(x, -1, 0))
            + (np.roll(x, 1, 1) + np.roll(x, -1, 1))
            - x * np.float32(4)
        )

    def run(ticks: int) -> list[np.ndarray]:
        for _ in range(ticks):
            u, v = state
            uvv = u * (v * v)
            state[0] = u + (
                (around(u) * np.float32(DU) - uvv) + (np.float32(1) - u) * np.float32(F)
            )
            state[1] = v + ((around(v) * np.float32(DV) + uvv) - v * np.float32(F + K))
        return state

    return run


def gray_scott_numba(u: np.ndarray, v: np.ndarray) -> Ticking:
    f, fk, du, dv, one, four = map(np.float32, (F, F + K, DU, DV, 1, 4))

    @numba.njit(inline="always")
    def point(u, v, s, t, i, n, p, j, w, e):  # type: ignore[no-untyped-def]
        lu = (u[p, j] + u[n, j]) + (u[i, w] + u[i, e]) - u[i, j] * four
        lv = (v[p, j] + v[n, j]) + (v[i, w] + v[i, e]) - v[i, j] * four
        uvv = u[i, j] * (v[i, j] * v[i, j])
        s[i, j] = u[i, j] + ((lu * du - uvv) + (one - u[i, j]) * f)
        t[i, j] = v[i, j] + ((lv * dv + uvv) - v[i, j] * fk)

    @numba.njit
    def tick(u, v, s, t):  # type: ignore[no-untyped-def]
        h, m = u.shape
        for i in range(h):
            p, n = (i - 1 if i else h - 1), (i + 1 if i < h - 1 else 0)
            point(u, v, s, t, i, n, p, 0, m - 1, 1)
            for j in range(1, m - 1):
                point(u, v, s, t, i, n, p, j, j - 1, j + 1)
            point(u, v, s, t, i, n, p, m - 1, m - 2, 0)

    state = [u.copy(), v.copy(), np.empty_like(u), np.empty_like(v)]

    def run(ticks: int) -> list[np.ndarray]:
        for _ in range(ticks):
            tick(*state)
            state[:] = state[2:] + state[:2]
        return state[:2]

    return run


def scanned(step: Callable[..., Any], *start: np.ndarray) -> Ticking:
    """JAX's scan of a step over the state."""
    from functools import partial

    @partial(jax.jit, static_argnums=1, donate_argnums=0)
    def many(state: Any, ticks: int) -> Any:
        return jax.lax.scan(lambda s, _: (step(*s), None), state, None, length=ticks)[0]

    state = [tuple(map(jax.numpy.asarray, start))]

    def run(ticks: int) -> list[np.ndarray]:
        if ticks:
            state[0] = jax.block_until_ready(many(state[0], ticks))
        return [np.asarray(s) for s in state[0]] if not ticks else []

    return run


def gray_scott_jax(u: np.ndarray, v: np.ndarray) -> Ticking:
    roll = jax.numpy.roll

    def around(x: Any) -> Any:
        return (
            (roll(x, 1, 0) + roll(x, -1, 0)) + (roll(x, 1, 1) + roll(x, -1, 1)) - x * np.float32(4)
        )

    def step(u: Any, v: Any) -> Any:
        uvv = u * (v * v)
        return (
            u + ((around(u) * np.float32(DU) - uvv) + (1 - u) * np.float32(F)),
            v + ((around(v) * np.float32(DV) + uvv) - v * np.float32(F + K)),
        )

    return scanned(step, u, v)


def counter_numba(n: np.ndarray) -> Ticking:
    @numba.njit
    def many(n, ticks):  # type: ignore[no-untyped-def]
        x = n[()]
        for _ in range(ticks):
            x = x + np.float32(1)
        n[()] = x

    n = n.copy()
    return lambda ticks: many(n, ticks) or [n]


def recurrence_numba(s: np.ndarray) -> Ticking:
    a, b, c = map(np.float32, (0.25, 0.7, 0.01))

    @numba.njit
    def many(s, t, ticks):  # type: ignore[no-untyped-def]
        m = s.size
        for _ in range(ticks):
            t[0] = s[m - 1] * a + s[0] * b + c
            for k in range(1, m):
                t[k] = s[k - 1] * a + s[k] * b + c
            s, t = t, s

    state = [s.copy(), s.copy()]

    def run(ticks: int) -> list[np.ndarray]:
        many(*state, ticks)
        if ticks % 2:
            state.reverse()
        return state[:1]

    return run


def looped(step: Callable[..., Any], *start: np.ndarray) -> Ticking:
    """NumPy, in Python's loop."""
    state = [start]

    def run(ticks: int) -> list[np.ndarray]:
        for _ in range(ticks):
            state[0] = step(*state[0])
        return [*state[0]]

    return run


def recurrence_step(s: Any) -> Any:
    roll = np.roll if isinstance(s, np.ndarray) else jax.numpy.roll
    return (roll(s, 1) * np.float32(0.25) + s * np.float32(0.7) + np.float32(0.01),)


# The cases


def case(contenders: dict[str, Ticking], ticks: int, of_numpy: int, moved: int = 0) -> Case:
    """A benchmark of `ticks` ticks per call, fewer for NumPy; after three ticks all states are
    compared. `bytes` is the traffic of a tick.
    """

    def state(run: Ticking) -> Callable[[], Any]:
        def shown() -> Any:
            run(3)
            return np.concatenate([np.ravel(a) for a in run(0)])

        return shown

    each = {name: of_numpy if name == "numpy" else ticks for name in contenders}
    return Case(
        {name: lambda name=name, run=run: run(each[name]) for name, run in contenders.items()},
        results={name: state(run) for name, run in contenders.items()},
        units=each,
        moved=moved,
    )


def counter() -> Case:
    zero = np.zeros((), np.float32)
    found: dict[str, Ticking] = {
        "cvm": ours(COUNTER, {"n": zero}),
        "numpy": looped(lambda n: (n + np.float32(1),), zero),
    }
    if numba:
        found["numba"] = counter_numba(zero)
    if jax:
        found["jax scan"] = scanned(lambda n: (n + np.float32(1),), zero)
    return case(found, 100_000, 1000)


def states(n: int) -> Case:
    start = np.zeros(n, np.float32)
    found: dict[str, Ticking] = {
        "cvm": ours(recurrence(n), {f"s{k}": np.zeros((), np.float32) for k in range(n)}),
        "numpy": looped(recurrence_step, start),
    }
    if numba:
        found["numba"] = recurrence_numba(start)
    if jax:
        found["jax scan"] = scanned(recurrence_step, start)
    return case(found, 10_000, 100)


def start_of(n: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    u, v = np.ones((n, n), np.float32), np.zeros((n, n), np.float32)
    middle = slice(n * 2 // 5, n * 3 // 5)
    u[middle, middle], v[middle, middle] = 0.5, 0.25
    return u + random.random((n, n), np.float32) / 50, v + random.random((n, n), np.float32) / 50


def reaction(n: int) -> Case:
    u, v = start_of(n)
    found = {"cvm": ours(gray_scott(n), {"u": u, "v": v}), "numpy": gray_scott_numpy(u, v)}
    if numba:
        found["numba"] = gray_scott_numba(u, v)
    if jax:
        found["jax scan"] = gray_scott_jax(u, v)
    return case(found, max(4, 1_000_000 // (n * n)), 2, 2 * (u.nbytes + v.nbytes))


WORK = {
    "a counter": counter,
    "a recurrence of 100 states": lambda: states(100),
    "Gray-Scott, 512 x 512": lambda: reaction(512),
    "Gray-Scott, 2048 x 2048": lambda: reaction(2048),
}
