"""Products of f32 matrices, of few rows too, and attention. Each of our sums is in order, each
product rounded with its sum; peers sum as they like.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from contenders import on_jax, on_torch
from limits import READ
from onnx_models import on_onnxruntime, product
from side_by_side import Case, strategies

import cvm


def matmul(m: int, k: int, n: int, constant: bool = False) -> Case:
    random = np.random.default_rng(0)
    a, b = (
        random.normal(size=(m, k)).astype(np.float32),
        random.normal(size=(k, n)).astype(np.float32),
    )
    out = np.empty((m, n), np.float32)
    f = cvm.compile((lambda a: np.matmul(a, b)) if constant else lambda a, b: np.matmul(a, b))
    given = (a,) if constant else (a, b)
    f(*given)
    case = Case(
        {"cvm": lambda: f(*given, out=out)},
        out=out,
        strategies=strategies(f),
        operations=2 * m * k * n,
        kind="f32",
        tolerance=1e-4,
    )
    found = case.contenders
    found["numpy (OpenBLAS)"] = lambda: np.matmul(a, b, out=out)

    def by_torch(torch: Any, a: Any, b: Any, out: Any) -> None:
        torch.mm(a, b, out=out)

    on_torch(found, by_torch, a, b, out)
    on_jax(found, lambda jax, a, b: a @ b, a, b)
    if constant or m > 8:  # it packs a constant matrix beforehand
        on_onnxruntime(found, product(b, m), a)
    return case


def few_rows(m: int, k: int, n: int, constant: bool) -> Case:
    """A few rows times a matrix that has to be read, which is the limit."""
    case = matmul(m, k, n, constant)
    case.operations, case.moved, case.shares = 0, 4 * k * n, READ
    return case


def attention(batch: int, heads: int, tokens: int, depth: int) -> Case:
    random = np.random.default_rng(0)
    q, k, v = (
        random.normal(size=(batch, heads, tokens, depth)).astype(np.float32) for _ in range(3)
    )
    out = np.empty_like(q)

    def written_out(q: Any, k: Any, v: Any) -> Any:
        scores = np.matmul(q, np.swapaxes(k, -1, -2)) * np.float32(depth**-0.5)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.matmul(weights / weights.sum(-1, keepdims=True), v)

    f = cvm.compile(written_out)
    f(q, k, v)
    case = Case(
        {"cvm": lambda: f(q, k, v, out=out)},
        out=out,
        kind="f32",
        tolerance=1e-4,
        strategies=strategies(f),
    )
    case.operations = 4 * batch * heads * tokens * tokens * depth
    on_torch(
        case.contenders,
        lambda torch, *t: torch.nn.functional.scaled_dot_product_attention(*t).numpy(),
        q,
        k,
        v,
    )
    return case


WORK = {
    **{
        f"{m} x {k} by {k} x {n}": lambda m=m, k=k, n=n: matmul(m, k, n)
        for m, k, n in (
            (512, 512, 512),
            (1024, 1024, 1024),
            (64, 1024, 1024),
            (128, 768, 3072),
            (2000, 300, 500),
        )
    },
    **{
        f"{m} x {k} by {'a constant' if c else 'an argument'}, {k} x {n}": lambda m=m, k=k, n=n, c=c: (
            few_rows(m, k, n, c)
        )
        for m, k, n in ((1, 2048, 2048), (4, 1024, 4096), (8, 4096, 4096))
        for c in (True, False)
    },
    **{
        f"attention, {' x '.join(map(str, shape))}": lambda shape=shape: attention(*shape)
        for shape in ((8, 12, 128, 64), (1, 12, 1024, 64))
    },
}
