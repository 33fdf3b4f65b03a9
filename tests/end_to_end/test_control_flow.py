"""Loops over functions on every target, with and without optimization, and what they refuse."""

from __future__ import annotations

import re

import numpy as np
import pytest
from available_targets import EVERY
from cvm.dialect.builtin.control_flow import While
from cvm.dialect.kernel_ir.execution_plan import Loop
from cvm.lowering.pipeline import lower

import cvm
from cvm.terminal.read_program import compiled, read_level
from cvm.terminal.run_pipeline import text_after as opt_text

RECURRENCE = """
func @step(%h: tensor<2x8xf32>, %x: tensor<2x5xf32>, %w: tensor<8x5xf32>, %r: tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<2x8xf32>) {
  %a = cvm.dense %x, %w
  %b = cvm.dense %h, %r
  %sum = theano.elemwise %a, %b {scalar_op = "add"}
  %y = theano.elemwise %sum {scalar_op = "tanh"}
  return %y, %y
}

func @main(%h: tensor<2x8xf32>, %xs: tensor<?T x 2x5xf32>, %w: tensor<8x5xf32>, %r: tensor<8x8xf32>) -> (tensor<2x8xf32>, tensor<?T x 2x8xf32>) {
  %last, %all = builtin.scan @step(%h, %xs, %w, %r) {carry = 1, scan = 1}
  return %last, %all
}
"""


@pytest.mark.parametrize("optimize", [0, 2])
@pytest.mark.parametrize("target", EVERY)
def test_recurrence(target: str, optimize: int) -> None:
    """Slices of 40 bytes, which are not aligned on a GPU."""
    f = cvm.compile(RECURRENCE, target=target, optimize=optimize)
    random = np.random.default_rng(0)
    h, w, r = (random.normal(size=n).astype(np.float32) for n in ((2, 8), (8, 5), (8, 8)))
    for steps in (1, 2, 7):
        xs = random.normal(size=(steps, 2, 5)).astype(np.float32)
        state, wanted = h.astype(np.float64), []
        for x in xs:
            state = np.tanh(x @ w.T.astype(np.float64) + state @ r.T)
            wanted.append(state)
        last, found = f(h, xs, w, r)
        np.testing.assert_allclose(found, wanted, atol=2e-5)
        np.testing.assert_array_equal(last, found[-1])
    with pytest.raises(cvm.Error, match=re.escape("T in [1, 2^40]")):
        f(h, np.zeros((0, 2, 5), np.float32), w, r)


def test_a_body_is_compiled_once() -> None:
    """A thousand steps have as many kernels as one."""
    module = cvm.parse(RECURRENCE.replace("?T x ", "1000x"))
    (loop,) = lower(module, module.functions["main"]).kernels
    assert isinstance(loop, Loop) and len(loop.plan.kernels) < 10


DESCENT = """
func @loss(%x: tensor<3xf64>, %goal: tensor<3xf64>) -> tensor<f64> {
  %away = theano.elemwise %x, %goal {scalar_op = "sub"}
  %squares = theano.elemwise %away {scalar_op = "sqr"}
  %sum = theano.sum %squares {axis = [0]}
  return %sum
}

func @descend(%x: tensor<3xf64>, %goal: tensor<3xf64>) -> tensor<3xf64> {
  %g = theano.grad @loss(%x, %goal) {wrt = [0]}
  %step = theano.elemwise %g, 0.25 {scalar_op = "mul"}
  %y = theano.elemwise %x, %step {scalar_op = "sub"}
  return %y
}

func @main(%x: tensor<3xf64>, %goal: tensor<3xf64>) -> tensor<3xf64> {
  %y = builtin.scan @descend(%x, %goal) {carry = 1, trips = 4}
  return %y
}

func @through(%x: tensor<3xf64>, %goal: tensor<3xf64>) -> tensor<3xf64> {
  %y = call @main(%x, %goal)
  %double = theano.elemwise %y, 2 {scalar_op = "mul"}
  return %double
}
"""


@pytest.mark.parametrize("optimize", [0, 2])
@pytest.mark.parametrize("target", EVERY)
def test_derivatives_inside_of_a_body(target: str, optimize: int) -> None:
    x, goal = np.array([16.0, 32, 0]), np.array([0.0, 0, 16])
    for entry, wanted in (("main", [1, 2, 15]), ("through", [2, 4, 30])):
        np.testing.assert_array_equal(
            cvm.compile(DESCENT, entry=entry, target=target, optimize=optimize)(x, goal), wanted
        )


def test_a_derivative_of_a_loop_is_a_loop_that_runs_backwards() -> None:
    asked = (
        "func @g(%x: tensor<3xf64>, %gy: tensor<3xf64>) { %y = theano.l_op @main(%x, %x, %gy) "
        "{wrt = [0]}\n return %y }"
    )
    x, g = np.array([1.0, 2, 3]), np.array([16.0, 32, 48])
    np.testing.assert_array_equal(cvm.compile(DESCENT + asked, entry="g")(x, g), g / 16)
    text = opt_text(cvm.parse(DESCENT + asked), "differentiate")
    assert "@descend.vjp(" in text and cvm.parse(text)


def test_a_derivative_of_a_loop_that_tests_a_condition_is_refused() -> None:
    program = (
        While.example
        + "func @g(%x: tensor<f32>) { %y = theano.grad @main(%x, %x) {wrt = [0]}\n return %y }"
    )
    with pytest.raises(
        cvm.Error,
        match=re.escape("builtin.while has no derivative; it is on the path %x -> %go -> %y"),
    ):
        cvm.compile(program, entry="g")


UPDATED = """
kernel @start(%x: tensor<4xi64>) -> (%y: tensor<4xi64>) {
  for %i in 0..4 {
    %y[%i] = %x[%i]
  }
}

loop @f(%k: tensor<i64>) -> (%n: tensor<i64>, %y: tensor<4xi64>) steps 3 carry 2 scan 0 of (%k, %y) {
  plan (%c: tensor<i64>, %a: tensor<4xi64>) -> (%d: tensor<i64>, %a: tensor<4xi64>)

  kernel @f.0(%c: tensor<i64>) -> (%d: tensor<i64>, %a: tensor<4xi64>) {
    %a[min(max(%c[], 0), 3)] = 7
    %d[] = %c[] + 1
  }
}
"""


def test_text_of_a_loop_that_updates_in_place() -> None:
    f = compiled(read_level("text", UPDATED), "kernels", "cpu")
    given = {"x": np.arange(4), "k": np.int64(1)}
    found = dict(
        zip(
            [r.name for r in f.function.results],
            f(*(given[a.name] for a in f.function.arguments)),
            strict=True,
        )
    )
    np.testing.assert_array_equal(found["y"], [0, 7, 7, 7])
    given_x = UPDATED.replace("of (%k, %y)", "of (%k, %x)").replace(
        "f(%k: tensor<i64>)", "f(%k: tensor<i64>, %x: tensor<4xi64>)"
    )
    collected = given_x.replace("carry 2", "carry 1").replace(
        "%y: tensor<4xi64>) steps", "%y: tensor<3x4xi64>) steps"
    )
    for text, message in (
        (given_x, "lies in its result %y, got %x"),
        (collected, "%a is both an argument and a result of the body"),
    ):
        with pytest.raises(cvm.ParseError, match=re.escape(message)):
            read_level("text", text)
