"""Integer division in formulas and kernels: a divisor of 0 counts as 1, and the least integer by -1
wraps, on every target.
"""

from __future__ import annotations

import numpy as np
import pytest
from available_targets import HERE
from cvm.dialect.kernel_ir.scalar_functions import DIVISIONS
from cvm.dialect.types.tensor_types import ELEMENT_TYPES
from cvm.lowering.analysis.interval_arithmetic import SCALAR
from tiers import some

from cvm.terminal.read_program import compiled, read_formulas, read_kernels

SYMBOLS = {"div": "/", "rem": "%", "floordiv": "//", "floormod": "mod"}
TYPES = ("i8", "ui8", "i16", "ui16", "i32", "ui32", "i64", "ui64")


def exact(function: str, a: int, b: int) -> int:
    b = b or 1
    floor = a // b
    quotient = floor if function.startswith("floor") or a % b == 0 else floor + ((a < 0) != (b < 0))
    return quotient if function.endswith("div") else a - quotient * b


def pairs(element: str) -> tuple[np.ndarray, np.ndarray]:
    low, high = ELEMENT_TYPES[element].limits
    edges = [n for n in {low, low + 1, -7, -1, 0, 1, 2, 7, high} if low <= n <= high]
    a, b = np.meshgrid(np.array(edges, object), np.array(edges, object))
    return tuple(x.reshape(-1).astype(ELEMENT_TYPES[element].dtype) for x in (a, b))  # type: ignore[return-value]


@pytest.mark.parametrize("element", some(TYPES, 3))
def test_any_divisor(element: str) -> None:
    a, b = pairs(element)
    array, low = f"tensor<{len(a)}x{element}>", ELEMENT_TYPES[element].limits[0]
    lines = [f"  %{f}[%i]: {array} = %a[%i] {SYMBOLS[f]} %b[%i]\n" for f in DIVISIONS]
    lines += [f"  %{f}.zero[%i]: {array} = %a[%i] {SYMBOLS[f]} 0\n" for f in DIVISIONS]
    names = [f"%{f}{part}" for part in ("", ".zero") for f in DIVISIONS]
    text = f"formulas @main(%a: {array}, %b: {array}) {{\n{''.join(lines)}  return {', '.join(names)}\n}}\n"
    modulus = 1 << ELEMENT_TYPES[element].bits
    for target in HERE:
        found = compiled(read_formulas(text, "f"), "main", target)(a, b)
        for n, got in enumerate(found):
            divisors = b.tolist() if n < len(DIVISIONS) else [0] * len(a)
            wanted = [
                exact(DIVISIONS[n % 4], x, y) for x, y in zip(a.tolist(), divisors, strict=True)
            ]
            assert got.tolist() == [(w - low) % modulus + low for w in wanted], (target, names[n])


def test_indices_as_divisors() -> None:
    text = """kernel @k(%x: tensor<5xi64>) -> (%y: tensor<5x5xi64>, %z: tensor<5x5xi64>) {
  for %i in 0..5 {
    for %j in 0..5 {
      %y[%i, %j] = %x[max(min(%i // %j, 4), 0)]
      %z[%i, %j] = %x[max(min(%i mod %j, 4), 0)] + %i // (%j - 2)
    }
  }
}
"""
    x = np.arange(5) * 10
    y = [[10 * exact("floordiv", i, j) for j in range(5)] for i in range(5)]
    z = [
        [10 * exact("floormod", i, j) + exact("floordiv", i, j - 2) for j in range(5)]
        for i in range(5)
    ]
    for target in (t for t in HERE if t != "reference"):
        found = compiled(read_kernels(text, "k.loops"), "kernels", target)(x)
        assert [f.tolist() for f in found] == [y, z], target


@pytest.mark.parametrize("function", DIVISIONS)
def test_intervals_contain_quotients(function: str) -> None:
    ends = range(-3, 4)
    intervals = [(low, high) for low in ends for high in ends if low <= high]
    for a in intervals:
        for b in intervals:
            if (bounds := SCALAR[function](a, b)) is None:
                continue
            found = [
                exact(function, x, y) for x in range(a[0], a[1] + 1) for y in range(b[0], b[1] + 1)
            ]
            assert bounds[0] <= min(found) and max(found) <= bounds[1], (a, b)
