"""The integer dialect's operators that take floats too: compiled against the reference, and their
derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cvm.dialect.spec.operator import OPERATORS, Operator
from finite_differences import check
from operator_checks import program
from samples import SAMPLES

import cvm

INTEGERS = ("indices", "cond")  # operands that stay i32
FOLDING = ("cvm.conv2d", "cvm.dense", "cvm.sum")  # rounded more than once


def takes_floats(name: str) -> bool:
    operator = OPERATORS[name]
    return any(c.number == 0 and "f64" in c.text for c in operator.constraints)


FLOATING = sorted(n for n in SAMPLES if n.startswith("cvm.") and takes_floats(n))


def floating(
    name: str, random: np.random.Generator, dtype: str, special: bool = False
) -> Operator[np.ndarray]:
    """A sample with floats for its integers; among `special` ones are NaN, infinities and -0.0."""
    found: Any = SAMPLES[name](random)
    kept = {id(a) for n, a in found.operands() if n in INTEGERS}

    def change(array: np.ndarray) -> np.ndarray:
        if id(array) in kept:
            return array
        values = random.normal(size=array.shape)
        if special:
            values = np.where(
                random.random(array.shape) < 0.2,
                random.choice([np.nan, np.inf, -np.inf, -0.0, 0.0], array.shape),
                values,
            )
        return np.asarray(values, dtype)

    return found.map(change)


@pytest.mark.sample(8)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", FLOATING)
def test_compiled_code_is_as_the_reference(name: str, dtype: str) -> None:
    random = np.random.default_rng(5)
    for seed in range(12):
        try:
            module, arrays = program(
                floating(name, random, dtype, special=name not in FOLDING), bool(seed % 2)
            )
        except cvm.VerifyError:
            assert seed % 2 and name == "cvm.squeeze"  # without axes it wants known sizes
            continue
        got = cvm.compile(module)(*arrays)
        wanted = cvm.compile(module, target="reference")(*arrays)
        assert got.dtype == wanted.dtype == np.dtype(dtype) and got.shape == wanted.shape
        if name in FOLDING:
            np.testing.assert_allclose(
                got, wanted, 1e-4 if dtype == "f4" else 1e-12, 1e-5 if dtype == "f4" else 1e-13
            )
        else:
            np.testing.assert_array_equal(got, wanted, f"seed {seed}")
            numbers = ~np.isnan(wanted)
            np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(wanted[numbers]))


@pytest.mark.parametrize("name", FLOATING)
def test_derivatives(name: str) -> None:
    random = np.random.default_rng(7)
    checked = 0
    for _ in range(8):
        operator: Any = floating(name, random, "f8")
        if np.isfinite(operator.reference()).all():  # a window of nothing but padding holds -inf
            check(operator, random)
            checked += 1
    assert checked > 3


NO_MOVEMENT = ("builtin.bitcast", "builtin.run_kernel", "builtin.tree_ensemble")


@pytest.mark.parametrize(
    "name", [n for n in sorted(SAMPLES) if n.startswith("builtin.") and n not in NO_MOVEMENT]
)
def test_what_goes_back_through_what_moves_elements(name: str) -> None:
    random = np.random.default_rng(7)
    for _ in range(8):
        op: Any = SAMPLES[name](random)
        if getattr(op, "scalar_op", None) not in (None, "add"):
            continue  # only sums have a derivative
        arrays = [
            o if n.startswith(("indices", "starts")) else random.normal(size=o.shape)
            for n, o in op.operands()
        ]
        given = iter(arrays)
        check(op.map(lambda _, given=given: next(given)), random)


def test_nothing_is_added_beyond_the_image() -> None:
    """Whatever the kernel holds: 0 there is no number that is multiplied."""
    text = """func @main(%x: tensor<1x1x2x2xf32>, %w: tensor<1x1x3x3xf32>) {
      %y = cvm.conv2d %x, %w {padding = [1, 1]}
      return %y
    }"""
    x, w = np.ones((1, 1, 2, 2), np.float32), np.ones((1, 1, 3, 3), np.float32)
    w[0, 0, 0, 0] = np.inf
    for target in ("cpu", "reference"):
        np.testing.assert_array_equal(
            cvm.compile(text, target=target)(x, w)[0, 0], [[4, 4], [4, np.inf]]
        )


@pytest.mark.parametrize("groups", [1, 2])
def test_second_derivatives_of_a_convolution(groups: int) -> None:
    text = f"""
    func @energy(%x: tensor<2x2x6x5xf64>, %w: tensor<4x{2 // groups}x3x2xf64>) -> tensor<f64> {{
      %y = cvm.conv2d %x, %w {{padding = [1, 0], stride = [2, 1], dilation = [1, 2], groups = {groups}}}
      %z = theano.elemwise %y, %y, %y {{scalar_op = "mul"}}
      %e = theano.sum %z
      return %e
    }}
    func @slope(%x: tensor<2x2x6x5xf64>, %w: tensor<4x{2 // groups}x3x2xf64>) -> tensor<f64> {{
      %gx, %gw = theano.grad @energy(%x, %w)
      %a = theano.elemwise %gx {{scalar_op = "sqr"}}
      %b = theano.elemwise %gw {{scalar_op = "sqr"}}
      %c = theano.sum %a
      %d = theano.sum %b
      %s = theano.elemwise %c, %d {{scalar_op = "add"}}
      return %s
    }}
    func @main(%x: tensor<2x2x6x5xf64>, %w: tensor<4x{2 // groups}x3x2xf64>) {{
      %gx, %gw = theano.grad @slope(%x, %w)
      return %gx, %gw
    }}
    """
    random = np.random.default_rng(3)
    x, w = random.normal(size=(2, 2, 6, 5)) / 4, random.normal(size=(4, 2 // groups, 3, 2)) / 4
    slope, gradient = cvm.compile(text, "slope"), cvm.compile(text)(x, w)
    for n, array in enumerate((x, w)):
        step = random.normal(size=array.shape)
        ends = [
            slope(*(a + h * step if k == n else a for k, a in enumerate((x, w))))
            for h in (1e-5, -1e-5)
        ]
        np.testing.assert_allclose((gradient[n] * step).sum(), (ends[0] - ends[1]) / 2e-5, 1e-6)


def test_a_small_network_learns() -> None:
    """A convolution, a relu and a dense layer, by gradient descent."""
    text = """
    func @loss(%x: tensor<16x1x6x6xf32>, %t: tensor<16x2xf32>, %k: tensor<4x1x3x3xf32>, %w: tensor<2x64xf32>, %b: tensor<2xf32>)
        -> tensor<f32> {
      %c = cvm.conv2d %x, %k
      %h = cvm.relu %c
      %f = cvm.reshape %h {target_shape = [16, 64]}
      %y = cvm.dense %f, %w, %b
      %d = cvm.elemwise_sub %y, %t
      %q = theano.elemwise %d {scalar_op = "sqr"}
      %l = theano.sum %q
      return %l
    }
    func @step(%x: tensor<16x1x6x6xf32>, %t: tensor<16x2xf32>, %k: tensor<4x1x3x3xf32>, %w: tensor<2x64xf32>, %b: tensor<2xf32>) {
      %l = call @loss(%x, %t, %k, %w, %b)
      %gk, %gw, %gb = theano.grad @loss(%x, %t, %k, %w, %b) {wrt = [2, 3, 4]}
      return %l, %gk, %gw, %gb
    }
    """
    random = np.random.default_rng(0)
    x = random.normal(size=(16, 1, 6, 6)).astype("f4")
    up = x[:, 0, :3].sum((1, 2)) > x[:, 0, 3:].sum((1, 2))
    t = np.stack([up, ~up], 1).astype("f4")
    weights = [random.normal(size=s).astype("f4") / 8 for s in ((4, 1, 3, 3), (2, 64), (2,))]
    step = cvm.compile(text, "step")
    losses = []
    for _ in range(60):
        loss, *gradients = step(x, t, *weights)
        losses.append(float(loss))
        weights = [w - np.float32(0.004) * g for w, g in zip(weights, gradients, strict=True)]
    assert losses[-1] < losses[0] / 10
