"""Operations that read a value may stand after the one that destroys it, where an order exists in
which they come first.
"""

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
        (
            DESTROY + "%r = dali.mul %x, %y\n%s = dali.sub %r, %x\nreturn %s, %d\n}",
            (X * Y - X, X + Y),
        ),
        (
            '%v = theano.dimshuffle %x {new_order = [0, "x"]}\n'
            + DESTROY
            + "%r = dali.mul %v, 2.0\nreturn %d, %r\n}",
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
    with pytest.raises(
        cvm.VerifyError, match="a value is not used after it was destroyed, but %x is"
    ):
        cvm.compile(HEAD + body)


def test_two_values_that_cannot_both_be_read_first():
    text = """func @main(%x: tensor<3xf64> {inplace}, %y: tensor<3xf64> {inplace}) {
      %a = theano.elemwise %x, %y {scalar_op = "add", inplace_pattern = {0 = 0}}
      %b = theano.elemwise %y, %x {scalar_op = "sub", inplace_pattern = {0 = 0}}
      return %a, %b
    }"""
    with pytest.raises(cvm.VerifyError, match="was destroyed"):
        cvm.compile(text)


@pytest.mark.parametrize("target", ["cpu", "reference", "cuda-sim"])
@pytest.mark.parametrize("optimize", [0, 2])
@pytest.mark.parametrize(
    ("sizes", "body", "returned"),
    [
        # through a transposed view
        (
            "2x3",
            "%v = theano.dimshuffle %x {new_order = [1, 0]}\n"
            "%d = theano.elemwise %v, 2.0 {PATTERN}\nreturn %d\n}",
            1,
        ),
        (
            "?Nx?M",
            "%v = theano.dimshuffle %x {new_order = [1, 0]}\n"
            "%d = theano.elemwise %v, 2.0 {PATTERN}\nreturn %d\n}",
            1,
        ),
        # one with a dimension of size 1 more
        (
            "2x3",
            '%v = theano.dimshuffle %x {new_order = [1, "x", 0]}\n'
            "%d = theano.elemwise %v, 2.0 {PATTERN}\nreturn %d\n}",
            1,
        ),
        # a result that is a view of what was overwritten, and one that is no view of it
        (
            "2x3",
            "%d = theano.elemwise %x, 2.0 {PATTERN}\n"
            "%v = theano.dimshuffle %d {new_order = [1, 0]}\nreturn %v\n}",
            1,
        ),
        (
            "2x3",
            "%d = theano.elemwise %x, 2.0 {PATTERN}\n%r = dali.mul %d, 3.0\nreturn %r, %r\n}",
            2,
        ),
        # twice, by two views
        (
            "2x3",
            "%v = theano.dimshuffle %x {new_order = [1, 0]}\n"
            "%c = theano.elemwise %v, 1.0 {PATTERN}\n"
            "%w = theano.dimshuffle %c {new_order = [1, 0]}\n"
            "%e = theano.elemwise %w, %x0 {PATTERN}\n"
            "%r = dali.mul %e, 3.0\nreturn %r\n}",
            1,
        ),
    ],
)
def test_the_argument_is_overwritten_through_views(sizes, body, returned, optimize, target):
    pattern = 'scalar_op = "add", inplace_pattern = {0 = 0}'
    head = f"func @main(%x: tensor<{sizes}xf64> {{inplace}}, %x0: tensor<{sizes}xf64>) {{\n"
    if target != "cpu" and not optimize:
        pytest.skip("only cpu has a plain way")
    f = cvm.compile(head + body.replace("PATTERN", pattern), target=target, optimize=optimize)
    x = np.arange(6.0).reshape(2, 3)
    before = x.copy()
    results = f(x, before)
    after = before + 1 + before if "%e" in body else before + 2
    np.testing.assert_array_equal(x, after)
    results = results if isinstance(results, tuple) else (results,)
    assert len(results) == returned
    wanted = 3 * after if "%r" in body else after.T
    for result in results:
        np.testing.assert_array_equal(result.reshape(wanted.shape), wanted)
