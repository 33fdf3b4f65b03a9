"""Transcendental functions over a million elements. docs/accuracy.md says how accurate ours are."""

from __future__ import annotations

from typing import Any

import numpy as np
from contenders import numba_loop, on_jax, on_torch
from side_by_side import Case

import cvm

NAMES = {  # ours and torch's: NumPy's and JAX's
    "exp": "exp", "log": "log", "sin": "sin", "tan": "tan", "asin": "arcsin", "atan": "arctan", "sinh": "sinh",
    "tanh": "tanh", "atanh": "arctanh",
}  # fmt: skip
INSIDE = {"asin": (-0.99, 0.99), "atanh": (-0.99, 0.99), "log": (0.01, 20.0)}  # the others: (-10, 10)
N = 1 << 20


def function(name: str, dtype: type) -> Case:
    x = np.random.default_rng(0).uniform(*INSIDE.get(name, (-10.0, 10.0)), N).astype(dtype)
    out = np.empty_like(x)
    f = cvm.compile(lambda x: getattr(cvm, name)(x))
    theirs = getattr(np, NAMES[name])
    case = Case({"cvm": lambda: f(x, out=out)}, 2 * x.nbytes, out)
    case.contenders["numpy"] = lambda: theirs(x, out=out)

    def loop(x: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = theirs(x[i])

    numba_loop(case.contenders, loop, x, out)
    on_torch(case.contenders, lambda torch, x, out: getattr(torch, name)(x, out=out), x, out)
    on_jax(case.contenders, lambda jax, x: getattr(jax.numpy, NAMES[name])(x), x)
    return case


WORK = {
    f"{name} {np.dtype(dtype).name}": lambda name=name, dtype=dtype: function(name, dtype)
    for dtype in (np.float32, np.float64)
    for name in NAMES
}
