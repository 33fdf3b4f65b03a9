"""Rearrangements are done by tiles, whatever the sizes leave over."""

from __future__ import annotations

import numpy as np
import pytest
from cvm.lowering import tile
from cvm.lowering.check import check
from cvm.lowering.pipeline import lower

import cvm


@pytest.mark.parametrize("shape", [(40, 64), (33, 35), (32, 100)])
@pytest.mark.parametrize("axes", [(1, 2, 0), (2, 0, 1), (0, 2, 1)])
def test_transposes(shape: tuple[int, int], axes: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tile, "LEAST", 32)
    x = np.arange(np.prod(shape) * 2, dtype=np.int32).reshape(2, *shape)
    given, found = (f"tensor<{'x'.join(map(str, s))}xi32>" for s in (x.shape, x.transpose(axes).shape))
    text = f"func @main(%x: {given}) -> {found} {{\n  %y = cvm.transpose %x {{axes = {list(axes)}}}\n  return %y\n}}\n"
    module = cvm.parse(text)
    for kernel in lower(module, module.functions["main"]).kernels:
        check(kernel)
    np.testing.assert_array_equal(cvm.compile(module)(x), x.transpose(axes))
    if axes == (0, 2, 1):
        assert ".tile" in cvm.compile(module).lower("schedule")
