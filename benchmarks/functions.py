"""Transcendental functions over a million f32. docs/accuracy.md says how accurate ours are."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
from contenders import numba_loop, on_jax, on_torch
from libmvec import ULPS, on_libmvec
from side_by_side import Case

import cvm

NAMES = {  # ours, torch's and C's: NumPy's and JAX's
    **{
        n: n
        for n in (
            "exp",
            "exp2",
            "expm1",
            "log",
            "log2",
            "log10",
            "log1p",
            "cbrt",
            "sin",
            "cos",
            "tan",
        )
    },
    **{n: f"arc{n[1:]}" for n in ("asin", "acos", "atan", "atan2", "asinh", "acosh", "atanh")},
    **{n: n for n in ("sinh", "cosh", "tanh")},
    "pow": "power",
    **{n: n for n in ("erf", "erfc")},
}
SPECIAL = ("erf", "erfc")  # NumPy has none; Python's, and JAX's elsewhere
THEANO = ("exp2", "expm1", "log1p", *SPECIAL)  # the theano dialect's alone
# where operands lie; those of the others in (-10, 10)
INSIDE = {
    **dict.fromkeys(("asin", "acos", "atanh"), ((-0.99, 0.99),)),
    **dict.fromkeys(("log", "log2", "log10"), ((0.01, 20.0),)),
    "log1p": ((-0.9, 20.0),),
    "acosh": ((1.0, 20.0),),
    **dict.fromkeys(("erf", "erfc"), ((-4.0, 4.0),)),
    "pow": ((0.1, 10.0), (-5.0, 5.0)),
    "atan2": ((-10.0, 10.0), (-10.0, 10.0)),
}
N = 1 << 20
OUR_ULPS = 2


def function(name: str, dtype: type) -> Case:
    random = np.random.default_rng(0)
    xs = [random.uniform(*ends, N).astype(dtype) for ends in INSIDE.get(name, ((-10.0, 10.0),))]
    out = np.empty_like(xs[0])
    ours = getattr(cvm.theano if name in THEANO else cvm, name)
    f = cvm.compile(lambda x: ours(x)) if len(xs) == 1 else cvm.compile(lambda x, y: ours(x, y))
    special = name in SPECIAL
    theirs = getattr(math if special else np, NAMES[name])
    case = Case({"cvm": lambda: f(*xs, out=out)}, (len(xs) + 1) * out.nbytes, out, (len(xs), 1))
    if not special:
        case.contenders["numpy"] = lambda: theirs(*xs, out=out)
    on_libmvec(case.contenders, name, out, *xs)
    case.bounds = {"libmvec": (ULPS + OUR_ULPS) * float(np.finfo(dtype).eps)}

    def of_one(x: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = theirs(x[i])

    def of_two(x: Any, y: Any, out: Any) -> None:
        for i in range(x.size):
            out[i] = theirs(x[i], y[i])

    if name != "cbrt" or dtype is np.float64:  # numba's cbrt of f32 is none
        numba_loop(case.contenders, of_one if len(xs) == 1 else of_two, *xs, out)
    if name != "cbrt":
        on_torch(
            case.contenders,
            lambda torch, *given: getattr(torch, name)(*given[:-1], out=given[-1]),
            *xs,
            out,
        )
    place = "scipy.special" if special else "numpy"
    on_jax(
        case.contenders,
        lambda jax, *given: getattr(attrgetter(place)(jax), NAMES[name])(*given),
        *xs,
    )
    return case


def functions(dtype: type) -> dict[str, Callable[[], Case]]:
    return {f"{name} {np.dtype(dtype).name}": partial(function, name, dtype) for name in NAMES}


WORK = functions(np.float32)
