"""Results in the storage of arguments: what the arguments hold afterwards, on every target and in
every layout.
"""

from __future__ import annotations

import numpy as np
import pytest

import cvm

CHAIN = """
func @main(%x: tensor<1003xf64> {inplace}, %y: tensor<1003xf64>) {
  %before = theano.elemwise %x, %y {scalar_op = "mul"}
  %sum = theano.elemwise %x, %y {scalar_op = "add", inplace_pattern = {0 = 0}}
  %twice = theano.elemwise %sum, 2 {scalar_op = "mul", inplace_pattern = {0 = 0}}
  %all = theano.elemwise %twice, %before {scalar_op = "add"}
  return %twice, %all
}
"""
ALONE = """
func @main(%x: tensor<1003xf64> {inplace}, %y: tensor<1003xf64>) {
  %sum = theano.elemwise %x, %y {scalar_op = "add", inplace_pattern = {0 = 0}}
  return %sum
}
"""
TARGETS = ("reference", "cpu")


def numbers(n: int) -> np.ndarray:
    return np.random.default_rng(n).random(1003)


@pytest.mark.parametrize("target", TARGETS)
def test_readers_come_before(target: str) -> None:
    x, y = numbers(1), numbers(2)
    given = x.copy()
    twice, everything = cvm.compile(CHAIN, target=target)(given, y)
    assert twice is given
    np.testing.assert_array_equal(twice, (x + y) * 2)
    np.testing.assert_array_equal(everything, (x + y) * 2 + x * y)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("program", [CHAIN, ALONE], ids=["chain", "alone"])
def test_one_array_for_both(program: str, target: str) -> None:
    x = numbers(3)
    given = x.copy()
    found = cvm.compile(program, target=target)(given, given)
    np.testing.assert_array_equal(
        found[0] if isinstance(found, tuple) else found, (x + x) * (2 if program is CHAIN else 1)
    )


@pytest.mark.parametrize("target", TARGETS)
def test_strided(target: str) -> None:
    x, y = numbers(4), numbers(5)
    whole = np.repeat(x, 2)
    cvm.compile(ALONE, target=target)(whole[::2], y)
    np.testing.assert_array_equal(whole[::2], x + y)
    np.testing.assert_array_equal(whole[1::2], x)


@pytest.mark.parametrize("target", TARGETS)
def test_out(target: str) -> None:
    x, y, out = numbers(6), numbers(7), np.empty(1003)
    given = x.copy()
    assert cvm.compile(ALONE, target=target)(given, y, out=out) is out
    np.testing.assert_array_equal(out, x + y)
    np.testing.assert_array_equal(given, x + y)


@pytest.mark.parametrize("target", TARGETS)
def test_read_only(target: str) -> None:
    x = numbers(8)
    x.setflags(write=False)
    with pytest.raises(cvm.CallError, match="overwritten"):
        cvm.compile(ALONE, target=target)(x, numbers(9))


def test_nothing_is_copied() -> None:
    assert "copy" not in cvm.compile(ALONE).lower("loops")
    assert (
        cvm.compile(ALONE).lower("loops").count("tensor<1003xf64>") == 2
    )  # no third array for the result
