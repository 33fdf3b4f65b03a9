"""What the benchmarks of data movement and reductions share: contenders of each peer, a copy as the limit, and the table."""

from __future__ import annotations

import argparse
import ctypes
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from side_by_side import HEAD, Contender, installed, medians, row

import cvm

Case = tuple[dict[str, Contender], Contender]


def type_of(a: np.ndarray) -> str:
    """An array's type in a program's text."""
    kind = {"f": "f", "i": "i", "u": "ui"}
    element = "i1" if a.dtype == bool else f"{kind[a.dtype.kind]}{a.dtype.itemsize * 8}"
    return f"tensor<{''.join(f'{n}x' for n in a.shape)}{element}>"


def program(body: str, *arrays: np.ndarray) -> Any:
    """The function of these arguments, %x0, %x1, ..., that gives %y."""
    given = ", ".join(f"%x{n}: {type_of(a)}" for n, a in enumerate(arrays))
    return cvm.compile(f"func @main({given}) {{\n{body}\nreturn %y\n}}")


def numba_loop(found: dict[str, Contender], loop: Callable[..., Any], *arrays: Any) -> None:
    if numba := installed("numba"):
        f = numba.njit(error_model="numpy")(loop)
        found["numba"] = lambda: f(*arrays)


def on_torch(found: dict[str, Contender], way: Callable[..., Any], *arrays: Any) -> None:
    if torch := installed("torch"):
        tensors = [torch.from_numpy(a) for a in arrays]
        found["torch"] = lambda: way(torch, *tensors)


def on_jax(found: dict[str, Contender], way: Callable[..., Any], *arrays: Any) -> None:
    if jax := installed("jax"):
        jax.config.update("jax_enable_x64", True)
        f = jax.jit(lambda *given: way(jax, *given))
        tensors = [jax.device_put(a) for a in arrays]
        found["jax"] = lambda: f(*tensors).block_until_ready()


def copy_of(moved: int, threads: int) -> Contender:
    """A copy that reads and writes so many bytes in all, a part on each thread."""
    source = np.ones(moved // 2, np.uint8)
    target = np.empty_like(source)
    if threads == 1:
        return lambda: np.copyto(target, source)
    part = -(-source.size // threads)
    pieces = [
        (target.ctypes.data + n, source.ctypes.data + n, min(part, source.size - n))
        for n in range(0, source.size, part)
    ]
    pool = ThreadPoolExecutor(threads)

    def run(_kept: Any = (source, target)) -> None:
        list(pool.map(lambda piece: ctypes.memmove(*piece), pieces))

    return run


def read_of(moved: int, threads: int) -> Contender:
    """As many bytes read, an i64 at a time: their number of ones is the same for every order."""
    x = np.ones(moved // 8, np.int64)
    f = program("%y = theano.sum %x0", x)
    out = np.empty((), np.int64)
    return lambda: f(x, out=out)


def main(
    title: str | None,
    work: dict[str, Callable[[], tuple[dict[str, Contender], int]]],
    limit: Callable[[int, int], Contender] = copy_of,
) -> None:
    """The table of these cases, each of which gives its contenders and how many bytes it has to move."""
    parser = argparse.ArgumentParser(description=title, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of the names of what to measure; all of it without")
    parser.add_argument("--threads", type=int, default=1, help="threads of every contender: the processors it may use")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long to measure each")
    options = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    cvm.set_num_threads(options.threads)
    if (torch := installed("torch")) is not None:
        torch.set_num_threads(options.threads)
    print(f"{options.threads} thread{'s' if options.threads > 1 else ''}\n\n{HEAD}", flush=True)
    for name, make in work.items():
        if not options.names or any(part in name for part in options.names):
            contenders, moved = make()
            found = medians({**contenders, "copy": limit(moved, options.threads)}, options.seconds)
            print(row(name, found, found["copy"]), flush=True)
