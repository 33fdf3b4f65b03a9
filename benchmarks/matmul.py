"""Products of f32 matrices. Each of our sums is in order, each product rounded with its sum; peers sum as they like."""

from __future__ import annotations

from typing import Any

import numpy as np
from contenders import on_jax, on_torch
from onnx_models import on_onnxruntime, product
from side_by_side import Case

import cvm


def matmul(m: int, k: int, n: int) -> Case:
    random = np.random.default_rng(0)
    a, b = random.normal(size=(m, k)).astype(np.float32), random.normal(size=(k, n)).astype(np.float32)
    out = np.empty((m, n), np.float32)
    f = cvm.compile(lambda a, b: cvm.theano.dot(a, b))
    case = Case({"cvm": lambda: f(a, b, out=out)}, out=out, operations=2 * m * k * n, kind="f32", tolerance=1e-4)
    found = case.contenders
    found["numpy (OpenBLAS)"] = lambda: np.matmul(a, b, out=out)

    def by_torch(torch: Any, a: Any, b: Any, out: Any) -> None:
        torch.mm(a, b, out=out)

    on_torch(found, by_torch, a, b, out)
    on_jax(found, lambda jax, a, b: a @ b, a, b)
    on_onnxruntime(found, product(b, m), a)
    return case


WORK = {
    f"{m} x {k} by {k} x {n}": lambda m=m, k=k, n=n: matmul(m, k, n)
    for m, k, n in ((512, 512, 512), (1024, 1024, 1024), (64, 1024, 1024))
}
