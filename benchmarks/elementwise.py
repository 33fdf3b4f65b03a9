"""Elementwise programs beside NumPy, numexpr, numba, JAX, torch and glibc's vector functions, where those are installed.

    python benchmarks/elementwise.py [--threads 1] [--seconds 2] [NAME ...]

The image of the dali specification, a ten-operation chain, and every transcendental function. `copy` is a plain copy of as
many bytes as the program reads and writes, with NumPy. Outputs are given, so that nobody pays for fresh memory.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from side_by_side import HEAD, Contender, installed, medians, row

import cvm

FUNCTIONS = {  # ours: NumPy's name, and C's where it is another
    "exp": "exp", "log": "log", "log2": "log2", "log10": "log10", "sin": "sin", "cos": "cos", "tan": "tan",
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "cbrt": "cbrt",
}  # fmt: skip
UNIT = ("asin", "acos", "atanh")  # of numbers in (-1, 1)
N = 1 << 20


def copy_of(read: int, written: int) -> Contender:
    """A copy of half as many bytes as are read and written in all."""
    source = np.ones((read + written) // 2, np.uint8)
    target = np.empty_like(source)
    return lambda: np.copyto(target, source)


def image() -> tuple[dict[str, Contender], Contender]:
    """u8 images times a gain for each channel, clamped: the example of the dali specification."""
    random = np.random.default_rng(0)
    x = random.integers(0, 256, (32, 480, 640, 3)).astype(np.uint8)
    gain = np.array([1.25, 0.75, 0.75], np.float32)
    out = np.empty(x.shape, np.float32)
    f = cvm.compile(lambda x, gain: cvm.clamp(x * gain, 128, 255))
    found: dict[str, Contender] = {"cvm": lambda: f(x, gain, out=out)}

    def plain() -> None:
        np.multiply(x, gain, out=out)
        np.clip(out, 128, 255, out=out)

    found["numpy"] = plain
    if numba := installed("numba"):

        @numba.njit(error_model="numpy")
        def loops(x: Any, gain: Any, out: Any) -> None:
            g0, g1, g2 = gain
            low, high = np.float32(128), np.float32(255)
            for i in range(x.shape[0]):
                out[i, 0] = min(max(x[i, 0] * g0, low), high)
                out[i, 1] = min(max(x[i, 1] * g1, low), high)
                out[i, 2] = min(max(x[i, 2] * g2, low), high)

        flat, flat_out = x.reshape(-1, 3), out.reshape(-1, 3)
        found["numba"] = lambda: loops(flat, gain, flat_out)
    if jax := installed("jax"):
        g = jax.jit(lambda x, gain: jax.numpy.clip(x * gain, 128.0, 255.0))
        on_device = jax.device_put(x), jax.device_put(gain)
        found["jax"] = lambda: g(*on_device).block_until_ready()
    if torch := installed("torch"):
        tx, tg, to = torch.from_numpy(x), torch.from_numpy(gain), torch.from_numpy(out)
        found["torch"] = lambda: torch.clamp(torch.mul(tx, tg, out=to), 128, 255, out=to)
    return found, copy_of(x.nbytes, out.nbytes)


CHAIN = "((a * 1.5 + b) * a - b * 0.25) * (a + 3.0) / (b * b + 2.0)"  # ten operations


def chain() -> tuple[dict[str, Contender], Contender]:
    random = np.random.default_rng(0)
    a, b = (random.random(1 << 24, np.float32) for _ in range(2))
    out = np.empty_like(a)
    f = cvm.compile(lambda a, b: ((a * 1.5 + b) * a - b * 0.25) * (a + 3.0) / (b * b + 2.0))
    one, quarter, three, two = (np.float32(v) for v in (1.5, 0.25, 3, 2))
    found: dict[str, Contender] = {
        "cvm": lambda: f(a, b, out=out),
        "numpy": lambda: np.divide(((a * one + b) * a - b * quarter) * (a + three), b * b + two, out=out),
    }
    if numexpr := installed("numexpr"):
        names = {"a": a, "b": b, "c1": one, "c2": quarter, "c3": three, "c4": two}
        text = "((a * c1 + b) * a - b * c2) * (a + c3) / (b * b + c4)"
        found["numexpr"] = lambda: numexpr.evaluate(text, names, out=out)
    if numba := installed("numba"):

        @numba.njit(error_model="numpy")
        def loop(a: Any, b: Any, out: Any) -> None:
            c1, c2, c3, c4 = np.float32(1.5), np.float32(0.25), np.float32(3), np.float32(2)
            for i in range(a.size):
                out[i] = ((a[i] * c1 + b[i]) * a[i] - b[i] * c2) * (a[i] + c3) / (b[i] * b[i] + c4)

        found["numba"] = lambda: loop(a, b, out)
    if jax := installed("jax"):
        g = jax.jit(lambda a, b: ((a * 1.5 + b) * a - b * 0.25) * (a + 3.0) / (b * b + 2.0))
        on_device = jax.device_put(a), jax.device_put(b)
        found["jax"] = lambda: g(*on_device).block_until_ready()
    if torch := installed("torch"):
        ta, tb, to = torch.from_numpy(a), torch.from_numpy(b), torch.from_numpy(out)
        found["torch"] = lambda: torch.div(((ta * 1.5 + tb) * ta - tb * 0.25) * (ta + 3.0), tb * tb + 2.0, out=to)
    return found, copy_of(2 * a.nbytes, out.nbytes)


def function(name: str, dtype: type, folder: Path) -> tuple[dict[str, Contender], Contender]:
    """One transcendental function over a million elements."""
    random = np.random.default_rng(0)
    low, high = (
        (-0.99, 0.99) if name in UNIT else (1.01, 20.0) if name == "acosh" or name.startswith("log") else (-10.0, 10.0)
    )
    x = random.uniform(low, high, N).astype(dtype)
    out = np.empty_like(x)
    f = cvm.compile(lambda x: getattr(cvm, name)(x))
    theirs = getattr(np, FUNCTIONS[name])
    found: dict[str, Contender] = {"cvm": lambda: f(x, out=out), "numpy": lambda: theirs(x, out=out)}
    if numba := installed("numba"):

        @numba.njit(error_model="numpy")
        def loop(x: Any, out: Any) -> None:
            for i in range(x.size):
                out[i] = theirs(x[i])

        found["numba"] = lambda: loop(x, out)
    if shutil.which("gcc") is not None:
        library = vector_library(name, dtype, folder)
        pointers = ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_long(N)
        found["libmvec"] = lambda: library(*pointers)
    return found, copy_of(x.nbytes, out.nbytes)


def vector_library(name: str, dtype: type, folder: Path) -> Any:
    """A loop that gcc compiles to calls of glibc's vector functions, where it has one for this function."""
    kind, suffix = ("float", "f") if dtype is np.float32 else ("double", "")
    text = f"#include <math.h>\nvoid f(const {kind} *x, {kind} *y, long n) {{ for (long i = 0; i < n; i++) y[i] = {name}{suffix}(x[i]); }}\n"
    source, library = folder / f"{name}{suffix}.c", folder / f"{name}{suffix}_.so"
    source.write_text(text)
    options = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, "-o", library, source, "-lm"], check=True)
    return ctypes.CDLL(str(library)).f


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of the names of what to measure; all of it without")
    parser.add_argument("--threads", type=int, default=1, help="threads of every contender that can be told")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to measure each")
    options = parser.parse_args()
    cvm.set_num_threads(options.threads)
    os.environ.setdefault("NUMEXPR_NUM_THREADS", str(options.threads))
    if (torch := installed("torch")) is not None:
        torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        work: dict[str, Callable[[], tuple[dict[str, Contender], Contender]]] = {
            "image 32x480x640x3, u8 * f32[3], clamp": image,
            "ten-operation chain, 16M f32": chain,
        }
        for f in FUNCTIONS:
            for dtype in (np.float32, np.float64):
                work[f"{f} {np.dtype(dtype).name}, 1M"] = lambda f=f, dtype=dtype: function(f, dtype, folder)
        print(f"{options.threads} thread{'s' if options.threads > 1 else ''}\n\n{HEAD}", flush=True)
        for title, make in work.items():
            if not options.names or any(part in title for part in options.names):
                contenders, copy = make()
                found = medians({**contenders, "copy": copy}, options.seconds)
                print(row(title, found, found["copy"]), flush=True)


if __name__ == "__main__":
    main()
