"""Elements computed at once: two vectors for a long computation, and the same bits for every
length.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cvm.dialect.kernel_ir.expressions import Index, Tensor, apply
from cvm.dialect.kernel_ir.loops import Alloc, If, Let, Store, Var, accumulator, assign
from cvm.dialect.types.tensor_types import F32, I32
from cvm.lowering.analysis.cost import chain
from legal_and_equal import legal

import cvm

LONG = "  %a = dali.log %x\n  %y = dali.mul %a, %x\n"
SHORT = "  %a = dali.mul %x, %x\n  %y = dali.add %a, %x\n"


def program(body: str, type: str) -> Any:
    module = cvm.parse(f"func @main(%x: {type}) {{\n{body}  return %y\n}}\n")
    legal(module)
    return cvm.compile(module)


@pytest.mark.parametrize(
    ("body", "type", "width"),
    [
        (LONG, "tensor<1000xf32>", 16),
        (LONG, "tensor<?xf32>", 16),
        (LONG, "tensor<1000xf64>", 8),
        (LONG, "tensor<40xf32>", 8),  # too short for it
        (SHORT, "tensor<1000xf32>", 8),
        (SHORT, "tensor<?xf64>", 4),
    ],
)
def test_two_vectors_where_steps_wait_for_each_other(body: str, type: str, width: int) -> None:
    schedule = program(body, type).lower("schedule")
    assert f"vector {width} {{" in schedule and f"vector {2 * width} {{" not in schedule


@pytest.mark.parametrize("element", [np.float32, np.float64])
@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 67, 1003, 5000])
def test_the_same_bits_for_every_length(element: type, length: int) -> None:
    x = np.random.default_rng(0).uniform(-1, 100, 5000).astype(element)
    x[::37] = 0  # and rare branches are taken
    name = "f32" if element is np.float32 else "f64"
    whole = program(LONG, f"tensor<5000x{name}>")(x)
    np.testing.assert_array_equal(
        program(LONG, f"tensor<{length}x{name}>")(x[:length]), whole[:length]
    )
    np.testing.assert_array_equal(program(LONG, f"tensor<?x{name}>")(x[:length]), whole[:length])


@pytest.mark.parametrize("length", [16, 40, 72, 1000, 1003])
def test_in_place(length: int) -> None:
    """Nothing may be computed twice: what is left over goes by single vectors, then by elements."""
    body = '  %a = theano.elemwise %x {scalar_op = "log", inplace_pattern = {0 = 0}}\n'
    body += '  %y = theano.elemwise %a {scalar_op = "exp", inplace_pattern = {0 = 0}}\n'
    x = np.random.default_rng(0).uniform(0.1, 100, length).astype(np.float32)
    pure = program(LONG.replace("dali.mul %a, %x", "dali.exp %a"), f"tensor<{length}xf32>")(x)
    f: Any = cvm.compile(
        f"func @main(%x: tensor<{length}xf32> {{inplace}}) {{\n{body}  return %y\n}}\n"
    )
    np.testing.assert_array_equal(f(x.copy()), pure)


def test_chain() -> None:
    i = Index("i", 8)
    x, acc = Tensor("x", (8,), F32, "argument"), accumulator("acc", F32)
    n = Tensor("n", (8,), I32, "argument")
    named = Var("t", F32)
    square = x[i] * x[i]
    rare = If(apply("any", x[i] > 0.0), (assign(acc, square * square * square * square),))
    body = (
        Let(named, square + x[i]),
        Alloc(acc),
        assign(acc, named * named),
        rare,
        Store(x, (i,), acc[()] + named),
    )
    assert chain(body) == 4  # one sum and one product, twice; not what is rare
    assert chain((Store(n, (i,), n[i] * n[i] + n[i]),)) == 0  # integers wait for less
