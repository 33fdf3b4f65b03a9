"""Programs of convolutions of floats, their arguments, and the processors that they are compiled
for.
"""

from __future__ import annotations

import numpy as np

ODD = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30, -1e-30, 1e-45]
PROCESSORS = {
    "16 registers": {},
    "32 registers": {"vector_registers": 32},
    "512 bits": {"tile_vector_bytes": 64, "vector_registers": 32},
    "128 bits": {"tile_vector_bytes": 16},
    "no cache": {"l1_bytes": 2 << 10, "l2_bytes": 4 << 10},
}
RELU = "%y = cvm.relu %s"
SCALED = "%m = dali.mul %s, 0.125\n  %y = dali.clamp %m, -1.0, 1.0"
ADDED = "%a = dali.add %s, %r\n  %y = cvm.relu %a"


def text(
    x: object, w: object, attributes: str, element: str, after: str = RELU, result: object = ""
) -> str:
    residual = f", %r: tensor<{result}x{element}>" if "%r" in after else ""
    return f"""func @main(%x: tensor<{x}x{element}>, %w: tensor<{w}x{element}>, %b: tensor<{str(w).split("x")[0]}x{element}>{residual}) {{
  %s = cvm.conv2d %x, %w, %b {{{attributes}}}
  {after}
  return %y
}}
"""


def shaped(*sizes: int) -> str:
    return "x".join(map(str, sizes))


def values(
    random: np.random.Generator, shape: tuple[int, ...], dtype: str, odd: float
) -> np.ndarray:
    made = random.standard_normal(shape).astype(dtype)
    places = random.random(shape) < odd
    made[places] = random.choice(np.array(ODD, dtype), int(places.sum()))
    return made


def same_bits(a: np.ndarray, b: np.ndarray) -> None:
    """The same numbers, signs of zeros included; NaNs have no sign and no payload."""
    np.testing.assert_array_equal(a, b, strict=True)
    numbers = ~np.isnan(a)
    np.testing.assert_array_equal(np.signbit(a)[numbers], np.signbit(b)[numbers])
