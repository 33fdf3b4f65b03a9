"""Values that several loops over a row compute are cached, with the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from legal_and_equal import legal

import cvm

SOFTMAX = """  %m = theano.max %x {axis = [1]}
  %n = theano.dimshuffle %m {new_order = [0, "x"]}
  %d = dali.sub %x, %n
  %e = dali.exp %d
  %s = theano.sum %e {axis = [1]}
  %t = theano.dimshuffle %s {new_order = [0, "x"]}
  %y = dali.div %e, %t
"""
RANDOM = np.random.default_rng(0)


def program(body: str, *shape: int | str, element: str = "f32", results: str = "%y") -> str:
    return (
        f"func @main(%x: tensor<{' x '.join(map(str, shape))} x {element}>) {{\n"
        f"{body}  return {results}\n}}\n"
    )


def compiled(text: str) -> tuple[Any, int]:
    """The program, its kernels legal, and how many rows they keep."""
    module = cvm.parse(text)
    legal(module)
    f = cvm.compile(module)
    return f, f.lower("schedule").count("alloc stack")


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("columns", [1, 7, 16, 100, 1003, 4096])
def test_softmax(columns: int, element: str, tune: Callable[..., None]) -> None:
    """Exponentials are computed once; values far apart take their rare way."""
    text = program(SOFTMAX, 20, columns, element=element)
    x = RANDOM.normal(size=(20, columns)).astype(element.replace("f", "float"))
    x[3] *= 60
    x[5, columns // 2] = -2000
    f, rows = compiled(text)
    tune(cached_operations=1 << 40)
    g, none = compiled(text)
    assert (rows, none) == (columns > 1, 0)
    before = cvm.get_num_threads()
    try:
        for threads in (1, 2):
            cvm.set_num_threads(threads)
            np.testing.assert_array_equal(f(x), g(x))
    finally:
        cvm.set_num_threads(before)
    np.testing.assert_allclose(
        f(x), cvm.compile(text, target="reference")(x), rtol=3e-6 if element == "f32" else 1e-14
    )


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_rows_of_unknown_length(element: str, compile_for: Callable[..., None]) -> None:
    """They are kept where they turn out to be short, and are the same as those of known length."""
    compile_for(l1_bytes=1 << 9)
    f, rows = compiled(program(SOFTMAX, "?", "?", element=element))
    assert rows == 1
    most = (1 << 9) // (4 if element == "f32" else 8)
    for shape in ((20, 1), (20, 7), (3, most), (3, most + 1), (20, 1003), (0, 5), (1, 40)):
        x = RANDOM.normal(size=shape).astype(element.replace("f", "float"))
        np.testing.assert_array_equal(
            f(x), cvm.compile(program(SOFTMAX, *shape, element=element))(x)
        )


def test_the_order_of_a_sum_stays() -> None:
    x = RANDOM.normal(size=(16, 133)).astype(np.float32)
    text = program(SOFTMAX, 16, 133)
    assert compiled(text)[1] == 1
    np.testing.assert_array_equal(cvm.compile(text)(x), cvm.compile(text, target="cuda-sim")(x))


def test_what_is_not_kept(compile_for: Callable[..., None]) -> None:
    """A single subtraction, differing values, and long rows are not cached."""
    compile_for(l1_bytes=32 << 10)
    other = SOFTMAX.replace(
        "  %y = dali.div %e, %t\n", "  %o = dali.exp %x\n  %y = dali.div %o, %t\n"
    )
    less = SOFTMAX.replace("dali.exp %d", "dali.mul %d, %d")
    assert compiled(program(other, 20, 100))[1] == 0
    assert compiled(program(less, 20, 100))[1] == 0
    assert compiled(program(SOFTMAX, 20, 9000))[1] == 0
    x = RANDOM.normal(size=(20, 100)).astype(np.float32)
    for body in (other, less):
        text = program(body, 20, 100)
        np.testing.assert_allclose(
            cvm.compile(text)(x), cvm.compile(text, target="reference")(x), rtol=1e-5
        )


def test_integers_of_two_loops() -> None:
    body = """  %a = dali.mul %x, %x
  %b = dali.add %a, 3
  %c = dali.xor %b, %x
  %d = dali.mul %c, %c
  %e = dali.sub %d, %a
  %f = dali.mul %e, %b
  %g = dali.add %f, %c
  %h = dali.max %g, %d
  %s = theano.max %h {axis = [1]}
  %t = theano.dimshuffle %s {new_order = [0, "x"]}
  %y = dali.sub %h, %t
"""
    text = program(body, 40, 50, element="i32")
    f, _ = compiled(text)
    x = RANDOM.integers(-(2**31), 2**31, (40, 50)).astype(np.int32)
    np.testing.assert_array_equal(f(x), cvm.compile(text, target="reference")(x))
