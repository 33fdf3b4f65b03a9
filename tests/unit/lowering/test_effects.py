"""Effects: order, what refuses them, and operators of packages that have some."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cvm.dialect.spec.operator import OPERATORS
from own_patterns import own_patterns

import cvm
from cvm.cli import main
from cvm.extending import Operator, T, effect, operator
from cvm.testing.check_operators import check_operators
from cvm.tracing.trace import apply

PROGRAM = """
func @step(%n: tensor<i32>, %x: tensor<i32>) -> (tensor<i32>, tensor<i32>) {
  %y = theano.elemwise %n, %x {scalar_op = "add"}
  acts.note %y {what = "step"}
  return %y, %y
}

func @inner(%x: tensor<?N x i32>) -> tensor<?N x i32> {
  acts.note %x {what = "inner"}
  %y = theano.elemwise %x, %x {scalar_op = "add"}
  return %y
}

func @main(%x: tensor<?N x i32>) -> tensor<?N x i32> {
  %a = acts.note %x {what = "first"}
  %b = theano.elemwise %a, %a {scalar_op = "mul"}
  %zero = const dense<0> : tensor<i32>
  %l, %s = builtin.scan @step(%zero, %b) {carry = 1, scan = 1}
  %c = call @inner(%s)
  acts.note %b {what = "last"}
  acts.note %b {what = "last"}
  return %c
}
"""
noted: list[tuple[str, Any]] = []


class Note(Operator[T]):
    """Y = X, which is noted."""

    x: T
    what: str

    dialect, name = "acts", "acts.note"
    example = """
        func @main(%x: tensor<3xi32>) -> tensor<3xi32> {
          %y = acts.note %x {what = "x"}
          return %y
        }
    """

    def infer(self: Any) -> Any:
        return self.x

    def reference(self: Any) -> Any:
        noted.append((self.what, self.x.tolist()))
        return self.x


@pytest.fixture(autouse=True)
def note() -> Iterator[None]:
    with own_patterns():
        effect(operator(type("Note", (Note,), {**Note.__dict__})))
        noted.clear()
        yield


@pytest.mark.parametrize("optimize", [0, 2])
@pytest.mark.parametrize("target", ["cpu", "reference"])
def test_effects_keep_their_order_through_calls_and_loops(target: Any, optimize: Any) -> None:
    f = cvm.compile(PROGRAM, target=target, optimize=optimize)
    for x in ([1, 2, 3], [2], [1, 2, 3]):
        noted.clear()
        squares = np.square(x)
        sums = np.cumsum(squares)
        assert f(np.int32(x)).tolist() == (2 * sums).tolist()
        steps = [("step", int(s)) for s in sums]
        last = ("last", squares.tolist())
        assert noted == [("first", x), *steps, ("inner", sums.tolist()), last, last]
    assert pickle.loads(pickle.dumps(f))(np.int32([3])).tolist() == [18]


def test_constants_are_not_folded_by_an_effect() -> None:
    text = """
        func @main() -> tensor<2xi32> {
          %x = const dense<[1, 2]> : tensor<2xi32>
          %y = acts.note %x {what = "constant"}
          return %y
        }
    """
    f = cvm.compile(text)
    assert not noted
    assert f().tolist() == f().tolist() == [1, 2] and len(noted) == 2


def test_an_effect_alone_runs() -> None:
    text = 'func @main(%x: tensor<0xi32>) {\n  acts.note %x {what = "x"}\n  return\n}\n'
    assert cvm.compile(text)(np.zeros(0, np.int32)) == () and noted == [("x", [])]


@pytest.mark.parametrize(
    ("compile", "text"),
    [
        (lambda m: cvm.compile(m, target="cuda-sim"), "effects run on the targets cpu, reference"),
        (lambda m: cvm.compile(m).lower("loops"), "acts.note has an effect"),
        (lambda m: cvm.compile(m).cost(), "acts.note has an effect"),
        (
            lambda m: cvm.compile(cvm.vmap(lambda x: apply("acts.note", x, what="x")))(
                np.ones((2, 3), np.int32)
            ),
            "cvm.vmap takes no operation with an effect",
        ),
    ],
)
def test_what_refuses_effects(compile: Any, text: str) -> None:
    with pytest.raises(cvm.Error, match=text):
        compile(cvm.parse(PROGRAM))


def test_special_values_and_shapes_pass_unchanged() -> None:
    for element, values in (
        ("f32", np.array([np.nan, -0.0, np.inf], np.float32)),
        ("complex<f64>", np.array([1 - 2j, np.nan, 0])),
        ("i1", np.array([True, False, True])),
        ("ui64", np.array([2**64 - 1, 0, 7], np.uint64)),
    ):
        for shape in ("3x", "1x3x1x", "0x", ""):
            sizes = [int(n) for n in shape.split("x") if n]
            array = np.resize(values, sizes) if sizes else values[0].reshape(())
            text = f"func @main(%x: tensor<{shape}{element}>) {{\n"
            text += '  %y = acts.note %x {what = "x"}\n  return %y, %x\n}\n'
            found = cvm.compile(text)(array)
            assert all(y.tobytes() == array.tobytes() and y.shape == array.shape for y in found)


def test_functions_that_overwrite_arguments_are_refused() -> None:
    text = """
        func @main(%x: tensor<2xf32> {inplace}) -> tensor<2xf32> {
          acts.note %x {what = "x"}
          %y = theano.elemwise %x {scalar_op = "exp", inplace_pattern = {0 = 0}}
          return %y
        }
    """
    with pytest.raises(cvm.TargetError, match="has an effect and overwrites an argument"):
        cvm.compile(text)


def test_declarations_and_their_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_operators([OPERATORS["acts.note"]]) == 0
    relu: Any = OPERATORS["cvm.relu"]
    with pytest.raises(cvm.Error, match="an operator with an effect has no formula"):
        effect(relu)


def test_the_command_runs_an_effect_once_and_beside_its_output(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    text = 'func @main(%x: tensor<2xi32>) {\n  builtin.print %x {label = "x"}\n  return %x\n}\n'
    (tmp_path / "p.cvm").write_text(text)
    assert not main(
        ["run", str(tmp_path / "p.cvm"), "--time", "--random-inputs", "1", "--output", "-"]
    )
    found = capfdbinary.readouterr()
    assert b"x = [" not in found.out and found.err.count(b"x = [") == 1
