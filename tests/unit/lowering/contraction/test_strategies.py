"""Every contraction of a program is explained: its candidates, their costs, and the one that is
taken.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from cvm.lowering import pipeline
from cvm.lowering.contraction.contraction_problem import Problem
from cvm.lowering.contraction.match_contraction import match_contraction
from cvm.lowering.contraction.strategies import STRATEGIES
from cvm.lowering.loops.collapse import collapsed

import cvm

# channels, channels of the result, size, window, stride, groups, and the least value: the
# convolutions that are benchmarked
CONVOLUTIONS = {
    (64, 64, 56, 3, 1, 1, 0): ("winograd_4x4", "winograd_4x4"),
    (128, 128, 28, 3, 1, 1, 0): ("winograd_4x4", "winograd_4x4"),
    (256, 256, 14, 3, 1, 1, 0): ("winograd_4x4", "int8_dot_product_row_lanes"),
    (512, 512, 7, 3, 1, 1, 0): ("winograd_2x2", "int8_dot_product_row_lanes"),
    (64, 128, 56, 3, 2, 1, 0): ("int8_pair_products", "int8_dot_product_row_lanes"),
    (256, 1024, 14, 1, 1, 1, 0): ("int8_pair_products", "int8_dot_product"),
    (256, 256, 28, 3, 1, 256, 0): ("depthwise", "depthwise"),
    (64, 64, 112, 3, 2, 64, 0): ("depthwise", "depthwise"),
    (3, 32, 224, 3, 2, 1, -127): ("pairdot", "int8_dot_product"),
    (3, 64, 224, 7, 2, 1, -127): ("pairdot", "int8_dot_product"),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("shape", "taken"), CONVOLUTIONS.items(), ids=str)
def test_convolutions_of_the_benchmark(shape: tuple[int, ...], taken: tuple[str, str]) -> None:
    c, oc, size, kernel, stride, groups, low = shape
    w = np.random.default_rng(0).integers(-127, 128, (oc, c // groups, kernel, kernel))
    program = cvm.parse(f"""func @main(%x: tensor<1x{c}x{size}x{size}xi32> {{range = [{low}, 127]}}) {{
  %w = const dense<{w.tolist()}> : tensor<{oc}x{c // groups}x{kernel}x{kernel}xi32>
  %y = cvm.conv2d %x, %w {{padding = [{kernel // 2}, {kernel // 2}], stride = [{stride}, {stride}], groups = {groups}}}
  return %y
}}
""")
    for cpu, first in zip(("x86-64-v3", "cascadelake"), taken, strict=True):
        text = cvm.compile(program, target="reference", cpu=cpu).lower("strategies")
        rows = re.findall(r"^  (taken|not) +(\w+) *([\d,]*) *(.*)$", text, re.M)
        assert {name for _, name, _, _ in rows} == {s.name for s in STRATEGIES}
        assert all(cost or why or name == "depthwise" for _, name, cost, why in rows), (
            "each is explained"
        )
        assert rows[0][:2] == ("taken", first), text
        costs = [
            int(cost.replace(",", ""))
            for kind, _, cost, why in rows
            if why in ("costs least", "costs more")
        ]
        assert costs == sorted(costs)


def test_lines_that_waste_vectors_are_joined(compile_for: Callable[..., None]) -> None:
    """Lines shorter than a vector of 8 lanes, and those of which more than a fifth of the lanes
    computed are not needed.
    """
    compile_for()
    joined = []
    for width in (6, 7, 8, 9, 12, 13, 16, 17, 19, 20, 25, 26):
        sizes = f"%x: tensor<1x8x8x{width + 2}xi32>, %w: tensor<8x8x3x3xi32>"
        module = cvm.parse(f"func @main({sizes}) {{\n  %y = cvm.conv2d %x, %w\n  return %y\n}}\n")
        (kernel,) = map(collapsed, pipeline.nests(module, module.functions["main"]).kernels)
        c = match_contraction(kernel)
        assert c is not None and c.window is not None and c.column.extent == width
        if Problem(kernel, c, {}, {}).panels.contraction.window is None:
            joined.append(width)
    assert joined == [6, 7, 9, 12, 17, 19, 25]
