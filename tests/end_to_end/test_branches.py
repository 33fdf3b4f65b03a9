"""Branches: `cvm.cond` in traced functions, those of imported models, and the generic form of
regions.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from available_targets import EVERY
from cvm.dialect.ir.program_printer import print_module

import cvm

FILETESTS = Path(__file__).parents[1] / "filetests" / "builtin"
X = np.arange(4.0)


def chosen(x: Any, limit: Any) -> Any:
    """The function that is not taken has an index outside of its axis."""
    return cvm.cond(
        x.sum() > limit,
        lambda a: (np.take(a, a.astype(np.int64)).sum(), a * 2),
        lambda a: (a.max(), a),
        x,
    )


@pytest.mark.parametrize("target", EVERY)
def test_only_the_function_that_is_taken_runs(target: str) -> None:
    f = cvm.compile(chosen, target=target, rules="numpy")
    total, doubled = f(X, 3.0)
    assert total == 6
    np.testing.assert_array_equal(doubled, 2 * X)
    most, same = f(X + 4, 100.0)
    assert most == 7
    np.testing.assert_array_equal(same, X + 4)
    with pytest.raises(cvm.CallError):
        f(X + 4, 3.0)


def test_conditions_without_a_trace_and_while_tracing() -> None:
    assert cvm.cond(True, lambda a: a + 1, lambda a: a * 2, np.float32(3)) == 4
    assert cvm.cond(np.array(False), lambda a: a + 1, lambda a: a * 2, np.float32(3)) == 6
    f = cvm.compile(lambda x: cvm.cond(len(x) > 2, lambda: x.sum(), lambda: x[0]))
    assert f(X) == 6 and f(X[1:3]) == 1


def test_numbers_take_the_type_of_the_other_function() -> None:
    f = cvm.compile(lambda x: cvm.cond(x.sum() > 1, lambda: x.sum(), lambda: 0))
    assert f(np.float32(X)).dtype == np.float32 and f(np.float32(X)) == 6


def test_the_derivative_is_that_of_the_function_that_is_taken() -> None:
    f = cvm.grad(lambda x: cvm.cond(x.sum() > 3, lambda: (x * x).sum(), lambda: np.exp(x).sum()))
    np.testing.assert_array_equal(f(X), 2 * X)
    np.testing.assert_allclose(f(X - 3), np.exp(X - 3), rtol=1e-15)


@pytest.mark.parametrize("cheap", [True, False])
def test_each_element_of_a_stack_has_its_own_condition(cheap: bool) -> None:
    def f(flag: Any, x: Any) -> Any:
        return cvm.cond(flag, lambda: x * x if cheap else np.sort(x * x), lambda: x + X)

    stack = np.stack([X, X + 2])
    for flags in (np.array([True, False]), np.array([False, True])):
        found = cvm.vmap(f)(flags, stack)
        wanted = [x * x if flag else x + X for flag, x in zip(flags, stack, strict=True)]
        np.testing.assert_array_equal(found, np.stack(wanted))
    same = cvm.vmap(f, in_axes=(None, 0))(np.array(True), stack)
    np.testing.assert_array_equal(same, stack * stack)


@pytest.mark.parametrize(
    ("condition", "functions", "message"),
    [
        (lambda x: x, (lambda x: x, lambda x: x), "a bool of rank 0, got float64 of rank 1"),
        (lambda x: x > 1, (lambda x: x, lambda x: x), "a bool of rank 0, got bool of rank 1"),
        (
            lambda x: x.sum() > 1,
            (lambda x: x, lambda x: (x,)),
            "the functions of cvm.cond return values of one structure",
        ),
        (
            lambda x: x.sum() > 1,
            (lambda x: x, lambda x: x[:2]),
            "return arrays of one type, but result 0 is tensor<4xf64> or tensor<2xf64>",
        ),
        (
            lambda x: x.sum() > 1,
            (lambda x: x.astype(np.float32), lambda x: x),
            "return arrays of one type, but result 0 is tensor<4xf32> or tensor<4xf64>",
        ),
    ],
)
def test_what_is_refused(condition: Any, functions: Any, message: str) -> None:
    with pytest.raises(cvm.TraceError, match=re.escape(message)):
        cvm.compile(lambda x: cvm.cond(condition(x), *functions, x))(X)


def test_a_condition_of_a_stablehlo_program() -> None:
    """A number outside of the branches takes the last one."""
    program = cvm.from_stablehlo("""
        func.func @main(%n: tensor<i32>, %x: tensor<3xf32>) -> tensor<3xf32> {
          %y = "stablehlo.case"(%n) ({
            %a = stablehlo.add %x, %x : tensor<3xf32>
            stablehlo.return %a : tensor<3xf32>
          }, {
            %a = stablehlo.exponential %x : tensor<3xf32>
            %b = stablehlo.tanh %a : tensor<3xf32>
            stablehlo.return %b : tensor<3xf32>
          }, {
            stablehlo.return %x : tensor<3xf32>
          }) : (tensor<i32>) -> tensor<3xf32>
          return %y : tensor<3xf32>
        }""")
    assert str(program).count("builtin.if") == 2
    f, x = cvm.compile(program), np.array([1, 2, 3], np.float32)
    found = [f(np.int32(n), x) for n in (0, 1, 2, -1, 7)]
    np.testing.assert_array_equal(found[0], x + x)
    np.testing.assert_allclose(found[1], np.tanh(np.exp(x)), rtol=1e-6)
    for other in found[2:]:
        np.testing.assert_array_equal(other, x)


def test_a_condition_of_an_onnx_model() -> None:
    onnx = pytest.importorskip("onnx")
    model = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["" : 17]>
        g (bool c, float[3] x, int64[1] i) => (float[3] y) {
          y = If (c) <
            then_branch = t () => (float[3] a) { p = Gather (x, i)
                                                 a = Add (x, p) },
            else_branch = e () => (float[3] b) { b = Mul (x, x) }
          >
        }""")
    program = cvm.from_onnx(model)
    assert "builtin.if" in str(program)
    f, x = cvm.compile(program), np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(f(np.array(True), x, np.array([1])), x + 2)
    np.testing.assert_array_equal(f(np.array(False), x, np.array([9])), x * x)


@pytest.mark.parametrize("name", ["if", "regions", "control_flow", "scans"])
def test_the_generic_form_of_regions_reads_back(name: str) -> None:
    module = cvm.parse((FILETESTS / f"{name}.cvm").read_text("utf-8"))
    text = print_module(module, generic=True)
    again = cvm.parse(text)
    assert print_module(again, generic=True) == text
    assert len(again.functions) == len(module.functions)
    assert ("({\n    ^bb0" in text) == (name != "scans")
