"""Lowerings run, convert and differentiate, and mistakes name the operations left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from cvm.dialect.spec.operator import OPERATORS
from cvm.lowering.graph.convert import convert
from cvm.lowering.pass_context import Context
from own_patterns import own_patterns

import cvm
from cvm.extending import (
    Builder,
    C,
    For,
    Operator,
    Store,
    T,
    indices,
    lowering,
    operator,
    pattern,
)
from cvm.testing.check_operators import check_operators


class Twice(Operator[T]):
    """y = x + x."""

    x: T
    dialect, name = "conv", "conv.twice"
    constraints = (C(1, "rank(x) <= 2", lambda o: o.x.rank <= 2),)
    example = """
        func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
          %y = conv.twice %x
          return %y
        }
    """

    def infer(self: Any) -> Any:
        return self.x

    def reference(self: Any) -> np.ndarray:
        return self.x + self.x


class FourTimes(Operator[T]):
    """y = 4 x."""

    x: T
    dialect, name = "conv", "conv.four_times"

    def infer(self: Any) -> Any:
        return self.x

    def reference(self: Any) -> np.ndarray:
        return self.x + self.x + (self.x + self.x)


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    with own_patterns():
        for cls in (Twice, FourTimes):
            OPERATORS.declare(cls) if cls.fields else operator(cls)
        OPERATORS.modules["conv"] = __name__
        yield


def declare_twice(**options: Any) -> None:
    @lowering(Twice, **options)
    def twice_(op: Twice[Any], b: Builder) -> Any:
        return b.cvm.elemwise_add(op.x, op.x)


def declare_four_times() -> None:
    @lowering(FourTimes)
    def four_times(op: FourTimes[Any], b: Builder) -> Any:
        return b.conv.twice(b.conv.twice(op.x))


def program(body: str, type: str = "tensor<3xf32>") -> cvm.Module:
    return cvm.parse(f"func @main(%x: {type}) -> {type} {{\n{body}\n  return %y\n}}\n")


def four() -> cvm.Module:
    return program("  %y = conv.four_times %x")


def twice() -> cvm.Module:
    return program("  %y = conv.twice %x")


def converted(module: cvm.Module, **options: str) -> str:
    function = module.functions["main"]
    new = convert.with_options(**options).run(function, Context(module, function))
    return str(module.with_functions({"main": new}))


def refused(convert: Callable[[], object]) -> str:
    with pytest.raises(cvm.Error) as caught:
        convert()
    return str(caught.value)


@pytest.mark.parametrize("optimize", [0, 2])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_an_operator_without_a_formula_runs_by_its_lowering(target: Any, optimize: Any) -> None:
    declare_twice()
    declare_four_times()
    x = np.array([1.5, -0.0, np.inf], np.float32)
    for type in ("tensor<3xf32>", "tensor<?N x f32>"):
        f = cvm.compile(
            program("  %y = conv.four_times %x", type), target=target, optimize=optimize
        )
        assert f(x).tobytes() == (4 * x).tobytes()
    assert f(x[:0]).shape == (0,)


def test_convert_replaces_a_dialect_and_lowerings_may_use_others() -> None:
    declare_twice()
    declare_four_times()
    text = converted(four(), **{"from": "conv", "to": "cvm"})
    assert text.count("cvm.elemwise_add") == 2 and "conv." not in text
    assert text == converted(four())  # those without formulas


def test_convert_names_everything_that_is_left() -> None:
    declare_four_times()
    text = refused(lambda: converted(four(), **{"from": "conv"}))
    assert "<text>:2:8: error[convert.left]: conv.twice is left: it has no lowering" in text
    declare_twice()
    text = refused(lambda: converted(four(), **{"from": "conv", "to": "theano"}))
    assert "adds cvm.elemwise_add, of a dialect" in text
    assert text.count("error[") == 1  # however often it is added
    assert "there is no dialect con" in refused(lambda: converted(four(), **{"from": "con"}))
    both = refused(lambda: converted(four(), **{"from": "conv", "to": "cvm+conv"}))
    assert "the dialect conv is in both from and to" in both


def test_a_lowering_may_leave_what_it_says_is_legal() -> None:
    declare_twice(legal=lambda op: op.x.known_type.rank == 1)
    assert "conv.twice %x" in converted(twice(), **{"from": "conv"})
    assert "cvm.elemwise_add" in converted(twice())  # which nothing could compile otherwise
    matrix = program("  %y = conv.twice %x", "tensor<2x3xf32>")
    assert "cvm.elemwise_add" in converted(matrix, **{"from": "conv"})


def test_patterns_of_the_dialect_are_applied_first() -> None:
    declare_twice()
    declare_four_times()

    @pattern()
    def twice_twice(op: Twice, b: Builder) -> Any:
        inner = b.owner(op.x)
        return b.conv.four_times(inner.x) if isinstance(inner, Twice) else None

    seen = []

    @lowering(FourTimes)
    def four_times(op: FourTimes[Any], b: Builder) -> Any:
        seen.append(op)
        return b.cvm.broadcast_mul(op.x, b.constant(np.float32([4])))

    f = cvm.compile(program("  %a = conv.twice %x\n  %y = conv.twice %a"))
    assert f(np.float32([1, 2, 3])).tolist() == [4, 8, 12] and seen


def test_a_derivative_goes_through_a_lowering() -> None:
    declare_twice()
    text = """
func @f(%x: tensor<3xf64>) -> tensor<3xf64> {
  %a = conv.twice %x
  %y = theano.elemwise %a, %x {scalar_op = "mul"}
  return %y
}
func @main(%x: tensor<3xf64>, %g: tensor<3xf64>) -> tensor<3xf64> {
  %y = theano.l_op @f(%x, %g) {wrt = [0]}
  return %y
}
"""
    found = cvm.compile(cvm.parse(text), "main")(np.float64([1, 2, 3]), np.ones(3))
    assert found.tolist() == [4, 8, 12]


@pytest.mark.parametrize(
    ("lowered", "text"),
    [
        (
            lambda op, b: None,
            "conv.twice is left: lowering wrong of ",
        ),
        (lambda op, b: op.x + 1, "it fails: TypeError"),
        (lambda op, b: (op.x, op.x), "expected 1 value or None, got (%x, %x)"),
        (
            lambda op, b: b.cvm.slice(op.x, begin=(0,), end=(1,)),
            "%y.0 is tensor<1xf32>, but %y is tensor<3xf32>",
        ),
        (lambda op, b: b.conv.twice(op.x), "lowerings add what they convert without an end"),
        (lambda op, b: 7, "it gives int, not a value"),
    ],
)
def test_mistakes_of_lowerings(lowered: Any, text: str) -> None:
    lowered.__name__ = "wrong"
    lowering(Twice)(lowered)
    with cvm.limits(operations=100):
        assert text in refused(lambda: cvm.compile(twice()))


def test_a_lowering_may_not_reject_more_sizes() -> None:
    @lowering(Twice)
    def twice_(op: Twice[Any], b: Builder) -> Any:
        return b.cvm.elemwise_add(op.x, b.cvm.slice(op.x, begin=(0,), end=(3,)))

    assert cvm.compile(twice())(np.ones(3, np.float32)).tolist() == [2, 2, 2]
    text = refused(lambda: cvm.compile(program("  %y = conv.twice %x", "tensor<?N x f32>")))
    assert "lowering twice_" in text


def test_a_lowering_may_be_a_kernel() -> None:
    @operator
    class Thrice(Operator[T]):
        """y = 3 x."""

        x: T
        dialect, name = "conv", "conv.thrice"

        def infer(self: Any) -> Any:
            return self.x

        def reference(self: Any) -> np.ndarray:
            return self.x * 3

    @lowering(Thrice, kernel=True)
    def thrice(op: Any, y: Any) -> Any:
        i = indices("i", y.shape)[0]
        return (For(i, (Store(y, (i,), op.x[i] * 3),)),)

    x = np.arange(3, dtype=np.int32)
    module = program("  %y = conv.thrice %x", "tensor<3xi32>")
    assert cvm.compile(module)(x).tolist() == [0, 3, 6]
    text = refused(lambda: lowering(Thrice, kernel=True)(thrice))
    assert "conv.thrice has a formula or a lowering already" in text


def test_mistakes_of_declarations() -> None:
    declare_twice()
    declare_twice()  # again, as a notebook does

    def other(op: Any, b: Builder) -> Any:
        return op.x

    text = refused(lambda: lowering(Twice)(other))
    assert "conv.twice has a lowering already, twice_ of" in text
    assert "it is of an operator, got 3" in refused(lambda: lowering(3)(other))  # type: ignore[arg-type]
    text = refused(lambda: cvm.compile(four()))
    assert "conv.four_times is left: it has no lowering" in text
    assert "note: conv.four_times has no method `element`" in text


def test_the_lowering_is_held_against_the_reference(capsys: pytest.CaptureFixture[str]) -> None:
    declare_twice()
    assert check_operators([Twice]) == 0
    with own_patterns():

        @lowering(Twice)
        def twice_(op: Twice[Any], b: Builder) -> Any:
            return b.cvm.broadcast_mul(op.x, op.x)

        assert check_operators([Twice]) == 1
        said = capsys.readouterr().out
        assert "conv.twice: its lowering (" in said and "and its reference (" in said
        relu: Any = OPERATORS["cvm.relu"]

        @lowering(relu)
        def wrong(op: Any, b: Builder) -> Any:
            return op.x

        assert check_operators([relu]) == 1
        assert "cvm.relu: its lowering (" in capsys.readouterr().out
