"""Operands and kernels that the tests of both emitters share."""

from __future__ import annotations

import numpy as np
from cvm.dialect.kernel_ir.expressions import Index
from cvm.dialect.kernel_ir.loops import Alloc, For, Kernel, Store, accumulator, assign, update
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import BF16, ELEMENT_TYPES, I32, ElementType
from native_kernels import kernel, tensor

REAL = [e for e in ELEMENT_TYPES.values() if e.kind != "complex" and e is not BF16]


def values(element: ElementType, count: int, seed: int = 0) -> np.ndarray:
    """Values of all magnitudes and the edges of the type."""
    random = np.random.default_rng(seed)
    if element.kind == "bool":
        return random.random(count) < 0.5
    if element.kind == "float":
        edges = np.array([0.0, -0.0, 1.0, -1.5, 2.5, np.inf, -np.inf, np.nan, 70000.0, -3e9, 1e-8])
        found = np.where(
            random.random(count) < 0.4, random.choice(edges, count), random.normal(0, 100, count)
        )
        with np.errstate(over="ignore"):
            return found.astype(element.dtype)
    low, high = element.limits
    edges = np.array([low, high, 0, 1, low + 1, high - 1, max(low, -1)], element.dtype)
    wide = random.integers(low, high, count, element.dtype, endpoint=True)
    return np.where(random.random(count) < 0.4, random.choice(edges, count), wide).astype(
        element.dtype
    )


def matrix_sum(rows: int | Size, columns: int | Size) -> Kernel:
    i, j = Index("i", rows), Index("j", columns)
    x, y, t = (
        tensor("x", I32, rows, columns),
        tensor("y", I32, rows),
        tensor("t", I32, rows, columns, space="heap"),
    )
    acc = accumulator("acc", I32)
    doubled = For(i, (For(j, (Store(t, (i, j), x[i, j] * 2),)),))
    total = For(
        i,
        (
            Alloc(acc),
            assign(acc, 0),
            For(j, (update("add", acc, t[i, j]),)),
            Store(y, (i,), acc[()]),
        ),
    )
    return kernel((Alloc(t), doubled, total), x, y)
