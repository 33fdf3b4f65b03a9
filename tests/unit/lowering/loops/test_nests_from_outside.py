"""Formulas and nests of other packages' operators are verified as kernels from text are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from available_targets import HERE
from cvm.dialect.kernel_ir.expressions import Element, cast
from cvm.dialect.kernel_ir.loops import Alloc, Break, While
from cvm.dialect.spec.operator import OPERATORS

import cvm
from cvm.extending import (
    F64,
    I32,
    I64,
    For,
    If,
    Index,
    Operator,
    Store,
    T,
    Tensor,
    constant,
    operator,
)


class Outside(Operator[T]):
    """An operator of this dialect: a copy of x."""

    dialect = "outside"

    x: T

    def infer(self: Any) -> Any:
        return self.x

    def reference(self: Any) -> Any:
        return np.maximum(self.x, 0)


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Declare the operators for one test: others list all dialects of the process."""
    monkeypatch.setattr(OPERATORS, "_known", dict(OPERATORS._known))
    monkeypatch.setattr(OPERATORS, "modules", dict(OPERATORS.modules))

    @operator
    class Whole(Outside[T]):
        """Stores each element by its sign."""

        x: T

        def nest(self: Any, y: Tensor) -> Any:
            i = Index("i", y.shape[0])
            sides = (Store(y, (i,), self.x[i]),), (Store(y, (i,), constant(0, F64)),)
            return (For(i, (If(self.x[i] > 0, *sides),)),)

    @operator
    class Positive(Outside[T]):
        """Stores positive elements only."""

        x: T

        def nest(self: Any, y: Tensor) -> Any:
            i = Index("i", y.shape[0])
            return (For(i, (If(self.x[i] > 0, (Store(y, (i,), self.x[i]),)),)),)

    @operator
    class Integers(Outside[T]):
        """Stores integers where floats belong."""

        x: T

        def nest(self: Any, y: Tensor) -> Any:
            i = Index("i", y.shape[0])
            return (For(i, (Store(y, (i,), constant(1, I32)),)),)

    @operator
    class Rest(Outside[T]):
        """Leaves the first element out."""

        x: T

        def nest(self: Any, y: Tensor) -> Any:
            i = Index("i", y.shape[0])
            return (For(i, (Store(y, (i,), self.x[i]),), start=constant(1, I64)),)

    @operator
    class Carried(Outside[T]):
        """Sums in a loop that is said to be parallel."""

        x: T

        def nest(self: Any, y: Tensor) -> Any:
            i, j = Index("i", y.shape[0]), Index("j", y.shape[0])
            clear = For(j, (Store(y, (j,), constant(0, F64)),))
            total = Store(y, (constant(0, I64),), y[0] + self.x[i])
            return (clear, For(i, (total,), kind="parallel"))

    @operator
    class Leading(Outside[T]):
        """Copies elements up to the first that is not positive."""

        x: T

        def nest(self: Any, y: Tensor) -> Any:
            i, j = Index("i", y.shape[0]), Index("j", y.shape[0])
            clear = For(j, (Store(y, (j,), constant(0, F64)),))
            stop = If(self.x[i] > 0, (), (Break(),))
            return (clear, For(i, (stop, Store(y, (i,), self.x[i]))))

    @operator
    class Picked(Outside[T]):
        """Reads the elements that the first operand numbers."""

        x: T

        def element(self: Any, y: Tensor) -> Any:
            i = Index("i", y.shape[0])
            return Element((i,), self.x[cast(self.x[i], I64)])

    @operator
    class Placed(Outside[T]):
        """Stores at the places that the first operand numbers, while these are not negative."""

        x: T

        def nest(self: Any, y: Tensor) -> Any:
            k = Tensor("k", (), I64, "stack")
            begin = Alloc(k), Store(k, (), constant(0, I64))
            at, last = cast(self.x[k[()]], I64), Store(k, (), k[()] + 1)
            return (*begin, While(self.x[k[()]] > -1, (Store(y, (at,), self.x[k[()]]), last)))

    @operator
    class Counted(Outside[T]):
        """Runs loops to where each element says, over positive elements."""

        x: T

        def nest(self: Any, y: Tensor) -> Any:
            i, j = Index("i", y.shape[0]), Index("j", y.shape[0])
            kept = Tensor("kept", (), F64, "stack")
            keep = If(self.x[j] > 0, (Store(kept, (), self.x[j]),))
            body = Alloc(kept), keep, Store(y, (i,), kept[()])
            begin = Store(y, (i,), constant(0, F64))
            return (For(i, (begin, For(j, body, stop=cast(self.x[i], I64)))),)

    @operator
    class Shifted(Outside[T]):
        """Reads beyond the end."""

        x: T

        def element(self: Any, y: Tensor) -> Any:
            i = Index("i", y.shape[0])
            return Element((i,), self.x[i + 1])


def call(
    name: str, target: str = "cpu", x: Sequence[float] = (1, -2, 3, -4), **options: Any
) -> Any:
    program = f"func @main(%x: tensor<4xf64>) {{ %y = outside.{name} %x return %y }}"
    return cvm.compile(program, target=target, **options)(np.array(x, float))


@pytest.mark.parametrize("optimize", [0, 2])
@pytest.mark.parametrize("target", [t for t in HERE if t != "reference"])
@pytest.mark.parametrize(
    ("name", "good", "found", "bad"),
    [
        ("picked", (3, 2, 1, 0), (0, 1, 2, 3), (0, 1, 2, 1e9)),
        ("picked", (0, 0, 3, 3), (0, 0, 3, 3), (0, 1, -1, 2)),
        ("placed", (1, 3, -9, -9), (0, 1, 0, 3), (4, -9, 0, 0)),
        ("placed", (2, -9, 0, 0), (0, 0, 2, 0), (0, 1, 2, 3)),  # %x has no element 4
    ],
)
def test_accesses_that_depend_on_data_are_checked(
    target: str,
    optimize: int,
    name: str,
    good: tuple[float],
    found: tuple[float],
    bad: tuple[float],
) -> None:
    assert call(name, target, good, optimize=optimize).tolist() == [*found]
    with pytest.raises(cvm.CallError, match=f"index .* is outside of axis 0, .*outside.{name}"):
        call(name, target, bad, optimize=optimize)


@pytest.mark.parametrize("target", [t for t in HERE if t != "reference"])
def test_no_pass_moves_jumps(target: str) -> None:
    assert call("leading", target).tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("name", ["whole", "positive"])
def test_every_element_has_a_value(name: str) -> None:
    assert call(name).tolist() == [1, 0, 3, 0]


def test_loops_are_checked_where_zeros_were_added() -> None:
    assert call("counted", x=(1, 2, 0, 4)).tolist() == [1, 2, 0, 4]
    with pytest.raises(cvm.CallError, match=r"the loop over .* ends beyond"):
        call("counted", x=(1, 2, 0, 5))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("integers", "%y is f64, the value i32"),
        ("rest", r"its element \[0\] is never written"),
        ("shifted", "an index of %x may be beyond 4"),
        ("carried", "%y is carried from one iteration to another of the parallel loop over %i"),
    ],
)
def test_a_nest_that_is_not_legal_is_refused(name: str, said: str) -> None:
    with pytest.raises(cvm.Error, match=f"outside.{name}: `(nest|element)` is not legal: .*{said}"):
        call(name)
