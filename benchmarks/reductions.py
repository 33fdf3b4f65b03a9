"""Reductions of 4096 x 4096 elements - all of them, the first axis, the last - and rows brought to
sum 1 or to unit variance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from contenders import Found, numba_loop, on_jax, on_torch, program
from side_by_side import Case, installed

random = np.random.default_rng(0)
SIDE = 4096
NAMES = {
    "sum": "sum",
    "max": "amax",
    "min": "amin",
    "prod": "prod",
    "all": "all",
    "any": "any",
}  # theano's: torch's


def operand(dtype: Any) -> np.ndarray:
    if dtype is bool:
        return np.ones((SIDE, SIDE), bool)
    if np.dtype(dtype).kind == "f":
        return random.uniform(0.99, 1.01, (SIDE, SIDE)).astype(dtype)
    return random.integers(0, 100, (SIDE, SIDE)).astype(dtype)


def reduction(name: str, dtype: Any, axis: int | None) -> Case:
    """One of theano's reductions: small integers are summed as i64."""
    x = operand(dtype)
    of_bools = name in ("all", "any")
    if name == "any":
        x = ~x
    f = program(f"%y = theano.{name} %x0" + ("" if axis is None else f" {{axis = [{axis}]}}"), x)
    out = np.empty_like(f(x))
    numpy_way = getattr(np, name)
    wide = {"dtype": out.dtype} if name in ("sum", "prod") else {}
    found: Found = {
        "cvm": lambda: f(x, out=out),
        "numpy": lambda: numpy_way(x, axis=axis, out=out, **wide),
    }
    if (name, axis) in LOOPS:
        numba_loop(found, LOOPS[name, axis], x, out.reshape(-1))

    def by_torch(torch: Any, x: Any, out: Any) -> None:
        given = {} if axis is None else {"dim": axis}
        if name == "prod" and axis is None:
            torch.prod(x)
        else:
            getattr(torch, NAMES[name])(
                x, out=out, **({"dim": (0, 1)} if not given and not of_bools else given)
            )

    if out.dtype != np.uint64:  # which torch does not sum
        on_torch(found, by_torch, x, out)
    on_jax(found, lambda jax, x: getattr(jax.numpy, name)(x, axis=axis, **wide), x)
    return Case(found, x.nbytes, out, (1, 0), tolerance=1e-3)


def _sum_all(x: Any, out: Any) -> None:
    total = out[0] * 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += x[i, j]
    out[0] = total


def _sum_first(x: Any, out: Any) -> None:
    out[:] = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j] += x[i, j]


def _sum_last(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        total = out[0] * 0
        for j in range(x.shape[1]):
            total += x[i, j]
        out[i] = total


def _max_all(x: Any, out: Any) -> None:
    best = x[0, 0]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            best = max(best, x[i, j])
    out[0] = best


def _max_first(x: Any, out: Any) -> None:
    out[:] = x[0]
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[j] = max(out[j], x[i, j])


def _max_last(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        best = x[i, 0]
        for j in range(x.shape[1]):
            best = max(best, x[i, j])
        out[i] = best


LOOPS: dict[tuple[str, int | None], Callable[..., None]] = {
    ("sum", None): _sum_all,
    ("sum", 0): _sum_first,
    ("sum", 1): _sum_last,
    ("max", None): _max_all,
    ("max", 0): _max_first,
    ("max", 1): _max_last,
}

SOFTMAX = """%m = theano.max %x0 {axis = [1]}
%n = theano.dimshuffle %m {new_order = [0, "x"]}
%d = dali.sub %x0, %n
%e = dali.exp %d
%s = theano.sum %e {axis = [1]}
%t = theano.dimshuffle %s {new_order = [0, "x"]}
%y = dali.div %e, %t"""

LAYERNORM = f"""%s = theano.sum %x0 {{axis = [1]}}
%m = dali.div %s, {SIDE}.0
%n = theano.dimshuffle %m {{new_order = [0, "x"]}}
%d = dali.sub %x0, %n
%q = dali.mul %d, %d
%v = theano.sum %q {{axis = [1]}}
%w = dali.div %v, {SIDE}.0
%u = dali.add %w, 0.00001
%r = dali.rsqrt %u
%t = theano.dimshuffle %r {{new_order = [0, "x"]}}
%y = dali.mul %d, %t"""


def rows(body: str, numpy_way: Any, torch_way: Any, jax_way: Any, loop: Any) -> Case:
    x = random.standard_normal((SIDE, SIDE)).astype(np.float32)
    out = np.empty_like(x)
    f = program(body, x)
    found: Found = {"cvm": lambda: f(x, out=out), "numpy": lambda: np.copyto(out, numpy_way(x))}
    if numba := installed("numba"):
        fast = numba.njit(fastmath=True, error_model="numpy")(loop)
        found["numba fastmath"] = lambda: fast(x, out)
    on_torch(found, lambda torch, x, out: out.copy_(torch_way(torch, x)), x, out)
    on_jax(found, jax_way, x)
    return Case(found, 2 * x.nbytes, out, tolerance=1e-3)


def _softmax(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        best = x[i, 0]
        for j in range(x.shape[1]):
            best = max(best, x[i, j])
        total = np.float32(0)
        for j in range(x.shape[1]):
            out[i, j] = np.exp(x[i, j] - best)
            total += out[i, j]
        for j in range(x.shape[1]):
            out[i, j] /= total


def _layernorm(x: Any, out: Any) -> None:
    for i in range(x.shape[0]):
        total = np.float32(0)
        for j in range(x.shape[1]):
            total += x[i, j]
        mean = total / np.float32(x.shape[1])
        squares = np.float32(0)
        for j in range(x.shape[1]):
            squares += (x[i, j] - mean) * (x[i, j] - mean)
        scale = np.float32(1) / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(1e-5))
        for j in range(x.shape[1]):
            out[i, j] = (x[i, j] - mean) * scale


def softmax() -> Case:
    def plain(x: Any) -> Any:
        e = np.exp(x - x.max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    return rows(
        SOFTMAX,
        plain,
        lambda torch, x: torch.softmax(x, 1),
        lambda jax, x: jax.nn.softmax(x, 1),
        _softmax,
    )


def layernorm() -> Case:
    def plain(x: Any) -> Any:
        d = x - x.mean(1, keepdims=True)
        return d / np.sqrt((d * d).mean(1, keepdims=True) + np.float32(1e-5))

    def by_jax(jax: Any, x: Any) -> Any:
        d = x - x.mean(1, keepdims=True)
        return d / jax.numpy.sqrt((d * d).mean(1, keepdims=True) + 1e-5)

    return rows(
        LAYERNORM,
        plain,
        lambda torch, x: torch.nn.functional.layer_norm(x, (SIDE,)),
        by_jax,
        _layernorm,
    )


AXES = {"all": None, "axis 0": 0, "axis 1": 1}
WORK: dict[str, Callable[[], Case]] = {
    **{
        f"{name} {np.dtype(dtype).name} {where}": lambda name=name, dtype=dtype, axis=axis: (
            reduction(name, dtype, axis)
        )
        for name, dtype in (
            ("sum", np.float32),
            ("max", np.float32),
            ("sum", np.int8),
            ("max", np.int32),
            ("all", bool),
        )
        for where, axis in AXES.items()
    },
    "softmax of rows": softmax,
    "layer normalisation of rows": layernorm,
}
