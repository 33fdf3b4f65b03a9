"""Jumps, and loops without bounds, mean the same on every target."""

from __future__ import annotations

import numpy as np
import pytest
from available_targets import HERE

import cvm
from cvm.terminal.read_program import compiled, read_kernels

TARGETS = [t for t in HERE if t != "reference"]
X = [3, 1, 6, 2, -4, 5]
# the body of a loop over %i, and the result for X
BODIES = {
    "break": ("if %x[%i] == 6 { break } %y[%i] = %x[%i]", [3, 1, 0, 0, 0, 0]),
    "return": ("if %x[%i] == 6 { return } %y[%i] = %x[%i]", [3, 1, 0, 0, 0, 0]),
    "continue": ("if %x[%i] == 6 { continue } %y[%i] = %x[%i]", [3, 1, 0, 2, -4, 5]),
    "inner break": (
        "for %j in 0..4 { if %j == %x[%i] { break } %y[%i] = %j + 1 }",
        [3, 1, 4, 2, 4, 4],
    ),
    "inner continue": (
        "for %j in 0..4 { if %j == %x[%i] { continue } %y[%i] = %y[%i] + %j }",
        [3, 5, 6, 4, 6, 6],
    ),
    "inner return": (
        "for %j in 0..2 { if %x[%i] == 6 { return } %y[%i] = %j + 7 }",
        [8, 8, 0, 0, 0, 0],
    ),
    "while": ("while %y[%i] < %x[%i] { %y[%i] = %y[%i] + 2 }", [4, 2, 6, 2, 0, 6]),
    "while and break": (
        "while %y[%i] < %x[%i] { if %y[%i] == 4 { break } %y[%i] = %y[%i] + 1 }",
        [3, 1, 4, 2, 0, 4],
    ),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BODIES)
def test_kernels(name: str, target: str) -> None:
    body, wanted = BODIES[name]
    text = f"kernel @k(%x: tensor<6xi64>) -> (%y: tensor<6xi64> zero) {{ for %i in 0..6 {{ {body} }} }}"
    f = compiled(read_kernels(text.replace("} %y", "}\n%y"), "k.loops"), "kernels", target)
    assert f(np.array(X)).tolist() == wanted


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_ends_before_its_later_loops(target: str) -> None:
    text = """kernel @k(%x: tensor<6xi64>) -> (%y: tensor<6xi64> zero, %z: tensor<6xi64> zero) {
  for %i in 0..6 {
    if %x[%i] == 6 {
      return
    }
    %y[%i] = %x[%i]
  }
  for %j in 0..6 {
    %z[%j] = 1
  }
}
"""
    f = compiled(read_kernels(text, "k.loops"), "kernels", target)
    assert [r.tolist() for r in f(np.array(X))] == [[3, 1, 0, 0, 0, 0], [0] * 6]


@pytest.mark.parametrize("target", TARGETS)
def test_a_failure_ends_a_kernel(target: str) -> None:
    text = """kernel @k(%x: tensor<6xi64>) -> (%y: tensor<6xi64> zero) {
  for %i in 0..6 {
    if %x[%i] < 0 {
      fail "it is negative"
    }
    %y[%i] = %x[%i]
  }
}
"""
    f = compiled(read_kernels(text, "k.loops"), "kernels", target)
    assert f(np.abs(X)).tolist() == [3, 1, 6, 2, 4, 5]
    with pytest.raises(cvm.Error, match="it is negative"):
        f(np.array(X))
