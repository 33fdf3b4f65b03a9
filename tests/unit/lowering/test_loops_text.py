"""Printed kernels read back are the same kernels: they print alike, and are still legal."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import (
    Const,
    Extent,
    Index,
    Misalignment,
    Tensor,
    Var,
    apply,
    as_index,
    cast,
    constant,
    select,
)
from cvm.dialect.kernel_ir.kernel_printer import kernel_text, kernels_text
from cvm.dialect.kernel_ir.loops import (
    Alloc,
    Assert,
    For,
    If,
    Kernel,
    Let,
    Prefetch,
    Store,
    accumulator,
    assign,
)
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import F32, I1, I32, I64
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.pipeline import lower
from cvm.parser.kernels import read_kernels
from operator_checks import program
from samples import SAMPLES
from tiers import everything

import cvm


def reads_back(kernel: Kernel) -> Kernel:
    text = kernel_text(kernel)
    (found,) = read_kernels(text)[0].kernels
    assert kernel_text(found).splitlines() == text.splitlines()
    return found


def complaints(kernel: Kernel) -> list[str]:
    """The error of `check_kernel`. In a text, a second array of a name has a number appended."""
    return [re.sub(r"(%\w+)\.\d+\b", r"\1", complaint) for complaint in check_kernel(kernel)]


@pytest.mark.sample(60)
@pytest.mark.parametrize("unknown_sizes", [False, True], ids=["known", "unknown"])
@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_kernels_of_operators(name: str, unknown_sizes: bool) -> None:
    for seed in range(2 if everything else 1):
        try:
            module, _ = program(SAMPLES[name](np.random.default_rng(seed)), unknown_sizes)
        except cvm.VerifyError:
            continue
        kernels = lower(module, module.functions["main"]).kernels
        for kernel in kernels:
            assert complaints(kernel) == complaints(reads_back(kernel))
        assert kernels_text(read_kernels(kernels_text(kernels))[0].kernels) == kernels_text(kernels)


def every_statement() -> Kernel:
    n = Size.named("N")
    rows = (n * 2 - 1) // 3 + n * n
    x, y = Tensor("q", (n, 4), I32), Tensor("a.", (rows,), F32)
    i, j, k = Index("q", n), Index("q", 4), Index("k", 8)
    v, acc, tile = Var("v", I64), accumulator("acc", I1), Tensor("tile", (4, 2), F32, "stack")
    inner = (
        Let(v, cast(x[i, j], I64) * -3 - (i - (j - 1)) + as_index(rows) - Misalignment(x, 16)),
        If((v < 0) & ~acc[()], (assign(acc, Const(True, I1)),), (Assert(v.ne(3), 'say "no"\n'),)),
        Store(tile, (j, as_index(1)), select(v > 5, constant(-0.1, F32), -tile[j, 0])),
        For(
            k,
            (Store(tile, (k % 4, k // 4), constant(float("inf"), F32), True),),
            kind="vector",
            width=4,
        ),
    )
    body = (
        Alloc(acc),
        Alloc(tile),
        Prefetch(x, (Extent(n) - 1, as_index(2))),
        Store(acc, (), apply("lt", constant(1, I32), constant(2, I32))),
        For(i, (For(j, inner, kind="unrolled"),), start=apply("max", as_index(1), Extent(n) - 3)),
        Store(y, (as_index(0),), cast(constant(7, I32), F32) - apply("neg", constant(2.5, F32))),
    )
    return Kernel("main.0", (x, y), body)


def test_every_statement() -> None:
    reads_back(every_statement())


def test_anonymous_sizes_are_numbered_in_order() -> None:
    shape = (Size.unknown(), Size.unknown())
    i, j = (Index("i", d) for d in shape)
    x, y = Tensor("x", shape, I32), Tensor("y", shape, I32)
    kernel = Kernel("k", (x, y), (For(i, (For(j, (Store(y, (i, j), x[i, j]),)),)),))
    assert "tensor<?0 x ?1 x i32>" in kernel_text(kernel)
    check_kernel(reads_back(kernel))
