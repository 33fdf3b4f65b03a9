"""The same work given to each peer that is installed: a contender is added under the peer's name,
or none is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from side_by_side import Contender, installed

import cvm

Found = dict[str, Contender]


def type_of(a: np.ndarray) -> str:
    """An array's type in a program's text."""
    kind = {"f": "f", "i": "i", "u": "ui"}
    element = "i1" if a.dtype == bool else f"{kind[a.dtype.kind]}{a.dtype.itemsize * 8}"
    return f"tensor<{''.join(f'{n}x' for n in a.shape)}{element}>"


def program(body: str, *arrays: np.ndarray) -> Any:
    """The function of these arguments, %x0, %x1, ..., that gives %y."""
    given = ", ".join(f"%x{n}: {type_of(a)}" for n, a in enumerate(arrays))
    return cvm.compile(f"func @main({given}) {{\n{body}\nreturn %y\n}}")


def numba_loop(found: Found, loop: Callable[..., Any], *arrays: Any) -> None:
    if numba := installed("numba"):
        f = numba.njit(error_model="numpy")(loop)
        found["numba"] = lambda: f(*arrays)


def on_numexpr(found: Found, text: str, names: dict[str, Any], out: np.ndarray) -> None:
    if numexpr := installed("numexpr"):
        found["numexpr"] = lambda: numexpr.evaluate(text, names, out=out)


def on_torch(found: Found, way: Callable[..., Any], *arrays: Any) -> None:
    if torch := installed("torch"):
        tensors = [torch.from_numpy(a) for a in arrays]
        found["torch"] = lambda: way(torch, *tensors)


def on_jax(found: Found, way: Callable[..., Any], *arrays: Any) -> None:
    if jax := installed("jax"):
        jax.config.update("jax_enable_x64", True)
        f = jax.jit(lambda *given: way(jax, *given))
        tensors = [jax.device_put(a) for a in arrays]
        found["jax"] = lambda: f(*tensors).block_until_ready()


def on_halide(
    found: Found, way: Callable[..., Any], arrays: Sequence[np.ndarray], out: np.ndarray
) -> None:
    """A formula over one index of flat arrays, by vectors."""
    if hl := installed("halide"):
        i, f = hl.Var("i"), hl.Func("f")
        f[i] = way(hl, i, *(hl.Buffer(a.reshape(-1)) for a in arrays))
        f.vectorize(i, 64 // min(4, out.itemsize), hl.TailStrategy.ShiftInwards)
        realize(found, f, out.reshape(-1))


def realize(found: Found, f: Any, out: np.ndarray) -> None:
    """A scheduled function of Halide's, for instructions that this processor has: what Halide finds
    itself may be too many.
    """
    hl = installed("halide")
    known = {"avx": "avx", "avx2": "avx2", "fma": "fma", "f16c": "f16c", "sse4.1": "sse41"}
    features = [
        known[name]
        for name, there in llvm.get_host_cpu_features().items()
        if there and name in known
    ]
    target = hl.Target("-".join(["x86-64-linux", *features]) + "-jit")
    f.compile_jit(target)
    buffer = hl.Buffer(out)
    found["halide"] = lambda: f.realize(buffer, target)
