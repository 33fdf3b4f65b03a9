"""CVM-Runtime's CPU kernels, loop by loop and type by type, written again for numba to compile."""

from __future__ import annotations

from typing import Any

import numpy as np

I32 = np.int32
LEAST = I32(-(2**31))


def columns(x: Any, size: int, stride: int, padding: int, rows: int, out: Any) -> None:
    """Every element of a window as a row of bytes, over all windows of an image; zeros where a
    window is outside.
    """
    for c in range(x.shape[0]):
        for p in range(size):
            for q in range(size):
                k = (c * size + p) * size + q
                for h in range(rows):
                    i = h * stride + p - padding
                    if i < 0 or i >= x.shape[1]:
                        for w in range(rows):
                            out[k, h * rows + w] = 0
                    else:
                        for w in range(rows):
                            j = w * stride + q - padding
                            inside = j >= 0 and j < x.shape[2]
                            out[k, h * rows + w] = np.int8(x[c, i, j]) if inside else np.int8(0)


def product_of_rows(a: Any, b: Any, out: Any) -> None:
    """Rows of `b` times numbers, added to rows of the result: where these are long."""
    for i in range(a.shape[0]):
        for j in range(b.shape[1]):
            out[i, j] = 0
        for k in range(a.shape[1]):
            factor = I32(a[i, k])
            for j in range(b.shape[1]):
                out[i, j] += factor * I32(b[k, j])


def turned(b: Any, out: Any) -> None:
    for j in range(b.shape[1]):
        for k in range(b.shape[0]):
            out[j, k] = b[k, j]


def product_of_pairs(a: Any, b: Any, out: Any) -> None:
    """Each element a sum along a row of `a` and one of `b`."""
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total = I32(0)
            for k in range(a.shape[1]):
                total += I32(a[i, k]) * I32(b[j, k])
            out[i, j] = total


def by_groups(x: Any, w: Any, stride: int, padding: int, out: Any) -> None:
    of_group = out.shape[1] // (x.shape[1] // w.shape[1])
    for n in range(out.shape[0]):
        for o in range(out.shape[1]):
            first = o // of_group * w.shape[1]
            for h in range(out.shape[2]):
                for v in range(out.shape[3]):
                    total = I32(0)
                    for c in range(w.shape[1]):
                        for p in range(w.shape[2]):
                            for q in range(w.shape[3]):
                                i, j = h * stride + p - padding, v * stride + q - padding
                                if i < 0 or j < 0 or i >= x.shape[2] or j >= x.shape[3]:
                                    continue
                                total += x[n, first + c, i, j] * w[o, c, p, q]
                    out[n, o, h, v] = total


def max_pool(x: Any, size: int, stride: int, padding: int, out: Any) -> None:
    for n in range(out.shape[0]):
        for c in range(out.shape[1]):
            for h in range(out.shape[2]):
                for w in range(out.shape[3]):
                    best = LEAST
                    for p in range(size):
                        for q in range(size):
                            i, j = h * stride + p - padding, w * stride + q - padding
                            inside = i >= 0 and i < x.shape[2] and j >= 0 and j < x.shape[3]
                            best = max(best, x[n, c, i, j] if inside else LEAST)
                    out[n, c, h, w] = best


def add(a: Any, b: Any, out: Any) -> None:
    for i in range(out.size):
        out[i] = a[i] + b[i]


def right_shift(x: Any, bits: int, most: int, out: Any) -> None:
    """Rounded, and clipped to so much."""
    for i in range(out.size):
        out[i] = min(max(I32(I32(x[i] >> I32(bits - 1)) + I32(1)) >> I32(1), I32(-most)), I32(most))


def clip(x: Any, most: int, out: Any) -> None:
    for i in range(out.size):
        out[i] = min(max(x[i], I32(-most)), I32(most))


def summed(x: Any, kept: Any, kept_steps: Any, along: Any, along_steps: Any, out: Any) -> None:
    """Sums along some axes of an array: the sizes of those that are kept and of those that are not,
    and what they step by.
    """
    count = 1
    for n in along:
        count *= n
    for i in range(out.size):
        rest, first = np.uint64(i), np.uint64(0)
        for axis in range(kept.size - 1, -1, -1):
            first += rest % kept[axis] * kept_steps[axis]
            rest //= kept[axis]
        total = x[first]
        for k in range(1, count):
            rest, at = np.uint64(k), first
            for axis in range(along.size - 1, -1, -1):
                at += rest % along[axis] * along_steps[axis]
                rest //= along[axis]
            total += x[at]
        out[i] = total


def transpose(x: Any, shape: Any, order: Any, out: Any, of_out: Any) -> None:
    """The result's element of each number, from where it is; what an axis steps by is multiplied
    together every time.
    """
    for i in range(out.size):
        rest, at = np.uint64(i), np.uint64(0)
        for axis in range(of_out.size - 1, -1, -1):
            step = np.uint64(1)
            for inner in range(of_out.size - 1, order[axis], -1):
                step *= shape[inner]
            at += rest % of_out[axis] * step
            rest //= of_out[axis]
        out[i] = x[at]
