"""A short innermost axis is computed in whole vectors, whatever its length and what is left
over.
"""

from __future__ import annotations

import numpy as np
import pytest
from cvm.lowering.analysis.verify_kernel import check_kernel
from cvm.lowering.pipeline import lower

import cvm


@pytest.mark.parametrize("channels", [2, 3, 4, 5, 7])
@pytest.mark.parametrize("pixels", [64, 65, 100])
def test_channels_last(channels: int, pixels: int) -> None:
    image, gain = f"tensor<2x{pixels}x{channels}xi32>", f"tensor<{channels}xi32>"
    text = (
        f"func @main(%x: {image}, %g: {gain}) -> {image} {{\n  %y = cvm.broadcast_mul %x, %g\n"
        f"  return %y\n}}\n"
    )
    module = cvm.parse(text)
    kernels = lower(module, module.functions["main"]).kernels
    for kernel in kernels:
        check_kernel(kernel)
    schedule = cvm.compile(module).lower("schedule")
    assert f"for %p in 0..{channels} unrolled" in schedule and "in 0..8 vector 8" in schedule
    x = np.random.default_rng(0).integers(-100, 100, (2, pixels, channels)).astype(np.int32)
    g = np.arange(1, channels + 1, dtype=np.int32)
    np.testing.assert_array_equal(cvm.compile(module)(x, g), x * g)
