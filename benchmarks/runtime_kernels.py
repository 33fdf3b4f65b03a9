"""The operators of CVM-Runtime, as its kernels for CPUs compute them, and ours.

Its library is not there to be installed: what is measured are its algorithms, written again
(`runtime_loops`) and compiled by numba for this very processor, with vectors wherever LLVM finds
some. Ours are measured with weights that are constants, as in a network, and with all values given
at the call and no range known. Sums are exact for all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import runtime_loops as loops
from contenders import Found, program, type_of
from side_by_side import Case, installed

import cvm

PEER = "CVM-Runtime's loops (numba)"
I32, I64, U64 = np.int32, np.int64, np.uint64
GIVEN = "cvm, weights given"


def numbers(low: int, high: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(low, high, shape).astype(I32)


def compiled(loop: Callable[..., None]) -> Callable[..., None]:
    return installed("numba").njit(error_model="numpy")(loop)


def case(
    found: Found, out: np.ndarray, theirs: Callable[[], Callable[[], Any]], operations: float = 0
) -> Case:
    """`theirs` compiles their loops, where numba is installed."""
    if installed("numba"):
        found[PEER] = theirs()
    return Case(found, out=out, operations=operations, kind="i16" if operations else "")


def with_weights(body: str, x: np.ndarray, w: np.ndarray, out: np.ndarray) -> Found:
    """Our two programs of an input and weights, which the body calls %x0 and %x1."""
    f, g = (
        program(body, x, w),
        cvm.compile(
            f"func @main(%x0: {type_of(x)} {{range = [0, 127]}}) {{\n"
            f"%x1 = const dense<{w.tolist()}> : {type_of(w)}\n{body}\nreturn %y\n}}"
        ),
    )
    return {"cvm": lambda: g(x, out=out), GIVEN: lambda: f(x, w, out=out)}


def conv(c: int, oc: int, size: int, kernel: int = 3, groups: int = 1) -> Case:
    padding = kernel // 2
    x, w = numbers(0, 128, 1, c, size, size), numbers(-127, 128, oc, c // groups, kernel, kernel)
    out = np.empty((1, oc, size, size), I32)
    body = f"%y = cvm.conv2d %x0, %x1 {{padding = [{padding}, {padding}], groups = {groups}}}"

    def nest() -> Callable[[], Any]:
        by_groups = compiled(loops.by_groups)
        return lambda: by_groups(x, w, 1, padding, out)

    def by_columns() -> Callable[[], Any]:
        columns, rows, turned, pairs = map(
            compiled, (loops.columns, loops.product_of_rows, loops.turned, loops.product_of_pairs)
        )

        def run() -> None:
            weights = w.astype(np.int8).reshape(oc, -1)
            side = np.empty((weights.shape[1], size * size), np.int8)
            columns(x[0], kernel, 1, padding, size, side)
            if size * size > oc:
                rows(weights, side, out.reshape(oc, -1))
            else:
                across = np.empty(side.shape[::-1], np.int8)
                turned(side, across)
                pairs(weights, across, out.reshape(oc, -1))

        return run

    theirs = nest if groups > 1 else by_columns
    return case(with_weights(body, x, w, out), out, theirs, 2 * out.size * w[0].size)


def dense(m: int, k: int, n: int) -> Case:
    x, w, out = numbers(0, 128, m, k), numbers(-127, 128, n, k), np.empty((m, n), I32)

    def theirs() -> Callable[[], Any]:
        pairs = compiled(loops.product_of_pairs)
        return lambda: pairs(x, w, out)

    return case(with_weights("%y = cvm.dense %x0, %x1", x, w, out), out, theirs, 2 * m * k * n)


def pooled(c: int, size: int) -> Case:
    x, out = numbers(-127, 128, 1, c, size, size), np.empty((1, c, size // 2, size // 2), I32)
    f = program(
        "%y = cvm.max_pool2d %x0 {pool_size = [3, 3], strides = [2, 2], padding = [1, 1]}", x
    )

    def theirs() -> Callable[[], Any]:
        max_pool = compiled(loops.max_pool)
        return lambda: max_pool(x, 3, 2, 1, out)

    return case({"cvm": lambda: f(x, out=out)}, out, theirs)


def shifted(n: int) -> Case:
    a, b, out = numbers(-2000, 2000, n), numbers(-1500, 2500, n), np.empty(n, I32)
    f = program(
        "%s = cvm.elemwise_add %x0, %x1\n"
        "%r = cvm.cvm_right_shift %s {precision = 16, shift_bit = 4}\n"
        "%y = cvm.cvm_clip %r {precision = 8}",
        a,
        b,
    )

    def theirs() -> Callable[[], Any]:
        add, right_shift, clip = map(compiled, (loops.add, loops.right_shift, loops.clip))
        s, r = np.empty_like(a), np.empty_like(a)

        def run() -> None:
            add(a, b, s)
            right_shift(s, 4, 2**15 - 1, r)
            clip(r, 127, out)

        return run

    return case({"cvm": lambda: f(a, b, out=out)}, out, theirs)


def steps(a: np.ndarray) -> np.ndarray:
    return np.array(a.strides, U64) // U64(a.itemsize)


def summed(*shape: int) -> Case:
    """Over the last two of four axes."""
    x, out, sizes = numbers(-127, 128, *shape), np.empty(shape[:2], I32), np.array(shape, U64)
    f = program("%y = cvm.sum %x0 {axes = [2, 3]}", x)

    def theirs() -> Callable[[], Any]:
        add_up, by = compiled(loops.summed), steps(x)
        return lambda: add_up(x.reshape(-1), sizes[:2], by[:2], sizes[2:], by[2:], out.reshape(-1))

    return case({"cvm": lambda: f(x, out=out)}, out, theirs)


def transposed(order: tuple[int, ...], *shape: int) -> Case:
    x, out = numbers(-127, 128, *shape), np.empty([shape[a] for a in order], I32)
    f = program(f"%y = cvm.transpose %x0 {{axes = {list(order)}}}", x)

    def theirs() -> Callable[[], Any]:
        transpose = compiled(loops.transpose)
        sizes, axes, of_out = np.array(shape, U64), np.array(order, I64), np.array(out.shape, U64)
        return lambda: transpose(x.reshape(-1), sizes, axes, out.reshape(-1), of_out)

    return case({"cvm": lambda: f(x, out=out)}, out, theirs)


WORK: dict[str, Callable[[], Case]] = {
    "conv 3x3, 256 of 14x14": lambda: conv(256, 256, 14),
    "conv 3x3, 64 of 56x56": lambda: conv(64, 64, 56),
    "depthwise 3x3, 256 of 28x28": lambda: conv(256, 256, 28, groups=256),
    "dense 64 x 1024 by 1024 x 1024": lambda: dense(64, 1024, 1024),
    "max_pool 3x3 s2 p1, 64 of 112x112": lambda: pooled(64, 112),
    "add, right shift, clip, 800K": lambda: shifted(800_000),
    "sum over [2, 3] of 1x256x56x56": lambda: summed(1, 256, 56, 56),
    "transpose 1x256x56x56 to channels last": lambda: transposed((0, 2, 3, 1), 1, 256, 56, 56),
}
