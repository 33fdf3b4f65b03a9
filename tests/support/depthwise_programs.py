"""Programs of depthwise convolutions that several lowerings are tested with."""

from __future__ import annotations

import numpy as np

SHAPES = {  # of the image, the weights, and what else is said
    "3x3": ((1, 4, 9, 16), (4, 1, 3, 3), "padding = [1, 1], groups = 4"),
    "overlapping vectors": ((2, 3, 6, 28), (3, 1, 3, 3), "padding = [1, 1], groups = 3"),
    "strided": ((1, 3, 14, 29), (3, 1, 3, 3), "padding = [1, 1], stride = [2, 2], groups = 3"),
    "5x5": ((1, 3, 7, 18), (3, 1, 5, 5), "padding = [2, 2], groups = 3"),
    "dilated": ((1, 3, 9, 21), (3, 1, 3, 2), "padding = [2, 2], dilation = [2, 3], groups = 3"),
    "two rows": ((1, 3, 7, 16), (3, 1, 2, 3), "padding = [1, 1], groups = 3"),
    "one row": ((1, 3, 7, 16), (3, 1, 1, 5), "padding = [0, 2], groups = 3"),
    "dilated as it moves": (
        (1, 3, 13, 32),
        (3, 1, 3, 3),
        "padding = [1, 1], stride = [2, 2], dilation = [2, 1], groups = 3",
    ),
    "short rows": ((1, 4, 7, 7), (4, 1, 3, 3), "padding = [1, 1], groups = 4"),
    "shorter rows, strided": (
        (1, 3, 9, 9),
        (3, 1, 3, 3),
        "padding = [1, 1], stride = [2, 2], groups = 3",
    ),
    "a short vector": ((1, 3, 5, 4), (3, 1, 3, 3), "padding = [1, 1], groups = 3"),
    "wide border": ((1, 3, 2, 20), (3, 1, 3, 3), "padding = [4, 3], groups = 3"),
}


def text(name: str, low: int, high: int, weights: np.ndarray) -> str:
    image, kernel, attributes = SHAPES[name]
    x, w = (f"tensor<{'x'.join(map(str, s))}xi32>" for s in (image, kernel))
    return f"""func @main(%x: {x} {{range = [{low}, {high}]}}) {{
  %w = const dense<{weights.tolist()}> : {w}
  %s = cvm.conv2d %x, %w {{{attributes}}}
  %y = cvm.cvm_right_shift %s {{precision = 24, shift_bit = 1}}
  return %y
}}
"""
