"""Sides of a guarded value: loops evaluate both of them only where that is harmless."""

from __future__ import annotations

import pytest
from cvm.dialect.kernel_ir.expressions import (
    Check,
    Expr,
    Index,
    as_index,
    cast,
    constant,
    total,
    when,
)
from cvm.dialect.kernel_ir.loops import Assert, If, Statement, accumulator
from cvm.dialect.types.tensor_types import F32, I64
from cvm.lowering.loops.build_loops import StatementLowering
from native_kernels import tensor

AT, K = Index("i", 9), Index("k", 4)
X, ACC = tensor("x", I64, 9), accumulator("acc", I64)
HARMLESS = {
    "numbers": as_index(7),
    "indices": AT * 3 - 1,
    "a quotient of floats": cast(cast(AT, F32) / cast(AT - 3, F32), I64),
    "a register": ACC[()] + 1,
}
GUARDED = {
    "an element": X[AT],
    "an element inside": 1 + X[AT] * 2,
    "a quotient of integers": as_index(7) // (AT - 3),
    "a remainder of integers": as_index(7) % (AT - 3),
    "a sum": total(K, AT + K),
    "a check": Check(AT < 2, AT + 1, "too large"),
    "another guard": when(AT < 1, AT, as_index(0)),
}


@pytest.mark.parametrize("name", [*HARMLESS, *GUARDED])
@pytest.mark.parametrize("otherwise", [False, True])
def test_a_side_is_evaluated_behind_its_guard(name: str, otherwise: bool) -> None:
    side: Expr = {**HARMLESS, **GUARDED}[name]
    sides = (constant(0, I64), side) if otherwise else (side, constant(0, I64))
    statements: list[Statement] = []
    StatementLowering().value(when(AT < 3, *sides), statements, {})
    assert any(isinstance(s, If) for s in statements) == (name in GUARDED)
    assert not any(isinstance(s, Assert) for s in statements), "a check of what is not chosen"
