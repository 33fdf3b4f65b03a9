"""Objects that are no NumPy arrays but show their memory: arguments, and what results are written
into.
"""

from __future__ import annotations

import array
import ctypes

import numpy as np
import pytest

import cvm


def test_buffers_are_arrays() -> None:
    f = cvm.compile(lambda x: x + x)
    for given in (
        array.array("i", [3, 4]),
        bytearray(b"\3\4"),
        (ctypes.c_float * 2)(3, 4),
        memoryview(b"\3\4"),
    ):
        assert f(given).tolist() == [6, 8]


def test_out_shows_its_memory() -> None:
    f, x = cvm.compile(lambda x: x + 1), np.arange(3, dtype=np.float32)
    memory = array.array("f", [0] * 3)
    assert f(x, out=memory) is memory and memory.tolist() == [1, 2, 3]
    with pytest.raises(cvm.Error, match="got tensor<3xi32>"):
        f(x, out=array.array("i", [0] * 3))
    with pytest.raises(cvm.Error, match="got dict"):
        f(x, out={"y": np.empty(3)})
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(3)
    assert f(torch.arange(3.0), out=tensor) is tensor and tensor.tolist() == [1, 2, 3]
