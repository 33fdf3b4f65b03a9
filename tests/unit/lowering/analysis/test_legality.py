"""Kernels that are not legal, and what `check` says of them."""

from __future__ import annotations

import pytest
from cvm.dialect.kernel_ir.expressions import Index, Read, Var, apply, as_index, cast, constant
from cvm.dialect.kernel_ir.loops import (
    Alloc,
    Block,
    For,
    If,
    Let,
    Store,
    While,
    accumulator,
    assign,
    update,
)
from cvm.dialect.types.sizes import Size
from cvm.dialect.types.tensor_types import I1, I32, I64
from cvm.lowering.analysis.verify_kernel import LoweringError, check_kernel
from native_kernels import kernel, tensor

N = Size.named("N")
I, J, K = (Index(*row) for row in (("i", 8), ("j", 8), ("k", N)))  # noqa: E741
X, Y = tensor("x", I32, 8), tensor("y", I32, 8)
ACC = accumulator("acc", I32)
COPY = Store(Y, (I,), X[I])

ILLEGAL: dict[str, Block] = {
    "%i is not bound": (COPY,),
    "%i is bound twice": (For(I, (For(I, (COPY,)),)),),
    "%acc is not allocated": (assign(ACC, 0),),
    "%acc is allocated twice": (Alloc(ACC), Alloc(ACC)),
    "an index of %x may be beyond 8": (For(I, (Store(Y, (I,), X[I + 1]),)),),
    "an index of %x may be below 0": (For(I, (Store(Y, (I,), X[I * 2 - 1]),), stop=as_index(4)),),
    "an index of %y may be beyond 8": (For(I, (If(I > 5, (), (Store(Y, (I + 3,), X[I]),)),)),),
    "%x is no result": (For(I, (Store(X, (I,), X[I]),)),),
    "%y is i32, the value i64": (For(I, (Store(Y, (I,), I),)),),
    "%y has 1 axes, got 2 indices": (For(I, (Store(Y, (I, I), X[I]),)),),
    "%y has 1 axes, got 0 indices": (For(I, (Store(Y, (I,), Read(Y, ())),), kind="parallel"),),
    "multiple of 3": (For(I, (COPY,), kind="vector", width=3),),
    "not known to be a multiple": (
        For(I, (COPY,), stop=apply("min", as_index(N), as_index(8)), kind="vector", width=8),
    ),
    "a branch on what differs between lanes": (
        For(I, (If(X[I] > 0, (COPY,)),), kind="vector", width=8),
    ),
    "bounds that differ between lanes": (For(I, (For(J, (), stop=I),), kind="vector", width=8),),
    "a vector loop inside a vector loop": (
        For(I, (For(J, (COPY,), kind="vector", width=8),), kind="vector", width=8),
    ),
    "%acc is carried": (Alloc(ACC), For(I, (update("add", ACC, X[I]),), kind="vector", width=8)),
    "%y is carried": (
        For(J, (Store(Y, (J,), apply("add", Y[as_index(0)], X[J])),), kind="parallel"),
    ),
    "lanes write different values": (
        For(I, (Store(Y, (as_index(0),), X[I]),), kind="vector", width=8),
    ),
    "an unrolled loop with unknown bounds": (For(K, (), kind="unrolled"),),
    "%v is named twice": (Let(v := Var("v", I64), as_index(1)), Let(v, as_index(2))),
}


@pytest.mark.parametrize("message", ILLEGAL)
def test_illegal(message: str) -> None:
    with pytest.raises(LoweringError, match=message.replace("[", r"\[")):
        check_kernel(kernel(ILLEGAL[message], X, Y))


def test_an_access_that_depends_on_data_is_reported() -> None:
    gathered = For(I, (Store(Y, (I,), X[cast(X[I], I64)]),))
    assert check_kernel(kernel((gathered,), X, Y)) == [
        "an index of %x may be below 0",
        "an index of %x may be beyond 8",
    ]
    clamped = apply("min", apply("max", cast(X[I], I64), as_index(0)), as_index(7))
    assert check_kernel(kernel((For(I, (Store(Y, (I,), X[clamped]),)),), X, Y)) == []


def test_a_store_ends_what_was_known_of_an_element() -> None:
    """A condition on an element says nothing of it after a store, in a later iteration too."""
    n = accumulator("n", I64)
    inside = (n[()] >= 0) & (n[()] < 8)
    moved, used = Store(n, (), n[()] + 1), Store(Y, (n[()],), constant(1, I32))
    begin = Alloc(n), Store(n, (), as_index(7))
    unproved = ["an index of %y may be below 0", "an index of %y may be beyond 8"]
    for body, found in (
        (While(inside, (moved, used)), unproved),
        (While(inside, (used, moved)), []),
        (If(inside, (used, moved, used)), unproved),
        (If(inside, (For(K, (used, moved)),)), unproved),
        (If(inside, (For(K, (moved,)), used)), unproved),
        (If(inside, (For(K, (used,)), moved)), []),
    ):
        assert check_kernel(kernel((*begin, body), X, Y)) == found


def test_guards_and_bounds_prove_accesses() -> None:
    guarded = If((J + I - 3 >= 0) & (J + I - 3 < 8), (Store(Y, (J,), X[J + I - 3]),))
    assert check_kernel(kernel((For(I, (For(J, (guarded,)),)),), X, Y)) == []
    low = apply("max", as_index(0), as_index(3) - I)
    high = apply("min", as_index(8), as_index(11) - I)
    bounded = For(J, (Store(Y, (J,), X[J + I - 3]),), low, high)
    assert check_kernel(kernel((For(I, (bounded,)),), X, Y)) == []
    x, y = tensor("x", I32, N), tensor("y", I32, N)
    strided = For(Index("h", (N - 1) // 2 + 1), (Store(y, (as_index(0),), constant(0, I32)),))
    assert check_kernel(kernel((strided,), x, y)) == ["an index of %y may be beyond ?N"]
    flag = accumulator("flag", I1)
    assert check_kernel(kernel((Alloc(flag), For(K, (Store(flag, (), x[K] > 0),))), x, y)) == []
