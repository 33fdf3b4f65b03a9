"""Powers of integers: the same on every target, for all widths, both signs, exponents known and
not.
"""

from __future__ import annotations

import numpy as np
import pytest
from available_targets import HERE
from cvm.dialect.types.tensor_types import I8, I16, I32, I64, UI8, UI16, UI32, UI64, ElementType

import cvm

INTEGERS = (I8, I16, I32, I64, UI8, UI16, UI32, UI64)
TARGETS = [t for t in HERE if t != "reference"]
EXPONENTS = (0, 1, 2, 3, 5, 12, 31, 100, -1, -2)


def given(element: ElementType, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Bases and exponents, most of these small, each vector having ones of other lengths."""
    random = np.random.default_rng(element.bits)
    low, high = element.limits
    bases = random.integers(low, high, count, element.dtype, endpoint=True)
    bases[::3] = random.integers(max(low, -3), 4, len(bases[::3]))
    exponents = random.integers(0, 9, count).astype(element.dtype)
    exponents[::7] = random.integers(low, high, len(exponents[::7]), element.dtype, endpoint=True)
    edges = np.array([0, 1, high, low, max(low, -1)], element.dtype)
    bases[:25], exponents[:25] = np.repeat(edges, 5), np.tile(edges, 5)
    return bases, exponents


def exact(base: int, exponent: int, element: ElementType) -> int:
    """Python's result, as a number of the type."""
    found = pow(base, exponent, 1 << element.bits) if exponent >= 0 else 0
    return found - (1 << element.bits) if found > element.limits[1] else found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "operator",
    ["dali.pow %x, %y", 'theano.elemwise %x, %y {scalar_op = "pow"}'],
    ids=["dali", "theano"],
)
def test_any_exponent(operator: str, element: ElementType, target: str) -> None:
    x, y = given(element, 203)
    type = f"tensor<203x{element}>"
    text = f"func @main(%x: {type}, %y: {type}) -> {type} {{ %z = {operator} return %z }}"
    found = cvm.compile(text, target=target)(x, y)
    wanted = [exact(a, b, element) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert found.dtype == element.dtype
    assert found.tolist() == wanted
    np.testing.assert_array_equal(cvm.compile(text, target="reference")(x, y), found)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", INTEGERS, ids=str)
def test_known_exponents(element: ElementType, target: str) -> None:
    exponents = [e for e in EXPONENTS if element.signed or e >= 0]
    x, _ = given(element, 67)
    lines = [f"%z{n} = dali.pow %x, {e} : {element}" for n, e in enumerate(exponents)]
    results = ", ".join(f"%z{n}" for n in range(len(exponents)))
    f = cvm.compile(
        f"func @main(%x: tensor<67x{element}>) {{ {' '.join(lines)} return {results} }}",
        target=target,
    )
    for e, found in zip(exponents, f(x), strict=True):
        assert found.tolist() == [exact(a, e, element) for a in x.tolist()], e


@pytest.mark.parametrize("element", INTEGERS, ids=str)
def test_known_exponents_are_few_products(element: ElementType) -> None:
    f = cvm.compile(
        f"func @main(%x: tensor<64x{element}>) {{ %z = dali.pow %x, 12 : {element} return %z }}"
    )
    assert f.lower("llvm").count(" mul ") == 4
    assert "ipow" not in f.lower("llvm")


def test_other_exponents_are_a_loop_over_bits() -> None:
    """As long for 64 bits as for 8: two products a bit, written once."""
    lengths = set()
    for element in (I8, I64):
        type = f"tensor<32x{element}>"
        f = cvm.compile(
            f"func @main(%x: {type}, %y: {type}) -> {type} {{ %z = dali.pow %x, %y return %z }}"
        )
        text = f.lower("llvm")
        assert "@ipow.v" in text
        lengths.add(len(text.splitlines()))
    assert max(lengths) < 80


def test_beside_each_other_and_exponentials() -> None:
    """Functions that several expressions call are declared once."""
    text = """func @main(%x: tensor<40xi32>, %y: tensor<40xui32>, %e: tensor<40xi64>, %z: tensor<40xf64>) {
  %a = dali.pow %x, %x
  %b = dali.pow %y, %y
  %s = dali.add %a, %b
  %w = theano.elemwise %z {scalar_op = "exp"}
  %i = theano.elemwise %w {scalar_op = "cast", dtype = i64}
  %p = dali.pow %i, %e
  %r = dali.add %s, %p
  return %r
}
"""
    n = np.arange(40)
    given = (n.astype(np.int32), n.astype(np.uint32), n.astype(np.int64), n / 20)
    found, wanted = (cvm.compile(text, target=t)(*given) for t in ("cpu", "reference"))
    np.testing.assert_array_equal(found, wanted, strict=True)
