"""Element types that packages declare: a type of even numbers, and the prime fields of
examples/finite_fields.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cvm.dialect.builtin import Const
from cvm.dialect.spec.declared_types import DeclaredElement, element_type
from cvm.lowering.analysis.integer_ranges import integer_ranges
from cvm.lowering.formulas.build_formulas import build_formulas
from cvm.lowering.graph.fold_constants import fold_constants
from own_patterns import own_patterns

import cvm
from cvm.cli import main
from cvm.extending import F32, I32, UI8, UI32, Context, Operator, T, TensorType, operator

EXAMPLE = Path(__file__).parents[3] / "examples" / "finite_fields"


@pytest.fixture(scope="module", autouse=True)
def field() -> Iterator[Any]:
    sys.path.insert(0, str(EXAMPLE))
    with own_patterns():
        try:
            element_type(Even)
            element_type(Real)
            operator(Of)
            operator(To)
            yield import_module("ff_dialect.operators").Elem
        finally:
            sys.path.remove(str(EXAMPLE))
            for name in [n for n in sys.modules if n.startswith("ff_dialect")]:
                del sys.modules[name]


class Even(DeclaredElement):
    """An even number, up to 100."""

    type_name = "parity.even"
    storage = UI8
    high = 100

    def valid(self, array: np.ndarray) -> np.ndarray:
        return array % 2 == 0


class Real(DeclaredElement):
    """An approximation of a real number, with derivatives in f32."""

    type_name = "parity.real"
    storage = I32
    tangent = F32


class Of(Operator[T]):
    """Y = the even number below X, whose derivative is taken for 1."""

    x: T
    dialect, name = "parity", "parity.of"

    def infer(self: Any) -> TensorType:
        return TensorType(self.x.shape, Even())

    def reference(self: Any) -> np.ndarray:
        return np.uint8(self.x) // 2 * 2

    def pullback(self, results: Any, cotangents: Any) -> Any:
        return cotangents


class To(Of[T]):
    """Y = X as f32, whose derivative is taken for 1."""

    x: T
    dialect, name = "parity", "parity.to"

    def infer(self: Any) -> TensorType:
        return TensorType(self.x.shape, F32)

    def reference(self: Any) -> np.ndarray:
        return np.float32(self.x)


def first(text: str) -> str:
    with pytest.raises(cvm.Error) as e:
        cvm.parse(text)
    return e.value.diagnostics[0].message


def test_types_are_values(field: Any) -> None:
    assert field(17) is field(17) is not field(19)
    assert pickle.loads(pickle.dumps(field(17))) is field(17)
    assert (str(field(17)), field(17).range, field(17).dtype) == (
        "!ff.elem<17>",
        (0, 16),
        np.uint32,
    )
    with pytest.raises(ValueError, match="p is a prime number, but p = 15"):
        field(15)


@pytest.mark.parametrize("target", ["cpu", "reference", "cuda-sim"])
def test_transform_on_each_target(field: Any, target: Any) -> None:
    """The transform of 8 elements is the product with the matrix of powers of 9."""
    f = cvm.compile(EXAMPLE / "tests" / "ntt.cvm", target=target)
    x = np.array([3, 1, 4, 1, 5, 9, 2, 6], np.uint32)
    wanted = [sum(int(v) * 9 ** (i * k) for i, v in enumerate(x)) % 17 for k in range(8)]
    assert f(x).tolist() == wanted
    with pytest.raises(cvm.CallError, match=r"from 0 to 16, got 17 at \[2\]"):
        f(np.array([0, 0, 17, 0, 0, 0, 0, 0], np.uint32))


def test_constants_are_folded_and_ranges_known(field: Any) -> None:
    text = """
        func @main(%x: tensor<2x!ff.elem<17>>) -> tensor<2x!ff.elem<17>> {
          %a = const dense<[16, 3]> : tensor<2x!ff.elem<17>>
          %b = ff.mul %a, %a
          %y = ff.add %x, %b
          return %y
        }
    """
    f = cvm.compile(cvm.parse(text))
    (folded,) = [
        (o.operator.type, o.operator.data.array.tolist())
        for o in fold_constants(f.function).operations
        if isinstance(o.operator, Const) and o.results[0].name == "b"
    ]
    assert folded == (TensorType((2,), field(17)), [1, 9])
    program = integer_ranges(build_formulas(f.function, Context(f.module)), Context(f.module))
    assert {str(r) for t, r in program.ranges.items() if t.name in ("b", "y")} == {"[0, 16]"}
    assert f(np.array([16, 16], np.uint32)).tolist() == [0, 8]
    assert str(cvm.parse(str(cvm.parse(text)))) == str(cvm.parse(text))


@pytest.mark.parametrize("target", ["cpu", "reference", "cuda-sim"])
@pytest.mark.parametrize("value", [3, 102])
def test_valid_is_checked_at_each_call(target: Any, value: int) -> None:
    module = cvm.parse(
        "func @main(%x: tensor<?Nx!parity.even>) { "
        "%y = cvm.slice %x {begin = [0], end = [1]} return %y }"
    )
    f: Any = cvm.compile(module, target=target)
    for _ in range(2):  # the second call would go to machine code
        assert f(np.array([4, 2], np.uint8)).tolist() == [4]
    with pytest.raises(cvm.CallError, match=rf"from 0 to 100, got {value} at \[1\]"):
        f(np.array([4, value], np.uint8))


def test_values_of_another_dtype_are_refused(field: Any) -> None:
    f: Any = cvm.compile(cvm.parse("func @main(%x: tensor<1x!ff.elem<17>>) { return %x }"))
    with pytest.raises(cvm.CallError, match=r"expected tensor<1x!ff\.elem<17>>"):
        f(np.array([1.0]))
    assert f([3]).tolist() == [3]


MISTAKES = {
    "tensor<4x!ff.elem<16>>": "p is a prime number, but p = 16 in !ff.elem<16>",
    "tensor<4x!ff.elm<17>>": "there is no type !ff.elm; did you mean !ff.elem",
    "tensor<4x!ff.elem>": "!ff.elem has the parameters (p), got 0",
    'tensor<4x!ff.elem<"17">>': '!ff.elem: expected an integer, got "17"',
    "tensor<4x!ff.elem<i32>>": "!ff.elem: expected an integer, got i32",
    "!ff.elem<17>": "expected the type of a tensor, got !ff.elem<17>; write tensor<!ff.elem<17>>",
}


@pytest.mark.parametrize("type", MISTAKES)
def test_mistakes_in_types(field: Any, type: str) -> None:
    assert first(f"func @main(%x: {type}) {{ return %x }}") == MISTAKES[type]


@pytest.mark.parametrize(
    "operation",
    [
        "cvm.elemwise_add %x, %x",
        'theano.elemwise %x, %x {scalar_op = "add"}',
        "cvm.relu %x",
        "builtin.argmax %x {axis = 0}",
    ],
)
def test_operators_of_others_take_no_elements(field: Any, operation: str) -> None:
    text = f"func @main(%x: tensor<4x!ff.elem<17>>) {{ %y = {operation} return %y }}"
    assert "takes no elements of !ff.elem<17>" in first(text)


def test_mistakes_in_declarations() -> None:
    def declared(**members: Any) -> str:
        with pytest.raises(cvm.Error) as e:
            element_type(type("Wrong", (DeclaredElement,), {"__module__": __name__, **members}))
        return e.value.diagnostics[0].message

    assert "named by its dialect" in declared(storage=UI32)
    assert "cvm is one of cvm" in declared(type_name="cvm.elem", storage=UI32)
    assert "a type of this name already" in declared(type_name="parity.even", storage=UI8)
    assert "its storage is a builtin" in declared(type_name="parity.odd")
    named_bits = {"type_name": "parity.odd", "storage": UI8, "__annotations__": {"bits": int}}
    assert "every element type has bits" in declared(**named_bits)
    assert "its tangent is" in declared(type_name="parity.odd", storage=UI8, tangent=UI8)


DERIVATIVE = """
func @f(%x: tensor<3xTYPE>, %y: tensor<3xf32>) -> tensor<3xRESULT> {
  %z = cvm.slice %x {begin = [0], end = [2]}
  %w = cvm.concatenate %z, %x {axis = 0}
  %v = cvm.slice %w {begin = [0], end = [3]}
  return %v
}
func @main(%x: tensor<3xTYPE>, %y: tensor<3xf32>, %s: tensor<3xf32>) {
  %g = theano.l_op @f(%x, %y, %s) {wrt = [0]}
  return %g
}
"""


@pytest.mark.parametrize("operator", ["l_op", "r_op"])
@pytest.mark.parametrize("result", ["%v", "%y"])
def test_derivatives_by_elements_are_errors(field: Any, result: str, operator: str) -> None:
    text = DERIVATIVE.replace("TYPE", "!ff.elem<17>").replace("return %v", f"return {result}")
    text = text.replace("RESULT", "!ff.elem<17>" if result == "%v" else "f32")
    program = cvm.parse(text.replace("l_op", operator))
    with pytest.raises(cvm.VerifyError, match=r"%x has no derivative: !ff.elem<17> declares no"):
        cvm.compile(program)


def test_elements_that_depend_on_floats_have_no_derivative(field: Any) -> None:
    step = "func @f(%x: tensor<3xf32>) -> tensor<f32> { %e = parity.of %x %y = theano.sum %x return %y}"
    main = "func @main(%x: tensor<3xf32>) { %g = theano.grad @f(%x) return %g }"
    assert cvm.compile(f"{step}\n{main}")(np.ones(3, np.float32)).tolist() == [1, 1, 1]
    program = (
        f"{step.replace('%y = theano.sum %x', '%t = parity.to %e %y = theano.sum %t')}\n{main}"
    )
    with pytest.raises(cvm.VerifyError, match=r"%e has no derivative: !parity.even declares no"):
        cvm.compile(program)


def test_declared_tangents_are_those_of_derivatives(field: Any) -> None:
    text = DERIVATIVE.replace("TYPE", "!parity.real").replace("RESULT", "!parity.real")
    for derivative, expected in (("l_op", [5, 2, 0]), ("r_op", [1, 2, 1])):
        f = cvm.compile(text.replace("l_op", derivative))
        found = f(np.ones(3, np.int32), np.ones(3, np.float32), np.float32([1, 2, 4]))
        assert found.dtype == np.float32 and found.tolist() == expected


def test_golden_tests_of_the_example(field: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["test", str(EXAMPLE / "tests")]) == 0
    assert "2 passed" in capsys.readouterr().out


def test_emitted_c_has_the_storage_and_the_range(field: Any, tmp_path: Path) -> None:
    out = tmp_path / "ntt.c"
    assert main(["build", str(EXAMPLE / "tests" / "ntt.cvm"), "--emit", "c", "-o", str(out)]) == 0
    assert "within_u32(in_x, 8, 0u, 16u)" in out.read_text()
    assert "!ff" not in out.read_text()


def test_the_commands_of_the_page(
    field: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(EXAMPLE)
    lines = (EXAMPLE / "README.md").read_text("utf-8").splitlines()
    commands = [line.partition("#")[0].split()[1:] for line in lines if line.startswith("cvm ")]
    assert len(commands) == 2
    for command in commands:
        assert main(command) == 0
    assert "% 17ull" in capsys.readouterr().out
