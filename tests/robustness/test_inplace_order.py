"""Operations that read a value may stand after the one that destroys it, where an order exists in which they come first."""

import numpy as np
import pytest

import cvm

HEAD = "func @main(%x: tensor<3xf64> {inplace}, %y: tensor<3xf64>) {\n"
DESTROY = '%d = theano.elemwise %x, %y {scalar_op = "add", inplace_pattern = {0 = 0}}\n'
X, Y = np.array([1.0, 2, 3]), np.array([10.0, 20, 30])


@pytest.mark.parametrize("target", ["cpu", "reference", "cuda-sim"])
@pytest.mark.parametrize(
    ("body", "results"),
    [
        (DESTROY + "%r = dali.mul %x, %y\nreturn %d, %r\n}", (X + Y, X * Y)),
        (DESTROY + "%r = dali.mul %x, %y\n%s = dali.sub %r, %x\nreturn %s, %d\n}", (X * Y - X, X + Y)),
        (
            '%v = theano.dimshuffle %x {new_order = [0, "x"]}\n' + DESTROY + "%r = dali.mul %v, 2.0\nreturn %d, %r\n}",
            (X + Y, 2 * X[:, None]),
        ),
    ],
)
def test_read_first(body, results, target):
    f = cvm.compile(HEAD + body, target=target)
    x = X.copy()
    for found, wanted in zip(f(x, Y), results, strict=True):
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(x, X + Y)


@pytest.mark.parametrize(
    "body",
    [
        DESTROY + "%r = dali.mul %x, %d\nreturn %d, %r\n}",  # needs the result
        DESTROY + "%t = dali.mul %d, %y\n%r = dali.mul %x, %t\nreturn %d, %r\n}",
        DESTROY + "return %d, %x\n}",
        DESTROY + DESTROY.replace("%d", "%e") + "return %d, %e\n}",  # destroyed twice
    ],
)
def test_no_order(body):
    with pytest.raises(cvm.VerifyError, match="a value is not used after it was destroyed, but %x is"):
        cvm.compile(HEAD + body)


def test_two_values_that_cannot_both_be_read_first():
    text = """func @main(%x: tensor<3xf64> {inplace}, %y: tensor<3xf64> {inplace}) {
      %a = theano.elemwise %x, %y {scalar_op = "add", inplace_pattern = {0 = 0}}
      %b = theano.elemwise %y, %x {scalar_op = "sub", inplace_pattern = {0 = 0}}
      return %a, %b
    }"""
    with pytest.raises(cvm.VerifyError, match="was destroyed"):
        cvm.compile(text)
